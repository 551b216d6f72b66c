package isolation

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	"tenantry/gateway/gatewaytest"
	"tenantry/gateway/tests/fixture"
	"tenantry/operation"
	"tenantry/tenants"
)

// sampleFaults returns the differences between the samples and the rows.
func sampleFaults(rows []operation.Row, have map[string]fixture.Sample) []string {
	var faults []string
	fault := func(format string, args ...any) { faults = append(faults, fmt.Sprintf(format, args...)) }
	named := map[string]bool{}
	for _, op := range rows {
		named[op.Name] = true
		s, ok := have[op.Name]
		if !ok {
			fault("operation %s has no sample; add one to samples", op.Name)
			continue
		}
		params, body := map[string]bool{}, map[string]bool{}
		for _, p := range op.Params {
			params[string(p.In)+" "+p.Name] = true
			_, inPath := s.Path[p.Name]
			inQuery := slices.ContainsFunc(s.Query, func(v fixture.QueryValue) bool { return fixture.ParamRoot(v.Name) == p.Name })
			if p.In == operation.InPath && !inPath || p.In == operation.InQuery && !inQuery {
				fault("the sample of %s lacks the %s parameter %s", op.Name, p.In, p.Name)
			}
		}
		for _, f := range op.Body {
			body[f.Name] = true
			if _, ok := s.Body[f.Name]; !ok {
				fault("the sample of %s lacks the body field %s", op.Name, f.Name)
			}
		}
		for name := range s.Path {
			if !params["path "+name] {
				fault("the sample of %s has the path parameter %s, the operation has not", op.Name, name)
			}
		}
		for _, v := range s.Query {
			if !params["query "+fixture.ParamRoot(v.Name)] {
				fault("the sample of %s has the query parameter %s, the operation has not", op.Name, v.Name)
			}
		}
		for name := range s.Body {
			if !body[name] {
				fault("the sample of %s has the body field %s, the operation has not", op.Name, name)
			}
		}
	}
	for name := range have {
		if !named[name] {
			fault("there is a sample for %s, but no such operation", name)
		}
	}
	return faults
}

func TestSamplesCoverEveryOperation(t *testing.T) {
	t.Parallel()
	g := gatewaytest.Start(t)
	rows := slices.DeleteFunc(g.App.Operations(), func(o operation.Row) bool { return o.Resource != "" }) // whose samples are made of the row
	for _, fault := range sampleFaults(rows, fixture.Samples()) {
		t.Error(fault)
	}
	for _, op := range rows {
		less := fixture.Samples()
		delete(less, op.Name)
		if len(sampleFaults(rows, less)) != 1 {
			t.Errorf("got no fault for the missing sample of %s, want one", op.Name)
		}
		if others := slices.DeleteFunc(slices.Clone(rows), func(o operation.Row) bool { return o.Name == op.Name }); len(sampleFaults(others, fixture.Samples())) != 1 {
			t.Errorf("got no fault for the extra sample of %s, want one", op.Name)
		}
		more := op
		more.Params = append(slices.Clone(op.Params), operation.Param{Name: "another_id", In: operation.InQuery})
		if len(sampleFaults([]operation.Row{more}, map[string]fixture.Sample{op.Name: fixture.SampleFor(&op)})) != 1 {
			t.Errorf("got no fault for a new parameter of %s, want one", op.Name)
		}
	}
}

// credentialsOf returns all kinds of credentials of the party.
func credentialsOf(t testing.TB, p *fixture.Party) []fixture.Credential {
	key := func(kind tenants.KeyKind, token string, more ...gatewaytest.Request) fixture.Credential {
		return fixture.Credential{
			Name:  string(kind),
			Shown: append([]gatewaytest.Request{gatewaytest.WithKey(token)}, more...),
			Twin:  append([]gatewaytest.Request{gatewaytest.WithKey(fixture.RandomKey(t, kind))}, more...),
		}
	}
	return []fixture.Credential{
		key(tenants.ServerFull, p.FullKey), key(tenants.ServerRead, p.ReadKey),
		key(tenants.Browser, p.BrowserKey, gatewaytest.Header("Origin", fixture.PageOrigin)),
		{
			Name:  "session of an administrator",
			Shown: []gatewaytest.Request{gatewaytest.Cookie(p.AdminCookie)},
			Twin:  []gatewaytest.Request{gatewaytest.Cookie(fixture.RandomCookie())},
		},
	}
}

func TestKeyOfAnotherOrganization(t *testing.T) {
	t.Parallel()
	w := fixture.NewWorld(t, fixture.WithPlants, fixture.WithDemoFiles)
	for _, pair := range [][2]*fixture.Party{{w.A, w.B}, {w.B, w.A}} {
		stranger, host := pair[0], pair[1]
		before := host.Export(t)
		calls := 0
		for _, op := range w.Rows() {
			s := fixture.SampleFor(&op)
			for _, path := range op.Paths() {
				for _, c := range credentialsOf(t, stranger) {
					for name, ids := range map[string]*fixture.Party{"the stranger's": stranger, "its own": host} {
						id := ids.Own
						if s.Once || op.AnySite && op.Method != http.MethodGet { // everybody may send submissions
							id = func(at fixture.Slot) (string, bool) { return fixture.RandomLike(ids.IDs[at.Ref]), true }
						}
						q := w.Build(&op, path, s, id, fixture.Every)
						got := host.Do(t, q.Method, q.Target, append(q.Changes, c.Shown...)...)
						want := host.Do(t, q.Method, q.Target, append(q.Changes, c.Twin...)...)
						what := fmt.Sprintf("%s %s with %s of %s on %s, %s identifiers", op.Method, path, c.Name, stranger.Slug, host.Slug, name)
						if g, w := fixture.Canonical(got, "", s.Volatile), fixture.Canonical(want, "", s.Volatile); g != w {
							t.Errorf("%s: got\n%s\nwant as for an unknown key:\n%s", what, g, w)
						}
						if op.Credentials != operation.Open {
							fixture.WantDenied(t, what, got)
						}
						calls++
					}
				}
			}
		}
		if calls < 8*len(w.Rows()) {
			t.Errorf("%[1]d calls, want at least %[2]d", calls, 8*len(w.Rows()))
		}
		if host.Export(t) != before {
			t.Errorf("got changes of %s by strangers, want none", host.Slug)
		}
	}
}

func TestIdentifiersOfAnotherOrganization(t *testing.T) {
	t.Parallel()
	w := fixture.NewWorld(t, fixture.WithPlants, fixture.WithDemoFiles)
	for i, pair := range [][2]*fixture.Party{{w.A, w.B}, {w.B, w.A}} {
		victim, caller := pair[0], pair[1]
		before := victim.Export(t)
		tried := map[string]int{}
		for _, op := range w.Rows() {
			s := fixture.SampleFor(&op)
			for _, path := range op.Paths() {
				for _, at := range s.Slots(&op, path) {
					if at.Ref == fixture.RefUntil { // the same time for all
						continue
					}
					if fixture.UsesUp(&op) && !strings.HasPrefix(at.Name, "path ") {
						tried[op.Name]++
						continue // the second call would find no record, whatever else it names
					}
					tryForeign(t, w, &op, path, s, at, caller, victim, i == 0)
					tried[op.Name]++
				}
			}
		}
		for _, op := range w.Rows() {
			if tried[op.Name] == 0 && (len(op.Params) > 0 || op.Teams) && op.Upload == nil && op.Name != "exports.get" && op.Name != "store.explain" && op.Name != "audit.verify" && op.Name != "sessions.list" && op.Name != "uploads.create" { // which name none
				t.Errorf("got no call with an identifier of %s, want one", op.Name)
			}
		}
		if victim.Export(t) != before {
			t.Errorf("%s's key changed %s, want no change", caller.Slug, victim.Slug)
		}
	}
}

// tryForeign calls with the victim's identifiers of the right form in one slot, whatever their kind, and compares the
// answer with that to an unused identifier.
func tryForeign(t *testing.T, w *fixture.World, op *operation.Row, path string, s fixture.Sample, at fixture.Slot, caller, victim *fixture.Party, ofEachKind bool) {
	foreign := map[fixture.Ref]string{at.Ref: victim.IDs[at.Ref]}
	if ofEachKind && fixture.IsID(victim.IDs[at.Ref]) { // what is another kind's identifier leads nowhere, too, whoever of the two asks
		for r, id := range victim.IDs {
			if fixture.IsID(id) {
				foreign[r] = id
			}
		}
	}
	var shows []gatewaytest.Request
	if op.Credentials&operation.Key != 0 && !op.Rule.IsAdminOnly() {
		shows = append(shows, gatewaytest.WithKey(caller.FullKey))
	}
	if op.Credentials&operation.Session != 0 {
		shows = append(shows, gatewaytest.Cookie(caller.AdminCookie))
	}
	if len(shows) == 0 {
		shows = append(shows, func(*http.Request) {})
	}
	random := fixture.RandomLike(victim.IDs[at.Ref])
	for i, show := range shows {
		call := func(identifier string) *gatewaytest.Answer {
			q := w.Build(op, path, s, func(other fixture.Slot) (string, bool) {
				if other == at {
					return identifier, true
				}
				return caller.Own(other)
			}, func(name string) bool { return name != "public_key" && name != "filters[country]" })
			return caller.Do(t, q.Method, q.Target, append(q.Changes, show)...)
		}
		want := fixture.Canonical(call(random), random, s.Volatile)
		for r, id := range foreign {
			if r == at.Ref || i == 0 { // what another kind's identifier leads to does not depend on who asks
				holdForeign(t, op, path, s, at, caller, r, id, call(id), want)
			}
		}
	}
}

func holdForeign(t *testing.T, op *operation.Row, path string, s fixture.Sample, at fixture.Slot, caller *fixture.Party, r fixture.Ref, id string, got *gatewaytest.Answer, want string) {
	t.Helper()
	if g := fixture.Canonical(got, id, s.Volatile); g != want {
		t.Errorf("%s %s by %s with the other organization's %s as %s:\n%s\nwith a random identifier:\n%s", op.Method, path, caller.Slug, r, at.Name, g, want)
	}
	// A path identifier that exists would make the call succeed.
	if strings.HasPrefix(at.Name, "path ") && got.Status != "failed" {
		t.Errorf("%s %s by %s with the other organization's %s: got %d %.200s, want a failure",
			op.Method, path, caller.Slug, r, got.Code, got.Body)
	}
}
