package files

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"tenantry/config"
	"tenantry/gateway"
	"tenantry/gateway/gatewaytest"
	"tenantry/gateway/tests/fixture"
	"tenantry/tenants"
)

const memoryVariable = "TENANTRY_TEST_MEMORY_FOLDER"

// TestMemory uploads and downloads a large file beside 32 callers that read and write. The resident memory of the process
// grows by less than 100 MB. The file has 100 MB, with TENANTRY_TEST_LONG 1 GB.
func TestMemory(t *testing.T) {
	addressFile := func(folder string) string { return filepath.Join(folder, "address") }
	if folder := os.Getenv(memoryVariable); folder != "" {
		g := gatewaytest.Start(t, fixture.InFolder(folder), func(c *config.Config, _ *gateway.Options) {
			c.SQLite.Cache = 16 // MiB, so that what grows is not the cache for what the callers store
		})
		written := addressFile(folder) + ".new"
		if err := errors.Join(os.WriteFile(written, []byte(g.App.Addr().String()), 0o600), os.Rename(written, addressFile(folder))); err != nil {
			t.Fatal(err)
		}
		_, _ = io.Copy(io.Discard, os.Stdin) // until the test closes it
		return
	}
	if gatewaytest.Raced {
		t.Skip("the race detector takes more memory than what it watches")
	}
	t.Parallel()
	const most = 100_000_000
	size, warm := int64(100_000_000), int64(5000) // calls until the caches of the process have grown
	if os.Getenv("TENANTRY_TEST_LONG") != "" {
		size, warm = 1_000_000_000, 20_000
	}
	folder := t.TempDir()
	g := gatewaytest.Start(t, fixture.InFolder(folder))
	acme := g.Org(t, "acme")
	key := acme.Key(t, tenants.ManageFiles, tenants.Contacts)
	g.Stop(t)

	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^"+t.Name()+"$", "-test.timeout=10m")
	cmd.Env = append(os.Environ(), memoryVariable+"="+folder)
	input, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	address := ""
	fixture.AwaitWithin(t, "the address of the measured process", time.Minute, func() bool {
		text, err := os.ReadFile(addressFile(folder))
		address = string(text)
		return err == nil
	})
	client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 64}}
	send := func(ctx context.Context, method, path, media string, length int64, body io.Reader) (*http.Response, error) {
		r, err := http.NewRequestWithContext(ctx, method, "http://"+address+path, body)
		if err != nil {
			return nil, err
		}
		r.Host, r.ContentLength = "acme.localhost", length
		r.Header.Set("X-Service-Token", key)
		r.Header.Set("Content-Type", media)
		resp, err := client.Do(r)
		if err == nil && resp.StatusCode != http.StatusOK {
			text, _ := io.ReadAll(resp.Body)
			err = errors.Join(fmt.Errorf("%s %s: %d %s", method, path, resp.StatusCode, text), resp.Body.Close())
		}
		return resp, err
	}
	ctx, stop := context.WithCancel(t.Context())
	var calls atomic.Int64
	var callers sync.WaitGroup
	for caller := range 32 {
		callers.Go(func() {
			for n := 0; ctx.Err() == nil; n++ {
				method, path, body := http.MethodGet, "/api/files?per_page=10", ""
				if n%2 == 1 {
					method, path, body = http.MethodPost, "/api/contacts/bulk", fmt.Sprintf(`{"records":[{"external_id":"%d","city":"%d"}]}`, caller, n)
				}
				resp, err := send(ctx, method, path, "application/json", int64(len(body)), strings.NewReader(body))
				if err == nil {
					_, err = io.Copy(io.Discard, resp.Body)
					_ = resp.Body.Close() // it was read
				}
				if err != nil && ctx.Err() == nil && !strings.Contains(err.Error(), "503") { // refused because of the load
					t.Error(err)
				}
				calls.Add(1)
			}
		})
	}
	fixture.AwaitWithin(t, "the callers have begun", 2*time.Minute, func() bool { return calls.Load() > warm })
	before, peak := resident(t, cmd.Process.Pid), int64(0)
	watched := make(chan struct{})
	go func() {
		defer close(watched)
		for ctx.Err() == nil {
			peak = max(peak, resident(t, cmd.Process.Pid))
			time.Sleep(5 * time.Millisecond)
		}
	}()
	began := time.Now()
	sum := sha256.New()
	resp, err := send(ctx, http.MethodPost, uploadPath+"?filename=large.bin", "application/octet-stream", size,
		io.TeeReader(io.LimitReader(&pattern{}, size), sum))
	if err != nil {
		t.Fatal(err)
	}
	text, err := io.ReadAll(resp.Body)
	_ = resp.Body.Close() // it was read
	found := regexp.MustCompile(`"url":"(http[^"]+)"`).FindSubmatch(text)
	if err != nil || found == nil || !strings.Contains(string(text), hex.EncodeToString(sum.Sum(nil))) {
		t.Fatalf("got %s, %v, want the file with its checksum", text, err)
	}
	up := time.Since(began)
	at, err := url.Parse(string(found[1]))
	if err != nil {
		t.Fatal(err)
	}
	began = time.Now()
	if resp, err = send(ctx, http.MethodGet, at.RequestURI(), "", 0, http.NoBody); err != nil {
		t.Fatal(err)
	}
	got := sha256.New()
	n, err := io.Copy(got, resp.Body)
	_ = resp.Body.Close() // it was read
	if err != nil || n != size || hex.EncodeToString(got.Sum(nil)) != hex.EncodeToString(sum.Sum(nil)) {
		t.Errorf("got %d bytes, %v, want all", n, err)
	}
	down := time.Since(began)
	stop()
	callers.Wait()
	<-watched
	t.Logf("%d MB in %s up and %s down beside %d calls: %d MB resident before, at most %d MB", size/1e6, up, down, calls.Load(), before/1e6, peak/1e6)
	if peak-before > most {
		t.Errorf("the process grew from %d to %d MB, want at most %d MB more", before/1e6, peak/1e6, int64(most)/1e6)
	}
	client.CloseIdleConnections()
	_ = input.Close()
	if err := cmd.Wait(); err != nil {
		t.Error(err)
	}
}

// pattern is a source of bytes that do not repeat soon.
type pattern struct{ n uint64 }

func (p *pattern) Read(b []byte) (int, error) {
	for i := range b {
		p.n += 0x9E3779B97F4A7C15
		b[i] = byte(p.n >> 37)
	}
	return len(b), nil
}

// resident returns the resident memory of a process in bytes.
func resident(t *testing.T, pid int) int64 {
	t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0 // it has ended
	}
	found := regexp.MustCompile(`(?m)^VmRSS:\s+(\d+) kB$`).FindSubmatch(text)
	if found == nil {
		return 0
	}
	n, _ := strconv.ParseInt(string(found[1]), 10, 64)
	return n << 10
}
