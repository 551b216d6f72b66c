package locale

import (
	"strings"
	"testing"
	"time"

	"tenantry/gateway/console/chart"
)

// TestReadersLanguage checks the formats of several languages, and that no locale loses the sign of a number.
func TestReadersLanguage(t *testing.T) {
	t.Parallel()
	r := New()
	at := time.Date(2026, 3, 5, 14, 7, 0, 0, time.UTC)
	for accepted, want := range map[string]string{
		"":                          "-1,234.5|12%|Mar 5, 2026|Mar 2026|Mar 5|Mar 5, 2026, 2:07 pm",
		"en-AU":                     "-1,234.5|12%|5 Mar 2026|Mar 2026|5 Mar|5 Mar 2026 14:07",
		"de":                        "-1.234,5|12\u00a0%|05.03.2026|März 2026|5. März|05.03.2026 14:07",
		"fr-CA;q=0.8, xx":           "-1\u202f234,5|12\u00a0%|5 mars 2026|mars 2026|5 mars|5 mars 2026 14:07",
		"ja":                        "-1,234.5|12%|2026/03/05|2026 3月|3月 5|2026/03/05 14:07",
		"tlh, *;q=0.1":              "-1,234.5|12%|Mar 5, 2026|Mar 2026|Mar 5|Mar 5, 2026, 2:07 pm",
		strings.Repeat("de,", 5000): "-1.234,5|12\u00a0%|05.03.2026|März 2026|5. März|05.03.2026 14:07",
		"\x00;;q=":                  "-1,234.5|12%|Mar 5, 2026|Mar 2026|Mar 5|Mar 5, 2026, 2:07 pm",
	} {
		l := r.For(accepted)
		tick, _ := l.Tick(at, chart.Day)
		if midnight := l.Moment(at.Truncate(24 * time.Hour)); strings.HasSuffix(midnight, "am") && !strings.HasSuffix(midnight, ", 12:00 am") {
			t.Errorf("%.20q: midnight is %q", accepted, midnight)
		}
		got := strings.Join([]string{l.Number(-1234.5), l.Percent(12), l.Time(at, chart.Day), l.Time(at, chart.Month), tick, l.Moment(at)}, "|")
		if got != want {
			t.Errorf("%.20q:\n%q, want\n%q", accepted, got, want)
		}
	}
	for _, l := range r.all {
		if text := l.Number(-1234567.25); !strings.ContainsAny(text, "-−") || strings.Count(text, "5") != 2 || l.Number(0) != "0" || !strings.Contains(l.Time(at, chart.Day), "2026") {
			t.Errorf("%s: %q %q", l.tag, text, l.Time(at, chart.Day))
		}
	}
}
