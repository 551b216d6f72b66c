package mongo

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"tenantry/backends/driver"
	"tenantry/crypto/secret"

	"go.mongodb.org/mongo-driver/v2/mongo"
)

const password = "hunter2-sEcr3t"

func openAt(t *testing.T, o Options) *Engine {
	t.Helper()
	if o.Database == "" {
		o.Database = "tt_nowhere"
	}
	e, err := Open(t.Context(), o)
	if err != nil {
		t.Fatalf("Open: %v", err)
	}
	t.Cleanup(func() {
		if err := e.Close(); err != nil {
			t.Errorf("Close: %v", err)
		}
	})
	return e
}

func TestOptions(t *testing.T) {
	t.Parallel()
	good := "mongodb://user:" + password + "@127.0.0.1:1/"
	for _, c := range []struct {
		name string
		o    Options
		ok   bool
	}{
		{"good", Options{URI: secret.New(good), Database: "d"}, true},
		{"no URI", Options{Database: "d"}, false},
		{"another scheme", Options{URI: secret.New("redis://:" + password + "@h"), Database: "d"}, false},
		{"malformed", Options{URI: secret.New("mongodb://user:" + password + "@:::/%zz"), Database: "d"}, false},
		{"a slash in the password", Options{URI: secret.New("mongodb://user:" + password + "/@host"), Database: "d"}, false},
		{"an unknown option's value", Options{URI: secret.New(good + "?ssl=" + password), Database: "d"}, false},
		{"a missing file", Options{URI: secret.New(good + "?tlsCAFile=/nowhere/" + password), Database: "d"}, false},
		{"unknown isolation", Options{URI: secret.New(good), Database: "d", Isolation: 7}, false},
		{"no database", Options{URI: secret.New(good)}, false},
		{"a dot in the database", Options{URI: secret.New(good), Database: "a.b"}, false},
		{"the server's database", Options{URI: secret.New(good), Database: "admin"}, false},
		{"a long database", Options{URI: secret.New(good), Database: strings.Repeat("d", 64)}, false},
		{"the longest database", Options{URI: secret.New(good), Database: strings.Repeat("d", 63)}, true},
		{"no room for a workspace", Options{URI: secret.New(good), Database: strings.Repeat("d", 62), Isolation: PerDatabase}, false},
	} {
		e, err := Open(t.Context(), c.o)
		if (err == nil) != c.ok {
			t.Errorf("%s: got %v, want (err == nil) = %v", c.name, err, c.ok)
		}
		if err == nil {
			if err := e.Close(); err != nil {
				t.Errorf("%s: Close: %v", c.name, err)
			}
		} else if strings.Contains(err.Error(), password) {
			t.Errorf("%s: the error holds the password: %v", c.name, err)
		}
	}
	e := openAt(t, Options{URI: secret.New(good), Database: strings.Repeat("d", 50), Isolation: PerDatabase})
	if _, err := e.Open(t.Context(), driver.Opening{Workspace: strings.Repeat("w", 13)}); err == nil || errors.Is(err, driver.ErrUnavailable) {
		t.Errorf("a database name of 64 bytes: %v", err)
	}
}

// silentServer returns the address of a server that accepts connections and never answers.
func silentServer(t *testing.T) string { return answering(t, "") }

// answering returns the address of a server that accepts connections and sends the text, whatever it receives.
func answering(t *testing.T, text string) string {
	t.Helper()
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	var mu sync.Mutex
	var conns []net.Conn
	wg.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			mu.Lock()
			conns = append(conns, c)
			mu.Unlock()
			wg.Go(func() {
				_, _ = io.WriteString(c, text)
				_, _ = io.Copy(io.Discard, c)
			})
		}
	})
	t.Cleanup(func() {
		_ = l.Close()
		mu.Lock()
		for _, c := range conns {
			_ = c.Close()
		}
		mu.Unlock()
		wg.Wait()
	})
	return l.Addr().String()
}

func TestMissingServerIsUnavailableInTime(t *testing.T) {
	t.Parallel()
	for name, address := range map[string]func(*testing.T) string{
		"refused": func(*testing.T) string { return "127.0.0.1:1" },
		"silent":  silentServer,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			e := openAt(t, Options{URI: secret.New("mongodb://user:" + password + "@" + address(t) + "/"), ServerSelectionTimeout: 300 * time.Millisecond})
			if e.Refusing() {
				t.Error("calls are refused from the start")
			}
			for i := range breakAfter {
				start := time.Now()
				err := e.Check(t.Context())
				if !errors.Is(err, driver.ErrUnavailable) || errors.Is(err, context.DeadlineExceeded) {
					t.Errorf("Check %d: %v", i, err)
				}
				if err != nil && strings.Contains(err.Error(), password) {
					t.Errorf("the error holds the password: %v", err)
				}
				if d := time.Since(start); d > 10*time.Second {
					t.Errorf("Check %d took %s", i, d)
				}
			}
			_, err := e.Open(t.Context(), driver.Opening{Workspace: "w", Collections: []*driver.Collection{things()}})
			if !errors.Is(err, driver.ErrUnavailable) || !strings.Contains(err.Error(), "tried again") || !e.Refusing() {
				t.Errorf("with the breaker open: %v", err)
			}
		})
	}
}

func TestCallersDeadlineIsNoOutage(t *testing.T) {
	t.Parallel()
	e := openAt(t, Options{URI: secret.New("mongodb://" + silentServer(t) + "/")})
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if err := e.Check(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("after the caller's deadline: %v", err)
	}
	for range 2 * breakAfter {
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(time.Millisecond, cancel)
		if err := e.Check(ctx); !errors.Is(err, context.Canceled) {
			t.Errorf("after the caller's cancellation: %v, want %v", err, context.Canceled)
		}
	}
	if e.Refusing() {
		t.Error("calls with short deadlines opened the breaker")
	}
}

func TestCallsAfterClose(t *testing.T) {
	t.Parallel()
	e := openAt(t, Options{URI: secret.New("mongodb://127.0.0.1:1/")})
	for range 2 {
		if err := e.Close(); err != nil {
			t.Errorf("Close: %v", err)
		}
	}
	_, err := e.Open(t.Context(), driver.Opening{Workspace: "w"})
	for i, err := range []error{err, e.Check(t.Context()), e.Remove(t.Context(), "w", "")} {
		if !errors.Is(err, driver.ErrUnavailable) {
			t.Errorf("call %d after Close: %v", i, err)
		}
	}
}

func TestErrorsAreJudged(t *testing.T) {
	t.Parallel()
	e := &Engine{opts: Options{QueryTimeout: time.Second, Log: slog.New(slog.DiscardHandler)}, health: &health{}}
	const private = "ann@example.org"
	message := "E11000 dup key: { email: \"" + private + "\" }"
	canceled, cancel := context.WithCancel(t.Context())
	cancel()
	soon, cancelSoon := context.WithTimeout(t.Context(), time.Hour)
	defer cancelSoon()
	past, cancelPast := context.WithTimeout(t.Context(), -1)
	defer cancelPast()
	long := time.Now().Add(-time.Minute)
	command := func(code int32, labels ...string) error {
		return mongo.CommandError{Code: code, Message: message, Name: "Name", Labels: labels}
	}
	for _, c := range []struct {
		name  string
		ctx   context.Context
		own   bool
		err   error
		want  error // nil for none of the sentinels
		about verdict
	}{
		{"stepped down", t.Context(), true, command(189), driver.ErrUnavailable, unreachable},
		{"not primary", t.Context(), true, fmt.Errorf("wrapped: %w", command(10107)), driver.ErrUnavailable, unreachable},
		{"network", t.Context(), true, mongo.CommandError{Message: "connection reset", Labels: []string{"NetworkError"}}, driver.ErrUnavailable, unreachable},
		{"retryable", t.Context(), true, command(1, "RetryableWriteError"), driver.ErrUnavailable, unreachable},
		{"no majority", t.Context(), true, mongo.WriteException{WriteConcernError: &mongo.WriteConcernError{Code: 64, Message: message}}, driver.ErrUnavailable, unreachable},
		{"any text", t.Context(), true, errors.New("connection pool was cleared"), driver.ErrUnavailable, unreachable},
		{"bad question", t.Context(), true, command(2), nil, answered},
		{"bad write", t.Context(), true, mongo.BulkWriteException{WriteErrors: []mongo.BulkWriteError{{WriteError: mongo.WriteError{Code: 2, Message: message}}}}, nil, answered},
		{"slow by our limit", t.Context(), true, command(50), driver.ErrSlow, answered},
		{"slow by the caller's limit", soon, false, command(50), driver.ErrSlow, answered},
		{"past the caller's limit", past, false, command(2), context.DeadlineExceeded, answered},
		{"silent past our limit", t.Context(), true, context.DeadlineExceeded, driver.ErrUnavailable, unreachable},
		{"silent past the caller's", past, false, context.DeadlineExceeded, context.DeadlineExceeded, unreachable},
		{"canceled", canceled, true, context.Canceled, context.Canceled, silent},
		{"canceled while away", canceled, true, errors.New("connection refused"), context.Canceled, silent},
		{"conflict", t.Context(), true, &driver.ConflictError{}, nil, answered},
		{"newer", t.Context(), true, fault{fmt.Errorf("%w: 2", driver.ErrNewer)}, driver.ErrNewer, answered},
	} {
		about, got := e.judge(c.ctx, c.own, long, c.err)
		if about != c.about {
			t.Errorf("%s: verdict %d, want %d", c.name, about, c.about)
		}
		for _, sentinel := range []error{driver.ErrUnavailable, driver.ErrSlow, driver.ErrNewer, context.Canceled, context.DeadlineExceeded} {
			want := errors.Is(c.want, sentinel) || errors.Is(sentinel, context.DeadlineExceeded) && errors.Is(c.want, driver.ErrSlow)
			if is := errors.Is(got, sentinel); is != want {
				t.Errorf("%s: %v is %v: %v", c.name, got, sentinel, is)
			}
		}
		if strings.Contains(got.Error(), private) {
			t.Errorf("%s: the error repeats a value: %v", c.name, got)
		}
	}
	if about, _ := e.judge(past, false, time.Now(), context.DeadlineExceeded); about != silent {
		t.Errorf("a call with a short deadline: verdict %d, want %d", about, silent)
	}
}

func TestLostUpsertRacesAreRetried(t *testing.T) {
	t.Parallel()
	lost := mongo.CommandError{Code: 11000}
	for _, c := range []struct {
		losses int
		last   error
		ok     bool
		tries  int
	}{{0, nil, true, 1}, {3, nil, true, 4}, {100, nil, false, maxRaces + 1}, {1, errors.New("another"), false, 2}} {
		tries := 0
		err := retryUpsert(func() error {
			if tries++; tries <= c.losses {
				return lost
			}
			return c.last
		})
		if (err == nil) != c.ok || tries != c.tries {
			t.Errorf("%d losses: %d tries, %v; want %d tries, success %t", c.losses, tries, err, c.tries, c.ok)
		}
	}
}
