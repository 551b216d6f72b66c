//go:build unix

package handover

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"tenantry/internal/maintest"
)

func TestMain(m *testing.M) { maintest.Leakless(m) }

// control serves a handler on a Unix socket and returns its path.
func control(t *testing.T, h http.HandlerFunc) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "s")
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	server := &http.Server{Handler: h}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = server.Serve(l)
	}()
	t.Cleanup(func() {
		_ = server.Close()
		<-ended
	})
	return path
}

// TestHandover passes a socket with many connections, and the result back.
func TestHandover(t *testing.T) {
	t.Parallel()
	for name, failure := range map[string]error{"ready": nil, "failed": errors.New("it cannot serve")} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			const conns = 2*batch + 1
			memory := bytes.Repeat([]byte("memory"), 1<<17) // more than the buffers of the connection
			socket := newSocket(t)
			g := serve(t, socket, named("old"))
			clients := make([]*client, conns)
			for i := range clients {
				clients[i] = dial(t, socket.Listener.Addr())
				clients[i].send(t, get)
				clients[i].answer(t)
			}
			given := make(chan error, 1)
			var kept *Socket
			path := control(t, func(w http.ResponseWriter, r *http.Request) {
				s, err := Accept(w, r)
				if err != nil {
					given <- err
					return
				}
				kept = g.end(t)
				given <- s.Give(t.Context(), Estate{Sockets{HTTP: kept}, memory})
			})
			p, err := Ask(t.Context(), path)
			if err != nil {
				t.Fatal(err)
			}
			estate, err := p.Estate(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			if !bytes.Equal(estate.Memory, memory) {
				t.Errorf("got %d bytes of memory, want the %d that were passed", len(estate.Memory), len(memory))
			}
			sockets := estate.Sockets
			if sockets.Take(HTTP, "127.0.0.1:1") != nil || sockets.Take(Admin, "") != nil {
				t.Error("got a socket for another address or name, want none")
			}
			s := sockets.Take(HTTP, "127.0.0.1:0")
			if s == nil || len(s.Conns) != conns || !s.Inherited || time.Since(s.Since) > time.Minute {
				t.Fatalf("got %+v, want the socket with %d connections", s, conns)
			}
			if failure == nil {
				p.Ready()
			} else {
				p.Fail(failure)
			}
			if err := <-given; (err == nil) != (failure == nil) || err != nil && err.Error() != failure.Error() {
				t.Errorf("Give: %v, want %v", err, failure)
			}
			if failure == nil { // closing one process's descriptors leaves the other's
				kept.Close()
			} else {
				s.Close()
				s = kept
			}
			next := serve(t, s, named("new"))
			for _, c := range append(clients, dial(t, next.listener.Addr())) {
				c.send(t, get)
				if got := c.answer(t); got != "new" {
					t.Fatalf("got %q, want new", got)
				}
			}
			if err := next.end(t).Close(); err != nil {
				t.Error(err)
			}
		})
	}
}

// TestHandover_Interrupted: a process that ends leaves the other with an error.
func TestHandover_Interrupted(t *testing.T) {
	t.Parallel()
	given := make(chan error, 1)
	path := control(t, func(w http.ResponseWriter, r *http.Request) {
		s, err := Accept(w, r)
		if err != nil {
			given <- err
			return
		}
		if r.Header.Get("Refuse") != "" {
			s.Refuse()
			return
		}
		socket := newSocket(t)
		given <- s.Give(t.Context(), Estate{Sockets: Sockets{HTTP: socket}})
		_ = socket.Close()
	})
	for name, leave := range map[string]func(*Predecessor){
		"before": func(p *Predecessor) { _ = p.conn.Close() },
		"after": func(p *Predecessor) {
			e, err := p.Estate(t.Context())
			if err != nil {
				t.Error(err)
			}
			_ = e.Sockets.Close()
			_ = p.conn.Close()
		},
	} {
		p, err := Ask(t.Context(), path)
		if err != nil {
			t.Fatal(err)
		}
		leave(p)
		if err := <-given; err == nil {
			t.Errorf("%s: Give succeeded, want an error", name)
		}
	}
	p, err := Ask(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if e, err := p.Estate(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("Estate with a context that has ended: %v, %v, want %v", e, err, context.Canceled)
	}
	_ = p.conn.Close()
	if err := <-given; err == nil {
		t.Error("Give succeeded, want an error")
	}
}

// TestReceive_Malformed: what no predecessor sends is refused, and ends.
func TestReceive_Malformed(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ header, follows, want string }{
		"another format":   {`{"version": 99}`, "", "format"},
		"no JSON":          {`nonsense`, "", "invalid"},
		"memory":           {`{"version": 1, "memory": -1}`, "", "memory"},
		"connections":      {`{"version": 1, "sockets": [{"name": "http", "conns": -1}]}`, "", "connections"},
		"no descriptors":   {`{"version": 1, "sockets": [{"name": "http"}]}`, "x", "descriptors"},
		"an early end":     {`{"version": 1, "memory": 9}`, "memory", "EOF"},
		"a header too big": {strings.Repeat("x", maxHeader+1), "", "header"},
	} {
		l, err := net.Listen("unix", filepath.Join(t.TempDir(), "s"))
		if err != nil {
			t.Fatal(err)
		}
		in, err := net.Dial("unix", l.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		out, err := l.Accept()
		if err != nil {
			t.Fatal(err)
		}
		sent := make(chan error, 1)
		go func() {
			size := binary.BigEndian.AppendUint32(nil, uint32(len(c.header)))
			_, err := in.Write(append(size, c.header+c.follows...))
			sent <- errors.Join(err, in.Close())
		}()
		if _, err := receive(out.(*net.UnixConn)); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q in the error", name, err, c.want)
		}
		_ = out.Close()
		if err := <-sent; err != nil && c.want != "header" { // that one is not read to its end
			t.Error(err)
		}
		_ = l.Close()
	}
}

func TestAsk_Refused(t *testing.T) {
	t.Parallel()
	path := control(t, func(w http.ResponseWriter, _ *http.Request) {
		http.Error(w, "it is stopping", http.StatusServiceUnavailable)
	})
	if _, err := Ask(t.Context(), path); !errors.Is(err, ErrRefused) || !strings.Contains(err.Error(), "it is stopping") {
		t.Errorf("Ask: %v, want %v and the reason", err, ErrRefused)
	}
	if _, err := Ask(t.Context(), path+"x"); err == nil || errors.Is(err, ErrRefused) {
		t.Errorf("Ask without a server: %v, want another error", err)
	}
	for _, upgrade := range []string{"", protocol} { // without the header, and on no connection
		w, r := httptest.NewRecorder(), httptest.NewRequest(http.MethodPost, Path, http.NoBody)
		r.Header.Set("Upgrade", upgrade)
		if _, err := Accept(w, r); err == nil || w.Code < 400 {
			t.Errorf("Accept of the upgrade %q: %d %v, want an error", upgrade, w.Code, err)
		}
	}
}

// high is a descriptor above those that other tests use. Each test uses others, because some stay open after an error.
var high atomic.Int64

func TestActivated(t *testing.T) {
	t.Parallel()
	high.CompareAndSwap(0, 500)
	pid := strconv.Itoa(os.Getpid())
	for name, c := range map[string]struct {
		pid, n, names string
		want          []string
		refused       string
	}{
		"none":          {pid: pid},
		"of another":    {pid: "1", n: "1"},
		"one, unnamed":  {pid: pid, n: "1", want: []string{HTTP}},
		"one, named":    {pid: pid, n: "1", names: "tenantry.socket", want: []string{HTTP}},
		"admin alone":   {pid: pid, n: "1", names: "admin", want: []string{Admin}},
		"both":          {pid: pid, n: "2", names: "admin:http", want: []string{Admin, HTTP}},
		"unknown name":  {pid: pid, n: "2", names: "http:unknown", refused: "FileDescriptorName"},
		"twice":         {pid: pid, n: "2", names: "http:http", refused: "FileDescriptorName"},
		"without names": {pid: pid, n: "2", refused: "FileDescriptorName"},
		"too many":      {pid: pid, n: "3", names: "http:admin:x", refused: "1 or 2"},
		"no number":     {pid: pid, n: "x", refused: "1 or 2"},
	} {
		t.Run(name, func(t *testing.T) {
			first := 3000 // nothing is there
			if n, err := strconv.Atoi(c.n); err == nil && c.pid == pid && n < 3 {
				first = descriptors(t, n, int(high.Add(10)))
			}
			got, err := activated([]string{"A=b", "LISTEN_PID=" + c.pid, "LISTEN_FDS=" + c.n, "LISTEN_FDNAMES=" + c.names}, first)
			defer func() { _ = got.Close() }()
			if c.refused != "" {
				if err == nil || !strings.Contains(err.Error(), c.refused) {
					t.Errorf("got %v, want %q in the error", err, c.refused)
				}
				return
			}
			if err != nil || len(got) != len(c.want) {
				t.Fatalf("got %v, %v, want %v", got, err, c.want)
			}
			for _, name := range c.want {
				if s := got[name]; s == nil || s.Address != s.Listener.Addr().String() {
					t.Errorf("%s: got %+v, want a listener with its address", name, s)
				}
			}
		})
	}
}

// descriptors returns the first of n consecutive descriptors of sockets, from high on.
func descriptors(t *testing.T, n, high int) int {
	t.Helper()
	for i := range n {
		s := newSocket(t)
		raw, err := s.Listener.SyscallConn()
		if err != nil {
			t.Fatal(err)
		}
		err = raw.Control(func(fd uintptr) {
			if got, _, errno := syscall.Syscall(syscall.SYS_FCNTL, fd, syscall.F_DUPFD, uintptr(high+i)); int(got) != high+i {
				t.Fatalf("descriptor %d: %d, %v", high+i, got, errno)
			}
		})
		if err := errors.Join(err, s.Close()); err != nil {
			t.Fatal(err)
		}
	}
	return high
}
