package events

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"tenantry/gateway/gatewaytest"
	"tenantry/gateway/tests/fixture"
	"tenantry/tenants"
)

// TestEvents follows one record from its creation to its end.
func TestEvents(t *testing.T) {
	t.Parallel()
	g := gatewaytest.Start(t, fixture.ShortLeases)
	acme, birch := g.Org(t, "acme"), g.Org(t, "birch")
	key := acme.Key(t, tenants.AllPermissions()...)
	c := fixture.WithToken(acme, key)
	before := c.Want(t, http.StatusOK, http.MethodPost, "/api/contacts", `{"first_name":"Before"}`).Field("id").(string)
	all := follow(t, acme, gatewaytest.WithKey(key), "")
	ends := follow(t, acme, gatewaytest.WithKey(key), " contact.purged , folder.created ")
	other := follow(t, birch, gatewaytest.WithKey(birch.Key(t, tenants.AllPermissions()...)), "")

	path := "/api/contacts/" + before
	c.Want(t, http.StatusOK, http.MethodPut, path, `{"first_name":"After"}`)
	c.Want(t, http.StatusOK, http.MethodDelete, path, "")
	c.Want(t, http.StatusOK, http.MethodPost, path+"/restore", "")
	id := c.Want(t, http.StatusOK, http.MethodPost, "/api/contacts", `{"first_name":"New"}`).Field("id").(string)
	etag := c.Want(t, http.StatusOK, http.MethodGet, path, "").Header.Get("ETag")
	got := all.read(t)
	want := []string{"contact.updated " + before + " 2", "contact.deleted " + before + " 3", "contact.restored " + before + " 4",
		"contact.created " + id + " 1"}
	wantEvents(t, got, want...)
	for _, e := range got {
		if !strings.HasPrefix(e.Actor, "key:") || !strings.HasSuffix(e.At, "Z") {
			t.Errorf("got %+v, want the key as the actor, and a time", e)
		}
	}
	if !strings.Contains(etag, "4") {
		t.Errorf("the ETag is %s, want one of the revision of the last event, 4", etag)
	}

	// Each identifier is a cursor.
	again := *all
	again.next = got[2].ID
	wantEvents(t, again.read(t), want[3])

	c.Want(t, http.StatusOK, http.MethodDelete, path+"?purge=true", "")
	wantEvents(t, all.read(t), "contact.purged "+before+" 5")
	wantEvents(t, ends.read(t), "contact.purged "+before+" 5")
	wantEvents(t, all.read(t))
	// What happened to a record that is gone is told no more, but for its end.
	again.next = got[0].ID
	wantEvents(t, again.read(t), want[3], "contact.purged "+before+" 5")
	if found := other.read(t); len(found) > 0 {
		t.Errorf("another organization is told %v", found)
	}

	for query, fault := range map[string]string{
		"after=x":                  "after must be the value of next",
		"after=aaaaaaaaaa-01":      "after must be the value of next",
		"kinds=contacts":           `there are no events of \"contacts\"; there are those of`,
		"kinds=contact.made":       `a contact is never \"made\"; it is created, updated, deleted, restored, purged`,
		"kinds=audit_record":       "there are no events of",
		"kinds=user":               "there are no events of",
		"after=&per_page=0":        "per_page",
		"changed_after=&after=x-1": "changed_after",
	} {
		if a := acme.Get(t, key, "/api/events?"+query); a.Code != http.StatusUnprocessableEntity && a.Code != http.StatusBadRequest ||
			!strings.Contains(a.Text(), fault) {
			t.Errorf("%s: got %d %s, want a refusal with %s", query, a.Code, a.Body, fault)
		}
	}
	if a := acme.Get(t, key, "/api/events?after=aaaaaaaaaa-1"); a.Code != http.StatusGone {
		t.Errorf("got %d %s for a cursor of another log, want 410", a.Code, a.Body)
	}
	weak := acme.Key(t, tenants.ManageForms)
	if a := acme.Get(t, weak, "/api/events?kinds=form_collection,contact"); a.Code != http.StatusForbidden {
		t.Errorf("got %d %s for a kind that the key may not read, want 403", a.Code, a.Body)
	}
}

func wantEvents(t *testing.T, got []event, want ...string) {
	t.Helper()
	var told []string
	for _, e := range got {
		told = append(told, fmt.Sprintf("%s %s %d", e.Kind, e.Record, e.Revision))
	}
	if !slices.Equal(told, want) {
		t.Errorf("got %q, want %q", told, want)
	}
}

// TestEvents_NoneMissed has eight writers at work, in three replicas if the engine has them, while others read: each
// event must arrive once, those of a record in order, and mirrors of lists must be complete.
func TestEvents_NoneMissed(t *testing.T) {
	t.Parallel()
	g := gatewaytest.Start(t, fixture.ShortLeases)
	acme := g.Org(t, "acme")
	key := acme.Key(t, tenants.AllPermissions()...)
	all := follow(t, acme, gatewaytest.WithKey(key), "contact")
	copied := mirrored(t, acme, gatewaytest.WithKey(key), "/api/contacts")
	const writers, each = 8, 25
	var mu sync.Mutex
	wanted := map[string]int64{} // the last revision of each record; 0: purged
	var writing sync.WaitGroup
	var done atomic.Bool
	for w := range writers {
		writing.Go(func() {
			c := fixture.WithToken(acme, key)
			random := rand.New(rand.NewPCG(uint64(w), 1))
			for i := range each {
				id, rev := c.Want(t, http.StatusOK, http.MethodPost, "/api/contacts", fmt.Sprintf(`{"first_name":"W%d %d"}`, w, i)).Field("id").(string), int64(1)
				for range random.IntN(3) {
					c.Want(t, http.StatusOK, http.MethodPut, "/api/contacts/"+id, fmt.Sprintf(`{"last_name":"%d"}`, random.Int()))
					rev++
				}
				if random.IntN(4) == 0 {
					c.Want(t, http.StatusOK, http.MethodDelete, "/api/contacts/"+id+"?purge=true", "")
					rev = 0
				}
				mu.Lock()
				wanted[id] = rev
				mu.Unlock()
			}
		})
	}
	go func() { writing.Wait(); done.Store(true) }()
	seen, last := map[string]bool{}, map[string]int64{}
	for ended := false; !ended; {
		ended = done.Load()
		for _, e := range all.read(t) {
			if seen[e.ID] {
				t.Fatalf("event %s comes twice", e.ID)
			}
			if e.Revision <= last[e.Record] {
				t.Fatalf("%+v comes after revision %d of the record", e, last[e.Record])
			}
			if seen[e.ID], last[e.Record] = true, e.Revision; e.Kind == "contact.purged" {
				last[e.Record] = 1 << 40
			}
		}
		copied.catchUp(t)
	}
	for id, rev := range wanted {
		if got := last[id]; got != rev && (rev != 0 || got != 1<<40) {
			t.Errorf("the last event of %s has revision %d, want %d (0 and %d: purged)", id, got, rev, 1<<40)
		}
	}
	if len(wanted) != writers*each {
		t.Errorf("%d records were written, want %d", len(wanted), writers*each)
	}
	if differ := copied.same(t); differ != "" {
		t.Error(differ)
	}
}

// TestEvents_Kept checks how long events are kept, and that a log ends which nobody reads.
func TestEvents_Kept(t *testing.T) {
	t.Parallel()
	clock := new(fixture.Clock)
	g := gatewaytest.Start(t, fixture.ShortLeases, clock.Option)
	acme := g.Org(t, "acme")
	key := acme.Key(t, tenants.AllPermissions()...)
	c := fixture.WithToken(acme, key)
	create := func(name string) string {
		return c.Want(t, http.StatusOK, http.MethodPost, "/api/contacts", `{"first_name":"`+name+`"}`).Field("id").(string)
	}
	reader := follow(t, acme, gatewaytest.WithKey(key), "")
	beginning := reader.next
	first, second := create("First"), create("Second")
	wantEvents(t, reader.read(t), "contact.created "+first+" 1", "contact.created "+second+" 1")
	clock.Advance(5 * 24 * time.Hour)
	late := create("Late")
	kept := *reader
	wantEvents(t, reader.read(t), "contact.created "+late+" 1")
	clock.Advance(3 * 24 * time.Hour)
	fixture.EmptyTrash(t, g.App)

	gone := func(cursor string) {
		t.Helper()
		for _, path := range []string{"/api/events?after=", "/api/contacts?changed_after="} {
			if a := acme.Get(t, key, path+cursor); a.Code != http.StatusGone || !strings.Contains(a.Text(), "get a new cursor from /api/events") {
				t.Errorf("%s%s: got %d %s, want 410 and what to do", path, cursor, a.Code, a.Body)
			}
		}
	}
	gone(beginning)
	wantEvents(t, kept.read(t), "contact.created "+late+" 1")
	clock.Advance(9 * 24 * time.Hour)
	fixture.EmptyTrash(t, g.App)
	if log := acme.Tenant(t).Org.EventLog; log != nil {
		t.Errorf("the log goes on: %+v, want it to end after 9 days without readers", log)
	}
	create("Unheard")
	if _, err := acme.Tenant(t).Workspace().EventsEnd(t.Context()); err != nil {
		t.Error(err)
	}
	gone(kept.next)
	fresh := follow(t, acme, gatewaytest.WithKey(key), "")
	again := create("Again")
	wantEvents(t, fresh.read(t), "contact.created "+again+" 1")
}

// TestEvents_CursorsNameEvents: a write that is refused leaves no event, and no cursor names the position that it would
// have had, which is given to another event after a restart.
func TestEvents_CursorsNameEvents(t *testing.T) {
	t.Parallel()
	acme := gatewaytest.Start(t, fixture.ShortLeases).Org(t, "acme")
	key := acme.Key(t, tenants.AllPermissions()...)
	c := fixture.WithToken(acme, key)
	reader := follow(t, acme, gatewaytest.WithKey(key), "")
	const body = `{"name":"tree","label":"Tree","label_plural":"Trees"}`
	c.Want(t, http.StatusOK, http.MethodPost, "/api/custom/objects", body)
	var told []event
	fixture.Await(t, "the event", func() bool { told = reader.read(t); return len(told) == 1 })
	for range 3 {
		c.Want(t, http.StatusConflict, http.MethodPost, "/api/custom/objects", body)
	}
	wantEvents(t, told, "custom_object.created "+told[0].Record+" 1")
	for what, cursor := range map[string]string{
		"of the list": follow(t, acme, gatewaytest.WithKey(key), "").next, "of a stream": open(t, acme, key, "", "").last,
	} {
		// An earlier one than the last, if other processes may still write before that.
		if len(cursor) != len(told[0].ID) || cursor > told[0].ID {
			t.Errorf("the cursor %s is %s, want none after the last event, %s", what, cursor, told[0].ID)
		}
	}
}

// TestEvents_BornAgain deletes records for good and stores them again with their identifiers, as an import may: what
// happened before and after is told, also if it is far apart in the log.
func TestEvents_BornAgain(t *testing.T) {
	t.Parallel()
	const n = 550 // more than are read at once
	acme := gatewaytest.Start(t, fixture.ShortLeases).Org(t, "acme")
	key := acme.Key(t, tenants.AllPermissions()...)
	c := fixture.WithToken(acme, key)
	reader := follow(t, acme, gatewaytest.WithKey(key), "")
	var lines []string
	want := map[string]string{}
	for i := range n {
		id := fixture.DocID(i)
		lines = append(lines, fmt.Sprintf(`{"kind":"contact","id":%q,"first_name":"A"}`, id))
		want[id] = " contact.created 1 contact.updated 2 contact.purged 3 contact.created 1"
	}
	acme.Import(t, lines...)
	for id := range want {
		c.Want(t, http.StatusOK, http.MethodPut, "/api/contacts/"+id, `{"first_name":"B"}`)
	}
	for id := range want {
		c.Want(t, http.StatusOK, http.MethodDelete, "/api/contacts/"+id+"?purge=true", "")
	}
	acme.Import(t, lines...)
	got, count := map[string]string{}, 0
	fixture.AwaitWithin(t, "all is told", time.Minute, func() bool {
		for _, e := range reader.read(t) {
			got[e.Record] += fmt.Sprintf(" %s %d", e.Kind, e.Revision)
			count++
		}
		return count >= 4*n
	})
	if !maps.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}
