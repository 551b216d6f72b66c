package cli

import (
	"bytes"
	"context"
	"errors"
	"io"
	"path/filepath"
	"strings"
	"testing"
)

// TestRestore_Interrupted: whoever interrupts a restoration is told what is there, and what to do.
func TestRestore_Interrupted(t *testing.T) {
	t.Parallel()
	data, place := filepath.Join(t.TempDir(), "data"), filepath.Join(t.TempDir(), "backups")
	for _, args := range [][]string{{"org", "create", "--slug", "acme", "--name", "Acme"}, {"backup", "--to", place}} {
		if code, text := execute(t, data, args...); code != exitOK {
			t.Fatal(text)
		}
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(errors.New("interrupt signal received"))
	var out bytes.Buffer
	code := Main(ctx, []string{"restore", "--from", place, "--data", filepath.Join(t.TempDir(), "data")}, strings.NewReader(""), io.Discard, &out, nil, nil)
	if want := "interrupted (interrupt signal received)"; code != exitFailure || !strings.Contains(out.String(), want) {
		t.Errorf("got %d %s, want %q", code, &out, want)
	}
}
