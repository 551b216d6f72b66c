package load

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"tenantry/config"
	"tenantry/gateway"
	"tenantry/gateway/control"
	"tenantry/gateway/gatewaytest"
	"tenantry/gateway/tests/fixture"
	"tenantry/internal/rate"
	"tenantry/tenants"
)

// demand is one of the most expensive calls that the limits allow.
type demand struct {
	name string
	// prepare stores what the call needs, once in each organization that makes it. Several demands share an
	// organization. nil: nothing.
	prepare func(t *testing.T, at *bound)
	// ask makes one call. It returns nil for a success or a refusal, and an error without an answer.
	ask func(ctx context.Context, at *bound) error
}

// bound is where a demand is made: an organization of the measured process.
type bound struct {
	base   string       // http://127.0.0.1:port, without a slash at the end
	host   string       // of the organization; send sets it
	key    string       // server_full, with all permissions
	cookie *http.Cookie // of an administrator
	// org is the organization while prepare runs, and nil afterwards, when another process serves it.
	org *gatewaytest.Org
	// left is the result of prepare for ask.
	left map[string]string
}

// send makes a call of the organization and returns its answer. body has only the first 64 KiB of large answers. header
// is pairs of name and value; send a key as the pair "x-service-token", at.key.
func (at *bound) send(ctx context.Context, method, path string, content io.Reader, header ...string) (code int, body []byte, err error) {
	r, err := http.NewRequestWithContext(ctx, method, at.base+path, content)
	if err != nil {
		return 0, nil, err
	}
	r.Host = at.host
	for i := 0; i+1 < len(header); i += 2 {
		r.Header.Add(header[i], header[i+1])
	}
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		return 0, nil, err
	}
	defer resp.Body.Close()
	if body, err = io.ReadAll(io.LimitReader(resp.Body, 64<<10)); err == nil {
		_, err = io.Copy(io.Discard, resp.Body)
	}
	return resp.StatusCode, body, err
}

// signIn begins the administrator's session, unless there is one.
func (at *bound) signIn(ctx context.Context, t *testing.T) {
	t.Helper()
	if at.cookie != nil {
		return
	}
	slug, _, _ := strings.Cut(at.host, ".")
	body := fmt.Sprintf(`{"email":"%s@example.com","password":%q}`, slug, gatewaytest.Password)
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, at.base+"/auth/sign-in", strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	r.Host = at.host
	r.Header.Set("Content-Type", "application/json")
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if cookies := resp.Cookies(); len(cookies) == 1 {
		at.cookie = cookies[0]
		return
	}
	t.Fatalf("signing in at %s: got %d, want one cookie", at.host, resp.StatusCode)
}

// answered returns an error unless the program answered the call with a success or a refusal in its own words. A client
// that is still sending a large body may meet the closed connection before it has read the refusal; the reads of the
// neighbour would fail too if the program had ended.
func answered(code int, body []byte, err error) error {
	if errors.Is(err, syscall.ECONNRESET) || errors.Is(err, syscall.EPIPE) {
		return nil
	}
	refused := slices.Contains([]int{http.StatusTooManyRequests, http.StatusServiceUnavailable, http.StatusRequestEntityTooLarge, http.StatusUnprocessableEntity}, code)
	if err != nil || code == http.StatusOK || refused && len(body) > 0 {
		return err
	}
	return fmt.Errorf("answered %d %.300s", code, body)
}

// The bound, and GOMEMLIMIT of the process, which leaves room for memory outside of the runtime: the pages of SQLite
// and of the program itself.
const (
	mostResident = 512 << 20
	softLimit    = "256MiB"
)

const memoryVariable = "TENANTRY_TEST_MEMORY_FOLDER"

// TestMemoryIsBounded makes the most expensive calls of six organizations concurrently. The process stays below 512 MiB
// of resident memory, and a seventh organization is answered meanwhile. With TENANTRY_TEST_LONG every organization
// makes every call.
func TestMemoryIsBounded(t *testing.T) {
	if folder := os.Getenv(memoryVariable); folder != "" {
		serveMeasured(t, folder)
		return
	}
	if runtime.GOOS != "linux" {
		t.Skip("resident memory is read from /proc, which is Linux's")
	}
	if gatewaytest.Raced {
		t.Skip("the race detector takes more memory than what it watches")
	}
	t.Parallel()
	demands := append(outputDemands(), inputDemands()...)
	size := struct{ connections, rounds int }{1, 1}
	long := os.Getenv("TENANTRY_TEST_LONG") != ""
	if long {
		size.connections, size.rounds = 4, 5
	}
	folder := t.TempDir()
	asked, neighbour := prepareDemands(t, folder, demands, long)
	measured := startMeasured(t, folder)
	ctx, stop := context.WithTimeout(t.Context(), 20*time.Minute)
	defer stop()
	over := measured.watch(ctx, stop)

	var calls, reads atomic.Int64
	var neighbours, callers sync.WaitGroup
	done := make(chan struct{})
	neighbour.base = measured.base
	for _, a := range asked {
		a.at.base = measured.base
		a.at.signIn(ctx, t)
	}
	neighbours.Go(func() {
		for {
			code, body, err := neighbour.send(ctx, http.MethodGet, "/api/contacts?per_page=10", nil, "x-service-token", neighbour.key)
			if ctx.Err() != nil {
				return
			}
			if err != nil || code != http.StatusOK {
				t.Errorf("the neighbour's read %d: got %d %.200s %v, want no error and 200",
					reads.Load(), code, body, err)
			}
			reads.Add(1)
			select {
			case <-done:
				return
			case <-time.After(5 * time.Millisecond):
			}
		}
	})
	for i := range asked {
		a := &asked[i]
		for range size.connections {
			callers.Go(func() {
				for range size.rounds {
					if err := a.ask(ctx, a.at); err != nil && ctx.Err() == nil {
						t.Errorf("%s for %s: got %v, want no error", a.name, a.at.host, err)
					}
					calls.Add(1)
				}
			})
		}
	}
	callers.Wait()
	close(done)
	neighbours.Wait()
	stop()
	peak := <-over
	t.Logf("%d calls and %d reads of a neighbour: at most %d MiB resident", calls.Load(), reads.Load(), peak>>20)
	if peak > mostResident {
		t.Errorf("the process took %d MiB, want at most %d", peak>>20, mostResident>>20)
	}
}

// demanded is a demand of an organization.
type demanded struct {
	demand
	at *bound
}

// prepareDemands stores what the demands need: all of them in each of six organizations, or distributed among these.
func prepareDemands(t *testing.T, folder string, demands []demand, all bool) (asked []demanded, neighbour *bound) {
	t.Helper()
	g := gatewaytest.Start(t, fixture.InFolder(folder))
	open := func(slug string) *bound {
		o := g.Org(t, slug)
		o.Person(t, slug+"@example.com", func(u *control.NewUser) { u.Roles = []string{"admin"} })
		return &bound{base: strings.TrimSuffix(g.URL("/"), "/"), host: o.Host, key: o.Key(t, tenants.AllPermissions()...), org: o, left: map[string]string{}}
	}
	const organizations = 6
	for n := range organizations {
		at := open(fmt.Sprint("dear", n))
		for i, d := range demands {
			if !all && i%organizations != n {
				continue
			}
			if d.prepare != nil {
				d.prepare(t, at)
			}
			asked = append(asked, demanded{d, at})
		}
	}
	neighbour = open("neighbour")
	neighbour.org.Import(t, `{"kind":"contact","external_id":"one","first_name":"One"}`, `{"kind":"contact","external_id":"two","first_name":"Two"}`)
	for i := range asked {
		asked[i].at.org = nil
	}
	g.Stop(t)
	return asked, neighbour
}

// serveMeasured runs the measured process: a gateway with default limits, except for the numbers of requests.
func serveMeasured(t *testing.T, folder string) {
	t.Helper()
	g := gatewaytest.Start(t, fixture.InFolder(folder), func(c *config.Config, _ *gateway.Options) {
		c.Limits.Address, c.SQLite.QueryTimeout = rate.PerSecond(rate.MaxCount), time.Minute
	})
	written := filepath.Join(folder, "address.new")
	if err := os.WriteFile(written, []byte(g.App.Addr().String()), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(written, filepath.Join(folder, "address")); err != nil {
		t.Fatal(err)
	}
	_, _ = io.Copy(io.Discard, os.Stdin) // until whoever measures has gone
	for line := range strings.Lines(g.Log.String()) {
		if strings.Contains(line, `"level":"WARN"`) || strings.Contains(line, `"level":"ERROR"`) || strings.Contains(line, `"code":503`) {
			fmt.Print(line)
		}
	}
}

// watched is the measured process.
type watched struct {
	base string
	pid  int
}

func startMeasured(t *testing.T, folder string) *watched {
	t.Helper()
	var said bytes.Buffer
	cmd := exec.Command(os.Args[0], "-test.run=^"+t.Name()+"$", "-test.timeout=30m")
	cmd.Env = append(os.Environ(), memoryVariable+"="+folder, "GOMEMLIMIT="+softLimit, "GOGC=100", "TMPDIR="+t.TempDir())
	cmd.Stdout, cmd.Stderr = &said, &said
	input, err := cmd.StdinPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = input.Close()
		if err := cmd.Wait(); err != nil {
			t.Errorf("the measured process ended with %v, want no error", err)
		}
		if t.Failed() {
			t.Logf("the measured process said:\n%.20000s", said.String())
		}
	})
	var address []byte
	fixture.AwaitWithin(t, "the address of the measured process", time.Minute, func() bool {
		var err error
		address, err = os.ReadFile(filepath.Join(folder, "address"))
		return err == nil
	})
	return &watched{"http://" + string(address), cmd.Process.Pid}
}

// watch returns the maximum memory of the process until ctx ends. If that is far over the bound, it kills the process
// and calls stop, so that a fault does not use up the machine's memory.
func (m *watched) watch(ctx context.Context, stop context.CancelFunc) <-chan int64 {
	end := make(chan int64, 1)
	go func() {
		for {
			peak, err := m.peak()
			if err == nil && peak > 4*mostResident {
				if p, err := os.FindProcess(m.pid); err == nil {
					_ = p.Kill()
				}
				stop()
			}
			select {
			case <-ctx.Done():
				end <- peak
				return
			case <-time.After(50 * time.Millisecond):
			}
		}
	}()
	return end
}

// peak returns the maximum resident memory so far, in bytes.
func (m *watched) peak() (int64, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", m.pid))
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(text)) {
		if value, found := strings.CutPrefix(line, "VmHWM:"); found {
			kib, err := strconv.ParseInt(strings.TrimSuffix(strings.TrimSpace(value), " kB"), 10, 64)
			return kib << 10, err
		}
	}
	return 0, errors.New("the status of the process tells no VmHWM")
}
