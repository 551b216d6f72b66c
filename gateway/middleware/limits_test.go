package middleware_test

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"testing"
	"time"

	"tenantry/gateway/middleware"
	"tenantry/internal/rate"
	"tenantry/internal/request"
	"tenantry/operation"
	"tenantry/tenants"
	"tenantry/tenants/limits"
)

// counting is a Limits that records its calls and returns a fixed decision.
type counting struct {
	decision        limits.Decision
	taken, returned []limits.Request
}

func (c *counting) Take(_ context.Context, r limits.Request) limits.Decision {
	c.taken = append(c.taken, r)
	return c.decision
}

func (c *counting) Return(_ context.Context, r limits.Request) { c.returned = append(c.returned, r) }

func hundredPerSecond(refused bool) limits.Decision {
	d := limits.Decision{Limit: rate.PerSecond(100), Name: "caller rate", Remaining: 7, Reset: 1234 * time.Millisecond}
	if refused {
		d.Refused, d.Remaining, d.Wait = true, 0, time.Millisecond
	}
	return d
}

func wantLimitHeaders(t *testing.T, rec *httptest.ResponseRecorder, limit, remaining, reset string) {
	t.Helper()
	for name, want := range map[string]string{"RateLimit-Limit": limit, "RateLimit-Remaining": remaining, "RateLimit-Reset": reset} {
		if got := rec.Header().Get(name); got != want {
			t.Errorf("%d: %s = %q, want %q", rec.Code, name, got, want)
		}
	}
}

// TestCountedCallers: which requests are counted, as whose, and which are given back.
func TestCountedCallers(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	own := rate.Pair{Rate: rate.PerSecond(3)}
	for name, tt := range map[string]struct {
		change func(*operation.Row)
		ask    func(*http.Request)
		want   []limits.Request
		back   int
	}{
		"key":     {want: []limits.Request{{Caller: limits.Key("k1")}}},
		"session": {ask: withSession, want: []limits.Request{{Caller: limits.Person(7)}}},
		"key with limits of its own": {ask: withKey("limited"), want: []limits.Request{
			{Caller: limits.Key("k9"), Limits: rate.Set{Key: own}},
		}},
		"refused by the rule":             {change: func(o *operation.Row) { o.Rule = operation.Needs(tenants.ViewAudit) }, want: []limits.Request{{Caller: limits.Key("k1")}}},
		"unknown key":                     {ask: withKey("who")},
		"key that cannot be checked":      {ask: withKey("down")},
		"key of a kind that is not taken": {change: func(o *operation.Row) { o.Kinds = operation.ServerRead }},
		"no credential":                   {ask: func(r *http.Request) { r.Header.Del(middleware.KeyHeader) }},
		"unknown organization":            {ask: func(r *http.Request) { r.Host = "nobody.localhost" }},
		"own limits":                      {change: func(o *operation.Row) { o.OwnLimits = true }},
		"open":                            {change: open(nil), want: []limits.Request{{Caller: limits.Anonymous(stranger)}}},
		"open, at an unknown host": {
			change: func(o *operation.Row) { open(nil)(o); o.AnyHost = true }, ask: func(r *http.Request) { r.Host = "nobody.localhost" },
			want: []limits.Request{{Caller: limits.Anonymous(stranger), Transient: true}},
		},
		"open and refused":     {change: open(operation.Denied("junk")), want: []limits.Request{{Caller: limits.Anonymous(stranger)}}, back: 1},
		"open and failed":      {change: open(operation.Failed("Shared Report not found", nil)), want: []limits.Request{{Caller: limits.Anonymous(stranger)}}, back: 1},
		"open and out of time": {change: open(&operation.Problem{Code: 200, Message: "too long", Err: context.DeadlineExceeded}), want: []limits.Request{{Caller: limits.Anonymous(stranger)}}},
		"open and broken":      {change: open(operation.Unavailable(nil)), want: []limits.Request{{Caller: limits.Anonymous(stranger)}}},
		"key, and failed": {change: func(o *operation.Row) {
			o.Handler = func(context.Context, *operation.Call) (operation.Result, error) {
				return operation.Result{}, operation.NotFound("Thing not found")
			}
		}, want: []limits.Request{{Caller: limits.Key("k1")}}},
	} {
		t.Run(name, func(t *testing.T) {
			counted := &counting{decision: hundredPerSecond(false)}
			w.Limits = counted
			rec := w.serve(t, row(tt.change), tt.ask)
			for i := range tt.want {
				tt.want[i].Prefix = w.tenant.RedisPrefix()
				if tt.want[i].Transient {
					tt.want[i].Prefix = w.Tenants.Anonymous("nobody.localhost").RedisPrefix()
				}
			}
			if len(counted.taken) != len(tt.want) || len(tt.want) == 1 && counted.taken[0] != tt.want[0] {
				t.Errorf("counted %+v, want %+v", counted.taken, tt.want)
			}
			if len(counted.returned) != tt.back || tt.back == 1 && counted.returned[0] != tt.want[0] {
				t.Errorf("given back %+v, want %d", counted.returned, tt.back)
			}
			if len(tt.want) > 0 {
				wantLimitHeaders(t, rec, "100", "7", "2")
			} else {
				wantLimitHeaders(t, rec, "", "", "")
			}
		})
	}
}

// stranger is the address of every request of httptest.
var stranger = netip.MustParseAddr("192.0.2.1")

func withKey(key string) func(*http.Request) {
	return func(r *http.Request) { r.Header.Set(middleware.KeyHeader, key) }
}

func withSession(r *http.Request) {
	r.Header.Del(middleware.KeyHeader)
	r.AddCookie(&http.Cookie{Name: "session", Value: "ada"})
}

// open returns a change that makes a row need no credential, and fail with the problem if there is one.
func open(problem *operation.Problem) func(*operation.Row) {
	return func(o *operation.Row) {
		o.Credentials, o.Kinds = operation.Open, 0
		if problem != nil {
			o.Handler = func(context.Context, *operation.Call) (operation.Result, error) { return operation.Result{}, problem }
		}
	}
}

// TestOverTheLimitNothingIsRead: a request over a limit is refused before its query and body are read and the handler
// is called, and the row cannot change the answer.
func TestOverTheLimitNothingIsRead(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.Limits = &counting{decision: hundredPerSecond(true)}
	rec := w.serve(t, row(func(o *operation.Row) {
		o.Method, o.Body = http.MethodPost, []operation.Field{{Name: "name", Shape: operation.Text}}
		o.Rule = operation.Needs(tenants.ViewAudit)
		o.Handler = func(context.Context, *operation.Call) (operation.Result, error) {
			t.Error("the handler was called")
			return operation.Result{}, nil
		}
		o.Failure = func(*operation.Problem) *operation.Problem { return operation.Failed("changed", nil) }
	}), func(r *http.Request) {
		r.URL.RawQuery = "a;b"
		r.Body = unreadable{t}
	})
	const want = `{"status":"failed","message":"Too many requests, please retry later","data":[]}`
	if rec.Code != http.StatusTooManyRequests || rec.Body.String() != want || rec.Header().Get("Retry-After") != "1" {
		t.Errorf(`got %d %s %v, want %v and rec.Body.String() = %v and rec.Header().Get("Retry-After") = "1"`,
			rec.Code, rec.Body, rec.Header(), http.StatusTooManyRequests, want)
	}
	wantLimitHeaders(t, rec, "100", "0", "2")
	if !strings.Contains(w.log.String(), `"reason":"over the limit: caller rate"`) {
		t.Errorf("the log does not say why: %s", w.log)
	}
}

type unreadable struct{ t *testing.T }

func (u unreadable) Read([]byte) (int, error) {
	u.t.Error("the body was read")
	return 0, http.ErrBodyReadAfterClose
}

func (unreadable) Close() error { return nil }

// TestLimitHeadersOfEveryAnswer: answers after a panic or without an audit record have the RateLimit headers too.
func TestLimitHeadersOfEveryAnswer(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.Limits = &counting{decision: hundredPerSecond(false)}
	rec := w.serve(t, row(func(o *operation.Row) {
		o.Handler = func(context.Context, *operation.Call) (operation.Result, error) { panic("a fault") }
	}), nil)
	if rec.Code != http.StatusInternalServerError {
		t.Errorf("got %d, want %v", rec.Code, http.StatusInternalServerError)
	}
	wantLimitHeaders(t, rec, "100", "7", "2")
	if err := w.engine.Close(); err != nil {
		t.Fatal(err)
	}
	rec = w.serve(t, row(func(o *operation.Row) { o.Audit = operation.AuditAlways }), nil)
	if rec.Code != http.StatusServiceUnavailable && rec.Code != http.StatusInternalServerError {
		t.Errorf("%d %s", rec.Code, rec.Body)
	}
	wantLimitHeaders(t, rec, "100", "7", "2")
	w.Limits = &counting{} // all limits are off
	wantLimitHeaders(t, w.serve(t, row(nil), nil), "", "", "")
}

// spy records the work in flight while an answer is sent.
type spy struct {
	*httptest.ResponseRecorder
	work *limits.Flight
	used int64
}

func (s *spy) Write(b []byte) (int, error) {
	s.used = s.work.Used()
	return s.ResponseRecorder.Write(b)
}

// TestSlowReadersKeepNoWork: a small answer gives back its room for the work before it is sent; a large one keeps it,
// because it keeps its memory.
func TestSlowReadersKeepNoWork(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.Work = limits.NewFlight(256)
	for size, want := range map[int]int64{100: 0, 50_000: 0, 100_000: 1} {
		var during int64
		o := row(func(o *operation.Row) {
			o.Handler = func(context.Context, *operation.Call) (operation.Result, error) {
				during = w.Work.Used()
				return operation.Result{Data: strings.Repeat("x", size)}, nil
			}
		})
		r := httptest.NewRequestWithContext(t.Context(), o.Method, "/api/things", nil)
		r.Host = "acme.localhost"
		r.Header.Set(middleware.KeyHeader, "full")
		s := &spy{ResponseRecorder: httptest.NewRecorder(), work: w.Work}
		w.Serve(o, s, r, func(string) string { return "" })
		if s.Code != http.StatusOK || during != 1 || s.used != want || w.Work.Used() != 0 {
			t.Errorf("%d bytes: %d, %d in flight while it was made, %d while it was sent, want %d; %d afterwards",
				size, s.Code, during, s.used, want, w.Work.Used())
		}
	}
}

// TestAnonymousStreamsLeaveRoom: an anonymous caller who reads a stream slowly leaves room for other anonymous callers,
// except for more streams than their share.
func TestAnonymousStreamsLeaveRoom(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.Work = limits.NewFlight(64) // 8 for strangers, 4 of it for their streams
	from := func(address string) func(*http.Request) {
		return func(r *http.Request) { r.Header.Del(middleware.KeyHeader); r.RemoteAddr = address + ":1" }
	}
	open := func(o *operation.Row) { o.Credentials = operation.Open }
	stream := func(during func()) *operation.Row {
		return row(func(o *operation.Row) {
			open(o)
			o.Streams, o.Weight = []string{operation.NDJSON}, operation.Heavy
			o.Handler = func(context.Context, *operation.Call) (operation.Result, error) {
				return operation.Result{Stream: func(_ context.Context, out io.Writer) error {
					during()
					_, err := io.WriteString(out, "{}\n")
					return err
				}}, nil
			}
		})
	}
	var other, plain *httptest.ResponseRecorder
	first := w.serve(t, stream(func() {
		other = w.serve(t, stream(func() {}), from("10.0.0.2"))
		plain = w.serve(t, row(open), from("10.0.0.3"))
	}), from("10.0.0.1"))
	if first.Code != http.StatusOK || other.Code != http.StatusTooManyRequests || plain.Code != http.StatusOK {
		t.Errorf("a stream %d, another beside it %d, another call %d", first.Code, other.Code, plain.Code)
	}
	if again := w.serve(t, stream(func() {}), from("10.0.0.2")); again.Code != http.StatusOK || w.Work.Used() != 0 {
		t.Errorf("afterwards %d, %d in flight", again.Code, w.Work.Used())
	}
}

// hooked is a body that calls a function before it is first read.
type hooked struct {
	io.Reader
	first func()
}

func (h *hooked) Read(b []byte) (int, error) {
	if do := h.first; do != nil {
		h.first = nil
		do()
	}
	return h.Reader.Read(b)
}

func (*hooked) Close() error { return nil }

// TestBrowserKeyVisitorsHaveSeparateRoom: callers with a public browser key are bounded by address in each Flight, so
// that a visitor blocks neither others nor the organization.
func TestBrowserKeyVisitorsHaveSeparateRoom(t *testing.T) {
	t.Parallel()
	const held = 10_000
	text := `{"name":"` + strings.Repeat("x", held) + `"}`
	for name, room := range map[string]struct {
		set    func(*middleware.Pipeline, *limits.Flight)
		weight int64 // about that of one call
		body   bool  // it is held while the body is read
	}{
		"work":    {set: func(p *middleware.Pipeline, f *limits.Flight) { p.Work = f }, weight: 1},
		"bodies":  {set: func(p *middleware.Pipeline, f *limits.Flight) { p.Bodies = f }, weight: held, body: true},
		"decoded": {set: func(p *middleware.Pipeline, f *limits.Flight) { p.Decoded = f }, weight: 4 * held},
		"answers": {set: func(p *middleware.Pipeline, f *limits.Flight) { p.Answers = f }, weight: 6 * held},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			room.set(w.Pipeline, limits.NewFlight(40*room.weight)) // an address has one call of it, strangers four
			send := func(key, address string, during func()) int {
				read, handled := during, func() {}
				if !room.body {
					read, handled = nil, during
				}
				return w.serve(t, row(func(o *operation.Row) {
					o.Method, o.Kinds, o.Body = http.MethodPost, operation.ServerFull|operation.Browser, []operation.Field{{Name: "name", Shape: operation.Text}}
					o.Handler = func(ctx context.Context, _ *operation.Call) (operation.Result, error) {
						err := request.From(ctx).Room.Hold(ctx, held)
						if err == nil {
							handled()
						}
						return operation.Result{}, err
					}
				}), func(r *http.Request) {
					r.Header.Set(middleware.KeyHeader, key)
					if key == "browser" {
						r.Header.Set("Origin", "https://shop.example")
					}
					r.Header.Set("Content-Type", "application/json")
					r.RemoteAddr, r.ContentLength, r.Body = address+":1", int64(len(text)), &hooked{strings.NewReader(text), read}
				}).Code
			}
			none := func() {}
			var same, other, own int
			first := send("browser", "10.0.0.1", func() {
				same, other, own = send("browser", "10.0.0.1", none), send("browser", "10.0.0.2", none), send("full", "10.0.0.1", none)
			})
			if first != http.StatusOK || same != http.StatusTooManyRequests || other != http.StatusOK || own != http.StatusOK {
				t.Errorf("a visitor %d, more of the same %d, another %d, the organization's own key %d", first, same, other, own)
			}
		})
	}
}
