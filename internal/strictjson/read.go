// Package strictjson reads JSON strictly: one value, UTF-8 without a mark, at most MaxDepth
// deep, no name twice in an object, no NUL character. A text is read into a tree, or an
// object field by field while it arrives.
package strictjson

import (
	"bytes"
	"encoding/json"
	"io"
	"iter"
	"strings"
	"unicode/utf8"
)

// MaxDepth is how deep arrays and objects may nest.
const MaxDepth = 32

// MaxValues is how many values a text may have that is read into a tree: each element, each
// member, and what holds them. That is a few more than a record may have.
const MaxValues = 1<<16 + 1<<10

// Memory returns about how many bytes of memory a text of that many bytes takes until what is made of
// it is stored: the text, its tree, the record, and what is written of that. Objects are among the values.
func Memory(bytes, values, objects int) int64 {
	return 4*int64(bytes) + 160*int64(values) + 320*int64(objects)
}

// MemoryOf is Memory of a text that was not read yet, and may hold no more values than that.
func MemoryOf(text string) int64 {
	objects := strings.Count(text, "{")
	return Memory(len(text), 1+strings.Count(text, ",")+strings.Count(text, "[")+objects, objects)
}

// Error says what is wrong with a text and at which byte, counted from 1, as a sentence
// without its subject: "is not valid JSON, at byte 7".
type Error string

func (e Error) Error() string { return "the text " + string(e) }

// Check returns nil for exactly one acceptable value, else an Error.
func Check(text []byte) error {
	s := scanner{buf: text, kept: nothing, ended: true}
	s.all()
	return s.err
}

// Parser reads texts into trees. The zero value is ready; it is reused from text to text
// and not safe for concurrent use.
type Parser struct{ s scanner }

// maxScratch is how many elements and members of open arrays and objects a Parser keeps room for.
const maxScratch = 4 << 10

// Parse returns the value of a text, whose strings are parts of it. The error is an Error, also
// where there are more than MaxValues.
func (p *Parser) Parse(text string) (Value, error) {
	s := &p.s
	s.most, s.values = MaxValues, 0
	s.buf, s.whole, s.tree, s.valid = append(s.buf[:0], text...), text, true, utf8.ValidString(text)
	s.at, s.kept, s.ended, s.depth, s.err = 0, nothing, true, 0, nil
	s.names, s.ends, s.members, s.items = s.names[:0], s.ends[:0], s.members[:0], s.items[:0]
	v := s.all()
	if cap(s.items) > maxScratch || cap(s.members) > maxScratch {
		s.items, s.members = nil, nil
	}
	if cap(s.buf) > maxScratch<<4 {
		s.buf = nil
	}
	return v, s.err
}

// Elements returns the texts of the elements of an array, which are parts of it. It returns none of
// what is no array, and ends where the text is not JSON.
func Elements(array []byte) iter.Seq[[]byte] {
	return func(yield func([]byte) bool) {
		s := scanner{buf: array, kept: nothing, ended: true}
		if s.blanks() != '[' {
			return
		}
		for more, ok := s.open(']'); ok && more; more, ok = s.next(']') {
			start := s.at
			if _, ok := s.value(); !ok || !yield(array[start:s.at:s.at]) {
				return
			}
		}
	}
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

// Fields are what ReadObject holds of an object.
type Fields struct {
	All []Field // the wanted ones, in the order given
	// Values are those of the whole text, also where they are not held, and Objects those among them.
	Values, Objects int
}

// ReadObject reads the object that src has while it arrives, or text where src is nil. It
// reads no further than to the first fault, or to the value that is more than most (0: as many as
// there are), and holds the wanted fields, which are parts of text, and the names of the objects
// that are open, no more. want is called for every name. It says how many elements the field has
// at most, if it is an array (0: any number): of a longer one it holds one more than that,
// so that the caller sees that it is too long. Errors: Error, and what src returns, as it is.
func ReadObject(src io.Reader, text []byte, most int, want func(name []byte) (w Want, elements int)) (Fields, error) {
	s := scanner{src: src, kept: nothing, ended: src == nil, most: most, values: 1}
	if s.ended {
		s.buf = text
	}
	var fields []Field
	take := func(name []byte) bool {
		wanted, elements := want(name)
		if wanted == Skip {
			_, ok := s.value()
			return ok
		}
		f := Field{Name: string(name)}
		c := s.peek()
		if wanted == Scalar && (c == '[' || c == '{') {
			f.Raw = json.RawMessage{c, c + 2} // ] and } come two after their openings
			fields = append(fields, f)
			_, ok := s.value()
			return ok
		}
		if s.kept, s.cut = s.at, nil; c == '[' {
			s.elements = elements
		}
		if _, ok := s.value(); !ok {
			return false
		}
		switch {
		case s.cut != nil:
			f.Raw = s.cut
		case s.src != nil:
			f.Raw = bytes.Clone(s.buf[s.kept:s.at]) // the buffer is used again
		default:
			f.Raw = s.buf[s.kept:s.at:s.at]
		}
		s.kept = nothing
		fields = append(fields, f)
		return true
	}
	switch ok := s.begin(); {
	case ok && s.buf[s.at] == '{':
		if _, ok = s.object(take); ok {
			s.end()
		}
	case ok:
		if s.buf[s.at] != '[' { // it may be no JSON at all
			_, ok = s.value()
		}
		if ok {
			s.fail("must be a JSON object")
		}
	}
	if s.err != nil {
		return Fields{}, s.err
	}
	return Fields{fields, s.values, s.objects}, nil
}
