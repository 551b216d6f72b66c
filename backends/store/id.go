package store

import (
	"crypto/rand"
	"encoding/binary"
	"encoding/hex"
	"sync/atomic"
	"time"
)

// NewID returns a new document identifier: 24 lower-case hex digits in the layout of an ObjectID (seconds, 5 random
// bytes, counter), so that the identifiers of one process ascend. Safe for concurrent use.
func (s *Store) NewID() string { return s.ids.next(time.Now()) }

// ValidID reports whether text is a document identifier.
func ValidID(text string) bool {
	if len(text) != 24 {
		return false
	}
	for i := range len(text) {
		if c := text[i]; (c < '0' || c > '9') && (c < 'a' || c > 'f') {
			return false
		}
	}
	return true
}

type idSource struct {
	process [5]byte
	start   uint64        // first value of the counter in each second
	last    atomic.Uint64 // seconds, then 24 bits of counter
}

func newIDSource() *idSource {
	var seed [9]byte
	_, _ = rand.Read(seed[:]) // never fails since Go 1.24
	// At least half of the counter's range is free in each second; an overflow borrows from the next second.
	return &idSource{process: [5]byte(seed[:5]), start: uint64(binary.BigEndian.Uint32(seed[5:]) & 0x7fffff)}
}

func (s *idSource) next(now time.Time) string {
	var n uint64
	for {
		last := s.last.Load()
		if n = max(last+1, uint64(now.Unix())<<24|s.start); s.last.CompareAndSwap(last, n) {
			break
		}
	}
	var b [12]byte
	binary.BigEndian.PutUint32(b[:4], uint32(n>>24))
	copy(b[4:9], s.process[:])
	b[9], b[10], b[11] = byte(n>>16), byte(n>>8), byte(n)
	return hex.EncodeToString(b[:])
}
