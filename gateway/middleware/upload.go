package middleware

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"slices"
	"strings"
	"time"

	"tenantry/operation"
)

// server returns the server, whose timeouts say how long a client may take, or for what is long stand still.
func (x *exchange) server() *http.Server {
	server, _ := x.r.Context().Value(http.ServerContextKey).(*http.Server)
	return cmp.Or(server, &http.Server{}) //nolint:gosec // it serves nothing
}

// upload returns the file that is the body. It keeps no work from others while it arrives, and may take
// as long as the operation while something of it arrives.
func (x *exchange) upload() (io.Reader, error) {
	kind, _, err := mime.ParseMediaType(x.r.Header.Get("Content-Type"))
	switch {
	case x.r.Header.Get("Content-Encoding") != "":
		return nil, unsupported("Send the file without a content encoding")
	case err != nil || !slices.Contains(x.op.Upload, kind):
		return nil, unsupported("Send the file as " + strings.Join(x.op.Upload, " or "))
	case x.r.ContentLength > x.op.UploadLimit:
		return nil, fileTooLarge(x.op)
	}
	return &arriving{x: x, from: http.MaxBytesReader(x.w, x.r.Body, x.op.UploadLimit), deadlines: http.NewResponseController(x.w)}, nil
}

// interrupt ends a read of the file that waits.
func (x *exchange) interrupt() {
	_ = http.NewResponseController(x.w).SetReadDeadline(time.Now()) // where it cannot be moved the server's own holds
}

func fileTooLarge(op *operation.Row) *operation.Problem {
	return &operation.Problem{
		Code: http.StatusRequestEntityTooLarge, Message: fmt.Sprintf("The file is larger than %d bytes", op.UploadLimit),
		Header: map[string]string{"Connection": "close"},
	}
}

// arriving is a file on its way.
type arriving struct {
	x         *exchange
	from      io.Reader
	deadlines *http.ResponseController
}

// Read moves the deadlines of the connection, which are made for small bodies.
func (a *arriving) Read(p []byte) (int, error) {
	a.x.work.leave()
	if now, s := time.Now(), a.x.server(); s.ReadTimeout > 0 {
		_ = errors.Join( // where they cannot be moved the server's own hold
			a.deadlines.SetReadDeadline(now.Add(s.ReadTimeout)), a.deadlines.SetWriteDeadline(now.Add(s.ReadTimeout+s.WriteTimeout)))
	}
	n, err := a.from.Read(p)
	var over *http.MaxBytesError
	switch {
	case err == nil, errors.Is(err, io.EOF):
		return n, err
	case errors.As(err, &over):
		return n, fileTooLarge(a.x.op)
	}
	return n, operation.BadRequest("The file could not be read to its end")
}
