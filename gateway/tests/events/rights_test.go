package events

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strings"
	"testing"

	"tenantry/backends/store"
	"tenantry/gateway/control"
	"tenantry/gateway/gatewaytest"
	"tenantry/gateway/tests/fixture"
	"tenantry/operation"
	"tenantry/tenants"
)

// turmoil changes records of an organization at random.
type turmoil struct {
	fixture.KeyClient

	random *rand.Rand
	made   map[string][]string // identifiers of live records, by the path of their list
}

const (
	formOne = "/api/form/collections/000000000000000000000001/submissions"
	formTwo = "/api/form/collections/000000000000000000000002/submissions"
)

// newTurmoil returns a turmoil in an organization with two teams, two forms and an object.
func newTurmoil(t testing.TB, acme *gatewaytest.Org, seed uint64) *turmoil {
	t.Helper()
	form := func(n int) string {
		return fmt.Sprintf(`{"kind":"form_collection","id":%q,"name":"f%d","label":"F%d","label_plural":"Fs%d","schema":{"a":{"type":"Text","title":"A"}}}`,
			fixture.DocID(n), n, n, n)
	}
	acme.Import(t, append(fixture.TeamLines(), form(1), form(2),
		`{"kind":"custom_object","name":"tree","label":"Tree","label_plural":"Trees","schema":{"a":{"type":"Text","title":"A"}}}`)...)
	return &turmoil{fixture.WithToken(acme, acme.Key(t, tenants.AllPermissions()...)), rand.New(rand.NewPCG(seed, 1)), map[string][]string{}}
}

// teams returns teams at random.
func (u *turmoil) teams() string {
	return []string{`[]`, `["` + fixture.TeamA + `"]`, `["` + fixture.TeamB + `"]`, `["` + fixture.TeamA + `","` + fixture.TeamB + `"]`}[u.random.IntN(4)]
}

// body returns a random body of a record of a list.
func (u *turmoil) body(path string) string {
	n := u.random.Int()
	switch path {
	case "/api/contacts":
		return fmt.Sprintf(`{"first_name":"N%d","teams":%s}`, n, u.teams())
	case "/api/files/folders":
		return fmt.Sprintf(`{"name":"N%d","teams":%s}`, n, u.teams())
	case "/api/campaigns":
		return fmt.Sprintf(`{"name":"N%d"}`, n)
	case fixture.TreePath + "/records":
		return fmt.Sprintf(`{"values":{"a":"%d"}}`, n)
	}
	return fmt.Sprintf(`{"values":{"form_name":"F","a":"%d"}}`, n)
}

// once makes one change.
func (u *turmoil) once(t *testing.T) {
	t.Helper()
	paths := []string{"/api/contacts", "/api/files/folders", "/api/campaigns", fixture.TreePath + "/records", formOne, formTwo}
	path := paths[u.random.IntN(len(paths))]
	ids := u.made[path]
	if u.random.IntN(4) == 0 || len(ids) < 3 {
		u.made[path] = append(ids, u.Want(t, http.StatusOK, http.MethodPost, path, u.body(path)).Field("id").(string))
		return
	}
	i := u.random.IntN(len(ids))
	one := path + "/" + ids[i]
	switch u.random.IntN(6) {
	case 0:
		u.Want(t, http.StatusOK, http.MethodDelete, one, "")
		if u.random.IntN(2) == 0 {
			u.Want(t, http.StatusOK, http.MethodPost, one+"/restore", "")
			return
		}
		u.made[path] = slices.Delete(ids, i, i+1)
	case 1:
		u.Want(t, http.StatusOK, http.MethodDelete, one+"?purge=true", "")
		u.made[path] = slices.Delete(ids, i, i+1)
	default:
		if !strings.HasSuffix(path, "/submissions") { // they do not change
			u.Want(t, http.StatusOK, http.MethodPut, one, u.body(path))
		}
	}
}

// rounds returns how often something random is done.
func rounds(usual, long int) int {
	if os.Getenv("TENANTRY_TEST_LONG") != "" {
		return long
	}
	return usual
}

// TestEvents_Mirror has callers of different teams mirror lists by their changes.
func TestEvents_Mirror(t *testing.T) {
	t.Parallel()
	acme := gatewaytest.Start(t, fixture.ShortLeases).Org(t, "acme", tenants.FeatureTeams)
	u := newTurmoil(t, acme, 3)
	limited := acme.KeyWith(t, func(k *control.NewKey) {
		k.Permissions, k.Teams = fixture.PermissionNames(tenants.AllPermissions()), []string{fixture.TeamA}
	}).Token
	var mirrors []*mirror
	for _, key := range []string{u.Token, limited} {
		for _, path := range []string{"/api/contacts", "/api/form/collections", formOne, "/api/files/folders", fixture.TreePath + "/records", "/api/campaigns"} {
			mirrors = append(mirrors, mirrored(t, acme, gatewaytest.WithKey(key), path))
		}
	}
	for range rounds(200, 5000) {
		if u.once(t); u.random.IntN(10) == 0 {
			for _, m := range mirrors {
				m.catchUp(t)
			}
		}
	}
	for i, m := range mirrors {
		m.catchUp(t)
		if differ := m.same(t); differ != "" {
			t.Errorf("%d %s: %s", i, m.path, differ)
		}
		if len(m.records) == 0 {
			t.Errorf("%d %s: the caller sees none, so that the test shows little", i, m.path)
		}
	}
}

// TestEvents_Rights asks, for random callers and events, for the record of the event: it must be answered exactly to
// those who are told of the event.
func TestEvents_Rights(t *testing.T) {
	t.Parallel()
	g := gatewaytest.Start(t, fixture.ShortLeases)
	acme := g.Org(t, "acme", tenants.FeatureTeams)
	u := newTurmoil(t, acme, 5)
	callers := []*follower{}
	keys := map[*follower]string{}
	all := tenants.AllPermissions()
	for i := range rounds(16, 400) {
		key := acme.KeyWith(t, func(k *control.NewKey) {
			held := slices.DeleteFunc(slices.Clone(all), func(tenants.Permission) bool { return i > 2 && u.random.IntN(2) == 0 })
			k.Name, k.Permissions = fmt.Sprint("caller ", i), fixture.PermissionNames(held)
			k.Teams = [][]string{nil, {fixture.TeamA}, {fixture.TeamB}, {fixture.TeamA, fixture.TeamB}}[i%4]
		}).Token
		f := follow(t, acme, gatewaytest.WithKey(key), "")
		callers, keys[f] = append(callers, f), key
	}
	start, err := acme.Tenant(t).Org.EventLog.Position(callers[len(callers)-1].next)
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range callers {
		f.next = callers[len(callers)-1].next
	}
	for range rounds(250, 3200) {
		u.once(t)
	}
	rows := map[string]*operation.Row{}
	for _, row := range g.App.Operations() {
		if row.Logged != nil {
			rows[row.Logged.Resource] = &row
		}
	}
	happened := logged(t, acme, start, slices.Collect(maps.Keys(rows)))
	told, shown, ended := 0, 0, 0
	for _, f := range callers {
		got := map[string]bool{}
		for _, e := range f.read(t) {
			got[e.Record+" "+fmt.Sprint(e.Revision)] = true
		}
		answers := map[string]bool{}
		for _, e := range happened {
			row, is := rows[e.Kind], got[e.Record+" "+fmt.Sprint(e.Revision)]
			last := strings.LastIndexByte(row.Path, '{')
			path := paramOf(row.Path[:last]+e.Record, e.Of)
			should, known := answers[path]
			if !known {
				should = answered(t, f, keys[f], path)
				answers[path] = should
			}
			if e.Gone { // nobody gets the record, so those are told who might have got it
				if ended++; is && should {
					t.Errorf("%s: the record is there after %+v", path, e)
				}
				continue
			}
			if is != should {
				t.Errorf("caller %s: told of %s %s of %s (%v): %v, the record is answered: %v", keys[f], e.Kind, e.What, path, e.Teams, is, should)
			}
			if told++; should {
				shown++
			}
		}
	}
	t.Logf("%d pairs, %d of them readable; %d ends", told, shown, ended)
	if shown < told/20 || shown > told*19/20 || ended == 0 {
		t.Error("the pairs are too much alike to show anything")
	}
}

// paramOf replaces what is left of parameters of a path, which name the definition.
func paramOf(path, of string) string {
	for {
		before, after, found := strings.Cut(path, "{")
		if !found {
			return path
		}
		_, after, _ = strings.Cut(after, "}")
		path = before + of + after
	}
}

// answered reports whether a caller gets a record, in the trash or not.
func answered(t *testing.T, f *follower, key, path string) bool {
	t.Helper()
	for _, q := range []url.Values{{}, {"deleted": {"true"}}} {
		if a := f.Get(t, key, path+"?"+q.Encode()); a.Code == http.StatusOK && a.Status == "ok" {
			return true
		}
	}
	return false
}

// logged returns what the event log has after a position, whoever may read it.
func logged(t *testing.T, o *gatewaytest.Org, after int64, kinds []string) (all []store.Event) {
	t.Helper()
	for {
		part, err := o.Tenant(t).Workspace().Events(t.Context(), store.EventsQuery{
			After: after, Kinds: kinds, Limit: 1000,
			See: func(_ context.Context, _ string, events []store.Event) ([]store.Seen, error) {
				return slices.Repeat([]store.Seen{store.Shown}, len(events)), nil
			},
		})
		if err != nil {
			t.Fatal(err)
		}
		all, after = append(all, part.Events...), part.UpTo
		if !part.More {
			return all
		}
	}
}
