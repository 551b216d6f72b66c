package store

import (
	"crypto/rand"
	"encoding/binary"
	"encoding/hex"
	"sync/atomic"
	"time"
)

// NewID returns a new document identifier: 24 lower-case hex digits, made like an
// ObjectID (seconds, 5 random bytes, counter) so that identifiers of one process ascend.
// Safe for concurrent use.
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
	counter atomic.Uint32
}

func newIDSource() *idSource {
	var seed [9]byte
	_, _ = rand.Read(seed[:]) // never fails since Go 1.24
	s := &idSource{process: [5]byte(seed[:5])}
	s.counter.Store(binary.BigEndian.Uint32(seed[5:]))
	return s
}

func (s *idSource) next(now time.Time) string {
	var b [12]byte
	binary.BigEndian.PutUint32(b[:4], uint32(now.Unix()))
	copy(b[4:9], s.process[:])
	n := s.counter.Add(1)
	b[9], b[10], b[11] = byte(n>>16), byte(n>>8), byte(n)
	return hex.EncodeToString(b[:])
}
