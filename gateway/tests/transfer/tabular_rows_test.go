package transfer

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"tenantry/gateway/gatewaytest"
	"tenantry/modules/imports/bundle"
	"tenantry/modules/imports/tabular"
	"tenantry/tenants"
)

// world is a gateway, on whose organizations tests work.
type world struct {
	t       *testing.T
	gateway *gatewaytest.Gateway
	service *bundle.Service
}

func newWorld(t *testing.T) *world {
	t.Helper()
	g := gatewaytest.Start(t)
	return &world{t, g, g.App.Transfer()}
}

func (w *world) org(slug string) *tenants.Tenant {
	w.t.Helper()
	return w.gateway.Org(w.t, slug).Tenant(w.t)
}

func (w *world) mustLoad(t *tenants.Tenant, lines string) {
	w.t.Helper()
	if r, err := w.service.Import(w.t.Context(), t, gatewaytest.Source([]byte(lines)), bundle.ImportOptions{}); err != nil {
		w.t.Fatalf("import: %v\n%v", err, r.Problems)
	}
}

func (w *world) dump(t *tenants.Tenant, reveal bool) string {
	w.t.Helper()
	var out bytes.Buffer
	if _, err := w.service.Export(w.t.Context(), t, &out, bundle.ExportOptions{RevealSecrets: reveal}); err != nil {
		w.t.Fatal(err)
	}
	return gatewaytest.Given(out.String())
}

func column(name, field, typ string, fresh bool) bundle.Column {
	return bundle.Column{Name: name, Field: field, Type: typ, New: fresh}
}

// lines returns the lines of a kind.
func lines(bundle, kind string) []string {
	var out []string
	for line := range strings.Lines(bundle) {
		if strings.HasPrefix(line, `{"kind":"`+kind+`"`) {
			out = append(out, line)
		}
	}
	return out
}

func (w *world) rows(t *tenants.Tenant, content string, o tabular.Options) (bundle.Report, error) {
	w.t.Helper()
	return tabular.Import(w.t.Context(), w.service, t, gatewaytest.Source([]byte(content)), o)
}

func (w *world) mustRows(t *tenants.Tenant, content string, o tabular.Options) bundle.Report {
	w.t.Helper()
	r, err := w.rows(t, content, o)
	if err != nil {
		w.t.Fatalf("%v\n%v", err, r.Problems)
	}
	return r
}

const filmRows = `[
 {"Title": "Oaks", "US Gross": 12, "Budget": null, "Release Date": "Jun 12 1998", "Rating": 6.5, "Seen": true, "Tags": ["a", "b"]},
 {"Title": 1776, "US Gross": null, "Budget": 9007199254740993, "Release Date": "Aug 07 1998", "Rating": 7, "Seen": false, "Tags": []},
 {"Title": null, "US Gross": 3, "Release Date": "Aug 08 1998", "Extra": "x;y"}
]`

func TestRows_JSONAsRecords(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	acme := w.org("acme")
	dry := w.mustRows(acme, filmRows, tabular.Options{As: "records:film", Format: tabular.JSON, DryRun: true})
	want := []bundle.Column{
		column("Title", "title", "Text", true), column("US Gross", "us_gross", "Number", true), column("Budget", "budget", "Number", true),
		column("Release Date", "release_date", "Date", true), column("Rating", "rating", "Number", true), column("Seen", "seen", "Boolean", true),
		column("Tags", "tags", "MultiSelect", true), column("Extra", "extra", "Text", true),
	}
	if got := dry.Columns[3].Shown; !cmp.Equal(got, []string{"1998-06-12", "1998-08-07", "1998-08-08"}) {
		t.Errorf("the dates would become %q", got)
	}
	for i := range dry.Columns {
		dry.Columns[i].Shown = nil
	}
	if diff := cmp.Diff(want, dry.Columns); diff != "" {
		t.Fatalf("mismatch (-want +got):\n%s", diff)
	}
	if len(lines(w.dump(acme, false), "custom_object")) != 0 {
		t.Fatal("a dry run made the custom object")
	}
	r := w.mustRows(acme, filmRows, tabular.Options{As: "records:film", Format: tabular.JSON})
	if r.Kinds["record"].Created != 3 || r.Kinds["custom_object"].Created != 1 {
		t.Fatalf(`got %+v, want r.Kinds["record"].Created = 3 and r.Kinds["custom_object"].Created = 1`, r)
	}
	out := w.dump(acme, false)
	for _, part := range []string{
		`"values":{"rating":6.5,"release_date":"1998-06-12","seen":true,"tags":["a","b"],"title":"Oaks","us_gross":12}`,
		`"values":{"budget":9007199254740993,"rating":7,"release_date":"1998-08-07","seen":false,"title":"1776"}`,
		`"values":{"extra":"x;y","release_date":"1998-08-08","us_gross":3}`,
		`"name":"film","label":"Film","label_plural":"Films"`, `"us_gross":{"title":"US Gross","type":"Number"}`,
	} {
		if !strings.Contains(out, part) {
			t.Errorf("missing %s in\n%s", part, out)
		}
	}
	if again := w.mustRows(acme, filmRows, tabular.Options{As: "records:film", Format: tabular.JSON}); again.Unchanged != 3 || again.Lines != 3 || again.Created+again.Updated != 0 {
		t.Fatalf("importing again: %+v", again.Counts)
	}
}

func TestRows_CSVAsRecords(t *testing.T) {
	t.Parallel()
	for name, file := range map[string]string{
		"commas":     "\xef\xbb\xbf\"id\",ident,Length,note\n1,00A,80,\"a \"\"b\"\", c\"\n2,00AK,2500.5,\n3,7,,\"two\nlines\"\n",
		"semicolons": "id;ident;Length;note\r\n1;00A;80;\"a \"\"b\"\", c\"\r\n2;00AK;2500.5;\r\n3;7;;\"two\nlines\"\r\n",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			acme := w.org("acme")
			r := w.mustRows(acme, file, tabular.Options{As: "records:runway", Format: tabular.CSV})
			if diff := cmp.Diff([]bundle.Column{
				column("id", "external_id", "", false), column("ident", "ident", "Text", true), column("Length", "length", "Number", true), column("note", "note", "LongText", true),
			}, r.Columns); diff != "" {
				t.Fatalf("difference:\n%s", diff)
			}
			out := w.dump(acme, false)
			for _, part := range []string{
				`"values":{"ident":"00A","length":80,"note":"a \"b\", c"},"external_id":"1"`,
				`"values":{"ident":"00AK","length":2500.5},"external_id":"2"`, `"values":{"ident":"7","note":"two\nlines"},"external_id":"3"`,
			} {
				if !strings.Contains(out, part) {
					t.Errorf("missing %s in\n%s", part, out)
				}
			}
			changed := w.mustRows(acme, "id,ident,width\n2,00AK,30\n3,8,\n1,00A,\n", tabular.Options{As: "records:runway", Format: tabular.CSV})
			if c := changed.Kinds["record"]; c.Updated != 2 || c.Unchanged != 1 || c.Created != 0 {
				t.Fatalf("changed rows: %+v", c)
			}
			if out := w.dump(acme, false); !strings.Contains(out, `"values":{"ident":"00AK","length":2500.5,"width":30}`) {
				t.Fatalf("values that a row does not give are gone:\n%s", out)
			}
		})
	}
}

func TestRows_Contacts(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	acme := w.org("acme")
	file := `[{"name":"Fundação","domains":["fho.edu.br","b.br"],"country":"Brazil","E-Mail":"a@fho.edu.br","state-province":null,"Tags":"x;y"},
	 {"name":"Hellenic\n\tCollege ","domains":["noah.gr"],"country":"Greece","state-province":"Macedonia"}]`
	r := w.mustRows(acme, file, tabular.Options{As: "contacts", Format: tabular.JSON})
	if diff := cmp.Diff([]bundle.Column{
		column("name", "last_name", "", false), column("domains", "domains", "MultiSelect", true), column("country", "country", "", false), column("E-Mail", "email", "", false),
		column("state-province", "state_province", "Text", true), column("Tags", "tags", "", false),
	}, r.Columns); diff != "" {
		t.Fatalf("difference:\n%s", diff)
	}
	out := w.dump(acme, false)
	for _, part := range []string{
		`"email":"a@fho.edu.br","last_name":"Fundação","country":"Brazil","tags":["x","y"],"fields":{"domains":["fho.edu.br","b.br"]}`,
		`"last_name":"Hellenic College"`, `"fields":{"domains":["noah.gr"],"state_province":"Macedonia"}`,
	} {
		if !strings.Contains(out, part) {
			t.Errorf("missing %s in\n%s", part, out)
		}
	}
	mapped := w.mustRows(acme, file, tabular.Options{As: "contacts", Format: tabular.JSON, Map: map[string][]string{"name": {"first_name"}, "domains": {"site"}, "country": {""}}})
	if diff := cmp.Diff([]bundle.Column{
		column("name", "first_name", "", false), column("domains", "site", "MultiSelect", true), column("country", "", "", false), column("E-Mail", "", "", false),
		column("state-province", "", "", false), column("Tags", "", "", false),
	}, mapped.Columns); diff != "" {
		t.Fatalf("difference:\n%s", diff)
	}
	rest := w.mustRows(acme, file, tabular.Options{As: "contacts", Format: tabular.JSON, Map: map[string][]string{"name": {"city"}, "*": {"*"}}, DryRun: true})
	if rest.Columns[0].Field != "city" || rest.Columns[2].Field != "country" || rest.Columns[3].Field != "email" {
		t.Fatalf(`got %+v, want rest.Columns[0].Field = "city" and rest.Columns[2].Field = "country" and rest.Columns[3].Field = "email"`,
			rest.Columns)
	}
}

func TestRows_BadRows(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	acme := w.org("acme")
	w.mustRows(acme, "id,n\n1,5\n", tabular.Options{As: "records:thing", Format: tabular.CSV})
	file := "id,n\n2,6\n3\n4,abc\n2,7\n5,\"a\"b\n6,\xff\n7,8\n"
	r, err := w.rows(acme, file, tabular.Options{As: "records:thing", Format: tabular.CSV})
	var refused *bundle.RefusedError
	if !errors.As(err, &refused) || refused.Failed != 5 {
		t.Fatalf("got %v %v, want an error of the type of refused and refused.Failed = 5", err, r.Problems)
	}
	if n := len(lines(w.dump(acme, false), "record")); n != 1 {
		t.Fatalf("%d records, though nothing should be stored", n)
	}
	var bad bytes.Buffer
	r, err = w.rows(acme, file, tabular.Options{As: "records:thing", Format: tabular.CSV, Partial: true, Bad: &bad})
	if err != nil || r.Failed != 5 || r.Created != 2 {
		t.Fatalf("got %+v %v, want no error and r.Failed = 5 and r.Created = 2", r, err)
	}
	if !strings.HasPrefix(bad.String(), "id,n\n3\n4,abc\n2,7\n") {
		t.Fatalf("bad rows: %q", bad.String())
	}
	for _, p := range r.Problems {
		if p.Kind != "record" || p.Line < 3 || p.Line > 7 {
			t.Errorf(`got %v, want p.Kind = "record" and p.Line >= 3 and p.Line <= 7`, p)
		}
	}
}

func TestRows_Refused(t *testing.T) {
	t.Parallel()
	var numbered strings.Builder
	for i := range 500 {
		fmt.Fprintf(&numbered, "c%d,", i)
	}
	w := newWorld(t)
	acme := w.org("acme")
	for name, c := range map[string]struct {
		file string
		o    tabular.Options
	}{
		"two to one new":     {"a,b\n1,2\n", tabular.Options{As: "records:thing", Format: tabular.CSV, Map: map[string][]string{"a": {"x"}, "b": {"x"}}}},
		"many new fields":    {numbered.String() + "x\n1\n", tabular.Options{As: "records:thing", Format: tabular.CSV}},
		"as":                 {"a\n1\n", tabular.Options{As: "people", Format: tabular.CSV}},
		"name":               {"a\n1\n", tabular.Options{As: "records:No", Format: tabular.CSV}},
		"format":             {"a\n1\n", tabular.Options{As: "contacts", Format: "xml"}},
		"empty tabular.CSV":  {"", tabular.Options{As: "contacts", Format: tabular.CSV}},
		"no such column":     {"a\n1\n", tabular.Options{As: "contacts", Format: tabular.CSV, Map: map[string][]string{"b": {"email"}}}},
		"twice":              {"a,b\n1,2\n", tabular.Options{As: "contacts", Format: tabular.CSV, Map: map[string][]string{"a": {"email"}, "b": {"email"}}}},
		"bad field":          {"a\n1\n", tabular.Options{As: "contacts", Format: tabular.CSV, Map: map[string][]string{"a": {"x.y"}}}},
		"no tabular.JSON":    {"x", tabular.Options{As: "contacts", Format: tabular.JSON}},
		"cut tabular.JSON":   {`[{"email":"a@b.de"},`, tabular.Options{As: "contacts", Format: tabular.JSON}},
		"JSON, more":         {`[{"email":"a@b.de"}] x`, tabular.Options{As: "contacts", Format: tabular.JSON}},
		"open quote":         {"a\n\"" + strings.Repeat("x", 2<<20), tabular.Options{As: "contacts", Format: tabular.CSV}},
		"giant tabular.JSON": {`[{"a":"` + strings.Repeat("x", 2<<20) + `"}]`, tabular.Options{As: "contacts", Format: tabular.JSON}},
	} {
		if r, err := w.rows(acme, c.file, c.o); err == nil {
			t.Errorf("%s: taken: %+v", name, r)
		}
	}
	if out := w.dump(acme, false); strings.Count(out, "\n") != 1 {
		t.Fatalf("something was stored:\n%s", out)
	}
}

// TestRows_DefinitionsChangeMeanwhile: what somebody else defines while a file is imported stays, and nothing is stored
// that was checked against what was before.
func TestRows_DefinitionsChangeMeanwhile(t *testing.T) {
	t.Parallel()
	const object = `{"kind":"custom_object","name":"thing","label":"Thing","label_plural":"Things","schema":{"a":{"title":"A","type":"Text"}}}`
	for name, c := range map[string]struct{ before, as, change, kept, stored string }{
		"a field of an object":  {object, "records:thing", strings.Replace(object, `"a":`, `"z":{"title":"Z","type":"Text"},"a":`, 1), `"z":{"title":"Z"`, "record"},
		"an object that is new": {`{"kind":"custom_object","name":"other","label":"Other","label_plural":"Others"}`, "records:thing", strings.Replace(object, `"a":`, `"z":`, 1), `"z":{"title":"A"`, "record"},
		"a contact field":       {`{"kind":"contact_field","key":"other","title":"Other","type":"Text"}`, "contacts", `{"kind":"contact_field","key":"b","title":"Z","type":"Text"}`, `"title":"Z","type":"Text"`, "contact"},
	} {
		for at := 1; at <= 3; at++ { // the header, all rows, and all rows to be checked
			w := newWorld(t)
			acme := w.org("acme")
			w.mustLoad(acme, c.before)
			opened := 0
			src := bundle.Source{Open: func() (io.ReadCloser, error) {
				if opened++; opened == at {
					w.mustLoad(acme, c.change)
				}
				return io.NopCloser(strings.NewReader("external_id,b\nx,2\n")), nil
			}}
			o := tabular.Options{As: c.as, Format: tabular.CSV}
			r, err := tabular.Import(t.Context(), w.service, acme, src, o)
			if err == nil || !strings.Contains(fmt.Sprint(r.Problems), "was changed while the file was imported; import it again") {
				t.Errorf(`got %s, %d: %v %+v, want an error and containing "was changed while the file was imported; import it again"`,
					name, at, err, r)
			}
			if out := w.dump(acme, false); !strings.Contains(out, c.kept) || len(lines(out, c.stored)) > 0 {
				t.Errorf("got %s, %d:\n%s\nwant containing %q and len(lines(out, c.stored)) <= 0", name, at, out, c.kept)
			}
			if r := w.mustRows(acme, "external_id,b\nx,2\n", o); r.Created != 1 || !strings.Contains(w.dump(acme, false), c.kept) {
				t.Errorf("%s, %d, again: %+v", name, at, r)
			}
		}
	}
}

// TestRows_DeletedDefinitions take no rows, which nobody would find, and columns do not bring them back.
func TestRows_DeletedDefinitions(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	acme := w.org("acme")
	w.mustLoad(acme, `{"kind":"custom_object","name":"film","label":"Film","label_plural":"Films","schema":{"a":{"title":"A","type":"Text"}},"deleted":true}
{"kind":"form_collection","id":"000000000000000000000091","name":"apply","label":"Apply","label_plural":"Applications","schema":{"a":{"title":"A","type":"Text"}},"deleted":true}
{"kind":"contact_field","key":"Shoe_Size","title":"Shoe size","type":"Number","deleted":true}`)
	before := w.dump(acme, false)
	for name, c := range map[string]struct {
		as, file string
		to       map[string][]string
		want     string
	}{
		"an object":       {"records:film", "a\n1\n", nil, `the custom object "film" is deleted; restore it first`},
		"a form":          {"submissions:apply", "a\n1\n", nil, `the form collection "apply" is deleted; restore it first`},
		"a form by id":    {"submissions:000000000000000000000091", "a\n1\n", nil, `is deleted; restore it first`},
		"a field":         {"contacts", "email,Shoe_Size\na@example.com,7\n", nil, `the column "Shoe_Size" is mapped to the field "Shoe_Size" of a contact, which is deleted; restore it first`},
		"a field's name":  {"contacts", "email,shoe size\na@example.com,7\n", nil, `the column "shoe size" is mapped to the field "Shoe_Size"`},
		"a field's key":   {"contacts", "email,shoe-size?\na@example.com,7\n", nil, `is mapped to the field "Shoe_Size"`},
		"a field, mapped": {"contacts", "email,x\na@example.com,7\n", map[string][]string{"x": {"Shoe_Size"}}, `the column "x" is mapped to the field "Shoe_Size"`},
	} {
		r, err := w.rows(acme, c.file, tabular.Options{As: c.as, Format: tabular.CSV, Map: c.to})
		if !errors.Is(err, tabular.ErrOptions) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: got %v %+v, want the error tabular.ErrOptions and containing %q", name, err, r, c.want)
		}
	}
	if after := w.dump(acme, false); after != before {
		t.Errorf("something was stored:\n%s", after)
	}
	w.mustRows(acme, "email,shoe size\na@example.com,7\n", tabular.Options{As: "contacts", Format: tabular.CSV, Map: map[string][]string{"email": {"email"}, "shoe size": {"size"}}})
}

// TestRows_UnreadableFiles are refused as a whole, before their headers become fields.
func TestRows_UnreadableFiles(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	acme := w.org("acme")
	before := w.dump(acme, false)
	for name, c := range map[string]struct{ format, file, want string }{
		"nothing":                  {tabular.CSV, "", "the file is empty"},
		"a header with a quote":    {tabular.CSV, "a,b\"c\n1,2\n", "the header is not valid CSV"},
		"a header without its end": {tabular.CSV, "a,\"" + strings.Repeat("b", 2<<20), "a row is longer than"},
		"latin-1":                  {tabular.CSV, "email,Stra\xdfe\na@example.com,x\n", "as UTF-8, or set its encoding"},
		"UTF-16 without its mark":  {tabular.CSV, "\x00e\x00m\x00\n\x00a", "as UTF-8, or set its encoding"},
		"a carriage return":        {tabular.CSV, "em\rail,age\na@example.com,7\n", "the header holds a carriage return"},
		"no columns":               {tabular.JSON, `[{}]`, "the file has no columns"},
		"too many columns":         {tabular.CSV, strings.Repeat("a,", 1000) + "a\n1\n", "the file has more than 1000 columns"},
		"a long name":              {tabular.CSV, "email," + strings.Repeat("a", 4097) + "\nb@example.com,1\n", "the name of column 2 has more than 4096 bytes"},
		"too many cells":           {tabular.CSV, "email\n" + strings.Repeat(",", 16_001) + "\n", "a row has more than 16000 cells"},
		"no list":                  {tabular.JSON, `"a"`, "a JSON array of objects is expected"},
		"a comma too many":         {tabular.JSON, `[{"a":1},]`, "row 2 is not valid JSON, near byte"},
		"half a row":               {tabular.JSON, `[{"a":1},{"a"`, "row 2 is not valid JSON"},
		"half a list":              {tabular.JSON, `[{"a":1}`, "the list of rows does not end after row 1"},
		"more than a list":         {tabular.JSON, `[{"a":1}] 7`, "the file continues after the list of rows"},
	} {
		for _, partial := range []bool{false, true} {
			r, err := w.rows(acme, c.file, tabular.Options{As: "contacts", Format: c.format, Partial: partial})
			if !errors.Is(err, tabular.ErrOptions) || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%s: got %v %+v, want the error tabular.ErrOptions and containing %q", name, err, r, c.want)
			}
		}
	}
	if after := w.dump(acme, false); after != before {
		t.Errorf("something was stored:\n%s", after)
	}
	if r := w.mustRows(acme, "\xef\xbb\xbf\"First\r\nname\",age\r\nAda,7\r\n", tabular.Options{As: "contacts", Format: tabular.CSV}); r.Created != 1 {
		t.Errorf("a header of two lines: %+v", r)
	}
}

func TestRows_SecretsOfAnExistingField(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	acme := w.org("acme")
	w.mustLoad(acme, `{"kind":"contact_field","key":"pin","title":"Pin","type":"Encrypted"}`)
	w.mustRows(acme, "external_id,pin\nc1, 0042\n", tabular.Options{As: "contacts", Format: tabular.CSV})
	if out := w.dump(acme, false); strings.Contains(out, "0042") || !strings.Contains(out, `"pin":{"enc":"enc.v1.`) {
		t.Fatal("the value is not encrypted")
	}
	if out := w.dump(acme, true); !strings.Contains(out, `"pin":" 0042"`) {
		t.Fatalf("the value is lost:\n%s", out)
	}
}

func TestRows_SourceChangesMeanwhile(t *testing.T) {
	t.Parallel()
	for format, files := range map[string][2]string{
		tabular.CSV:  {"a\n1\n", "a,b\n1,2\n"},
		tabular.JSON: {`[{"a":1}]`, `[{"a":1,"b":2}]`},
	} {
		w := newWorld(t)
		acme := w.org("acme")
		for after := range 5 {
			opened := 0
			src := bundle.Source{Open: func() (io.ReadCloser, error) {
				opened++
				return io.NopCloser(strings.NewReader(files[min(opened/(after+2), 1)])), nil
			}}
			r, err := tabular.Import(t.Context(), w.service, acme, src, tabular.Options{As: "records:thing", Format: format})
			if err == nil && r.Created+r.Unchanged+r.Updated != 1 {
				t.Errorf("%s: %+v", format, r)
			}
		}
	}
}
