package operations

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"tenantry/config"
	"tenantry/gateway"
	"tenantry/gateway/control"
	"tenantry/gateway/gatewaytest"
	"tenantry/gateway/tests/fixture"
	"tenantry/tenants"
)

// childVariable tells a test that it runs in a child process, and in which role.
const childVariable = "TENANTRY_TEST_CHILD"

// inChild runs the calling test alone in a child process, because limits and mounts apply to a whole process.
func inChild(t *testing.T, role string, attr *syscall.SysProcAttr) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^"+t.Name()+"$", "-test.v", "-test.timeout=90s")
	cmd.Env = append(os.Environ(), childVariable+"="+role)
	cmd.SysProcAttr = attr
	out, err := cmd.CombinedOutput()
	if errors.Is(err, syscall.EPERM) || strings.Contains(string(out), "--- SKIP: "+t.Name()) {
		t.Skipf("not permitted here: %v\n%s", err, out)
	}
	if err != nil || !strings.Contains(string(out), "--- PASS: "+t.Name()) {
		t.Errorf("the child process: got %v, want it to pass\n%s", err, out)
	}
}

// TestWritesFailAtAFileSizeLimit limits the size of files, like a used-up quota.
func TestWritesFailAtAFileSizeLimit(t *testing.T) {
	t.Parallel()
	if os.Getenv(childVariable) != "file-size" {
		inChild(t, "file-size", nil)
		return
	}
	signal.Ignore(syscall.SIGXFSZ) // a write then fails instead of ending the process
	var free syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_FSIZE, &free); err != nil {
		t.Fatal(err)
	}
	limit := func(n uint64) {
		if err := syscall.Setrlimit(syscall.RLIMIT_FSIZE, &syscall.Rlimit{Cur: n, Max: free.Max}); err != nil {
			t.Fatal(err)
		}
	}
	checkDiskFull(t, t.TempDir(), func() { limit(0) }, func() { limit(free.Cur) })
}

// TestWritesFailOnAFullDisk uses a small file system, for which it needs root.
func TestWritesFailOnAFullDisk(t *testing.T) {
	t.Parallel()
	if os.Getenv(childVariable) != "disk" {
		if os.Geteuid() != 0 {
			t.Skip("mounting a file system takes root")
		}
		inChild(t, "disk", &syscall.SysProcAttr{Unshareflags: syscall.CLONE_NEWNS})
		return
	}
	folder := t.TempDir()
	if err := syscall.Mount("tmpfs", folder, "tmpfs", 0, "size=16m"); err != nil {
		t.Skipf("mounting: %v", err)
	}
	t.Cleanup(func() {
		if err := syscall.Unmount(folder, syscall.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	filler := filepath.Join(folder, "filler")
	fill := func() {
		f, err := os.Create(filler)
		if err != nil {
			t.Fatal(err)
		}
		block := make([]byte, 4096)
		for err == nil {
			_, err = f.Write(block)
		}
		if !errors.Is(err, syscall.ENOSPC) {
			t.Fatal(err)
		}
		if err := f.Close(); err != nil {
			t.Fatal(err)
		}
	}
	checkDiskFull(t, folder, fill, func() {
		if err := os.Remove(filler); err != nil {
			t.Fatal(err)
		}
	})
}

// checkDiskFull checks that writes answer 503 while there is no room, that reads continue, and that acknowledged writes
// exist when there is room again, without a restart.
func checkDiskFull(t *testing.T, folder string, fill, free func()) {
	t.Helper()
	g := gatewaytest.Start(t, gatewaytest.Embedded, func(c *config.Config, _ *gateway.Options) { c.Data = filepath.Join(folder, "data") })
	acme := g.Org(t, "acme")
	acme.Import(t, `{"kind":"folder","id":"65f0000000000000000000f1","name":"Plans"}`)
	key := acme.Key(t, tenants.ManageFiles, tenants.ManageCustomObjects)
	create := func(n int) *gatewaytest.Answer {
		name := fmt.Sprintf("thing%d", n)
		return acme.Do(t, http.MethodPost, "/api/custom/objects", gatewaytest.WithKey(key),
			gatewaytest.JSON(map[string]string{"name": name, "label": name, "label_plural": name + "s"}))
	}
	read := func(when string) {
		t.Helper()
		if a := acme.Get(t, key, "/api/files/folders/65f0000000000000000000f1"); a.Code != http.StatusOK {
			t.Errorf("reading %s: got %d %s, want 200", when, a.Code, a.Body)
		}
	}
	if a := create(0); a.Code != http.StatusOK {
		t.Fatalf("got %d %s, want %v", a.Code, a.Body, http.StatusOK)
	}
	read("before")
	fill()
	for n := 1; n < 6; n++ {
		a := create(n)
		if a.Code != http.StatusServiceUnavailable || a.Status != "failed" || a.Header.Get("Retry-After") == "" {
			t.Errorf("writing without room: got %d %v %s, want 503, the status failed and a header Retry-After",
				a.Code, a.Header, a.Body)
		}
		read("without room")
	}
	// Taking the gateway out of service would also stop reads.
	if code, r := fixture.Ready(t, g); code != http.StatusOK || r.Status != "degraded" || r.Checks["store"] != "read-only" {
		t.Errorf("ready without room: got %d %+v, want 200, the status degraded and store read-only", code, r)
	}
	if found := fixture.Findings(t, g, control.Examination{Quick: true}); !slices.ContainsFunc(found, func(f control.Finding) bool {
		return f.Verdict == control.Wrong && strings.Contains(f.Says, "cannot write: ")
	}) {
		t.Errorf("doctor without room: got %+v, want the store read-only", found)
	}
	free()
	if code, r := fixture.Ready(t, g); code != http.StatusOK || r.Status != "ok" {
		t.Errorf("ready with room again: got %d %+v, want 200 and the status ok", code, r)
	}
	if a := create(6); a.Code != http.StatusOK {
		t.Errorf("writing with room again: got %d %s, want 200", a.Code, a.Body)
	}
	if a := create(0); a.Code != http.StatusConflict {
		t.Errorf("what was acknowledged before is gone: got %d %s, want 409", a.Code, a.Body)
	}
	if a := create(3); a.Code != http.StatusOK {
		t.Errorf("what was refused is there: got %d %s, want 200", a.Code, a.Body)
	}
	read("with room again")
}

// listening returns the addresses of this process's listening TCP sockets and the paths of its Unix sockets.
func listening(t *testing.T) (tcp, unix []string) {
	t.Helper()
	own := map[string]bool{}
	descriptors, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Skipf("no /proc here: %v", err)
	}
	for _, d := range descriptors {
		if target, err := os.Readlink("/proc/self/fd/" + d.Name()); err == nil {
			if inode, ok := strings.CutPrefix(target, "socket:["); ok {
				own[strings.TrimSuffix(inode, "]")] = true
			}
		}
	}
	for _, table := range []string{"tcp", "tcp6"} {
		for _, f := range socketTable(t, table) {
			if len(f) > 9 && f[3] == "0A" && own[f[9]] {
				tcp = append(tcp, f[1])
			}
		}
	}
	for _, f := range socketTable(t, "unix") {
		if len(f) > 7 && f[3] == "00010000" && own[f[6]] {
			unix = append(unix, f[7])
		}
	}
	return tcp, unix
}

func socketTable(t *testing.T, name string) [][]string {
	t.Helper()
	raw, err := os.ReadFile("/proc/self/net/" + name)
	if err != nil {
		t.Skipf("no /proc here: %v", err)
	}
	var rows [][]string
	for line := range strings.Lines(string(raw)) {
		rows = append(rows, strings.Fields(line))
	}
	return rows
}

// TestOnlyConfiguredSocketsListen runs in a child process, because other tests listen too.
func TestOnlyConfiguredSocketsListen(t *testing.T) {
	t.Parallel()
	if os.Getenv(childVariable) != "sockets" {
		inChild(t, "sockets", nil)
		return
	}
	for _, admin := range []bool{true, false} {
		cfg := fixture.Config(t)
		if !admin {
			cfg.AdminListen = ""
		}
		app := startApp(t, cfg)
		port := func(a fmt.Stringer) string {
			_, text, _ := strings.Cut(a.String(), ":")
			var n int
			_, _ = fmt.Sscan(text, &n) // a wrong number is found below
			return fmt.Sprintf("0100007F:%04X", n)
		}
		want := []string{port(app.Addr())}
		if admin {
			want = append(want, port(app.AdminAddr()))
		} else if app.AdminAddr() != nil {
			t.Error("got an address of health and metrics although it is off, want none")
		}
		tcp, unix := listening(t)
		slices.Sort(want)
		slices.Sort(tcp)
		if !slices.Equal(tcp, want) {
			t.Errorf("listens on %v, configured are %v", tcp, want)
		}
		holder, err := gateway.ReadHolder(cfg.Data)
		if err != nil {
			t.Fatal(err)
		}
		if len(unix) != 1 || unix[0] != holder.Control || !strings.HasPrefix(holder.Control, cfg.Data) {
			t.Errorf("got the Unix sockets %v, want %s only", unix, holder.Control)
		}
		info, err := os.Stat(holder.Control)
		if err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("the control socket: got %v %v, want the mode 0600", info, err)
		}
		if err := app.end(t, 30*time.Second); err != nil {
			t.Error(err)
		}
		if err := app.Close(); err != nil {
			t.Error(err)
		}
		if tcp, unix = listening(t); len(tcp)+len(unix) > 0 {
			t.Errorf("after the end: got the sockets %v %v, want none", tcp, unix)
		}
	}
}

// TestHolderFileTellsTheControlSocket checks that commands can find the server through the data folder.
func TestHolderFileTellsTheControlSocket(t *testing.T) {
	t.Parallel()
	cfg := fixture.Config(t)
	cfg.Data = filepath.Join(cfg.Data, strings.Repeat("long-", 30)) // too long for the path of a socket
	app := startApp(t, cfg)
	raw, err := os.ReadFile(filepath.Join(cfg.Data, "tenantry.json"))
	if err != nil {
		t.Fatal(err)
	}
	var holder gateway.Holder
	if err := json.Unmarshal(raw, &holder); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(holder.Control); err != nil || len(holder.Control) > 100 {
		t.Errorf("%s: got %v, want no error and len(holder.Control) <= 100", holder.Control, err)
	}
	if err := app.end(t, 30*time.Second); err != nil {
		t.Error(err)
	}
	if err := app.Close(); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(filepath.Dir(holder.Control)); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the socket's folder is left: got %v, want the error %v", err, os.ErrNotExist)
	}
	if _, err := gateway.ReadHolder(cfg.Data); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a holder is named after the end: got %v, want the error %v", err, os.ErrNotExist)
	}
}
