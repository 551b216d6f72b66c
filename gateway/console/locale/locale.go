// Package locale writes numbers, dates and times as the readers of a page do, by the Accept-Language header of their browsers.
package locale

import (
	"cmp"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/go-playground/locales"
	"github.com/go-playground/locales/ar"
	"github.com/go-playground/locales/bg"
	"github.com/go-playground/locales/cs"
	"github.com/go-playground/locales/da"
	"github.com/go-playground/locales/de"
	"github.com/go-playground/locales/de_CH"
	"github.com/go-playground/locales/el"
	"github.com/go-playground/locales/en"
	"github.com/go-playground/locales/en_GB"
	"github.com/go-playground/locales/es"
	"github.com/go-playground/locales/fi"
	"github.com/go-playground/locales/fr"
	"github.com/go-playground/locales/he"
	"github.com/go-playground/locales/hi"
	"github.com/go-playground/locales/hu"
	"github.com/go-playground/locales/it"
	"github.com/go-playground/locales/ja"
	"github.com/go-playground/locales/ko"
	"github.com/go-playground/locales/nb"
	"github.com/go-playground/locales/nl"
	"github.com/go-playground/locales/pl"
	"github.com/go-playground/locales/pt"
	"github.com/go-playground/locales/ro"
	"github.com/go-playground/locales/ru"
	"github.com/go-playground/locales/sv"
	"github.com/go-playground/locales/th"
	"github.com/go-playground/locales/tr"
	"github.com/go-playground/locales/uk"
	"github.com/go-playground/locales/zh"
	"golang.org/x/text/language"

	"tenantry/gateway/console/chart"
)

// Locale writes numbers and dates as its readers do. It is immutable.
type Locale struct {
	locales.Translator
	monthFirst, yearFirst bool
	dot                   string // after the number of a day
	comma                 string // between a date and a time
}

// Set are the locales there are.
type Set struct {
	matcher language.Matcher
	all     []*Locale
}

// New returns the locales; English is for readers whose language is none of them.
func New() *Set {
	r := &Set{}
	var tags []language.Tag
	for _, t := range []locales.Translator{
		en.New(), en_GB.New(), ar.New(), bg.New(), cs.New(), da.New(), de.New(), de_CH.New(), el.New(), es.New(), fi.New(), fr.New(), he.New(), hi.New(), hu.New(),
		it.New(), ja.New(), ko.New(), nb.New(), nl.New(), pl.New(), pt.New(), ro.New(), ru.New(), sv.New(), th.New(), tr.New(), uk.New(), zh.New(),
	} {
		probe := time.Date(2001, 2, 3, 0, 0, 0, 0, time.UTC)
		medium, long := t.FmtDateMedium(probe), t.FmtDateLong(probe)
		l := &Locale{Translator: t, yearFirst: strings.HasPrefix(medium, "2001"), comma: " "}
		if l.monthFirst = l.yearFirst || !strings.HasPrefix(long, "3"); l.monthFirst && !l.yearFirst {
			l.comma = ", "
		}
		if strings.HasPrefix(long, "3. ") {
			l.dot = "."
		}
		r.all, tags = append(r.all, l), append(tags, language.Make(t.Locale()))
	}
	r.matcher = language.NewMatcher(tags)
	return r
}

// maxAccepted bounds what is read of an Accept-Language header.
const maxAccepted = 200

// For returns the locale that fits an Accept-Language header best. Each language is read by itself, so that
// one that nobody knows does not hide the others.
func (r *Set) For(accepted string) *Locale {
	type wish struct {
		tag    language.Tag
		weight float32
	}
	var wishes []wish
	for part := range strings.SplitSeq(accepted[:min(len(accepted), maxAccepted)], ",") {
		if some, weights, err := language.ParseAcceptLanguage(part); err == nil && len(some) == 1 {
			wishes = append(wishes, wish{some[0], weights[0]})
		}
	}
	slices.SortStableFunc(wishes, func(a, b wish) int { return cmp.Compare(b.weight, a.weight) })
	tags := make([]language.Tag, len(wishes))
	for i, w := range wishes {
		tags[i] = w.tag
	}
	_, i, sure := r.matcher.Match(tags...)
	if sure == language.No {
		return r.all[0]
	}
	return r.all[i]
}

// Number writes a number with at most four decimals, but never a small one as nothing.
func (l *Locale) Number(x float64) string {
	if size := math.Abs(x); size >= 1e15 || (size < 0.001 && x != 0) {
		return strconv.FormatFloat(x, 'g', 6, 64)
	}
	_, decimals, _ := strings.Cut(strconv.FormatFloat(x, 'f', 4, 64), ".")
	return l.FmtNumber(x, uint64(len(strings.TrimRight(decimals, "0"))))
}

// Percent writes a share of 100.
func (l *Locale) Percent(x float64) string {
	if math.Abs(x) >= 10 || x == math.Trunc(x) {
		return l.FmtPercent(math.Round(x), 0)
	}
	return l.FmtPercent(x, 1)
}

// Time writes a moment, of which the step matters, in UTC.
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

// Moment writes a date and the time of that day.
func (l *Locale) Moment(t time.Time) string { return l.FmtDateMedium(t) + l.comma + l.clock(t) }

// clock writes the time of a day. Where it has twelve hours, the first of them is the twelfth, which the locales call 0.
func (l *Locale) clock(t time.Time) string {
	text := l.FmtTimeShort(t)
	if t.Hour() == 0 && !strings.Contains(l.FmtTimeShort(t.Add(13*time.Hour)), "13") {
		text = strings.Replace(text, "0:", "12:", 1)
	}
	return text
}

func (l *Locale) month(t time.Time) string {
	year := strconv.Itoa(t.Year())
	if l.yearFirst {
		return year + " " + l.MonthAbbreviated(t.Month())
	}
	return l.MonthAbbreviated(t.Month()) + " " + year
}

// Tick writes a moment shortly, and apart what it is part of.
func (l *Locale) Tick(t time.Time, step chart.Step) (text, within string) {
	year := strconv.Itoa(t.Year())
	day := strconv.Itoa(t.Day()) + l.dot + " " + l.MonthAbbreviated(t.Month())
	if l.monthFirst {
		day = l.MonthAbbreviated(t.Month()) + " " + strconv.Itoa(t.Day())
	}
	switch step {
	case chart.Minute, chart.Hour:
		return strings.Replace(l.clock(t), ":00 ", " ", 1), day // "6 pm" where there is am and pm
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
