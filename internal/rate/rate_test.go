package rate

import (
	"encoding/json"
	"strings"
	"testing"

	"tenantry/internal/fault"
	"tenantry/internal/strictjson"
)

func TestParse(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]Limit{
		"":             {},
		"off":          {count: -1},
		"1/s":          {1, 1000},
		"6000/m":       {6000, 60_000},
		"20000/h":      {20_000, 3_600_000},
		"100000000/d":  {100_000_000, 86_400_000},
		"0000000100/s": {100, 1000},
	} {
		got, err := Parse(text)
		if err != nil || got != want {
			t.Errorf("Parse(%q) = %+v, %v, want %+v", text, got, err, want)
		}
		if again, err := Parse(got.String()); err != nil || again != got {
			t.Errorf("Parse(%q) = %+v, %v, want %+v", got.String(), again, err, got)
		}
	}
	for text, says := range map[string]string{
		"100": "write it like", "/s": "write it like", "100/": "no known period", "100/w": "no known period", "100/S": "no known period",
		"-1/s": "write it like", "+1/s": "write it like", "1.5/s": "write it like", "1e3/s": "write it like", " 1/s": "write it like",
		"0/s": "out of range", "100000001/d": "out of range", "99999999999999999999999/s": "write it like", "Off": "write it like",
		strings.Repeat("9", 10_000) + "/s": "write it like", "100/\xff": "no known period",
	} {
		got, err := Parse(text)
		if err == nil || !strings.Contains(err.Error(), says) || len(err.Error()) > 300 {
			t.Errorf("%.50q: got %v, %v, want an error and containing %q and len(err.Error()) <= 300", text, got, err, says)
		}
	}
}

func TestLimitsAsJSON(t *testing.T) {
	t.Parallel()
	set := Set{Organization: Pair{Rate: mustParse(t, "100/s")}, Key: Pair{Quota: mustParse(t, "off")}}
	raw, err := json.Marshal(set)
	if want := `{"organization":{"rate":"100/s"},"key":{"quota":"off"}}`; err != nil || string(raw) != want {
		t.Errorf("Marshal = %s, %v, want %s", raw, err, want)
	}
	var back Set
	if err := json.Unmarshal(raw, &back); err != nil || back != set {
		t.Errorf("Unmarshal = %+v, %v, want %+v", back, err, set)
	}
	if err := json.Unmarshal([]byte(`{"key":{"rate":"fast"}}`), &back); err == nil {
		t.Errorf("Unmarshal of a malformed limit = %+v, want an error", back)
	}
}

func TestLimitsOfALine(t *testing.T) {
	t.Parallel()
	for text, good := range map[string]bool{
		`{}`: true, `{"organization":{"rate":"100/s"},"key":{"quota":"off"}}`: true, `{"visitor":{"rate":""}}`: true,
		`null`: false, `[]`: false, `"100/s"`: false, `{"organization":"100/s"}`: false, `{"organisation":{"rate":"100/s"}}`: false,
		`{"key":{"rates":"100/s"}}`: false, `{"key":{"rate":"fast"}}`: false, `{"key":{"rate":100}}`: false,
	} {
		var p strictjson.Parser
		v, err := p.Parse(text)
		if err != nil {
			t.Fatal(err)
		}
		var set Set
		var errs fault.List
		if set.ReadValue("request_limits", v, &errs); (len(errs) == 0) != good || !good && (errs[0].Field != "request_limits" || errs[0].Code != fault.Format) {
			t.Errorf("%s: got %v, want (len(errs) == 0) = %v", text, errs, good)
		}
	}
}

func TestOr(t *testing.T) {
	t.Parallel()
	a, b, off := mustParse(t, "1/s"), mustParse(t, "2/d"), mustParse(t, "off")
	got := Pair{Rate: a, Quota: off}.Or(Pair{Rate: b, Quota: b})
	if want := (Pair{Rate: a, Quota: off}); got != want {
		t.Errorf("Or with own limits = %v, want %v", got, want)
	}
	if got := (Pair{}).Or(Pair{Rate: b, Quota: off}); got != (Pair{Rate: b, Quota: off}) {
		t.Errorf("Or without own limits = %v, want %v", got, Pair{Rate: b, Quota: off})
	}
}

func mustParse(t testing.TB, text string) Limit {
	t.Helper()
	l, err := Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	return l
}
