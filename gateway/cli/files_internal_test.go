package cli

import (
	"bytes"
	"context"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// eachCommand calls do with every command below root, with the words that call it.
func eachCommand(root *cobra.Command, do func(c *cobra.Command, words []string)) {
	for _, c := range root.Commands() {
		eachCommand(c, do)
	}
	if words := strings.Fields(root.CommandPath())[1:]; len(words) > 0 {
		do(root, words)
	}
}

// execute runs the command with an installation in a folder.
func execute(t *testing.T, data string, args ...string) (code int, text string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	var out bytes.Buffer
	code = Main(ctx, append(args, "--data", data), strings.NewReader(""), io.Discard, &out, nil, nil)
	return code, out.String()
}

// TestEmptyFiles: no command takes an empty name of a file, or an empty file, as if none was named.
func TestEmptyFiles(t *testing.T) {
	t.Parallel()
	data := filepath.Join(t.TempDir(), "data")
	if code, text := execute(t, data, "org", "create", "--slug", "acme", "--name", "Acme"); code != exitOK {
		t.Fatal(text)
	}
	empty := filepath.Join(t.TempDir(), "empty")
	if err := os.WriteFile(empty, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	var tried []string
	eachCommand((&program{signals: newSignals(func(error) {})}).root(), func(c *cobra.Command, words []string) {
		var required []string // arguments and flags that the command needs besides
		switch {
		case c.Name() == "import":
			required = append(required, empty)
		case c.ValidateArgs(nil) != nil:
			required = append(required, "acme")
		}
		c.InheritedFlags() // adds those of the root
		c.Flags().VisitAll(func(f *pflag.Flag) {
			what, _ := pflag.UnquoteUsage(f)
			if f.Annotations[cobra.BashCompOneRequiredFlag] != nil && what != "file" && c.CommandPath() != "tenantry org create" {
				required = append(required, "--"+f.Name, filepath.Join(t.TempDir(), "x"))
			}
		})
		c.Flags().VisitAll(func(f *pflag.Flag) {
			what, _ := pflag.UnquoteUsage(f)
			if what != "file" || f.Name == "out" || f.Name == "config" && c.Name() != "serve" && c.CommandPath() != "tenantry org list" {
				return
			}
			tried = append(tried, strings.Join(append(words, f.Name), " "))
			args := slices.Concat(words, required)
			if c.Flags().Lookup("org") != nil {
				args = append(args, "--org", "acme")
			}
			if code, text := execute(t, data, append(args, "--"+f.Name, "")...); code != exitUsage || !strings.Contains(text, "--"+f.Name+" is empty") {
				t.Errorf("%q with an empty name for --%s: %d %s", args, f.Name, code, text)
			}
			if code, text := execute(t, data, append(args, "--"+f.Name, empty)...); code != exitFailure ||
				!strings.Contains(text, empty) && !strings.Contains(text, "the file has no line") {
				t.Errorf("%q with an empty file for --%s: %d %s", args, f.Name, code, text)
			}
		})
	})
	for _, want := range []string{"audit verify against", "import secrets", "export secrets", "restore identity", "org create from", "serve config"} {
		if !strings.Contains(strings.Join(tried, "\n"), want) {
			t.Errorf("%q was not tried, only %q", want, tried)
		}
	}
}
