// Package strictjson reads JSON strictly: one value, UTF-8 without a mark, at most MaxDepth
// deep, no name twice in an object, no NUL character. A text is read into a tree, or an
// object field by field while it arrives.
package strictjson

import (
	"bytes"
	"encoding/json"
	"io"
	"unicode/utf8"
)

// MaxDepth is how deep arrays and objects may nest.
const MaxDepth = 32

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

// Parse returns the value of a text, whose strings are parts of it. The error is an Error.
func (p *Parser) Parse(text string) (Value, error) {
	s := &p.s
	s.buf, s.whole, s.tree, s.valid = append(s.buf[:0], text...), text, true, utf8.ValidString(text)
	s.at, s.kept, s.ended, s.depth, s.err = 0, nothing, true, 0, nil
	s.names, s.ends, s.members, s.items = s.names[:0], s.ends[:0], s.members[:0], s.items[:0]
	v := s.all()
	return v, s.err
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

// ReadObject reads the object that src has while it arrives, or text where src is nil. It
// reads no further than to the first fault and holds the wanted fields, which are parts of
// text, and the names of the objects that are open, no more. want is called for every name.
// Errors: Error, and what src returns, as it is.
func ReadObject(src io.Reader, text []byte, want func(name []byte) Want) ([]Field, error) {
	s := scanner{src: src, kept: nothing, ended: src == nil}
	if s.ended {
		s.buf = text
	}
	var fields []Field
	take := func(name []byte) bool {
		wanted := want(name)
		if wanted == Skip {
			_, ok := s.value()
			return ok
		}
		f := Field{Name: string(name)}
		if c := s.peek(); wanted == Scalar && (c == '[' || c == '{') {
			f.Raw = json.RawMessage{c, c + 2} // ] and } come two after their openings
			fields = append(fields, f)
			_, ok := s.value()
			return ok
		}
		s.kept = s.at
		if _, ok := s.value(); !ok {
			return false
		}
		f.Raw = s.buf[s.kept:s.at:s.at]
		if s.kept = nothing; s.src != nil {
			f.Raw = bytes.Clone(f.Raw) // the buffer is used again
		}
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
		return nil, s.err
	}
	return fields, nil
}
