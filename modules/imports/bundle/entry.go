package bundle

import (
	"crypto/sha256"
	"encoding/hex"
	"slices"
	"strings"

	"tenantry/internal/fault"
	"tenantry/internal/strictjson"
	"tenantry/tenants/secrets"
)

// change is what an import does to the organization with one line.
type change byte

const (
	undecided change = iota
	create
	update
	keep
)

// entry is one line as it is understood.
type entry struct {
	line  int
	raw   Raw   // as it stood in the file, where that is needed
	size  int64 // bytes of memory that it takes, about
	kind  *kind
	rec   any    // of the kind
	given uint64 // bit n: the line has the n-th field of the kind
	// nulls: bit n: the line says by null that the n-th field is empty; emptied are the values of which it does.
	nulls   uint64
	emptied []string
	id      string // "" until one is given, found or made
	named   bool   // the line itself gave the id
	// digest stands for the content of a line that nothing else identifies.
	digest  key
	claims  []claim // beside those of the kind
	secrets map[string]secrets.Value
	rev     *int64 // as of Line
	// asIs: an export wrote the record as it was stored, though its definitions or
	// references no longer allow it; doubts are what would otherwise be its problems.
	asIs   bool
	doubts fault.List
	never  []string // fields whose doubts are problems all the same
	errs   fault.List
	judged bool // its problems are all known
	// missing is what the line lacks where it turns out to be a new record after all.
	missing fault.List

	old    any // what is stored, already changed to what the line says
	change change
}

// name returns what the line is, "" where it does not say.
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
	// identifies: the value alone says which record is meant.
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

// digestOf returns the identifier of a line that nothing else identifies: equal lines
// have equal ones, wherever they are imported, so that importing them again changes
// nothing. Secret values are left out: whoever sees the identifier and the other values
// could otherwise try out the secret ones.
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

// sniff returns the kind of a line without reading all of it; "" where `kind` is not its
// first field.
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

func (s *lineSet) clone() *lineSet { return &lineSet{bits: slices.Clone(s.bits), count: s.count} }

// key is an identifier in 12 bytes: that of a document, or part of a digest.
type key [12]byte

func keyOf(id string) key {
	var k key
	_, _ = hex.Decode(k[:], []byte(id)) // checked by store.ValidID before
	return k
}

func (k key) id() string { return hex.EncodeToString(k[:]) }
