package bundle

import (
	"bytes"
	"encoding/json"
	"fmt"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"tenantry/internal/strictjson"
	"tenantry/modules/contacts"
)

// TestNullEmpties: what a line says is null is empty afterwards, in fields of every record and in those that the
// organization defined, encrypted ones too; what it does not give stays.
func TestNullEmpties(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	acme := w.org("acme")
	fields := `{"kind":"contact_field","key":"age","title":"Age","type":"Number"}` + "\n" + `{"kind":"contact_field","key":"plan","title":"Plan","type":"Text"}` + "\n" +
		`{"kind":"contact_field","key":"pin","title":"PIN","type":"Encrypted"}` + "\n"
	w.mustLoad(acme, fields+`{"kind":"contact","external_id":"a","email":"a@example.com","city":"Bonn","tags":["x"],"fields":{"age":5,"plan":"gold","pin":"1234"}}`+"\n")
	for _, c := range []struct {
		line, empty, has string // fields that are null then, and what is there
		updated          int
	}{
		{`{"kind":"contact","external_id":"a"}`, "", `"city":"Bonn"`, 0},
		{`{"kind":"contact","external_id":"a","city":null,"tags":null}`, `"city" "tags"`, `"email":"a@example.com"`, 1},
		{`{"kind":"contact","external_id":"a","city":null,"tags":null}`, `"city"`, `"email":"a@example.com"`, 0},
		{`{"kind":"contact","external_id":"a","fields":{"age":null}}`, `"age"`, `"pin":"1234","plan":"gold"`, 1},
		{`{"kind":"contact","external_id":"a","fields":{"pin":null}}`, `"pin"`, `"plan":"gold"`, 1},
		{`{"kind":"contact","external_id":"a","fields":{"pin":null,"age":null}}`, `"pin"`, `"plan":"gold"`, 0},
		{`{"kind":"contact","external_id":"a","fields":{"pin":"5678","age":7}}`, "", `"age":7`, 1},
		{`{"kind":"contact","external_id":"a","fields":null}`, `"age" "pin" "plan"`, `"email":"a@example.com"`, 1},
	} {
		report := w.mustLoad(acme, c.line+"\n")
		var out bytes.Buffer
		if _, err := w.service.Export(t.Context(), acme, &out, ExportOptions{RevealSecrets: true}); err != nil {
			t.Fatal(err)
		}
		line := ""
		for l := range strings.Lines(out.String()) {
			if strings.HasPrefix(l, `{"kind":"contact",`) {
				line = l
			}
		}
		if report.Updated != c.updated || report.Created != 0 {
			t.Errorf("%s: %d updated, %d created", c.line, report.Updated, report.Created)
		}
		for _, name := range strings.Fields(c.empty) {
			if !strings.Contains(line, name+":null") {
				t.Errorf("%s: %s lacks %s:null", c.line, line, name)
			}
		}
		if !strings.Contains(line, c.has) {
			t.Errorf("%s: %s lacks %s", c.line, line, c.has)
		}
	}
	if _, err := w.load(acme, `{"kind":"contact_field","key":"age","title":null}`+"\n", ImportOptions{}); err == nil {
		t.Error("what must be there is not null")
	}
}

// TestExport_SaysWhatIsEmpty: an export that was taken before fields were filled empties them again, those of the
// organization among them, encrypted ones, of records that no longer fit too; and the export is then the one from
// before.
func TestExport_SaysWhatIsEmpty(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	acme := w.org("acme")
	w.mustLoad(acme, complete)
	bare := `{"kind":"contact","id":"0000000000000000000000b2"}
{"kind":"record","id":"000000000000000000000072","object":"tree","values":{"species":"Ash"}}
{"kind":"record","id":"000000000000000000000073","object":"tree","values":{},"as_is":true}
{"kind":"submission","id":"000000000000000000000082","form":"000000000000000000000091","values":{"form_name":"a"}}
{"kind":"folder","id":"0000000000000000000000c3","name":"Bare"}
{"kind":"file","id":"0000000000000000000000f2","pid":"pub-f2","filename":"a.pdf","mimetype":"a/b"}
{"kind":"campaign","id":"0000000000000000000000d2","name":"Everybody"}
{"kind":"custom_report","id":"0000000000000000000000e3","pid":"public-report-e3","title":"Bare","class":"Contacts"}
{"kind":"role","name":"bare"}
{"kind":"user","id":8,"name":"Bare","email":"bare@example.com"}
{"kind":"service_account","id":"0000000000000000000000a5","name":"bare"}
{"kind":"form_collection","id":"000000000000000000000092","name":"bare","label":"Bare","label_plural":"Bares"}
`
	w.mustLoad(acme, bare)
	before := w.dump(acme, true)
	filled := w.mustLoad(acme, `{"kind":"contact","id":"0000000000000000000000b2","email":"b@example.com","first_name":"B","last_name":"C","phone":"1","country":"DE","city":"Bonn","status":"s","tags":["x"],"fields":{"plan":"gold","age":5,"ssn":"1"},"teams":["0000000000000000000000a1"],"external_id":"b"}
{"kind":"record","id":"000000000000000000000072","object":"tree","values":{"species":"Ash","height":3,"code":"c"},"external_id":"b"}
{"kind":"record","id":"000000000000000000000073","object":"tree","values":{"species":"Elm","height":3,"code":"c"},"external_id":"c"}
{"kind":"submission","id":"000000000000000000000082","form":"000000000000000000000091","values":{"form_name":"a","why":"w","pin":"p"}}
{"kind":"folder","id":"0000000000000000000000c3","name":"Bare","folder_id":"0000000000000000000000c1","user_id":7,"teams":["0000000000000000000000a1"]}
{"kind":"file","id":"0000000000000000000000f2","pid":"pub-f2","filename":"a.pdf","mimetype":"a/b","hash":"ab","folder_id":"0000000000000000000000c1","contact_id":"0000000000000000000000b1","user_id":7,"type":"t","teams":["0000000000000000000000a1"]}
{"kind":"campaign","id":"0000000000000000000000d2","name":"Everybody","filter":{"country":"DE"},"teams":["0000000000000000000000a1"]}
{"kind":"custom_report","id":"0000000000000000000000e3","pid":"public-report-e3","title":"Bare","desc":"d","class":"Contacts","input":{"a":{"rule":"locked","value":"x"}},"shareable":false,"visual":"bar","visual_props":{"a":1},"folder":"f","parent":"p","row_key":"id","actions":{"a":1},"child_reports":["0000000000000000000000e1"],"teams":["0000000000000000000000a1"]}
{"kind":"role","name":"bare","permissions":["contacts"]}
{"kind":"user","id":8,"name":"Bare","email":"bare@example.com","roles":["reader"],"permissions":["contacts"],"teams":["0000000000000000000000a1"]}
{"kind":"service_account","id":"0000000000000000000000a5","name":"bare","permissions":["contacts"],"teams":["0000000000000000000000a1"]}
{"kind":"form_collection","id":"000000000000000000000092","name":"bare","label":"Bare","label_plural":"Bares","email_alerts":{"enabled":true},"external_id":"x","external_created_at":"2024-01-01","external_updated_at":"2024-01-01"}
`)
	if filled.Updated != filled.Lines {
		t.Fatalf("got %+v, want filled.Updated = %v", filled, filled.Lines)
	}
	if again := w.mustLoad(acme, before); again.Updated != filled.Lines || again.Created != 0 {
		t.Errorf("got %+v, want again.Updated = %v and again.Created = 0", again, filled.Lines)
	}
	if diff := cmp.Diff(timeless(before), timeless(w.dump(acme, true))); diff != "" {
		t.Errorf("difference:\n%s", diff)
	}
	if again := w.mustLoad(acme, before); again.Unchanged != again.Lines {
		t.Errorf("got %+v, want again.Unchanged = %v", again, again.Lines)
	}
}

// TestExport_EmptyLimitsOverHTTP: what only the operator sets stays where a bundle that is sent over HTTP says that it
// is empty.
func TestExport_EmptyLimitsOverHTTP(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	acme := w.org("acme")
	before := w.dump(acme, false)
	w.mustLoad(acme, `{"kind":"organization","limits":{"folder_children":7},"request_limits":{"key":{"rate":"5/m"}},"providers":["cache"]}`)
	after := w.dump(acme, false)
	r, err := w.load(acme, before, ImportOptions{Bounded: true})
	if err != nil || r.Unchanged != r.Lines || w.dump(acme, false) != after {
		t.Errorf("got %v %+v\n%s\nwant no error and r.Unchanged = %v and w.dump(acme, false) = %v",
			err, r.Counts, w.dump(acme, false), r.Lines, after)
	}
}

var changedAt = regexp.MustCompile(`"updated_at":"[^"]*"`)

// timeless returns a bundle without the times at which records were last changed, which the store stamps.
func timeless(bundle string) string { return changedAt.ReplaceAllString(bundle, `"updated_at":""`) }

// TestExport_LinesImport: of a record of so many values that its line could not have more, what is empty is left out of
// the line, which an import takes.
func TestExport_LinesImport(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	acme := w.org("acme")
	bundle := ""
	for i := range 480 {
		bundle += fmt.Sprintf(`{"kind":"contact_field","key":"f%d","title":"F","type":"Colour"}`+"\n", i)
	}
	w.mustLoad(acme, bundle)
	list := make([]any, strictjson.MaxValues-100) // which earlier versions stored
	for i := range list {
		list[i] = json.Number("1")
	}
	for _, fields := range []map[string]any{{"f1": list}, {"f1": list, "gone": json.Number("1")}} {
		check(t, w.contacts.Contacts.In(acme.Workspace()).Insert(t.Context(), &contacts.Contact{Fields: fields}))
	}
	out := w.dump(acme, false)
	lines := ofKind(out, kindContact)
	if len(lines) != 2 || strings.Contains(lines[0], "null") || !strings.Contains(lines[1], `"as_is":true`) {
		t.Errorf("%d lines: %.200s", len(lines), lines)
	}
	if r := w.mustLoad(acme, out); r.Unchanged != r.Lines {
		t.Errorf("got %+v, want r.Unchanged = %v", r, r.Lines)
	}
}

// TestNullOfASwitch: null of a switch, and none, mean its default also on lines that are taken as they were stored, for
// new records and for those there are.
func TestNullOfASwitch(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	acme := w.org("acme")
	const report = `{"kind":"custom_report","id":"0000000000000000000000e3","pid":"public-report-e3","title":"R","class":"Contacts","query":{"fields":["email"]},"as_is":true`
	for _, c := range []struct {
		line, want string
	}{
		{report + `}`, `"secure":true`},
		{report + `,"secure":false}`, `"secure":false`},
		{report + `,"secure":null}`, `"secure":true`},
		{strings.Replace(report, "e3", "e4", 2) + `,"secure":null}`, `"secure":true`},
	} {
		w.mustLoad(acme, c.line+"\n")
		at, _, _ := strings.Cut(strings.SplitAfter(c.line, `"id":`)[1], ",")
		for line := range strings.Lines(w.dump(acme, true)) {
			if strings.Contains(line, at) && !strings.Contains(line, c.want) {
				t.Errorf("%s: %s, want %s", c.line, line, c.want)
			}
		}
	}
	if n := strings.Count(w.dump(acme, true), `{"kind":"custom_report"`); n != 2 {
		t.Errorf("%d reports, want 2", n)
	}
}
