package middleware

import (
	"bytes"
	"compress/gzip"
	"errors"
	"io"
	"net/http"
	"runtime"
	"strconv"
	"strings"
	"sync"

	"tenantry/operation"
)

// packOver is the size of an answer in bytes above which it is compressed: a smaller one
// fits the first packet as it is.
const packOver = 1 << 10

// packer sends whole answers, compressed where that pays and the client takes it. Safe for
// concurrent use.
//
// It is not klauspost/compress/gzhttp, which wraps a ResponseWriter: that starts a writer of 1.2 MB for every answer
// that is sent at the moment, and cannot leave one as it is because many are being compressed or compressing has made
// it no smaller.
type packer struct {
	buffers sync.Pool     // of *bytes.Buffer
	writers sync.Pool     // of *gzip.Writer
	slots   chan struct{} // as many as compress at the same time: each writer takes 1.2 MB
}

func newPacker() *packer {
	return &packer{slots: make(chan struct{}, 2*runtime.GOMAXPROCS(0))}
}

// buffer returns an empty buffer, which goes back with free.
func (p *packer) buffer() *bytes.Buffer {
	if buf, ok := p.buffers.Get().(*bytes.Buffer); ok {
		buf.Reset()
		return buf
	}
	return &bytes.Buffer{}
}

func (p *packer) free(buf *bytes.Buffer) {
	if buf.Cap() <= maxPooled {
		p.buffers.Put(buf)
	}
}

// maxPooled keeps one large answer from holding its memory for ever.
const maxPooled = 64 << 10

// send answers with the body, compressed unless it is small, has an encoding already or the
// client does not take it. It returns how many bytes were sent.
func (p *packer) send(w http.ResponseWriter, r *http.Request, code int, body []byte) int {
	h := w.Header()
	vary(h)
	if len(body) > packOver && h["Content-Encoding"] == nil && acceptsGzip(r.Header) {
		buf := p.buffer()
		defer p.free(buf)
		if p.pack(buf, body) {
			h["Content-Encoding"] = []string{"gzip"}
			if tag := h.Get("Etag"); tag != "" {
				h["Etag"] = []string{strings.TrimSuffix(tag, `"`) + operation.PackedTag + `"`}
			}
			body = buf.Bytes()
		}
	}
	return sendPlain(w, r, code, body)
}

// vary tells caches that the answer has several forms. What none may keep does not say so (RFC 9110, 12.5.5).
func vary(h http.Header) {
	if kept := h["Cache-Control"]; len(kept) != 1 || kept[0] != notKept {
		h["Vary"] = append(h["Vary"], "Accept-Encoding")
	}
}

// lengthIsKnown is how large a body may be for which net/http finds Content-Length itself. A
// header of more than eight lines costs a twentieth of a small answer's time.
const lengthIsKnown = 2 << 10

// sendPlain answers with the body as it is, and returns how many bytes were sent.
func sendPlain(w http.ResponseWriter, r *http.Request, code int, body []byte) int {
	if len(body) > lengthIsKnown || r.Method == http.MethodHead {
		w.Header()["Content-Length"] = []string{strconv.Itoa(len(body))}
	}
	w.WriteHeader(code)
	n, _ := w.Write(body) // a client that has gone cannot be told
	if r.Method == http.MethodHead {
		return 0 // net/http keeps it
	}
	return n
}

// pack compresses the body into the buffer and reports whether that made it smaller. Where
// enough is being compressed it does not wait: sending more costs less than a queue.
//
// The fastest level leaves 30% of a report's rows, for 0.8 ms of processor time per 64 KB;
// the default one leaves 27% for three times as much.
func (p *packer) pack(buf *bytes.Buffer, body []byte) bool {
	select {
	case p.slots <- struct{}{}:
		defer func() { <-p.slots }()
	default:
		return false
	}
	gz, ok := p.writers.Get().(*gzip.Writer)
	if !ok {
		gz, _ = gzip.NewWriterLevel(io.Discard, gzip.BestSpeed) // fails for unknown levels alone
	}
	gz.Reset(buf)
	_, err := gz.Write(body)
	err = errors.Join(err, gz.Close())
	gz.Reset(io.Discard) // else it keeps the buffer
	p.writers.Put(gz)
	return err == nil && buf.Len() < len(body)
}

// acceptsGzip reports whether the client takes gzip (RFC 9110, 12.5.3), and likes it no less
// than the plain form. What cannot be read, and what is refused in one place and taken in
// another, is refused.
func acceptsGzip(h http.Header) bool {
	const unsaid = 2.0
	gzipped, others, plain := unsaid, unsaid, 0.0
	for _, line := range h["Accept-Encoding"] {
		for part := range strings.SplitSeq(line, ",") {
			coding, weight, weighted := strings.Cut(part, ";")
			q := 1.0
			if weighted {
				q = quality(weight)
			}
			switch strings.ToLower(strings.TrimSpace(coding)) {
			case "gzip", "x-gzip":
				gzipped = min(gzipped, q)
			case "*":
				others = min(others, q)
			case "identity":
				plain = max(plain, q)
			}
		}
	}
	if gzipped == unsaid {
		gzipped = others
	}
	return gzipped > 0 && gzipped != unsaid && gzipped >= plain
}

// quality reads q=0.5; what is none counts as 0.
func quality(weight string) float64 {
	name, value, _ := strings.Cut(strings.TrimSpace(weight), "=")
	if !strings.EqualFold(name, "q") || len(value) > len("0.123") || strings.Trim(value, "0123456789.") != "" {
		return 0
	}
	q, err := strconv.ParseFloat(value, 64)
	if err != nil || q > 1 {
		return 0
	}
	return q
}

// Static returns a handler, for Observe, of content that stays the same while the program
// runs: it is made once, when somebody first asks, and compressed as far as can be when somebody
// first takes it so.
func Static(contentType string, content func() []byte) http.Handler {
	content = sync.OnceValue(content)
	packed := sync.OnceValue(func() []byte {
		var buf bytes.Buffer
		gz, _ := gzip.NewWriterLevel(&buf, gzip.BestCompression) // fails for unknown levels alone
		_, _ = gz.Write(content())                               // memory takes everything
		_ = gz.Close()
		return buf.Bytes()
	})
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		h.Set("Cache-Control", "public, max-age=300")
		h.Set("X-Content-Type-Options", "nosniff")
		h.Set("Content-Type", contentType)
		form := content()
		if len(form) > packOver && acceptsGzip(r.Header) {
			h.Set("Content-Encoding", "gzip")
			form = packed()
		}
		_, _ = w.Write(form) // a client that has gone cannot be told
	})
}
