package logging_test

import (
	"bytes"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"tenantry/config"
	"tenantry/gateway/logging"
)

// disk is a writer that can be full.
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
		t.Errorf("written: %s", d.text.String())
	}
}

func TestLinesAreWrittenWithoutMoreToCome(t *testing.T) {
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
