package logging_test

import (
	"bytes"
	"errors"
	"io"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"tenantry/config"
	"tenantry/gateway/logging"
)

// disk is a writer that fails while it is full.
type disk struct {
	mu   sync.Mutex
	full bool
	text bytes.Buffer
}

func (d *disk) Write(p []byte) (int, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.full {
		return 0, errors.New("no space left")
	}
	return d.text.Write(p)
}

func (d *disk) set(full bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.full = full
}

func (d *disk) has(text string) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return strings.Contains(d.text.String(), text)
}

func TestWarningsAreWrittenAtOnceWithAllBeforeThem(t *testing.T) {
	t.Parallel()
	d := &disk{}
	log, closer := logging.New(d, config.Log{Level: "info", Format: "json"})
	defer closer.Close()
	log.Debug("not asked for")
	log.With("a", 1).WithGroup("g").Info("first")
	log.Warn("second")
	if !d.has(`"msg":"first","a":1`) || !d.has("second") || d.has("not asked for") {
		t.Errorf("written = %s, want first and second without the debug line", d.text.String())
	}
}

func TestASingleLineIsFlushed(t *testing.T) {
	t.Parallel()
	d := &disk{}
	log, closer := logging.New(d, config.Log{Level: "info", Format: "text"})
	defer closer.Close()
	log.Info("alone")
	for deadline := time.Now().Add(10 * time.Second); !d.has("msg=alone"); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("the line was not written")
		}
	}
}

func TestTheLogRecoversFromAFullDisk(t *testing.T) {
	t.Parallel()
	d := &disk{full: true}
	log, closer := logging.New(d, config.Log{Level: "info", Format: "json"})
	log.Warn("lost")
	d.set(false)
	log.Warn("kept")
	if !d.has("kept") {
		t.Error("nothing is written after the disk was full")
	}
	log.Info("last")
	if err := closer.Close(); err != nil {
		t.Error(err)
	}
	if !d.has("last") {
		t.Error("Close left a line behind")
	}
	log.Info("after the end")
	if !d.has("after the end") {
		t.Error("a line after Close is lost")
	}
}

// TestLinesAreThoseOfSlog: a Line has the same bytes as a line of slog.
func TestLinesAreThoseOfSlog(t *testing.T) {
	t.Parallel()
	texts := []string{"", "plain", `"quoted\`, "<a&b>", "line\nand\ttab", "grün \u2028 \x7f", "\xff\x00", "😀"}
	at := time.Date(2026, 2, 3, 4, 5, 6, 70809, time.FixedZone("", 3600))
	for _, format := range []string{"json", "text"} {
		var want, got bytes.Buffer
		plain, lines := logging.New(&want, config.Log{Level: "info", Format: format})
		log, others := logging.New(&got, config.Log{Level: "info", Format: format})
		for i, text := range texts {
			record := slog.NewRecord(at, slog.LevelInfo, text, 0)
			record.AddAttrs(slog.Int64("n", int64(i-3)))
			line := logging.Begin(t.Context(), log.Handler(), at, slog.LevelInfo, text)
			line.Int("n", int64(i-3))
			for _, more := range texts {
				line.Text("t", more)
				if more != "" {
					record.AddAttrs(slog.String("t", more))
				}
			}
			line.End(t.Context())
			if err := plain.Handler().Handle(t.Context(), record); err != nil {
				t.Error(err)
			}
		}
		if line := logging.Begin(t.Context(), log.Handler(), at, slog.LevelDebug, "not asked for"); line != nil {
			t.Error("Begin returned a line of a disabled level, want nil")
		}
		for _, closer := range []io.Closer{lines, others} {
			if err := closer.Close(); err != nil {
				t.Error(err)
			}
		}
		if diff := cmp.Diff(want.String(), got.String()); diff != "" {
			t.Errorf("%s: mismatch (-want +got):\n%s", format, diff)
		}
	}
}
