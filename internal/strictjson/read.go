// Package strictjson reads JSON strictly: one value, UTF-8 without a byte order mark, at most MaxDepth deep, no name
// twice in an object, no NUL character. It reads a text into a tree, or an object field by field while it arrives.
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

// MaxValues is the maximum number of values of a text that is read into a tree: elements, members, arrays and objects.
// It is slightly more than the maximum of a record.
const MaxValues = 1<<16 + 1<<10

// Memory estimates the bytes of memory that a text needs until its content is stored: the text, its tree, the record,
// and the written form of the record. The values include the objects.
func Memory(bytes, values, objects int) int64 {
	return 4*int64(bytes) + 160*int64(values) + 320*int64(objects)
}

// MemoryOf returns the Memory of a text that was not read yet, for the maximum number of values that it can have.
func MemoryOf(text string) int64 {
	objects := strings.Count(text, "{")
	return Memory(len(text), 1+strings.Count(text, ",")+strings.Count(text, "[")+objects, objects)
}

// Error says what is wrong with a text and at which byte, counted from 1. It is a sentence without a subject: "is not
// valid JSON, at byte 7".
type Error string

func (e Error) Error() string { return "the text " + string(e) }

// Check returns nil if the text is exactly one acceptable value, else an Error.
func Check(text []byte) error {
	s := scanner{buf: text, keepFrom: keepNone, ended: true}
	s.all()
	return s.err
}

// Parser reads texts into trees. The zero value is ready, and can be reused. Not safe for concurrent use.
type Parser struct{ s scanner }

// maxScratch is the number of elements and members for which a Parser keeps memory between texts.
const maxScratch = 4 << 10

// Parse returns the value of a text. Its strings are parts of the text. The error is an Error, also for more than
// MaxValues.
func (p *Parser) Parse(text string) (Value, error) {
	s := &p.s
	s.maxValues, s.values = MaxValues, 0
	s.buf, s.source, s.tree, s.valid = append(s.buf[:0], text...), text, true, utf8.ValidString(text)
	s.at, s.keepFrom, s.ended, s.depth, s.err = 0, keepNone, true, 0, nil
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

// Elements iterates over the texts of the elements of an array. They are parts of the array. It yields nothing for
// other values, and stops at the first byte that is not JSON.
func Elements(array []byte) iter.Seq[[]byte] {
	return func(yield func([]byte) bool) {
		s := scanner{buf: array, keepFrom: keepNone, ended: true}
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

// Want says how much of a field ReadObject holds.
type Want byte

// How much of a field is held; every field is checked.
const (
	Skip   Want = iota // nothing
	Scalar             // a scalar; an empty array or object in place of any other
	Whole              // everything
)

// Field is one field of an object.
type Field struct {
	Name string
	Raw  json.RawMessage
}

// Fields is the result of ReadObject.
type Fields struct {
	All []Field // the wanted ones, in the order given
	// Values is the number of values in the whole text, including those that are not held; Objects is the number of
	// objects among them.
	Values, Objects int
}

// ReadObject reads an object from src while it arrives, or from text if src is nil. It stops at the first fault, and at the
// first value beyond most (0: no limit). It holds only the wanted fields, which are parts of text, and the names of open
// objects.
//
// want is called for every name. It returns how much of the field to hold, and the maximum number of elements if the field
// is an array (0: any number). Of a longer array one more element is held, so that the caller sees that it is too long.
//
// Errors: Error, and errors of src unchanged.
func ReadObject(
	src io.Reader, text []byte, most int, want func(name []byte) (w Want, elements int),
) (Fields, error) {
	s := scanner{src: src, keepFrom: keepNone, ended: src == nil, maxValues: most, values: 1}
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
		if s.keepFrom, s.truncated = s.at, nil; c == '[' {
			s.maxElements = elements
		}
		if _, ok := s.value(); !ok {
			return false
		}
		switch {
		case s.truncated != nil:
			f.Raw = s.truncated
		case s.src != nil:
			f.Raw = bytes.Clone(s.buf[s.keepFrom:s.at]) // the buffer is used again
		default:
			f.Raw = s.buf[s.keepFrom:s.at:s.at]
		}
		s.keepFrom = keepNone
		fields = append(fields, f)
		return true
	}
	switch ok := s.begin(); {
	case ok && s.buf[s.at] == '{':
		if _, ok = s.object(take); ok {
			s.end()
		}
	case ok:
		if s.buf[s.at] != '[' { // it may not be JSON at all
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
