package middleware_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"tenantry/backends/store"
	"tenantry/operation"
)

// TestStream: rows are sent while they are made; short and long answers, empty ones, and failures.
func TestStream(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	line := strings.Repeat("x", 99) + "\n"
	write := func(lines int, end error) operation.Stream {
		return func(ctx context.Context, out io.Writer) error {
			for range lines {
				if _, err := io.WriteString(out, line); err != nil {
					return err
				}
			}
			return end
		}
	}
	const many, still = 50_000, 2 * time.Second
	for _, tt := range []struct {
		name   string
		stream operation.Stream
		old    bool // HTTP/1.0
		code   int
		size   int // of the body; -1: an envelope
		cut    bool
	}{
		{"nothing", write(0, nil), false, 200, 0, false},
		{"little", write(3, nil), false, 200, 300, false},
		{"little, HTTP/1.0", write(3, nil), true, 200, 300, false},
		{"much", write(many, nil), false, 200, many * 100, false},
		{"much, HTTP/1.0", write(many, nil), true, 505, -1, false},
		{"failure at once", write(3, store.ErrUnavailable), false, 503, -1, false},
		{"fault", write(3, errors.New("secret cause")), false, 500, -1, false},
		{"failure later", write(many, store.ErrUnavailable), false, 200, -1, true},
		{"panic later", func(ctx context.Context, out io.Writer) error {
			_ = write(many, nil)(ctx, out)
			panic(http.ErrAbortHandler)
		}, false, 200, -1, true},
		{"longer than the server lets small answers take", func(ctx context.Context, out io.Writer) error {
			err := write(many, nil)(ctx, out)
			time.Sleep(still)
			return errors.Join(err, write(many, nil)(ctx, out))
		}, false, 200, 2 * many * 100, false},
		{"over its time", func(ctx context.Context, out io.Writer) error {
			_ = write(many, nil)(ctx, out)
			<-ctx.Done()
			return write(many, nil)(ctx, out)
		}, false, 200, -1, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			op := row(func(o *operation.Row) {
				o.Streams, o.Audit, o.Timeout = []string{operation.NDJSON, "text/csv; charset=utf-8"}, operation.AuditAlways, map[bool]time.Duration{true: time.Second, false: time.Minute}[tt.name == "over its time"]
				o.Handler = func(context.Context, *operation.Call) (operation.Result, error) {
					return operation.Result{Stream: tt.stream}, nil
				}
			})
			server := httptest.NewUnstartedServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
				w.Serve(op, rw, r, func(string) string { return "" })
			}))
			server.Config.WriteTimeout = time.Minute
			if strings.HasPrefix(tt.name, "longer") {
				server.Config.WriteTimeout = still
			}
			server.Start()
			t.Cleanup(server.Close)
			conn, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", server.Listener.Addr().String())
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = conn.Close() }() // it was read to its end
			version := map[bool]string{false: "1.1", true: "1.0"}[tt.old]
			_, err = fmt.Fprintf(conn, "GET /api/things HTTP/%s\r\nHost: acme.localhost\r\nX-Service-Token: full\r\nAccept-Encoding: gzip\r\nConnection: close\r\n\r\n", version)
			if err != nil {
				t.Fatal(err)
			}
			resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
			if err != nil {
				t.Fatal(err)
			}
			body, err := io.ReadAll(resp.Body)
			_ = resp.Body.Close() // it was read to its end
			if resp.StatusCode != tt.code || (err != nil) != tt.cut || tt.size >= 0 && len(body) != tt.size {
				t.Fatalf("%d, %d bytes, %v, want %d, %d bytes, cut off = %t",
					resp.StatusCode, len(body), err, tt.code, tt.size, tt.cut)
			}
			media := map[bool]string{true: operation.NDJSON, false: "application/json; charset=utf-8"}[tt.code == 200]
			if h := resp.Header; h.Get("Content-Type") != media || h.Get("Content-Encoding") != "" || h.Get("Cache-Control") != "private, no-store" || h.Get("X-Request-Id") == "" {
				t.Errorf("headers %v", h)
			}
			if tt.code >= 500 && (!strings.HasPrefix(string(body), `{"status":"failed"`) || strings.Contains(string(body), "cause")) {
				t.Errorf("body of the failure = %s, want an envelope without the cause", body)
			}
		})
	}
}

// TestObserve_DeadlinesAreThoseOfTheConnection: the http.ResponseWriter of a page can move the deadlines of its
// connection.
func TestObserve_DeadlinesAreThoseOfTheConnection(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	moved := make(chan error, 2)
	page := http.HandlerFunc(func(rw http.ResponseWriter, _ *http.Request) {
		c := http.NewResponseController(rw)
		moved <- c.SetReadDeadline(time.Now().Add(time.Minute))
		moved <- c.SetWriteDeadline(time.Now().Add(time.Minute))
	})
	server := httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) { w.Observe("page", rw, r, page) }))
	t.Cleanup(server.Close)
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, server.URL, http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := server.Client().Do(r)
	if err != nil {
		t.Fatal(err)
	}
	_ = resp.Body.Close() // it has none
	for range 2 {
		if err := <-moved; err != nil {
			t.Error(err)
		}
	}
}
