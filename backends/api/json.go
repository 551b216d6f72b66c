package api

import (
	"bytes"
	"errors"
	"hash/maphash"
	"io"
	"unicode/utf16"
	"unicode/utf8"

	"tenantry/internal/texts"
)

// MaxDepth is how deep arrays and objects of a body may nest.
const MaxDepth = 32

// chunk is how much of a stream is read at once.
const chunk = 4 << 10

// scanner reads JSON once, strictly, and stops at the first byte that cannot be right. Of
// what it reads it holds the value that is being kept and the names of the objects that
// are open, no more.
type scanner struct {
	src    io.Reader // nil: everything is in buf
	buf    []byte
	at     int   // the next byte of buf
	base   int64 // where in the text buf begins
	kept   int   // the first byte of buf that is still needed; -1: only those from at
	ended  bool  // nothing comes after buf
	depth  int
	failed error // of src

	names []byte   // the decoded names of the open objects, one after another
	ends  []uint32 // where in names each of them ends
	seed  maphash.Seed
}

func newScanner(src io.Reader, text []byte) scanner {
	return scanner{src: src, buf: text, kept: -1, ended: src == nil, seed: maphash.MakeSeed()}
}

// CheckJSON reports whether raw is exactly one acceptable JSON value. See ParseBody.
func CheckJSON(raw []byte) error {
	s := newScanner(nil, raw)
	if _, err := s.begin(); err != nil {
		return err
	}
	if err := s.value(); err != nil {
		return err
	}
	return s.end()
}

// begin steps to the first byte of the value and returns it.
func (s *scanner) begin() (byte, error) {
	if s.has(3) && bytes.HasPrefix(s.buf[s.at:], []byte("\xef\xbb\xbf")) {
		return 0, BadRequest("The body starts with a byte order mark; send plain UTF-8")
	}
	c, ok := s.blanks()
	if !ok {
		return 0, s.or(BadRequest("The body is empty; a JSON object is expected"))
	}
	return c, nil
}

// end returns an error unless only blanks are left.
func (s *scanner) end() error {
	if _, more := s.blanks(); more {
		return BadRequest("The body has bytes after its JSON value, at byte %d", s.offset()+1)
	}
	return s.failed
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
				s.failed = err
			}
		}
	}
	return true
}

// blanks skips white space and returns the byte after it.
func (s *scanner) blanks() (byte, bool) {
	for s.has(1) {
		switch c := s.buf[s.at]; c {
		case ' ', '\t', '\r', '\n':
			s.at++
		default:
			return c, true
		}
	}
	return 0, false
}

// or returns why reading failed, where it did, else the problem.
func (s *scanner) or(problem error) error {
	if s.failed != nil {
		return s.failed
	}
	return problem
}

// broken says that the next byte cannot stand where it does, or that there is none.
func (s *scanner) broken() error {
	switch {
	case !s.has(1):
		return s.or(BadRequest("The body is not valid JSON: it ends too early, after byte %d", s.offset()))
	case s.buf[s.at] >= utf8.RuneSelf && !s.rune():
		return s.or(BadRequest("The body is not valid UTF-8, at byte %d", s.offset()+1))
	}
	return BadRequest("The body is not valid JSON, at byte %d", s.offset()+1)
}

// rune reports whether a character that is no ASCII begins here.
func (s *scanner) rune() bool {
	n := 1
	for !utf8.FullRune(s.buf[s.at:]) && s.has(n+1) {
		n++
	}
	r, size := utf8.DecodeRune(s.buf[s.at:])
	return r != utf8.RuneError || size > 1
}

// value reads a value; the next byte is its first.
func (s *scanner) value() error {
	if !s.has(1) {
		return s.broken()
	}
	switch c := s.buf[s.at]; {
	case c == '{':
		return s.object(nil)
	case c == '[':
		return s.array()
	case c == '"':
		nul, err := s.text(nil)
		if err == nil && nul {
			err = s.nul()
		}
		return err
	case c == 't':
		return s.word("true")
	case c == 'f':
		return s.word("false")
	case c == 'n':
		return s.word("null")
	case c == '-' || c >= '0' && c <= '9':
		return s.number()
	}
	return s.broken()
}

func (s *scanner) nul() error {
	return BadRequest("The body contains a NUL character, at byte %d", s.offset())
}

func (s *scanner) word(w string) error {
	for i := range len(w) {
		if !s.has(1) || s.buf[s.at] != w[i] {
			return s.broken()
		}
		s.at++
	}
	return nil
}

func (s *scanner) number() error {
	s.skip('-', '-')
	switch {
	case s.skip('0', '0'):
	case !s.digits():
		return s.broken()
	}
	if s.skip('.', '.') && !s.digits() {
		return s.broken()
	}
	if s.skip('e', 'E') {
		s.skip('+', '-')
		if !s.digits() {
			return s.broken()
		}
	}
	return nil
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
	if !s.has(1) || s.buf[s.at] != a && s.buf[s.at] != b {
		return false
	}
	s.at++
	return true
}

// open steps into an array or object, to the first byte in it.
func (s *scanner) open() (byte, error) {
	if s.depth++; s.depth > MaxDepth {
		return 0, BadRequest("The body nests deeper than %d levels, at byte %d", MaxDepth, s.offset()+1)
	}
	s.at++
	c, ok := s.blanks()
	if !ok {
		return 0, s.broken()
	}
	return c, nil
}

// next steps over a comma, to the byte after it, or over the closing bracket.
func (s *scanner) next(closing byte) (more bool, err error) {
	c, ok := s.blanks()
	switch {
	case ok && c == closing:
		s.at++
		s.depth--
		return false, nil
	case ok && c == ',':
		s.at++
		s.blanks()
		return true, nil
	}
	return false, s.broken()
}

func (s *scanner) array() error {
	c, err := s.open()
	if err != nil {
		return err
	}
	for more := c != ']'; more; {
		if err := s.value(); err != nil {
			return err
		}
		if more, err = s.next(']'); err != nil {
			return err
		}
	}
	if c == ']' {
		s.at++
		s.depth--
	}
	return nil
}

// object reads an object. member, where given, is called for every name, with the next
// byte the first of the value, and reads that.
func (s *scanner) object(member func(name []byte) error) error {
	c, err := s.open()
	if err != nil {
		return err
	}
	if c == '}' {
		s.at++
		s.depth--
		return nil
	}
	seen := names{s: s, first: len(s.ends), text: len(s.names)}
	for more := true; more; {
		if !s.has(1) || s.buf[s.at] != '"' {
			return s.broken()
		}
		begin := len(s.names)
		nul, err := s.text(&s.names)
		if err != nil {
			return err
		}
		if seen.add(begin) {
			return BadRequest("The body gives the name %q twice in one object, at byte %d", texts.Clip(string(s.names[begin:])), s.offset())
		}
		if nul {
			return s.nul()
		}
		if c, ok := s.blanks(); !ok || c != ':' {
			return s.broken()
		}
		s.at++
		s.blanks()
		if member == nil {
			err = s.value()
		} else {
			err = member(s.names[begin:])
		}
		if err != nil {
			return err
		}
		if more, err = s.next('}'); err != nil {
			return err
		}
	}
	s.names, s.ends = s.names[:seen.text], s.ends[:seen.first]
	return nil
}

// text reads a string and, where into is given, appends what it means. It reports whether
// there is a NUL character in it.
func (s *scanner) text(into *[]byte) (nul bool, err error) {
	s.at++
	for {
		run := s.buf[s.at:]
		n := 0
		for n < len(run) && run[n] >= ' ' && run[n] != '"' && run[n] != '\\' && run[n] < utf8.RuneSelf {
			n++
		}
		if into != nil {
			*into = append(*into, run[:n]...)
		}
		s.at += n
		if !s.has(1) {
			return false, s.broken()
		}
		switch c := s.buf[s.at]; {
		case c == '"':
			s.at++
			return nul, nil
		case c == '\\':
			r, err := s.escape()
			if err != nil {
				return false, err
			}
			nul = nul || r == 0
			if into != nil {
				*into = utf8.AppendRune(*into, r)
			}
		case c >= utf8.RuneSelf:
			if !s.rune() {
				return false, s.broken()
			}
			_, size := utf8.DecodeRune(s.buf[s.at:])
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
func (s *scanner) escape() (rune, error) {
	s.at++
	if !s.has(1) {
		return 0, s.broken()
	}
	c := s.buf[s.at]
	if c == 'u' {
		s.at++
		return s.unicode()
	}
	const plain, means = `"\/bfnrt`, "\"\\/\b\f\n\r\t"
	i := bytes.IndexByte([]byte(plain), c)
	if i < 0 {
		return 0, s.broken()
	}
	s.at++
	return rune(means[i]), nil
}

func (s *scanner) unicode() (rune, error) {
	r, err := s.hex()
	if err != nil || !utf16.IsSurrogate(r) {
		return r, err
	}
	if !s.has(6) || s.buf[s.at] != '\\' || s.buf[s.at+1] != 'u' {
		return utf8.RuneError, nil
	}
	at := s.at
	s.at += 2
	low, err := s.hex()
	if err != nil {
		return 0, err
	}
	if r = utf16.DecodeRune(r, low); r == utf8.RuneError {
		s.at = at // it stands for itself
	}
	return r, nil
}

func (s *scanner) hex() (rune, error) {
	var r rune
	for range 4 {
		if !s.has(1) {
			return 0, s.broken()
		}
		switch c := s.buf[s.at]; {
		case c >= '0' && c <= '9':
			r = r<<4 + rune(c-'0')
		case c|0x20 >= 'a' && c|0x20 <= 'f':
			r = r<<4 + rune(c|0x20-'a') + 10
		default:
			return 0, s.broken()
		}
		s.at++
	}
	return r, nil
}

// names are those of one open object. Few are compared one by one; many are found by
// their hash, under a seed that nobody can know.
type names struct {
	s     *scanner
	first int      // in s.ends
	text  int      // where in s.names the first one begins
	table []uint32 // the ordinal of a name in s.ends plus one; 0: free
}

// fewNames is how many are compared one by one.
const fewNames = 16

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
		n.table = make([]uint32, max(8*fewNames, 2*len(n.table)))
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
	for slot := maphash.Bytes(n.s.seed, name) % size; ; slot = (slot + 1) % size {
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
