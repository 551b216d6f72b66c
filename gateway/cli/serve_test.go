package cli_test

import (
	"fmt"
	"io/fs"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"zombiezen.com/go/sqlite"
	"zombiezen.com/go/sqlite/sqlitex"

	"tenantry/config"
	"tenantry/gateway"
	"tenantry/gateway/control"
)

const countPath = "/api/campaigns/count"

// beginOrg makes an organization with a key and returns the key.
func beginOrg(t *testing.T, dir, slug string) control.IssuedKey {
	t.Helper()
	must[control.Organization](t, "", "org", "create", "--slug", slug, "--name", slug, "--data", dir)
	return must[control.IssuedKey](t, "", "key", "create", "--org", slug, "--name", "k", "--kind", "server_full", "--permission", "contacts", "--data", dir)
}

func TestServe_ChangesHoldAtOnce(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "data")
	p, addr, admin := serve(t, dir)
	if code, body := ask(t, admin, "", "/readyz", ""); code != 200 {
		t.Errorf("readyz: %d %s", code, body)
	}
	key := beginOrg(t, dir, "acme")
	accepted := func(want int) {
		t.Helper()
		if code, body := ask(t, addr, "acme", countPath, key.Token); code != want {
			t.Errorf("GET %s = %d, want %d: %s", countPath, code, want, body)
		}
	}
	accepted(200)
	accepted(200) // from the caches
	must[control.Organization](t, "", "org", "suspend", "acme", "--data", dir)
	accepted(403)
	must[control.Organization](t, "", "org", "resume", "acme", "--data", dir)
	accepted(200)
	must[control.Key](t, "", "key", "revoke", key.ID, "--org", "acme", "--data", dir)
	accepted(403)
	if code := p.end(t); code != 0 {
		t.Errorf("serve ended with %d: %s", code, p.stderr)
	}
	if n := strings.Count(p.stdout.String(), "\n"); n != 1 {
		t.Errorf("serve printed %d lines", n)
	}
	if strings.Contains(p.stderr.String(), key.Token) {
		t.Error("the log holds a token")
	}
	if err := contains(p.stderr.String(), `"msg":"the gateway is ready","version":`, `"listen":"`+addr, `"msg":"the gateway has ended","cause":`); err != nil {
		t.Errorf("the log does not say when the gateway was ready and when it ended: %v", err)
	}
	found := must[[]control.Key](t, "", "key", "list", "--org", "acme", "--data", dir)
	if len(found) != 1 || found[0].State != "revoked" {
		t.Errorf("after the server ended: %+v", found)
	}
}

// TestUserLink checks that the link of a new user leads to the running server and sets a password once.
func TestUserLink(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "data")
	_, addr, _ := serve(t, dir)
	must[control.Organization](t, "", "org", "create", "--slug", "acme", "--name", "Acme", "--data", dir)
	made := must[control.User](t, "", "user", "create", "--org", "acme", "--email", "ada@example.com", "--name", "Ada", "--data", dir)
	_, port, _ := net.SplitHostPort(addr)
	token, ok := strings.CutPrefix(made.Link, "http://acme.localhost:"+port+"/welcome#")
	if !ok || made.LinkExpiresAt == nil {
		t.Fatalf("the link is %q until %v", made.Link, made.LinkExpiresAt)
	}
	if code, body := ask(t, addr, "acme", "/welcome", ""); code != 200 {
		t.Errorf("the page of the link: %d %s", code, body)
	}
	body := fmt.Sprintf(`{"token": %q, "password": "correct horse battery staple"}`, token)
	for _, want := range []int{200, 403} {
		if code, answer := send(t, http.MethodPost, addr, "acme", "/auth/password", "", body); code != want {
			t.Errorf("choosing a password: %d, want %d: %s", code, want, answer)
		}
	}
	signIn := `{"email": "ada@example.com", "password": "correct horse battery staple"}`
	if code, answer := send(t, http.MethodPost, addr, "acme", "/auth/sign-in", "", signIn); code != 200 {
		t.Errorf("signing in: %d %s", code, answer)
	}
	must[control.User](t, "", "user", "deactivate", "1", "--org", "acme", "--data", dir)
	if code, answer := send(t, http.MethodPost, addr, "acme", "/auth/sign-in", "", signIn); code != 403 {
		t.Errorf("signing in after the deactivation: %d %s", code, answer)
	}
}

func TestServe_SecondProcessIsRefused(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "data")
	_, addr, _ := serve(t, dir)
	second := run(t, "", "serve", "--data", dir, "--listen", "127.0.0.1:0", "--admin-listen", "")
	if second.code != 1 || second.stdout != "" {
		t.Errorf("exit %d %q", second.code, second.stdout)
	}
	for _, a := range []answer{second, run(t, "", "serve", "--data", dir, "--listen", addr, "--admin-listen", "")} {
		if err := contains(a.stderr, dir, "tenantry serve", fmt.Sprintf("process %d", os.Getpid()), addr, "stop it"); err != nil || a.code != 1 {
			t.Errorf("exit %d: %v", a.code, err)
		}
	}
	other := run(t, "", "serve", "--data", t.TempDir(), "--listen", addr, "--admin-listen", "")
	if err := contains(other.stderr, "in use", "--listen"); err != nil || other.code != 1 {
		t.Errorf("exit %d: %v", other.code, err)
	}
	none := run(t, "", "serve", "--data", t.TempDir(), "--listen", "127.0.0.1:80000", "--admin-listen", "")
	const why = "listen: cannot listen on 127.0.0.1:80000: invalid port; choose another with --listen"
	if err := contains(none.stderr, why); err != nil || none.code != 1 {
		t.Errorf("exit %d: %v", none.code, err)
	}
}

// TestCommandsWaitForOthers checks that a command and a server wait while another command holds the data folder.
func TestCommandsWaitForOthers(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "data")
	beginOrg(t, dir, "acme")
	for _, waiting := range []string{"command", "server"} {
		cfg := config.Default()
		cfg.Data = dir
		services, err := gateway.OpenServices(t.Context(), cfg, gateway.Options{Holder: "tenantry test"})
		if err != nil {
			t.Fatal(err)
		}
		released, start := make(chan error, 1), time.Now()
		hold := time.AfterFunc(300*time.Millisecond, func() { released <- services.Close() })
		if waiting == "command" {
			must[[]control.Organization](t, "", "org", "list", "--data", dir)
		} else {
			p, _, _ := serve(t, dir)
			p.end(t)
		}
		if took := time.Since(start); took < 300*time.Millisecond {
			t.Errorf("the %s took %s, want a wait of at least 300ms", waiting, took)
		}
		if hold.Stop() {
			t.Fatal("the folder is still held")
		}
		if err := <-released; err != nil {
			t.Fatal(err)
		}
	}
}

func TestServe_NewerDataIsRefused(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "data")
	beginOrg(t, dir, "acme")
	var files []string
	err := filepath.WalkDir(dir, func(path string, _ fs.DirEntry, err error) error {
		if strings.HasPrefix(filepath.Base(path), "control.") && filepath.Base(filepath.Dir(path)) == "db" && !strings.HasSuffix(path, "-wal") && !strings.HasSuffix(path, "-shm") {
			files = append(files, path)
		}
		return err
	})
	if err != nil || len(files) != 1 {
		t.Fatalf("databases: %v %v", files, err)
	}
	conn, err := sqlite.OpenConn(files[0], sqlite.OpenReadWrite)
	if err != nil {
		t.Fatal(err)
	}
	if err := sqlitex.ExecuteScript(conn, "PRAGMA user_version = 9999", nil); err != nil {
		t.Fatal(err)
	}
	if err := conn.Close(); err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{{"serve", "--listen", "127.0.0.1:0", "--admin-listen", ""}, {"org", "list"}} {
		a := run(t, "", append(args, "--data", dir)...)
		if err := contains(a.stderr, dir, "newer version", "run that version"); err != nil || a.code != 1 {
			t.Errorf("%v: exit %d: %v", args, a.code, err)
		}
	}
}

// TestServe_StaleHolder checks that the socket and the holder file of a killed server do not block the folder.
func TestServe_StaleHolder(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "data")
	beginOrg(t, dir, "acme")
	socket := filepath.Join(dir, "control.sock")
	l, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	l.(*net.UnixListener).SetUnlinkOnClose(false)
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	left := fmt.Sprintf(`{"what":"tenantry serve","pid":1,"since":"2026-01-01T00:00:00Z","listen":"127.0.0.1:8080","control":%q}`, socket)
	if err := os.WriteFile(filepath.Join(dir, "tenantry.json"), []byte(left), 0o600); err != nil {
		t.Fatal(err)
	}
	imports := filepath.Join(dir, "imports")
	if err := os.MkdirAll(imports, 0o700); err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(imports, "half"), "private")
	must[[]control.Organization](t, "", "org", "list", "--data", dir)
	if left, _ := filepath.Glob(filepath.Join(imports, "*")); len(left) > 0 {
		t.Errorf("an import that was killed left %v", left)
	}
	serve(t, dir)
	must[[]control.Organization](t, "", "org", "list", "--data", dir)
}

func TestPrintConfig(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file := filepath.Join(dir, "tenantry.yaml")
	content := "listen: 127.0.0.1:7001\nlog:\n  level: debug\nredis:\n  addrs: [127.0.0.1:6379]\n  password: hunter2-from-the-file\n"
	if err := os.WriteFile(file, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	environ := []string{"TENANTRY_LOG__FORMAT=text", "TENANTRY_LISTEN=127.0.0.1:7002", "TENANTRY_TEST_X=ignored", "HOME=/"}
	a := runWith(t, environ, "", "serve", "--print-config", "--config", file, "--listen", "127.0.0.1:7003", "--data", dir)
	if a.code != 0 {
		t.Fatalf("exit %d: %s", a.code, a.stderr)
	}
	if err := contains(a.stdout, "listen: 127.0.0.1:7003", "level: debug", "format: text", "- 127.0.0.1:6379", "redacted", "shutdown: 10s", "data: "+dir, "max_open_files: "); err != nil {
		t.Error(err)
	}
	if strings.Contains(a.stdout+a.stderr, "hunter2") {
		t.Error("the password is printed")
	}
	if strings.Contains(a.stdout, "max_open_files: 0") {
		t.Error("max_open_files is 0, want the number in force")
	}
	if entries, err := os.ReadDir(dir); err != nil || len(entries) != 1 {
		t.Errorf("printing the settings left %v (%v)", entries, err)
	}
}

// TestConfigurationFaultsAreReportedTogether checks that faults of all sources are reported at once, each with its
// setting, its place and the values that are allowed.
func TestConfigurationFaultsAreReportedTogether(t *testing.T) {
	t.Parallel()
	dir, file := filepath.Join(t.TempDir(), "data"), filepath.Join(t.TempDir(), "tenantry.yaml")
	content := "timeouts:\n  query: soon\nlisten_on: :80\nredis:\n  pasword: hunter2\nadmin: {token: hunter2}\nbackends: {eu: 'mongodb://u:hunter2@h'}\n"
	if err := os.WriteFile(file, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	environ := []string{"TENANTRY_LOG__LEVEL=loud", "TENANTRY_LOG_FORMAT=text", "TENANTRY_REDIS__TLS=perhaps", "TENANTRY_SQLITE__READERS=many", "TENANTRY_REDIS__PASSWORD=hunter2"}
	want := `tenantry: the configuration cannot be used:
  admin.token: is shorter than 16 characters; make one with: openssl rand -hex 24 (FILE line 6)
  backends.eu.engine: must be sqlite or mongo
  backends.eu: is a section, not a value; set one of its settings, such as backends.eu.database (FILE line 7)
  listen: is not an address like 127.0.0.1:8080 (--listen says "nowhere")
  listen_on: there is no such setting (FILE line 3)
  log.level: must be debug, info, warn or error (TENANTRY_LOG__LEVEL says "loud")
  log_format: there is no such setting; did you mean TENANTRY_LOG__FORMAT? (TENANTRY_LOG_FORMAT)
  redis.addrs: name the servers; without them a Redis inside the process is used, to which the other settings do not apply
  redis.pasword: there is no such setting; did you mean redis.password? (FILE line 5)
  redis.tls: must be true or false (TENANTRY_REDIS__TLS says "perhaps")
  sqlite.readers: must be a whole number (TENANTRY_SQLITE__READERS says "many")
  timeouts.query: must be a duration such as 30s or 720h (FILE line 2 says "soon")
`
	for _, args := range [][]string{{"serve", "--listen", "nowhere"}, {"serve", "--print-config", "--listen", "nowhere"}} {
		a := runWith(t, environ, "", append(args, "--data", dir, "--config", file)...)
		if got := strings.ReplaceAll(a.stderr, file, "FILE"); a.code != 1 || a.stdout != "" || got != want {
			t.Errorf("%v: exit %d, stdout = %q, stderr =\n%s\nwant exit 1 and\n%s", args, a.code, a.stdout, got, want)
		}
	}
	missing := run(t, "", "serve", "--config", filepath.Join(dir, "no.yaml"))
	if err := contains(missing.stderr, "no.yaml"); err != nil || missing.code != 1 {
		t.Errorf("exit %d: %v", missing.code, err)
	}
	if _, err := os.Stat(dir); err == nil {
		t.Error("an invalid configuration made the data folder")
	}
}
