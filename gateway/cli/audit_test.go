package cli_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestAuditHeads checks the commands below audit: the command itself still shows the log, and a head is read from a
// file.
func TestAuditHeads(t *testing.T) {
	t.Parallel()
	folder := t.TempDir()
	file := func(name, text string) string {
		path := filepath.Join(folder, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	foreign, empty := file("foreign", "tenantry/a/1\n12\nAAAA\n\n"), file("empty", "{}")
	large := file("large", strings.Repeat("x", 65<<10))
	blank := file("blank", "\n")
	for _, one := range []struct {
		args string
		code int
		want string
	}{
		{"org create --slug acme --name Acme", 0, `"slug"`},
		{"audit --org acme", 0, "org.create"},
		{"audit --verify", 0, `"unsealed"`},
		{"audit head", 1, "no head yet"},
		{"audit head --org acme", 1, "no head yet"},
		{"audit head --org none", 1, "none"},
		{"audit verify --org acme", 0, `"intact":true,"agrees":true,"records":`},
		{"audit verify --org acme --against " + foreign, 1, "--against " + foreign + ": this is not a head of this log"},
		{"audit verify --org acme --against " + foreign, 1, "tenantry audit rotate-key"},
		{"audit verify --against " + empty, 1, "--against " + empty + ": the file has no head"},
		{"audit verify --against " + blank, 1, "--against: the file " + blank + " is empty"},
		{"audit verify --against " + large, 1, "holds more than"},
		{"audit verify --against " + filepath.Join(folder, "none"), 1, "no such file"},
		{"audit rotate-key", 0, `"keys"`},
		{"audit restart --org acme", 2, "reason"},
		{"audit restart --org acme --reason damaged", 0, `"size":0`},
		{"audit --org acme", 0, `"reason":"damaged"`},
		{"audit other", 2, "other"},
	} {
		a := run(t, "", append(strings.Fields(one.args), "--data", filepath.Join(folder, "data"), "--output", "json")...)
		all := strings.NewReplacer(": ", ":", "\n", "", " ", "").Replace(a.stdout) + a.stderr
		if a.code != 0 && a.stdout != "" { // it could be kept for an answer
			t.Errorf("%s: got %s, want nothing on standard output", one.args, a.stdout)
		}
		if a.code != one.code || !strings.Contains(all, one.want) {
			t.Errorf("%s: got %d %s%s, want %d and %q", one.args, a.code, a.stdout, a.stderr, one.code, one.want)
		}
	}
}
