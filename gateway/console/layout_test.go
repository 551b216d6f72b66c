package console

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"tenantry/reports"
)

func TestCellText(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		kind string
		v    any
		want string
	}{
		{reports.TypeText, nil, ""},
		{reports.TypeText, "x", "x"},
		{reports.TypeText, "2024-06-01T10:00:00.000Z", "2024-06-01T10:00:00.000Z"},
		{reports.TypeDatetime, "2024-06-01T10:00:00.000Z", "2024-06-01 10:00"},
		{reports.TypeDatetime, "2024-W05", "2024-W05"},
		{reports.TypeDate, "2024-06-01", "2024-06-01"},
		{reports.TypeNumber, int64(-7), "-7"},
		{reports.TypeNumber, 3.0, "3"},
		{reports.TypeNumber, 100.0 / 3, "33.3333"},
		{reports.TypeNumber, 0.99999, "1"},
		{reports.TypeNumber, 2.50, "2.5"},
		{reports.TypeNumber, -0.25, "-0.25"},
		{reports.TypeNumber, 0.0, "0"},
		{reports.TypeNumber, 0.0000012, "1.2e-06"},
		{reports.TypeNumber, 1e300, "1e+300"},
		{reports.TypeBoolean, true, "yes"},
		{reports.TypeBoolean, false, "no"},
		{reports.TypeList, []any{"a", nil, "b"}, "a, , b"},
		{reports.TypeList, []string{"a", "b"}, "a, b"},
		{reports.TypeList, []any{}, ""},
	} {
		if got := cellText(test.kind, test.v); got != test.want {
			t.Errorf("%s %v: %q, want %q", test.kind, test.v, got, test.want)
		}
	}
}

func TestCountText(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		shown int
		data  reports.Data
		want  string
	}{
		{0, reports.Data{}, "0 rows."},
		{1, reports.Data{Total: 1}, "1 row."},
		{1234, reports.Data{Total: 1234}, "1,234 rows."},
		{100, reports.Data{Total: 1234567, Truncated: true}, "The first 100 of 1,234,567 rows are shown."},
		{100, reports.Data{Total: 100, Truncated: true}, "The first 100 rows are shown; there are more."},
	} {
		if got := countText(test.shown, &test.data); got != test.want {
			t.Errorf("%+v: %q, want %q", test.data, got, test.want)
		}
	}
}

func TestLayOutDrawsTheLastNumber(t *testing.T) {
	t.Parallel()
	shared := reports.Shared{Visual: "bar", Data: &reports.Data{
		Columns: []reports.Column{{Title: "Age", Type: reports.TypeNumber}, {Title: "Country", Type: reports.TypeText}, {Title: "Count", Type: reports.TypeNumber}},
		Rows:    [][]any{{int64(90), "DE", int64(8)}, {int64(1), "FR", int64(2)}, {int64(2), "IT", nil}, {int64(3), "ES", -4.0}},
	}}
	v := layOut(&shared)
	var bars []string
	for _, r := range v.Rows {
		bars = append(bars, r.Bar)
	}
	if diff := cmp.Diff([]string{"100.0", "25.0", "", ""}, bars); diff != "" || v.BarTitle != "Count" {
		t.Errorf("%s %q", diff, v.BarTitle)
	}
	shared.Data.Rows = [][]any{{nil, "x", int64(0)}, {nil, "y", -1.5}}
	for _, r := range layOut(&shared).Rows {
		if r.Bar != "" {
			t.Errorf("nothing is above nothing, yet a bar of %s", r.Bar)
		}
	}
	shared.Data.Columns[0].Type, shared.Data.Columns[2].Type = reports.TypeText, reports.TypeText
	if v := layOut(&shared); v.BarTitle != "" {
		t.Error("texts are drawn")
	}
	shared.Data = nil
	if v := layOut(&shared); v.Rows != nil || v.Figure != nil {
		t.Error("without rows")
	}
}
