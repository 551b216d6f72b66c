package sqlite

import (
	"strconv"
	"sync"
	"sync/atomic"
)

const (
	// A connection has one or more shares of the cache. The writer has more, because dirty pages that do not fit are
	// written to the log early.
	readerShares = 1
	writerShares = 4
	// pageKiB is the memory for a page: its 4 KiB and SQLite's header, which the allocator rounds up to a power of two.
	pageKiB = 8
)

// pageCache divides the memory for pages among the connections. The linked SQLite keeps the pages of all connections in
// one cache of the total size, and evicts the least recently used page of any of them. So the total is what matters,
// and a connection with a small share can still use much of the cache. Safe for concurrent use.
type pageCache struct {
	pages     int64
	shareSize atomic.Int64 // in pages

	mu       sync.Mutex
	shares   int64 // of the open connections
	assigned int64 // the number of shares that shareSize is computed for
}

// count adds shares, or removes them if the number is negative. It reports whether shareSize has become smaller, so
// that idle connections must be told. It then leaves room for an eighth more shares, because telling all connections
// takes long.
func (c *pageCache) count(shares int64) (smaller bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.shares += shares
	smaller = c.shares > c.assigned
	if smaller || c.shares < c.assigned/2 {
		c.assigned = c.shares + c.shares/8
		c.shareSize.Store(c.pages / max(1, c.assigned))
	}
	return smaller
}

// fit sets the cache size of the connection to its shares.
func (c *conn) fit() error {
	pages := c.cache.shareSize.Load() * c.shares
	if pages == c.pages {
		return nil
	}
	c.pages = pages
	return c.script("PRAGMA cache_size = " + strconv.FormatInt(pages, 10))
}

// fit sets the cache sizes of idle connections. Those in use are set when they are released.
func (e *Engine) fit() {
	for _, f := range e.opened() {
		if f.retain() {
			f.db.fit()
			f.unref()
		}
	}
}

func (db *database) fit() {
	db.fitReaders()
	select {
	case db.writerLock <- struct{}{}:
		db.releaseWriter()
	default: // it is in use, and set when it is released
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

// fitWriter sets the cache size of the writer, which the caller holds.
func (db *database) fitWriter() {
	if db.writer != nil && db.writer.fit() != nil {
		_ = db.writer.close()
		db.writer = nil
	}
}
