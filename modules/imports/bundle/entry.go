package bundle

import (
	"crypto/sha256"
	"encoding/hex"
	"math/bits"
	"slices"
	"strings"

	"tenantry/internal/fault"
	"tenantry/internal/strictjson"
	"tenantry/tenants/secrets"
)

// change is what an import does with the record of a line.
type change byte

const (
	undecided change = iota
	create
	update
	keep
)

// entry is one decoded line.
type entry struct {
	line  int
	raw   Raw   // the line in the file; only set while it is needed
	size  int64 // estimate of its bytes of memory
	kind  *kind
	rec   any    // the record as the line gives it
	given uint64 // bit n: the line has the n-th field of the kind
	// nulls: bit n: the line sets the n-th field to null; emptied are the values that it sets to null.
	nulls   uint64
	emptied []string
	id      string // "" until it is given, found or made
	named   bool   // the line gives the id
	// digest is a hash of the content of a line that nothing else identifies.
	digest  key
	claims  []claim // in addition to those of the kind
	secrets map[string]secrets.Value
	rev     *int64 // see Line.Rev
	// asIs: an export wrote the record as stored, although its definitions or references no longer allow that; doubts
	// are its problems, which do not refuse the line.
	asIs     bool
	warnings fault.List
	never    []string // fields whose problems refuse the line nevertheless
	errs     fault.List
	judged   bool // its problems are all known
	// missing are the problems of the line if it turns out to be a new record.
	missing fault.List

	said  *Content // what the line says of the bytes of the record; nil: not settled yet
	bytes *Given   // the bytes that are stored with the record; nil: none

	old    any // the stored record, with the line applied
	change change
}

// name returns the kind of the line; "" if it is unknown.
func (e *entry) name() string {
	if e.kind == nil {
		return ""
	}
	return e.kind.Name
}

// claim is a unique value of a line.
type claim struct {
	field string
	key   key
	// identifies: the value alone identifies the record.
	identifies bool
}

func claimOf(kind, field, group, value string) key {
	h := sha256.New()
	for _, part := range []string{kind, field, group, value} {
		h.Write([]byte(part))
		h.Write([]byte{0}) // no part holds a NUL character
	}
	var sum [sha256.Size]byte
	return key(h.Sum(sum[:0])[:12])
}

// digestOf returns the identifier of a line that nothing else identifies. Equal lines have the same identifier
// everywhere, so importing them again changes nothing. Secret values are left out, because they could otherwise be
// guessed from the identifier and the other values.
func digestOf(kind string, line strictjson.Value, secret func(name string) bool) key {
	buf := append(make([]byte, 0, 1024), kind...)
	buf = append(buf, 0)
	buf = line.AppendCanonical(buf, secret)
	sum := sha256.Sum256(buf)
	return key(sum[:12])
}

// repeat returns the identifier of the n-th further occurrence of the same content.
func (k key) repeat(n int) key {
	for n > 0 {
		sum := sha256.Sum256(append(k[:], byte(n), byte(n>>8), byte(n>>16), byte(n>>24)))
		return key(sum[:12])
	}
	return k
}

// sniff returns the kind of a line without parsing all of it; "" if kind is not its first member.
func sniff(line string) string {
	var found bool
	for _, next := range [...]string{"{", `"kind"`, ":", `"`} {
		if line, found = strings.CutPrefix(strings.TrimLeft(line, " \t\r"), next); !found {
			return ""
		}
	}
	kind, _, found := strings.Cut(line[:min(len(line), 34)], `"`)
	if !found || strings.Contains(kind, `\`) {
		return ""
	}
	return kind
}

// lineSet is a set of line numbers.
type lineSet struct {
	bits  []uint64
	count int
}

func (s *lineSet) add(line int) {
	for len(s.bits) <= line>>6 {
		s.bits = append(s.bits, 0)
	}
	if !s.has(line) {
		s.bits[line>>6] |= 1 << (line & 63)
		s.count++
	}
}

func (s *lineSet) has(line int) bool {
	return line>>6 < len(s.bits) && s.bits[line>>6]&(1<<(line&63)) != 0
}

// countWithout returns how many of its lines the other set lacks.
func (s *lineSet) countWithout(other *lineSet) (n int) {
	for i, word := range s.bits {
		if i < len(other.bits) {
			word &^= other.bits[i]
		}
		n += bits.OnesCount64(word)
	}
	return n
}

func (s *lineSet) clone() *lineSet { return &lineSet{bits: slices.Clone(s.bits), count: s.count} }

// key is an identifier in 12 bytes: that of a document, or part of a digest.
type key [12]byte

func keyOf(id string) key {
	var k key
	_, _ = hex.Decode(k[:], []byte(id)) // store.ValidID has checked it
	return k
}

func (k key) id() string { return hex.EncodeToString(k[:]) }
