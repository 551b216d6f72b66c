package cli_test

import (
	"fmt"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"tenantry/internal/goldentest"
)

// TestGolden compares the output of commands with golden files, as JSON and as tables.
func TestGolden(t *testing.T) {
	t.Parallel()
	for _, output := range []string{"json", "table"} {
		t.Run(output, func(t *testing.T) {
			t.Parallel()
			dir := filepath.Join(t.TempDir(), "data")
			blanks := goldentest.NewBlanks("ffff")
			var text strings.Builder
			saved := map[string]string{}
			for _, s := range append(steps(), showSteps...) {
				args := s.args
				for name, value := range saved {
					args = strings.ReplaceAll(args, name, value)
				}
				a := run(t, s.stdin, append(strings.Fields(args), "--data", dir, "--output", output)...)
				output := strings.ReplaceAll(a.stdout+a.stderr, dir, "DATA")
				for _, name := range []string{"key", "token"} {
					if s.save[map[string]string{"key": "id", "token": "token"}[name]] == name {
						saved["{"+name+"}"] = keyPart[name].FindString(a.stdout)
					}
				}
				fmt.Fprintf(&text, "> %s\n%d %s", s.args, a.code, blanks.Fill(output))
			}
			goldentest.Want(t, "commands."+output+".txt", text.String())
		})
	}
}

// showSteps show the data that the steps made.
var showSteps = []step{
	{args: "org list"}, {args: "user list --org acme"}, {args: "key list --org acme"}, {args: "account list --org acme"}, {args: "account show crm --org acme"},
	{args: "team list --org acme"}, {args: "role list --org acme"}, {args: "audit --org acme --limit 30"}, {args: "keyring list"},
}

var keyPart = map[string]*regexp.Regexp{"key": regexp.MustCompile(`\b[0-9a-f]{24}\b`), "token": regexp.MustCompile(`\btnt_\S+?\b`)}

// TestGolden_Help compares the help of every command with a golden file.
func TestGolden_Help(t *testing.T) {
	t.Parallel()
	var text strings.Builder
	var describe func(path string)
	describe = func(path string) {
		a := run(t, "", append(strings.Fields(path), "--help")...)
		fmt.Fprintf(&text, "> %s --help\n%d %s", path, a.code, a.stdout+a.stderr)
		_, commands, _ := strings.Cut(a.stdout, "Available Commands:\n")
		commands, _, _ = strings.Cut(commands, "\n\n")
		for line := range strings.Lines(commands) {
			if name := strings.Fields(line)[0]; name != "help" && name != "completion" {
				describe(strings.TrimSpace(path + " " + name))
			}
		}
	}
	describe("")
	goldentest.Want(t, "help.txt", text.String())
}
