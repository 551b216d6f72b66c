package backup

import (
	"bufio"
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"os"
	"sync/atomic"
	"time"

	"github.com/klauspost/compress/zstd"

	"tenantry/backends/store"
)

// A record of the log is a header, a head in JSON, and a body. The header has the lengths of both and a checksum of each,
// big-endian, so that heads can be read alone.
const (
	recordHeaderSize = 16
	maxRecordHead    = 64 << 20
	maxRecordBody    = 2 * logBlock
	logBlock         = 1 << 20  // bytes of pages in a record, before compression
	logInFlight      = 1 << 20  // bytes that are collected before they are written
	logSync          = 16 << 20 // bytes that are written before they are synced
)

// logRecord has one of its parts.
type logRecord struct {
	State *logState `json:"state,omitempty"` // begins a file
	Pages *logPages `json:"pages,omitempty"` // the body has their numbers and contents, compressed
	Cut   *logCut   `json:"cut,omitempty"`   // ends a cut
	body  []byte
}

// logPages are changed pages of a database, or a part of them.
type logPages struct {
	Backend string        `json:"backend"`
	File    string        `json:"file"`
	Kind    store.CutKind `json:"kind"`
	Size    int           `json:"size"`  // of a page, in bytes
	Count   int           `json:"count"` // of the pages of the database after the cut
}

// logCut completes a cut.
type logCut struct {
	Sequence uint64           `json:"sequence"`
	Backend  string           `json:"backend"`
	At       time.Time        `json:"at"`
	Since    time.Time        `json:"since"`
	Files    []logFile        `json:"files"`
	Put      map[string]int64 `json:"put,omitempty"`  // objects and their sizes
	Gone     []string         `json:"gone,omitempty"` // objects, or prefixes that end in a slash
}

// logFile is what became of a database.
type logFile struct {
	File     string             `json:"file"`
	Kind     store.CutKind      `json:"kind"`
	Position store.PagePosition `json:"position"`
	Changed  int                `json:"changed"` // pages
}

func castagnoli() *crc32.Table { return crc32.MakeTable(crc32.Castagnoli) }

func recordHeader(head, body []byte) []byte {
	h := make([]byte, 0, recordHeaderSize)
	h = binary.BigEndian.AppendUint32(h, uint32(len(head)))
	h = binary.BigEndian.AppendUint32(h, uint32(len(body)))
	h = binary.BigEndian.AppendUint32(h, crc32.Update(crc32.Checksum(h, castagnoli()), castagnoli(), head))
	return binary.BigEndian.AppendUint32(h, crc32.Checksum(body, castagnoli()))
}

// readRecords calls do with the records of a file from an offset on, and where each ends, until the first one that is
// incomplete or damaged. Bodies are read and checked only if bodies is set. Errors: those of do and of the folder.
func readRecords(path string, from int64, bodies bool, do func(r *logRecord, end int64) error) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }() // it was only read
	info, err := f.Stat()
	if err != nil {
		return err
	}
	if _, err := f.Seek(from, io.SeekStart); err != nil {
		return err
	}
	in := bufio.NewReaderSize(f, 64<<10)
	header := make([]byte, recordHeaderSize)
	for end := from; ; {
		if _, err := io.ReadFull(in, header); err != nil {
			return unlessShort(err)
		}
		heads, body := int64(binary.BigEndian.Uint32(header)), int64(binary.BigEndian.Uint32(header[4:]))
		if end += recordHeaderSize + heads + body; end > info.Size() || heads > maxRecordHead || body > maxRecordBody {
			return nil
		}
		head := make([]byte, heads)
		if _, err := io.ReadFull(in, head); err != nil {
			return unlessShort(err)
		}
		if crc32.Update(crc32.Checksum(header[:8], castagnoli()), castagnoli(), head) != binary.BigEndian.Uint32(header[8:]) {
			return nil
		}
		r := &logRecord{}
		if err := json.Unmarshal(head, r); err != nil {
			return fmt.Errorf("%w: %s: %w", ErrDamaged, path, err)
		}
		if bodies {
			r.body = make([]byte, body)
			if _, err := io.ReadFull(in, r.body); err != nil {
				return unlessShort(err)
			}
			if crc32.Checksum(r.body, castagnoli()) != binary.BigEndian.Uint32(header[12:]) {
				return nil
			}
		} else if _, err := in.Discard(int(body)); err != nil {
			return unlessShort(err)
		}
		if err := do(r, end); err != nil {
			return err
		}
	}
}

// unlessShort returns nil for the errors of a file that ends in a record.
func unlessShort(err error) error {
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return nil
	}
	return err
}

// recordWriter writes the records of a cut.
type recordWriter struct {
	to   *os.File
	at   int64 // where the next bytes go
	pack *zstd.Encoder
	sync func(*os.File) error
	// moved grows when something was written. No sync is for more than logSync bytes, so that each ends soon.
	moved    *atomic.Int64
	unsynced int
	out      bytes.Buffer
	err      error
}

// file writes the pages of a file.
func (w *recordWriter) file(ctx context.Context, backend string, f store.FileCut) error {
	head := &logRecord{Pages: &logPages{Backend: backend, File: f.File, Kind: f.Kind, Size: f.PageSize, Count: f.Pages}}
	if f.Changed == 0 {
		w.record(head, nil)
		return w.err
	}
	var block []byte
	var packed []byte
	written := 0
	for number, page := range f.Read {
		block = append(binary.BigEndian.AppendUint32(block, number), page...)
		if written++; len(block) < logBlock && written < f.Changed {
			continue
		}
		if err := ctx.Err(); err != nil { // then the engine may have overwritten the pages
			return err
		}
		packed = w.pack.EncodeAll(block, packed[:0])
		w.record(head, packed)
		head.Pages.Kind = store.CutChanged // the rest of a new file does not begin it again
		block = block[:0]
	}
	if err := errors.Join(f.Err(), w.err); err != nil || written != f.Changed {
		return fmt.Errorf("%s: %d of %d pages: %w", f.File, written, f.Changed, err)
	}
	return nil
}

// record writes one record.
func (w *recordWriter) record(r *logRecord, body []byte) {
	head, err := json.Marshal(r)
	if err != nil {
		w.err = errors.Join(w.err, err)
		return
	}
	w.out.Write(recordHeader(head, body))
	w.out.Write(head)
	w.out.Write(body)
	if w.out.Len() > logInFlight {
		_ = w.flush()
	}
}

func (w *recordWriter) flush() error {
	if w.err == nil && w.out.Len() > 0 {
		var n int
		n, w.err = w.to.WriteAt(w.out.Bytes(), w.at)
		w.at += int64(n)
		w.unsynced += n
		w.out.Reset()
		w.moved.Add(1)
	}
	if w.err == nil && w.unsynced > logSync {
		w.err, w.unsynced = w.sync(w.to), 0
		w.moved.Add(1)
	}
	return w.err
}

// finish writes and syncs what remains.
func (w *recordWriter) finish() error {
	if w.flush() == nil {
		w.err = w.sync(w.to)
	}
	return w.err
}
