package control

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"tenantry/backends/store"
	"tenantry/crypto/keyring"
	"tenantry/internal/fault"
	"tenantry/internal/maintest"
	"tenantry/modules/imports/bundle"
	"tenantry/operation"
	"tenantry/tenants"
)

func TestMain(m *testing.M) { maintest.Leakless(m) }

// client returns a Client of a handler that answers every command with fn.
func client(t *testing.T, fn http.HandlerFunc) *Client {
	t.Helper()
	path := socket(t, fn)
	c, err := Dial(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

// socket serves a handler on a socket and returns its path.
func socket(t *testing.T, h http.Handler) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "s")
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "unix", path)
	if err != nil {
		t.Fatal(err)
	}
	s := httptest.NewUnstartedServer(h)
	if err := s.Listener.Close(); err != nil {
		t.Fatal(err)
	}
	s.Listener = l
	s.Start()
	t.Cleanup(s.Close)
	return path
}

// refuse answers with an error.
func refuse(w http.ResponseWriter, e *Error) { _ = (&eventWriter{w: w}).send(event{Error: e}, nil) }

func TestErrorOf(t *testing.T) {
	t.Parallel()
	var faults fault.List
	faults.Add("slug", fault.Format, "bad slug")
	var errs fault.List
	errs.Add("name", "required", "name is required")
	for _, c := range []struct {
		err  error
		code string
	}{
		{faults.Err(), CodeInvalid},
		{&store.DuplicateError{Kind: "x", Fields: []string{"y"}}, CodeDuplicate},
		{tenants.ErrUnknownTenant, CodeNotFound},
		{store.ErrNotFound, CodeNotFound},
		{store.ErrConflict, CodeConflict},
		{keyring.ErrReadOnly, CodeConflict},
		{store.ErrUnavailable, CodeUnavailable},
		{context.DeadlineExceeded, CodeUnavailable},
		{errs.Err(), CodeInvalid},
		{errors.New("anything"), CodeFailed},
		{&Error{Code: CodeUnknown, Message: "what"}, CodeUnknown},
	} {
		e := errorOf(fmt.Errorf("doing something: %w", c.err))
		if e.Code != c.code || e.Message == "" {
			t.Errorf("%v: %+v, want %s", c.err, e, c.code)
		}
	}
	if e := errorOf(faults.Err()); len(e.Faults) != 1 || e.Faults[0].Field != "slug" {
		t.Errorf("faults: %+v", e)
	}
}

func TestClient_Failures(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		fn   http.HandlerFunc
		want string
	}{
		"refused": {func(w http.ResponseWriter, _ *http.Request) {
			refuse(w, &Error{Code: CodeInvalid, Message: "no such thing"})
		}, "no such thing"},
		"of another version": {func(w http.ResponseWriter, _ *http.Request) {
			refuse(w, &Error{Code: CodeUnknown, Message: "what?"})
		}, "restart it"},
		"not an answer of a Server": {func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "<html>", http.StatusBadGateway) }, "502 Bad Gateway; it may be of another version"},
		"cut off":                   {func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }, "closed the connection"},
		"truncated answer":          {func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, `{"slug": "ac`) }, "cannot be read"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := Call[Organization](t.Context(), client(t, c.fn), "org.show", Slug{"acme"})
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%v, want %q in it", err, c.want)
			}
		})
	}
}

func TestClient_ErrorsTravelWhole(t *testing.T) {
	t.Parallel()
	sent := &Error{Code: CodeInvalid, Message: "bad", Faults: fault.List{{Field: "slug", Code: fault.Format, Message: "bad slug"}}}
	c := client(t, func(w http.ResponseWriter, _ *http.Request) { refuse(w, sent) })
	_, err := Call[Organization](t.Context(), c, "org.create", NewOrganization{})
	var got *Error
	if !errors.As(err, &got) || got.Code != sent.Code || got.Message != sent.Message || len(got.Faults) != 1 || got.Faults[0] != sent.Faults[0] {
		t.Errorf("got %+v (%v), want %+v", got, err, sent)
	}
}

func TestClient_StopsWithItsContext(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	gone := make(chan struct{})
	c := client(t, func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		cancel() // only now, because the handler must be running
		<-r.Context().Done()
		close(gone)
	})
	if _, err := Call[[]EncryptionKey](ctx, c, "keyring.list", struct{}{}); !errors.Is(err, context.Canceled) {
		t.Errorf("error = %v, want %v", err, context.Canceled)
	}
	select {
	case <-gone:
	case <-time.After(30 * time.Second):
		t.Error("the context of the handler did not end")
	}
}

func TestDial_WithoutServer(t *testing.T) {
	t.Parallel()
	if _, err := Dial(t.Context(), filepath.Join(t.TempDir(), "none.sock")); err == nil {
		t.Error("Dial of a missing socket succeeded, want an error")
	}
}

func TestServer_Requests(t *testing.T) {
	t.Parallel()
	path := socket(t, NewServer(Backend{}))
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", path)
	}}}
	for _, c := range []struct {
		method, path, body, in, code string
	}{
		{"POST", "/v1/org/show", `{"slug": "acme", "nonsense": 1}`, "", CodeInvalid},
		{"POST", "/v1/org/show", `{"slug": "acme"} {}`, "", CodeInvalid},
		{"POST", "/v1/org/show", `{"slug": "acme", "slug": "other"}`, "", CodeInvalid},
		{"POST", "/v1/org/show", `nonsense`, "", CodeInvalid},
		{"POST", "/v1/org/show", `{"slug": ""}`, "", CodeInvalid},
		{"POST", "/v1/org/show", `{}`, "", CodeInvalid},
		{"POST", "/v1/org/show", `{"slug": 5}`, "", CodeInvalid},
		{"POST", "/v1/org/show", `{"slug": "` + strings.Repeat("x", maxRequest) + `"}`, "", CodeInvalid},
		{"POST", "/v1/import", ``, `{"dry_run": "perhaps"}`, CodeInvalid},
		{"POST", "/v1/import", ``, `%zz`, CodeInvalid},
		{"POST", "/v1/nonsense", `{}`, "", CodeUnknown},
		{"GET", "/v1/org/list", ``, "", CodeUnknown},
	} {
		r, err := http.NewRequestWithContext(t.Context(), c.method, "http://control"+c.path, strings.NewReader(c.body))
		if err != nil {
			t.Fatal(err)
		}
		if c.in != "" {
			r.Header.Set(inputHeader, c.in)
		}
		resp, err := client.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		var last event
		if err := json.NewDecoder(resp.Body).Decode(&last); err != nil || last.Error == nil || last.Error.Message == "" || last.Error.Code != c.code {
			t.Errorf(`%s %s %.40s: got %+v %v, want no error and last.Error other than nil and last.Error.Message other than "" and %v`,
				c.method, c.path, c.body, last, err, c.code)
		}
		if err := resp.Body.Close(); err != nil {
			t.Error(err)
		}
	}
}

// TestServer_Panic: when a command panics, its heartbeats end, because they would be written to an answer that has
// ended.
func TestServer_Panic(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) { // it fails if a goroutine is left
		defer func() {
			if recover() == nil {
				t.Error("a command without its keyring did not panic")
			}
		}()
		NewServer(Backend{}).ServeHTTP(httptest.NewRecorder(), httptest.NewRequest(http.MethodPost, "/v1/keyring/list", strings.NewReader("{}")))
	})
}

// TestRows: every command is a valid row for the operator alone, with a usage line of its own.
func TestRows(t *testing.T) {
	t.Parallel()
	lines := map[string]bool{}
	for name, c := range NewServer(Backend{}).commands {
		if faults := c.Row.Validate(); len(faults) > 0 || c.Row.Credentials != operation.Operator || lines[c.Line] {
			t.Errorf("%s: got %v, want len(faults) <= 0 and c.Row.Credentials = %v", name, faults, operation.Operator)
		}
		lines[c.Line] = true
	}
	if len(lines) < 40 {
		t.Errorf("commands = %d, want at least 40", len(lines))
	}
}

func TestImport_Events(t *testing.T) {
	t.Parallel()
	c := client(t, func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		out := &eventWriter{w: w}
		_ = out.send(event{}, nil)
		_ = out.send(event{Progress: &Progress{Step: bundle.PhaseStoring, Done: 1}}, nil)
		_, _ = out.Write([]byte("bad \xff line\n"))
		_ = out.send(event{Answer: &Answer{Data: json.RawMessage(`{"lines": 2}`)}, Error: &Error{Code: CodeInvalid, Message: "refused"}}, nil)
	})
	var bad bytes.Buffer
	var step string
	input := strings.NewReader("12345")
	got, err := c.Do(t.Context(), "import", ImportRequest{Org: "acme"}, Streams{Input: input, Output: &bad, Progress: func(p Progress) { step = p.Step }})
	if got == nil || string(got.Data) != `{"lines": 2}` && string(got.Data) != `{"lines":2}` || err == nil || err.Error() != "refused" {
		t.Errorf("got %+v, %v", got, err)
	}
	if bad.String() != "bad \xff line\n" || step != bundle.PhaseStoring || input.Len() != 0 {
		t.Errorf("bad %q, step %q, %d bytes were not sent", bad.String(), step, input.Len())
	}
}

func TestImport_CutOff(t *testing.T) {
	t.Parallel()
	c := client(t, func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		_ = (&eventWriter{w: w}).send(event{}, nil)
	})
	got, err := c.Do(t.Context(), "import", ImportRequest{}, Streams{Input: strings.NewReader("x")})
	var cut *InterruptedError
	if got != nil || !errors.As(err, &cut) || cut.Command != "import" {
		t.Errorf("got %+v, %v", got, err)
	}
}

// TestImport_RefusedBeforeItIsSent: the input of an import that is refused at once is not read.
func TestImport_RefusedBeforeItIsSent(t *testing.T) {
	t.Parallel()
	c := client(t, func(w http.ResponseWriter, _ *http.Request) {
		refuse(w, &Error{Code: CodeNotFound, Message: "no such organization"})
	})
	var input endless
	_, err := c.Do(t.Context(), "import", ImportRequest{}, Streams{Input: &input})
	if err == nil || err.Error() != "no such organization" {
		t.Errorf("error = %v, want %q", err, "no such organization")
	}
	if n := input.reads.Load(); n > 0 {
		t.Errorf("the input was read %d times, want 0", n)
	}
}

type endless struct{ reads atomic.Int64 }

func (e *endless) Read(p []byte) (int, error) {
	e.reads.Add(1)
	return len(p), nil
}

func TestExport_EndOfOutput(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		last event
		want string
	}{
		"whole":   {event{Answer: &Answer{Data: json.RawMessage("{}")}}, ""},
		"failed":  {event{Error: &Error{Message: "the disk is gone"}}, "the disk is gone"},
		"cut off": {event{}, "was interrupted: the server closed the connection"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cl := client(t, func(w http.ResponseWriter, _ *http.Request) {
				sent := &eventWriter{w: w}
				_, _ = sent.Write([]byte("line\n"))
				_ = sent.send(c.last, nil)
			})
			var out bytes.Buffer
			_, err := cl.Do(t.Context(), "export", ExportRequest{}, Streams{Output: &out})
			if out.String() != "line\n" {
				t.Errorf("output = %q, want %q", out.String(), "line\n")
			}
			if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
				t.Errorf("error = %v, want %q in it", err, c.want)
			}
		})
	}
}
