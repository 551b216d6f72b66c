package cli_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"zombiezen.com/go/sqlite"
	"zombiezen.com/go/sqlite/sqlitex"

	"tenantry/gateway/control"
)

// TestDoctor checks the findings of doctor for data in good order and for damaged data.
func TestDoctor(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "data")
	must[control.Organization](t, "", "--data", dir, "org", "create", "--slug", "acme", "--name", "Acme")
	settings := func(text string) string {
		path := filepath.Join(t.TempDir(), "tenantry.yaml")
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}

	for _, f := range must[[]control.Finding](t, "", "--data", dir, "doctor") {
		if f.Verdict != control.Good {
			t.Errorf("good data: %+v", f)
		}
	}

	if err := os.Chmod(filepath.Join(dir, "keyring.json"), 0o644); err != nil {
		t.Fatal(err)
	}
	if a := run(t, "", "--data", dir, "doctor"); a.code != 1 || !strings.Contains(a.stderr, "chmod") {
		t.Errorf("a keyring that others can read: code %d, %s", a.code, a.stderr)
	}
	if err := os.Chmod(filepath.Join(dir, "keyring.json"), 0o600); err != nil {
		t.Fatal(err)
	}

	// doctor reports a folder that others can read. No command uses a folder that everybody can write to.
	for _, mode := range []os.FileMode{0o755, 0o770} {
		if err := os.Chmod(dir, mode); err != nil {
			t.Fatal(err)
		}
		if a := run(t, "", "--data", dir, "doctor"); a.code != 0 || !strings.Contains(a.stdout, "chmod 700 "+dir) {
			t.Errorf("a data folder of mode %o: code %d, %s%s", mode, a.code, a.stdout, a.stderr)
		}
	}
	if err := os.Chmod(dir, 0o777); err != nil {
		t.Fatal(err)
	}
	for _, command := range []string{"doctor", "serve --listen 127.0.0.1:0 --admin-listen 127.0.0.1:0", "org list"} {
		if a := run(t, "", append([]string{"--data", dir}, strings.Fields(command)...)...); a.code != 1 || !strings.Contains(a.stderr, "can be written by everybody on this machine (mode 0777)") {
			t.Errorf("%s on a data folder of mode 0777: code %d, %s", command, a.code, a.stderr)
		}
	}
	if err := os.Chmod(dir, 0o700); err != nil {
		t.Fatal(err)
	}

	// doctor reports a missing file, but not with --quick.
	found, err := filepath.Glob(filepath.Join(dir, "db", "_shared-*.db"))
	if err != nil || len(found) != 1 {
		t.Fatalf("shared files: %v, %v", found, err)
	}
	path := found[0]

	// The file of another version is named, and has the layout of this one as soon as it was used.
	another(t, path)
	former := run(t, "", "--data", dir, "doctor")
	if err := contains(former.stdout, "1 of 2 databases were last used by another version", "such as _shared-"); former.code != 0 || err != nil {
		t.Errorf("a file of another version: code %d, %v", former.code, err)
	}
	if a := run(t, "", "--data", dir, "doctor"); a.code != 0 || strings.Contains(a.stdout, "another version") {
		t.Errorf("after the file was used: code %d, %s", a.code, a.stdout)
	}
	if err := os.Rename(path, path+".away"); err != nil {
		t.Fatal(err)
	}
	if a := run(t, "", "--data", dir, "doctor", "--quick"); a.code != 0 {
		t.Errorf("doctor --quick: code %d, %s", a.code, a.stderr)
	}
	lost := run(t, "", "--data", dir, "doctor")
	if err := contains(lost.stdout, `"organization acme"`, "backend default: there is no file ", path); lost.code != 1 || err != nil {
		t.Errorf("a lost file: code %d, %v", lost.code, err)
	}
	if err := contains(lost.stderr, "read organizations up to acme: 1, with faults: 1"); err != nil {
		t.Error(err)
	}
	if err := os.Rename(path+".away", path); err != nil {
		t.Fatal(err)
	}

	// Nothing listens on port 1, neither MongoDB nor Redis.
	a := run(t, "", "--data", dir, "--config", settings(`
backends:
  default: {engine: sqlite}
  eu: {engine: mongo, uri: "mongodb://u:s3cret@127.0.0.1:1/"}
redis: {addrs: ["127.0.0.1:1"]}
files: {scan: "http://127.0.0.1:1/"}
`), "doctor")
	if a.code != 1 || strings.Contains(a.stdout+a.stderr, "s3cret") {
		t.Errorf("doctor without MongoDB and Redis ended with %d:\n%s%s", a.code, a.stdout, a.stderr)
	}
	if err := contains(a.stdout, `"backend eu"`, "cannot read and write", `"redis"`, "does not answer", `"scanner"`, "connection refused", `"files"`, "can be reached", "by backend: default 1"); err != nil {
		t.Error(err)
	}

	// The settings of a replica that does not have the organization's backend.
	a = run(t, "", "--data", dir, "--config", settings(`
store: other
backends:
  default: {engine: sqlite}
  other: {engine: sqlite}
`), "org", "create", "--slug", "far", "--name", "Far")
	if a.code != 0 {
		t.Fatalf("org create on another backend: %s", a.stderr)
	}
	a = run(t, "", "--data", dir, "doctor")
	if err := contains(a.stdout, `"organization far"`, "lives on backend other, which the configuration does not name"); a.code != 1 || err != nil {
		t.Errorf("an organization on a backend without settings: code %d, %v", a.code, err)
	}
}

// another makes a database that of a version of the program with other fields.
func another(t *testing.T, path string) {
	t.Helper()
	conn, err := sqlite.OpenConn(path, sqlite.OpenReadWrite)
	if err != nil {
		t.Fatal(err)
	}
	err = sqlitex.ExecuteScript(conn, `UPDATE collections SET spec = '{"Name": "contacts"}' WHERE name = 'contacts'`, nil)
	if err = errors.Join(err, conn.Close()); err != nil {
		t.Fatal(err)
	}
}
