package cli_test

import (
	"encoding/json"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"tenantry/gateway"
	"tenantry/gateway/handover"
)

// predecessor is a server that is asked to hand over, as far as its successor sees it.
type predecessor struct {
	listener *net.TCPListener
	asked    chan *handover.Successor
}

// newPredecessor pretends that a server uses the folder: it can be asked, and listens on an address.
func newPredecessor(t *testing.T, dir string) *predecessor {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &predecessor{listener: l.(*net.TCPListener), asked: make(chan *handover.Successor, 1)}
	t.Cleanup(func() { _ = l.Close() })
	socket := filepath.Join(t.TempDir(), "s")
	control, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s, err := handover.Accept(w, r)
		if err != nil {
			t.Error(err)
			return
		}
		p.asked <- s
	})}
	go func() { _ = server.Serve(control) }()
	t.Cleanup(func() { _ = server.Close() })
	raw, err := json.Marshal(gateway.Holder{What: "tenantry serve", PID: 4711, Listen: l.Addr().String(), Control: socket})
	if err == nil {
		err = os.WriteFile(filepath.Join(dir, "tenantry.json"), raw, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// logs waits until the log of the process has a text.
func (p *process) logs(t *testing.T, text string) {
	t.Helper()
	for deadline := time.Now().Add(20 * time.Second); !strings.Contains(p.stderr.String(), text); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("the log does not contain %q: %s", text, p.stderr)
		}
	}
}

// TestTakeover_Killed: the addresses of a server that is killed while it hands over are free a moment later.
func TestTakeover_Killed(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "data")
	beginOrg(t, dir, "acme")
	old := newPredecessor(t, dir)
	next := launch(t, "serve", "--takeover", "--data", dir, "--listen", old.listener.Addr().String(), "--admin-listen", "")
	s := <-old.asked
	if s.PID != os.Getpid() {
		t.Errorf("the successor says that it is process %d, want %d", s.PID, os.Getpid())
	}
	s.Refuse() // as if it was killed
	next.logs(t, "waiting for the other server to end")
	if err := old.listener.Close(); err != nil {
		t.Fatal(err)
	}
	next.line(t)
	if code := next.end(t); code != 0 {
		t.Errorf("the next server ended with %d: %s", code, next.stderr)
	}
}

// TestTakeover_SameAddress: the sockets are used for any way to write their address, and where they cannot be, the error
// says how the other server writes it.
func TestTakeover_SameAddress(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		host string
		says string
	}{
		"a name of the address":          {host: "localhost"},
		"an address that is in conflict": {host: "0.0.0.0", says: "write the address as it does"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := filepath.Join(t.TempDir(), "data")
			beginOrg(t, dir, "acme")
			old := newPredecessor(t, dir)
			address := old.listener.Addr().String()
			_, port, _ := net.SplitHostPort(address)
			next := launch(t, "serve", "--takeover", "--data", dir, "--listen", net.JoinHostPort(c.host, port), "--admin-listen", "")
			socket := &handover.Socket{Name: handover.HTTP, Address: address, Since: time.Now(), Listener: old.listener}
			err := (<-old.asked).Give(t.Context(), handover.Estate{Sockets: handover.Sockets{handover.HTTP: socket}})
			if c.says == "" {
				if err != nil {
					t.Fatal(err)
				}
				if line := next.line(t); !strings.Contains(line, address) {
					t.Errorf("the next server printed %q, want %s", line, address)
				}
				return
			}
			if err == nil || !strings.Contains(err.Error(), c.says) || !strings.Contains(err.Error(), address) {
				t.Errorf("Give: %v, want %q and %s", err, c.says, address)
			}
			if code := next.end(t); code != 1 {
				t.Errorf("the next server ended with %d, want 1", code)
			}
		})
	}
}

// TestTakeover_Slow: each side says that it waits for the other, and for which process.
func TestTakeover_Slow(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "data")
	beginOrg(t, dir, "acme")
	old := newPredecessor(t, dir)
	next := launch(t, "serve", "--takeover", "--data", dir, "--listen", "127.0.0.1:0", "--admin-listen", "")
	s := <-old.asked
	next.logs(t, `"the other server has not handed over yet: its running requests and commands end first","process":4711`)
	s.Refuse()
	next.line(t)
}
