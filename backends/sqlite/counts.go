package sqlite

import (
	"crypto/sha256"
	"fmt"
	"strings"
	"sync"
	"time"
)

const (
	// minCachedCount is the smallest count that is cached. A smaller one is as fast to take again.
	minCachedCount = 1000
	// maxPartitionEntries bounds the counts of a partition, and its lists of bookmarks.
	maxPartitionEntries = 256
	// maxPartitions bounds the partitions whose changes are counted.
	maxPartitions = 4096
	// maxCountAge bounds the age of a cached count, because changes by another program are not noticed.
	maxCountAge = time.Minute
)

// partition identifies the rows of a workspace in a table.
type partition struct {
	ws    int64
	table string
}

func (w *workspace) partition(t *table) partition { return partition{w.space.id, t.name} }

// countCache caches the counts of a database until the counted partitions change: lists count the same records for
// every page. A write removes them before it is acknowledged. It caches the bookmarks of deep pages too. The zero value
// is empty. Safe for concurrent use.
type countCache struct {
	mu         sync.RWMutex
	epoch      uint64 // grows when the cache is emptied
	entries    int    // number of counts and lists of bookmarks
	partitions map[partition]*partitionCache
}

// partitionCache has the counts and bookmarks of one partition, and the number of its changes.
type partitionCache struct {
	changes uint64
	counts  map[string]cachedCount
	// bookmarks are those of deep pages, by cacheKey. A list of them is never modified.
	bookmarks map[string][]bookmark
}

type cachedCount struct {
	n     int64
	taken time.Time
}

// version identifies a state of a partition: it differs after each change.
type version [2]uint64

// version returns the version of a partition. A snapshot that begins, or is refreshed, after the call has all changes
// up to it.
func (c *countCache) version(of partition) version {
	c.mu.RLock()
	defer c.mu.RUnlock()
	if t := c.partitions[of]; t != nil {
		return version{c.epoch, t.changes}
	}
	return version{c.epoch, 0}
}

const (
	// maxCacheEntries bounds the counts and lists of bookmarks of all partitions.
	maxCacheEntries = 16_384
	// maxKeyLength is the length up to which a cacheKey is kept as text; a longer one is hashed.
	maxKeyLength = 1 << 10
)

// hashLong returns the text, or its hash if it is longer than maxKeyLength.
func hashLong(text string) string {
	if len(text) <= maxKeyLength {
		return text
	}
	sum := sha256.Sum256([]byte(text))
	return string(sum[:])
}

// cacheKey identifies a statement with its arguments.
func cacheKey(sql string, args []any) string {
	var b strings.Builder
	b.WriteString(sql)
	for _, a := range args {
		text := fmt.Sprint(a)
		fmt.Fprintf(&b, "\x00%T:%d:%s", a, len(text), text) // with its length, because a text may contain the separator
	}
	return hashLong(b.String())
}

// get returns a valid count, and the version of the partition, for put.
func (c *countCache) get(of partition, key string) (n int64, ok bool, at version) {
	c.mu.Lock()
	defer c.mu.Unlock()
	t := c.partitions[of]
	if t == nil {
		return 0, false, version{c.epoch, 0}
	}
	kept, ok := t.counts[key]
	return kept.n, ok && time.Since(kept.taken) < maxCountAge, version{c.epoch, t.changes}
}

// put caches a count that was taken after get returned the version, unless the partition has changed since.
func (c *countCache) put(of partition, key string, n int64, at version) {
	if n < minCachedCount {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	t := c.partition(of)
	if at != (version{c.epoch, t.changes}) {
		return
	}
	keep(c, &t.counts, key, cachedCount{n, time.Now()})
}

// keep stores a count or a list of bookmarks. If there are too many, it empties the cache, or that of the partition.
func keep[T any](c *countCache, in *map[string]T, key string, one T) {
	if _, known := (*in)[key]; !known {
		if c.entries >= maxCacheEntries {
			c.forget()
			return
		}
		if *in == nil || len(*in) >= maxPartitionEntries {
			c.entries -= len(*in)
			*in = map[string]T{}
		}
		c.entries++
	}
	(*in)[key] = one
}

// forget empties the cache and changes the versions of all partitions. c.mu is held.
func (c *countCache) forget() { c.epoch, c.partitions, c.entries = c.epoch+1, nil, 0 }

// partition returns the cache of a partition, which it adds if necessary. c.mu is held.
func (c *countCache) partition(of partition) *partitionCache {
	t := c.partitions[of]
	if t != nil {
		return t
	}
	if len(c.partitions) >= maxPartitions {
		c.forget()
	}
	if c.partitions == nil {
		c.partitions = map[partition]*partitionCache{}
	}
	t = &partitionCache{}
	c.partitions[of] = t
	return t
}

// changed removes the counts and bookmarks of the partitions, or of all if touched is nil.
func (c *countCache) changed(touched map[partition]bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if touched == nil {
		c.forget()
	}
	for of := range touched {
		t := c.partition(of)
		t.changes++
		c.entries -= len(t.counts) + len(t.bookmarks)
		t.counts, t.bookmarks = nil, nil
	}
}
