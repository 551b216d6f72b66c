package load

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"tenantry/backends/store"
	"tenantry/config"
	"tenantry/gateway"
	"tenantry/gateway/gatewaytest"
	"tenantry/gateway/tests/fixture"
	"tenantry/operation"
	"tenantry/tenants"
)

// TestAnonymousReadersFreeTheirRoomInTime checks that answers to anonymous callers do not hold room for long, however
// slowly they are read.
func TestAnonymousReadersFreeTheirRoomInTime(t *testing.T) {
	t.Parallel()
	for _, op := range gatewaytest.Start(t).App.Operations() {
		if op.Credentials&operation.Open != 0 && op.Deadline() > 5*time.Minute {
			t.Errorf("%s may take %s, want at most 5 min", op.Name, op.Deadline())
		}
	}
}

// inFlight bounds the work in flight; an organization has a quarter of it.
func inFlight(n int) gatewaytest.Option {
	return func(cfg *config.Config, _ *gateway.Options) { cfg.Limits.InFlight = n }
}

// TestWorkInFlightIsBounded checks that of many calls of one organization that do not end no more than its share are in
// flight, that the others are refused soon, and that another organization is answered meanwhile.
func TestWorkInFlightIsBounded(t *testing.T) {
	t.Parallel()
	var blocking atomic.Bool
	var arrived atomic.Int64
	release := make(chan struct{})
	block := func(_ *config.Config, o *gateway.Options) {
		o.Observe = func(c store.Call) {
			if blocking.Load() && c.Operation == "count" {
				arrived.Add(1)
				<-release
			}
		}
	}
	g := gatewaytest.Start(t, inFlight(32), block)
	free := sync.OnceFunc(func() { blocking.Store(false); close(release) })
	t.Cleanup(free)
	acme, other := g.Org(t, "acme"), g.Org(t, "other")
	key, others := acme.Key(t), other.Key(t)
	acme.Import(t, fixture.ReportLines()...)
	const path = "/api/campaigns/count"
	if a := acme.Get(t, key, path); a.Code != http.StatusOK {
		t.Fatalf("got %d %s, want %v", a.Code, a.Text(), http.StatusOK)
	}
	blocking.Store(true)
	const calls, most = 40, 32 / 4
	answers := make(chan *gatewaytest.Answer, calls)
	for range calls {
		go func() { answers <- acme.Get(t, key, path) }()
	}
	next := func() *gatewaytest.Answer {
		select {
		case a := <-answers:
			return a
		case <-time.After(20 * time.Second):
			t.Fatal("got more calls in progress than allowed, want them to be refused")
			return nil
		}
	}
	for range calls - most { // they do not wait for those that are blocked
		a := next()
		if a.Code != http.StatusTooManyRequests || a.Text() != tooMany || a.Header.Get("Retry-After") != "1" {
			t.Errorf(`got %d %s %v, want %v and a.Text() = %v and a.Header.Get("Retry-After") = "1"`,
				a.Code, a.Text(), a.Header, http.StatusTooManyRequests, tooMany)
		}
	}
	fixture.Await(t, "as many are under way as may be", func() bool { return arrived.Load() == most })
	if n := fixture.Metric(t, g, "tenantry_in_flight"); n != most {
		t.Errorf("%d are in flight, want %d", n, most)
	}
	// Pages and calls of anonymous callers have the same bound. Signing in has its own.
	if a := acme.Page(t, "/shared/reports/"+fixture.OpenPID); a.Code != http.StatusTooManyRequests || a.Header.Get("Retry-After") != "1" || !strings.Contains(a.Text(), "try again in 1 second.") {
		t.Errorf("a page: got %d %s, want 429, the header Retry-After 1 and with %q",
			a.Code, a.Text(), "try again in 1 second.")
	}
	signIn := gatewaytest.JSON(map[string]string{"email": "x@example.com", "password": "wrong"})
	if a := acme.Do(t, http.MethodPost, "/auth/sign-in", signIn); a.Code != http.StatusForbidden {
		t.Errorf("signing in: got %d %s, want 403", a.Code, a.Text())
	}
	for range 10 {
		if a := other.Get(t, others, "/api/custom/objects/schema"); a.Code != http.StatusForbidden {
			t.Errorf("another organization: got %d %s, want 403", a.Code, a.Text())
		}
	}
	if a := other.Page(t, "/sign-in"); a.Code != http.StatusOK {
		t.Errorf("another organization's page: got %d, want 200", a.Code)
	}
	if n := arrived.Load(); n != most {
		t.Errorf("%d calls were in progress at once, want %d", n, most)
	}
	_, _, body := fixture.CallAdmin(t, g, http.MethodGet, "/metrics")
	if want := `tenantry_limits_refused_total{limit="organization in flight",operation="campaigns.count"} 32`; !strings.Contains(body, "\n"+want+"\n") {
		t.Errorf("the metrics have no line %s", want)
	}
	free()
	for range most {
		if a := next(); a.Code != http.StatusOK {
			t.Errorf("got %d %s, want %v", a.Code, a.Text(), http.StatusOK)
		}
	}
	if a := acme.Get(t, key, path); a.Code != http.StatusOK {
		t.Errorf("afterwards: got %d %s, want 200", a.Code, a.Text())
	}
	fixture.Await(t, "nothing is in flight", func() bool { return fixture.Metric(t, g, "tenantry_in_flight") == 0 })
}

// slowBody begins a call and stops after the first byte of its body.
func slowBody(t *testing.T, o *gatewaytest.Org, key string, size int) net.Conn {
	t.Helper()
	conn := fixture.Dial(t, o.App.Addr())
	fixture.Send(t, conn, fmt.Sprintf("POST /api/custom/objects HTTP/1.1\r\nHost: %s\r\nX-Service-Token: %s\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n{", o.Host, key, size))
	return conn
}

// TestBodiesBeingReadAreBounded checks that a slow sender holds a share of the room for bodies, and no room for work.
func TestBodiesBeingReadAreBounded(t *testing.T) {
	t.Parallel()
	g := gatewaytest.Start(t, inFlight(16)) // 2 MiB of bodies, 512 KiB of each organization
	acme, other := g.Org(t, "acme"), g.Org(t, "other")
	key, others := acme.Key(t, tenants.ManageCustomObjects), other.Key(t, tenants.ManageCustomObjects)
	const size, most = 200_000, 2
	var held []net.Conn
	for range most {
		held = append(held, slowBody(t, acme, key, size))
	}
	fixture.Await(t, "two bodies are being read", func() bool { return fixture.Metric(t, g, "tenantry_bodies_bytes") == most*size })
	var more []net.Conn
	for range 5 {
		more = append(more, slowBody(t, acme, key, size))
	}
	for _, conn := range more { // each is waited for to send the rest
		resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
		if err != nil || resp.StatusCode != http.StatusTooManyRequests || resp.Header.Get("Retry-After") == "" {
			t.Fatalf("one more: got %v %v, want no error, 429 and a header Retry-After", resp, err)
		}
		_ = conn.Close()
	}
	if n := fixture.Metric(t, g, "tenantry_in_flight"); n != 0 {
		t.Errorf("slow senders hold work: got %d, want 0", n)
	}
	for range 20 { // more than there is room for work
		if a := acme.Get(t, key, "/api/campaigns/count"); a.Code != http.StatusOK {
			t.Errorf("without a body: got %d %s, want 200", a.Code, a.Text())
		}
	}
	fixture.WantCreated(t, fixture.PostJSON(t, acme, key, fixture.ObjectsPath, `{`+fixture.NamesOf("a")+`}`), "a", "a one", "a many") // little room is enough
	fixture.WantCreated(t, fixture.PostJSON(t, other, others, fixture.ObjectsPath, `{`+fixture.NamesOf("b")+strings.Repeat(" ", size)+`}`), "b", "b one", "b many")
	for i, conn := range held {
		text := fixture.NamesOf(string(rune('c' + i)))
		fixture.Send(t, conn, text+strings.Repeat(" ", size-len(text)-2)+"}")
		resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
		if err != nil || resp.StatusCode != http.StatusOK {
			t.Errorf("a slow one at its end: got %v %v, want no error and 200", resp, err)
		}
	}
	fixture.Await(t, "no body is being read", func() bool { return fixture.Metric(t, g, "tenantry_bodies_bytes") == 0 })
}

// TestSlowSignInsLeaveOthersRoom checks that anonymous callers who begin to sign in and send no more leave room for
// others, also from the same address.
func TestSlowSignInsLeaveOthersRoom(t *testing.T) {
	t.Parallel()
	g := gatewaytest.Start(t, inFlight(16)) // 2 MiB of bodies: 256 KiB of strangers, 64 KiB of an address
	acme := g.Org(t, "acme")
	acme.Person(t, "ada@example.com", nil)
	for range 100 {
		conn := fixture.Dial(t, g.App.Addr())
		defer func() { _ = conn.Close() }()
		fixture.Send(t, conn, fmt.Sprintf("POST /auth/sign-in HTTP/1.1\r\nHost: %s\r\nContent-Type: application/json\r\nContent-Length: 8192\r\nExpect: 100-continue\r\n\r\n", acme.Host))
		line, err := bufio.NewReader(conn).ReadString('\n') // the body is asked for: it is being read
		if err != nil || !strings.Contains(line, "100 Continue") {
			t.Fatalf(`got %q, %v, want no error and containing "100 Continue"`, line, err)
		}
	}
	a := acme.Do(t, http.MethodPost, "/auth/sign-in", gatewaytest.JSON(map[string]string{"email": "ada@example.com", "password": gatewaytest.Password}))
	if a.Message != "Signed in" {
		t.Errorf("signing in beside 100 who do not go on: got %d %s, want the message %q", a.Code, a.Body, "Signed in")
	}
}

// TestFloodOfRefusedBodiesLeavesOthersRoom sends expensive bodies of one organization that are refused, as fast as it
// can. Another organization's calls succeed, and the room for bodies is not exceeded.
func TestFloodOfRefusedBodiesLeavesOthersRoom(t *testing.T) {
	t.Parallel()
	g := gatewaytest.Start(t, inFlight(16))
	acme, other := g.Org(t, "acme"), g.Org(t, "other")
	key, others := acme.Key(t, tenants.ManageCustomObjects), other.Key(t, tenants.ManageCustomObjects)
	var names strings.Builder
	for i := 0; names.Len() < 200_000; i++ {
		fmt.Fprintf(&names, `"%x":0,`, i)
	}
	dear := `{"schema":{` + names.String() + `"0":0}}` // a name twice, at the very end
	var flood sync.WaitGroup
	stop := make(chan struct{})
	refused := map[int]*atomic.Int64{http.StatusBadRequest: {}, http.StatusTooManyRequests: {}}
	for range 12 {
		flood.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				conn, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", g.App.Addr().String())
				if err != nil {
					continue
				}
				_, _ = fmt.Fprintf(conn, "POST /api/custom/objects HTTP/1.1\r\nHost: %s\r\nX-Service-Token: %s\r\nContent-Type: application/json\r\nConnection: close\r\nContent-Length: %d\r\n\r\n%s", acme.Host, key, len(dear), dear)
				if resp, err := http.ReadResponse(bufio.NewReader(conn), nil); err == nil {
					_, _ = io.Copy(io.Discard, resp.Body)
					if n := refused[resp.StatusCode]; n != nil {
						n.Add(1)
					} else {
						t.Errorf("a refused body: got %d, want a refusal", resp.StatusCode)
					}
				}
				_ = conn.Close()
			}
		})
	}
	most := 0
	for i := range 40 {
		word := fmt.Sprintf("w%d", i)
		if a := fixture.PostJSON(t, other, others, fixture.ObjectsPath, `{`+fixture.NamesOf(word)+`}`); a.Code != http.StatusOK {
			t.Errorf("another organization: got %d %s, want 200", a.Code, a.Text())
		}
		most = max(most, fixture.Metric(t, g, "tenantry_bodies_bytes"))
	}
	fixture.Await(t, "the flood was refused", func() bool { return refused[http.StatusBadRequest].Load() > 20 })
	close(stop)
	flood.Wait()
	if room := 16 * 256 << 10 / 2 / 4; most > room || most == 0 { // other's own body is read by then
		t.Errorf("%d bytes of bodies were being read at once, want more than 0 and at most %d", most, room)
	}
}

// TestUnreadExportsAreCut checks that unread exports hold their organization's room no longer than timeouts.write,
// however long an export may take.
func TestUnreadExportsAreCut(t *testing.T) {
	t.Parallel()
	g := gatewaytest.Start(t, inFlight(32), func(c *config.Config, o *gateway.Options) {
		c.Timeouts.Write = 3 * time.Second
		o.Leases = store.DefaultLeases()
		o.Leases.Settled = time.Minute // what is imported is much at a time for a server that has little of a processor
	})
	acme := g.Org(t, "acme")
	form := fixture.DocID(0xf1)
	lines := []string{`{"kind":"form_collection","id":"` + form + `","name":"visit","label":"Visit","label_plural":"Visits","schema":{"note":{"title":"Note","type":"LongText"}}}`}
	for i := range 1500 { // more than the buffers of a connection hold
		lines = append(lines, fmt.Sprintf(`{"kind":"submission","id":"%s","form":"%s","values":{"form_name":"f","note":"%s"}}`, fixture.DocID(0xa000+i), form, strings.Repeat("x", 9000)))
	}
	acme.Import(t, lines...)
	path, key := "/api/form/collections/"+form+"/submissions", acme.Key(t, tenants.ViewFormSubmissions)
	for range 2 { // they are as much as the organization may have in flight
		conn, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", g.App.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = conn.Close() }()
		_, err = fmt.Fprintf(conn, "GET %s/export HTTP/1.1\r\nHost: %s\r\nX-Service-Token: %s\r\n\r\n", path, acme.Host, key)
		if line, _ := bufio.NewReaderSize(conn, 16).ReadString(' '); err != nil || line != "HTTP/1.1 " {
			t.Fatalf(`got %q, %v, want no error and line = "HTTP/1.1 "`, line, err)
		}
	}
	fixture.Await(t, "the exports let others in", func() bool { return fixture.Metric(t, g, "tenantry_in_flight") == 0 })
	if a := acme.Get(t, key, path+"?per_page=1"); a.Code != http.StatusOK {
		t.Errorf("another call: got %d %s, want 200", a.Code, a.Text())
	}
}
