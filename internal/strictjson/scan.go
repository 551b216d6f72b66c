package strictjson

import (
	"bytes"
	"errors"
	"fmt"
	"hash/maphash"
	"io"
	"math"
	"strings"
	"unicode/utf16"
	"unicode/utf8"

	"tenantry/internal/texts"
)

// chunk is how many bytes of a stream are read at once.
const chunk = 4 << 10

const keepNone = math.MaxInt // the value of keepFrom if nothing is kept

// scanner reads a text once and stops at the first invalid byte or at the end. Its methods return false after they have
// set err.
type scanner struct {
	src      io.Reader // nil: everything is in buf
	buf      []byte
	tree     bool   // whether values are built
	source   string // the text of buf; strings of the tree are parts of it
	valid    bool   // whether all of buf is known to be UTF-8
	at       int    // the next byte of buf
	base     int64  // the offset of buf in the text
	keepFrom int    // the first byte of buf that is still needed, if it is before at
	ended    bool   // whether nothing comes after buf
	depth    int

	maxValues, values int    // the maximum number of values (0: any number), and the number so far
	objects           int    // the number of objects among the values
	maxElements       int    // how many elements of the next array are held, and one more; 0: all
	truncated         []byte // an array of which no more is held

	readErr error // of src
	err     error // what the caller gets

	names []byte   // the decoded names of the open objects, one after another
	ends  []uint32 // where in names each of them ends

	members []Member // of the objects of the tree that are open
	items   []Value  // of its arrays that are open
	decoded []byte   // a string that has escapes
}

// fail sets err and returns false.
func (s *scanner) fail(format string, args ...any) bool {
	s.err = Error(fmt.Sprintf(format, args...))
	return false
}

// failShort reports that the text ends too early, with the error of src if there was one.
func (s *scanner) failShort(format string, args ...any) bool {
	if s.err = s.readErr; s.err != nil {
		return false
	}
	return s.fail(format, args...)
}

// all reads a text that contains exactly one value.
func (s *scanner) all() Value {
	if s.begin() {
		if v, ok := s.value(); ok && s.end() {
			return v
		}
	}
	return Value{}
}

// begin moves to the first byte of the value.
func (s *scanner) begin() bool {
	if s.has(3) && bytes.HasPrefix(s.buf[s.at:], []byte("\xef\xbb\xbf")) {
		return s.fail("starts with a byte order mark; send plain UTF-8")
	}
	return s.blanks() != 0 || s.has(1) || s.failShort("is empty; a JSON object is expected")
}

// end reports whether only blanks are left.
func (s *scanner) end() bool {
	if s.blanks(); s.has(1) {
		return s.fail("has bytes after its JSON value, at byte %d", s.offset()+1)
	}
	s.err = s.readErr
	return s.err == nil
}

// offset returns the number of bytes that were consumed.
func (s *scanner) offset() int64 { return s.base + int64(s.at) }

// has reports whether the text has n more bytes. n is small.
func (s *scanner) has(n int) bool { return len(s.buf)-s.at >= n || s.fill(n) }

// fill reads until buf has n more bytes, and reports whether it has.
func (s *scanner) fill(n int) bool {
	for len(s.buf)-s.at < n {
		if s.ended {
			return false
		}
		from := min(s.at, s.keepFrom)
		held := len(s.buf) - from
		room := s.buf[:0]
		if cap(room)-held < chunk/2 {
			room = make([]byte, 0, max(chunk, held+held/2+chunk/2))
		}
		room = append(room, s.buf[from:]...)
		s.base += int64(from)
		s.at -= from
		s.keepFrom -= from
		got, err := s.src.Read(room[held:cap(room)])
		s.buf = room[:held+got]
		if err != nil {
			s.ended = true
			if !errors.Is(err, io.EOF) {
				s.readErr = err
			}
		}
	}
	return true
}

// peek returns the next byte, or 0 at the end.
func (s *scanner) peek() byte {
	if s.at < len(s.buf) || s.fill(1) {
		return s.buf[s.at]
	}
	return 0
}

// blanks skips white space and returns the byte after it, or 0 at the end.
func (s *scanner) blanks() byte {
	for {
		switch c := s.peek(); c {
		case ' ', '\t', '\r', '\n':
			s.at++
		default:
			return c
		}
	}
}

// invalid reports that the next byte is not allowed or missing.
func (s *scanner) invalid() bool {
	switch {
	case !s.has(1):
		return s.failShort("is not valid JSON: it ends too early, after byte %d", s.offset())
	case s.buf[s.at] >= utf8.RuneSelf && s.rune() == 0:
		return s.fail("is not valid UTF-8, at byte %d", s.offset()+1)
	}
	return s.fail("is not valid JSON, at byte %d", s.offset()+1)
}

// rune returns the number of bytes of the next character, or 0 if it is not UTF-8.
func (s *scanner) rune() int {
	n := 1
	for !utf8.FullRune(s.buf[s.at:]) && s.has(n+1) {
		n++
	}
	if r, size := utf8.DecodeRune(s.buf[s.at:]); r != utf8.RuneError || size > 1 {
		return size
	}
	return 0
}

// value reads a value; the next byte is its first. Unless a tree is built, it returns only the shape.
func (s *scanner) value() (v Value, ok bool) {
	if s.values++; s.maxValues > 0 && s.values > s.maxValues {
		return v, s.fail("has more than %d values, at byte %d", s.maxValues, s.offset()+1)
	}
	start := s.at
	switch s.peek() {
	case '{':
		return s.object(nil)
	case '[':
		return s.array()
	case '"':
		var nul bool
		switch v.Is = Text; {
		case !s.tree:
			nul, ok = s.text(nil)
		case s.plain():
			return Value{Is: Text, Text: s.source[start+1 : s.at-1]}, true
		default:
			s.decoded = s.decoded[:0]
			nul, ok = s.text(&s.decoded)
			v.Text = string(s.decoded)
		}
		ok = ok && (!nul || s.nul())
	case 't':
		v.Is, ok = True, s.literal("true")
	case 'f':
		v.Is, ok = False, s.literal("false")
	case 'n':
		ok = s.literal("null")
	default:
		v.Is = Number
		if ok = s.number(); ok && s.tree {
			v.Text = s.source[start:s.at]
		}
	}
	return v, ok
}

func (s *scanner) literal(w string) bool {
	for i := range len(w) {
		if s.peek() != w[i] {
			return s.invalid()
		}
		s.at++
	}
	return true
}

func (s *scanner) number() bool {
	s.skip('-', '-')
	if !s.skip('0', '0') && !s.digits() {
		return s.invalid()
	}
	if s.skip('.', '.') && !s.digits() {
		return s.invalid()
	}
	if s.skip('e', 'E') {
		s.skip('+', '-')
		return s.digits() || s.invalid()
	}
	return true
}

func (s *scanner) digits() bool {
	some := false
	for s.has(1) && s.buf[s.at] >= '0' && s.buf[s.at] <= '9' {
		s.at++
		some = true
	}
	return some
}

// skip consumes the next byte if it is a or b, and reports whether it was.
func (s *scanner) skip(a, b byte) bool {
	if c := s.peek(); c != a && c != b {
		return false
	}
	s.at++
	return true
}

// open enters an array or object, and leaves it again if it is empty.
func (s *scanner) open(closing byte) (more, ok bool) {
	if s.depth++; s.depth > MaxDepth {
		return false, s.fail("nests deeper than %d levels, at byte %d", MaxDepth, s.offset()+1)
	}
	s.at++
	if s.blanks() == closing {
		s.at++
		s.depth--
		return false, true
	}
	return true, s.has(1) || s.invalid()
}

// next moves over a comma to the next byte after it, or over the closing bracket.
func (s *scanner) next(closing byte) (more, ok bool) {
	switch s.blanks() {
	case closing:
		s.at++
		s.depth--
		return false, true
	case ',':
		s.at++
		s.blanks()
		return true, true
	}
	return false, s.invalid()
}

func (s *scanner) array() (v Value, ok bool) {
	v.Is = Array
	mark, elements := len(s.items), s.maxElements
	s.maxElements = 0 // the bound does not apply to arrays inside
	more, ok := s.open(']')
	for n := 0; ok && more; n++ {
		var item Value
		if item, ok = s.value(); !ok {
			return v, false
		}
		if s.tree {
			s.items = append(s.items, item)
		}
		if elements > 0 && n == elements {
			s.truncated = append(bytes.Clone(s.buf[s.keepFrom:s.at]), ']')
			s.keepFrom = keepNone
		}
		more, ok = s.next(']')
	}
	v.Items = append(v.Items, s.items[mark:]...)
	s.items = s.items[:mark]
	return v, ok
}

// object reads an object. field, if given, is called for every name and reads the value, whose first byte is the next.
func (s *scanner) object(field func(name []byte) bool) (v Value, ok bool) {
	v.Is = Object
	s.objects++
	mark := len(s.members)
	seen := nameSet{s: s, first: len(s.ends), text: len(s.names)}
	more, ok := s.open('}')
	for ok && more {
		begin := len(s.names)
		var m Member
		if m.Name, ok = s.name(&seen); !ok {
			return v, false
		}
		if field != nil {
			ok = field(s.names[begin:])
		} else {
			m.Value, ok = s.value()
		}
		if !ok {
			return v, false
		}
		if s.tree {
			s.members = append(s.members, m)
		}
		more, ok = s.next('}')
	}
	v.Members = append(v.Members, s.members[mark:]...)
	s.members = s.members[:mark]
	s.names, s.ends = s.names[:seen.text], s.ends[:seen.first]
	return v, ok
}

// name reads a name, appends it to s.names, and moves to its value. It returns the name if a tree is built.
func (s *scanner) name(seen *nameSet) (name string, ok bool) {
	if s.peek() != '"' {
		return "", s.invalid()
	}
	start, begin := s.at, len(s.names)
	nul, ok := s.text(&s.names)
	switch {
	case !ok:
		return "", false
	case seen.add(begin):
		return "", s.fail("gives the name %q twice in one object, at byte %d", texts.Clip(string(s.names[begin:])), s.offset())
	case nul:
		return "", s.nul()
	case s.tree:
		name = s.part(start, s.names[begin:])
	}
	if s.blanks() != ':' {
		return "", s.invalid()
	}
	s.at++
	s.blanks()
	return name, true
}

// part returns the decoded string that began at start. Without escapes it is a part of the source: an escape is longer
// than the character it stands for.
func (s *scanner) part(start int, decoded []byte) string {
	if end := s.at - 1; len(decoded) == end-start-1 {
		return s.source[start+1 : end]
	}
	return string(decoded)
}

func (s *scanner) nul() bool { return s.fail("contains a NUL character, at byte %d", s.offset()) }

// plain moves over a string without escapes, and reports whether there was one.
func (s *scanner) plain() bool {
	n := s.at + 1 + s.run(s.buf[s.at+1:])
	if n == len(s.buf) || s.buf[n] != '"' {
		return false
	}
	s.at = n + 1
	return true
}

// run returns the number of bytes at the beginning of part that stand for themselves.
func (s *scanner) run(part []byte) int {
	for i, c := range part {
		if c < ' ' || c == '"' || c == '\\' || c >= utf8.RuneSelf && !s.valid {
			return i
		}
	}
	return len(part)
}

// text reads a string and, if into is not nil, appends the decoded string to it. It reports whether the string contains
// a NUL character.
func (s *scanner) text(into *[]byte) (nul, ok bool) {
	s.at++
	for {
		n := s.run(s.buf[s.at:])
		if into != nil {
			*into = append(*into, s.buf[s.at:s.at+n]...)
		}
		s.at += n
		switch c := s.peek(); {
		case c == '"':
			s.at++
			return nul, true
		case c == '\\':
			r, ok := s.escape()
			if !ok {
				return false, false
			}
			nul = nul || r == 0
			if into != nil {
				*into = utf8.AppendRune(*into, r)
			}
		case c >= utf8.RuneSelf:
			size := s.rune()
			if size == 0 {
				return false, s.invalid()
			}
			if into != nil {
				*into = append(*into, s.buf[s.at:s.at+size]...)
			}
			s.at += size
		case c < ' ':
			return false, s.invalid()
		}
	}
}

// escape reads an escape sequence.
func (s *scanner) escape() (rune, bool) {
	s.at++
	c := s.peek()
	if c == 'u' {
		s.at++
		return s.unicode()
	}
	const escapes, decoded = `"\/bfnrt`, "\"\\/\b\f\n\r\t"
	i := strings.IndexByte(escapes, c)
	if i < 0 {
		return 0, s.invalid()
	}
	s.at++
	return rune(decoded[i]), true
}

// unicode reads the digits after \u. Half of a surrogate pair is refused, because replacing it would make different
// texts equal.
func (s *scanner) unicode() (rune, bool) {
	begin := s.offset() - 1 // the backslash, from 1
	r, ok := s.hex()
	if !ok || !utf16.IsSurrogate(r) {
		return r, ok
	}
	low := rune(0)
	if s.has(2) && s.buf[s.at] == '\\' && s.buf[s.at+1] == 'u' {
		s.at += 2
		if low, ok = s.hex(); !ok {
			return 0, false
		}
	}
	if r = utf16.DecodeRune(r, low); r == utf8.RuneError {
		return 0, s.fail("has half of a surrogate pair, which is not a character, at byte %d", begin)
	}
	return r, true
}

func (s *scanner) hex() (rune, bool) {
	var r rune
	for range 4 {
		switch c := s.peek(); {
		case c >= '0' && c <= '9':
			r = r<<4 + rune(c-'0')
		case c|0x20 >= 'a' && c|0x20 <= 'f':
			r = r<<4 + rune(c|0x20-'a') + 10
		default:
			return 0, s.invalid()
		}
		s.at++
	}
	return r, true
}

// nameSet is the names of one open object. Few names are compared one by one. Of many, only those with an equal hash
// are compared; the hash has a random seed, so callers cannot make names collide.
type nameSet struct {
	s     *scanner
	first int // the index of the first name in s.ends
	text  int // the offset of the first name in s.names
	seed  maphash.Seed
	seen  map[uint32]struct{}
}

// fewNames is the number of names that are compared one by one.
const fewNames = 32

// add adds the last name in s.names, which begins at begin, and reports whether the object has it already.
func (n *nameSet) add(begin int) (twice bool) {
	s := n.s
	name := s.names[begin:]
	ends := s.ends[n.first:]
	s.ends = append(s.ends, uint32(len(s.names)))
	if len(ends) >= fewNames && !n.hashed(ends, name) {
		return false
	}
	at := uint32(n.text)
	for _, end := range ends {
		if string(s.names[at:end]) == string(name) {
			return true
		}
		at = end
	}
	return false
}

// hashed adds the hash of a name and reports whether an earlier name may be equal.
func (n *nameSet) hashed(ends []uint32, name []byte) bool {
	if n.seen == nil {
		n.seen, n.seed = map[uint32]struct{}{}, maphash.MakeSeed()
		at := uint32(n.text)
		for _, end := range ends {
			n.seen[n.hash(n.s.names[at:end])] = struct{}{}
			at = end
		}
	}
	count := len(n.seen)
	n.seen[n.hash(name)] = struct{}{}
	return len(n.seen) == count
}

func (n *nameSet) hash(name []byte) uint32 { return uint32(maphash.Bytes(n.seed, name)) }
