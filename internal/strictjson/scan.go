// Package strictjson reads JSON strictly: one value, UTF-8 without a mark, at most MaxDepth
// deep, no name twice in an object, no NUL character. A text is read into a tree, or an
// object field by field while it arrives.
package strictjson

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"hash/maphash"
	"io"
	"strings"
	"unicode/utf16"
	"unicode/utf8"

	"tenantry/internal/texts"
)

// MaxDepth is how deep arrays and objects may nest.
const MaxDepth = 32

// Error says what is wrong with a text and at which byte, counted from 1, as a sentence
// without its subject: "is not valid JSON, at byte 7".
type Error string

func (e Error) Error() string { return "the text " + string(e) }

// Check returns nil for exactly one acceptable value, else an Error.
func Check(text []byte) error {
	s := scanner{buf: text, kept: -1, ended: true}
	_ = s.begin() && s.value(nil) && s.end()
	return s.err
}

// Parser reads texts into trees. The zero value is ready; it is reused from text to text
// and not safe for concurrent use.
type Parser struct{ s scanner }

// Parse returns the value of a text, whose strings are parts of it. The error is an Error.
func (p *Parser) Parse(text string) (Value, error) {
	old := &p.s
	p.s = scanner{
		buf: append(old.buf[:0], text...), whole: text, kept: -1, ended: true, valid: utf8.ValidString(text),
		names: old.names[:0], ends: old.ends[:0], members: old.members[:0], items: old.items[:0], decoded: old.decoded[:0],
	}
	var v Value
	if p.s.begin() && p.s.value(&v) && p.s.end() {
		return v, nil
	}
	return Value{}, p.s.err
}

// Want says what becomes of a field.
type Want byte

// What becomes of a field; it is checked in any case.
const (
	Skip   Want = iota // it is not held
	Scalar             // it is held, but of an array or object an empty one only
	Whole              // it is held
)

// Field is one field of an object.
type Field struct {
	Name string
	Raw  json.RawMessage
}

// ReadObject reads an object of which head was read already and rest, where it is not nil,
// has the remaining text. It reads no further than to the first fault and holds the wanted
// fields, which may be parts of head, and the names of the objects that are open, no more.
// want is called for every name. Errors: Error, and what rest returns, as it is.
func ReadObject(head []byte, rest io.Reader, want func(name []byte) Want) ([]Field, error) {
	s := scanner{src: rest, buf: head, kept: -1, ended: rest == nil}
	var fields []Field
	take := func(name []byte) bool {
		wanted := want(name)
		if wanted == Skip {
			return s.value(nil)
		}
		f := Field{Name: string(name)}
		if c := s.peek(); wanted == Scalar && (c == '[' || c == '{') {
			f.Raw = json.RawMessage{c, c + 2} // ] and } come two after their openings
			fields = append(fields, f)
			return s.value(nil)
		}
		s.kept = s.at
		if !s.value(nil) {
			return false
		}
		f.Raw = s.buf[s.kept:s.at:s.at]
		if s.kept = -1; s.src != nil {
			f.Raw = bytes.Clone(f.Raw) // the buffer is used again
		}
		fields = append(fields, f)
		return true
	}
	switch ok := s.begin(); {
	case ok && s.buf[s.at] == '{':
		ok = s.object(nil, take) && s.end()
	case ok && (s.buf[s.at] == '[' || s.value(nil)): // it may be no JSON at all
		s.fail("must be a JSON object")
	}
	if s.err != nil {
		return nil, s.err
	}
	return fields, nil
}

// chunk is how much of a stream is read at once.
const chunk = 4 << 10

// scanner goes over a text once and stops at the first byte that cannot be right, or where
// there is nothing left. Its methods return false once err says why.
type scanner struct {
	src   io.Reader // nil: everything is in buf
	buf   []byte
	whole string // the same as buf, where a tree is made; its strings are parts of this
	valid bool   // all is known to be UTF-8
	at    int    // the next byte of buf
	base  int64  // where in the text buf begins
	kept  int    // the first byte of buf that is still needed; -1: only those from at
	ended bool   // nothing comes after buf
	depth int
	lost  error // of src
	err   error // what the caller is told

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
		from := s.at
		if s.kept >= 0 {
			from = s.kept
		}
		held := len(s.buf) - from
		room := s.buf[:0]
		if cap(room)-held < chunk/2 {
			room = make([]byte, 0, max(chunk, 2*held))
		}
		room = append(room, s.buf[from:]...)
		s.base += int64(from)
		s.at -= from
		if s.kept >= 0 {
			s.kept = 0
		}
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
	if s.has(1) {
		return s.buf[s.at]
	}
	return 0
}

// blanks skips white space and returns the byte after it, 0 where there is none.
func (s *scanner) blanks() byte {
	for s.has(1) {
		switch c := s.buf[s.at]; c {
		case ' ', '\t', '\r', '\n':
			s.at++
		default:
			return c
		}
	}
	return 0
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

// value reads a value, into a tree where into is given; the next byte is its first.
func (s *scanner) value(into *Value) bool {
	start, is, ok := s.at, Null, false
	switch s.peek() {
	case '{':
		return s.object(into, nil)
	case '[':
		return s.array(into)
	case '"':
		return s.string(into)
	case 't':
		is, ok = True, s.word("true")
	case 'f':
		is, ok = False, s.word("false")
	case 'n':
		ok = s.word("null")
	default:
		is, ok = Number, s.number()
	}
	if into != nil {
		into.Is = is
		if is == Number {
			into.Text = s.whole[start:s.at]
		}
	}
	return ok
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

func (s *scanner) array(into *Value) bool {
	mark := len(s.items)
	more, ok := s.open(']')
	for ok && more {
		if into == nil {
			ok = s.value(nil)
		} else {
			var v Value
			ok = s.value(&v)
			s.items = append(s.items, v)
		}
		if ok {
			more, ok = s.next(']')
		}
	}
	if ok && into != nil {
		into.Is, into.Items = Array, append([]Value(nil), s.items[mark:]...)
		s.items = s.items[:mark]
	}
	return ok
}

// object reads an object. field, where given, is called for every name, with the next byte
// the first of the value, and reads that.
func (s *scanner) object(into *Value, field func(name []byte) bool) bool {
	mark := len(s.members)
	seen := names{s: s, first: len(s.ends), text: len(s.names)}
	more, ok := s.open('}')
	for ok && more {
		begin := len(s.names)
		name, ok := s.name(&seen, into != nil)
		switch {
		case !ok:
			return false
		case into != nil:
			m := Member{Name: name}
			ok = s.value(&m.Value)
			s.members = append(s.members, m)
		case field != nil:
			ok = field(s.names[begin:])
		default:
			ok = s.value(nil)
		}
		if !ok {
			return false
		}
		if more, ok = s.next('}'); !ok {
			return false
		}
	}
	if into != nil {
		into.Is, into.Members = Object, append([]Member(nil), s.members[mark:]...)
		s.members = s.members[:mark]
	}
	s.names, s.ends = s.names[:seen.text], s.ends[:seen.first]
	return ok
}

// name reads a name, which ends s.names then, and what stands between it and its value. It
// returns the name where it is wanted.
func (s *scanner) name(seen *names, wanted bool) (name string, ok bool) {
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
	case wanted:
		name = s.part(start, s.names[begin:])
	}
	if s.blanks() != ':' {
		return "", s.broken()
	}
	s.at++
	s.blanks()
	return name, true
}

func (s *scanner) string(into *Value) bool {
	start, nul, ok := s.at, false, false
	if into == nil {
		nul, ok = s.text(nil)
	} else {
		s.decoded = s.decoded[:0]
		if nul, ok = s.text(&s.decoded); ok {
			into.Is, into.Text = Text, s.part(start, s.decoded)
		}
	}
	return ok && (!nul || s.nul())
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

// text reads a string and, where into is given, appends what it means. It reports whether
// there is a NUL character in it.
func (s *scanner) text(into *[]byte) (nul, ok bool) {
	s.at++
	for {
		run := s.buf[s.at:]
		n := 0
		for n < len(run) && run[n] >= ' ' && run[n] != '"' && run[n] != '\\' && (run[n] < utf8.RuneSelf || s.valid) {
			n++
		}
		if into != nil {
			*into = append(*into, run[:n]...)
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

// escape reads what a backslash begins. Half of a surrogate pair is U+FFFD, as everywhere.
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

func (s *scanner) unicode() (rune, bool) {
	r, ok := s.hex()
	if !ok || !utf16.IsSurrogate(r) {
		return r, ok
	}
	if !s.has(6) || s.buf[s.at] != '\\' || s.buf[s.at+1] != 'u' {
		return utf8.RuneError, true
	}
	at := s.at
	s.at += 2
	low, ok := s.hex()
	if !ok {
		return 0, false
	}
	if r = utf16.DecodeRune(r, low); r == utf8.RuneError {
		s.at = at // it stands for itself
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

// names are those of one open object. Few are compared one by one; many are found by
// their hash, under a seed that nobody can know.
type names struct {
	s     *scanner
	first int // in s.ends
	text  int // where in s.names the first one begins
	seed  maphash.Seed
	table []uint32 // the ordinal of a name in s.ends plus one; 0: free
}

// fewNames is how many are compared one by one.
const fewNames = 32

// add adds the name that begins there and ends s.names, and reports whether it is there already.
func (n *names) add(begin int) (twice bool) {
	s := n.s
	name := s.names[begin:]
	s.ends = append(s.ends, uint32(len(s.names)))
	count := len(s.ends) - n.first
	if count <= fewNames {
		for i := range count - 1 {
			if bytes.Equal(n.name(n.first+i), name) {
				return true
			}
		}
		return false
	}
	if len(n.table) < 2*count {
		n.table, n.seed = make([]uint32, max(8*fewNames, 2*len(n.table))), maphash.MakeSeed()
		for i := range count - 1 {
			n.place(n.first + i)
		}
	}
	return n.place(len(s.ends) - 1)
}

func (n *names) name(i int) []byte {
	begin := uint32(n.text)
	if i > n.first {
		begin = n.s.ends[i-1]
	}
	return n.s.names[begin:n.s.ends[i]]
}

// place puts a name into the table and reports whether an equal one is there.
func (n *names) place(i int) (twice bool) {
	name := n.name(i)
	size := uint64(len(n.table))
	for slot := maphash.Bytes(n.seed, name) % size; ; slot = (slot + 1) % size {
		other := n.table[slot]
		if other == 0 {
			n.table[slot] = uint32(i + 1)
			return false
		}
		if bytes.Equal(n.name(int(other-1)), name) {
			return true
		}
	}
}
