package load

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gin-gonic/gin"

	"tenantry/config"
	"tenantry/gateway"
	"tenantry/gateway/gatewaytest"
	"tenantry/gateway/logging"
	"tenantry/tenants"
)

// connections is the number of concurrent clients.
const connections = 32

// BenchmarkReadReport reads one custom report with an API key, including key check, policy, access log to a file and
// metrics. bare is a Gin handler that returns the same bytes, for the ratio.
func BenchmarkReadReport(b *testing.B) {
	log, err := os.Create(filepath.Join(b.TempDir(), "log"))
	if err != nil {
		b.Fatal(err)
	}
	defer log.Close()
	logger, written := logging.New(log, config.Default().Log)
	defer written.Close()
	g := gatewaytest.Start(b, func(_ *config.Config, o *gateway.Options) { o.Log = logger })
	acme := g.Org(b, "acme")
	acme.Import(b, `{"kind":"custom_report","id":"0000000000000000000000a1","pid":"benchmark-report-pid-0001","title":"By country","class":"Contacts","query":{"group_by":[{"field":"country"}],"measures":[{"op":"count"}],"sort":["-count"]},"secure":true,"shareable":true}`)
	key := acme.Key(b)
	answer := acme.Get(b, key, "/api/custom-reports/0000000000000000000000a1")
	if answer.Code != http.StatusOK {
		b.Fatalf("got %v, want %v", answer.Text(), http.StatusOK)
	}
	bare := httptest.NewServer(bareGin(answer))
	defer bare.Close()
	request := func(host string) []byte {
		return fmt.Appendf(nil, "GET /api/custom-reports/0000000000000000000000a1 HTTP/1.1\r\nHost: %s\r\nX-Service-Token: %s\r\n\r\n", host, key)
	}
	gatewayLoad := load{addr: g.App.Addr().String(), request: request("acme.localhost")}
	bareLoad := load{addr: strings.TrimPrefix(bare.URL, "http://"), request: request("acme.localhost")}
	b.Run("gateway", func(b *testing.B) { gatewayLoad.run(b) })
	b.Run("bare", func(b *testing.B) { bareLoad.run(b) })
	b.Run("ratio", func(b *testing.B) {
		// In turns, so that changes in the machine's speed affect both.
		var own, reference time.Duration
		const share = 2000
		for b.Loop() {
			own += gatewayLoad.take(b, share)
			reference += bareLoad.take(b, share)
		}
		b.ReportMetric(reference.Seconds()/own.Seconds(), "of-bare")
		b.ReportMetric(0, "ns/op")
	})
}

func bareGin(answer *gatewaytest.Answer) http.Handler {
	gin.SetMode(gin.ReleaseMode)
	engine := gin.New()
	engine.GET("/api/custom-reports/:id", func(c *gin.Context) {
		for _, name := range []string{"Cache-Control", "X-Content-Type-Options", "X-Request-Id", "RateLimit-Limit", "RateLimit-Remaining", "RateLimit-Reset"} {
			c.Header(name, answer.Header.Get(name))
		}
		c.Data(http.StatusOK, "application/json; charset=utf-8", answer.Body)
	})
	return engine
}

// load sends one request repeatedly over several connections.
type load struct {
	addr    string
	request []byte
}

func (l *load) run(b *testing.B) {
	b.ReportAllocs()
	b.ResetTimer()
	took := l.take(b, b.N)
	b.ReportMetric(float64(b.N)/took.Seconds(), "req/s")
}

// take sends n requests and returns how long they took.
func (l *load) take(b *testing.B, n int) time.Duration {
	var left atomic.Int64
	left.Store(int64(n))
	var wg sync.WaitGroup
	conns := make([]net.Conn, connections)
	for i := range conns {
		conn, err := net.Dial("tcp", l.addr)
		if err != nil {
			b.Fatal(err)
		}
		defer conn.Close()
		conns[i] = conn
	}
	began := time.Now()
	for _, conn := range conns {
		wg.Go(func() {
			r := bufio.NewReader(conn)
			for left.Add(-1) >= 0 {
				if _, err := conn.Write(l.request); err != nil {
					b.Error(err)
					return
				}
				if err := skipAnswer(r); err != nil {
					b.Error(err)
					return
				}
			}
		})
	}
	wg.Wait()
	return time.Since(began)
}

// skipAnswer reads one answer of 200 with a Content-Length.
func skipAnswer(r *bufio.Reader) error {
	length := -1
	for first := true; ; first = false {
		line, err := r.ReadSlice('\n')
		if err != nil {
			return err
		}
		if first && !bytes.HasPrefix(line, []byte("HTTP/1.1 200")) {
			return fmt.Errorf("answer %q", line)
		}
		if len(line) == 2 {
			break
		}
		if v, ok := bytes.CutPrefix(line, []byte("Content-Length: ")); ok {
			if length, err = strconv.Atoi(string(bytes.TrimSpace(v))); err != nil {
				return err
			}
		}
	}
	_, err := r.Discard(length)
	return err
}

// BenchmarkFolder reads a page of 50 of a folder with 100,000 files.
func BenchmarkFolder(b *testing.B) {
	g := gatewaytest.Start(b, quiet)
	acme := g.Org(b, "acme")
	const folder = "0000000000000000000000f1"
	lines := []string{`{"kind":"folder","id":"` + folder + `","name":"Large"}`}
	for i := range 100_000 {
		lines = append(lines, fmt.Sprintf(`{"kind":"file","filename":"file %06d.pdf","mimetype":"application/pdf","folder_id":"%s"}`, i, folder))
	}
	acme.Import(b, lines...)
	key := acme.Key(b, tenants.ManageFiles)
	path := "/api/files/folders/" + folder + "?page=1&per_page=50"
	if a := acme.Get(b, key, path); a.Code != http.StatusOK {
		b.Fatalf("got %v, want %v", a.Text(), http.StatusOK)
	}
	l := load{addr: g.App.Addr().String(), request: fmt.Appendf(nil, "GET %s HTTP/1.1\r\nHost: acme.localhost\r\nX-Service-Token: %s\r\n\r\n", path, key)}
	b.Run("page of 50", func(b *testing.B) { l.run(b) })
}

func quiet(_ *config.Config, o *gateway.Options) {
	o.Log = slog.New(slog.NewJSONHandler(io.Discard, nil))
}
