package control

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"tenantry/backends/store"
	"tenantry/crypto/keyring"
	"tenantry/gateway/transfer"
	"tenantry/internal/fault"
	"tenantry/tenants"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// client returns a Client of a handler that answers every command with fn.
func client(t *testing.T, fn http.HandlerFunc) *Client {
	t.Helper()
	c := InProcess(fn)
	t.Cleanup(func() {
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	})
	return c
}

func TestErrorOf(t *testing.T) {
	t.Parallel()
	var faults fault.List
	faults.Add("slug", fault.Format, "bad slug")
	var errs fault.List
	errs.Add("name", "required", "name is required")
	for _, c := range []struct {
		err    error
		code   string
		status int
	}{
		{faults.Err(), CodeInvalid, 422},
		{&store.DuplicateError{Kind: "x", Fields: []string{"y"}}, CodeDuplicate, 409},
		{tenants.ErrUnknownTenant, CodeNotFound, 404},
		{store.ErrNotFound, CodeNotFound, 404},
		{store.ErrConflict, CodeConflict, 409},
		{keyring.ErrReadOnly, CodeConflict, 409},
		{store.ErrUnavailable, CodeUnavailable, 503},
		{context.DeadlineExceeded, CodeUnavailable, 503},
		{errs.Err(), CodeInvalid, 422},
		{errors.New("anything"), CodeFailed, 500},
		{&Error{Code: CodeUnknown, Message: "what"}, CodeUnknown, 404},
	} {
		e := errorOf(fmt.Errorf("doing something: %w", c.err))
		if e.Code != c.code || e.status() != c.status || e.Message == "" {
			t.Errorf("%v: %+v with %d, want %s with %d", c.err, e, e.status(), c.code, c.status)
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
			writeError(w, &Error{Code: CodeInvalid, Message: "no such thing"})
		}, "no such thing"},
		"of another version": {func(w http.ResponseWriter, _ *http.Request) {
			writeError(w, &Error{Code: CodeUnknown, Message: "what?"})
		}, "restart it"},
		"no answer of ours": {func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "<html>", http.StatusBadGateway) }, "502"},
		"cut off":           {func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }, "went away"},
		"half an answer":    {func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, `{"slug": "ac`) }, "cannot be read"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := client(t, c.fn).ShowOrganization(t.Context(), "acme")
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%v, want %q in it", err, c.want)
			}
		})
	}
}

func TestClient_ErrorsTravelWhole(t *testing.T) {
	t.Parallel()
	sent := &Error{Code: CodeInvalid, Message: "bad", Faults: fault.List{{Field: "slug", Code: fault.Format, Message: "bad slug"}}}
	c := client(t, func(w http.ResponseWriter, _ *http.Request) { writeError(w, sent) })
	_, err := c.CreateOrganization(t.Context(), OrganizationChange{})
	var got *Error
	if !errors.As(err, &got) || got.Code != sent.Code || got.Message != sent.Message || len(got.Faults) != 1 || got.Faults[0] != sent.Faults[0] {
		t.Errorf("got %+v (%v)", got, err)
	}
}

func TestClient_StopsWithItsContext(t *testing.T) {
	t.Parallel()
	gone := make(chan struct{})
	c := client(t, func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		<-r.Context().Done()
		close(gone)
	})
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if _, err := c.ListKeyring(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("got %v", err)
	}
	select {
	case <-gone:
	case <-time.After(5 * time.Second):
		t.Error("the handler was not told")
	}
}

func TestDial_NobodyThere(t *testing.T) {
	t.Parallel()
	if _, err := Dial(t.Context(), filepath.Join(t.TempDir(), "none.sock")); err == nil {
		t.Error("a socket that is not there was reached")
	}
}

func TestHandler_Requests(t *testing.T) {
	t.Parallel()
	h := NewHandler(Backend{})
	for _, c := range []struct {
		method, path, body string
		status             int
	}{
		{"POST", "/v1/org/show", `{"slug": "acme", "nonsense": 1}`, 422},
		{"POST", "/v1/org/show", `{"slug": "acme"} {}`, 422},
		{"POST", "/v1/org/show", `nonsense`, 422},
		{"POST", "/v1/org/show", `{"slug": ""}`, 422},
		{"POST", "/v1/org/show", `{"slug": "` + strings.Repeat("x", maxRequest) + `"}`, 422},
		{"POST", "/v1/import?org=acme&dry_run=perhaps&partial=false", ``, 422},
		{"POST", "/v1/nonsense", `{}`, 404},
		{"GET", "/v1/org/list", ``, 404},
	} {
		r, err := http.NewRequestWithContext(t.Context(), c.method, "http://control"+c.path, strings.NewReader(c.body))
		if err != nil {
			t.Fatal(err)
		}
		inner := InProcess(h)
		resp, err := inner.http.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		var e Error
		if err := json.NewDecoder(resp.Body).Decode(&e); err != nil || e.Message == "" || resp.StatusCode != c.status {
			t.Errorf("%s %s %.40s: %d %+v %v", c.method, c.path, c.body, resp.StatusCode, e, err)
		}
		if err := errors.Join(resp.Body.Close(), inner.Close()); err != nil {
			t.Error(err)
		}
	}
}

func TestImport_Events(t *testing.T) {
	t.Parallel()
	report := &transfer.Report{Counts: transfer.Counts{Lines: 2, Failed: 1}}
	c := client(t, func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		out := &events{enc: json.NewEncoder(w), w: http.NewResponseController(w)}
		_ = out.send(event{})
		_ = out.send(event{Progress: &transfer.Progress{Phase: transfer.PhaseStoring, Lines: 1}})
		_, _ = out.Write([]byte("bad \xff line\n"))
		_ = out.send(event{Report: report, Error: &Error{Code: CodeInvalid, Message: "refused"}})
	})
	var bad bytes.Buffer
	var phase string
	var sent int64
	got, err := c.Import(t.Context(), ImportRequest{Org: "acme"}, strings.NewReader("12345"), ImportFeedback{
		Sent: func(n int64) { sent = n }, Progress: func(p transfer.Progress) { phase = p.Phase }, Bad: &bad,
	})
	if got == nil || got.Lines != 2 || err == nil || err.Error() != "refused" {
		t.Errorf("got %+v, %v", got, err)
	}
	if bad.String() != "bad \xff line\n" || phase != transfer.PhaseStoring || sent != 5 {
		t.Errorf("bad %q, phase %q, sent %d", bad.String(), phase, sent)
	}
}

func TestImport_CutOff(t *testing.T) {
	t.Parallel()
	c := client(t, func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		out := &events{enc: json.NewEncoder(w), w: http.NewResponseController(w)}
		_ = out.send(event{})
	})
	got, err := c.Import(t.Context(), ImportRequest{}, strings.NewReader("x"), ImportFeedback{})
	if got != nil || err == nil || !strings.Contains(err.Error(), "import the same file again") {
		t.Errorf("got %+v, %v", got, err)
	}
}

// TestImport_RefusedBeforeItIsSent: nothing is read for an import that is refused at once.
func TestImport_RefusedBeforeItIsSent(t *testing.T) {
	t.Parallel()
	c := client(t, func(w http.ResponseWriter, _ *http.Request) {
		writeError(w, &Error{Code: CodeNotFound, Message: "no such organization"})
	})
	var input endless
	_, err := c.Import(t.Context(), ImportRequest{}, &input, ImportFeedback{})
	if err == nil || err.Error() != "no such organization" {
		t.Errorf("got %v", err)
	}
	if n := input.reads.Load(); n > 0 {
		t.Errorf("the input was read %d times", n)
	}
}

type endless struct{ reads atomic.Int64 }

func (e *endless) Read(p []byte) (int, error) {
	e.reads.Add(1)
	return len(p), nil
}

func TestExport_EndIsKnown(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		trailer, value, want string
	}{
		"whole":   {reportTrailer, "%7B%22lines%22%3A3%7D", ""},
		"failed":  {errorTrailer, "%7B%22message%22%3A%22the+disk+is+gone%22%7D", "the disk is gone"},
		"cut off": {"", "", "end is missing"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cl := client(t, func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Add("Trailer", reportTrailer)
				w.Header().Add("Trailer", errorTrailer)
				_, _ = io.WriteString(w, "line\n")
				if c.trailer != "" {
					w.Header().Set(c.trailer, c.value)
				}
			})
			var out bytes.Buffer
			report, err := cl.Export(t.Context(), ExportRequest{}, &out)
			if out.String() != "line\n" {
				t.Errorf("got %q", out.String())
			}
			if c.want == "" && (err != nil || report.Lines != 3) || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
				t.Errorf("got %+v, %v", report, err)
			}
		})
	}
}
