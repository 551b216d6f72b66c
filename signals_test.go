//go:build unix

package main

import (
	"bufio"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// TestStop: a server that is told to stop says that it is not ready, and serves until the wait is over or the second
// signal comes.
func TestStop(t *testing.T) {
	t.Parallel()
	dir, token := installation(t)
	server, failed := start(t, func(cmd *exec.Cmd) { cmd.Env = append(cmd.Env, "TENANTRY_TIMEOUTS__DRAIN=1h") },
		"--data", dir, "--listen", "127.0.0.1:0", "--admin-listen", "127.0.0.1:0")
	if server == nil {
		_, text := failed.wait(t)
		t.Fatal(text)
	}
	ready := func() (int, string) {
		code, answer, err := ask(t, http.DefaultTransport, http.MethodGet, server.admin, "/readyz", "", "")
		if err != nil {
			t.Fatal(err)
		}
		return code, answer
	}
	if code, answer := ready(); code != 200 {
		t.Errorf("readyz: %d %s, want 200", code, answer)
	}
	server.signal(t, syscall.SIGTERM)
	for deadline := time.Now().Add(20 * time.Second); ; time.Sleep(time.Millisecond) {
		code, answer := ready()
		if code == http.StatusServiceUnavailable && strings.Contains(answer, `"server":"stopping"`) {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("readyz: %d %s, want 503 and stopping", code, answer)
		}
	}
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+server.address+"/api/campaigns/count", http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	r.Host = "acme.localhost"
	r.Header.Set("X-Service-Token", token)
	resp, err := http.DefaultTransport.RoundTrip(r)
	if err != nil {
		t.Fatal(err)
	}
	_ = resp.Body.Close()
	if resp.StatusCode != http.StatusOK || !resp.Close {
		t.Errorf("while it stops: %d, closing %t, want 200 and a connection that closes", resp.StatusCode, resp.Close)
	}
	refused, other := start(t, nil, "--data", dir, "--listen", "127.0.0.1:0", "--admin-listen", "127.0.0.1:0", "--takeover")
	if refused != nil {
		t.Error("another server took over from one that stops")
	} else if code, text := other.wait(t); code != 1 || !strings.Contains(text, "stopping") {
		t.Errorf("taking over from a server that stops: %d %s, want 1 and the reason", code, text)
	}
	server.signal(t, os.Interrupt)
	if code, text := server.wait(t); code != 0 {
		t.Errorf("the server ended with %d: %s", code, text)
	}
}

// TestReload: SIGHUP applies some settings, names those that it cannot apply, and changes nothing if there is a mistake.
func TestReload(t *testing.T) {
	t.Parallel()
	dir, token := installation(t)
	file := filepath.Join(t.TempDir(), "settings.yaml")
	write := func(text string) {
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("log: {requests: false}\n")
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	server, failed := start(t, func(cmd *exec.Cmd) { cmd.Stderr = w },
		"--data", dir, "--config", file, "--listen", "127.0.0.1:0", "--admin-listen", "127.0.0.1:0")
	_ = w.Close()
	if server == nil {
		_, text := failed.wait(t)
		t.Fatal(text)
	}
	lines := bufio.NewScanner(r)
	reload := func(text string, want ...string) {
		t.Helper()
		write(text)
		server.signal(t, syscall.SIGHUP)
		for _, part := range want {
			for lines.Scan() && !strings.Contains(lines.Text(), part) {
			}
			if err := lines.Err(); err != nil || !strings.Contains(lines.Text(), part) {
				t.Fatalf("the log does not contain %q: %v", part, err)
			}
		}
	}
	metrics := func(want int) {
		t.Helper()
		if code, _, err := ask(t, http.DefaultTransport, http.MethodGet, server.admin, "/metrics", "", ""); err != nil || code != want {
			t.Errorf("metrics: %d %v, want %d", code, err, want)
		}
	}
	count := func(want int) {
		t.Helper()
		if code, answer, err := ask(t, http.DefaultTransport, http.MethodGet, server.address, "/api/campaigns/count", token, ""); err != nil || code != want {
			t.Errorf("count: %d %s %v, want %d", code, answer, err, want)
		}
	}
	metrics(200)
	count(200)
	reload("admin: {token: 0123456789abcdef}\nlimits: {key: 1/h, in_flight: 300}\n",
		`"changed":["admin.token","limits.key"]`, `"settings":["limits.in_flight"`)
	metrics(401)
	count(200) // the first of this hour
	count(429)
	reload("\nadmin: {}\nlimits: {key: fast}\n", file+" line 3")
	metrics(401)
	reload("log: {requests: false}\n", `"changed":["admin.token","limits.key"]`)
	metrics(200)
	count(200)
	reload("", "it is empty")
	reload("log: {requests: false, level: warn}\n", `"changed":["log.level"]`)
	reload("log: {requests: false, level: info}\n", `"changed":["log.level"]`)
	server.signal(t, syscall.SIGTERM)
	if code, _ := server.wait(t); code != 0 {
		t.Errorf("the server ended with %d", code)
	}
}

// TestActivation: a server takes sockets of a service manager, whose queue outlives it.
func TestActivation(t *testing.T) {
	t.Parallel()
	dir, token := installation(t)
	var files []*os.File
	var addresses []string
	for range 2 {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		f, err := l.(*net.TCPListener).File()
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		files, addresses = append(files, f), append(addresses, l.Addr().String())
	}
	serve := func() *running {
		server, failed := start(t, func(cmd *exec.Cmd) {
			cmd.Args = append([]string{"sh", "-c", `LISTEN_PID=$$ exec "$0" "$@"`, cmd.Path}, cmd.Args[1:]...)
			cmd.Path, cmd.ExtraFiles = "/bin/sh", files
			cmd.Env = append(cmd.Env, "LISTEN_FDS=2", "LISTEN_FDNAMES=admin:http")
		}, "--data", dir)
		if server == nil {
			_, text := failed.wait(t)
			t.Fatal(text)
		}
		if server.admin != addresses[0] || server.address != addresses[1] {
			t.Errorf("the addresses are %s and %s, want %v", server.admin, server.address, addresses)
		}
		return server
	}
	first := serve()
	first.signal(t, syscall.SIGTERM)
	if code, text := first.wait(t); code != 0 {
		t.Errorf("the server ended with %d: %s", code, text)
	}
	answered := make(chan error, 1)
	go func() { // waits in the queue
		code, answer, err := ask(t, &http.Transport{DisableKeepAlives: true}, http.MethodGet, addresses[1], "/api/campaigns/count", token, "")
		if err == nil && code != http.StatusOK {
			err = fmt.Errorf("%d %s", code, answer)
		}
		answered <- err
	}()
	serve()
	if err := <-answered; err != nil {
		t.Error(err)
	}
}
