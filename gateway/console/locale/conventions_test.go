package locale

import (
	"math"
	"math/rand/v2"
	"strings"
	"testing"
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
)

// libraries returns the locales of the library, in the order of allConventions.
func libraries() []locales.Translator {
	return []locales.Translator{
		en.New(), en_GB.New(), ar.New(), bg.New(), cs.New(), da.New(), de.New(), de_CH.New(), el.New(), es.New(), fi.New(), fr.New(),
		he.New(), hi.New(), hu.New(), it.New(), ja.New(), ko.New(), nb.New(), nl.New(), pl.New(), pt.New(), ro.New(), ru.New(), sv.New(),
		th.New(), tr.New(), uk.New(), zh.New(),
	}
}

// TestConventionsAreThoseOfCLDR compares the conventions with a library that is generated from CLDR.
func TestConventionsAreThoseOfCLDR(t *testing.T) {
	t.Parallel()
	readers := New()
	if len(libraries()) != len(readers.all) {
		t.Fatalf("%d languages, want %d", len(readers.all), len(libraries()))
	}
	for i, want := range libraries() {
		got := readers.all[i]
		t.Run(want.Locale(), func(t *testing.T) {
			t.Parallel()
			equal := func(what string, of any, got, want string) {
				t.Helper()
				if got != want {
					t.Errorf("%s of %v: %q, want %q", what, of, got, want)
				}
			}
			equal("tag", i, got.tag, want.Locale())
			for range 500 {
				x := (rand.Float64() - 0.5) * math.Pow(10, float64(rand.IntN(15)))
				v := rand.Uint64N(5)
				equal("number", x, got.FmtNumber(x, v), want.FmtNumber(x, v))
				equal("percent", x, got.FmtPercent(x, v), want.FmtPercent(x, v))
				at := time.Unix(rand.Int64N(4e9), 0).UTC()
				equal("date", at, got.FmtDateMedium(at), want.FmtDateMedium(at))
				equal("month", at, got.MonthAbbreviated(at.Month()), want.MonthAbbreviated(at.Month()))
				clock := want.FmtTimeShort(at)
				if got.pm != "" && at.Hour() == 0 { // the library calls the first of twelve hours 0
					clock = strings.Replace(clock, "0:", "12:", 1)
				}
				equal("time", at, got.FmtTimeShort(at), clock)
				long := want.FmtDateLong(time.Date(2001, 2, 3, 0, 0, 0, 0, time.UTC))
				if got.dot != "" != strings.HasPrefix(long, "3. ") || got.monthFirst == strings.HasPrefix(long, "3") {
					t.Errorf("order of %q: dot %q, month first %v", long, got.dot, got.monthFirst)
				}
			}
		})
	}
}
