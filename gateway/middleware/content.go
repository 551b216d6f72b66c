package middleware

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"net/http"
	"os"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"tenantry/internal/background"
	"tenantry/internal/fault"
	"tenantry/operation"
)

const (
	// contentPiece is how many bytes of a content are sent between two confirmations of the access. A reader must take
	// a piece, less what the connection buffers, within the write timeout of the server.
	contentPiece = 1 << 20
	// maxRanges bounds the ranges of one answer. A request for more gets the whole content, because each range costs
	// more than its bytes (RFC 9110, 14.2).
	maxRanges = 16
)

// content answers with the bytes of c as http.ServeContent does: whole or by ranges, under the conditions of RFC 9110,
// and never compressed. It returns the problem to answer with instead, if nothing was sent yet; a later error closes the
// connection. before is the header of the answer without that of the content.
//
// The room for the work is given back before the first byte. The bound on contents under way replaces it, because a
// slow reader holds a connection and a file, but no memory. The deadline of the operation does not include the time of
// the reader, who has the write timeout of the server for each piece.
func (x *exchange) content(ctx context.Context, c *operation.Content, before http.Header) *operation.Problem {
	from := &contentReader{from: c}
	defer from.stop()
	w := &contentWriter{x: x, ctx: ctx, content: c, file: c.File(), from: from, out: x.w}
	defer w.place.leave()
	for under := x.w; under != nil; {
		if _, ok := under.(io.ReaderFrom); ok {
			w.out = under // the framework's hides that of the server, which lets the kernel send a file
			break
		}
		wrapper, ok := under.(interface{ Unwrap() http.ResponseWriter })
		if !ok {
			break
		}
		under = wrapper.Unwrap()
	}
	h := x.w.Header()
	setDefault(h, "Cache-Control", noStore)
	h["Content-Type"] = []string{cmp.Or(c.Media, "application/octet-stream")}
	h["X-Content-Type-Options"] = []string{"nosniff"}
	h[RequestIDHeader] = []string{x.call.RequestID}
	if c.Tag != "" {
		h["Etag"] = []string{c.Tag}
	}
	http.ServeContent(w, rangedRequest(x.r), "", c.Modified, from)
	if w.problem != nil {
		clear(h)
		maps.Copy(h, before)
		for _, name := range []string{"Access-Control-Allow-Origin", "Access-Control-Expose-Headers", "Vary"} {
			if values, ok := x.call.Header[name]; ok {
				h[name] = values
			}
		}
		return w.problem
	}
	if w.err != nil {
		x.failure = x.cutShort(ctx, w.err, from.err())
		panic(http.ErrAbortHandler)
	}
	return nil
}

// rangedRequest returns the request, without its Range if that must or may be ignored (RFC 9110, 14.2): of a HEAD, in
// another unit than bytes, or with too many ranges. A suffix of no bytes, which http.ServeContent would answer, is
// beyond every end instead (14.1.2).
func rangedRequest(r *http.Request) *http.Request {
	if r.Header.Get("Range") == "" {
		return r
	}
	asked, isBytes := strings.CutPrefix(r.Header.Get("Range"), "bytes=")
	ranges := strings.Split(asked, ",")
	var wanted []string
	if isBytes && r.Method == http.MethodGet && len(ranges) <= maxRanges {
		for _, one := range ranges {
			if suffix, is := strings.CutPrefix(strings.TrimSpace(one), "-"); is && suffix != "" && strings.Trim(suffix, "0") == "" {
				one = strconv.Itoa(math.MaxInt64) + "-"
			}
			wanted = append(wanted, one)
		}
	}
	changed := *r
	changed.Header = r.Header.Clone()
	changed.Header.Del("Range")
	if wanted != nil {
		changed.Header.Set("Range", "bytes="+strings.Join(wanted, ","))
	}
	return &changed
}

// cutShort returns the problem, for the log, of a content that was not sent to its end. source is the error of reading
// the content, if that is the reason.
func (x *exchange) cutShort(ctx context.Context, err, source error) *operation.Problem {
	reason := ""
	switch {
	case source != nil:
		err = source
	case errors.Is(err, os.ErrDeadlineExceeded):
		reason = "the caller read too slowly"
	case errors.Is(err, syscall.EPIPE), errors.Is(err, syscall.ECONNRESET),
		x.r.Context().Err() != nil && !errors.Is(err, operation.ErrEnded):
		reason = "the caller hung up"
	}
	if reason == "" {
		return x.p.explain(ctx, x.op.Name, err)
	}
	return &operation.Problem{Code: codeHungUp, Message: "The content was not read to its end", Reason: reason, Err: err}
}

// contentWriter is the http.ResponseWriter through which http.ServeContent answers.
type contentWriter struct {
	x       *exchange
	ctx     context.Context //nolint:containedctx // of the request
	content *operation.Content
	file    *os.File // that is the content; nil: it is none
	from    *contentReader
	out     io.Writer // of the server
	place   place

	begun   bool               // the first piece was
	problem *operation.Problem // to answer with instead
	err     error              // why the content was not sent to its end
}

// Header returns the header of the answer.
func (w *contentWriter) Header() http.Header { return w.x.w.Header() }

// WriteHeader sends the header of a success, once there is room to send its body. It notes the problem that replaces a
// failure, of which nothing is sent.
func (w *contentWriter) WriteHeader(code int) {
	x := w.x
	switch code {
	case http.StatusOK, http.StatusPartialContent:
		if w.problem = w.enter(); w.problem != nil {
			return
		}
	case http.StatusNotModified:
		// Metadata of the content is none of a 304 (RFC 9110, 15.4.5).
		for _, name := range []string{"Repr-Digest", "Content-Language"} {
			w.Header().Del(name)
		}
	case http.StatusPreconditionFailed:
		w.problem = operation.Refusal(
			code, "If-Match", fault.Stale, "The content is not the one that the conditions of the request name")
		return
	case http.StatusRequestedRangeNotSatisfiable:
		size, _ := w.from.Seek(0, io.SeekEnd) // it did not fail before
		w.problem = operation.Refusal(
			code, "Range", fault.Range, fmt.Sprintf("The content has %d bytes and none in the range", size))
		w.problem.Header = map[string]string{
			"Content-Range": "bytes */" + strconv.FormatInt(size, 10), "Accept-Ranges": "bytes",
		}
		return
	default:
		w.problem = x.problem(w.ctx, cmp.Or(w.from.err(), errors.New("the content cannot be read")))
		return
	}
	x.code = code
	x.w.WriteHeader(code)
	if x.r.Method != http.MethodHead && code != http.StatusNotModified {
		_, _ = x.w.Write(nil) // so that the framework knows that the header was sent
	}
}

// enter gives back the room for the work and takes a place among the contents under way.
func (w *contentWriter) enter() *operation.Problem {
	x := w.x
	x.leave()
	if x.r.Method == http.MethodHead {
		return nil
	}
	var err error
	if w.place, err = x.enter(w.ctx, x.p.Contents, 1); err == nil { // which may have waited
		err = w.content.Confirm(w.ctx)
	}
	if err == nil {
		return nil
	}
	return x.problem(w.ctx, err)
}

// Write sends bytes that are not the content, unless they are the text of a failure.
func (w *contentWriter) Write(p []byte) (int, error) {
	if w.problem != nil {
		return len(p), nil
	}
	n, err := w.ReadFrom(bytes.NewReader(p))
	return int(n), err
}

// ReadFrom sends the content in pieces. The kernel sends those of a file.
func (w *contentWriter) ReadFrom(src io.Reader) (sent int64, err error) {
	if w.problem != nil {
		return 0, w.problem
	}
	left := int64(math.MaxInt64)
	limited, bounded := src.(*io.LimitedReader)
	if bounded {
		src, left = limited.R, limited.N
	}
	if src == w.from && w.file != nil {
		src = w.file
	}
	for left > 0 && err == nil {
		if err = w.next(); err != nil {
			break
		}
		piece := &io.LimitedReader{R: src, N: min(left, contentPiece)}
		n, failed := io.Copy(w.out, piece)
		sent, left = sent+n, left-n
		if w.x.bytes += int(n); failed != nil {
			err = failed
		} else if piece.N > 0 {
			break // the source has ended
		}
	}
	if bounded && left > 0 && err == nil {
		err = fmt.Errorf("the content has %d bytes less than it said: %w", left, io.ErrUnexpectedEOF)
	}
	w.err = err
	return sent, err
}

// next moves the write deadline for the next piece, and confirms the access before all pieces but the first.
func (w *contentWriter) next() error {
	x := w.x
	if w.begun {
		// The deadline of the operation is over for many contents.
		ctx, cancel := context.WithTimeout(context.WithoutCancel(w.ctx), x.op.Deadline())
		defer cancel()
		if err := w.content.Confirm(ctx); err != nil {
			return err
		}
	}
	w.begun = true
	if pause := x.server().WriteTimeout; pause > 0 {
		// If this fails, the deadline of the server stays.
		_ = http.NewResponseController(x.w).SetWriteDeadline(time.Now().Add(pause))
	}
	return nil
}

// contentReader is the content as http.ServeContent reads it: for several ranges in a goroutine, which a panic must not
// end, and which may still run when ServeContent has returned.
type contentReader struct {
	mu     sync.Mutex
	from   io.ReadSeeker // nil once it is stopped
	failed error         // the first error of it
}

// Read implements io.Reader.
func (r *contentReader) Read(p []byte) (n int, err error) {
	return n, r.do(func(from io.ReadSeeker) error {
		n, err = from.Read(p)
		return err
	})
}

// Seek implements io.Seeker.
func (r *contentReader) Seek(offset int64, whence int) (at int64, err error) {
	return at, r.do(func(from io.ReadSeeker) error {
		at, err = from.Seek(offset, whence)
		return err
	})
}

func (r *contentReader) do(step func(from io.ReadSeeker) error) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.from == nil {
		return os.ErrClosed
	}
	err := background.Try(func() error { return step(r.from) })
	if err != nil && !errors.Is(err, io.EOF) && r.failed == nil {
		r.failed = err
	}
	return err
}

// err returns the first error of reading the content; nil if there was none.
func (r *contentReader) err() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.failed
}

// stop ends the use of the content.
func (r *contentReader) stop() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.from = nil
}

// closeContents closes what the handler has returned.
func (x *exchange) closeContents() {
	if err := x.call.CloseContents(); err != nil {
		x.p.Log.Warn("a content could not be closed", "operation", x.op.Name, "error", err)
	}
}
