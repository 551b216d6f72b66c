package cli_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"tenantry/gateway/control"
)

// TestKeyringReinstate restores a backup from before a key was retired, which opens once the key is reinstated.
func TestKeyringReinstate(t *testing.T) {
	t.Parallel()
	dir, backup := filepath.Join(t.TempDir(), "data"), filepath.Join(t.TempDir(), "db")
	key := beginOrg(t, dir, "acme")
	if err := os.CopyFS(backup, os.DirFS(filepath.Join(dir, "db"))); err != nil {
		t.Fatal(err)
	}
	must[control.Rotation](t, "", "keyring", "rotate", "--data", dir)
	must[control.Retired](t, "", "keyring", "retire", "1", "--data", dir)
	if err := os.RemoveAll(filepath.Join(dir, "db")); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(backup, filepath.Join(dir, "db")); err != nil {
		t.Fatal(err)
	}
	a := run(t, "", "key", "list", "--org", "acme", "--data", dir)
	if err := contains(a.stderr, "retired", "tenantry keyring reinstate 1"); err != nil || a.code != 1 {
		t.Errorf("exit %d: %v", a.code, err)
	}
	for _, wrong := range []string{"9", "none", "-1"} {
		if a := run(t, "", "keyring", "reinstate", "--data", dir, "--", wrong); a.code == 0 {
			t.Errorf("version %s was reinstated", wrong)
		}
	}
	if r := must[control.Reinstated](t, "", "keyring", "reinstate", "1", "--data", dir); r.State != "active" || r.Version != 1 {
		t.Errorf(`got %+v, want r.State = "active" and r.Version = 1`, r)
	}
	if found := must[[]control.Key](t, "", "key", "list", "--org", "acme", "--data", dir); len(found) != 1 || found[0].ID != key.ID {
		t.Errorf("got %+v, want len(found) = 1 and found[0].ID = %v", found, key.ID)
	}
	must[control.Rotation](t, "", "keyring", "rotate", "--data", dir)
	must[control.Retired](t, "", "keyring", "retire", "1", "--data", dir)
}

// TestKeyFind looks keys up by their text. The answer names the organization and the state, and never shows the text.
func TestKeyFind(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "data")
	beginOrg(t, dir, "acme")
	key := beginOrg(t, dir, "birch")
	find := func(token string) answer { return run(t, "", "key", "find", token, "--data", dir) }
	a := find(key.Token)
	if err := contains(a.stdout, `"org": "birch"`, key.ID, `"state": "active"`); err != nil || a.code != 0 || strings.Contains(a.stdout+a.stderr, key.Token) {
		t.Errorf("exit %d: %v %s", a.code, err, a.stderr)
	}
	must[control.IssuedKey](t, "", "key", "rotate", key.ID, "--overlap", "1h", "--org", "birch", "--data", dir)
	must[control.Organization](t, "", "org", "suspend", "birch", "--data", dir)
	a = find(key.Token)
	if err := contains(a.stdout+a.stderr, key.ID, "has since been rotated", "works until 20"); err != nil || a.code != 0 {
		t.Errorf("after a rotation: exit %d: %v", a.code, err)
	}
	for token, want := range map[string]string{key.Token[:len(key.Token)-1]: "not an API key", "": "", "x": "not an API key"} {
		if a := find(token); a.code == 0 || !strings.Contains(a.stderr, want) || token != "" && len(token) > 5 && strings.Contains(a.stderr, token) {
			t.Errorf("%q: exit %d: %s", token, a.code, a.stderr)
		}
	}
}
