package chart

import (
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

// plain is a Formatter that formats values as Go does.
type plain struct{}

func (plain) Number(v float64) string         { return strconv.FormatFloat(v, 'g', 6, 64) }
func (plain) Percent(v float64) string        { return strconv.FormatFloat(v, 'f', 1, 64) + "%" }
func (plain) Time(t time.Time, _ Step) string { return t.Format(time.DateOnly) }
func (plain) Tick(t time.Time, step Step) (text, within string) {
	return t.Format("Jan 2 15h"), strconv.Itoa(t.Year())
}

var none = math.NaN()

func day(text string) time.Time {
	if text == "" {
		return time.Time{}
	}
	t, err := time.Parse(time.DateOnly, text)
	if err != nil {
		panic(err)
	}
	return t
}

func labels(n int) []string {
	all := make([]string, n)
	for i := range all {
		all[i] = "label " + strconv.Itoa(i)
	}
	return all
}

func months(texts ...string) Axis {
	a := Axis{Title: "Joined", Step: Month, Times: []time.Time{}}
	for _, text := range texts {
		a.Times = append(a.Times, day(text))
	}
	return a
}

func each(n int, value func(i int) float64) []float64 {
	all := make([]float64, n)
	for i := range all {
		all[i] = value(i)
	}
	return all
}

// element is an element of an SVG.
type element struct {
	name, text string
	attributes map[string]string
}

// picture draws a chart and parses the SVG. It fails the test if the SVG has styles of its own or invalid numbers.
func picture(t *testing.T, c *Chart, size Size) []element {
	t.Helper()
	text := string(c.SVG(size))
	decoder := xml.NewDecoder(strings.NewReader(text))
	var all []element
	var open []int
	for {
		token, err := decoder.Token()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatalf("not XML: %v\n%s", err, text)
		}
		switch x := token.(type) {
		case xml.StartElement:
			e := element{name: x.Name.Local, attributes: map[string]string{}}
			for _, a := range x.Attr {
				e.attributes[a.Name.Local] = a.Value
				if !slices.Contains([]string{"class", "role", "aria-labelledby", "aria-describedby", "viewBox", "id", "d", "x", "y", "width", "height", "cx", "cy", "r", "rx", "text-anchor", "transform", "stroke-width"}, a.Name.Local) {
					t.Errorf("attribute %s of %s", a.Name.Local, x.Name.Local)
				}
				if strings.Contains(a.Value, "NaN") || strings.Contains(a.Value, "Inf") {
					t.Errorf("%s=%q of %s", a.Name.Local, a.Value, x.Name.Local)
				}
				if v, err := strconv.ParseFloat(a.Value, 64); slices.Contains([]string{"width", "height", "r"}, a.Name.Local) && (err != nil || v < 0) {
					t.Errorf("%s=%q of %s", a.Name.Local, a.Value, x.Name.Local)
				}
			}
			if !slices.Contains([]string{"svg", "title", "desc", "text", "path", "rect", "circle", "g"}, e.name) {
				t.Errorf("element %s", e.name)
			}
			open, all = append(open, len(all)), append(all, e)
		case xml.CharData:
			all[open[len(open)-1]].text += string(x)
		case xml.EndElement:
			open = open[:len(open)-1]
		}
	}
	if first := all[0].attributes; first["role"] != "img" || all[1].name != "title" || all[1].text == "" || all[2].name != "desc" ||
		first["aria-labelledby"] != all[1].attributes["id"] || first["aria-describedby"] != all[2].attributes["id"] {
		t.Errorf("the picture has no title and description: %.300s", text)
	}
	return all
}

// having counts the elements with the name and the class.
func having(all []element, name, class string) (n int) {
	for _, e := range all {
		if e.name == name && slices.Contains(strings.Fields(e.attributes["class"]), class) {
			n++
		}
	}
	return n
}

// TestHostileShapes checks that pictures of hostile and extreme data are well-formed, small and finite.
func TestHostileShapes(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("Donaudampfschifffahrtsgesellschaft", 60)
	hostile := []string{`<script>alert(1)</script>"'>&`, long, "שלום עולם " + strings.Repeat("ש", 300), "\u202Eevil\u202C", "a\x00b\x1bc\nd\xff", strings.Repeat("z\u0301\u0302", 400), "👩‍👩‍👧‍👦👩‍👩‍👧‍👦", "", "]]>", "{{.}}"}
	extremes := []float64{none, math.Inf(1), math.Inf(-1), 0, -1, 1e308, -1e308, 5e-324, 1.5, math.Copysign(0, -1)}
	thousand := func(i int) float64 { return math.Sin(float64(i)) * 1000 }
	for name, c := range map[string]Chart{
		"hostile":       {Over: Axis{Title: hostile[0], Labels: hostile}, Measure: long, Series: []Series{{Name: hostile[0], Values: each(10, thousand), Sums: true}}},
		"names":         {Over: Axis{Labels: labels(2)}, Parts: true, Series: []Series{{hostile[0], []float64{1, 2}, true, false, nil}, {hostile[1], []float64{1, 2}, true, false, nil}, {hostile[2], []float64{1, 2}, true, false, nil}, {hostile[4], []float64{1, 2}, true, false, nil}}},
		"extremes":      {Over: Axis{Labels: labels(10)}, Series: []Series{{Values: extremes}}},
		"extreme times": {Over: Axis{Times: []time.Time{day("0001-01-02"), day("9999-12-31"), {}}, Step: Day}, Series: []Series{{Values: []float64{1e300, -1e300, 3}}}},
		"extreme axis":  {Over: Axis{Numbers: []float64{-1e308, 1e308, none, 0}}, Series: []Series{{Values: []float64{1, 2, 3, 4}}}},
		"same axis":     {Over: Axis{Numbers: []float64{7, 7, 7}}, Series: []Series{{Values: []float64{1, 2, 3}}}},
		"one":           {Over: Axis{Labels: labels(1)}, Series: []Series{{Values: []float64{5}}}},
		"one time":      {Over: months("2024-01-01"), Series: []Series{{Values: []float64{5}}}},
		"one number":    {Over: Axis{Numbers: []float64{3}}, Series: []Series{{Values: []float64{5}}}},
		"zero":          {Over: months("2024-01-01", "2024-02-01"), Series: []Series{{Values: []float64{0, 0}}}},
		"negative":      {Over: Axis{Labels: labels(3)}, Series: []Series{{Values: []float64{-3, -200, 5}}}},
		"the same":      {Over: Axis{Labels: labels(3)}, Series: []Series{{Values: []float64{1e9, 1e9, 1e9}}}},
		"nearly":        {Over: Axis{Labels: labels(3)}, Series: []Series{{Values: []float64{1e17, 1e17 + 16, 1e17}}}},
		"thousand":      {Over: Axis{Labels: labels(1000)}, Series: []Series{{Values: each(1000, thousand), Sums: true}}},
		"measures":      {Over: Axis{Labels: labels(1000)}, Series: slices.Repeat([]Series{{Name: "one of many", Values: each(1000, thousand)}}, 16)},
		"parts":         {Over: Axis{Times: timesFrom("2020-01-01", 1000), Step: Day}, Parts: true, Series: slices.Repeat([]Series{{Name: "part", Values: each(1000, func(i int) float64 { return float64(i * 7 % 101) }), Sums: true}}, 40)},
		"twice":         {Over: months("2024-01-01", "2024-01-01", "2024-03-01"), Series: []Series{{Values: []float64{1, 2, 3}}}},
		"sparse":        {Over: Axis{Times: timesFrom("2020-01-01", 1000), Step: Day}, Series: []Series{{Values: each(1000, func(i int) float64 { return map[bool]float64{true: 1, false: none}[i%2 == 0] })}}},
		"nothing":       {Over: Axis{Labels: []string{}}, Series: []Series{{}}},
		"no place":      {Over: months("", ""), Series: []Series{{Values: []float64{1, 2}}}},
		"no series":     {Over: Axis{Labels: labels(2)}},
	} {
		for _, kind := range []Kind{Bar, Line, Area, Pie, Heat} {
			t.Run(name+"/"+kind.title(), func(t *testing.T) {
				t.Parallel()
				c := c
				c.Kind, c.Formatter = kind, plain{}
				c.Series = slices.Clone(c.Series)
				c.Prepare()
				if !c.Drawable() {
					if slices.Contains([]string{"hostile", "names", "one", "one time", "thousand", "parts", "measures"}, name) {
						t.Error("Drawable() = false, want true")
					}
					return
				}
				bytes := 0
				for _, size := range []Size{Wide, Narrow} {
					all := picture(t, &c, size)
					bytes += len(c.SVG(size))
					for _, e := range all {
						if e.name == "text" && textWidth(e.text) > size.width()+2*fontSize {
							t.Errorf("a text of %v: %q", textWidth(e.text), e.text)
						}
					}
				}
				if bytes > 90_000 {
					t.Errorf("the pictures have %d bytes, want at most 90000", bytes)
				}
				for _, k := range c.Legend() {
					if k.Class == "" || regexp.MustCompile(`[^a-z0-9]`).MatchString(k.Class) {
						t.Errorf("class %q", k.Class)
					}
				}
			})
		}
	}
}

func timesFrom(first string, n int) []time.Time {
	all := make([]time.Time, n)
	for i := range all {
		all[i] = day(first).AddDate(0, 0, i)
	}
	return all
}

func TestTicks(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		lo, hi      float64
		zero, whole bool
		want        []float64
	}{
		{0, 20, true, true, []float64{0, 5, 10, 15, 20}},
		{0, 1, true, true, []float64{0, 1}},
		{3, 3, true, true, []float64{0, 1, 2, 3}},
		{0, 0, true, true, []float64{0, 1}},
		{-7, 13, true, true, []float64{-10, -5, 0, 5, 10, 15}},
		{-30, -10, true, false, []float64{-30, -20, -10, 0}},
		{0, 0.7, true, false, []float64{0, 0.2, 0.4, 0.6, 0.8}},
		{100, 190, false, false, []float64{100, 120, 140, 160, 180, 200}},
		{1000, 1001, false, false, []float64{0, 500, 1000, 1500}},
		{0, 1e300, true, false, []float64{0, 2e299, 4e299, 6e299, 8e299, 1e300}},
	} {
		s := newScale(test.lo, test.hi, 5, test.zero, test.whole)
		if diff := cmp.Diff(test.want, s.ticks, cmp.Comparer(func(a, b float64) bool { return math.Abs(a-b) <= 1e-9*max(math.Abs(a), math.Abs(b)) })); diff != "" {
			t.Errorf("%v to %v: %s", test.lo, test.hi, diff)
		}
	}
}

func TestTimeTicks(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		from, to string
		least    Step
		step     Step
		want     string
	}{
		{"2024-01-15", "2024-05-20", Day, Month, "2024-02-01 2024-03-01 2024-04-01 2024-05-01"},
		{"2024-02-27", "2024-03-02", Day, Day, "2024-02-27 2024-02-28 2024-02-29 2024-03-01 2024-03-02"},
		{"2023-12-04", "2024-01-29", Week, Week, "2023-12-04 2023-12-18 2024-01-01 2024-01-15 2024-01-29"},
		{"2022-03-01", "2024-01-01", Month, Quarter, "2022-07-01 2023-01-01 2023-07-01 2024-01-01"},
		{"1850-01-01", "2024-01-01", Year, Year, "1850-01-01 1900-01-01 1950-01-01 2000-01-01"},
		{"0001-01-01", "9999-01-01", Any, Year, "5000-01-01"},
	} {
		ticks, step := timeTicks(day(test.from), day(test.to), test.least, 5)
		var got []string
		for _, tick := range ticks {
			got = append(got, tick.Format(time.DateOnly))
		}
		if strings.Join(got, " ") != test.want || step != test.step {
			t.Errorf("%s to %s: %v %v", test.from, test.to, got, step)
		}
	}
}

// english is a Formatter with long ticks.
type english struct{ plain }

func (english) Time(t time.Time, _ Step) string { return t.Format("Jan 2, 2006, 3:04 pm") }
func (e english) Tick(t time.Time, step Step) (text, within string) {
	switch step {
	case Any:
		return e.Time(t, step), ""
	case Minute, Hour:
		return t.Format("3:04 pm"), t.Format("Jan 2")
	case Month, Quarter:
		return t.Format("Jan"), t.Format("2006")
	case Year:
		return t.Format("2006"), ""
	}
	return t.Format("Jan 2"), t.Format("2006")
}

// TestTicksDoNotTouch checks that the texts of ticks do not overlap on axes of any length, and that an axis has several
// ticks if there is room.
func TestTicksDoNotTouch(t *testing.T) {
	t.Parallel()
	const day = 24 * time.Hour
	for _, span := range []time.Duration{time.Second, time.Minute, 5 * time.Minute, 29 * time.Minute, 55 * time.Minute, time.Hour, 3 * time.Hour, 11 * time.Hour, 23 * time.Hour, day, 2 * day, 6 * day, 13 * day, 30 * day, 90 * day, 365 * day, 1000 * day, 20000 * day} {
		for _, began := range []string{"2026-11-24T11:05:00Z", "2026-11-24T23:55:00Z", "2025-12-31T18:00:00Z", "2026-12-23T00:00:00Z"} {
			for _, n := range []int{2, 12, 25} {
				first, err := time.Parse(time.RFC3339, began)
				if err != nil {
					t.Fatal(err)
				}
				c := Chart{Formatter: english{}, Over: Axis{}, Series: []Series{{Values: each(n, func(i int) float64 { return float64(i * i) })}}}
				for i := range n {
					c.Over.Times = append(c.Over.Times, first.Add(span*time.Duration(i)/time.Duration(n-1)))
				}
				for _, c.Kind = range []Kind{Bar, Line, Area} {
					for _, size := range []Size{Wide, Narrow} {
						ends, texts := map[string]float64{}, 0
						for _, e := range picture(t, &c, size) {
							if e.name != "text" || e.attributes["text-anchor"] != "middle" {
								continue
							}
							x, _ := strconv.ParseFloat(e.attributes["x"], 64)
							half, row := textWidth(e.text)/2, e.attributes["y"]
							if end, before := ends[row]; before && x-half < end+1 || x-half < -1 || x+half > size.width()+1 {
								t.Errorf("%v from %s, %d points, %s %s: %q stands from %.0f to %.0f, what is before it to %.0f", span, began, n, c.Kind.title(), size, e.text, x-half, x+half, end)
							}
							ends[row] = x + half
							texts++
						}
						if texts < 2 || span >= 5*time.Minute && texts < 3 {
							t.Errorf("%v from %s, %d points, %s %s: only %d texts at the axis", span, began, n, c.Kind.title(), size, texts)
						}
					}
				}
			}
		}
	}
}

// TestGaps checks that a month without a row is a gap in lines and areas, and an empty place among bars.
func TestGaps(t *testing.T) {
	t.Parallel()
	for kind, want := range map[Kind]int{Line: 2, Area: 2} {
		c := Chart{Kind: kind, Formatter: plain{}, Over: months("2023-12-01", "2023-11-01", "2024-03-01", "2024-02-01", ""), Series: []Series{{Name: "Count", Values: []float64{2, 1, 4, 3, 9}}}}
		c.Prepare()
		for _, e := range picture(t, &c, Wide) {
			if e.name == "path" && strings.Contains(e.attributes["class"], "s1") && strings.Count(e.attributes["d"], "M") != want {
				t.Errorf("%v: %s", kind, e.attributes["d"])
			}
		}
		if got := c.Describe(); !strings.Contains(got, "1 gap without values") || !strings.Contains(got, "From \u20682023-11-01\u2069 to \u20682024-03-01\u2069") || strings.Contains(got, "9") {
			t.Errorf("%v: %s", kind, got)
		}
		if diff := cmp.Diff([]string{"1 row without Joined is only in the table."}, c.Notes()); diff != "" {
			t.Error(diff)
		}
	}
	bars := Chart{Formatter: plain{}, Over: months("2023-11-01", "2024-03-01"), Series: []Series{{Values: []float64{1, 2}}}}
	bars.Prepare()
	var at []float64
	for _, e := range picture(t, &bars, Wide) {
		if e.name == "rect" {
			x, err := strconv.ParseFloat(e.attributes["x"], 64)
			if err != nil {
				t.Fatal(err)
			}
			at = append(at, x)
		}
	}
	if len(at) != 2 || at[1]-at[0] < 500 {
		t.Errorf("positions of bars four months apart = %v, want at least 500 between them", at)
	}
	values := Chart{Kind: Line, Formatter: plain{}, Over: months("2024-01-01", "2024-02-01", "2024-03-01"), Series: []Series{{Values: []float64{1, none, 3}}}}
	values.Prepare()
	if all := picture(t, &values, Narrow); having(all, "circle", "dot") != 2 {
		t.Error("isolated values are not dots, want 2 dots")
	}
}

func TestFolding(t *testing.T) {
	t.Parallel()
	fold := func(kind Kind, sums bool, n int) *Chart {
		c := &Chart{Kind: kind, Formatter: plain{}, Over: Axis{Labels: labels(n)}, Series: []Series{{Values: each(n, func(i int) float64 { return float64(i + 1) }), Sums: sums}}}
		c.Prepare()
		return c
	}
	c := fold(Bar, true, 100)
	if n := len(c.Over.Labels); n != 16 || c.Over.Labels[0] != "label 85" || c.Over.Labels[15] != "85 others" || c.Series[0].Values[15] != 85*86/2 {
		t.Errorf("%v %v", c.Over.Labels, c.Series)
	}
	if all := picture(t, c, Wide); having(all, "rect", "rest") != 1 || having(all, "rect", "s1") != 15 {
		t.Error("the rest does not have its own colour")
	}
	c = fold(Bar, false, 100)
	if diff := cmp.Diff([]string{"The 85 smallest are only in the table."}, c.Notes()); diff != "" || len(c.Over.Labels) != 15 {
		t.Errorf("%s %v", diff, c.Over.Labels)
	}
	c = fold(Pie, true, 10)
	if diff := cmp.Diff([]string{"label 9", "label 8", "label 7", "label 6", "label 5", "5 others"}, c.Over.Labels); diff != "" {
		t.Error(diff)
	}
	if keys := c.Legend(); keys[5].Class != "rest" || keys[5].Value != "15 (27.3%)" || keys[0].Value != "10 (18.2%)" {
		t.Errorf("%v", keys)
	}
	if c = fold(Bar, true, 16); len(c.Over.Labels) != 16 || c.folded {
		t.Error("16 bars were folded, want all of them")
	}
	parts := &Chart{Kind: Area, Parts: true, Formatter: plain{}, Over: months("2024-01-01", "2024-02-01")}
	for i := range 9 {
		parts.Series = append(parts.Series, Series{Name: fmt.Sprint(i), Values: []float64{float64(i), none}, Sums: true})
	}
	parts.Prepare()
	last := parts.Series[len(parts.Series)-1]
	if len(parts.Series) != MaxSeries || last.Name != "4 others" || last.Values[0] != 0+1+2+3 || !math.IsNaN(last.Values[1]) || parts.colour(MaxSeries-1) != "rest" {
		t.Errorf("%+v", parts.Series)
	}
}

// TestSparseParts checks that parts with values at some points are prepared like parts with a value for each point.
func TestSparseParts(t *testing.T) {
	t.Parallel()
	over := map[string]Axis{
		"labels":  {Labels: labels(40)},
		"times":   {Title: "Day", Times: append(timesFrom("2024-03-01", 39), time.Time{}), Step: Day},
		"numbers": {Title: "Age", Numbers: append(each(39, func(i int) float64 { return float64(39 - i) }), none)},
	}
	for name, axis := range over {
		for _, kind := range []Kind{Bar, Line, Area, Heat, Pie} {
			for _, sums := range []bool{true, false} {
				for _, n := range []int{1, 5, 30} {
					dense := Chart{Kind: kind, Parts: true, Formatter: plain{}, Over: axis}
					sparse := dense
					for p := range n {
						all, some := Series{Name: fmt.Sprint(p), Sums: sums, Values: missingValues(40)}, Series{Name: fmt.Sprint(p), Sums: sums}
						for i := 39 - p; i >= 0; i -= p + 1 { // in another order than the points, the one without a place among them
							v := float64((p*7+i*3)%11 + p)
							if i%9 == 4 {
								v = math.Inf(1)
							}
							all.Values[i] = v
							some.At, some.Values = append(some.At, i), append(some.Values, v)
						}
						dense.Series, sparse.Series = append(dense.Series, all), append(sparse.Series, some)
					}
					lone := Series{Name: "at no place", Sums: sums, Values: missingValues(40)}
					lone.Values[39] = 1000
					dense.Series = append(dense.Series, lone)
					sparse.Series = append(sparse.Series, Series{Name: lone.Name, Sums: sums, At: []int{39}, Values: []float64{1000}})
					dense.Prepare()
					sparse.Prepare()
					if diff := cmp.Diff(dense, sparse, cmp.AllowUnexported(Chart{}), cmpopts.EquateNaNs()); diff != "" {
						t.Errorf("%s, %v, %d parts, sums %v: %s", name, kind, n, sums, diff)
					}
				}
			}
		}
	}
}

func TestPie(t *testing.T) {
	t.Parallel()
	c := Chart{Kind: Pie, Formatter: plain{}, Measure: "Count", Over: Axis{Title: "Country", Labels: []string{"DE", "FR", "IT", "ES"}}, Series: []Series{{Values: []float64{1, 3, 0, -5}, Sums: true}}}
	c.Prepare()
	all := picture(t, &c, Wide)
	if having(all, "path", "slice") != 2 || all[1].text != "Pie chart of \u2068Count\u2069 by \u2068Country\u2069" || all[2].text != "\u2068FR\u2069 3 (75.0%), \u2068DE\u2069 1 (25.0%)." {
		t.Errorf("%+v", all)
	}
	if diff := cmp.Diff([]string{"2 rows without a value above zero are only in the table."}, c.Notes()); diff != "" {
		t.Error(diff)
	}
	whole := Chart{Kind: Pie, Formatter: plain{}, Over: Axis{Labels: []string{"DE"}}, Series: []Series{{Values: []float64{3}}}}
	whole.Prepare()
	if all := picture(t, &whole, Wide); having(all, "circle", "ring") != 1 {
		t.Error("a single slice is not a ring")
	}
	whole.Over.Labels, whole.Series[0].Values = []string{"DE", "FR"}, []float64{1e9, 1}
	if all := picture(t, &whole, Wide); having(all, "circle", "ring") != 1 {
		t.Error("a slice of nearly everything is not a ring, want one because its arc would not be drawn")
	}
}

func TestHeat(t *testing.T) {
	t.Parallel()
	c := Chart{Kind: Heat, Parts: true, Formatter: plain{}, Over: months("2024-03-01", "2024-01-01"), Series: []Series{{"Köln", []float64{4, 1}, true, false, nil}, {"Lyon", []float64{none, 7}, true, false, nil}}}
	c.Prepare()
	if diff := cmp.Diff([]string{"2024-01-01", "2024-02-01", "2024-03-01"}, c.Over.Labels); diff != "" {
		t.Error(diff)
	}
	all := picture(t, &c, Wide)
	if having(all, "rect", "none") != 3 || having(all, "rect", "h1") != 1 || having(all, "rect", "h4") != 1 || having(all, "rect", "h7") != 1 || having(all, "text", "on") != 3 {
		t.Errorf("%+v", all)
	}
}

func TestStacked(t *testing.T) {
	t.Parallel()
	parts := func(least float64) *Chart {
		c := &Chart{Parts: true, Formatter: plain{}, Over: Axis{Labels: labels(2)}, Series: []Series{{"a", []float64{10, 20}, true, false, nil}, {"b", []float64{30, least}, true, false, nil}}}
		c.Prepare()
		return c
	}
	if c := parts(5); !c.stacked() || (&drawing{c: c}).values(5, true).hi != 40 {
		t.Error("the scale of stacked parts does not cover their sum")
	}
	if c := parts(-5); c.stacked() {
		t.Error("parts with a negative value are stacked")
	}
}

func TestSplit(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		kind  Kind
		parts bool
		sizes []float64
		want  string
	}{
		{Bar, false, []float64{1, 20, 1000, 2}, "a, b, d | c"}, {Line, false, []float64{0, none, 5, -100}, "a, b, c, d"}, {Line, false, []float64{0, none, 5, -101}, "a, b, c | d"},
		{Bar, false, []float64{math.Inf(1), 1e308, 1, 0}, "a, b, d | c"}, {Area, true, []float64{1, 1e9}, ""}, {Heat, false, []float64{1, 1e9}, ""}, {Pie, false, []float64{1, 1}, "a | b"}, {Bar, false, []float64{7}, ""},
		{Bar, false, []float64{1, 1e2, 1e4, 1e6, 1e8, 1e10, 1e12}, "a | b | c | d | e | f"},
	} {
		c := Chart{Kind: test.kind, Parts: test.parts, Formatter: plain{}, Over: Axis{Labels: labels(1)}}
		for i, size := range test.sizes {
			c.Series = append(c.Series, Series{Name: string(rune('a' + i)), Values: []float64{size}})
		}
		var got []string
		ids := map[string]bool{}
		for _, one := range c.Split() {
			got = append(got, one.Measure)
			ids[one.ID] = true
		}
		if text := strings.Join(got, " | "); text != test.want || len(ids) != len(got) {
			t.Errorf("%v: %s, want %s", test.sizes, text, test.want)
		}
	}
}

func TestClip(t *testing.T) {
	t.Parallel()
	ten := 10 * emWidth * fontSize
	for text, want := range map[string]string{
		"short": "short", "0123456789": "0123456789", "0123456789a": "012345678…", "a\nb": "a b", "日本語日本語": "日本語日…", "": "", "\xff": "\uFFFD",
		"👩‍👩‍👧‍👦👩‍👩‍👧‍👦👩‍👩‍👧‍👦👩‍👩‍👧‍👦👩‍👩‍👧‍👦👩‍👩‍👧‍👦": "👩‍👩‍👧‍👦…",
	} {
		if got := clip(text, ten); got != want {
			t.Errorf("%q: %q, want %q", text, got, want)
		}
	}
	if got := clip("z"+strings.Repeat("\u0301", 500), ten); len(got) > 2*maxCluster {
		t.Errorf("%d bytes on one character", len(got))
	}
}

func FuzzChart(f *testing.F) {
	f.Add("a", "b", 1.0, -2.0, int64(0), int64(1e9), uint8(0), uint8(1))
	f.Add("<", "\xff", math.Inf(1), 1e308, int64(-1e11), int64(1e11), uint8(3), uint8(6))
	f.Fuzz(func(t *testing.T, one, two string, a, b float64, from, to int64, kind, step uint8) {
		at := func(s int64) time.Time { return time.Unix(s%250_000_000_000, 0).UTC() }
		for _, over := range []Axis{{Labels: []string{one, two, one}}, {Times: []time.Time{at(from), at(to), at(from / 2)}, Step: Step(step % 7)}, {Numbers: []float64{a, b, float64(from)}}} {
			c := Chart{Kind: Kind(kind % 5), Parts: kind > 127, Formatter: plain{}, Measure: one, Over: over, Series: []Series{{one, []float64{a, b, float64(to)}, true, false, nil}, {two, []float64{b, none, a}, step > 99, false, nil}}}
			if c.Prepare(); c.Drawable() {
				picture(t, &c, Wide)
				picture(t, &c, Narrow)
			}
		}
	})
}
