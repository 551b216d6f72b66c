package records

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"tenantry/backends/store"
	"tenantry/config"
	"tenantry/gateway"
	"tenantry/gateway/control"
	"tenantry/gateway/gatewaytest"
	"tenantry/gateway/tests/fixture"
	"tenantry/tenants"
)

// TestKilledRequestsCanBeRepeated kills the process at any moment of a request. The change, its answer and its audit
// record are all stored or none is; a repetition gets the same answer, and the change exists once.
func TestKilledRequestsCanBeRepeated(t *testing.T) {
	t.Parallel()
	if fixture.ServeAsVictim(t) {
		return
	}
	folder := t.TempDir()
	var ahead fixture.Clock
	start := func() *gatewaytest.Org {
		return &gatewaytest.Org{Gateway: gatewaytest.Start(t, fixture.InFolder(folder), ahead.Option), Slug: "acme", Host: "acme.localhost"}
	}
	acme := start()
	acme.Gateway.Org(t, "acme")
	key := acme.Key(t, tenants.ManageCustomObjects, tenants.Contacts, tenants.ViewAudit)
	acme.Stop(t)

	answered := map[string]string{} // by name; "" where nobody heard the answer
	names := []string{}
	for round := range 3 {
		victim := fixture.StartVictim(t, folder)
		var mu sync.Mutex
		var senders sync.WaitGroup
		heard := 0
		enough := make(chan struct{})
		for sender := range 4 {
			senders.Go(func() {
				for n := 0; ; n++ {
					name := fmt.Sprintf("%s%d_%d_%d", []string{"object", "bulk"}[sender%2], round, sender, n)
					mu.Lock()
					names = append(names, name)
					mu.Unlock()
					code, body, err := sendNamed(t, victim.Addr, key, name)
					for code == http.StatusServiceUnavailable { // it has just begun
						time.Sleep(20 * time.Millisecond)
						code, body, err = sendNamed(t, victim.Addr, key, name)
					}
					if err != nil {
						return // it was killed
					}
					mu.Lock()
					answered[name] = body
					if heard++; heard == 20+7*round {
						close(enough)
					}
					mu.Unlock()
				}
			})
		}
		<-enough
		victim.Kill()
		senders.Wait()
		victim.Wait()
	}

	ahead.Advance(time.Minute) // nobody is carrying anything out any more
	acme = start()
	export, carried := exportOf(t, acme), 0
	told := 0
	for _, operation := range []string{"objects.create", "contacts.bulk"} {
		told += strings.Count(acme.Get(t, key, "/api/audit?filters[operation]="+operation+"&per_page=1000").Text(), `"outcome":"ok"`)
	}
	for _, name := range names {
		stored := countNamed(t, export, name)
		path, body := createCall(name)
		a := acme.Do(t, http.MethodPost, path, gatewaytest.WithKey(key), body, fixture.IdempotencyKey(name))
		if a.Status != "ok" || replayed(a) != (stored == 1) || answered[name] != "" && answered[name] != a.Text() {
			t.Errorf("%s, stored %d times and answered %q: got %d %s again, want the first answer",
				name, stored, answered[name], a.Code, a.Body)
		}
		carried += stored
	}
	if told != carried {
		t.Errorf("%d were stored, want as many as the %d records in the audit log", carried, told)
	}
	after := exportOf(t, acme)
	for _, name := range names {
		if n := countNamed(t, after, name); n != 1 {
			t.Errorf("%s is there %d times, want 1", name, n)
		}
	}
	if carried < len(answered) || len(names) == len(answered) {
		t.Errorf("%d sent, %d answered, %d carried out, want all answered ones carried out and some lost",
			len(names), len(answered), carried)
	}
}

// createCall returns the call that creates something with that name: an object, or a bulk of contacts, one of which is
// refused.
func createCall(name string) (path string, body gatewaytest.Request) {
	if strings.HasPrefix(name, "object") {
		return fixture.ObjectsPath, object(name)
	}
	return "/api/contacts/bulk", fixture.JSONText(fmt.Sprintf(`{"records":[{"external_id":%q},{"email":"none"},{"external_id":%q}]}`, name, name+"_too"))
}

// countNamed returns how many records with that name an export has. A bulk must be complete.
func countNamed(t *testing.T, export, name string) int {
	t.Helper()
	if strings.HasPrefix(name, "object") {
		return strings.Count(export, fmt.Sprintf(`"name":%q`, name))
	}
	n := strings.Count(export, fmt.Sprintf(`"external_id":%q`, name))
	if too := strings.Count(export, fmt.Sprintf(`"external_id":%q`, name+"_too")); too != n {
		t.Errorf("of %s: got one record %d times and the other %d times, want both or none", name, n, too)
	}
	return n
}

// sendNamed sends such a call to a process that may have been killed.
func sendNamed(t *testing.T, address, key, name string) (code int, answer string, err error) {
	t.Helper()
	path, content := createCall(name)
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://"+address+path, http.NoBody)
	if err != nil {
		return 0, "", err
	}
	r.Host = "acme.localhost"
	for _, change := range []gatewaytest.Request{gatewaytest.WithKey(key), content, fixture.IdempotencyKey(name)} {
		change(r)
	}
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		return 0, "", err
	}
	body, err := io.ReadAll(resp.Body)
	_ = resp.Body.Close() // it was read, or the process is gone
	if err == nil && resp.StatusCode != http.StatusOK && resp.StatusCode != http.StatusServiceUnavailable {
		t.Errorf("%s: got %d %s, want 200 or 503", name, resp.StatusCode, body)
	}
	return resp.StatusCode, string(body), err
}

// TestChangeIsOneWrite checks that on an engine with transactions a change, its audit record and its kept answer are
// stored with one sync, besides the earlier claim of the key.
func TestChangeIsOneWrite(t *testing.T) {
	t.Parallel()
	var writes atomic.Int64
	acme := gatewaytest.Start(t, gatewaytest.Embedded, func(_ *config.Config, o *gateway.Options) {
		o.HeadInterval = -1 // only writes of requests count
		o.Observe = func(c store.Call) {
			if c.Operation == "write" && c.Collection != "organizations" { // the first calls make it a data key
				writes.Add(1)
			}
		}
	}).Org(t, "acme")
	acme.Import(t, `{"kind":"folder","id":"`+fixture.DocID(1)+`","name":"Plans"}`, `{"kind":"file","id":"`+fixture.DocID(2)+`","filename":"a.txt","mimetype":"text/plain","folder_id":"`+fixture.DocID(1)+`"}`)
	key := acme.Key(t, tenants.ManageCustomObjects, tenants.ManageFiles, tenants.Contacts)
	for i, row := range []struct{ method, path, body, again string }{
		{http.MethodPost, fixture.ObjectsPath, `{"name":"tree","label":"Tree","label_plural":"Trees","schema":{}}`, ""},
		{http.MethodPost, fixture.ObjectsPath, `{"name":"bush","label":"Bush","label_plural":"Bushes","schema":{}}`, "k1"},
		{http.MethodPost, "/api/custom/objects/tree/records", `{"values":{}}`, ""},
		{http.MethodPost, "/api/custom/objects/tree/records/bulk", `{"records":[{"values":{}},{"values":{}}]}`, ""},
		{http.MethodPost, "/api/contacts/bulk", `{"records":[{"external_id":"a"},{"external_id":"b"},{"email":"none"}]}`, "k6"},
		{http.MethodPost, "/api/contacts/bulk", `{"records":[{"external_id":"a","city":"Bonn"},{"external_id":"c"}]}`, "k7"},
		{http.MethodPost, "/api/files/folders", `{"name":"Notes"}`, "k2"},
		{http.MethodPut, "/api/files/folders/" + fixture.DocID(1), `{"name":"Drawings"}`, ""},
		{http.MethodPut, "/api/files/folders/" + fixture.DocID(1), `{"name":"Sketches"}`, "k3"},
		{http.MethodDelete, "/api/files/" + fixture.DocID(2), "", ""},
		{http.MethodPost, "/api/files/" + fixture.DocID(2) + "/restore", "", "k4"},
		{http.MethodDelete, "/api/files/" + fixture.DocID(2) + "/purge", "", "k5"},
	} {
		changes, want := []gatewaytest.Request{gatewaytest.WithKey(key)}, int64(1)
		if row.body != "" {
			changes = append(changes, fixture.JSONText(row.body))
		}
		if row.again != "" {
			changes, want = append(changes, fixture.IdempotencyKey(row.again)), 2
		}
		if strings.HasSuffix(row.path, "/purge") {
			want++ // before, what k4 was answered ends
		}
		before := writes.Load()
		a := acme.Do(t, row.method, row.path, changes...)
		if got := writes.Load() - before; a.Status != "ok" || got != want {
			t.Errorf("%d: %s %s: got %d %s with %d writes, want %d writes", i, row.method, row.path, a.Code, a.Body, got, want)
		}
	}
}

// TestBulkIsOneWrite checks the same for a bulk, also if the store refuses some of its records. If more are refused
// than are retried, the last write has the answer, whatever happens to the process then.
func TestBulkIsOneWrite(t *testing.T) {
	t.Parallel()
	var writes, killed atomic.Int64
	acme := gatewaytest.Start(t, gatewaytest.Embedded, func(_ *config.Config, o *gateway.Options) {
		o.HeadInterval = -1 // only writes of requests count
		o.Observe = func(c store.Call) {
			if c.Operation != "write" || c.Err != nil || c.Collection != "" && c.Collection != "contacts" {
				return
			}
			if writes.Add(1); killed.Add(-1) == 0 {
				panic("killed")
			}
		}
	}).Org(t, "acme", tenants.FeatureTeams)
	const north, south = "aaaaaaaaaaaaaaaaaaaaaaaa", "bbbbbbbbbbbbbbbbbbbbbbbb"
	taken := []string{`{"kind":"team","id":"` + north + `","name":"North"}`, `{"kind":"team","id":"` + south + `","name":"South"}`}
	for n := range 40 {
		taken = append(taken, fmt.Sprintf(`{"kind":"contact","external_id":"taken%d","teams":[%q]}`, n, south))
	}
	acme.Import(t, taken...)
	key := gatewaytest.WithKey(acme.KeyWith(t, func(k *control.NewKey) {
		k.Permissions, k.Teams = []string{string(tenants.Contacts)}, []string{north}
	}).Token)
	for i, row := range []struct {
		fresh, taken int // turn about, as long as there are any; the last ones are taken
		writes       int64
	}{{2, 2, 1}, {5, 16, 1}, {1, 40, 1}, {40, 40, 25}} {
		var records []string
		for n := range max(row.fresh, row.taken) {
			if n < row.fresh {
				records = append(records, fmt.Sprintf(`{"external_id":"fresh%d_%d"}`, i, n))
			}
			if n < row.taken {
				records = append(records, fmt.Sprintf(`{"external_id":"taken%d"}`, n))
			}
		}
		send := func(name string) *gatewaytest.Answer {
			body := strings.ReplaceAll(strings.Join(records, ","), "fresh", name)
			return acme.Do(t, http.MethodPost, "/api/contacts/bulk", key, fixture.JSONText(`{"records":[`+body+`]}`), fixture.IdempotencyKey(fmt.Sprint(name, i)))
		}
		before := writes.Load()
		a := send("a")
		says := fmt.Sprintf(`"created":%d,"updated":0,"failed":%d`, row.fresh, row.taken)
		if got := writes.Load() - before; !strings.Contains(a.Text(), says) || got != row.writes {
			t.Errorf("%d: got %s with %d writes, want %d", i, a.Body, got, row.writes)
		}
		killed.Store(row.writes)
		if a := send("b"); a.Code != http.StatusInternalServerError {
			t.Errorf("%d: killed, and %d %s, want 500", i, a.Code, a.Body)
		}
		if a := send("b"); !replayed(a) || !strings.Contains(a.Text(), says) {
			t.Errorf("%d: after a kill: got %d %s, want the stored answer", i, a.Code, a.Body)
		}
	}
	export := exportOf(t, acme)
	if n := strings.Count(export, `"external_id":"a`) + strings.Count(export, `"external_id":"b`); n != 2*(2+5+1+40) {
		t.Errorf("got %d records, want all of both requests", n)
	}
}
