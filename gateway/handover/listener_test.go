//go:build unix

package handover

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// generation is a server with its listener.
type generation struct {
	server   *http.Server
	listener *Listener
	ended    chan error
}

func serve(t *testing.T, s *Socket, handler http.Handler) *generation {
	t.Helper()
	g := &generation{
		server:   &http.Server{Handler: handler, ReadHeaderTimeout: time.Minute, IdleTimeout: time.Minute},
		listener: Listen(s, time.Minute), ended: make(chan error, 1),
	}
	Watch(g.server)
	go func() { g.ended <- g.server.Serve(g.listener) }()
	return g
}

// end suspends the server and returns its socket.
func (g *generation) end(t *testing.T) *Socket {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	if err := g.listener.Suspend(ctx); err != nil {
		t.Errorf("Suspend: %v", err)
	}
	if err := g.server.Shutdown(ctx); err != nil {
		t.Errorf("Shutdown: %v", err)
	}
	if err := <-g.ended; !errors.Is(err, ErrSuspended) && !errors.Is(err, http.ErrServerClosed) {
		t.Errorf("Serve ended with %v, want %v", err, ErrSuspended)
	}
	return g.listener.Release()
}

// await waits until the listener has as many of something.
func (g *generation) await(t *testing.T, what string, want int, count func(*Listener) int) {
	t.Helper()
	for deadline := time.Now().Add(20 * time.Second); ; time.Sleep(time.Millisecond) {
		g.listener.mu.Lock()
		n := count(g.listener)
		g.listener.mu.Unlock()
		if n == want {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("%d %s, want %d", n, what, want)
		}
	}
}

func newSocket(t *testing.T) *Socket {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	return &Socket{Name: HTTP, Address: "127.0.0.1:0", Listener: l.(*net.TCPListener)}
}

// client is a connection that sends requests one by one.
type client struct {
	net.Conn
	r *bufio.Reader
}

func dial(t *testing.T, s net.Addr) *client {
	t.Helper()
	c, err := net.Dial("tcp", s.String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	if err := c.SetDeadline(time.Now().Add(30 * time.Second)); err != nil {
		t.Fatal(err)
	}
	return &client{c, bufio.NewReader(c)}
}

func (c *client) send(t *testing.T, text string) {
	t.Helper()
	if _, err := io.WriteString(c, text); err != nil {
		t.Fatal(err)
	}
}

// answer returns the body of the next answer.
func (c *client) answer(t *testing.T) string {
	t.Helper()
	resp, err := http.ReadResponse(c.r, nil)
	if err != nil {
		t.Errorf("reading an answer: %v", err)
		return ""
	}
	body, err := io.ReadAll(resp.Body)
	if err != nil || resp.Close {
		t.Errorf("an answer ended with %v, its connection closes: %t, want neither", err, resp.Close)
	}
	return string(body)
}

const get = "GET / HTTP/1.1\r\nHost: h\r\n\r\n"

func named(name string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		fmt.Fprint(w, name, string(body))
	}
}

// TestConnectionsOutliveTheirServer: a connection is served by the next server whatever its state was, and nothing that
// its client sends is lost.
func TestConnectionsOutliveTheirServer(t *testing.T) {
	t.Parallel()
	socket := newSocket(t)
	addr := socket.Listener.Addr()
	entered, leave := make(chan struct{}), make(chan struct{})
	first := serve(t, socket, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/slow" {
			close(entered)
			<-leave
		}
		named("first ")(w, r)
	}))
	idle, running, fresh, half := dial(t, addr), dial(t, addr), dial(t, addr), dial(t, addr)
	idle.send(t, get)
	if got := idle.answer(t); got != "first " {
		t.Errorf("got %q, want first", got)
	}
	half.send(t, get)
	half.answer(t)
	half.send(t, "GET / HT") // the header is being read
	running.send(t, "POST /slow HTTP/1.1\r\nHost: h\r\nContent-Length: 4\r\n\r\nbody")
	<-entered
	first.await(t, "accepted connections", 4, func(l *Listener) int { return len(l.conns) })
	released := make(chan *Socket, 1)
	go func() { released <- first.end(t) }()
	first.await(t, "connections taken from the server", 2, func(l *Listener) int { return min(len(l.idle), 2) }) // half may be one of them
	idle.send(t, get)
	late := dial(t, addr) // waits in the queue
	late.send(t, get)
	select {
	case <-released:
		t.Fatal("the server ended before its request")
	case <-time.After(50 * time.Millisecond): // no length of time proves it
	}
	close(leave)
	half.send(t, "TP/1.1\r\nHost: h\r\n\r\n")
	if got := running.answer(t); got != "first body" {
		t.Errorf("the running request: got %q, want that of the first server", got)
	}
	kept := <-released
	if n := len(kept.Conns); n != 4 {
		t.Errorf("got %d connections, want 4", n)
	}
	second := serve(t, kept, named("second "))
	for name, c := range map[string]*client{"idle": idle, "late": late} {
		if got := c.answer(t); got != "second " {
			t.Errorf("%s: got %q, want second", name, got)
		}
	}
	for name, c := range map[string]*client{"fresh": fresh, "running": running} {
		c.send(t, get)
		if got := c.answer(t); got != "second " {
			t.Errorf("%s: got %q, want second", name, got)
		}
	}
	if got := half.answer(t); got != "first " && got != "second " {
		t.Errorf("half: got %q", got)
	}
	if err := second.end(t).Close(); err != nil {
		t.Error(err)
	}
}

// TestPipelinedRequestsAreAnswered: the next request may have come together with the one before.
func TestPipelinedRequestsAreAnswered(t *testing.T) {
	t.Parallel()
	socket := newSocket(t)
	entered, leave := make(chan struct{}, 1), make(chan struct{})
	first := serve(t, socket, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/slow" {
			entered <- struct{}{}
			<-leave
		}
		named("first ")(w, r)
	}))
	c := dial(t, socket.Listener.Addr())
	c.send(t, "GET /slow HTTP/1.1\r\nHost: h\r\n\r\nPOST / HTTP/1.1\r\nHost: h\r\nContent-Length: 4\r\n\r\nbo")
	<-entered
	released := make(chan *Socket, 1)
	go func() { released <- first.end(t) }()
	<-first.listener.stop
	close(leave)
	if got := c.answer(t); got != "first " {
		t.Errorf("got %q, want first", got)
	}
	c.send(t, "dy")
	if got := c.answer(t); got != "first body" {
		t.Errorf("got %q, want first body", got)
	}
	if err := (<-released).Close(); err != nil {
		t.Error(err)
	}
}

// TestFirstByteIsNotLost: a server that waits for the end of a request's client may have read the first byte of the
// next one.
func TestFirstByteIsNotLost(t *testing.T) {
	t.Parallel()
	socket := newSocket(t)
	entered, leave := make(chan struct{}, 1), make(chan struct{})
	first := serve(t, socket, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/slow" {
			entered <- struct{}{}
			<-leave
		}
		named("first ")(w, r)
	}))
	c := dial(t, socket.Listener.Addr())
	c.send(t, "GET /slow HTTP/1.1\r\nHost: h\r\n\r\n")
	<-entered
	c.send(t, get[:1])
	first.await(t, "connections with a byte of the next request", 1, func(l *Listener) (n int) {
		for c := range l.conns {
			c.mu.Lock()
			if c.ahead {
				n++
			}
			c.mu.Unlock()
		}
		return n
	})
	released := make(chan *Socket, 1)
	go func() { released <- first.end(t) }()
	<-first.listener.stop
	close(leave)
	if got := c.answer(t); got != "first " {
		t.Errorf("got %q, want first", got)
	}
	c.send(t, get[1:])
	if got := c.answer(t); got != "first " {
		t.Errorf("got %q, want first", got)
	}
	if err := (<-released).Close(); err != nil {
		t.Error(err)
	}
}

// TestNoRequestIsLost changes servers under load, on connections that are kept and on new ones.
func TestNoRequestIsLost(t *testing.T) {
	t.Parallel()
	const generations, clients = 50, 8
	socket := newSocket(t)
	addr := socket.Listener.Addr().String()
	var served, answered atomic.Int64
	handler := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		served.Add(1)
		named("")(w, r)
	})
	g := serve(t, socket, handler)
	stop := make(chan struct{})
	var running sync.WaitGroup
	for n := range clients {
		running.Go(func() {
			transport := &http.Transport{DisableKeepAlives: n%4 == 3}
			defer transport.CloseIdleConnections()
			for {
				select {
				case <-stop:
					return
				default:
				}
				if err := post(t.Context(), transport, addr); err != nil {
					t.Errorf("a request failed: %v", err)
					return
				}
				answered.Add(1)
			}
		})
	}
	for range generations {
		time.Sleep(2 * time.Millisecond)
		g = serve(t, g.end(t), handler)
	}
	close(stop)
	running.Wait()
	if served.Load() != answered.Load() || answered.Load() < generations {
		t.Errorf("%d requests were served and %d answered, want the same number and at least %d",
			served.Load(), answered.Load(), generations)
	}
	t.Logf("%d requests", served.Load())
	if err := g.end(t).Close(); err != nil {
		t.Error(err)
	}
}

// post sends a request that the transport cannot repeat by itself.
func post(ctx context.Context, transport http.RoundTripper, addr string) error {
	body := struct{ io.Reader }{strings.NewReader("body")}
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+addr+"/", body)
	if err != nil {
		return err
	}
	resp, err := transport.RoundTrip(r)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	got, err := io.ReadAll(resp.Body)
	if err == nil && string(got) != "body" {
		err = fmt.Errorf("got %d %q", resp.StatusCode, got)
	}
	return err
}

// TestSuspendEndsWithItsContext: a request that does not end is left to the server.
func TestSuspendEndsWithItsContext(t *testing.T) {
	t.Parallel()
	socket := newSocket(t)
	entered, leave := make(chan struct{}), make(chan struct{})
	g := serve(t, socket, http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		close(entered)
		<-leave
	}))
	c := dial(t, socket.Listener.Addr())
	c.send(t, get)
	<-entered
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := g.listener.Suspend(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("Suspend: %v, want %v", err, context.Canceled)
	}
	s := g.listener.Release()
	if len(s.Conns) != 0 || g.listener.Release() != nil {
		t.Errorf("got %d connections, want none, and a socket once", len(s.Conns))
	}
	close(leave)
	c.answer(t)
	if _, err := c.r.ReadByte(); !errors.Is(err, io.EOF) {
		t.Errorf("the connection of a released listener: %v, want %v", err, io.EOF)
	}
	if err := errors.Join(g.server.Close(), s.Close()); err != nil {
		t.Error(err)
	}
	if err := <-g.ended; !errors.Is(err, ErrSuspended) && !errors.Is(err, http.ErrServerClosed) {
		t.Errorf("Serve ended with %v, want %v", err, ErrSuspended)
	}
}

// TestInheritedConnections: those whose client is gone or idle for too long are closed, and the others wait again if
// there is another handover.
func TestInheritedConnections(t *testing.T) {
	t.Parallel()
	socket := newSocket(t)
	g := serve(t, socket, named(""))
	gone, waits := dial(t, socket.Listener.Addr()), dial(t, socket.Listener.Addr())
	for _, c := range []*client{gone, waits} {
		c.send(t, get)
		c.answer(t)
	}
	s := g.end(t)
	if len(s.Conns) != 2 {
		t.Fatalf("got %d connections, want 2", len(s.Conns))
	}
	_ = gone.Close()
	for range 2 {
		g = serve(t, s, named("next"))
		g.await(t, "waiting connections", 1, func(l *Listener) int { return len(l.waiting) })
		s = g.end(t)
	}
	if len(s.Conns) != 1 {
		t.Fatalf("got %d connections, want 1", len(s.Conns))
	}
	late := Listen(s, -time.Second) // it was idle for too long
	stopped := make(chan error, 1)
	go func() {
		_, err := late.Accept()
		stopped <- err
	}()
	if _, err := waits.r.ReadByte(); !errors.Is(err, io.EOF) {
		t.Errorf("a connection that was idle for too long: %v, want %v", err, io.EOF)
	}
	s = late.Release()
	if err := <-stopped; !errors.Is(err, ErrSuspended) {
		t.Errorf("Accept: %v, want %v", err, ErrSuspended)
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
}
