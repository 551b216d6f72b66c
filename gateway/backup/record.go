package backup

import (
	"bufio"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"os"
	"time"

	"tenantry/backends/store"
)

// A record of the log is a header, a head in JSON, and a body. The header has the lengths of both and a checksum of each,
// big-endian, so that heads can be read alone.
const (
	recordHeaderSize = 16
	maxRecordHead    = 64 << 20
	maxRecordBody    = 2 * logBlock
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
