package s3

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"time"
)

// errSilent is the reason for giving up.
var errSilent = errors.New("the server does not answer in time")

const (
	dialTimeout = 5 * time.Second
	// idleTimeout is how long unused connections are kept; servers close them after a minute or more.
	idleTimeout = 30 * time.Second
	idlePerHost = 32
)

func newTransport(wait time.Duration) *http.Transport {
	dialer := &net.Dialer{Timeout: min(dialTimeout, wait), KeepAlive: 15 * time.Second}
	return &http.Transport{
		Proxy: http.ProxyFromEnvironment,
		DialContext: func(ctx context.Context, network, address string) (net.Conn, error) {
			conn, err := dialer.DialContext(ctx, network, address)
			if err != nil {
				return nil, err
			}
			return &sender{conn, wait}, nil
		},
		TLSHandshakeTimeout: min(dialTimeout, wait), ResponseHeaderTimeout: wait, ExpectContinueTimeout: time.Second,
		MaxIdleConns: idlePerHost, MaxIdleConnsPerHost: idlePerHost, IdleConnTimeout: idleTimeout,
		DisableCompression: true, // objects are stored as they are
	}
}

// sender is a connection whose writes fail if the server takes nothing for a while.
type sender struct {
	net.Conn
	wait time.Duration
}

func (s *sender) Write(p []byte) (int, error) {
	if err := s.SetWriteDeadline(time.Now().Add(s.wait)); err != nil {
		return 0, err
	}
	return s.Conn.Write(p)
}

// impatient ends the reading of an answer if the server sends nothing for a while.
type impatient struct {
	next http.RoundTripper
	wait time.Duration
}

func (i impatient) RoundTrip(r *http.Request) (*http.Response, error) {
	ctx, cancel := context.WithCancelCause(r.Context())
	answer, err := i.next.RoundTrip(r.WithContext(ctx))
	if err != nil {
		cancel(nil)
		return nil, err
	}
	answer.Body = &body{ReadCloser: answer.Body, ctx: ctx, cancel: cancel, wait: i.wait}
	return answer, nil
}

// body is that of an answer. It waits a limited time for each read, and not at all while nobody reads.
type body struct {
	io.ReadCloser
	ctx    context.Context // of the request
	cancel context.CancelCauseFunc
	wait   time.Duration
}

func (b *body) Read(p []byte) (int, error) {
	timer := time.AfterFunc(b.wait, func() { b.cancel(errSilent) })
	n, err := b.ReadCloser.Read(p)
	timer.Stop()
	if err != nil && errors.Is(context.Cause(b.ctx), errSilent) {
		err = errSilent
	}
	return n, err
}

func (b *body) Close() error {
	defer b.cancel(nil)
	return b.ReadCloser.Close()
}
