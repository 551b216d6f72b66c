// Package scan reads lines of bounded length.
package scan

import (
	"bufio"
	"bytes"
	"errors"
	"io"
)

// Reader reads lines and never holds more of a line than its limit. Not safe for concurrent use.
type Reader struct {
	r      *bufio.Reader
	limit  int    // bytes of a line
	number int    // of the last line, from 1
	offset int64  // bytes read
	long   []byte // a line that is longer than the buffer
}

// New returns a reader of lines of at most limit bytes.
func New(r io.Reader, limit int) *Reader {
	return &Reader{r: bufio.NewReaderSize(r, 64<<10), limit: limit}
}

// ErrTooLong is the error of Next for a line that exceeds the limit.
var ErrTooLong = errors.New("the line is too long")

// Number returns the number of the last line, from 1.
func (l *Reader) Number() int { return l.number }

// Offset returns the number of bytes read so far.
func (l *Reader) Offset() int64 { return l.offset }

// Next returns the next line without its line feed. The slice is valid until the next call. Errors: ErrTooLong, after
// which the next line can be read; io.EOF; errors of the underlying reader.
func (l *Reader) Next() ([]byte, error) {
	part, err := l.r.ReadSlice('\n')
	l.offset += int64(len(part))
	if err == nil {
		l.number++
		if len(part) > l.limit+1 {
			return nil, ErrTooLong
		}
		return part[:len(part)-1], nil
	}
	l.long = append(l.long[:0], part...)
	tooLong := false
	for errors.Is(err, bufio.ErrBufferFull) {
		part, err = l.r.ReadSlice('\n')
		l.offset += int64(len(part))
		if tooLong = tooLong || len(l.long)+len(part) > l.limit+1; !tooLong {
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
	if tooLong || len(line) > l.limit {
		return nil, ErrTooLong
	}
	return line, nil
}
