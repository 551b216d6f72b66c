package bundle

import (
	"strings"
	"testing"

	"tenantry/backends/record"
	"tenantry/backends/store"
)

// lease is all there is to say of a resource of six fields. From it come its collection in the
// store, what a bundle may say of it, and what it may refer to.
type lease struct {
	store.Meta
	Number string   `json:"number" rule:"required max=20 format=key unique" use:"identity"`
	Title  string   `json:"title" rule:"required max=200 format=label" use:"filter"`
	Folder string   `json:"folder,omitempty" rule:"format=id ref=folder" use:"filter"`
	Rent   int64    `json:"rent" rule:"max=1000000"`
	Tags   []string `json:"tags,omitempty" rule:"max=5 each=20"`
	Teams  []string `json:"teams,omitempty" rule:"format=id ref=team" use:"scope"`
}

func leases() (*record.Of[lease], error) {
	return record.Define(record.Options[lease]{
		Traits: record.Traits{Name: "lease"},
		Spec:   store.Spec{Name: "leases"},
		Check: func(c *record.Checking, l *lease) {
			if len(l.Tags) > 0 && l.Rent == 0 {
				c.Errs.Add("tags", "forbidden", "what is free has no tags")
			}
		},
	})
}

func TestAResourceTravelsByItsDeclarationAlone(t *testing.T) {
	t.Parallel()
	of, err := leases()
	check(t, err)
	w := newWorld(t, of)
	acme := w.org("acme")
	const bundle = `{"kind":"lease","number":"L1","title":"Office","folder":"0000000000000000000000f1","rent":900,"tags":["a"],"teams":["0000000000000000000000a1"]}
{"kind":"lease","number":"L2","title":"Store"}
{"kind":"folder","id":"0000000000000000000000f1","name":"Contracts"}
{"kind":"team","id":"0000000000000000000000a1","name":"North"}
`
	if r := w.mustLoad(acme, bundle); r.Created != 4 {
		t.Fatalf("got %+v, want r.Created = 4", r)
	}
	if r := w.mustLoad(acme, bundle); r.Unchanged != 4 {
		t.Fatalf("again: %+v", r)
	}
	if r := w.mustLoad(acme, `{"kind":"lease","number":"L2","title":"Shop"}`); r.Updated != 1 {
		t.Fatalf("another title: %+v", r)
	}
	out := w.dump(acme, false)
	for _, want := range []string{`"number":"L1","title":"Office","folder":"0000000000000000000000f1","rent":900,"tags":["a"],"teams":["0000000000000000000000a1"]`, `"number":"L2","title":"Shop"`} {
		if !strings.Contains(out, want) {
			t.Errorf("missing %s in\n%s", want, out)
		}
	}
	if r := w.mustLoad(w.org("other"), out); r.Created != 4 || r.Lines != 5 {
		t.Errorf("into another organization: %+v", r)
	}
	r, err := w.load(acme, `{"kind":"lease","number":"L 3","title":"","folder":"0000000000000000000000f9","rent":0,"tags":["x"],"teams":["0000000000000000000000a9"],"floor":2}
{"kind":"lease","number":"L4","title":"x","folder":"0000000000000000000000f9"}`, ImportOptions{})
	if err == nil {
		t.Fatal("it was taken")
	}
	var got []string
	for _, p := range r.Problems {
		for _, f := range p.Errors {
			got = append(got, f.Field+" "+f.Code)
		}
	}
	if want := "number format, floor unknown, title required, tags forbidden, teams unknown, folder unknown"; strings.Join(got, ", ") != want {
		t.Errorf("%q, want %s", got, want)
	}
}
