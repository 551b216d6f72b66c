// Package locale formats numbers, dates and times for the reader of a page, by the Accept-Language header of the
// browser.
package locale

import (
	"cmp"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/text/language"

	"tenantry/gateway/console/chart"
)

// Locale formats numbers and dates by the conventions of a language. It is immutable.
type Locale struct {
	conventions
	monthFirst, yearFirst bool
	dot                   string // after the number of a day
	comma                 string // between a date and a time
}

// Set is the set of supported locales.
type Set struct {
	matcher language.Matcher
	all     []*Locale
}

// New returns the supported locales. English is the default.
func New() *Set {
	r := &Set{}
	var tags []language.Tag
	for _, c := range allConventions() {
		l := &Locale{conventions: c, yearFirst: strings.HasPrefix(c.date, "2006"), comma: " "}
		if l.monthFirst = l.yearFirst || strings.HasPrefix(c.date, "Jan"); l.monthFirst && !l.yearFirst {
			l.comma = ", "
		}
		if c.dotted {
			l.dot = "."
		}
		r.all, tags = append(r.all, l), append(tags, language.Make(c.tag))
	}
	r.matcher = language.NewMatcher(tags)
	return r
}

// maxAccepted bounds what is read of an Accept-Language header, in bytes.
const maxAccepted = 200

// For returns the locale that matches an Accept-Language header best. It parses each language separately, because one
// invalid language would otherwise make the whole header invalid.
func (r *Set) For(accepted string) *Locale {
	type preference struct {
		tag    language.Tag
		weight float32
	}
	var preferences []preference
	for part := range strings.SplitSeq(accepted[:min(len(accepted), maxAccepted)], ",") {
		if some, weights, err := language.ParseAcceptLanguage(part); err == nil && len(some) == 1 {
			preferences = append(preferences, preference{some[0], weights[0]})
		}
	}
	slices.SortStableFunc(preferences, func(a, b preference) int { return cmp.Compare(b.weight, a.weight) })
	tags := make([]language.Tag, len(preferences))
	for i, p := range preferences {
		tags[i] = p.tag
	}
	_, i, sure := r.matcher.Match(tags...)
	if sure == language.No {
		return r.all[0]
	}
	return r.all[i]
}

// Number formats a number with at most four decimals. Very small and very large numbers have an exponent.
func (l *Locale) Number(x float64) string {
	if size := math.Abs(x); size >= 1e15 || (size < 0.001 && x != 0) {
		return strconv.FormatFloat(x, 'g', 6, 64)
	}
	_, decimals, _ := strings.Cut(strconv.FormatFloat(x, 'f', 4, 64), ".")
	return l.FmtNumber(x, uint64(len(strings.TrimRight(decimals, "0"))))
}

// Percent formats a percentage, with one decimal if it is below 10 and not whole.
func (l *Locale) Percent(x float64) string {
	if math.Abs(x) >= 10 || x == math.Trunc(x) {
		return l.FmtPercent(math.Round(x), 0)
	}
	return l.FmtPercent(x, 1)
}

// Time formats a time at the precision of a step.
func (l *Locale) Time(t time.Time, step chart.Step) string {
	switch step {
	case chart.Day:
		return l.FmtDateMedium(t)
	case chart.Week:
		return "week of " + l.FmtDateMedium(t)
	case chart.Month:
		return l.month(t)
	case chart.Quarter:
		return "Q" + strconv.Itoa((int(t.Month())+2)/3) + " " + strconv.Itoa(t.Year())
	case chart.Year:
		return strconv.Itoa(t.Year())
	}
	if t.Truncate(24 * time.Hour).Equal(t) {
		return l.FmtDateMedium(t)
	}
	return l.Moment(t)
}

// Moment formats a date and the time of day.
func (l *Locale) Moment(t time.Time) string { return l.FmtDateMedium(t) + l.comma + l.FmtTimeShort(t) }

func (l *Locale) month(t time.Time) string {
	year := strconv.Itoa(t.Year())
	if l.yearFirst {
		return year + " " + l.MonthAbbreviated(t.Month())
	}
	return l.MonthAbbreviated(t.Month()) + " " + year
}

// Tick formats a time for the tick of an axis, and separately the day or year that it is within.
func (l *Locale) Tick(t time.Time, step chart.Step) (text, within string) {
	year := strconv.Itoa(t.Year())
	day := strconv.Itoa(t.Day()) + l.dot + " " + l.MonthAbbreviated(t.Month())
	if l.monthFirst {
		day = l.MonthAbbreviated(t.Month()) + " " + strconv.Itoa(t.Day())
	}
	switch step {
	case chart.Minute, chart.Hour:
		return strings.Replace(l.FmtTimeShort(t), ":00 ", " ", 1), day // "6 pm" in locales with am and pm
	case chart.Month:
		return l.MonthAbbreviated(t.Month()), year
	case chart.Quarter:
		return "Q" + strconv.Itoa((int(t.Month())+2)/3), year
	case chart.Year:
		return year, ""
	case chart.Any:
		return l.Time(t, step), ""
	}
	return day, year
}
