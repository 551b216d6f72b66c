package bundle

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"tenantry/backends/record"
	"tenantry/internal/diskroom"
)

// Source is the input of an import. It is read several times from the start, so it must be a file, or a stream that
// Spool has copied into one.
type Source struct {
	Open func() (io.ReadCloser, error)
	Size int64 // in bytes; 0 if unknown, which only affects the progress
}

// FileSource returns the file at path as a Source.
func FileSource(path string) (Source, error) {
	info, err := os.Stat(path)
	if err != nil {
		return Source{}, err
	}
	if !info.Mode().IsRegular() {
		return Source{}, fmt.Errorf("%s is not a file", path)
	}
	return Source{Open: func() (io.ReadCloser, error) { return os.Open(path) }, Size: info.Size()}, nil
}

// Spool copies a stream that can be read only once, such as standard input, into a temporary file in dir ("" is the
// system's temporary folder), whose disk keeps reserve bytes free. Only its owner can read the file; remove deletes it.
// Errors: those of r and of the file; syscall.ENOSPC if there is no room.
func Spool(ctx context.Context, r io.Reader, dir string, reserve int64) (src Source, remove func() error, err error) {
	f, err := os.CreateTemp(dir, "tenantry-import-*")
	if err != nil {
		return Source{}, nil, fmt.Errorf("copy the input to a file: %w", err)
	}
	name := f.Name()
	_, err = io.Copy(diskroom.Reserve{Folder: filepath.Dir(name), Bytes: reserve}.Writer(f), contextReader{ctx, r})
	if err = errors.Join(err, f.Close()); err == nil {
		src, err = FileSource(name)
	}
	if err != nil {
		return Source{}, nil, errors.Join(fmt.Errorf("copy the input to a file: %w", err), os.Remove(name))
	}
	return src, func() error { return os.Remove(name) }, nil
}

type contextReader struct {
	ctx context.Context
	r   io.Reader
}

func (c contextReader) Read(p []byte) (int, error) {
	if err := c.ctx.Err(); err != nil {
		return 0, err
	}
	return c.r.Read(p)
}

// Progress is the progress of an import or export.
type Progress struct {
	Phase string // "reading", "checking", "storing", "removing" or "writing"
	Bytes int64  // read in this phase
	Total int64  // bytes to read in this phase; 0 if unknown
	Lines int    // in this phase
}

// Phases of an import and an export.
const (
	PhaseReading  = "reading"
	PhaseChecking = "checking"
	PhaseStoring  = "storing"
	PhaseRemoving = "removing"
	PhaseWriting  = "writing"
)

const progressInterval = 100 * time.Millisecond

// meter calls report at most ten times a second. It is not safe for concurrent use.
type meter struct {
	report func(Progress)
	now    Progress
	last   time.Time
}

func (m *meter) start(phase string, total int64) {
	m.now = Progress{Phase: phase, Total: total}
	m.last = time.Time{}
}

func (m *meter) at(bytes int64, lines int) {
	m.now.Bytes, m.now.Lines = bytes, lines
	if m.report == nil {
		return
	}
	if now := time.Now(); now.Sub(m.last) >= progressInterval {
		m.last = now
		m.report(m.now)
	}
}

// end reports the end of a phase.
func (m *meter) end() {
	if m.report != nil {
		m.report(m.now)
	}
}

// MaxLine is the longest line of a bundle in bytes. It fits the largest record, sealed to a key and with all
// characters beyond ASCII escaped.
const MaxLine = 4 * record.MaxRecord
