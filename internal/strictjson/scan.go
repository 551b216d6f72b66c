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

// chunk is how much of a stream is read at once.
const chunk = 4 << 10

const nothing = math.MaxInt // is kept

// scanner goes over a text once and stops at the first byte that cannot be right, or where
// there is nothing left. Its methods return false once err says why.
type scanner struct {
	src   io.Reader // nil: everything is in buf
	buf   []byte
	tree  bool   // what values are made of
	whole string // the same as buf; the strings of the tree are parts of this
	valid bool   // all is known to be UTF-8
	at    int    // the next byte of buf
	base  int64  // where in the text buf begins
	kept  int    // the first byte of buf that is still needed, if it stands before at
	ended bool   // nothing comes after buf
	depth int

	most, values int    // how many values there may be (0: any number), and how many there were
	objects      int    // that were among them
	elements     int    // how many the next array is held of, and one more; 0: all
	cut          []byte // an array of which no more is held

	lost error // of src
	err  error // what the caller is told

	names []byte   // the decoded names of the open objects, one after another
	ends  []uint32 // where in names each of them ends

	members []Member // of the objects of the tree that are open
	items   []Value  // of its arrays that are open
	decoded []byte   // a string that has escapes
}

// fail notes what is wrong.
func (s *scanner) fail(format string, args ...any) bool {
	s.err = Error(fmt.Sprintf(format, args...))
	return false
}

// short notes that there is nothing where there should be: what src said of it, if it did.
func (s *scanner) short(format string, args ...any) bool {
	if s.err = s.lost; s.err != nil {
		return false
	}
	return s.fail(format, args...)
}

// all returns the value of a text that holds nothing else.
func (s *scanner) all() Value {
	if s.begin() {
		if v, ok := s.value(); ok && s.end() {
			return v
		}
	}
	return Value{}
}

// begin steps to the first byte of the value.
func (s *scanner) begin() bool {
	if s.has(3) && bytes.HasPrefix(s.buf[s.at:], []byte("\xef\xbb\xbf")) {
		return s.fail("starts with a byte order mark; send plain UTF-8")
	}
	return s.blanks() != 0 || s.has(1) || s.short("is empty; a JSON object is expected")
}

// end reports whether only blanks are left.
func (s *scanner) end() bool {
	if s.blanks(); s.has(1) {
		return s.fail("has bytes after its JSON value, at byte %d", s.offset()+1)
	}
	s.err = s.lost
	return s.err == nil
}

// offset returns how many bytes were read.
func (s *scanner) offset() int64 { return s.base + int64(s.at) }

// has reports whether n more bytes are there, at most a few.
func (s *scanner) has(n int) bool { return len(s.buf)-s.at >= n || s.more(n) }

// more reads on until n more bytes are there, and reports whether they are.
func (s *scanner) more(n int) bool {
	for len(s.buf)-s.at < n {
		if s.ended {
			return false
		}
		from := min(s.at, s.kept)
		held := len(s.buf) - from
		room := s.buf[:0]
		if cap(room)-held < chunk/2 {
			room = make([]byte, 0, max(chunk, held+held/2+chunk/2))
		}
		room = append(room, s.buf[from:]...)
		s.base += int64(from)
		s.at -= from
		s.kept -= from
		got, err := s.src.Read(room[held:cap(room)])
		s.buf = room[:held+got]
		if err != nil {
			s.ended = true
			if !errors.Is(err, io.EOF) {
				s.lost = err
			}
		}
	}
	return true
}

// peek returns the next byte, 0 where there is none.
func (s *scanner) peek() byte {
	if s.at < len(s.buf) || s.more(1) {
		return s.buf[s.at]
	}
	return 0
}

// blanks skips white space and returns the byte after it, 0 where there is none.
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

// broken says that the next byte cannot stand where it does, or that there is none.
func (s *scanner) broken() bool {
	switch {
	case !s.has(1):
		return s.short("is not valid JSON: it ends too early, after byte %d", s.offset())
	case s.buf[s.at] >= utf8.RuneSelf && s.rune() == 0:
		return s.fail("is not valid UTF-8, at byte %d", s.offset()+1)
	}
	return s.fail("is not valid JSON, at byte %d", s.offset()+1)
}

// rune returns how many bytes the next character has; 0 where it is not UTF-8.
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

// value reads a value; the next byte is its first. Where no tree is made it returns the
// shape alone.
func (s *scanner) value() (v Value, ok bool) {
	if s.values++; s.most > 0 && s.values > s.most {
		return v, s.fail("has more than %d values, at byte %d", s.most, s.offset()+1)
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
			return Value{Is: Text, Text: s.whole[start+1 : s.at-1]}, true
		default:
			s.decoded = s.decoded[:0]
			nul, ok = s.text(&s.decoded)
			v.Text = string(s.decoded)
		}
		ok = ok && (!nul || s.nul())
	case 't':
		v.Is, ok = True, s.word("true")
	case 'f':
		v.Is, ok = False, s.word("false")
	case 'n':
		ok = s.word("null")
	default:
		v.Is = Number
		if ok = s.number(); ok && s.tree {
			v.Text = s.whole[start:s.at]
		}
	}
	return v, ok
}

func (s *scanner) word(w string) bool {
	for i := range len(w) {
		if s.peek() != w[i] {
			return s.broken()
		}
		s.at++
	}
	return true
}

func (s *scanner) number() bool {
	s.skip('-', '-')
	if !s.skip('0', '0') && !s.digits() {
		return s.broken()
	}
	if s.skip('.', '.') && !s.digits() {
		return s.broken()
	}
	if s.skip('e', 'E') {
		s.skip('+', '-')
		return s.digits() || s.broken()
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

// skip steps over a byte that is one of two.
func (s *scanner) skip(a, b byte) bool {
	if c := s.peek(); c != a && c != b {
		return false
	}
	s.at++
	return true
}

// open steps into an array or object, and out of it again where nothing is in it.
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
	return true, s.has(1) || s.broken()
}

// next steps over a comma, to the byte after it, or over the closing bracket.
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
	return false, s.broken()
}

func (s *scanner) array() (v Value, ok bool) {
	v.Is = Array
	mark, elements := len(s.items), s.elements
	s.elements = 0 // those of its elements are others
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
			s.cut = append(bytes.Clone(s.buf[s.kept:s.at]), ']')
			s.kept = nothing
		}
		more, ok = s.next(']')
	}
	v.Items = append(v.Items, s.items[mark:]...)
	s.items = s.items[:mark]
	return v, ok
}

// object reads an object. field, where given, is called for every name, with the next byte
// the first of the value, and reads that.
func (s *scanner) object(field func(name []byte) bool) (v Value, ok bool) {
	v.Is = Object
	s.objects++
	mark := len(s.members)
	seen := names{s: s, first: len(s.ends), text: len(s.names)}
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

// name reads a name, which ends s.names then, and what stands between it and its value. It
// returns the name where a tree is made.
func (s *scanner) name(seen *names) (name string, ok bool) {
	if s.peek() != '"' {
		return "", s.broken()
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
		return "", s.broken()
	}
	s.at++
	s.blanks()
	return name, true
}

// part returns what the string means that began at start: what stands there, unless it has
// escapes, which are longer than what they mean.
func (s *scanner) part(start int, decoded []byte) string {
	if end := s.at - 1; len(decoded) == end-start-1 {
		return s.whole[start+1 : end]
	}
	return string(decoded)
}

func (s *scanner) nul() bool { return s.fail("contains a NUL character, at byte %d", s.offset()) }

// plain steps over a string that means what stands there, if it is one.
func (s *scanner) plain() bool {
	n := s.at + 1 + s.run(s.buf[s.at+1:])
	if n == len(s.buf) || s.buf[n] != '"' {
		return false
	}
	s.at = n + 1
	return true
}

// run returns how many bytes at the beginning of a part of a string mean themselves.
func (s *scanner) run(part []byte) int {
	for i, c := range part {
		if c < ' ' || c == '"' || c == '\\' || c >= utf8.RuneSelf && !s.valid {
			return i
		}
	}
	return len(part)
}

// text reads a string and, where into is given, appends what it means. It reports whether
// there is a NUL character in it.
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
				return false, s.broken()
			}
			if into != nil {
				*into = append(*into, s.buf[s.at:s.at+size]...)
			}
			s.at += size
		case c < ' ':
			return false, s.broken()
		}
	}
}

// escape reads what a backslash begins.
func (s *scanner) escape() (rune, bool) {
	s.at++
	c := s.peek()
	if c == 'u' {
		s.at++
		return s.unicode()
	}
	const plain, means = `"\/bfnrt`, "\"\\/\b\f\n\r\t"
	i := strings.IndexByte(plain, c)
	if i < 0 {
		return 0, s.broken()
	}
	s.at++
	return rune(means[i]), true
}

// unicode reads what follows \u. Half of a surrogate pair is no character: with a replacement, texts that differ would
// be the same.
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
		return 0, s.fail("has half of a surrogate pair, which is no character, at byte %d", begin)
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
			return 0, s.broken()
		}
		s.at++
	}
	return r, true
}

// names are those of one open object. Few are compared one by one; of many, those alone
// whose hash was seen, under a seed that nobody can know.
type names struct {
	s     *scanner
	first int // in s.ends
	text  int // where in s.names the first one begins
	seed  maphash.Seed
	seen  map[uint32]struct{}
}

// fewNames is how many are compared one by one.
const fewNames = 32

// add adds the name that begins there and ends s.names, and reports whether it is there already.
func (n *names) add(begin int) (twice bool) {
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

// hashed notes the hash of a name and reports whether one of those before may be the same.
func (n *names) hashed(ends []uint32, name []byte) bool {
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

func (n *names) hash(name []byte) uint32 { return uint32(maphash.Bytes(n.seed, name)) }
