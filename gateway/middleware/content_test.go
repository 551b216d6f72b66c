package middleware_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"tenantry/gateway/middleware"
	"tenantry/operation"
	"tenantry/tenants/limits"
)

// contentRow returns a row that answers the content.
func contentRow(content func() *operation.Content, change func(*operation.Row)) *operation.Row {
	return row(func(o *operation.Row) {
		o.Content = []string{operation.AnyMedia}
		o.Handler = func(context.Context, *operation.Call) (operation.Result, error) {
			return operation.Result{Content: content()}, nil
		}
		if change != nil {
			change(o)
		}
	})
}

// bytesContent is a content in memory. Its parts are what a test replaces.
type bytesContent struct {
	*bytes.Reader

	read   func(p []byte) (int, error)
	closed *int
}

func (c bytesContent) Read(p []byte) (int, error) {
	if c.read != nil {
		return c.read(p)
	}
	return c.Reader.Read(p)
}

func (c bytesContent) Close() error {
	*c.closed++
	return nil
}

// watchedListener records what is sent through io.ReaderFrom of its connections.
type watchedListener struct {
	net.Listener

	mu   sync.Mutex
	from []string
}

func (l *watchedListener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if tcp, ok := c.(*net.TCPConn); ok {
		return &watchedConn{tcp, l}, err
	}
	return c, err
}

type watchedConn struct {
	*net.TCPConn

	of *watchedListener
}

func (c *watchedConn) ReadFrom(r io.Reader) (int64, error) {
	kind := "other"
	if limited, ok := r.(*io.LimitedReader); ok {
		if _, ok := limited.R.(*os.File); ok { // what sendfile needs
			kind = "file"
		}
	}
	c.of.mu.Lock()
	c.of.from = append(c.of.from, kind)
	c.of.mu.Unlock()
	return c.TCPConn.ReadFrom(r)
}

// hiding is a ResponseWriter as that of the framework, which hides io.ReaderFrom.
type hiding struct{ http.ResponseWriter }

func (h hiding) Unwrap() http.ResponseWriter { return h.ResponseWriter }

// TestContent_KernelSendsFiles: the connection gets each piece of a file in the form that the kernel sends, whatever
// hides the writer of the server. The connections of a server with Framing are TCP connections, whose method is used.
func TestContent_KernelSendsFiles(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	path := filepath.Join(t.TempDir(), "file")
	text := bytes.Repeat([]byte("0123456789"), 300<<10)
	if err := os.WriteFile(path, text, 0o600); err != nil {
		t.Fatal(err)
	}
	op := contentRow(func() *operation.Content {
		f, err := os.Open(path)
		if err != nil {
			t.Error(err)
		}
		return &operation.Content{ReadSeekCloser: f}
	}, nil)
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	watched := &watchedListener{Listener: listener}
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		w.Serve(op, hiding{rw}, r, func(string) string { return "" })
	}))
	_ = server.Listener.Close() // it is replaced
	server.Listener = watched
	server.Start()
	t.Cleanup(server.Close)
	for ranges, want := range map[string]int{"": len(text), "bytes=10-": len(text) - 10} {
		watched.from = nil
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, server.URL, http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		r.Host = "acme.localhost"
		r.Header.Set(middleware.KeyHeader, "full")
		if ranges != "" {
			r.Header.Set("Range", ranges)
		}
		resp, err := server.Client().Do(r)
		if err != nil {
			t.Fatal(err)
		}
		got, err := io.ReadAll(resp.Body)
		_ = resp.Body.Close() // it was read to its end
		if err != nil || !bytes.Equal(got, text[len(text)-want:]) {
			t.Errorf("%q: got %d bytes, %v, want %d", ranges, len(got), err, want)
		}
		watched.mu.Lock()
		if strings.Join(watched.from, " ") != "file file file" {
			t.Errorf("%q: got %q, want three pieces of a file", ranges, watched.from)
		}
		watched.mu.Unlock()
	}
	if _, ok := any(middleware.Framed(listener)).(net.Listener); !ok {
		t.Error("Framed returns no listener")
	}
}

// TestContent_Closed: a content is closed once, whatever becomes of it.
func TestContent_Closed(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name   string
		change func(*operation.Row)
		header string // of Range
		code   int
		read   func(p []byte) (int, error)
		cut    bool
	}{
		{"sent", nil, "", 200, nil, false},
		{"not in the range", nil, "bytes=100-", 416, nil, false},
		{"refused after all", func(o *operation.Row) {
			content := o.Handler
			o.Handler = func(ctx context.Context, c *operation.Call) (operation.Result, error) {
				result, _ := content(ctx, c)
				return result, operation.NotFound("Thing not found")
			}
		}, "", 404, nil, false},
		{"panic of the handler", func(o *operation.Row) {
			o.Failure = func(*operation.Problem) *operation.Problem { panic("fault") }
			content := o.Handler
			o.Handler = func(ctx context.Context, c *operation.Call) (operation.Result, error) {
				result, _ := content(ctx, c)
				return result, operation.NotFound("Thing not found")
			}
		}, "", 500, nil, false},
		{"content of a row without", func(o *operation.Row) { o.Content = nil }, "", 500, nil, false},
		{"fails", nil, "", 200, func([]byte) (int, error) { return 0, fmt.Errorf("store of files: %w", syscall.ECONNRESET) }, true},
		{"ends early", nil, "", 200, func([]byte) (int, error) { return 0, io.EOF }, true},
		{"panic", nil, "", 200, func([]byte) (int, error) { panic("fault") }, true},
		{"panic in ranges", nil, "bytes=0-1,3-4", 206, func([]byte) (int, error) { panic("fault") }, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			w.Contents = limits.NewFlight(8)
			closed := 0
			op := contentRow(func() *operation.Content {
				return &operation.Content{ReadSeekCloser: bytesContent{bytes.NewReader(make([]byte, 50)), tt.read, &closed}}
			}, tt.change)
			var rec *httptest.ResponseRecorder
			cut := func() (cut bool) {
				defer func() { cut = recover() == http.ErrAbortHandler }() //nolint:errorlint // a sentinel by contract of net/http
				r := httptest.NewRequestWithContext(t.Context(), op.Method, "/api/things", nil)
				r.Host = "acme.localhost"
				r.Header.Set(middleware.KeyHeader, "full")
				if tt.header != "" {
					r.Header.Set("Range", tt.header)
				}
				rec = httptest.NewRecorder()
				w.Serve(op, rec, r, func(string) string { return "" })
				return
			}()
			if rec.Code != tt.code || cut != tt.cut || closed != 1 || w.Contents.Used() != 0 {
				t.Errorf("got %d, cut off = %t, closed %d times, %d under way, want %d, %t, once, none",
					rec.Code, cut, closed, w.Contents.Used(), tt.code, tt.cut)
			}
			if tt.cut && !strings.Contains(w.log.String(), `"internal error"`) {
				t.Errorf("got the log %s, want an internal error", w.log)
			}
		})
	}
}

// TestContent_NoneOfARowWithContent: a handler that returns none is a fault.
func TestContent_NoneOfARowWithContent(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	if rec := w.serve(t, contentRow(func() *operation.Content { return nil }, nil), nil); rec.Code != http.StatusInternalServerError {
		t.Errorf("got %d %s, want 500", rec.Code, rec.Body)
	}
}

// TestContent_Confirmed: nothing is sent to a caller whose credential ended while the content was looked for, if that took
// half a second.
func TestContent_Confirmed(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	closed := 0
	keys, _ := w.Keys.(fakeKeys)
	rec := w.serve(t, contentRow(func() *operation.Content {
		delete(keys, "full")
		time.Sleep(600 * time.Millisecond)
		return &operation.Content{ReadSeekCloser: bytesContent{bytes.NewReader(make([]byte, 50)), nil, &closed}}
	}, nil), nil)
	if _, message := envelope(t, rec); rec.Code != http.StatusForbidden || message != operation.DeniedMessage || closed != 1 {
		t.Errorf("got %d %s, closed %d times, want the denial, and once", rec.Code, message, closed)
	}
}

// TestContent_Room: a content gives back the room for the work before it is sent, and is bounded by organization and in
// all. Answers without a body need no place.
func TestContent_Room(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.Work, w.Contents = limits.NewFlight(256), limits.NewFlight(8) // two of them for an organization
	closed, depth := 0, 0
	var codes []int
	var op *operation.Row
	open := func() *operation.Content {
		return &operation.Content{Tag: `"a"`, ReadSeekCloser: bytesContent{bytes.NewReader(make([]byte, 50)), func(p []byte) (int, error) {
			if used := w.Work.Used(); used != 0 {
				t.Errorf("%d in flight while a content is sent, want 0", used)
			}
			if depth++; depth == 1 { // another beside it
				codes = append(codes, w.serve(t, op, nil).Code)
			} else if depth == 2 {
				codes = append(codes, w.serve(t, op, nil).Code)
				known := w.serve(t, op, func(r *http.Request) { r.Header.Set("If-None-Match", `"a"`) })
				head := w.serve(t, op, func(r *http.Request) { r.Method = http.MethodHead })
				codes = append(codes, known.Code, head.Code)
			}
			return len(p), nil
		}, &closed}}
	}
	op = contentRow(open, nil)
	first := w.serve(t, op, nil)
	if first.Code != http.StatusOK || !slices.Equal(codes, []int{429, 304, 200, 200}) || w.Contents.Used() != 0 {
		t.Errorf("got %d and beside it %d, want 200, and 429 of the third", first.Code, codes)
	}
}
