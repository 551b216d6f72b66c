package sqlite

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"iter"
	"maps"
	"os"
	"slices"
	"strconv"
	"sync"
	"time"

	"zombiezen.com/go/sqlite"

	"tenantry/backends/driver"
)

// The layout of a log of SQLite: a header, and frames of a header and a page each. Numbers are big-endian.
const (
	walHeader   = 32
	walPageSize = 8  // offset of the page size in the header
	walSalt     = 16 // offset of the salt in the header
	frameHeader = 24
	frameSize   = 4 // offset of the size of the file, in pages, in the last frame of a transaction; 0 in others
	frameSalt   = 8
	frameSum    = 16 // offset of the checksum of all frames so far
	// emptyFile is the size of a file into which nothing was moved from its log yet: a page that says that there is a log.
	emptyFile      = 4096
	followerPages  = 16 // cache size of the connections of a follower, which read no data
	holdStatement  = "PRAGMA user_version"
	maxCounts      = 1000
	countStatement = "PRAGMA wal_checkpoint(NOOP)"
)

var errLogChanged = errors.New("the log of the file was changed by another program")

// follower reads what is appended to the log of a file. SQLite overwrites a log only if no read transaction uses it. So
// its pin is a read transaction, which is replaced by a later one when everything before that has been read: all frames
// stay in the log until they have been read, whatever checkpoints run meanwhile. The holder of pageLog.turn calls its
// methods; close may be called at any time.
type follower struct {
	name, path string
	leave      func()
	mu         sync.Mutex // held to use the connections, and for mark and began; pin is nil after close
	pin        *conn
	probe      *conn     // outside of a transaction
	mark       uint32    // a frame beyond which the pin sees none; 0: the log was empty
	least      uint32    // a frame up to which it sees all
	began      time.Time // of the pin
	// restartable: the whole log may have been in the file when the pin began, so that it may be restarted once.
	restartable bool
	log         *os.File // nil: it has not been opened
	kind        driver.CutKind
	position    driver.PagePosition // what was shipped
	end         driver.PagePosition // what can be shipped now
	err         error               // of the last count
}

// follow opens a follower whose pin has begun. known is the last position in the log of pages, if there is one.
func (e *Engine) follow(name string, known driver.PagePosition, isKnown bool) (_ *follower, err error) {
	f := &follower{name: name, path: e.ownPath(name), kind: driver.CutChanged}
	f.leave = e.sideConns.enter(f.path)
	defer func() {
		if err != nil {
			f.close()
		}
	}()
	pragma := "PRAGMA cache_size = " + strconv.Itoa(followerPages)
	if f.pin, err = openConn(f.path, connectionFlags, pragma); err != nil {
		return nil, err
	}
	if f.probe, err = openConn(f.path, connectionFlags, pragma); err != nil {
		return nil, err
	}
	if err := hold(f.pin); err != nil {
		return nil, err
	}
	end, filed, err := f.count()
	if err != nil {
		return nil, err
	}
	f.began = time.Now()
	f.mark, f.least, f.restartable = end.Frame, end.Frame, end.Frame > 0 && filed >= int64(end.Frame)
	f.end = end
	at, err := restingPosition(f.path)
	if err != nil {
		return nil, err
	}
	if !isKnown && at.Size <= emptyFile {
		f.kind = driver.CutCreated
		return f, nil
	}
	from, ok := continues(known, end, at)
	if from.Sum != 0 { // the frames that were passed on are still there, and have not been written differently
		sum, err := f.sum(from.Frame)
		if err != nil {
			return nil, err
		}
		ok = sum == from.Sum
	}
	if !isKnown || !ok {
		f.kind, from = driver.CutBroken, end
	}
	f.position = from
	return f, nil
}

// continues returns the position at which a log is to be read on, and whether nothing is missing before: known is what
// was shipped, end is the end of the log now, and at what the position is if the log is empty. An empty log says nothing
// of what the file has, so the file must be the one that was known: it may have been replaced, or changed by another
// program.
func continues(known, end, at driver.PagePosition) (from driver.PagePosition, ok bool) {
	switch {
	case known.Rests:
		return driver.PagePosition{}, known == at
	case known.Frame > 0 && end.Frame >= known.Frame && end.Salt == known.Salt:
		return known, true
	case known.Sealed && end.Frame == 0:
		return driver.PagePosition{}, known.Size == at.Size && known.Modified == at.Modified
	case known.Sealed:
		return driver.PagePosition{}, nextSalt(known.Salt, end.Salt)
	}
	return driver.PagePosition{}, false
}

// hold begins a read transaction without reading the schema.
func hold(c *conn) error {
	if err := c.exec("BEGIN"); err != nil {
		return err
	}
	_, err := c.number(holdStatement)
	return err
}

// restingPosition returns the position of a file whose log is empty.
func restingPosition(path string) (driver.PagePosition, error) {
	info, err := os.Stat(path)
	if err != nil {
		return driver.PagePosition{}, err
	}
	return driver.PagePosition{Rests: true, Size: info.Size(), Modified: info.ModTime().UnixNano()}, nil
}

// count returns the end of what has been committed, and how many frames of it are in the file already.
func (f *follower) count() (end driver.PagePosition, filed int64, err error) {
	before := uint64(0)
	for try := 0; ; try++ {
		total := int64(-1)
		if err := f.probe.each(countStatement, nil, func(row *sqlite.Stmt) {
			total, filed = row.ColumnInt64(1), row.ColumnInt64(2)
		}); err != nil {
			return end, 0, err
		}
		switch {
		case total == 0:
			return end, 0, nil
		case total < 0 && try < maxCounts: // a commit is writing the count
			time.Sleep(time.Duration(try) * time.Microsecond)
			continue
		case total < 0:
			return end, 0, fmt.Errorf("%w: the log of %s cannot be read", driver.ErrUnavailable, f.path)
		}
		header, err := f.header()
		if err != nil {
			return end, 0, err
		}
		// If the log is restarted, it gets a new salt after its count is 0. So a count between two reads of the same salt is
		// of that salt.
		salt := binary.BigEndian.Uint64(header[walSalt:])
		if salt == before {
			sum, err := f.sum(uint32(total))
			return driver.PagePosition{Salt: salt, Frame: uint32(total), Sum: sum}, filed, err
		}
		before = salt
	}
}

// sum returns the checksum in the log of all frames up to one.
func (f *follower) sum(frame uint32) (uint64, error) {
	header, err := f.header()
	if err != nil {
		return 0, err
	}
	size := int64(binary.BigEndian.Uint32(header[walPageSize:]))
	sum := make([]byte, frameHeader-frameSum)
	_, err = f.log.ReadAt(sum, walHeader+int64(frame-1)*(frameHeader+size)+frameSum)
	return binary.BigEndian.Uint64(sum), err
}

// header returns the header of the log.
func (f *follower) header() ([]byte, error) {
	if f.log == nil {
		log, err := os.Open(f.path + "-wal") // SQLite has no locks on it, which closing it would release
		if err != nil {
			return nil, err
		}
		f.log = log
	}
	header := make([]byte, walHeader)
	_, err := f.log.ReadAt(header, 0)
	return header, err
}

// look notes the end of what has been committed. A pageLog calls it while no commit begins.
func (f *follower) look() {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.pin == nil {
		f.err = os.ErrClosed
		return
	}
	end, _, err := f.count()
	from := f.position
	switch {
	case err != nil:
	case f.restartable && from.Frame > 0 && end.Frame == 0: // restarted, and nothing was committed yet
		end = from
	case end.Frame == from.Frame && (end.Salt == from.Salt || end.Frame == 0):
		end = from
	case from.Frame == 0, end.Salt == from.Salt && end.Frame > from.Frame:
	case f.restartable && nextSalt(from.Salt, end.Salt):
		f.position, f.mark = driver.PagePosition{Salt: end.Salt}, 0
	default:
		err = fmt.Errorf("%w: %s (%+v after %+v)", errLogChanged, f.path, end, from)
	}
	f.end, f.err = end, err
}

// nextSalt reports whether a log was restarted once. SQLite then increments the first half of its salt.
func nextSalt(before, after uint64) bool { return uint32(after>>32) == uint32(before>>32)+1 }

// renew replaces the pin by a later one, if there are frames that the present one does not see. Otherwise the new one
// might not keep the log from being restarted, because the whole log may be in the file.
func (f *follower) renew() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.pin == nil {
		return nil
	}
	if f.end.Frame <= f.mark {
		return nil
	}
	began := time.Now()
	if err := hold(f.probe); err != nil {
		return err
	}
	f.pin, f.probe = f.probe, f.pin
	if err := f.probe.exec("COMMIT"); err != nil {
		return err
	}
	now, _, err := f.count() // the pin may see more than end
	f.began, f.least, f.mark, f.restartable = began, f.end.Frame, now.Frame, false
	return err
}

// held returns a frame that checkpoints can reach, about where the pin keeps them from going on, and when it began.
func (f *follower) held() (frame uint32, began time.Time) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.least, f.began
}

// release lets the log be restarted once, if all of it is in the file. Everything must have been shipped as sealed, and
// nobody may write meanwhile.
func (f *follower) release() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.pin == nil {
		return os.ErrClosed
	}
	if err := f.pin.exec("COMMIT"); err != nil {
		return err
	}
	return f.repin()
}

// repin begins the pin anew, at the end of the log, which may be in the file completely.
func (f *follower) repin() error {
	f.began, f.mark, f.least, f.restartable = time.Now(), f.end.Frame, f.end.Frame, true
	return hold(f.pin)
}

// seal notes that the log ends at the end, and what the file is then.
func (f *follower) seal() error {
	at, err := restingPosition(f.path)
	f.end.Sealed, f.end.Size, f.end.Modified = true, at.Size, at.Modified
	return err
}

// file moves the log into the file and reports whether all of it is there; others may keep it from that. Everything must
// have been shipped, and nobody may write meanwhile.
func (f *follower) file() (whole bool, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.pin == nil {
		return false, os.ErrClosed
	}
	checkpoint := func() error {
		return f.probe.each("PRAGMA wal_checkpoint(PASSIVE)", nil, func(row *sqlite.Stmt) {
			whole = !row.ColumnBool(0) && row.ColumnInt64(1) == row.ColumnInt64(2)
		})
	}
	if err := checkpoint(); err != nil || whole {
		return whole, err
	}
	// The pin may see less than mark: a commit can come between its beginning and the count.
	if err := f.pin.exec("COMMIT"); err != nil {
		return false, err
	}
	err = checkpoint()
	return whole, errors.Join(err, f.repin())
}

// empty ends the pin and empties the log, if nobody else reads it. Everything must have been shipped, and nobody may
// write meanwhile. If the log is not empty, the follower goes on.
func (f *follower) empty() (bool, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.pin == nil {
		return false, os.ErrClosed
	}
	if err := f.pin.exec("COMMIT"); err != nil {
		return false, err
	}
	busy := true
	f.probe.raw.SetBusyTimeout(0)
	err := f.probe.each("PRAGMA wal_checkpoint(TRUNCATE)", nil, func(row *sqlite.Stmt) { busy = row.ColumnBool(0) })
	if err == nil && busy {
		err = f.repin()
	}
	return err == nil && !busy, err
}

// close ends the follower.
func (f *follower) close() {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, c := range []*conn{f.pin, f.probe} {
		if c != nil {
			_ = c.close() // it was only read
		}
	}
	if f.log != nil {
		_ = f.log.Close()
	}
	f.pin, f.probe, f.log = nil, nil, nil
	if f.leave != nil {
		f.leave()
		f.leave = nil
	}
}

// changes returns what was committed between position and end.
func (f *follower) changes() (driver.FileCut, error) {
	cut := driver.FileCut{File: f.name + ".db", Kind: f.kind, Position: f.end}
	from, to := f.position.Frame, f.end.Frame
	if to == from || f.kind == driver.CutBroken {
		return cut, nil
	}
	header, err := f.header()
	if err != nil {
		return cut, err
	}
	size := int64(binary.BigEndian.Uint32(header[walPageSize:]))
	salt := header[walSalt : walSalt+8]
	newest := map[uint32]int64{} // offset of the page's newest frame
	head := make([]byte, frameHeader)
	for i := int64(from); i < int64(to); i++ {
		at := walHeader + i*(frameHeader+size)
		if _, err := f.log.ReadAt(head, at); err != nil {
			return cut, err
		}
		if !bytes.Equal(head[frameSalt:frameSalt+8], salt) {
			return cut, fmt.Errorf("%w: %s", errLogChanged, f.path)
		}
		newest[binary.BigEndian.Uint32(head)] = at + frameHeader
	}
	pages := binary.BigEndian.Uint32(head[frameSize:])
	if pages == 0 {
		return cut, fmt.Errorf("%w: %s: frame %d ends no transaction", errLogChanged, f.path, to)
	}
	maps.DeleteFunc(newest, func(number uint32, _ int64) bool { return number > pages })
	cut.PageSize, cut.Pages, cut.Changed = int(size), int(pages), len(newest)
	var failed error
	cut.Err = func() error { return failed }
	cut.Read = f.read(newest, size, &failed)
	return cut, nil
}

func (f *follower) read(newest map[uint32]int64, size int64, failed *error) iter.Seq2[uint32, []byte] {
	log := f.log
	return func(yield func(uint32, []byte) bool) {
		page := make([]byte, size)
		for _, number := range slices.Sorted(maps.Keys(newest)) {
			if _, err := log.ReadAt(page, newest[number]); err != nil {
				*failed = err
				return
			}
			if !yield(number, page) {
				return
			}
		}
	}
}

// logSize returns the size of the log of a file in bytes.
func logSize(path string) (int64, error) {
	info, err := os.Stat(path + "-wal")
	if errors.Is(err, fs.ErrNotExist) {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	return info.Size(), nil
}
