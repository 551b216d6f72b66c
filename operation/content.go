package operation

import (
	"context"
	"errors"
	"io"
	"os"
	"time"
)

// Content is the answer of a row with Response.Content: bytes that are sent as they are, by ranges if asked, never
// compressed. The pipeline closes it, also if it is not sent.
//
// What is sent is read by one goroutine at a time. It holds no room for the work, so it must not need memory that grows
// with its size. Headers about it, such as Content-Disposition, are in Call.Header.
type Content struct {
	io.ReadSeekCloser           // sent by the kernel if it is, or has a method File() that returns, an *os.File
	Media             string    // Content-Type; empty: application/octet-stream
	Modified          time.Time // zero: unknown
	Tag               string    // entity tag with its quotes; empty: none

	access *Access
}

// Confirm returns nil while the caller may still have the content. Errors: those of Access.Confirm.
func (c *Content) Confirm(ctx context.Context) error { return c.access.Confirm(ctx) }

// File returns the file that the content is; nil if it is none.
func (c *Content) File() *os.File {
	switch is := c.ReadSeekCloser.(type) {
	case *os.File:
		return is
	case interface{ File() *os.File }:
		return is.File()
	}
	return nil
}

// CloseContents closes everything that the handler has returned as Content. The caller of Run calls it once the answer
// has been written.
func (c *Call) CloseContents() error {
	var faults []error
	for _, content := range c.contents {
		if content.ReadSeekCloser != nil {
			faults = append(faults, content.Close())
		}
	}
	c.contents = nil
	return errors.Join(faults...)
}

// LimitUpload lowers the bound on Upload to n bytes, which is the limit that of names, as in FileTooLarge; a higher n
// changes nothing. It returns a 413 that names the bound if the caller declares more. Reading Upload fails with the same
// error, before any byte is read, or as soon as more bytes have arrived. A handler calls it before it reads, and from
// the same goroutine.
func (c *Call) LimitUpload(n int64, of string) error {
	if n = max(n, 0); n < c.uploadLimit {
		c.uploadLimit, c.uploadLimitOf = n, of
	}
	if c.UploadSize > c.uploadLimit {
		return FileTooLarge(c.uploadLimit, c.uploadLimitOf)
	}
	return nil
}

// limitedUpload reads an upload of at most uploadLimit bytes.
type limitedUpload struct {
	c    *Call
	from io.Reader
	read int64
}

func (u *limitedUpload) Read(p []byte) (int, error) {
	limit := u.c.uploadLimit
	if u.c.UploadSize > limit || u.read > limit {
		return 0, FileTooLarge(limit, u.c.uploadLimitOf)
	}
	if left := limit - u.read; int64(len(p)) > left+1 {
		p = p[:left+1] // one more, to see whether there is more
	}
	n, err := u.from.Read(p)
	if u.read += int64(n); u.read > limit {
		return n - int(u.read-limit), FileTooLarge(limit, u.c.uploadLimitOf)
	}
	return n, err
}
