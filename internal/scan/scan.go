// Package scan reads lines of bounded length.
package scan

import (
	"bufio"
	"bytes"
	"errors"
	"io"
)

// Reader reads lines and never holds more of one than it may have.
type Reader struct {
	r      *bufio.Reader
	most   int   // bytes of a line
	number int   // of the line read last, from 1
	offset int64 // bytes read
	long   []byte
}

// New returns a reader of lines that have at most so many bytes.
func New(r io.Reader, most int) *Reader {
	return &Reader{r: bufio.NewReaderSize(r, 64<<10), most: most}
}

// ErrTooLong is what Next says of a line that is longer than it may be.
var ErrTooLong = errors.New("the line is too long")

// Number returns which line was read last, from 1.
func (l *Reader) Number() int { return l.number }

// Offset returns how many bytes were read so far.
func (l *Reader) Offset() int64 { return l.offset }

// Next returns the next line without its line feed; the slice is good until the next
// call. Errors: ErrTooLong, after which the next line can be read; io.EOF; what the
// reader returns.
func (l *Reader) Next() ([]byte, error) {
	part, err := l.r.ReadSlice('\n')
	l.offset += int64(len(part))
	if err == nil {
		l.number++
		if len(part) > l.most+1 {
			return nil, ErrTooLong
		}
		return part[:len(part)-1], nil
	}
	l.long = append(l.long[:0], part...)
	tooLong := false
	for errors.Is(err, bufio.ErrBufferFull) {
		part, err = l.r.ReadSlice('\n')
		l.offset += int64(len(part))
		if tooLong = tooLong || len(l.long)+len(part) > l.most+1; !tooLong {
			l.long = append(l.long, part...)
		}
	}
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, err
	}
	if err != nil && len(l.long) == 0 {
		return nil, io.EOF
	}
	l.number++
	line := bytes.TrimSuffix(l.long, []byte("\n"))
	if tooLong || len(line) > l.most {
		return nil, ErrTooLong
	}
	return line, nil
}
