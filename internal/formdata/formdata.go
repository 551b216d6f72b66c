// Package formdata reads forms (multipart/form-data) whose parts may have any size, but not their headers: mime/multipart
// holds up to 10 MB of the header of each part, for as long as its sender likes.
package formdata

import (
	"errors"
	"fmt"
	"io"
	"mime/multipart"
)

// MaxHeader is how many bytes the header of a part may have, with the boundary and what is before it. Some more are let
// through if they were read together with the content before.
const MaxHeader = 16 << 10

// ErrHeader: the header of a part is too long.
var ErrHeader = fmt.Errorf("the header of a part has more than %d bytes", MaxHeader)

// Reader reads the parts of a form, one after another. It is not safe for concurrent use.
type Reader struct {
	parts *multipart.Reader
	from  *source
}

// NewReader returns a reader of the form in r whose parts are between boundaries.
func NewReader(r io.Reader, boundary string) *Reader {
	from := &source{r: r}
	return &Reader{parts: multipart.NewReader(from, boundary), from: from}
}

// Next returns the next part, whose content is not decoded. The content of the one before must have been read. Errors:
// ErrHeader, io.EOF after the last part, those of the form, and those of multipart.Reader.NextRawPart.
func (r *Reader) Next() (*multipart.Part, error) {
	r.from.bounded, r.from.left = true, MaxHeader
	part, err := r.parts.NextRawPart()
	r.from.bounded = false
	if err != nil && r.from.left <= 0 {
		err = errors.Join(ErrHeader, err)
	}
	return part, err
}

// source is the form, of which a bounded number of bytes can be read while there is no content.
type source struct {
	r       io.Reader
	bounded bool
	left    int
}

func (s *source) Read(p []byte) (int, error) {
	if !s.bounded {
		return s.r.Read(p)
	}
	if s.left <= 0 {
		return 0, ErrHeader
	}
	n, err := s.r.Read(p[:min(len(p), s.left)])
	s.left -= n
	return n, err
}
