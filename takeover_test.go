//go:build unix

package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
)

// longTests is the variable that makes some tests take minutes.
const longTests = "TENANTRY_TEST_LONG"

// running is a server in a process of its own.
type running struct {
	cmd     *exec.Cmd
	stdout  *bufio.Reader
	stderr  *bytes.Buffer
	address string
	admin   string
	ended   chan error
}

// launch starts a server, which ends with the test at the latest.
func launch(t *testing.T, change func(*exec.Cmd), args ...string) *running {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Minute)
	r := &running{cmd: command(ctx, t, append([]string{"serve"}, args...)...), stderr: &bytes.Buffer{}, ended: make(chan error, 1)}
	r.cmd.Stderr = r.stderr
	if change != nil {
		change(r.cmd)
	}
	stdout, err := r.cmd.StdoutPipe()
	if err == nil {
		err = r.cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	r.stdout = bufio.NewReader(stdout)
	t.Cleanup(func() {
		_ = r.cmd.Process.Kill()
		cancel()
	})
	return r
}

// ready waits until the server is ready. It returns false if that ends before.
func (r *running) ready() bool {
	line, err := r.stdout.ReadString('\n')
	go func() { r.ended <- r.cmd.Wait() }()
	found := regexp.MustCompile(`http://([^ \n]+)(?: \(operations on http://(\S+)\))?`).FindStringSubmatch(line)
	if err != nil || found == nil {
		return false
	}
	r.address, r.admin = found[1], found[2]
	return true
}

// start runs a server until it is ready, or returns nil and its process if it ends before.
func start(t *testing.T, change func(*exec.Cmd), args ...string) (*running, *running) {
	t.Helper()
	r := launch(t, change, args...)
	if !r.ready() {
		return nil, r
	}
	return r, r
}

// wait returns the exit code of the process and what it wrote to standard error.
func (r *running) wait(t *testing.T) (int, string) {
	t.Helper()
	select {
	case err := <-r.ended:
		r.ended <- err
		return r.cmd.ProcessState.ExitCode(), r.stderr.String()
	case <-time.After(time.Minute):
		t.Fatal("the process did not end")
		return 0, ""
	}
}

func (r *running) signal(t *testing.T, s os.Signal) {
	t.Helper()
	if err := r.cmd.Process.Signal(s); err != nil {
		t.Errorf("%v: %v", s, err)
	}
}

// result runs a command and parses what it prints.
func result[T any](t *testing.T, args ...string) (v T) {
	t.Helper()
	cmd := command(t.Context(), t, args...)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err == nil {
		err = json.Unmarshal(out, &v)
	}
	if err != nil {
		t.Fatalf("tenantry %q: %v\n%s%s", args, err, out, stderr.String())
	}
	return v
}

// installation makes an installation with the organization acme, and returns its folder and the token of a key.
func installation(t *testing.T) (dir, token string) {
	t.Helper()
	dir = filepath.Join(t.TempDir(), "data")
	return dir, organization(t, "--data", dir)
}

// organization makes the organization acme, and returns the token of a key. The arguments name the installation.
func organization(t *testing.T, args ...string) (token string) {
	t.Helper()
	result[any](t, append([]string{"org", "create", "--slug", "acme", "--name", "Acme"}, args...)...)
	return result[struct{ Token string }](t, append([]string{"key", "create", "--org", "acme", "--name", "k",
		"--kind", "server_full", "--permission", "contacts"}, args...)...).Token
}

// ask sends a request and returns the status and the answer.
func ask(t *testing.T, transport http.RoundTripper, method, address, path, token, body string) (int, string, error) {
	r, err := http.NewRequestWithContext(t.Context(), method, "http://"+address+path, nil)
	if err != nil {
		return 0, "", err
	}
	if body != "" { // the transport cannot send it twice by itself
		r.Body = io.NopCloser(struct{ io.Reader }{strings.NewReader(body)})
		r.ContentLength = int64(len(body))
		r.Header.Set("Content-Type", "application/json")
	}
	if token != "" {
		r.Host = "acme.localhost"
		r.Header.Set("X-Service-Token", token)
	}
	resp, err := transport.RoundTrip(r)
	if err != nil {
		return 0, "", err
	}
	defer resp.Body.Close()
	answer, err := io.ReadAll(resp.Body)
	return resp.StatusCode, string(answer), err
}

// signIn makes a person of acme, who chooses a password and so signs in, and returns the session's cookie.
func signIn(t *testing.T, address, dir string) string {
	t.Helper()
	user := result[struct{ Link string }](t, "user", "create", "--org", "acme", "--email", "ada@example.com", "--name", "Ada", "--data", dir)
	_, token, _ := strings.Cut(user.Link, "#")
	body := strings.NewReader(`{"token": "` + token + `", "password": "correct horse battery staple"}`)
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://"+address+"/auth/password", body)
	if err != nil {
		t.Fatal(err)
	}
	r.Host = "acme.localhost"
	r.Header.Set("Content-Type", "application/json")
	resp, err := http.DefaultTransport.RoundTrip(r)
	if err != nil {
		t.Fatal(err)
	}
	_ = resp.Body.Close()
	if resp.StatusCode != http.StatusOK || len(resp.Cookies()) == 0 {
		t.Fatalf("choosing a password: %d with %d cookies, want 200 and a session", resp.StatusCode, len(resp.Cookies()))
	}
	return resp.Cookies()[0].Name + "=" + resp.Cookies()[0].Value
}

// wantSession fails the test unless the session is one of acme.
func wantSession(t *testing.T, address, cookie string) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+address+"/api/me/sessions", http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	r.Host = "acme.localhost"
	r.Header.Set("Cookie", cookie)
	resp, err := http.DefaultTransport.RoundTrip(r)
	if err != nil {
		t.Fatal(err)
	}
	_ = resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		t.Errorf("with the session: %d, want 200", resp.StatusCode)
	}
}

// load sends requests until it is stopped.
type load struct {
	stop    chan struct{}
	clients sync.WaitGroup
	sent    atomic.Int64
	stored  atomic.Int64
	slowest atomic.Int64 // nanoseconds
}

// startLoad starts clients, each with a transport of its own that through returns.
func startLoad(t *testing.T, through func(http.RoundTripper) http.RoundTripper, address, token string) *load {
	t.Helper()
	const clients = 8
	l := &load{stop: make(chan struct{})}
	for n := range clients {
		l.clients.Go(func() {
			transport := &http.Transport{DisableKeepAlives: n == 0}
			defer transport.CloseIdleConnections()
			c := client{load: l, t: t, through: through(transport), address: address, token: token}
			for i := 0; ; i++ {
				select {
				case <-l.stop:
					return
				default:
				}
				if !c.step(i, fmt.Sprintf("Client %d number %d", n, i)) {
					return
				}
			}
		})
	}
	return l
}

// client creates records, changes each once, and reads it again.
type client struct {
	*load
	t              *testing.T
	through        http.RoundTripper
	address, token string
	id, name       string // of the last record
}

func (c *client) step(i int, name string) bool {
	method, path, body := http.MethodGet, "/api/contacts/"+c.id, ""
	switch i % 3 {
	case 0:
		method, path, body = http.MethodPost, "/api/contacts", fmt.Sprintf(`{"first_name": "New", "last_name": %q}`, name)
	case 1:
		method, body = http.MethodPut, fmt.Sprintf(`{"first_name": "Changed", "last_name": %q}`, name)
	default:
		name = c.name
	}
	begun := time.Now()
	code, answer, err := ask(c.t, c.through, method, c.address, path, c.token, body)
	c.sent.Add(1)
	var got struct {
		Data struct {
			ID       string
			LastName string `json:"last_name"`
		}
	}
	if err == nil {
		err = json.Unmarshal([]byte(answer), &got)
	}
	if err != nil || code != http.StatusOK || got.Data.LastName != name {
		c.t.Errorf("%s %s: %d %s %v, want 200 and %s", method, path, code, answer, err, name)
		return false
	}
	if i%3 == 0 {
		c.stored.Add(1)
		c.id = got.Data.ID
	}
	c.name = name
	for took := int64(time.Since(begun)); ; {
		if had := c.slowest.Load(); took <= had || c.slowest.CompareAndSwap(had, took) {
			return true
		}
	}
}

// await waits until so many requests were sent, or one failed.
func (l *load) await(t *testing.T, requests int64) {
	t.Helper()
	for deadline := time.Now().Add(10 * time.Minute); l.sent.Load() < requests && !t.Failed(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("too few requests")
		}
	}
}

// direct sends requests to the address that they name.
func direct(t http.RoundTripper) http.RoundTripper { return t }

// end stops the load and checks that every record is there once.
func (l *load) end(t *testing.T, address, token string) {
	t.Helper()
	close(l.stop)
	l.clients.Wait()
	code, answer, err := ask(t, http.DefaultTransport, http.MethodGet, address, "/api/campaigns/count", token, "")
	var got struct {
		Data struct{ Count int64 }
	}
	if err == nil {
		err = json.Unmarshal([]byte(answer), &got)
	}
	if err != nil || code != http.StatusOK || got.Data.Count != l.stored.Load() {
		t.Errorf("there are %d contacts (%d %.200s %v), want the %d that were stored", got.Data.Count, code, answer, err, l.stored.Load())
	}
	t.Logf("%d requests, the slowest took %s", l.sent.Load(), time.Duration(l.slowest.Load()))
}

// TestTakeover replaces the server under load, again and again, by the other version and back. No request is refused,
// cut or lost.
func TestTakeover(t *testing.T) {
	t.Parallel()
	takeovers, requests := 5, int64(2000)
	if os.Getenv(longTests) != "" {
		takeovers, requests = 20, 100_000
	}
	dir, token := installation(t)
	args := []string{"--data", dir, "--listen", "127.0.0.1:0", "--admin-listen", "127.0.0.1:0", "--takeover"}
	limits := func(cmd *exec.Cmd) {
		cmd.Env = append(cmd.Env, "TENANTRY_LIMITS__KEY=off", "TENANTRY_LIMITS__ORGANIZATION=off", "TENANTRY_LOG__REQUESTS=false")
	}
	begin := func(n int) (*running, *running) {
		return start(t, func(cmd *exec.Cmd) {
			limits(cmd)
			versionOf(n)(cmd)
		}, args...)
	}
	now, failed := begin(0)
	if now == nil {
		code, text := failed.wait(t)
		t.Fatalf("the first server ended with %d: %s", code, text)
	}
	l := startLoad(t, direct, now.address, token)
	for i := range takeovers {
		l.await(t, int64(i+1)*requests/int64(takeovers+1))
		next, failed := begin(i + 1)
		if next == nil {
			code, text := failed.wait(t)
			t.Fatalf("takeover %d: the next server ended with %d: %s\n%s", i, code, text, now.stderr)
		}
		if code, text := now.wait(t); code != 0 || !strings.Contains(text, "another process has taken over") {
			t.Errorf("takeover %d: the server ended with %d: %s", i, code, text)
		}
		if next.address != now.address || next.admin != now.admin {
			t.Errorf("takeover %d: the addresses are %s and %s, were %s and %s", i, next.address, next.admin, now.address, now.admin)
		}
		now = next
	}
	l.await(t, requests)
	l.end(t, now.address, token)
	now.signal(t, syscall.SIGTERM)
	code, text := now.wait(t)
	if code != 0 {
		t.Errorf("the last server ended with %d: %s", code, text)
	}
	t.Log(regexp.MustCompile(`"requests waited","for":"[^"]*"`).FindString(text))
	result[any](t, "doctor", "--data", dir)
}

// TestTakeover_Failed: a server goes on if its successor cannot start, or is killed.
func TestTakeover_Failed(t *testing.T) {
	t.Parallel()
	dir, token := installation(t)
	args := []string{"--data", dir, "--listen", "127.0.0.1:0", "--admin-listen", "127.0.0.1:0"}
	server, _ := start(t, nil, args...)
	if server == nil {
		t.Fatal("the server did not start")
	}
	first, cookie := server, signIn(t, server.address, dir)
	served := func(when string) {
		t.Helper()
		if cookie != "" {
			wantSession(t, server.address, cookie)
		}
		transport := &http.Transport{DisableKeepAlives: true}
		if code, answer, err := ask(t, transport, http.MethodGet, server.address, "/api/campaigns/count", token, ""); err != nil || code != 200 {
			t.Errorf("%s: %d %s %v, want 200", when, code, answer, err)
		}
		result[any](t, "org", "list", "--data", dir)
	}
	kept := &http.Transport{}
	defer kept.CloseIdleConnections()
	other, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	for name, c := range map[string]struct {
		env  string
		args []string
		says string
	}{
		"settings that cannot be used": {env: "TENANTRY_LOG__LEVEL=loud", args: args, says: "log.level"},
		"a keyring that is missing":    {env: "TENANTRY_KEYRING=" + filepath.Join(t.TempDir(), "none.json"), args: args, says: "keyring"},
		"an address that is taken":     {args: []string{"--data", dir, "--listen", other.Addr().String(), "--admin-listen", "127.0.0.1:0"}, says: "cannot listen"},
	} {
		if code, _, err := ask(t, kept, http.MethodGet, server.address, "/api/campaigns/count", token, ""); err != nil || code != 200 {
			t.Errorf("%s, on a connection that was kept: %d %v", name, code, err)
		}
		next, failed := start(t, func(cmd *exec.Cmd) { cmd.Env = append(cmd.Env, c.env) }, append(c.args, "--takeover")...)
		if next != nil {
			t.Fatalf("%s: the next server started", name)
		}
		if code, text := failed.wait(t); code != 1 || !strings.Contains(text, c.says) {
			t.Errorf("%s: the next server ended with %d: %s, want 1 and %q", name, code, text, c.says)
		}
		served(name)
	}
	for _, delay := range []time.Duration{5, 15, 25, 40, 60, 90} { // whatever it was doing
		cmd := command(t.Context(), t, append([]string{"serve", "--takeover"}, args...)...)
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		time.Sleep(delay * time.Millisecond)
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		select {
		case err := <-server.ended: // it was ready before it was killed
			server.ended <- err
			cookie = "" // it ended with the process that was killed
			if server, _ = start(t, nil, append(args, "--takeover")...); server == nil {
				t.Fatal("no server could be started after the successor was killed")
			}
		case <-time.After(200 * time.Millisecond):
		}
		served(fmt.Sprintf("killed after %d ms", delay))
	}
	server.signal(t, syscall.SIGTERM)
	if code, text := server.wait(t); code != 0 {
		t.Errorf("the server ended with %d: %s", code, text)
	}
	code, text := first.wait(t)
	for _, reason := range []string{"keyring", "cannot listen"} { // which the next processes have told it
		if !strings.Contains(text, reason) {
			t.Errorf("the log of the first server (which ended with %d) does not contain %q: %s", code, reason, text)
		}
	}
	alone, _ := start(t, nil, append(args, "--takeover")...) // there is nobody to take over from
	if alone == nil {
		t.Fatal("no server starts without another")
	}
}

// TestTakeover_OtherAddress: a new process may listen elsewhere. Nobody listens at the old address then.
func TestTakeover_OtherAddress(t *testing.T) {
	t.Parallel()
	dir, token := installation(t)
	first, _ := start(t, nil, "--data", dir, "--listen", "127.0.0.1:0", "--admin-listen", "")
	if first == nil {
		t.Fatal("the server did not start")
	}
	cookie := signIn(t, first.address, dir)
	second, failed := start(t, nil, "--data", dir, "--listen", "localhost:0", "--admin-listen", "", "--takeover")
	if second == nil {
		_, text := failed.wait(t)
		t.Fatal(text)
	}
	if code, text := first.wait(t); code != 0 {
		t.Errorf("the first server ended with %d: %s", code, text)
	}
	if c, err := net.Dial("tcp", first.address); err == nil {
		_ = c.Close()
		t.Error("somebody listens at the old address")
	}
	code, answer, err := ask(t, &http.Transport{DisableKeepAlives: true}, http.MethodGet, second.address, "/api/campaigns/count", token, "")
	if err != nil || code != http.StatusOK {
		t.Errorf("at the new address: %d %s %v, want 200", code, answer, err)
	}
	wantSession(t, second.address, cookie)
}

// TestTakeover_Interrupted: the next process waits for a running request. It starts alone if the one before is killed,
// and that goes on if the next one is.
func TestTakeover_Interrupted(t *testing.T) {
	t.Parallel()
	dir, token := installation(t)
	args := []string{"--data", dir, "--listen", "127.0.0.1:0", "--admin-listen", "", "--takeover"}
	for _, killed := range []string{"next", "next that hangs", "first"} {
		log := &syncBuffer{}
		first, failed := start(t, func(cmd *exec.Cmd) { cmd.Stderr = log }, args...)
		if first == nil {
			_, text := failed.wait(t)
			t.Fatal(text)
		}
		c, err := net.Dial("tcp", first.address)
		if err != nil {
			t.Fatal(err)
		}
		const body = `{"last_name": "Slow"}`
		_, err = fmt.Fprintf(c, "POST /api/contacts HTTP/1.1\r\nHost: acme.localhost\r\nX-Service-Token: %s\r\n"+
			"Content-Type: application/json\r\nContent-Length: %d\r\nExpect: 100-continue\r\n\r\n", token, len(body))
		if err != nil {
			t.Fatal(err)
		}
		answers := bufio.NewReader(c)
		if line, err := answers.ReadString('\n'); err != nil || !strings.Contains(line, "100") { // the handler reads the body
			t.Fatalf("got %q %v, want 100 Continue", line, err)
		}
		if _, err := answers.ReadString('\n'); err != nil {
			t.Fatal(err)
		}
		logs, logged, err := os.Pipe()
		if err != nil {
			t.Fatal(err)
		}
		next := launch(t, func(cmd *exec.Cmd) { cmd.Stderr = logged }, args...)
		_ = logged.Close()
		for lines := bufio.NewScanner(logs); lines.Scan() && !strings.Contains(lines.Text(), `"taking over"`); {
		}
		go func() {
			_, _ = io.Copy(io.Discard, logs)
			_ = logs.Close()
		}()
		if killed == "first" {
			_ = first.cmd.Process.Kill()
			if !next.ready() {
				t.Fatal("the next process did not start without the first")
			}
			_ = c.Close()
			continue
		}
		stop := func() {
			next.signal(t, syscall.SIGKILL)
			if next.ready() {
				t.Fatal("the next process was not killed")
			}
		}
		if killed == "next" {
			stop()
		} else {
			next.signal(t, syscall.SIGSTOP)
		}
		if _, err := io.WriteString(c, body); err != nil {
			t.Fatal(err)
		}
		if killed != "next" {
			const says = "requests wait for the process that takes over, which does not serve yet"
			log.await(t, fmt.Sprintf(`%s","process":%d`, says, next.cmd.Process.Pid))
			stop()
		}
		resp, err := http.ReadResponse(answers, nil)
		if err != nil || resp.StatusCode != http.StatusOK {
			t.Fatalf("the running request: %v %v, want 200", resp, err)
		}
		_, _ = io.Copy(io.Discard, resp.Body)
		if _, err := fmt.Fprintf(c, "GET /api/campaigns/count HTTP/1.1\r\nHost: acme.localhost\r\nX-Service-Token: %s\r\n\r\n", token); err != nil {
			t.Fatal(err)
		}
		if resp, err := http.ReadResponse(answers, nil); err != nil || resp.StatusCode != http.StatusOK {
			t.Errorf("on the same connection, after the next process was killed: %v %v, want 200", resp, err)
		}
		_ = c.Close()
		log.await(t, "the new process ended before it was ready")
		first.signal(t, syscall.SIGTERM)
		if code, text := first.wait(t); code != 0 {
			t.Errorf("killed %s: the first server ended with %d: %s%s", killed, code, text, log.String())
		}
	}
}

// syncBuffer is a buffer that one process writes and the test reads.
type syncBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (s *syncBuffer) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.Write(p)
}

func (s *syncBuffer) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.String()
}

// await waits until the buffer has a text.
func (s *syncBuffer) await(t *testing.T, text string) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); !strings.Contains(s.String(), text); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("the log does not contain %q: %s", text, s)
		}
	}
}

// TestTakeover_OtherUser: another user is told whose the folder is, and not that no server uses it.
func TestTakeover_OtherUser(t *testing.T) {
	t.Parallel()
	if os.Getuid() != 0 || runtime.GOOS != "linux" {
		t.Skip("only root can start a process of another user")
	}
	dir, _ := installation(t)
	if err := os.Chmod(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	program, err := os.Open(os.Args[0])
	if err != nil {
		t.Fatal(err)
	}
	defer program.Close()
	other, err := net.Listen("tcp", "127.0.0.1:0") // as that of the server of the folder's user
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	for flag, address := range map[string]string{"--takeover=true": "127.0.0.1:0", "--takeover=false": other.Addr().String()} {
		server, failed := start(t, func(cmd *exec.Cmd) {
			cmd.Path, cmd.ExtraFiles = "/proc/self/fd/3", []*os.File{program} // the folder of the program may be private, too
			cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
		}, "--data", dir, "--listen", address, "--admin-listen", "", flag)
		if server != nil {
			t.Fatal("the server of another user started")
		}
		code, text := failed.wait(t)
		if code != 1 || !strings.Contains(text, "run this as the user that owns") || strings.Contains(text, "no server") {
			t.Errorf("%s: the server of another user ended with %d: %s", flag, code, text)
		}
	}
}
