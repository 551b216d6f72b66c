package events

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"testing"

	"tenantry/gateway/gatewaytest"
)

// event is an event as callers see it.
type event struct {
	ID, Kind, Record, Actor, At string
	Revision                    int64
}

// follower reads what happens.
type follower struct {
	*gatewaytest.Org
	as    gatewaytest.Request
	kinds string
	next  string
}

// follow returns a follower that reads what happens from now on.
func follow(t testing.TB, o *gatewaytest.Org, as gatewaytest.Request, kinds string) *follower {
	t.Helper()
	f := &follower{Org: o, as: as, kinds: kinds}
	if first := f.read(t); len(first) > 0 {
		t.Fatalf("got %v without a cursor, want no events", first)
	}
	return f
}

// read returns the next events, up to the end.
func (f *follower) read(t testing.TB) (all []event) {
	t.Helper()
	for {
		q := url.Values{"after": {f.next}, "kinds": {f.kinds}, "per_page": {"7"}}
		a := f.Do(t, http.MethodGet, "/api/events?"+q.Encode(), f.as)
		var page struct {
			Next    string
			More    bool
			Results []event
		}
		if err := json.Unmarshal([]byte(a.DataJSON()), &page); a.Code != http.StatusOK || err != nil || page.Next == "" {
			t.Fatalf("%s: got %d %s, want events and next", q.Encode(), a.Code, a.Body)
		}
		all, f.next = append(all, page.Results...), page.Next
		if !page.More {
			return all
		}
	}
}

// mirror keeps a copy of a list by its changes.
type mirror struct {
	*gatewaytest.Org
	as      gatewaytest.Request
	path    string
	next    string
	records map[string]string // as the list shows them, by identifier
}

// mirrored returns a mirror that has what the list has now.
func mirrored(t testing.TB, o *gatewaytest.Org, as gatewaytest.Request, path string) *mirror {
	t.Helper()
	m := &mirror{Org: o, as: as, path: path, next: follow(t, o, as, "").next}
	m.records = m.list(t)
	return m
}

// list returns the whole list.
func (m *mirror) list(t testing.TB) map[string]string {
	t.Helper()
	all := map[string]string{}
	for after := ""; ; {
		var page struct {
			Next    *string
			Results []json.RawMessage
		}
		m.get(t, url.Values{"after": {after}}, &page)
		for _, rec := range page.Results {
			all[idOf(t, rec)] = string(rec)
		}
		if after = *page.Next; after == "" {
			return all
		}
	}
}

func (m *mirror) get(t testing.TB, q url.Values, into any) {
	t.Helper()
	a := m.Do(t, http.MethodGet, m.path+"?"+q.Encode(), m.as)
	if err := json.Unmarshal([]byte(a.DataJSON()), into); a.Code != http.StatusOK || err != nil {
		t.Fatalf("%s?%s: got %d %s, want a list", m.path, q.Encode(), a.Code, a.Body)
	}
}

// catchUp applies what has changed.
func (m *mirror) catchUp(t testing.TB) {
	t.Helper()
	for {
		var part struct {
			Next    string
			More    bool
			Gone    []string
			Results []json.RawMessage
		}
		m.get(t, url.Values{"changed_after": {m.next}, "per_page": {"5"}}, &part)
		for _, rec := range part.Results {
			m.records[idOf(t, rec)] = string(rec)
		}
		for _, id := range part.Gone {
			delete(m.records, id)
		}
		if m.next = part.Next; !part.More {
			return
		}
	}
}

// same returns how the mirror differs from the list; empty: in nothing.
func (m *mirror) same(t testing.TB) string {
	t.Helper()
	there := m.list(t)
	for id, rec := range there {
		if m.records[id] != rec {
			return fmt.Sprintf("%s: the list has %s, the mirror %q", id, rec, m.records[id])
		}
	}
	for id := range m.records {
		if there[id] == "" {
			return fmt.Sprintf("the mirror has %s, which the list lacks", id)
		}
	}
	return ""
}

func idOf(t testing.TB, rec json.RawMessage) string {
	t.Helper()
	var named struct{ ID string }
	if err := json.Unmarshal(rec, &named); err != nil || named.ID == "" {
		t.Fatalf("got %s, %v, want a record with an id", rec, err)
	}
	return named.ID
}
