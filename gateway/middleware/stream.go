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

// stream answers with what a result writes while it is made. What is written first waits until there is
// much of it, so that a failure before that, which is returned, is answered as any other; a whole answer
// that is small goes out at once. A failure later cuts the connection: only who has read to the end has
// everything. The row's time limit holds for the reader too, who may stand still as long as the server lets
// others take for a whole answer; the room for the work is kept until then. Nothing is compressed.
func (x *exchange) stream(ctx context.Context, result operation.Result) error {
	out := &streamed{x: x, ctx: ctx, media: cmp.Or(result.Media, x.op.Streams[0])}
	w := bufio.NewWriterSize(out, takenAtOnce)
	if x.call.Tenant != nil {
		pace := &pace{ctx: ctx, paces: x.p.paces, org: x.call.Tenant.Org.OrgID}
		x.about.Pace = pace
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

// streamed is the body of such an answer, which begins with the first write.
type streamed struct {
	x     *exchange
	ctx   context.Context
	media string
	whole int // bytes of an answer that is complete already
}

func (s *streamed) Write(p []byte) (int, error) {
	if err := s.ctx.Err(); err != nil {
		return 0, err
	}
	x := s.x
	if x.code == 0 {
		if s.whole == 0 && !x.r.ProtoAtLeast(1, 1) {
			return 0, &operation.Problem{Code: http.StatusHTTPVersionNotSupported, Message: "The answer is long, and by HTTP/1.0 nobody could tell whether it is complete; use HTTP/1.1"}
		}
		x.head(http.StatusOK, s.media)
		if s.whole == len(p) {
			x.bytes = sendPlain(x.w, x.r, http.StatusOK, p)
			return len(p), nil
		}
		x.w.WriteHeader(http.StatusOK)
	}
	if still := x.server().WriteTimeout; still > 0 {
		_ = http.NewResponseController(x.w).SetWriteDeadline(time.Now().Add(still)) // else that of the server holds
	}
	again := request.Rest(s.ctx)
	n, err := x.w.Write(p)
	again()
	if x.r.Method != http.MethodHead { // of which net/http sends nothing
		x.bytes += n
	}
	return n, err
}

// head writes what every answer of an operation says of itself.
func (x *exchange) head(code int, contentType string) {
	h := x.w.Header()
	setDefault(h, "Cache-Control", notKept)
	h["Content-Type"] = []string{contentType}
	h["X-Content-Type-Options"] = []string{"nosniff"}
	h[RequestIDHeader] = []string{x.call.RequestID}
	x.code = code
}

// notKept is the Cache-Control of answers that say nothing else: no cache may keep them.
const notKept = "private, no-store"
