package report

import (
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"tenantry/backends/store"
	"tenantry/gateway/console/locale"
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
		{reports.TypeDatetime, "2024-06-01T10:00:00.000Z", "Jun 1, 2024, 10:00 am"},
		{reports.TypeDatetime, "2024-W05", "2024-W05"},
		{reports.TypeDate, "2024-06-01", "Jun 1, 2024"},
		{reports.TypeNumber, int64(-7), "-7"},
		{reports.TypeNumber, int64(1234567), "1,234,567"},
		{reports.TypeNumber, int64(9007199254740993), "9007199254740993"},
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
		if got := cellText(locale.New().For(""), test.kind, test.v); got != test.want {
			t.Errorf("%s %v: %q, want %q", test.kind, test.v, got, test.want)
		}
	}
}

func TestMoment(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		text string
		by   store.Bucket
		want string // empty: none
	}{
		{"2024-W01", store.Week, "2024-01-01"}, {"2024-W20", store.Week, "2024-05-13"}, {"2021-W01", store.Week, "2021-01-04"}, {"2020-W53", store.Week, "2020-12-28"},
		{"2024-W00", store.Week, ""}, {"2024-W54", store.Week, ""}, {"2024-W1", store.Week, ""}, {"2024-Wxx", store.Week, ""}, {"20x4-W01", store.Week, ""},
		{"2024-Q2", store.Quarter, "2024-04-01"}, {"2024-Q5", store.Quarter, ""}, {"2024-02", store.Month, "2024-02-01"}, {"2024-13", store.Month, ""},
		{"2024", store.Year, "2024-01-01"}, {"2024-05-17", store.Day, "2024-05-17"}, {"", store.Day, ""}, {"", store.Week, ""}, {"2024-05-17", store.NoBucket, "2024-05-17"},
		{"2024-05-17T23:30:00.000-01:00", store.NoBucket, "2024-05-18"}, {"yesterday", store.NoBucket, ""},
	} {
		got, ok := parseTime(test.text, test.by)
		if ok != (test.want != "") || ok && got.Format(time.DateOnly) != test.want {
			t.Errorf("%s: %v %v, want %s", test.text, got, ok, test.want)
		}
	}
}

// TestRowsArePaged checks the rows and links of pages. The chart shows all rows.
func TestRowsArePaged(t *testing.T) {
	t.Parallel()
	shared := reports.Shared{Visual: "bar", Data: &reports.Data{Columns: []reports.Column{{Title: "City", Type: reports.TypeText}, {Title: "Age", Type: reports.TypeNumber}}}}
	for i := range 1050 {
		shared.Data.Rows = append(shared.Data.Rows, []any{"city " + strconv.Itoa(i), int64(i)})
	}
	l := locale.New().For("")
	for page, want := range map[int]string{-1: "city 0 1,2,,11", 1: "city 0 1,2,,11", 2: "city 100 1,2,3,,11", 4: "city 300 1,2,3,4,5,,11", 6: "city 500 1,,5,6,7,,11", 11: "city 1000 1,,10,11", 99: "city 1000 1,,10,11"} {
		v := layOut(&shared, l, page, pageRows)
		var pages []string
		for _, p := range v.Pages {
			pages = append(pages, p.Address)
		}
		if got := v.Rows[0][0].Text + " " + strings.Join(pages, ","); got != want || len(v.Rows) > pageRows || len(v.Charts) != 1 {
			t.Errorf("page %d: %s, want %s", page, got, want)
		}
	}
}

// TestPicturesOfReports checks which columns are drawn over which.
func TestPicturesOfReports(t *testing.T) {
	t.Parallel()
	country, month, count, age := reports.Column{Title: "Country", Type: reports.TypeText}, reports.Column{Title: "Joined (month)", Type: reports.TypeText}, reports.Column{Title: "Count", Type: reports.TypeNumber}, reports.Column{Title: "Age", Type: reports.TypeNumber}
	born := reports.Column{Title: "Born", Type: reports.TypeDate}
	for name, test := range map[string]struct {
		visual, query string
		columns       []reports.Column
		rows          [][]any
		want          string // empty: nothing is drawn
	}{
		"one group": {"bar", `{"group_by":[{"field":"a"}],"measures":[{"op":"count"}]}`, []reports.Column{country, count}, [][]any{{"DE", int64(1)}, {nil, int64(2)}, {"", int64(3)}}, "Count by Country: DE none empty; Count 1 2 3"},
		"table":     {"table", `{"group_by":[{"field":"a"}],"measures":[{"op":"count"}]}`, []reports.Column{country, count}, [][]any{{"DE", int64(1)}}, ""},
		"months":    {"line", `{"group_by":[{"field":"a","by":"month"}],"measures":[{"op":"count"}]}`, []reports.Column{month, count}, [][]any{{"2024-02", int64(1)}, {"2024-01", int64(2)}, {nil, int64(3)}}, "Count by Joined (month): Jan 2024 Feb 2024; Count 2 1"},
		"no months": {"line", `{"group_by":[{"field":"a","by":"month"}],"measures":[{"op":"count"}]}`, []reports.Column{month, count}, [][]any{{"some day", int64(1)}}, "Count by Joined (month): some day; Count 1"},
		"pivot":     {"area", `{"group_by":[{"field":"b"},{"field":"a","by":"month"}],"measures":[{"op":"count"}]}`, []reports.Column{country, month, count}, [][]any{{"DE", "2024-01", int64(1)}, {"FR", "2024-02", int64(2)}}, "Count for each Country by Joined (month): Jan 2024 Feb 2024; DE 1 NaN; FR NaN 2"},
		"many parts": {"line", `{"group_by":[{"field":"a"},{"field":"b"}],"measures":[{"op":"count"}]}`, []reports.Column{month, country, count}, [][]any{{"x", "A", int64(3)}, {"x", "B", int64(1)}, {"y", "C", int64(4)}, {"y", "D", int64(1)}, {"x", "E", int64(5)}, {"x", nil, int64(90)}, {"x", "", int64(9)}, {"y", "G", int64(2)}, {"y", "B", int64(6)}},
			"Count for each Country by Joined (month): x y; B 1 6; C NaN 4; E 5 NaN; none 90 NaN; empty 9 NaN; 3 others 3 3"},
		"pie of two":  {"pie", `{"group_by":[{"field":"b"},{"field":"a","by":"month"}],"measures":[{"op":"count"}]}`, []reports.Column{country, month, count}, [][]any{{"DE", "2024-01", int64(1)}, {"FR", "2024-02", int64(2)}}, "Count by Country, Joined (month): FR · Feb 2024 DE · Jan 2024; Count 2 1"},
		"two scales":  {"line", `{"group_by":[{"field":"a"}],"measures":[{"op":"count"},{"op":"avg","field":"c"},{"op":"sum","field":"c"}]}`, []reports.Column{country, count, age, {Title: "Sum", Type: reports.TypeNumber}}, [][]any{{"DE", int64(5), 99.5, int64(4000)}}, "Count, Age by Country: DE; Count 5; Age 99.5 | Sum by Country: DE; Sum 4000"},
		"two pies":    {"pie", `{"group_by":[{"field":"a"}],"measures":[{"op":"count"},{"op":"sum","field":"c"}]}`, []reports.Column{country, count, age}, [][]any{{"DE", int64(5), int64(6)}}, "Count by Country: DE; Count 5 | Age by Country: DE; Age 6"},
		"two pivots":  {"heat", `{"group_by":[{"field":"b"},{"field":"a"}],"measures":[{"op":"count"},{"op":"sum","field":"c"}]}`, []reports.Column{country, month, count, age}, [][]any{{"DE", "x", int64(5), int64(6)}}, "Count for each Joined (month) by Country: DE; x 5 | Age for each Joined (month) by Country: DE; x 6"},
		"ages":        {"bar", `{"group_by":[{"field":"c"}],"measures":[{"op":"count"}]}`, []reports.Column{age, count}, [][]any{{int64(40), int64(1)}, {int64(30), int64(2)}}, "Count by Age: 30 40; Count 2 1"},
		"total":       {"bar", `{"measures":[{"op":"count"},{"op":"avg","field":"c"}]}`, []reports.Column{count, age}, [][]any{{int64(4), 2.5}}, "Count: Count Age; Count 4 2.5"},
		"list":        {"bar", `{}`, []reports.Column{age, country, count, born}, [][]any{{int64(90), "DE", int64(8), nil}, {nil, "FR", 2.5, nil}}, "Age, Count by Country: DE FR; Age 90 NaN; Count 8 2.5"},
		"dated list":  {"line", `{}`, []reports.Column{country, born, count}, [][]any{{"DE", "2024-06-01", int64(8)}}, "Count by Born: Jun 1, 2024; Count 8"},
		"numbers":     {"bar", `{}`, []reports.Column{count}, [][]any{{int64(8)}, {int64(9)}}, "Count: 1 2; Count 8 9"},
		"no numbers":  {"bar", `{}`, []reports.Column{country}, [][]any{{"DE"}}, ""},
		"no rows":     {"bar", `{}`, []reports.Column{country, count}, nil, ""},
		"no values":   {"pie", `{}`, []reports.Column{country, count}, [][]any{{"DE", nil}, {"FR", int64(-1)}}, ""},
		"a text":      {"bar", `{}`, []reports.Column{country, count}, [][]any{{"DE", "many"}}, ""},
		"another's":   {"bar", `{"group_by":[{"field":"a"}],"measures":[{"op":"count"}]}`, []reports.Column{country}, [][]any{{"DE"}}, ""},
		"of no group": {"heat", `{"measures":[{"op":"count"}]}`, []reports.Column{count}, [][]any{{int64(4)}}, "Count: Count; Count 4"},
	} {
		var asked reports.Query
		if err := asked.UnmarshalJSON([]byte(test.query)); err != nil {
			t.Fatal(err)
		}
		shared := reports.Shared{Visual: test.visual, Asked: asked, Data: &reports.Data{Columns: test.columns, Rows: test.rows}}
		l, got := locale.New().For(""), ""
		for i, c := range layOut(&shared, l, 1, pageRows).Charts {
			if i > 0 {
				got += " | "
			}
			got += strings.NewReplacer("\u2068", "", "\u2069", "").Replace(c.Caption()) + ":"
			for i := range max(len(c.Over.Labels), len(c.Over.Times), len(c.Over.Numbers)) {
				switch {
				case c.Over.Times != nil:
					got += " " + l.Time(c.Over.Times[i], c.Over.Step)
				case c.Over.Numbers != nil:
					got += " " + l.Number(c.Over.Numbers[i])
				default:
					got += " " + c.Over.Labels[i]
				}
			}
			for _, s := range c.Series {
				got += "; " + s.Name
				for _, v := range s.Values {
					got += " " + strconv.FormatFloat(v, 'g', -1, 64)
				}
			}
		}
		if got != test.want {
			t.Errorf("%s: %q, want %q", name, got, test.want)
		}
	}
}

// TestManyPartsOfAPicture bounds the memory for charts with as many parts as points. The bound matters because
// everybody may open a shared report.
func TestManyPartsOfAPicture(t *testing.T) { //nolint:paralleltest // allocations of other tests would count too
	const rows, most = 10_000, 100 << 20
	text, number := reports.Column{Title: "Text", Type: reports.TypeText}, reports.Column{Title: "Number", Type: reports.TypeNumber}
	day := reports.Column{Title: "Day", Type: reports.TypeDate}
	var asked reports.Query
	if err := asked.UnmarshalJSON([]byte(`{"group_by":[{"field":"a"},{"field":"b"}],"measures":[{"op":"sum","field":"c"},{"op":"count"},{"op":"avg","field":"c"}]}`)); err != nil {
		t.Fatal(err)
	}
	l := locale.New().For("")
	for _, first := range []reports.Column{text, number, day} {
		data := &reports.Data{Columns: []reports.Column{first, text, number, number, number}}
		for i := range rows {
			at := map[string]any{reports.TypeText: strconv.Itoa(i), reports.TypeNumber: int64(i), reports.TypeDate: time.Date(1990, 1, i, 0, 0, 0, 0, time.UTC).Format(time.DateOnly)}[first.Type]
			data.Rows = append(data.Rows, []any{at, "part " + strconv.Itoa(i), int64(i), int64(1), 0.5})
		}
		for _, visual := range []string{"bar", "line", "area", "heat"} {
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			v := layOut(&reports.Shared{Visual: visual, Asked: asked, Data: data}, l, 1, pageRows)
			for _, c := range v.Charts {
				c.Pictures()
			}
			runtime.ReadMemStats(&after)
			if took := after.TotalAlloc - before.TotalAlloc; took > most || len(v.Charts) != 3 {
				t.Errorf("%s over %s: %d bytes for %d pictures, want at most %d for 3", visual, first.Type, took, len(v.Charts), most)
			}
		}
	}
}

func TestCountText(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		from, shown, rows int
		data              reports.Data
		want              string
	}{
		{0, 0, 0, reports.Data{}, "0 rows."},
		{0, 1, 1, reports.Data{Total: 1}, "1 row."},
		{0, 1234, 1234, reports.Data{Total: 1234}, "1,234 rows."},
		{0, 100, 100, reports.Data{Total: 1234567, Truncated: true}, "The first 100 of 1,234,567 rows are shown."},
		{0, 100, 100, reports.Data{Total: 100, Truncated: true}, "The first 100 rows are shown; there are more."},
		{900, 100, 1000, reports.Data{Total: 1000}, "Rows 901 to 1,000. 1,000 rows."},
	} {
		test.data.Rows = make([][]any, test.rows)
		if got := countText(locale.New().For(""), test.from, test.shown, &test.data); got != test.want {
			t.Errorf("%+v: %q, want %q", test.data, got, test.want)
		}
	}
}
