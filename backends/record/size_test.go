package record_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"tenantry/backends/record"
	"tenantry/backends/record/field"
	"tenantry/internal/fault"
)

// TestSize: the size of a record is that of its fields as JSON, including sealed values and the names of values.
func TestSize(t *testing.T) {
	t.Parallel()
	of := define(t)
	long := strings.Repeat("x", 1000)
	for name, rec := range map[string]*tool{
		"a text": {Mail: long}, "a list": {Words: []string{long[:500], long[500:]}}, "an object": {Notes: map[string]any{"n": long}},
		"values": {Values: map[string]any{"v": long}}, "a list among them": {Values: map[string]any{"v": []any{long[:500], json.Number("1"), long[500:]}}},
		"escapes": {Name: strings.Repeat("\n", 500)}, "secrets": {Secrets: map[string]string{"s": long}}, "many names": {Values: map[string]any{long: true}},
	} {
		if size, _ := of.Size(rec); size < 1000 || size > 1200 {
			t.Errorf("%s: size %d, want 1000 to 1200", name, size)
		}
	}
	if size, _ := of.Size(&tool{Inner: long}); size > 100 {
		t.Errorf("size with a local field of 1000 bytes = %d, want at most 100", size)
	}
	for _, value := range []any{"a\"\\\n\t\x01ü\u2028", []any{"a", true, nil}, map[string]any{"a": []any{}, "b\n": "c"}} {
		text := field.AppendJSON(nil, value)
		if got, want := field.SizeOf(value), len(strings.ReplaceAll(string(text), `\u2028`, "\u2028")); got < want || got > want+16 {
			t.Errorf("SizeOf(%s) = %d, want %d to %d", text, got, want, want+16)
		}
	}
}

// TestFits: a record may be as large as MaxRecord. One that was larger before may be stored if it does not grow.
func TestFits(t *testing.T) {
	t.Parallel()
	of := define(t)
	rec := &tool{Values: map[string]any{"v": ""}}
	empty, _ := of.Size(rec)
	for n, want := range map[int]string{1<<16 - 8: "", 1 << 16: "values, most of them notes: a record has at most 65536"} {
		var errs fault.List
		of.Fits(&tool{Notes: map[string]any{"v": slices.Repeat([]any{json.Number("1")}, n)}}, record.Measure{}, 0, &errs)
		if (len(errs) == 0) != (want == "") || want != "" && !strings.HasSuffix(errs[0].Message, want) {
			t.Errorf("%d values: %v, want %q", n, errs, want)
		}
	}
	many := func(n int) *tool { return &tool{Notes: map[string]any{"v": slices.Repeat([]any{json.Number("1")}, n)}} }
	for n, good := range map[int]bool{99_999: true, 100_000: true, 100_001: false} { // of one that had 100,000 before
		var errs fault.List
		if of.Fits(many(n), of.Measure(many(100_000)), 0, &errs); (len(errs) == 0) != good {
			t.Errorf("%d values in a record that had 100000: %v, want accepted %t", n, errs, good)
		}
	}
	withID := &tool{Name: "a"}
	without, _ := of.Size(withID)
	if withID.ID = strings.Repeat("a", 24); of.Measure(withID).Bytes != without {
		t.Errorf("size with an identifier = %d, want %d as without", of.Measure(withID).Bytes, without)
	}
	for _, c := range []struct {
		more, before, sealed int
		good                 bool
	}{
		{0, 0, 0, true}, {1, 0, 0, false}, {0, 0, 1, false}, {5, record.MaxRecord + 5, 0, true}, {6, record.MaxRecord + 5, 0, false}, {0, 10, 0, true},
	} {
		rec.Values["v"] = strings.Repeat("x", record.MaxRecord-empty+c.more)
		var errs fault.List
		of.Fits(rec, record.Measure{Bytes: c.before}, c.sealed, &errs)
		if (len(errs) == 0) != c.good {
			t.Errorf("%+v: %v, want accepted %t", c, errs, c.good)
		}
		want := fmt.Sprintf("the tool takes %d bytes, most of them values.v: a record takes at most 524288", record.MaxRecord+c.more+c.sealed)
		if !c.good && (errs[0].Field != "values.v" || errs[0].Code != fault.Length || errs[0].Message != want) {
			t.Errorf("%+v: %v, want %q", c, errs, want)
		}
	}
}
