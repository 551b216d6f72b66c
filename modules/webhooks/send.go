package webhooks

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"strconv"
	"strings"
	"time"

	"tenantry/internal/texts"
)

// Bounds of one try.
const (
	tryTimeout    = 15 * time.Second
	tlsTimeout    = 5 * time.Second
	headerTimeout = 10 * time.Second
	idleTimeout   = 30 * time.Second
	maxHeaders    = 16 << 10
	maxAnswer     = 64 << 10 // bytes of an answer that are read
	shownAnswer   = 1000     // characters of it that a Delivery keeps
	takenAnswer   = 100      // of one that accepts the event
	maxRetryAfter = 24 * time.Hour
)

// Event is what happened to one record, as receivers see it.
type Event struct {
	ID       string `json:"id" doc:"Identifier of the event, as in the header webhook-id; the same at each try."`
	Kind     string `json:"kind" doc:"The kind of record, and what happened to it."`
	Record   string `json:"record" doc:"Identifier of the record."`
	Revision int64  `json:"revision" doc:"Revision of the record after the change."`
	Actor    string `json:"actor" doc:"Who made the change, as in the audit log."`
	At       string `json:"at" doc:"When it happened: RFC 3339, UTC, milliseconds."`
}

// Message is the body of a delivery.
type Message struct {
	Type      string `json:"type" doc:"The kind of record, and what happened to it, as in data."`
	Timestamp string `json:"timestamp" doc:"When it happened: RFC 3339, UTC, milliseconds."`
	Data      Event  `json:"data" doc:"The event."`
}

// TestKind is the type of the message that webhooks.test sends.
const TestKind = "webhook.test"

// newClient returns the client of all deliveries: it uses no proxy, follows no redirects and dials only what the guard
// permits.
func newClient(g *guard, each int) *http.Client {
	return &http.Client{
		Transport: &http.Transport{
			DialContext: g.dialer().DialContext, TLSHandshakeTimeout: tlsTimeout, ResponseHeaderTimeout: headerTimeout,
			MaxIdleConns: 1024, MaxIdleConnsPerHost: each, IdleConnTimeout: idleTimeout, ForceAttemptHTTP2: true,
			MaxResponseHeaderBytes: maxHeaders, DisableCompression: true,
		},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		Timeout:       tryTimeout,
	}
}

// outcome is what came of one try.
type outcome struct {
	status int
	answer string
	err    string
	took   time.Duration
	at     time.Time
	// wait is how long the receiver asked to be left alone; gone: it wants nothing any more.
	wait time.Duration
	gone bool
}

func (o *outcome) accepted() bool { return o.err == "" }

// refused reports whether the receiver is there and does not want the event: it need not be tried again soon.
func (o *outcome) refused() bool {
	return o.status >= 400 && o.status < 500 && o.status != http.StatusRequestTimeout && o.status != http.StatusTooManyRequests
}

// try sends an event to the webhook once. The answer of the receiver is never an error of this process.
func (m *Module) try(ctx context.Context, h *Hook, s signer, e *Event) (o outcome) {
	o.at = m.Now()
	began := time.Now()
	defer func() { o.took = time.Since(began) }()
	body, err := json.Marshal(Message{Type: e.Kind, Timestamp: e.At, Data: *e})
	if err != nil {
		o.err = "the event cannot be written"
		return o
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, h.URL, bytes.NewReader(body))
	if err == nil {
		err = s.sign(req.Header, e.ID, o.at, body)
	}
	if err != nil {
		o.err = "the request cannot be made: check the address"
		return o
	}
	if req.URL.Scheme == "http" {
		req = req.WithContext(withoutTLS(ctx))
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("User-Agent", "Tenantry")
	answer, err := m.client.Do(req)
	if err != nil {
		o.err = reason(err)
		return o
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(io.LimitReader(answer.Body, maxAnswer))
	o.status = answer.StatusCode
	switch {
	case o.status == http.StatusGone:
		o.gone, o.err = true, "the receiver answered 410 Gone"
	case o.status >= 300 && o.status < 400:
		o.err = fmt.Sprintf("the receiver answered %d; redirects are not followed", o.status)
	case o.status < 200 || o.status >= 300:
		o.err = fmt.Sprintf("the receiver answered %d", o.status)
		if o.status == http.StatusTooManyRequests || o.status == http.StatusServiceUnavailable { // about itself, not about the event
			o.wait = retryAfter(answer.Header.Get("Retry-After"), o.at)
		}
	case err != nil:
		o.err = "the answer broke off: " + reason(err)
	}
	if o.answer = shorten(text, shownAnswer); o.accepted() {
		o.answer = shorten(text, takenAnswer)
	}
	return o
}

// shorten returns the beginning of an answer as valid text of at most that many characters.
func shorten(answer []byte, most int) string {
	text := strings.Map(func(r rune) rune {
		if r < ' ' && r != '\n' && r != '\t' {
			return -1
		}
		return r
	}, strings.ToValidUTF8(string(answer), "\uFFFD"))
	if runes := []rune(text); len(runes) > most {
		text = string(runes[:most]) + "…"
	}
	return text
}

// retryAfter reads the header of that name; 0: there is none, or it has no sense.
func retryAfter(text string, now time.Time) time.Duration {
	wait := time.Duration(0)
	if n, err := strconv.ParseInt(strings.TrimSpace(text), 10, 32); err == nil {
		wait = time.Duration(n) * time.Second
	} else if at, err := http.ParseTime(text); err == nil {
		wait = at.Sub(now)
	}
	return min(max(wait, 0), maxRetryAfter)
}

// reason says why a try failed, without addresses of networks inside.
func reason(err error) string {
	var dns *net.DNSError
	var timeout interface{ Timeout() bool }
	switch {
	case errors.Is(err, errForbidden):
		return errForbidden.Error()
	case errors.As(err, &dns):
		return "the name of the host leads to no address"
	case errors.As(err, &timeout) && timeout.Timeout():
		return "the receiver took too long"
	case errors.Is(err, context.Canceled):
		return "the try was interrupted"
	}
	var op *net.OpError
	if errors.As(err, &op) && op.Op == "dial" {
		return "no connection could be made"
	}
	return "the connection failed: " + texts.Clip(plain(err))
}

// plain returns the innermost text of an error, which names neither the address nor the request.
func plain(err error) string {
	for {
		inner := errors.Unwrap(err)
		if inner == nil {
			break
		}
		err = inner
	}
	if text := err.Error(); !strings.Contains(text, "://") {
		if _, wrong := netip.ParseAddrPort(text); wrong != nil {
			return text
		}
	}
	return "it was closed"
}

// ExampleMessage returns an example of what is sent about records of a kind.
func ExampleMessage(kind string) any {
	e := exampleDelivery().Event
	e.Kind = kind + ".updated"
	return Message{Type: e.Kind, Timestamp: e.At, Data: e}
}
