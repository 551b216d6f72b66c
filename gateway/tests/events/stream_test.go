package events

import (
	"bufio"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"tenantry/gateway/control"
	"tenantry/gateway/gatewaytest"
	"tenantry/gateway/tests/fixture"
	"tenantry/tenants"
)

// stream is an open stream of events.
type stream struct {
	answer *http.Response
	lines  *bufio.Reader
	last   string // the id of the last event
}

// open opens a stream with a key. The context of the test ends it.
func open(t testing.TB, o *gatewaytest.Org, key, query, last string) *stream {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, o.Gateway.URL("/api/events/stream?"+query), http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	r.Host = o.Host
	r.Header.Set(fixture.KeyHeader, key)
	if last != "" {
		r.Header.Set("Last-Event-ID", last)
	}
	a, err := http.DefaultTransport.RoundTrip(r)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = a.Body.Close() })
	s := &stream{answer: a, lines: bufio.NewReader(a.Body)}
	if a.StatusCode == http.StatusOK {
		if e, err := s.next(t); err != nil || e.Kind != "" {
			t.Fatalf("the stream begins with %+v, %v, want an id and no event", e, err)
		}
	}
	return s
}

// next returns the next event, or one without a kind for a block that has none. The error is that of reading.
func (s *stream) next(t testing.TB) (e event, err error) {
	t.Helper()
	for kind := ""; ; {
		line, err := s.lines.ReadString('\n')
		if err != nil {
			return e, err
		}
		name, value, _ := strings.Cut(strings.TrimSuffix(line, "\n"), ": ")
		switch name {
		case "":
			if e.Kind != kind || e.Kind != "" && e.ID != s.last {
				t.Fatalf("the block has the event %q and the id %s, its data %+v", kind, s.last, e)
			}
			return e, nil
		case "id":
			s.last = value
		case "event":
			kind = value
		case "data":
			if err := json.Unmarshal([]byte(value), &e); err != nil {
				t.Fatalf("data %q: %v", value, err)
			}
		}
	}
}

// want reads events, which must be these.
func (s *stream) want(t testing.TB, want ...string) {
	t.Helper()
	for _, one := range want {
		e, err := s.next(t)
		for err == nil && e.Kind == "" { // a comment
			e, err = s.next(t)
		}
		if got := fmt.Sprintf("%s %s %d", e.Kind, e.Record, e.Revision); err != nil || got != one {
			t.Fatalf("got %q %v, want %q", got, err, one)
		}
	}
}

// ends waits until the stream is closed.
func (s *stream) ends(t testing.TB) {
	t.Helper()
	for {
		if e, err := s.next(t); err != nil {
			return
		} else if e.Kind != "" {
			t.Fatalf("got %+v, want the end", e)
		}
	}
}

// TestStream follows records while they change, connects again with the last id, and loses its rights.
func TestStream(t *testing.T) {
	t.Parallel()
	g := gatewaytest.Start(t, fixture.ShortLeases)
	acme := g.Org(t, "acme")
	key := acme.Key(t, tenants.AllPermissions()...)
	c := fixture.WithToken(acme, key)
	create := func(name string) string {
		return c.Want(t, http.StatusOK, http.MethodPost, "/api/contacts", `{"first_name":"`+name+`"}`).Field("id").(string)
	}
	reading := acme.KeyWith(t, func(k *control.NewKey) { k.Permissions = fixture.PermissionNames(tenants.AllPermissions()) })
	all := open(t, acme, reading.Token, "", "")
	for name, want := range map[string]string{
		"Content-Type": "text/event-stream", "Cache-Control": "private, no-store", "X-Accel-Buffering": "no", "X-Content-Type-Options": "nosniff",
	} {
		if got := all.answer.Header.Get(name); got != want {
			t.Errorf("%s is %q, want %q", name, got, want)
		}
	}
	some := open(t, acme, key, "kinds=contact.purged", "")
	first := create("First")
	all.want(t, "contact.created "+first+" 1")
	second := create("Second")
	all.want(t, "contact.created "+second+" 1")
	c.Want(t, http.StatusOK, http.MethodDelete, "/api/contacts/"+second+"?purge=true", "")
	all.want(t, "contact.purged "+second+" 2")
	some.want(t, "contact.purged "+second+" 2")

	last := all.last
	_ = all.answer.Body.Close()
	third := create("Third")
	again := open(t, acme, key, "", last)
	again.want(t, "contact.created "+third+" 1")
	fourth := create("Fourth")
	again.want(t, "contact.created "+fourth+" 1")
	after := open(t, acme, reading.Token, "after="+last, "")
	after.want(t, "contact.created "+third+" 1", "contact.created "+fourth+" 1")

	if s := open(t, acme, key, "", "aaaaaaaaaa-1"); s.answer.StatusCode != http.StatusGone {
		t.Errorf("got %d for a cursor of another log, want 410", s.answer.StatusCode)
	}
	if s := open(t, acme, key, "kinds=x", ""); s.answer.StatusCode != http.StatusUnprocessableEntity {
		t.Errorf("got %d for an unknown kind, want 422", s.answer.StatusCode)
	}
	if s := open(t, acme, acme.Key(t, tenants.ManageForms), "kinds=contact", ""); s.answer.StatusCode != http.StatusForbidden {
		t.Errorf("got %d without the right, want 403", s.answer.StatusCode)
	}

	if _, err := control.Call[control.Key](t.Context(), acme.Commands, "key.revoke", control.KeyRef{Org: acme.Slug, ID: reading.ID}); err != nil {
		t.Fatal(err)
	}
	after.ends(t)
	fifth := create("Fifth")
	again.want(t, "contact.created "+fifth+" 1")
	fixture.Await(t, "two feeds", func() bool { return fixture.Metric(t, g, "tenantry_feeds") == 2 }) // those closed are noticed soon
	g.Stop(t)
	again.ends(t)
}

// TestStream_Left closes connections of readers to whom nothing happens: their places are free at once, not only when the
// gateway has written to them.
func TestStream_Left(t *testing.T) {
	t.Parallel()
	g := gatewaytest.Start(t, fixture.ShortLeases)
	acme := g.Org(t, "acme")
	key := acme.Key(t, tenants.AllPermissions()...)
	var all []*stream
	for range 20 {
		all = append(all, open(t, acme, key, "", ""))
	}
	for _, s := range all[1:] {
		_ = s.answer.Body.Close()
	}
	fixture.AwaitWithin(t, "those who left are gone", 12*time.Second, func() bool { return fixture.Metric(t, g, "tenantry_feeds") == 1 })
	made := fixture.WithToken(acme, key).Want(t, http.StatusOK, http.MethodPost, "/api/contacts", `{"first_name":"A"}`)
	all[0].want(t, "contact.created "+made.Field("id").(string)+" 1")
}

// TestStream_SlowReader has a reader that does not read: it is cut off, and others are not kept waiting.
func TestStream_SlowReader(t *testing.T) {
	t.Parallel()
	g := gatewaytest.Start(t, fixture.ShortLeases)
	acme := g.Org(t, "acme")
	key := acme.Key(t, tenants.AllPermissions()...)
	conn, err := net.Dial("tcp", g.App.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	_ = conn.(*net.TCPConn).SetReadBuffer(1 << 10)
	fixture.Send(t, conn, "GET /api/events/stream HTTP/1.1\r\nHost: "+acme.Host+"\r\n"+fixture.KeyHeader+": "+key+"\r\n\r\n")
	quick := open(t, acme, key, "", "")
	fixture.Await(t, "both are connected", func() bool { return fixture.Metric(t, g, "tenantry_feeds") == 2 })
	var got atomic.Int64
	go func() {
		for {
			e, err := quick.next(t)
			if err != nil && t.Context().Err() != nil {
				return
			}
			if err != nil { // a burst was too much for it, and it goes on from where it was
				quick = open(t, acme, key, "", quick.last)
			}
			if e.Kind == "contact.created" {
				got.Add(1)
			}
		}
	}()
	c := fixture.WithToken(acme, key)
	bulk := `{"records":[` + strings.TrimSuffix(strings.Repeat(`{"first_name":"A"},`, 200), ",") + `]}`
	sent := int64(0)
	fixture.AwaitWithin(t, "the slow reader is cut off", 2*time.Minute, func() bool {
		if sent < 4000 { // much more than the buffers between take
			c.Want(t, http.StatusOK, http.MethodPost, "/api/contacts/bulk", bulk)
			sent += 200
		}
		return fixture.Metric(t, g, "tenantry_feeds") == 1
	})
	fixture.Await(t, "the other reader has everything", func() bool { return got.Load() >= sent })
}

// TestStream_Rights streams to callers of different teams while records move between teams: none is told of a record
// that it never could see, and each of all of records that it could always see.
func TestStream_Rights(t *testing.T) {
	t.Parallel()
	acme := gatewaytest.Start(t, fixture.ShortLeases).Org(t, "acme", tenants.FeatureTeams)
	u := newTurmoil(t, acme, 11)
	type caller struct {
		teams  []string
		follow *follower
		stream *stream
	}
	var callers []*caller
	for i, teams := range [][]string{nil, {fixture.TeamA}, {fixture.TeamB}, {fixture.TeamA, fixture.TeamB}, {fixture.TeamA}} {
		key := acme.KeyWith(t, func(k *control.NewKey) {
			k.Name, k.Permissions, k.Teams = fmt.Sprint("caller ", i), fixture.PermissionNames(tenants.AllPermissions()), teams
		}).Token
		f := follow(t, acme, gatewaytest.WithKey(key), "")
		callers = append(callers, &caller{teams, f, open(t, acme, key, "after="+f.next, "")})
	}
	begin := callers[0].follow.next
	for range rounds(150, 2000) {
		u.once(t)
	}
	end := u.Want(t, http.StatusOK, http.MethodPost, "/api/campaigns", `{"name":"The end"}`).Field("id").(string)
	after, err := acme.Tenant(t).Org.EventLog.Position(begin)
	if err != nil {
		t.Fatal(err)
	}
	had := map[string][][]string{} // the teams of each record, over time
	for _, e := range logged(t, acme, after, []string{"contact", "folder", "campaign", "record", "submission"}) {
		had[e.Record] = append(had[e.Record], e.Teams)
	}
	for _, c := range callers {
		streamed := map[string]bool{}
		sees := func(teams []string) bool {
			return c.teams == nil || len(teams) == 0 || slices.ContainsFunc(teams, func(team string) bool { return slices.Contains(c.teams, team) })
		}
		hides := func(teams []string) bool { return !sees(teams) }
		for e := (event{}); e.Record != end; {
			if e, err = c.stream.next(t); err != nil {
				t.Fatal(err)
			}
			if streamed[e.ID] && e.ID != "" {
				t.Errorf("%s comes twice", e.ID)
			}
			streamed[e.ID] = true
			if e.Kind != "" && !slices.ContainsFunc(had[e.Record], sees) {
				t.Errorf("a caller of %v is told of %+v, which was never in its teams", c.teams, e)
			}
		}
		for _, e := range c.follow.read(t) {
			if !streamed[e.ID] && !slices.ContainsFunc(had[e.Record], hides) {
				t.Errorf("a caller of %v is told of %+v in the list only", c.teams, e)
			}
		}
	}
}

// TestStream_BeyondTheEnd has a reader whose cursor names a position that the log has not reached. It hears of nothing, and
// readers that come later are told as soon as others are.
func TestStream_BeyondTheEnd(t *testing.T) {
	t.Parallel()
	acme := gatewaytest.Start(t, fixture.ShortLeases).Org(t, "acme")
	key := acme.Key(t, tenants.AllPermissions()...)
	name, _, _ := strings.Cut(follow(t, acme, gatewaytest.WithKey(key), "").next, "-")
	open(t, acme, key, "", name+"-9000000000000000000")
	var all []*stream
	for range 300 { // readers that lag are told a few at a time
		all = append(all, open(t, acme, key, "", ""))
	}
	made := fixture.WithToken(acme, key).Want(t, http.StatusOK, http.MethodPost, "/api/contacts", `{"first_name":"A"}`).Field("id").(string)
	begun := time.Now()
	for _, s := range all {
		s.want(t, "contact.created "+made+" 1")
	}
	if took := time.Since(begun); took > 20*time.Second {
		t.Errorf("the event took %s, want it told to all at once", took)
	}
}
