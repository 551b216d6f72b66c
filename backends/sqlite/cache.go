package sqlite

import (
	"strconv"
	"sync"
	"sync/atomic"
)

const (
	// The writer's share is larger: what does not fit is written before its time.
	readerParts = 1
	writerParts = 4
	// pageKiB is what a page takes: its 4 KiB and what SQLite notes of it, rounded up by the allocator to a power of
	// two.
	pageKiB = 8
)

// pageCache shares memory for pages out among the connections. SQLite, as it is linked, keeps the pages of all of them
// in one cache, which holds as much as they may together and lets the least recently used go first, whosever it is: so
// the sum is what counts, and a small share keeps nobody from much.
type pageCache struct {
	pages int64
	share atomic.Int64 // pages for each part

	mu     sync.Mutex
	parts  int64 // of the connections that are open
	shared int64 // how many parts the share is for
}

// count adds parts, or takes them away, and reports whether the share has become smaller, which connections that lie
// idle are to be told. That is for an eighth more parts each time: to tell all of each one that comes would take long.
func (c *pageCache) count(parts int64) (smaller bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.parts += parts
	smaller = c.parts > c.shared
	if smaller || c.parts < c.shared/2 {
		c.shared = c.parts + c.parts/8
		c.share.Store(c.pages / max(1, c.shared))
	}
	return smaller
}

// connect opens a connection that has a share of the cache.
func (db *database) connect(parts int64, pragmas ...string) (*conn, error) {
	c, err := openConn(db.path, connectionFlags, pragmas...)
	if err != nil {
		return nil, err
	}
	c.cache, c.parts = &db.engine.cache, parts
	if c.cache.count(parts) {
		db.engine.fit()
	}
	if err := c.fit(); err != nil {
		_ = c.close()
		return nil, err
	}
	return c, nil
}

// fit tells the connection its share, if that is another.
func (c *conn) fit() error {
	pages := c.cache.share.Load() * c.parts
	if pages == c.pages {
		return nil
	}
	c.pages = pages
	return c.script("PRAGMA cache_size = " + strconv.FormatInt(pages, 10))
}

// fit tells the connections that lie idle their share. Those at work are told after it.
func (e *Engine) fit() {
	for _, f := range e.opened() {
		if f.retain() {
			f.db.fit()
			f.leave()
		}
	}
}

func (db *database) fit() {
	db.fitReaders()
	select {
	case db.writing <- struct{}{}:
		db.leaveWriter()
	default: // whoever has it tells it when it is given back
	}
}

// leaveWriter gives the writer back, which then knows its share. It looks again afterwards: a share that became smaller
// in between was told by somebody who found the writer taken, and left it to whoever had it.
func (db *database) leaveWriter() {
	for {
		known := db.engine.cache.share.Load()
		db.fitWriter()
		<-db.writing
		if db.engine.cache.share.Load() == known {
			return
		}
		select {
		case db.writing <- struct{}{}:
		default:
			return
		}
	}
}

func (db *database) fitReaders() {
	db.mu.Lock()
	defer db.mu.Unlock()
	kept := db.idle[:0]
	for _, r := range db.idle {
		if r.conn.fit() != nil {
			_ = r.conn.close()
			continue
		}
		kept = append(kept, r)
	}
	clear(db.idle[len(kept):])
	db.idle = kept
}

// fitWriter is for who has the writer.
func (db *database) fitWriter() {
	if db.writer != nil && db.writer.fit() != nil {
		_ = db.writer.close()
		db.writer = nil
	}
}
