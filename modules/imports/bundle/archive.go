package bundle

import (
	"archive/zip"
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"strings"
	"sync"
)

// An archive is a zip file with the lines of a bundle and the bytes of its files, each under the hash that lines have.
const (
	linesName   = "bundle.ndjson"
	filesFolder = "files/"
	// zipStart begins every archive; lines of JSON never begin so.
	zipStart = "PK\x03\x04"
)

// Bounds of an archive that is Bounded. A directory of that many bytes takes up to ten times as much memory, and has
// room for about 140,000 files. Lines that are compressed must not be more than a file of lines could have.
const (
	maxDirectory = 16 << 20
	maxLinesSize = 1 << 30
	// anyDirectory is the bound of others.
	anyDirectory = 1 << 30
	leastEntry   = 46 // bytes of an entry in the directory

	tooManyEntries = "it has too many entries; import it by command, or export fewer files"
)

// ErrArchive says that an archive cannot be read.
var ErrArchive = errors.New("the archive cannot be imported")

// archive is the bytes of the files of an import. Its methods accept nil, which has none.
type archive struct {
	file  io.Closer
	files map[string]*zip.File // by hash
	lines *zip.File

	measured map[string]*measured // by name, for the goroutine that compares lines
	adds     map[string]bool      // checksums of bytes that the organization does not have

	mu     sync.Mutex
	stored map[string]bool // checksums of bytes that were stored; guarded by mu
}

// measured is what an archive has under a name.
type measured struct {
	Content
	has    bool  // the organization has it already
	broken error // it cannot be read
}

// openArchive opens an archive, and returns the source of its lines. A source that is no archive is returned as it is.
// Error: ErrArchive, those of the source.
func openArchive(src Source, bounded bool) (_ Source, _ *archive, err error) {
	in, err := src.Open()
	if err != nil {
		return src, nil, fmt.Errorf("open the bundle: %w", err)
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, in.Close())
		}
	}()
	start := make([]byte, len(zipStart))
	n, err := io.ReadFull(in, start)
	if err != nil && !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) {
		return src, nil, fmt.Errorf("read the bundle: %w", err)
	}
	if !bytes.Equal(start[:n], []byte(zipStart)) {
		return src, nil, in.Close()
	}
	file, seekable := in.(io.ReaderAt)
	if !seekable {
		return src, nil, fmt.Errorf("%w: it must be a file", ErrArchive)
	}
	directory := int64(anyDirectory)
	if bounded {
		directory = maxDirectory
	}
	if entries(file, src.Size) > uint64(directory/leastEntry) { // zip.NewReader makes room for as many
		return src, nil, fmt.Errorf("%w: %s", ErrArchive, tooManyEntries)
	}
	counted := &countedReaderAt{ReaderAt: file, left: directory}
	z, err := zip.NewReader(counted, src.Size)
	switch {
	case counted.left < 0:
		return src, nil, fmt.Errorf("%w: %s", ErrArchive, tooManyEntries)
	case err != nil:
		return src, nil, fmt.Errorf("%w: it is damaged or incomplete: %w", ErrArchive, err)
	}
	counted.all = true
	a := &archive{
		file: in, files: map[string]*zip.File{}, measured: map[string]*measured{}, adds: map[string]bool{},
		stored: map[string]bool{},
	}
	for _, f := range z.File {
		if err := a.add(f); err != nil {
			return src, nil, err
		}
	}
	switch {
	case a.lines == nil:
		return src, nil, fmt.Errorf("%w: it has no %s", ErrArchive, linesName)
	case bounded && a.lines.UncompressedSize64 > maxLinesSize:
		return src, nil, fmt.Errorf("%w: %s has more than %d MiB", ErrArchive, linesName, maxLinesSize>>20)
	}
	return Source{Open: a.openLines, Size: int64(a.lines.UncompressedSize64)}, a, nil
}

// entries returns how many entries the end of an archive announces, as zip.NewReader reads it; 0 if it has no end.
func entries(file io.ReaderAt, size int64) uint64 {
	const end, end64, locator, tail = 22, 56, 20, 65 << 10
	read := func(at, n int64) []byte {
		if at < 0 || at > size-n {
			return nil
		}
		b := make([]byte, n)
		if _, err := file.ReadAt(b, at); err != nil && !errors.Is(err, io.EOF) {
			return nil
		}
		return b
	}
	first := max(size-tail, 0)
	last := read(first, size-first)
	if len(last) < end {
		return 0
	}
	at := bytes.LastIndex(last[:len(last)-end+len(zipStart)], []byte("PK\x05\x06"))
	if at < 0 {
		return 0
	}
	n := uint64(binary.LittleEndian.Uint16(last[at+10:]))
	if l := read(first+int64(at)-locator, locator); l != nil && bytes.HasPrefix(l, []byte("PK\x06\x07")) {
		where := min(binary.LittleEndian.Uint64(l[8:]), math.MaxInt64)
		if e := read(int64(where), end64); e != nil {
			n = max(n, binary.LittleEndian.Uint64(e[32:]))
		}
	}
	return n
}

// add notes an entry. Entries with other names than an export gives are not read: their names lead nowhere.
func (a *archive) add(f *zip.File) error {
	hash, isFile := strings.CutPrefix(f.Name, filesFolder)
	const encrypted = 1
	switch {
	case f.Name == linesName && a.lines != nil, isFile && a.files[hash] != nil:
		return fmt.Errorf("%w: it has two entries named %s", ErrArchive, f.Name)
	case f.Name != linesName && (!isFile || hash == ""):
		return nil
	case f.Flags&encrypted != 0:
		return fmt.Errorf("%w: it is encrypted with a password; unpack it and pack it without one", ErrArchive)
	case isFile:
		a.files[hash] = f
	default:
		a.lines = f
	}
	return nil
}

// countedReaderAt fails after left bytes, until all is set. So the directory of an archive is bounded.
type countedReaderAt struct {
	io.ReaderAt
	left int64
	all  bool
}

func (c *countedReaderAt) ReadAt(p []byte, at int64) (int, error) {
	if !c.all {
		if c.left -= int64(len(p)); c.left < 0 {
			return 0, ErrArchive
		}
	}
	return c.ReaderAt.ReadAt(p, at)
}

func (a *archive) openLines() (io.ReadCloser, error) {
	r, err := a.lines.Open()
	if err != nil {
		return nil, fmt.Errorf("%w: %s: %w", ErrArchive, linesName, err)
	}
	return damageReader{r}, nil
}

// damageReader makes errors of reading an entry ErrArchive.
type damageReader struct{ io.ReadCloser }

func (d damageReader) Read(p []byte) (int, error) {
	n, err := d.ReadCloser.Read(p)
	if err != nil && !errors.Is(err, io.EOF) {
		err = fmt.Errorf("%w: %s is damaged: %w", ErrArchive, linesName, err)
	}
	return n, err
}

func (a *archive) has(hash string) bool { return a != nil && a.files[hash] != nil }

// isStored reports whether noteStored was called. Safe for concurrent use.
func (a *archive) isStored(checksum string) bool {
	if a == nil {
		return false
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.stored[checksum]
}

// noteStored notes that the organization has bytes from now on. Safe for concurrent use.
func (a *archive) noteStored(checksum string) {
	if a != nil {
		a.mu.Lock()
		defer a.mu.Unlock()
		a.stored[checksum] = true
	}
}

func (a *archive) close() error {
	if a == nil {
		return nil
	}
	return a.file.Close()
}
