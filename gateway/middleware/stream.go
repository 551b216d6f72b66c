package middleware

import (
	"bufio"
	"cmp"
	"context"
	"net/http"
	"time"

	"tenantry/internal/request"
	"tenantry/operation"
)

// stream answers with the output of result.Stream, uncompressed. The first bytes are buffered: an error before the
// buffer is full is returned and answered as usual, and a small answer is sent whole. A later error closes the
// connection, so a reader that reached the end has the whole answer.
//
// The deadline of the operation includes the time of the reader. The reader may pause for as long as the write timeout
// of the server. The room for the work is held until the end.
func (x *exchange) stream(ctx context.Context, result operation.Result) error {
	out := &streamWriter{x: x, ctx: ctx, media: cmp.Or(result.Media, x.op.Streams[0])}
	w := bufio.NewWriterSize(out, socketBuffer)
	if x.call.Tenant != nil {
		pace := &pace{ctx: ctx, paces: x.p.paces, org: x.call.Tenant.Org.OrgID}
		x.info.Pace = pace
		pace.begin()
		defer pace.leave()
	}
	err := result.Stream(ctx, w)
	if err == nil && x.code == 0 {
		out.whole = w.Buffered()
	}
	if err == nil {
		err = w.Flush()
	}
	if err != nil && x.code != 0 {
		x.failure = x.p.explain(ctx, x.op.Name, err)
		panic(http.ErrAbortHandler)
	}
	if err == nil && x.code == 0 { // there was nothing to write
		x.head(http.StatusOK, out.media)
		x.w.WriteHeader(http.StatusOK)
	}
	return err
}

// streamWriter writes the answer of a stream. The first write sends the header.
type streamWriter struct {
	x     *exchange
	ctx   context.Context
	media string
	whole int // size of the answer, if it is complete before the first write
}

func (s *streamWriter) Write(p []byte) (int, error) {
	if err := s.ctx.Err(); err != nil {
		return 0, err
	}
	x := s.x
	if x.code == 0 {
		if s.whole == 0 && !x.r.ProtoAtLeast(1, 1) {
			return 0, &operation.Problem{
				Code:    http.StatusHTTPVersionNotSupported,
				Message: "The answer is long, and over HTTP/1.0 its end could not be recognized; use HTTP/1.1",
			}
		}
		x.head(http.StatusOK, s.media)
		if s.whole == len(p) {
			x.bytes = sendPlain(x.w, x.r, http.StatusOK, p)
			return len(p), nil
		}
		x.w.WriteHeader(http.StatusOK)
	}
	if pause := x.server().WriteTimeout; pause > 0 {
		// If this fails, the deadline of the server stays.
		_ = http.NewResponseController(x.w).SetWriteDeadline(time.Now().Add(pause))
	}
	resume := request.Rest(s.ctx)
	n, err := x.w.Write(p)
	resume()
	if x.r.Method != http.MethodHead { // net/http sends no body
		x.bytes += n
	}
	return n, err
}

// head sets the headers that all answers of operations have.
func (x *exchange) head(code int, contentType string) {
	h := x.w.Header()
	setDefault(h, "Cache-Control", noStore)
	h["Content-Type"] = []string{contentType}
	h["X-Content-Type-Options"] = []string{"nosniff"}
	h[RequestIDHeader] = []string{x.call.RequestID}
	x.code = code
}

// noStore is the default Cache-Control of answers: no cache may store them.
const noStore = "private, no-store"
