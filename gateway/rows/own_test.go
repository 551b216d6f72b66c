package rows_test

import (
	"strings"
	"testing"

	"tenantry/backends/api"
	"tenantry/backends/resource"
	"tenantry/backends/store"
	"tenantry/config"
	"tenantry/gateway"
	"tenantry/gateway/gatewaytest"
	"tenantry/gateway/rows"
)

// lease is the resource that package transfer takes along by the same six fields: from them come
// its columns too.
type lease struct {
	store.Meta
	Number string   `json:"number" rule:"required max=20 format=key unique" use:"identity"`
	Title  string   `json:"title" rule:"required max=200 format=label" use:"filter"`
	Folder string   `json:"folder,omitempty" rule:"format=id ref=folder" use:"filter"`
	Rent   int64    `json:"rent" rule:"max=1000000"`
	Tags   []string `json:"tags,omitempty" rule:"max=5 each=20"`
	Teams  []string `json:"teams,omitempty" rule:"format=id ref=team" use:"scope"`
}

// module keeps leases and serves nothing.
type module struct{ leases *resource.Of[lease] }

func (m module) Kept() []resource.Kept       { return []resource.Kept{m.leases} }
func (m module) Operations() []api.Operation { return nil }

func TestRowsOfAResourceByItsDeclarationAlone(t *testing.T) {
	t.Parallel()
	leases := resource.Must(resource.Options[lease]{Traits: resource.Traits{Name: "lease"}, Spec: store.Spec{Name: "leases"}})
	g := gatewaytest.Start(t, func(_ *config.Config, o *gateway.Options) { o.Modules = []gateway.Module{module{leases}} })
	w := &world{t, g, g.App.Transfer()}
	acme := w.org("acme")
	for _, c := range []struct{ as, file, key string }{
		{"teams", "id,name\n0000000000000000000000a1,North\n", ""},
		{"folders", "id,name\n0000000000000000000000f1,Contracts\n", ""},
		{"leases", "Number,Title,Folder,Rent,Tags,Teams\nL1,Office,0000000000000000000000f1,900,a;b,0000000000000000000000a1\nL2,Store,,0,,\n", ""},
		{"leases", "title,rent\nStore,50\n", "title"},
	} {
		if r := w.mustRows(acme, c.file, rows.Options{As: c.as, Format: rows.CSV, Key: c.key}); r.Created+r.Updated != r.Lines {
			t.Errorf("%s: %+v", c.as, r)
		}
	}
	out := w.dump(acme, false)
	for _, want := range []string{
		`"number":"L1","title":"Office","folder":"0000000000000000000000f1","rent":900,"tags":["a","b"],"teams":["0000000000000000000000a1"]`,
		`"number":"L2","title":"Store","rent":50`,
	} {
		if !strings.Contains(out, want) {
			t.Errorf("missing %s in\n%s", want, out)
		}
	}
	r, err := w.rows(acme, "number,title,folder,rent,tags,teams\nL 3,,0000000000000000000000f9,-1,a,0000000000000000000000a9\nL4,x,0000000000000000000000f9,,,\n", rows.Options{As: "leases", Format: rows.CSV})
	if err == nil || len(r.Problems) != 2 {
		t.Fatalf("%v %v", err, r.Problems)
	}
	for _, want := range []string{"number must be 1 to 64 letters", "title is required", "rent must be", "teams names a team"} {
		if !strings.Contains(r.Problems[0].String(), want) {
			t.Errorf("missing %q in %v", want, r.Problems[0])
		}
	}
	if got := r.Problems[1].String(); got != "line 3 (lease): folder names a folder that neither the file nor the organization has" {
		t.Error(got)
	}
}
