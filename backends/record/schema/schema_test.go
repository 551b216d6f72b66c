package schema_test

import (
	"encoding/json"
	"fmt"
	"math"
	"reflect"
	"slices"
	"strings"
	"testing"

	"tenantry/backends/record/schema"
	"tenantry/backends/store"
	"tenantry/internal/fault"
	"tenantry/internal/strictjson"
)

func fieldsOf(errs fault.List) []string {
	named := []string{}
	for _, e := range errs {
		named = append(named, e.Field+" "+e.Code)
	}
	return named
}

func TestParse(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("a", 65)
	for _, tt := range []struct {
		name, in string
		want     schema.Fields
		errs     []string
		ignored  []string
	}{
		{name: "empty", in: `{}`, want: schema.Fields{}},
		{
			name: "plain", in: `{"color":{"title":"Color","type":"Text"},"a-1_B":{"title":"x","type":"Made2Up","required":true}}`,
			want: schema.Fields{"color": {Title: "Color", Type: "Text"}, "a-1_B": {Title: "x", Type: "Made2Up", Required: true}},
		},
		{
			name: "fields is dropped", in: `{"fields":{"x":1},"c":{"title":"C","type":"Text"}}`,
			want: schema.Fields{"c": {Title: "C", Type: "Text"}}, ignored: []string{"schema.fields"},
		},
		{
			name: "locked and unknown members", in: `{"c":{"title":"C","type":"Text","locked":true,"help":"x","a b":1}}`,
			want: schema.Fields{"c": {Title: "C", Type: "Text"}}, ignored: []string{`schema.c."a b"`, "schema.c.help", "schema.c.locked"},
		},
		{
			name: "all problems at once",
			in:   `{"a":{},"b":{"title":1,"type":2},"c":{"title":" ","type":"text"},"d":5,"e":null,"f":[],"g":{"title":"t","type":"T","required":"yes"},"bad key":{}}`,
			errs: []string{
				"schema.a.title required", "schema.a.type required", "schema.b.title type", "schema.b.type type", `schema."bad key" format`,
				"schema.c.title required", "schema.c.type format", "schema.d type", "schema.e type", "schema.f type", "schema.g.required type",
			},
		},
		{name: "identifiers", in: `{"` + long + `":{"title":"t","type":"T"},"":{"title":"t","type":"T"},"ä":{"title":"t","type":"T"},"a.b":{"title":"t","type":"T"},"$x":{"title":"t","type":"T"}}`, errs: []string{
			`schema."" format`, `schema."$x" format`, `schema."a.b" format`, `schema."aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa..." format`, `schema."ä" format`,
		}},
		{name: "exact names", in: `{"c":{"Title":"C","TYPE":"Text"}}`, errs: []string{"schema.c.title required", "schema.c.type required"}},
		{name: "long title", in: `{"c":{"title":"` + strings.Repeat("ä", 201) + `","type":"T"}}`, errs: []string{"schema.c.title length"}},
		{name: "title with a line break", in: `{"c":{"title":"a\nb","type":"T"}}`, errs: []string{"schema.c.title format"}},
		{name: "long type", in: `{"c":{"title":"a","type":"T` + long + `"}}`, errs: []string{"schema.c.type format"}},
		{name: "blank type", in: `{"c":{"title":"a","type":" "}}`, errs: []string{"schema.c.type required"}},
		{name: "type that begins with a digit", in: `{"c":{"title":"a","type":"1a"}}`, errs: []string{"schema.c.type format"}},
		{name: "an array", in: `[{"title":"a","type":"T"}]`, errs: []string{"schema type"}},
		{name: "null", in: `null`, errs: []string{"schema type"}},
		{name: "broken", in: `{`, errs: []string{"schema type"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			var errs fault.List
			got, ignored := parseJSON(&errs, "schema", []byte(tt.in))
			if named := fieldsOf(errs); !slices.Equal(named, tt.errs) && len(named)+len(tt.errs) > 0 {
				t.Errorf("problems %q\n    want %q", named, tt.errs)
			}
			if tt.errs == nil && (!reflect.DeepEqual(got, tt.want) || !slices.Equal(ignored, tt.ignored)) {
				t.Errorf("got %v, ignored %q; want %v, %q", got, ignored, tt.want, tt.ignored)
			}
		})
	}
}

func TestParseCapsFields(t *testing.T) {
	t.Parallel()
	for n, ok := range map[int]bool{500: true, 501: false} {
		raw := map[string]any{"fields": map[string]any{}}
		for i := range n {
			raw[fmt.Sprintf("f%d", i)] = map[string]any{"title": "t", "type": "Text"}
		}
		var errs fault.List
		if _, _ = schema.Parse(&errs, "schema", raw, nil); (len(errs) == 0) != ok {
			t.Errorf("%d fields: %v, want accepted %t", n, errs, ok)
		}
	}
}

// TestEveryMemberIsReadAndDescribed checks that Parse and the OpenAPI schema of definitions know each member of Field
// that callers may set.
func TestEveryMemberIsReadAndDescribed(t *testing.T) {
	t.Parallel()
	item := schema.Definitions{}.OpenAPISchema()["additionalProperties"].(map[string]any)
	described := item["properties"].(map[string]any)
	for f := range reflect.TypeFor[schema.Field]().Fields() {
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		if name == "locked" {
			continue
		}
		if _, ok := described[name]; !ok {
			t.Errorf("the OpenAPI schema of definitions has no member %s, want every member of Field", name)
		}
		var errs fault.List
		definition := map[string]any{"title": "C", "type": "Text", name: "x"} // its value may be a fault
		if _, ignored := schema.Parse(&errs, "schema", map[string]any{"c": definition}, nil); len(ignored) > 0 {
			t.Errorf("Parse ignores %v, want every member of Field read", ignored)
		}
	}
}

// TestStrict: a member that callers cannot set is a fault, and locked fields are kept.
func TestStrict(t *testing.T) {
	t.Parallel()
	stored := schema.Fields{"a": {Title: "A", Type: schema.Text, Required: true, Locked: true}, "b": {Title: "B", Type: schema.Text}}
	for _, tt := range []struct {
		name, in string
		errs     []string
	}{
		{"as it was answered", `{"a":{"title":"A","type":"Text","required":true,"locked":true}}`, nil},
		{"left out", `{}`, nil},
		{"another field changed", `{"b":{"title":"C","type":"Number","required":true}}`, nil},
		{"title", `{"a":{"title":"B","type":"Text","required":true}}`, []string{"schema.a forbidden"}},
		{"type", `{"a":{"title":"A","type":"LongText","required":true}}`, []string{"schema.a forbidden"}},
		{"required", `{"a":{"title":"A","type":"Text"}}`, []string{"schema.a forbidden"}},
		{"locked", `{"b":{"title":"B","type":"Text","locked":true}}`, []string{"schema.b.locked unknown"}},
	} {
		var raw map[string]any
		if err := json.Unmarshal([]byte(tt.in), &raw); err != nil {
			t.Fatal(err)
		}
		var errs fault.List
		if got := schema.Strict(&errs, "schema", raw, stored); got["a"] != stored["a"] {
			t.Errorf("%s: the locked field = %+v, want %+v", tt.name, got["a"], stored["a"])
		}
		if named := fieldsOf(errs); !slices.Equal(named, tt.errs) && len(named)+len(tt.errs) > 0 {
			t.Errorf("%s: problems %q, want %q", tt.name, named, tt.errs)
		}
	}
}

func TestNamesAndLabels(t *testing.T) {
	t.Parallel()
	for value, code := range map[string]string{
		"a": "", "a_1": "", strings.Repeat("a", 64): "", "": "format", "1a": "format", "_a": "format", "A": "format", "a-b": "format", "ä": "format", strings.Repeat("a", 65): "format",
	} {
		var errs fault.List
		if schema.CheckName(&errs, "name", value); code == "" && len(errs) > 0 || code != "" && (len(errs) != 1 || errs[0].Code != code) {
			t.Errorf("name %q: %v, want %q", value, errs, code)
		}
	}
	for value, code := range map[string]string{
		"A b": "", strings.Repeat("ä", schema.MaxLabel): "", "": "required", " \t": "required", strings.Repeat("ä", schema.MaxLabel+1): "length", "a\nb": "format", "a\u0085b": "format", "a\xff": "format",
	} {
		var errs fault.List
		if schema.CheckLabel(&errs, "label", value); code == "" && len(errs) > 0 || code != "" && (len(errs) != 1 || errs[0].Code != code) {
			t.Errorf("label %q: %v, want %q", value, errs, code)
		}
	}
}

// parseJSON is Parse of JSON text. Anything but an object is noted in errs.
func parseJSON(errs *fault.List, path string, text []byte) (fields schema.Fields, ignored []string) {
	var raw map[string]any
	if strictjson.Check(text) != nil || json.Unmarshal(text, &raw) != nil || raw == nil {
		errs.Add(path, "type", "%s must be an object", path)
		return nil, nil
	}
	return schema.Parse(errs, path, raw, nil)
}

func FuzzParse(f *testing.F) {
	for _, seed := range []string{
		`{}`, `{"a":{"title":"x","type":"Text"}}`, `{"fields":1}`, `{"a":{"title":"x","type":"Text","locked":1,"required":false}}`, `[]`, `{"a":{"a":{"a":{}}}}`, "{\"\\u0000\":{}}",
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		var errs fault.List
		fields, ignored := parseJSON(&errs, "schema", text)
		for _, name := range ignored {
			if strings.ContainsFunc(name, func(r rune) bool { return r < ' ' || r > '~' }) {
				t.Errorf("ignored name %q cannot stand in a header", name)
			}
		}
		if len(errs) > 0 {
			return
		}
		if len(fields) > schema.MaxFields {
			t.Fatalf("accepted %d fields, want at most %d", len(fields), schema.MaxFields)
		}
		for name, field := range fields {
			if !store.ValidKey(name) || name == "fields" || field.Locked || strings.TrimSpace(field.Title) == "" || !schema.ValidType(field.Type) {
				t.Errorf("accepted %q: %+v", name, field)
			}
		}
		again, err := json.Marshal(fields)
		if err != nil {
			t.Fatal(err)
		}
		same, more := parseJSON(&errs, "schema", again)
		if len(errs) > 0 || len(more) > 0 || !reflect.DeepEqual(same, fields) {
			t.Errorf("%s reads back as %v (%v, %v)", again, same, errs, more)
		}
	})
}

func TestCheckValues(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		fieldType string
		value     any
		want      any    // stored; nil: as given
		code      string // of the problem
	}{
		{schema.Text, "x", nil, ""},
		{schema.Text, "", nil, ""},
		{schema.Text, json.Number("1"), nil, "type"},
		{schema.Text, []any{}, nil, "type"},
		{schema.Text, strings.Repeat("ä", schema.MaxText), nil, ""},
		{schema.Text, strings.Repeat("a", schema.MaxText+1), nil, "format"},
		{schema.LongText, strings.Repeat("a", schema.MaxText+1), nil, ""},
		{schema.Number, json.Number("9007199254740993"), nil, ""},
		{schema.Number, json.Number("1e400"), nil, "type"},
		{schema.Number, json.Number("x"), nil, "type"},
		{schema.Number, json.Number("Inf"), nil, "type"},
		{schema.Number, json.Number("NaN"), nil, "type"},
		{schema.Number, math.Inf(1), nil, "type"},
		{schema.Number, math.NaN(), nil, "type"},
		{schema.Number, 1.5, nil, ""},
		{schema.Number, int64(3), nil, ""},
		{schema.Number, "3", nil, "type"},
		{schema.Number, "", nil, "type"},
		{schema.Boolean, true, nil, ""},
		{schema.Boolean, "true", nil, "type"},
		{schema.Date, "2024-02-29", nil, ""},
		{schema.Date, "2023-02-29", nil, "format"},
		{schema.Date, "2024-02-29T00:00:00Z", nil, "format"},
		{schema.DateTime, "2024-02-29T23:30:00-02:00", "2024-03-01T01:30:00.000Z", ""},
		{schema.DateTime, "2024-02-29T23:30:00.1234567Z", "2024-02-29T23:30:00.123Z", ""},
		{schema.DateTime, "2024-02-29", nil, "format"},
		{schema.DateTime, "9999-12-31T23:59:59-10:00", nil, "format"},
		{schema.Email, "ada@example.com", nil, ""},
		{schema.Email, "Ada <ada@example.com>", nil, "format"},
		{schema.Email, "a@b.c\r\nBcc: x@y.z", nil, "format"},
		{schema.Email, "a@b.c, d@e.f", nil, "format"},
		{schema.Email, "<ada@example.com>", nil, "format"},
		{schema.Email, "a\u00a0b@example.com", nil, "format"},
		{schema.Email, "a\u0085b@example.com", nil, "format"},
		{schema.Email, strings.Repeat("a", 254-len("@example.com")) + "@example.com", nil, ""},
		{schema.Email, strings.Repeat("a", 255-len("@example.com")) + "@example.com", nil, "format"},
		{schema.Phone, "+49 (30) 123-456", nil, ""},
		{schema.Phone, "030 123 ext. 45", nil, ""},
		{schema.Phone, "12", nil, "format"},
		{schema.Phone, "call me", nil, "format"},
		{schema.Phone, "1+234", nil, "format"},
		{schema.Phone, "030 123 x", nil, "format"},
		{schema.Phone, "030 123 ext. 4a", nil, "format"},
		{schema.Phone, "030,123", nil, "format"},
		{schema.Phone, strings.Repeat("1", 20), nil, ""},
		{schema.Phone, strings.Repeat("1", 21), nil, "format"},
		{schema.Phone, "123" + strings.Repeat(" ", 38), nil, "format"},
		{schema.URL, "https://example.com/a?b=c", nil, ""},
		{schema.URL, "javascript:alert(1)", nil, "format"},
		{schema.URL, "//example.com", nil, "format"},
		{schema.URL, "https://", nil, "format"},
		{schema.URL, "https://example.com/a b", nil, "format"},
		{schema.URL, "https://example.com/a\u0085b", nil, "format"},
		{schema.URL, "https://example.com/" + strings.Repeat("a", 2048-len("https://example.com/")), nil, ""},
		{schema.URL, "https://example.com/" + strings.Repeat("a", 2049-len("https://example.com/")), nil, "format"},
		{schema.Select, "red", nil, ""},
		{schema.MultiSelect, []any{"a", "b"}, nil, ""},
		{schema.MultiSelect, []string{"a"}, nil, ""},
		{schema.MultiSelect, []any{}, nil, ""},
		{schema.MultiSelect, []any{"a", "a"}, nil, "format"},
		{schema.MultiSelect, []any{"a", json.Number("1")}, nil, "format"},
		{schema.MultiSelect, []any{""}, nil, "format"},
		{schema.MultiSelect, []any{strings.Repeat("ä", 1000)}, nil, ""},
		{schema.MultiSelect, []any{strings.Repeat("ä", 1001)}, nil, "format"},
		{schema.MultiSelect, "a", nil, "type"},
		{schema.Encrypted, "secret", nil, ""},
		{schema.Encrypted, strings.Repeat("a", schema.MaxEncrypted+1), nil, "format"},
		{schema.File, "665f1c2ab4d3e2f1a0b9c8d7", nil, ""},
		{schema.File, schema.TokenPrefix + "_" + strings.Repeat("a", 43), nil, ""},
		{schema.File, "665f1c2ab4d3e2f1a0b9c8d7.", nil, "format"},
		{schema.File, "665f1c2ab4d3e2f1a0b9c8d7.../x", nil, "format"},
		{schema.File, "665f1c2ab4d3e2f1a0b9c8d7." + strings.Repeat("a", 40), nil, "format"},
		{schema.File, "lease.pdf", nil, "format"},
		{schema.File, []any{"665f1c2ab4d3e2f1a0b9c8d7"}, nil, "format"},
		{schema.File, json.Number("1"), nil, "type"},
		{"Unheard", map[string]any{"x": []any{1}}, nil, ""},
	} {
		var errs fault.List
		clean, unknown := schema.Fields{"f": {Title: "F", Type: tt.fieldType}}.CheckValues(&errs, "values", map[string]any{"f": tt.value})
		if tt.code != "" {
			if len(errs) != 1 || errs[0].Code != tt.code || errs[0].Field != "values.f" {
				t.Errorf("%s %.40v: problems %v, want %s", tt.fieldType, tt.value, errs, tt.code)
			}
			continue
		}
		if tt.want == nil {
			tt.want = tt.value
		}
		if len(errs) != 0 || len(unknown) != 0 || !reflect.DeepEqual(clean["f"], tt.want) {
			t.Errorf("%s %.40v: got %.40v, problems %v; want %.40v", tt.fieldType, tt.value, clean["f"], errs, tt.want)
		}
	}
}

func TestCheckValuesRequiredAndUnknown(t *testing.T) {
	t.Parallel()
	fields := schema.Fields{
		"a": {Title: "A", Type: schema.Text, Required: true}, "b": {Title: "B", Type: schema.Number, Required: true},
		"c": {Title: "C", Type: schema.Text}, "d": {Title: "D", Type: schema.Text, Required: true},
	}
	var errs fault.List
	clean, unknown := fields.CheckValues(&errs, "values", map[string]any{"a": "", "b": nil, "c": nil, "z": 1, "y": 2})
	if got := fieldsOf(errs); !slices.Equal(got, []string{"values.a required", "values.b required", "values.d required"}) {
		t.Errorf("problems %q", got)
	}
	if len(clean) != 0 || !slices.Equal(unknown, []string{"y", "z"}) {
		t.Errorf("clean %v, unknown %q", clean, unknown)
	}
}

func TestStoreType(t *testing.T) {
	t.Parallel()
	for fieldType, want := range map[string]store.Type{
		schema.Text: store.TypeString, schema.Select: store.TypeString, schema.Number: store.TypeFloat, schema.Boolean: store.TypeBool,
		schema.Date: store.TypeDate, schema.DateTime: store.TypeDate, schema.MultiSelect: store.TypeStrings, "Unheard": store.TypeAny,
	} {
		if got, askable := schema.StoreType(fieldType); got != want || !askable {
			t.Errorf("%s: got %v, %v, want %v and askable", fieldType, got, askable, want)
		}
	}
	if _, askable := schema.StoreType(schema.Encrypted); askable {
		t.Error("queries can use encrypted fields")
	}
}

func TestGuess(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		samples []string
		want    string
	}{
		{nil, schema.Text},
		{[]string{"", "  "}, schema.Text},
		{[]string{"1", "", "-2.5", "1000000", "0", "0.25"}, schema.Number},
		{[]string{"1", "x"}, schema.Text},
		{[]string{"01", "19"}, schema.Text},
		{[]string{"100E10"}, schema.Text},
		{[]string{"1", "1e6"}, schema.Text},
		{[]string{"1.1", "1.10"}, schema.Text},
		{[]string{"12.50"}, schema.Text},
		{[]string{"0.12345678901234567"}, schema.Text},
		{[]string{"-0"}, schema.Text},
		{[]string{"1234567890123456.7"}, schema.Text},
		{[]string{"NO", "no"}, schema.Text},
		{[]string{"yes"}, schema.Text},
		{[]string{"NO", "Yes"}, schema.Boolean},
		{[]string{"true"}, schema.Boolean},
		{[]string{"no", "false"}, schema.Boolean},
		{[]string{"2024-05-17T08:30:00.123456Z"}, schema.Text},
		{[]string{"+49"}, schema.Text},
		{[]string{"1234567890123456789"}, schema.Text},
		{[]string{"12345678901234567890"}, schema.Text},
		{[]string{"0x10"}, schema.Text},
		{[]string{"NaN"}, schema.Text},
		{[]string{"Infinity"}, schema.Text},
		{[]string{"1", "0"}, schema.Number},
		{[]string{"true", "FALSE"}, schema.Boolean},
		{[]string{"yes", "no"}, schema.Boolean},
		{[]string{"Jun 12 1998", "Aug 07 1998"}, schema.Date},
		{[]string{"2024-05-17", "17 May 2024"}, schema.Date},
		{[]string{"01/02/2024"}, schema.Text},
		{[]string{"Feb 30 1998"}, schema.Text},
		{[]string{"2024-05-17T08:30:00Z", "2024-05-17 08:30:00"}, schema.DateTime},
		{[]string{"a@b.example"}, schema.Email},
		{[]string{"https://a.example/"}, schema.URL},
		{[]string{"a\nb"}, schema.LongText},
		{[]string{strings.Repeat("x", 2000)}, schema.LongText},
		{[]string{"H1"}, schema.Text},
	} {
		var guess schema.Guess
		for _, sample := range tt.samples {
			guess.Add(sample)
		}
		if got := guess.Type(); got != tt.want {
			t.Errorf("%.60q: got %s, want %s", tt.samples, got, tt.want)
		}
	}
}

func TestConvert(t *testing.T) {
	t.Parallel()
	fails := fmt.Errorf("fails")
	for _, tt := range []struct {
		fieldType, text string
		want            any
	}{
		{schema.Number, " 42 ", int64(42)},
		{schema.Number, "-2.5", -2.5},
		{schema.Number, "1e3", fails},
		{schema.Number, "+49351123", fails},
		{schema.Number, "01067", fails},
		{schema.Number, "12.50", fails},
		{schema.Number, "0.1234567890123456", 0.1234567890123456},
		{schema.Number, "0.12345678901234567", fails},
		{schema.Number, "1e999", fails},
		{schema.Number, "inf", fails},
		{schema.Number, "1_000", fails},
		{schema.Number, "0x1p4", fails},
		{schema.Number, "0." + strings.Repeat("1", 63), fails},
		{schema.Number, "", nil},
		{schema.Boolean, "YES", true},
		{schema.Boolean, "0", false},
		{schema.Boolean, "maybe", fails},
		{schema.Date, "Jun 12 1998", "1998-06-12"},
		{schema.Date, "1998-06-12T00:00:00Z", "1998-06-12"},
		{schema.Date, "1998-06-12T10:00:00Z", fails},
		{schema.Date, "June 1998", fails},
		{schema.DateTime, "2024-05-17 08:30:00", "2024-05-17T08:30:00.000Z"},
		{schema.DateTime, "2024-05-17T08:30:00+02:00", "2024-05-17T06:30:00.000Z"},
		{schema.DateTime, "2024-05-17", "2024-05-17T00:00:00.000Z"},
		{schema.DateTime, "2024-05-17T08:30:00." + strings.Repeat("0", 20) + "Z", fails},
		{schema.Email, " a@b.example ", "a@b.example"},
		{schema.Email, "@@", fails},
		{schema.Text, " x ", " x "},
		{schema.Text, "a\x00b", fails},
		{schema.Text, "\xff", fails},
		{schema.MultiSelect, "a; b|a;", []string{"a", "b"}},
		{schema.File, " 665f1c2ab4d3e2f1a0b9c8d7 ", "665f1c2ab4d3e2f1a0b9c8d7"},
		{
			schema.File, `["665f1c2ab4d3e2f1a0b9c8d7","665f1c2ab4d3e2f1a0b9c8d8"]`,
			[]string{"665f1c2ab4d3e2f1a0b9c8d7", "665f1c2ab4d3e2f1a0b9c8d8"},
		},
		{schema.File, "665f1c2ab4d3e2f1a0b9c8d7; 665f1c2ab4d3e2f1a0b9c8d8", []string{"665f1c2ab4d3e2f1a0b9c8d7", "665f1c2ab4d3e2f1a0b9c8d8"}},
		{schema.File, "lease.pdf", fails},
		{schema.MultiSelect, "a; " + strings.Repeat("x", 1001), fails},
		{"Unheard", "x", "x"},
	} {
		got, err := schema.Convert(tt.fieldType, tt.text)
		if want, failing := tt.want.(error); failing {
			if err == nil {
				t.Errorf("%s %q: got %v, want an error", tt.fieldType, tt.text, got)
			} else if strings.Contains(err.Error(), tt.text) {
				t.Errorf("%v repeats the text (%v)", err, want)
			}
			continue
		}
		if err != nil || !reflect.DeepEqual(got, tt.want) {
			t.Errorf("%s %q: got %v, %v; want %v", tt.fieldType, tt.text, got, err, tt.want)
		}
	}
}

// TestExact: whether a JSON number keeps its value when it is stored.
func TestExact(t *testing.T) {
	t.Parallel()
	for number, want := range map[string]bool{
		"1": true, "-0": true, "1.10": true, "100E10": true, "1e300": true, "0.1": true, "1.5e-7": true, "9007199254740993": true, "12345678901234567890000": false,
		"0.12345678901234567": false, "9007199254740993.0": false, "123456789012345678901": false, "1e999": false, "0e5": true, "0.000": true,
	} {
		if got := schema.Exact(number); got != want {
			t.Errorf("%s: got %v, want %v", number, got, want)
		}
	}
}

// Convert converts a text to the type that Guess returns for it, and CheckValue accepts the result.
func FuzzGuessedTextConverts(f *testing.F) {
	for _, seed := range []string{"1", "-0", "1e5", "true", "Jun 12 1998", "2024-05-17T08:30:00+02:00", "a@b.c", "https://x.y", "+49 30", "\x00", "1.", ".5", "-", "e"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		var guess schema.Guess
		guess.Add(text)
		fieldType := guess.Type()
		value, err := schema.Convert(fieldType, text)
		if err != nil {
			if fieldType != schema.Text && fieldType != schema.LongText {
				t.Fatalf("%q looks like %s but does not convert: %v", text, fieldType, err)
			}
			return
		}
		var errs fault.List
		if value != nil {
			schema.CheckValue(&errs, "f", schema.Field{Type: fieldType}, value)
		}
		if len(errs) > 0 {
			t.Errorf("%q converts to an unacceptable %s: %v", text, fieldType, errs)
		}
		if _, err := json.Marshal(value); err != nil {
			t.Errorf("%q: %v", text, err)
		}
	})
}

func TestMisspelledTypes(t *testing.T) {
	t.Parallel()
	for typ, meant := range map[string]string{
		"Nubmer": "Number", "Number": "", "NUMBER": "Number", "Numbers": "Number", "Umber": "Number", "Datetime": "DateTime", "Dat": "Date",
		"URL": "Url", "LongTxt": "LongText", "Multiselect": "MultiSelect", "Enrypted": "Encrypted", "Emial": "Email", "Bolean": "Boolean", "Txet": "Text",
		"Rate": "", "Lumber": "Number", "Weight": "", "Currency": "", "Member": "", "Image": "", "Rating": "", "A": "", "Geo": "",
	} {
		var errs fault.List
		schema.CheckType(&errs, "type", typ)
		if meant == "" && len(errs) > 0 {
			t.Errorf("CheckType(%s) = %v, want no fault", typ, errs)
		} else if want := `type: unknown type "` + typ + `"; did you mean ` + meant + "?"; meant != "" && (len(errs) != 1 || errs[0].Message != want) {
			t.Errorf("%s: %v, want %s", typ, errs, want)
		}
	}
	var errs fault.List
	raw := map[string]any{"a": map[string]any{"title": "A", "type": "Nubmer"}, "b": map[string]any{"title": "B", "type": "Nubmer"}}
	schema.Parse(&errs, "schema", raw, schema.Fields{"a": {Title: "A", Type: "Nubmer"}})
	if len(errs) != 1 || errs[0].Field != "schema.b.type" {
		t.Errorf("a stored type is refused, or a new one is not: %v", errs)
	}
}
