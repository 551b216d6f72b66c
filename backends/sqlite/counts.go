package sqlite

import (
	"crypto/sha256"
	"fmt"
	"strings"
	"sync"
	"time"
)

const (
	// leastKept is a count that is worth keeping: a smaller one is taken anew as fast.
	leastKept = 1000
	maxCounts = 256
	// maxCounted bounds the tables that are watched.
	maxCounted = 4096
	// countAge is how long a count is kept at most, which another program's change of the file is seen after.
	countAge = time.Minute
)

// shelf is what a workspace has in a table.
type shelf struct {
	ws    int64
	table string
}

func (w *workspace) shelf(t *table) shelf { return shelf{w.space.id, t.name} }

// counts are those of a database that were taken since their tables changed: lists count the same records for
// every page. A writer takes them away before it acknowledges. The zero value has none.
type counts struct {
	mu     sync.RWMutex
	epoch  uint64 // of all tables
	kept   int    // counts and marks of all of them
	tables map[shelf]*counted
}

// counted are the counts of one shelf. Its turn tells those of before a change from those of after it.
type counted struct {
	turn uint64
	kept map[string]count
	// marks are those of deep pages, by question. A list of them is never changed.
	marks map[string][]mark
}

type count struct {
	n     int64
	taken time.Time
}

// standing tells what a shelf has before a change from what it has after it.
type standing [2]uint64

// standing returns that of a shelf. A reader whose snapshot was begun or looked at after that sees no less.
func (c *counts) standing(of shelf) standing {
	c.mu.RLock()
	defer c.mu.RUnlock()
	if t := c.tables[of]; t != nil {
		return standing{c.epoch, t.turn}
	}
	return standing{c.epoch, 0}
}

// maxKept bounds the counts and marks of all shelves, and longKey the text that tells one question from others:
// a longer one is hashed.
const (
	maxKept = 16_384
	longKey = 1 << 10
)

func shortened(text string) string {
	if len(text) <= longKey {
		return text
	}
	sum := sha256.Sum256([]byte(text))
	return string(sum[:])
}

// countKey is what tells one question from another.
func countKey(sql string, args []any) string {
	var b strings.Builder
	b.WriteString(sql)
	for _, a := range args {
		text := fmt.Sprint(a)
		fmt.Fprintf(&b, "\x00%T:%d:%s", a, len(text), text) // with the length, for a text may have what stands between
	}
	return shortened(b.String())
}

// get returns a count that still holds, or where its table stands, for put.
func (c *counts) get(of shelf, key string) (n int64, ok bool, at standing) {
	c.mu.Lock()
	defer c.mu.Unlock()
	t := c.tables[of]
	if t == nil {
		return 0, false, standing{c.epoch, 0}
	}
	kept, ok := t.kept[key]
	return kept.n, ok && time.Since(kept.taken) < countAge, standing{c.epoch, t.turn}
}

// put keeps a count that was taken after at was told, unless the table has changed since.
func (c *counts) put(of shelf, key string, n int64, at standing) {
	if n < leastKept {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	t := c.table(of)
	if at != (standing{c.epoch, t.turn}) {
		return
	}
	keep(c, &t.kept, key, count{n, time.Now()})
}

// keep keeps a count, or marks, as one more of all of them. Where there are too many it begins anew.
func keep[T any](c *counts, in *map[string]T, key string, one T) {
	if _, known := (*in)[key]; !known {
		if c.kept >= maxKept {
			c.forget()
			return
		}
		if *in == nil || len(*in) >= maxCounts {
			c.kept -= len(*in)
			*in = map[string]T{}
		}
		c.kept++
	}
	(*in)[key] = one
}

func (c *counts) forget() { c.epoch, c.tables, c.kept = c.epoch+1, nil, 0 }

func (c *counts) table(of shelf) *counted {
	t := c.tables[of]
	if t != nil {
		return t
	}
	if len(c.tables) >= maxCounted {
		c.forget()
	}
	if c.tables == nil {
		c.tables = map[shelf]*counted{}
	}
	t = &counted{}
	c.tables[of] = t
	return t
}

// changed takes away the counts of the shelves, of all where touched is nil.
func (c *counts) changed(touched map[shelf]bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if touched == nil {
		c.forget()
	}
	for of := range touched {
		t := c.table(of)
		t.turn++
		c.kept -= len(t.kept) + len(t.marks)
		t.kept, t.marks = nil, nil
	}
}
