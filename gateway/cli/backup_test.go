package cli_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestBackupAndRestore backs up and restores by commands, as tables and as JSON, with mistakes in the names of places.
func TestBackupAndRestore(t *testing.T) {
	t.Parallel()
	for _, output := range []string{"table", "json"} {
		t.Run(output, func(t *testing.T) {
			t.Parallel()
			dir, place, other := filepath.Join(t.TempDir(), "data"), filepath.Join(t.TempDir(), "backups"), filepath.Join(t.TempDir(), "data")
			must := func(says, args string) {
				t.Helper()
				if a := run(t, "", append(strings.Fields(args), "--output", output)...); a.code != 0 || !strings.Contains(a.stdout+a.stderr, says) {
					t.Errorf("%s: exit %d\n%s%s\nwant %q", args, a.code, a.stdout, a.stderr, says)
				}
			}
			refused := func(says string, args ...string) {
				t.Helper()
				if a := run(t, "", args...); a.code == 0 || !strings.Contains(a.stderr, says) {
					t.Errorf("%q: exit %d\n%s%s\nwant an error with %q", args, a.code, a.stdout, a.stderr, says)
				}
			}
			must("acme", "org create --slug acme --name Acme --data "+dir)
			for _, flag := range []string{"backup --to", "org restore acme --from"} {
				args := append(strings.Fields(flag), "", "--data", dir)
				refused("is empty", args...)
				args[len(args)-3] = "file:///backups"
				refused("by its path", args...)
				args[len(args)-3] = "s3://bucket/backups"
				refused("backup.s3.endpoint: is not set", args...)
			}
			refused("by its path", "restore", "--from", "file:///backups", "--data", other)
			for _, flag := range []string{"--at", "--backup"} {
				refused(flag+" is empty", "restore", "--from", place, "--data", other, flag, "")
				refused(flag+" is empty", "org", "restore", "acme", "--from", place, "--data", dir, flag, "")
			}
			refused("2026-11-27T15:45:07Z", "restore", "--from", place, "--data", other, "--at", "noon")
			refused("2026-11-27T15:45:07Z", "org", "restore", "acme", "--from", place, "--data", dir, "--at", "noon")
			must("no keyring", "backup --data "+dir+" --to "+place)
			refused("keyring", "restore", "--from", place, "--data", other)
			refused("has no log of changes", "restore", "--from", place, "--data", other, "--at", "2026-11-27T15:45:07Z")
			for data, says := range map[string]string{
				place:                       place + " is in " + place + "; name a folder outside it, such as with --data",
				filepath.Join(place, "sub"): filepath.Join(place, "sub") + " is in " + place + "; name a folder outside it, such as with --data",
				filepath.Dir(place):         filepath.Dir(place) + " has " + place + " in it",
			} {
				refused(says, "restore", "--from", place, "--data", data)
			}
			refused(filepath.Join(dir, "sub")+" is in "+dir, "backup", "--to", filepath.Join(dir, "sub"), "--data", dir)
			refused(filepath.Dir(dir)+" is around "+dir, "backup", "--to", filepath.Dir(dir), "--data", dir)
			ring, err := os.ReadFile(filepath.Join(dir, "keyring.json"))
			if err == nil {
				err = os.MkdirAll(other, 0o700)
			}
			if err == nil {
				err = os.WriteFile(filepath.Join(other, "keyring.json"), ring, 0o600)
			}
			if err != nil {
				t.Fatal(err)
			}
			must("can be restored", "restore --dry-run --from "+place+" --data "+other)
			if restored := run(t, "", "restore", "--from", place, "--data", other, "--output", output); restored.code != 0 ||
				!strings.Contains(restored.stdout, "20") || strings.Contains(restored.stdout, "never") {
				t.Errorf("a restoration without a second: exit %d\n%s%s", restored.code, restored.stdout, restored.stderr)
			}
			must("acme", "org list --data "+other)
			must("20", "backup list --from "+place)
			must("nothing to restore", "org restore acme --from "+place+" --data "+dir)
			refused("begins with ~", "backup", "list", "--from", "~/backups")
			sealed, wrong := place+"-sealed", filepath.Join(t.TempDir(), "wrong.txt")
			if err := os.WriteFile(wrong, []byte("not a key"), 0o600); err != nil {
				t.Fatal(err)
			}
			must("age", "backup --data "+dir+" --to "+sealed+" --recipient age1ql3z7hjy54pw3hyww5ayyfg7zqgvc7w3j2elw8zmrj2kg5sfn9aqmcac8p")
			elsewhere := filepath.Join(t.TempDir(), "data")
			refused("opens it: --identity FILE", "restore", "--from", sealed, "--data", elsewhere, "--dry-run")
			refused("the file has no age identity (a line AGE-SECRET-KEY-…) (--identity "+wrong+")",
				"restore", "--from", sealed, "--data", elsewhere, "--identity", wrong)
			refused("no backup in", "restore", "--from", dir, "--data", filepath.Join(t.TempDir(), "data"))
		})
	}
}
