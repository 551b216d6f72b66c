package filters

import (
	"encoding/json"
	"math"
	"strconv"
	"strings"
	"time"

	"tenantry/backends/store"
	"tenantry/internal/texts"
)

// as returns the value for a field of the type: a string, bool, int64 or float64.
func (l literal) as(t store.Type) (any, bool) {
	switch t {
	case store.TypeBool:
		return l.boolean()
	case store.TypeInt, store.TypeFloat:
		if l.form != loose && l.form != numeric {
			return nil, false
		}
		return parseNumber(l.text)
	default:
		return l.text, l.form == loose || l.form == quoted
	}
}

func (l literal) boolean() (value, ok bool) {
	if l.form != loose && l.form != truth {
		return false, false
	}
	return l.text == "true", l.text == "true" || l.text == "false"
}

// maxDigits is longer than any number that a double can distinguish.
const maxDigits = 400

// parseNumber accepts only JSON numbers: no hexadecimal, no NaN, no plus sign or leading zeros. Integers of 64 bits
// stay exact.
func parseNumber(s string) (any, bool) {
	if len(s) > maxDigits || !isNumber(s) {
		return nil, false
	}
	if n, err := strconv.ParseInt(s, 10, 64); err == nil {
		return n, true
	}
	f, err := strconv.ParseFloat(s, 64)
	if err != nil || math.IsInf(f, 0) {
		return nil, false
	}
	return f, true
}

// isNumber reports whether s is a JSON number. No other JSON value begins and ends with such characters.
func isNumber(s string) bool {
	const digits = "0123456789"
	return s != "" && strings.Contains("-"+digits, s[:1]) && strings.Contains(digits, s[len(s)-1:]) && json.Valid([]byte(s))
}

// moment is a point in time, a whole day, or a whole second.
type moment struct {
	at          time.Time
	day, second bool
}

func (l literal) moment() (moment, bool) {
	if l.form != loose && l.form != quoted {
		return moment{}, false
	}
	if len(l.text) == len(time.DateOnly) {
		at, err := time.Parse(time.DateOnly, l.text)
		return moment{at: at, day: true}, err == nil
	}
	if len(l.text) < len("2006-01-02T15:04:05Z") || l.text[13] != ':' || strings.Contains(l.text, ",") {
		return moment{}, false // time.Parse accepts it, RFC 3339 does not
	}
	at, err := time.Parse(time.RFC3339Nano, l.text)
	return moment{at: at.UTC()}, err == nil
}

// endOfTime is the year 10000, in Unix seconds.
const endOfTime = 253402300800

// moments binds a condition on a Time or Date.
func (b *binder) moments(c condition, field Field, values []literal) (store.Filter, bool) {
	var points []any
	var days []store.Filter
	negative := c.op == store.OpNe || c.op == store.OpNin
	equality := negative || c.op == store.OpEq || c.op == store.OpIn
	for _, v := range values {
		m, ok := v.moment()
		if seconds, err := strconv.ParseInt(v.text, 10, 64); field.Seconds && err == nil && v.form != quoted && seconds >= 0 && seconds < endOfTime {
			m, ok = moment{at: time.Unix(seconds, 0).UTC(), second: true}, true
		}
		if !ok {
			b.errs.Add(c.label, "type", "%s must be %s%s", c.label, phrase(field.Ref.Type), texts.NoSuchTime(v.text))
			return store.Filter{}, false
		}
		switch {
		case equality && (m.day || m.second):
			days = append(days, m.span(field, negative))
		case equality && field.Ref.Type == store.TypeDate && m.midnight(): // equal to both texts that may represent it
			points = append(points, m.value(store.TypeDate, store.OpGte), m.value(store.TypeDate, store.OpLte))
		default:
			points = append(points, m.value(field.Ref.Type, c.op))
		}
	}
	if b.budget -= max(0, len(days)-1); b.budget < 0 {
		b.errs.Add(c.label, "length", "%s: with this list of dates the filter has more than %d conditions", c.label, MaxConditions)
		return store.Filter{}, false
	}
	several := store.OpIn
	if negative {
		several = store.OpNin
	}
	switch {
	case len(days) == 0 && len(points) == 1:
		return store.Where(field.Ref, c.op, points...), true
	case len(days) == 0:
		return store.Where(field.Ref, several, points...), true
	case len(points) > 0:
		days = append(days, store.Where(field.Ref, several, points...))
	}
	if negative {
		return store.All(days...), true
	}
	return store.AnyOf(days...), true
}

// midnight reports whether the moment, in milliseconds, is the start of a day in UTC.
func (m moment) midnight() bool {
	return m.at.Truncate(time.Millisecond).Equal(m.at.Truncate(24 * time.Hour))
}

// value returns the moment as the field stores it, in milliseconds. A finer moment is rounded to the side that keeps
// the comparison correct; a second stands for all of its milliseconds.
//
// A Date is compared as text, and midnight may be stored as a day or as a time, which begins with the day and so comes
// after it. For gte and lt midnight is the first of these, otherwise the last, so that no comparison separates them.
func (m moment) value(t store.Type, op store.Op) any {
	at := m.at.Truncate(time.Millisecond)
	below := op == store.OpGte || op == store.OpLt // the bound is below what equals it
	if below && at.Before(m.at) {
		at = at.Add(time.Millisecond)
	}
	if m.second && !below {
		at = at.Add(time.Second - time.Millisecond)
	}
	switch {
	case t == store.TypeTime:
		return at.UnixMilli()
	case at.Year() > 9999: // as text it would sort before most years
		return "9999-12-31~"
	case below && (moment{at: at}).midnight():
		return at.Format(time.DateOnly)
	}
	return at.Format(texts.TimeLayout)
}

// span returns the condition to lie within the day or second, or outside of it.
func (m moment) span(field Field, outside bool) store.Filter {
	var first, end any
	if field.Ref.Type == store.TypeTime {
		first, end = m.at.UnixMilli(), m.at.AddDate(0, 0, 1).UnixMilli()
		if m.second {
			end = m.at.Add(time.Second).UnixMilli()
		}
	} else {
		day := m.at.Format(time.DateOnly)
		first, end = day, day+"~" // after everything that starts with the day
	}
	if outside {
		return store.AnyOf(store.Where(field.Ref, store.OpExists, false),
			store.Where(field.Ref, store.OpLt, first), store.Where(field.Ref, store.OpGte, end))
	}
	return store.All(store.Where(field.Ref, store.OpGte, first), store.Where(field.Ref, store.OpLt, end))
}
