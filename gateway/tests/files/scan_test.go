package files

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"tenantry/config"
	"tenantry/gateway"
	"tenantry/gateway/gatewaytest"
	"tenantry/gateway/tests/fixture"
)

// scanner is a server that judges files by their bytes.
type scanner struct {
	*httptest.Server

	mu   sync.Mutex
	seen []string // what was asked, guarded by mu
	held chan struct{}
}

func newScanner(t *testing.T) *scanner {
	t.Helper()
	s := &scanner{held: make(chan struct{}, 8)}
	s.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			return
		}
		s.mu.Lock()
		s.seen = append(s.seen, fmt.Sprintf("%s %s %s %s %d", r.Method, r.Header.Get("Content-Type"), r.Header.Get("X-Organization"), r.Header.Get("Authorization"), len(body)))
		s.mu.Unlock()
		switch text := string(body); {
		case strings.Contains(text, "virus"):
			w.WriteHeader(http.StatusUnprocessableEntity)
		case strings.Contains(text, "forbidden"):
			w.WriteHeader(http.StatusForbidden)
		case strings.Contains(text, "broken"):
			w.WriteHeader(http.StatusInternalServerError)
		case strings.Contains(text, "moved"):
			http.Redirect(w, r, "/elsewhere", http.StatusFound)
		case strings.Contains(text, "cut"):
			panic(http.ErrAbortHandler)
		case strings.Contains(text, "slow"):
			s.held <- struct{}{}
			<-r.Context().Done()
			s.held <- struct{}{}
		}
	}))
	t.Cleanup(s.Close)
	return s
}

// TestScan: nothing is stored that the scanner has not accepted.
func TestScan(t *testing.T) {
	t.Parallel()
	s := newScanner(t)
	a := open(t, func(c *config.Config, _ *gateway.Options) {
		c.Files.Scan = s.URL + "/scan"
		if err := c.Files.ScanToken.UnmarshalText([]byte("scan-token")); err != nil {
			t.Fatal(err)
		}
	})
	f := a.upload(t, "a.txt", "text/x-own", "clean")
	a.wantBytes(t, f.URL, "clean")
	a.upload(t, "empty.txt", "text/plain", "")
	want := fmt.Sprintf("POST text/plain; charset=utf-8 %d Bearer scan-token 5", a.Tenant(t).Org.OrgID)
	if s.mu.Lock(); s.seen[0] != want {
		t.Errorf("the scanner was asked %q, want %q", s.seen[0], want)
	}
	s.mu.Unlock()
	before := a.state(t)
	for text, code := range map[string]int{"a virus": 422, "forbidden": 422, "broken": 503, "moved": 503, "cut": 503} {
		answers := map[string]*gatewaytest.Answer{
			"raw":     a.post(t, uploadPath+"?filename=a.txt", "text/plain", text),
			"form":    a.postForm(t, uploadPath, newForm().file("file", "ok", "", "clean too").file("file", "b", "", text)),
			"replace": a.post(t, "/api/files/"+f.ID+"/content", "text/plain", text),
		}
		u := a.begin(t, len(text))
		u.send(t, 0, text[:2])
		answers["tus"] = u.send(t, 2, text[2:])
		for how, answer := range answers {
			if answer.Code != code || !strings.Contains(answer.Message, "nothing of it was stored") {
				t.Errorf("%s, %s: got %d %s, want %d", text, how, answer.Code, answer.Text(), code)
			}
		}
		if at, _ := u.head(t); (at == -1) != (code == 422) || at == len(text) {
			t.Errorf("%s: got the offset %d, want the upload ended if the file was refused, and otherwise to be continued", text, at)
		}
		if code == 503 {
			u.Do(t, http.MethodDelete, u.path, gatewaytest.WithKey(a.key), gatewaytest.Header("Tus-Resumable", "1.0.0"))
		}
		a.wantSame(t, before)
	}
	// A scanner that does not answer is waited for as long as the caller waits.
	ctx, cancel := context.WithCancel(t.Context())
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, a.URL(uploadPath+"?filename=a.txt"), strings.NewReader("slow"))
	if err != nil {
		t.Fatal(err)
	}
	r.Host = a.Host
	gatewaytest.WithKey(a.key)(r)
	ended := make(chan error, 1)
	go func() {
		resp, err := http.DefaultClient.Do(r)
		if err == nil {
			err = resp.Body.Close()
		}
		ended <- err
	}()
	<-s.held
	cancel()
	<-s.held // the scanner's request ends with it
	if err := <-ended; err == nil {
		t.Error("got an answer, want none")
	}
	fixture.Await(t, "no temporary file", func() bool { return len(a.temporary(t)) == 0 })
	a.wantSame(t, before)
	s.Close()
	if answer := a.post(t, uploadPath+"?filename=a.txt", "text/plain", "clean"); answer.Code != http.StatusServiceUnavailable {
		t.Errorf("got %d %s without a scanner, want 503", answer.Code, answer.Text())
	}
	a.wantSame(t, before)
	a.wantBytes(t, f.URL, "clean")
}

// TestTus_CompletedByOne: requests that each have the last bytes of one upload do not hold a copy of all of it each.
func TestTus_CompletedByOne(t *testing.T) {
	t.Parallel()
	s := newScanner(t)
	a := open(t, func(c *config.Config, _ *gateway.Options) { c.Files.Scan = s.URL + "/scan" })
	text := "slow" + filler(1, 59_996)
	u := a.begin(t, len(text))
	if answer := u.send(t, 0, text[:len(text)-1]); answer.Code != http.StatusNoContent {
		t.Fatalf("got %d %s, want 204", answer.Code, answer.Text())
	}
	const together = 4
	for range together {
		u.hold(t, len(text)-1, length(1), text[len(text)-1:])
	}
	<-s.held
	fixture.Await(t, "the last bytes of all have arrived", func() bool { return len(a.temporary(t)) > together })
	if got := a.arrived(t); got > int64(len(text)+together) {
		t.Errorf("%d bytes are held, want one copy of %d", got, len(text))
	}
}
