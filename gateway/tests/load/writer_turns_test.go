package load

import (
	"encoding/json"
	"fmt"
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

// rowsWritten records the number of rows of each write.
type rowsWritten struct {
	mu    sync.Mutex
	all   []int
	after func(rows int) // called after each
}

func (w *rowsWritten) option(_ *config.Config, o *gateway.Options) {
	o.Observe = func(c store.Call) {
		if c.Operation != "write" {
			return
		}
		w.mu.Lock()
		w.all = append(w.all, c.Rows)
		after := w.after
		w.mu.Unlock()
		if after != nil {
			after(c.Rows)
		}
	}
}

// taken returns the rows recorded since its last call.
func (w *rowsWritten) taken() []int {
	w.mu.Lock()
	defer w.mu.Unlock()
	all := w.all
	w.all = nil
	return all
}

// tagged returns the body of a bulk of contacts.
func tagged(contacts, tags int, more string) gatewaytest.Request {
	records := make([]string, contacts)
	for i := range records {
		list := make([]string, tags)
		for k := range list {
			list[k] = fmt.Sprintf(`"t%d"`, i*tags+k)
		}
		records[i] = fmt.Sprintf(`{"external_id":"x%d"%s,"tags":[%s]}`, i, more, strings.Join(list, ","))
	}
	return fixture.JSONText(`{"records":[` + strings.Join(records, ",") + `]}`)
}

// TestBulkIsSplitByRows checks that a bulk of few rows is one write with its answer and one of many rows is several,
// none of which blocks other writers for long, and that it is answered and repeated as one.
func TestBulkIsSplitByRows(t *testing.T) {
	t.Parallel()
	w := &rowsWritten{}
	org := gatewaytest.Start(t, w.option).Org(t, "acme")
	key := gatewaytest.WithKey(org.Key(t, tenants.Contacts))
	send := func(name string, body gatewaytest.Request, says string) (rows []int) {
		t.Helper()
		w.taken()
		a := org.Do(t, http.MethodPost, "/api/contacts/bulk", key, fixture.IdempotencyKey(name), body)
		for _, n := range w.taken() {
			if n >= 100 {
				rows = append(rows, n)
			}
		}
		if !strings.Contains(a.Text(), says) {
			t.Errorf("%s: got %.300s, want containing %q", name, a.Text(), says)
		}
		return rows
	}
	const contacts, tags, most = 60, 200, store.MaxRows + 500 // with the answer, which names each record
	few := tagged(12, 10, "")
	if rows := send("few", few, `"created":12,"updated":0,"failed":0`); len(rows) != 1 {
		t.Errorf("few rows are written as %v, want 1", rows)
	}
	many := tagged(contacts, tags, "")
	rows := send("many", many, `"created":48,"updated":12,"failed":0`)
	all := 0
	for _, n := range rows {
		if all += n; n > most {
			t.Errorf("one write has %d rows, want at most %v", n, most)
		}
	}
	if all < contacts*tags || len(rows) < 6 {
		t.Errorf("%d rows are written as %v, want at least %v and at least 6 rows", all, rows, contacts*tags)
	}
	if rows := send("many", many, `"created":48,"updated":12,"failed":0`); len(rows) > 0 {
		t.Errorf("repeated, it is carried out again: got %v, want none", rows)
	}
	if a := org.Do(t, http.MethodGet, "/api/contacts?per_page=1", key); fmt.Sprint(a.Field("count")) != fmt.Sprint(contacts) {
		t.Errorf(`got %.200s, want fmt.Sprint(a.Field("count")) = %v`, a.Text(), fmt.Sprint(contacts))
	}
}

// TestBulkReportsWhatIsStored changes preconditions between two writes of a bulk: stored records are reported as
// stored, and the others as refused.
func TestBulkReportsWhatIsStored(t *testing.T) {
	t.Parallel()
	w := &rowsWritten{}
	g := gatewaytest.Start(t, w.option)
	org := g.Org(t, "acme")
	_, cookie := org.Person(t, "ada@example.com", func(u *control.NewUser) { u.Roles = []string{"admin"} })
	admin := gatewaytest.Cookie(cookie)
	key := gatewaytest.WithKey(org.Key(t, tenants.Contacts))
	if a := org.Do(t, http.MethodPost, "/api/contacts/fields", admin, fixture.JSONText(`{"key":"plan","title":"Plan","type":"Text"}`)); a.Code != 200 {
		t.Fatalf("got %v, want 200", a.Text())
	}
	var once sync.Once
	w.mu.Lock()
	w.after = func(rows int) {
		if rows > 1000 {
			once.Do(func() {
				if a := org.Do(t, http.MethodPut, "/api/contacts/fields/plan", admin, fixture.JSONText(`{"title":"Tariff"}`)); a.Code != 200 {
					t.Errorf("got %v, want 200", a.Text())
				}
			})
		}
	}
	w.mu.Unlock()
	a := org.Do(t, http.MethodPost, "/api/contacts/bulk", key, tagged(40, 200, `,"fields":{"plan":"gold"}`))
	var told struct {
		Data struct {
			Created, Failed int
			Results         []struct {
				ID     string
				Errors []struct{ Code, Message string }
			}
		}
	}
	if err := json.Unmarshal(a.Body, &told); err != nil || a.Code != 200 {
		t.Fatalf("got %v: %.300s, want no error and 200", err, a.Text())
	}
	count := fmt.Sprint(org.Do(t, http.MethodGet, "/api/contacts?per_page=1", key).Field("count"))
	if told.Data.Created == 0 || told.Data.Failed == 0 || count != fmt.Sprint(told.Data.Created) {
		t.Errorf("got %d created and %d refused in the answer, and %s stored, want some of each and the created stored",
			told.Data.Created, told.Data.Failed, count)
	}
	for i, r := range told.Data.Results {
		if (r.ID == "") != (i >= told.Data.Created) || r.ID == "" && !strings.Contains(r.Errors[0].Message, "send it again") {
			t.Errorf("record %d: got %+v, want an identifier if it was created, else an error", i, r)
		}
	}
}

// TestQueuedImportsEndInTime checks that a waiting import shows its position, and that an import that waits or runs too
// long ends with a message that says what is stored.
func TestQueuedImportsEndInTime(t *testing.T) {
	t.Parallel()
	clock := &fixture.Clock{}
	release := make(chan struct{})
	var held atomic.Bool
	g := gatewaytest.Start(t, clock.Option, func(_ *config.Config, o *gateway.Options) {
		o.Observe = func(c store.Call) {
			if c.Collection == "contacts" && held.Load() {
				<-release
			}
		}
	})
	free := sync.OnceFunc(func() { held.Store(false); close(release) })
	defer free()
	type under struct {
		org   *gatewaytest.Org
		admin gatewaytest.Request
		id    string
	}
	begin := func(slug string) under {
		t.Helper()
		org := g.Org(t, slug)
		_, cookie := org.Person(t, "ada@example.com", func(u *control.NewUser) { u.Roles = []string{"admin"} })
		u := under{org, gatewaytest.Cookie(cookie), ""}
		a := org.Do(t, http.MethodPost, "/api/import", u.admin, gatewaytest.Body("application/x-ndjson", `{"kind":"contact","email":"b@example.com"}`))
		if u.id, _ = a.Field("id").(string); u.id == "" {
			t.Fatalf(`got %v, want u.id other than ""`, a.Text())
		}
		return u
	}
	told := func(u under) string { return u.org.Do(t, http.MethodGet, "/api/import/"+u.id, u.admin).Text() }
	held.Store(true)
	first, second := begin("one"), begin("two")
	third := begin("three")
	fixture.Await(t, "the third waits", func() bool { return strings.Contains(told(third), `"step":"waiting","bytes":0,"place":0`) })
	fourth := begin("four")
	fixture.Await(t, "the fourth waits behind it", func() bool { return strings.Contains(told(fourth), `"step":"waiting","bytes":0,"place":1`) })
	clock.Advance(16 * time.Minute)
	ended := func(u under, message string) { // until it is told of again it seems to be interrupted
		t.Helper()
		fixture.Await(t, message, func() bool { return strings.Contains(told(u), `"state":"failed"`) })
		if text := told(u); !strings.Contains(text, message) || !strings.Contains(text, `"created":0`) || !strings.Contains(text, `"place":0`) {
			t.Errorf(`got %v, want containing %q and containing "\"created\":0" and containing "\"place\":0"`, text, message)
		}
	}
	for _, u := range []under{third, fourth} {
		ended(u, "It could not begin for 15 minutes because of other imports. Nothing was stored; send the same file again later")
	}
	for _, u := range []under{first, second} {
		fixture.Await(t, "it goes on", func() bool { return strings.Contains(told(u), `"state":"running"`) })
	}
	clock.Advance(time.Hour)
	free()
	for _, u := range []under{first, second} {
		ended(u, "It was stopped after 60 minutes. Nothing was stored; send it in several files")
	}
}
