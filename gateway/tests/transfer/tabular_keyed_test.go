package transfer

import (
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"tenantry/modules/imports/bundle"
	"tenantry/modules/imports/tabular"
)

// T: rows that share the key with a stored record change it.
func TestRows_Key(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		as, key, lines, stored string
	}{
		"an indexed field": {"contacts", "email", `{"kind":"contact","id":"0000000000000000000000b1","email":"a@example.com","city":"Ulm","country":"DE","fields":{"plan":"x","n":1}}
{"kind":"contact","id":"0000000000000000000000b2","email":"twice@example.com"}
{"kind":"contact","id":"0000000000000000000000b3","email":"twice@example.com"}`,
			`"id":"0000000000000000000000b1","email":"a@example.com","country":"DE","city":"Bonn","fields":{"n":2,"plan":"x"}`},
		"a defined field": {"contacts", "n", `{"kind":"contact","id":"0000000000000000000000b1","email":"x@example.com","city":"Ulm","country":"DE","fields":{"plan":"x","n":2.0}}`,
			`"id":"0000000000000000000000b1","email":"a@example.com","country":"DE","city":"Bonn","fields":{"n":2,"plan":"x"}`},
		"a record's field": {"records:thing", "email", `{"kind":"record","id":"0000000000000000000000b1","object":"thing","values":{"email":"a@example.com","city":"Ulm","n":1}}
{"kind":"record","id":"0000000000000000000000b2","object":"other","values":{"email":"a@example.com"}}`,
			`"id":"0000000000000000000000b1","object":"thing","values":{"city":"Bonn","email":"a@example.com","n":2}`},
		"external_id": {"records:thing", "external_id", `{"kind":"record","id":"0000000000000000000000b1","object":"thing","external_id":"2","values":{"email":"x","n":1}}`,
			`"id":"0000000000000000000000b1","object":"thing","values":{"city":"Bonn","email":"a@example.com","n":2},"external_id":"2"`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			acme := w.org("acme")
			w.mustLoad(acme, `{"kind":"contact_field","key":"plan","title":"Plan","type":"Text"}
{"kind":"contact_field","key":"n","title":"N","type":"Number"}
{"kind":"custom_object","name":"thing","label":"Thing","label_plural":"Things","schema":{"email":{"title":"E","type":"Text"},"city":{"title":"C","type":"Text"},"n":{"title":"N","type":"Number"}}}
{"kind":"custom_object","name":"other","label":"Other","label_plural":"Others","schema":{"email":{"title":"E","type":"Text"}}}
`+c.lines)
			file := "email,city,n,country\na@example.com,Bonn,2,\n,,,\nnew@example.com,Rome,3,IT\n, ,,\n"
			o := tabular.Options{As: c.as, Format: tabular.CSV, Key: c.key, Map: map[string][]string{"email": {"email"}, "city": {"city"}, "n": {"n"}}}
			if c.key == "external_id" {
				o.Map["n"] = append(o.Map["n"], "external_id") // one column feeds two fields
			}
			o.DryRun = true
			dry := w.mustRows(acme, file, o)
			o.DryRun = false
			r := w.mustRows(acme, file, o)
			for _, got := range []bundle.Report{dry, r} {
				if got.Lines != 2 || got.Updated != 1 || got.Created != 1 || got.Skipped != 2 || got.Failed != 0 {
					t.Errorf("got %+v, want got.Lines = 2 and got.Updated = 1 and got.Created = 1 and got.Skipped = 2 and got.Failed = 0",
						got.Counts)
				}
			}
			if out := w.dump(acme, false); !strings.Contains(out, c.stored) {
				t.Errorf("missing %s in\n%s", c.stored, out)
			}
			if again := w.mustRows(acme, file, o); again.Unchanged != 2 || again.Created+again.Updated != 0 {
				t.Errorf("again: %+v", again.Counts)
			}
			if c.key != "email" || c.as != "contacts" {
				return
			}
			bad, err := w.rows(acme, "email,city,n\ntwice@example.com,X,1\nnew@example.com,Y,1\nnew@example.com,Z,1\n,Q,1\n", o)
			if err == nil || bad.Failed != 2 || !strings.Contains(bad.Problems[0].String(), "several stored records have this email") ||
				!strings.Contains(bad.Problems[1].String(), "line 3 has the same email") {
				t.Errorf(`got %v %v, want an error and bad.Failed = 2 and containing "several stored records have this email" and containing "line 3 has the same email"`,
					err, bad.Problems)
			}
		})
	}
}

// A key that is a number is compared exactly: past 2^53 neighbours are one float.
func TestRows_KeyIsExact(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	acme := w.org("acme")
	w.mustLoad(acme, `{"kind":"contact_field","key":"n","title":"N","type":"Number"}
{"kind":"contact","email":"a@example.com","fields":{"n":9007199254740992}}
{"kind":"contact","email":"b@example.com","fields":{"n":1e6}}
{"kind":"contact","email":"c@example.com","fields":{"n":0.5}}`)
	r := w.mustRows(acme, "email,n\nnew@example.com,9007199254740993\nnewer@example.com,9007199254740994\nb@example.org,1000000\nc@example.org,0.5\n",
		tabular.Options{As: "contacts", Format: tabular.CSV, Key: "n"})
	if r.Created != 2 || r.Updated != 2 {
		t.Errorf("got %+v, want r.Created = 2 and r.Updated = 2", r.Counts)
	}
	out := w.dump(acme, false)
	for _, want := range []string{`"email":"a@example.com","fields":{"n":9007199254740992}`, `"email":"new@example.com","fields":{"n":9007199254740993}`, "b@example.org", "c@example.org"} {
		if !strings.Contains(out, want) {
			t.Errorf("missing %s in\n%s", want, out)
		}
	}
}

func TestRows_KeyRefused(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	acme := w.org("acme")
	w.mustLoad(acme, `{"kind":"contact_field","key":"pin","title":"Pin","type":"Encrypted"}`)
	for name, key := range map[string]string{"no column": "phone", "encrypted": "pin", "a list": "tags"} {
		if _, err := w.rows(acme, "email,pin,tags\na@example.com,1,x\n", tabular.Options{As: "contacts", Format: tabular.CSV, Key: key}); !errors.Is(err, tabular.ErrOptions) {
			t.Errorf("%s: got %v, want the error tabular.ErrOptions", name, err)
		}
	}
}

// T: rows without a value are counted and add nothing, in both formats.
func TestRows_BlankRows(t *testing.T) {
	t.Parallel()
	for format, file := range map[string]string{
		tabular.CSV:  "email,first_name,city\na@example.com,A,\n,,\n , ,\"\t\"\n,\nb@example.com,B,Rome\n",
		tabular.JSON: `[{"email":"a@example.com","city":""},{},{"email":null,"city":" "},{"email":"","tags":[]},{"email":"b@example.com"}]`,
	} {
		w := newWorld(t)
		acme := w.org("acme")
		r := w.mustRows(acme, file, tabular.Options{As: "contacts", Format: format})
		if r.Lines != 2 || r.Created != 2 || r.Skipped != 3 || len(lines(w.dump(acme, false), "contact")) != 2 {
			t.Errorf(`%s: got %+v, want r.Lines = 2 and r.Created = 2 and r.Skipped = 3 and len(lines(w.dump(acme, false), "contact")) = 2`,
				format, r.Counts)
		}
	}
}

// T: one column may feed two fields.
func TestRows_OneColumnTwice(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	acme := w.org("acme")
	r := w.mustRows(acme, "Name,Mail\nAda,a@example.com\n", tabular.Options{
		As: "contacts", Format: tabular.CSV, Map: map[string][]string{"Name": {"first_name", "last_name"}, "Mail": {"email", "login"}},
	})
	if len(r.Columns) != 4 || !cmp.Equal(r.Columns[1], column("Name", "last_name", "", false)) || !cmp.Equal(r.Columns[3], column("Mail", "login", "Email", true)) {
		t.Errorf("got %+v, want len(r.Columns) = 4", r.Columns)
	}
	want := `"email":"a@example.com","first_name":"Ada","last_name":"Ada","fields":{"login":"a@example.com"}`
	if out := w.dump(acme, false); !strings.Contains(out, want) {
		t.Errorf("got %v, want containing %q", out, want)
	}
}
