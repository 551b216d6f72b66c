package operations

import (
	"bufio"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"tenantry/backends/store"
	"tenantry/config"
	"tenantry/crypto/keyring"
	"tenantry/gateway"
	"tenantry/gateway/control"
	"tenantry/gateway/gatewaytest"
	"tenantry/gateway/tests/fixture"
	"tenantry/tenants"
)

// running is an App that a test stops.
type running struct {
	*gateway.App
	stop  context.CancelFunc
	ended chan error
}

func startApp(t testing.TB, cfg config.Config) *running {
	t.Helper()
	app, err := gateway.New(t.Context(), cfg, gateway.Options{Holder: "a test", Version: "test", Init: true})
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.WithoutCancel(t.Context()))
	r := &running{App: app, stop: stop, ended: make(chan error, 1)}
	go func() { r.ended <- app.Run(ctx) }()
	t.Cleanup(func() {
		stop()
		_ = app.Close() // the test has looked at the error
	})
	return r
}

// end stops the App and returns what Run returned.
func (r *running) end(t testing.TB, within time.Duration) error {
	t.Helper()
	r.stop()
	select {
	case err := <-r.ended:
		return err
	case <-time.After(within):
		t.Fatalf("Run has not ended after %s, want an end", within)
		return nil
	}
}

const signInHead = "POST /auth/sign-in HTTP/1.1\r\nHost: acme.localhost\r\nContent-Type: application/json\r\nContent-Length: 40\r\n\r\n"

// beginBody sends the beginning of a sign-in and waits until it is read, because a request that was not read when the
// stop begins is not running.
func beginBody(t *testing.T, conn net.Conn, begin string) {
	t.Helper()
	fixture.Send(t, conn, strings.Replace(signInHead, "\r\n\r\n", "\r\nExpect: 100-continue\r\n\r\n", 1))
	resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil || resp.StatusCode != http.StatusContinue {
		t.Fatalf("got %v %v, want no error and resp.StatusCode = %v", resp, err, http.StatusContinue)
	}
	fixture.Send(t, conn, begin)
}

// TestGracefulStop checks that a running request is answered and a new one is refused.
func TestGracefulStop(t *testing.T) {
	t.Parallel()
	app := startApp(t, fixture.Config(t))
	conn := fixture.Dial(t, app.Addr())
	beginBody(t, conn, `{"email":"a@example.com",`)
	idle := fixture.Dial(t, app.Addr())
	fixture.Send(t, idle, "GET /api/none HTTP/1.1\r\nHost: acme.localhost\r\n\r\n")
	if resp, err := http.ReadResponse(bufio.NewReader(idle), nil); err != nil || resp.StatusCode != http.StatusNotFound {
		t.Fatalf("got %v %v, want no error and resp.StatusCode = %v", resp, err, http.StatusNotFound)
	}
	app.stop()
	awaitRefusal(t, app.Addr())
	select {
	case err := <-app.ended:
		t.Fatalf("Run ended with %v while a request was running, want it to wait", err)
	case <-time.After(100 * time.Millisecond):
	}
	fixture.Send(t, conn, `"password":"x"}`)
	resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		t.Fatalf("the running request was not answered: got %v, want no error", err)
	}
	body, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode != http.StatusForbidden || !strings.HasPrefix(string(body), `{"status":"failed"`) {
		t.Errorf(`got %d %s %v, want no error and resp.StatusCode = %v and beginning with "{\"status\":\"failed\""`,
			resp.StatusCode, body, err, http.StatusForbidden)
	}
	if err := app.end(t, 30*time.Second); err != nil {
		t.Errorf("Run: got %v, want no error", err)
	}
	if err := app.Close(); err != nil {
		t.Errorf("Close: got %v, want no error", err)
	}
	if err := app.Close(); err != nil {
		t.Errorf("Close again: got %v, want no error", err)
	}
}

// TestStopDoesNotWaitForTheOtherListener checks that a stopping gateway accepts no more requests while a profile is
// taken on the other listener, and that running requests get their time.
func TestStopDoesNotWaitForTheOtherListener(t *testing.T) {
	t.Parallel()
	cfg := fixture.Config(t)
	cfg.Admin.Pprof, cfg.Timeouts.Shutdown = true, time.Minute
	app := startApp(t, cfg)
	profile := fixture.Dial(t, app.AdminAddr())
	fixture.Send(t, profile, "GET /debug/pprof/heap?seconds=60 HTTP/1.1\r\nHost: localhost\r\n\r\n")
	for deadline := time.Now().Add(20 * time.Second); ; time.Sleep(5 * time.Millisecond) {
		resp, err := http.Get("http://" + app.AdminAddr().String() + "/debug/pprof/goroutine?debug=2")
		if err != nil {
			t.Fatal(err)
		}
		running, err := io.ReadAll(resp.Body)
		if err = errors.Join(err, resp.Body.Close()); err != nil || time.Now().After(deadline) {
			t.Fatalf("got no profile, want one: %v", err)
		}
		if strings.Contains(string(running), "serveDeltaProfile") {
			break
		}
	}
	conn := fixture.Dial(t, app.Addr())
	beginBody(t, conn, `{"email":"a@example.com",`)
	app.stop()
	awaitRefusal(t, app.Addr())
	fixture.Send(t, conn, `"password":"x"}`)
	if resp, err := http.ReadResponse(bufio.NewReader(conn), nil); err != nil || resp.StatusCode != http.StatusForbidden {
		t.Errorf("the running request was not answered: got %v %v, want no error and 403", resp, err)
	}
	_ = profile.Close() // whose end nobody needs to see
	if err := app.end(t, 30*time.Second); err != nil {
		t.Errorf("Run: got %v, want no error", err)
	}
}

// awaitRefusal waits until the address accepts no connections.
func awaitRefusal(t testing.TB, address net.Addr) {
	t.Helper()
	refused := func() bool {
		c, err := net.DialTimeout("tcp", address.String(), time.Second)
		if err == nil {
			_ = c.Close() // it was accepted before the listener closed
		}
		return err != nil
	}
	for deadline := time.Now().Add(15 * time.Second); !refused(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("got new connections accepted, want them refused")
		}
	}
}

// TestStopCutsAStuckClient checks that the stop ends within its time.
func TestStopCutsAStuckClient(t *testing.T) {
	t.Parallel()
	cfg := fixture.Config(t)
	cfg.Timeouts.Shutdown = 300 * time.Millisecond
	app := startApp(t, cfg)
	conn := fixture.Dial(t, app.Addr())
	beginBody(t, conn, `{"email":`)
	started := time.Now()
	err := app.end(t, 30*time.Second)
	if took := time.Since(started); took > 20*time.Second {
		t.Errorf("the stop took %s, want at most 20 s", took)
	}
	if err == nil || !strings.Contains(err.Error(), "requests were cut after 300ms") {
		t.Errorf("Run: got %v, want an error with %q", err, "requests were cut after 300ms")
	}
	if _, err := io.ReadAll(conn); err != nil && !strings.Contains(err.Error(), "reset") {
		t.Errorf("reading: got %v, want the connection closed", err)
	}
	if err := app.Close(); err != nil {
		t.Errorf("Close: got %v, want no error", err)
	}
}

// TestNothingIsLeftRunning runs alone, because concurrent tests have goroutines of their own.
func TestNothingIsLeftRunning(t *testing.T) { //nolint:paralleltest // see above
	before := goleak.IgnoreCurrent()
	cfg := fixture.Config(t)
	for range 2 {
		app := startApp(t, cfg)
		conn := fixture.Dial(t, app.Addr())
		fixture.Send(t, conn, "GET /api/users/1 HTTP/1.1\r\nHost: acme.localhost\r\n\r\n")
		if resp, err := http.ReadResponse(bufio.NewReader(conn), nil); err != nil || resp.StatusCode != http.StatusForbidden {
			t.Fatalf("got %v %v, want no error and resp.StatusCode = %v", resp, err, http.StatusForbidden)
		}
		commands := app.Commands()
		if _, err := control.Call[[]control.Organization](t.Context(), commands, "org.list", control.OrganizationPage{Limit: 10}); err != nil {
			t.Fatal(err)
		}
		commands.Close()
		if err := app.end(t, 30*time.Second); err != nil {
			t.Fatal(err)
		}
		if err := app.Close(); err != nil {
			t.Fatal(err)
		}
	}
	// Opened but never run.
	app, err := gateway.New(t.Context(), cfg, gateway.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if err := app.Close(); err != nil {
		t.Fatal(err)
	}
	goleak.VerifyNone(t, before)
}

func TestSecondProcessOnTheFolderIsRefused(t *testing.T) {
	t.Parallel()
	cfg := fixture.Config(t)
	first := startApp(t, cfg)
	for name, open := range map[string]func() error{
		"gateway": func() error { _, err := gateway.New(t.Context(), cfg, gateway.Options{Holder: "another"}); return err },
		"command": func() error {
			_, err := gateway.OpenServices(t.Context(), cfg, gateway.Options{Holder: "another"})
			return err
		},
	} {
		err := open()
		var inUse *gateway.InUseError
		if !errors.As(err, &inUse) {
			t.Fatalf("%s: got %v, want an error of the type of inUse", name, err)
		}
		if inUse.Holder.What != "a test" || inUse.Holder.PID != os.Getpid() || inUse.Holder.Listen != first.Addr().String() || inUse.Folder != cfg.Data {
			t.Errorf(`%s: got %+v, want inUse.Holder.What = "a test" and inUse.Folder = %v`, name, inUse, cfg.Data)
		}
		for _, part := range []string{cfg.Data, "a test", first.Addr().String(), "--data"} {
			if !strings.Contains(err.Error(), part) {
				t.Errorf("%s: the message does not name %s: got %v, want it there", name, part, err)
			}
		}
	}
	if err := first.end(t, 30*time.Second); err != nil {
		t.Fatal(err)
	}
	if err := first.Close(); err != nil {
		t.Fatal(err)
	}
	if err := startApp(t, cfg).end(t, 30*time.Second); err != nil {
		t.Errorf("after the first has ended: got %v, want no error", err)
	}
}

// fingerprint returns a hash of every file below a folder.
func fingerprint(t *testing.T, folder string) map[string]string {
	t.Helper()
	sums := map[string]string{}
	err := filepath.WalkDir(folder, func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() || strings.HasSuffix(path, "-shm") { // an index that SQLite makes anew
			return err
		}
		raw, err := os.ReadFile(path)
		sums[path] = fmt.Sprintf("%x", sha256.Sum256(raw))
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return sums
}

// TestFolderOfANewerVersionIsRefused checks that the message is clear and nothing is changed.
func TestFolderOfANewerVersionIsRefused(t *testing.T) {
	t.Parallel()
	g := gatewaytest.Start(t, gatewaytest.OwnFiles)
	g.Org(t, "acme")
	g.Stop(t)
	cfg := g.Config
	for _, name := range []string{"control.db", "org-1.db"} {
		if _, err := os.Stat(filepath.Join(cfg.Data, "db", name)); err != nil {
			t.Fatal(err)
		}
	}
	path := filepath.Join(cfg.Data, "db", "control.db")
	raw, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	copy(raw[60:64], []byte{0, 0, 1, 0}) // user_version in the header of a SQLite file
	if err := os.WriteFile(path, raw, 0o600); err != nil {
		t.Fatal(err)
	}
	before := fingerprint(t, cfg.Data)
	app, err := gateway.New(t.Context(), cfg, gateway.Options{})
	if err == nil {
		_ = app.Close() // it should not be there
		t.Fatal("opening a folder of a newer version: got no error, want one")
	}
	if !errors.Is(err, store.ErrNewer) || !strings.Contains(err.Error(), path) || !strings.Contains(err.Error(), "256") {
		t.Errorf(`got %v, want the error store.ErrNewer and containing %q and containing "256"`, err, path)
	}
	if diff := cmp.Diff(before, fingerprint(t, cfg.Data)); diff != "" {
		t.Errorf("the folder was changed: got %s, want no diff", diff)
	}
}

func TestMissingKeyringIsRefusedWhereThereIsData(t *testing.T) {
	t.Parallel()
	g := gatewaytest.Start(t)
	g.Org(t, "acme")
	g.Stop(t)
	kept, err := os.ReadFile(g.Config.KeyringPath())
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(g.Config.KeyringPath()); err != nil {
		t.Fatal(err)
	}
	_, err = gateway.New(t.Context(), g.Config, gateway.Options{})
	if err == nil || !strings.Contains(err.Error(), g.Config.KeyringPath()) || !strings.Contains(err.Error(), "put it back") {
		t.Fatalf(`got %v, want an error and containing "put it back"`, err)
	}
	if _, err := os.Stat(g.Config.KeyringPath()); !errors.Is(err, fs.ErrNotExist) {
		t.Error("got a new keyring, want none")
	}
	if _, err := keyring.Create(g.Config.KeyringPath()); err != nil {
		t.Fatal(err)
	}
	if app, err := gateway.New(t.Context(), g.Config, gateway.Options{}); !errors.Is(err, tenants.ErrForeignKeyring) {
		t.Errorf("another keyring: got %v, want the error %v", err, tenants.ErrForeignKeyring)
		if err == nil {
			_ = app.Close() // it should not be there
		}
	}
	if err := os.WriteFile(g.Config.KeyringPath(), kept, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := startApp(t, g.Config).end(t, 30*time.Second); err != nil {
		t.Errorf("with the keyring back: got %v, want no error", err)
	}
}

// TestKeyringOfAReplicaThatStartsMeanwhile has another replica make the keyring and its proof after this one looked.
func TestKeyringOfAReplicaThatStartsMeanwhile(t *testing.T) {
	t.Parallel()
	g := gatewaytest.Start(t)
	g.Org(t, "acme")
	g.Stop(t)
	path := g.Config.KeyringPath()
	apart := filepath.Join(t.TempDir(), "keyring")
	if err := os.Rename(path, apart); err != nil {
		t.Fatal(err)
	}
	var once sync.Once
	app, err := gateway.New(t.Context(), g.Config, gateway.Options{Observe: func(c store.Call) {
		if c.Collection == "installations" {
			once.Do(func() {
				if err := os.Rename(apart, path); err != nil {
					t.Error(err)
				}
			})
		}
	}})
	if err != nil {
		t.Fatal(err)
	}
	if err := app.Close(); err != nil {
		t.Error(err)
	}
}

func TestRestartServesTheSameData(t *testing.T) {
	t.Parallel()
	g := gatewaytest.Start(t)
	acme := g.Org(t, "acme")
	acme.Import(t, `{"kind":"folder","id":"65f0000000000000000000f1","name":"Plans"}`)
	key := acme.Key(t, tenants.ManageFiles)
	path := "/api/files/folders/65f0000000000000000000f1"
	before := acme.Get(t, key, path)
	if before.Code != http.StatusOK {
		t.Fatalf("got %d %s, want %v", before.Code, before.Body, http.StatusOK)
	}
	g.Stop(t)
	again := gatewaytest.Start(t, func(c *config.Config, _ *gateway.Options) {
		c.Data, c.Backends = g.Config.Data, g.Config.Backends
	})
	after := again.Do(t, http.MethodGet, acme.Host, path, gatewaytest.WithKey(key))
	if after.Code != http.StatusOK || after.Text() != before.Text() {
		t.Errorf("got %[2]d %[3]s\nwant 200 %[1]s", before.Body, after.Code, after.Body)
	}
}

func shortTimeouts(t *testing.T) config.Config {
	t.Helper()
	cfg := fixture.Config(t)
	cfg.Timeouts.ReadHeader, cfg.Timeouts.Read, cfg.Timeouts.Write, cfg.Timeouts.Idle = 200*time.Millisecond, 500*time.Millisecond, 700*time.Millisecond, 300*time.Millisecond
	return cfg
}

// TestSlowClientsAreCut checks that slow headers, bodies, readers and idle connections end in time.
func TestSlowClientsAreCut(t *testing.T) {
	t.Parallel()
	app := startApp(t, shortTimeouts(t))
	cut := func(t *testing.T, conn net.Conn) string {
		t.Helper()
		started := time.Now()
		answer, err := io.ReadAll(conn)
		var timeout net.Error
		if errors.As(err, &timeout) && timeout.Timeout() {
			t.Fatal("got an open connection, want it closed")
		}
		if took := time.Since(started); took > 10*time.Second {
			t.Errorf("it took %s, want at most 10 s", took)
		}
		return string(answer)
	}
	t.Run("headers", func(t *testing.T) {
		t.Parallel()
		conn := fixture.Dial(t, app.Addr())
		fixture.Send(t, conn, "GET /api/users/1 HTTP/1.1\r\nHost: acme.localhost\r\nX-A: ")
		cut(t, conn)
	})
	t.Run("body", func(t *testing.T) {
		t.Parallel()
		conn := fixture.Dial(t, app.Addr())
		fixture.Send(t, conn, signInHead+`{"email":`)
		if answer := cut(t, conn); answer != "" && !strings.Contains(answer, `{"status":"failed"`) {
			t.Errorf("answer = %q, want none or a failure", answer)
		}
	})
	t.Run("reader", func(t *testing.T) {
		t.Parallel()
		conn := fixture.Dial(t, app.Addr())
		request := strings.Repeat("GET /api/openapi.json HTTP/1.1\r\nHost: acme.localhost\r\n\r\n", 50)
		for deadline := time.Now().Add(15 * time.Second); ; {
			if _, err := io.WriteString(conn, request); err != nil {
				var timeout net.Error
				if errors.As(err, &timeout) && timeout.Timeout() {
					t.Error("got an open connection of a client that reads nothing, want it closed")
				}
				return
			}
			if time.Now().After(deadline) {
				t.Fatal("got requests accepted from a client that reads nothing, want an end")
			}
		}
	})
	t.Run("idle", func(t *testing.T) {
		t.Parallel()
		cfg := fixture.Config(t)
		cfg.Timeouts.Idle = 300 * time.Millisecond
		conn := fixture.Dial(t, startApp(t, cfg).Addr())
		fixture.Send(t, conn, "GET /api/none HTTP/1.1\r\nHost: acme.localhost\r\n\r\n")
		if answer := cut(t, conn); !strings.HasPrefix(answer, "HTTP/1.1 404") {
			t.Errorf("answer %q, want it beginning with %q", answer, "HTTP/1.1 404")
		}
	})
}

func TestHeadersAreBounded(t *testing.T) {
	t.Parallel()
	app := startApp(t, fixture.Config(t))
	for _, test := range []struct {
		size int
		code int
	}{{100 << 10, http.StatusNotFound}, {200 << 10, http.StatusRequestHeaderFieldsTooLarge}} {
		conn := fixture.Dial(t, app.Addr())
		go func() { // the server answers before it has read everything
			_, _ = io.WriteString(conn, "GET /api/none HTTP/1.1\r\nHost: acme.localhost\r\nX-A: "+strings.Repeat("x", test.size)+"\r\n\r\n")
		}()
		resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
		if err != nil || resp.StatusCode != test.code {
			t.Errorf("%d bytes: got %v %v, want no error and %d", test.size, resp, err, test.code)
		}
	}
}

// TestBodyLimitHoldsWhileStreaming sends an endless body and expects an answer before its end.
func TestBodyLimitHoldsWhileStreaming(t *testing.T) {
	t.Parallel()
	g := gatewaytest.Start(t)
	g.Org(t, "acme")
	conn := fixture.Dial(t, g.App.Addr())
	fixture.Send(t, conn, "POST /auth/sign-in HTTP/1.1\r\nHost: acme.localhost\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n{\"\r\n")
	sent := make(chan int, 1)
	go func() {
		n := 0
		chunk := "1000\r\n" + strings.Repeat("x", 0x1000) + "\r\n"
		for n < 1<<30 {
			if _, err := io.WriteString(conn, chunk); err != nil {
				break
			}
			n += len(chunk)
		}
		sent <- n
	}()
	resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		t.Fatal(err)
	}
	body, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode != http.StatusRequestEntityTooLarge || !resp.Close || !strings.HasPrefix(string(body), `{"status":"failed","message":"The body is larger than 8192 bytes"`) {
		t.Errorf("got %d close=%t %s %v, want 413 with the connection closed", resp.StatusCode, resp.Close, body, err)
	}
	select {
	case n := <-sent:
		if n > 64<<20 {
			t.Errorf("%d bytes were accepted, want at most 64 MiB", n)
		}
	case <-time.After(time.Minute):
		t.Error("got an open connection, want it closed")
	}
}

// BenchmarkStart opens a folder with data and reports the memory of an idle gateway.
func BenchmarkStart(b *testing.B) {
	g := gatewaytest.Start(b)
	acme := g.Org(b, "acme")
	acme.Import(b, `{"kind":"folder","name":"Plans"}`)
	g.Stop(b)
	var heap, before runtime.MemStats
	for b.Loop() {
		b.StopTimer()
		runtime.GC()
		runtime.ReadMemStats(&before)
		b.StartTimer()
		app, err := gateway.New(b.Context(), g.Config, gateway.Options{})
		if err != nil {
			b.Fatal(err)
		}
		b.StopTimer()
		runtime.GC()
		runtime.ReadMemStats(&heap)
		if err := app.Close(); err != nil {
			b.Fatal(err)
		}
		b.StartTimer()
	}
	b.ReportMetric(float64(heap.HeapAlloc-min(before.HeapAlloc, heap.HeapAlloc))/(1<<20), "idle-heap-MB")
	b.ReportMetric(float64(b.Elapsed().Milliseconds())/float64(b.N), "ms/start")
}
