package middleware

import (
	"cmp"
	"errors"
	"io"
	"mime"
	"net/http"
	"slices"
	"strings"
	"time"

	"tenantry/operation"
)

// server returns the server of the request, whose timeouts bound how long a client may take. It returns an empty one in
// tests without a server.
func (x *exchange) server() *http.Server {
	server, _ := x.r.Context().Value(http.ServerContextKey).(*http.Server)
	return cmp.Or(server, &http.Server{}) //nolint:gosec // it never serves
}

// upload returns the file in the body. While it arrives, the request holds no room for the work, but a place among the
// uploads. The sender may take as long as the operation, but may not pause for longer than the read timeout of the
// server.
func (x *exchange) upload() (io.Reader, error) {
	sent := x.r.Header.Get("Content-Type")
	media, _, err := mime.ParseMediaType(sent)
	if slices.Contains(x.op.Upload, operation.AnyMedia) && (err == nil || sent == "") {
		media, err = operation.AnyMedia, nil
	}
	switch {
	case x.r.Header.Get("Content-Encoding") != "":
		return nil, unsupported("Send the file without a content encoding")
	case err != nil || !slices.Contains(x.op.Upload, media):
		return nil, unsupported("Send the file as " + strings.Join(x.op.Upload, " or "))
	case x.r.ContentLength > x.op.UploadLimit:
		return nil, operation.FileTooLarge(x.op.UploadLimit, "")
	}
	return &uploadReader{
		x: x, body: http.MaxBytesReader(x.w, x.r.Body, x.op.UploadLimit), deadlines: http.NewResponseController(x.w),
	}, nil
}

// interrupt ends a read of the upload that is blocked.
func (x *exchange) interrupt() {
	_ = http.NewResponseController(x.w).SetReadDeadline(time.Now()) // if this fails, the deadline of the server stays
}

// uploadReader reads a file from the body.
type uploadReader struct {
	x         *exchange
	begun     bool
	body      io.Reader
	deadlines *http.ResponseController
}

// Read moves the deadlines of the connection with each call, because those of the server are meant for small bodies.
func (u *uploadReader) Read(p []byte) (n int, err error) {
	u.x.work.leave()
	if !u.begun {
		if u.x.uploading, err = u.x.enter(u.x.r.Context(), u.x.p.Uploads, 1); err != nil {
			return 0, err
		}
		u.begun = true
	}
	if now, s := time.Now(), u.x.server(); s.ReadTimeout > 0 {
		// If these fail, the deadlines of the server stay.
		_ = u.deadlines.SetReadDeadline(now.Add(s.ReadTimeout))
		_ = u.deadlines.SetWriteDeadline(now.Add(s.ReadTimeout + s.WriteTimeout))
	}
	n, err = u.body.Read(p)
	var sizeErr *http.MaxBytesError
	switch {
	case err == nil, errors.Is(err, io.EOF):
		return n, err
	case errors.As(err, &sizeErr):
		return n, operation.FileTooLarge(u.x.op.UploadLimit, "")
	}
	return n, operation.BadRequest("The file could not be read to its end")
}
