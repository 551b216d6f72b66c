package contract

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"mime"
	"mime/multipart"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"tenantry/config"
	"tenantry/gateway"
	"tenantry/gateway/gatewaytest"
	"tenantry/gateway/tests/fixture"
	"tenantry/tenants"
)

// demo is an organization with a demo file.
type demo struct {
	*gatewaytest.Org

	module *fixture.DemoFiles
	key    string
	text   []byte
	tag    string
}

const demoPath = "/files/demo/a"

// newDemo starts a gateway with the module of demo files and an organization with a file of that size.
func newDemo(t *testing.T, size int, plain bool, options ...gatewaytest.Option) *demo {
	t.Helper()
	module := &fixture.DemoFiles{Dir: t.TempDir(), Plain: plain}
	g := gatewaytest.Start(t, append(options, module.Option)...)
	d := &demo{Org: g.Org(t, "acme"), module: module, text: bytes.Repeat([]byte("0123456789abcdef"), size/16)}
	d.key, d.tag = d.Key(t, tenants.ManageFiles), fmt.Sprintf(`"%x-%d"`, d.text[:8], len(d.text))
	path := module.Path(d.Tenant(t).Org.OrgID, "a")
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, d.text, 0o600); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		fixture.Await(t, "all contents are closed", func() bool { return module.Open.Load() == 0 })
	})
	return d
}

// get gets the file, with headers in pairs.
func (d *demo) get(t *testing.T, method string, headers ...string) *gatewaytest.Answer {
	t.Helper()
	changes := []gatewaytest.Request{gatewaytest.WithKey(d.key)}
	for i := 0; i < len(headers); i += 2 {
		changes = append(changes, gatewaytest.Header(headers[i], headers[i+1]))
	}
	return d.Do(t, method, demoPath, changes...)
}

// open asks for the file over a connection of its own, of which it has read the head.
func (d *demo) open(t *testing.T, head string) (net.Conn, *http.Response) {
	t.Helper()
	conn := fixture.Dial(t, d.App.Addr())
	if tcp, ok := conn.(*net.TCPConn); ok {
		_ = tcp.SetReadBuffer(64 << 10) // a larger one only makes the test longer
	}
	fixture.Send(t, conn, fmt.Sprintf("%s\r\nHost: %s\r\nX-Service-Token: %s\r\n\r\n", head, d.Host, d.key))
	resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = resp.Body.Close() })
	return conn, resp
}

// TestContent checks answers that are bytes: whole, by ranges, and under conditions.
func TestContent(t *testing.T) {
	t.Parallel()
	for _, plain := range []bool{false, true} {
		d := newDemo(t, 4<<20, plain)
		all := string(d.text)
		const modified = "Fri, 02 Jan 2026 03:04:05 GMT"
		for _, tt := range []struct {
			name    string
			method  string
			headers []string
			code    int
			body    string // "envelope": that of a failure
			partial string // Content-Range
		}{
			{"whole", http.MethodGet, nil, 200, all, ""},
			{"gzip is not used", http.MethodGet, []string{"Accept-Encoding", "gzip"}, 200, all, ""},
			{"head", http.MethodHead, nil, 200, "", ""},
			{"range of a head", http.MethodHead, []string{"Range", "bytes=1-2"}, 200, "", ""},
			{"range", http.MethodGet, []string{"Range", "bytes=3-9"}, 206, "3456789", "bytes 3-9/4194304"},
			{"suffix", http.MethodGet, []string{"Range", "bytes=-4"}, 206, "cdef", "bytes 4194300-4194303/4194304"},
			{"large range", http.MethodGet, []string{"Range", "bytes=16-"}, 206, all[16:], "bytes 16-4194303/4194304"},
			{"beyond the end", http.MethodGet, []string{"Range", "bytes=4194304-"}, 416, "envelope", "bytes */4194304"},
			{"suffix of nothing", http.MethodGet, []string{"Range", "bytes=-0"}, 416, "envelope", "bytes */4194304"},
			{"one suffix of nothing", http.MethodGet, []string{"Range", "bytes=-00, 3-9,-0"}, 206, "3456789", "bytes 3-9/4194304"},
			{"malformed range", http.MethodGet, []string{"Range", "bytes=x-"}, 416, "envelope", "bytes */4194304"},
			{"unknown unit", http.MethodGet, []string{"Range", "lines=1-2"}, 200, all, ""},
			{"too many ranges", http.MethodGet, []string{"Range", "bytes=" + strings.Repeat("1-2,", 16) + "3-4"}, 200, all, ""},
			{"known", http.MethodGet, []string{"If-None-Match", `W/"x", ` + d.tag}, 304, "", ""},
			{"not known", http.MethodGet, []string{"If-None-Match", `"x"`}, 200, all, ""},
			{"malformed condition", http.MethodGet, []string{"If-None-Match", `x`}, 200, all, ""},
			{"not modified", http.MethodGet, []string{"If-Modified-Since", modified}, 304, "", ""},
			{"if match", http.MethodGet, []string{"If-Match", d.tag}, 200, all, ""},
			{"if another", http.MethodGet, []string{"If-Match", `"x"`}, 412, "envelope", ""},
			{"if range", http.MethodGet, []string{"If-Range", d.tag, "Range", "bytes=0-1"}, 206, "01", "bytes 0-1/4194304"},
			{"if another range", http.MethodGet, []string{"If-Range", `"x"`, "Range", "bytes=0-1"}, 200, all, ""},
		} {
			t.Run(fmt.Sprintf("%s/plain=%t", tt.name, plain), func(t *testing.T) {
				a := d.get(t, tt.method, tt.headers...)
				if a.Code != tt.code || tt.body != "envelope" && a.Text() != tt.body {
					t.Fatalf("got %d and %d bytes, want %d and %d", a.Code, len(a.Body), tt.code, len(tt.body))
				}
				h := a.Header
				if h.Get("X-Content-Type-Options") != "nosniff" || h.Get("X-Request-Id") == "" || h.Get("Content-Encoding") != "" || h.Get("Content-Range") != tt.partial {
					t.Errorf("got the header %v, want nosniff, an identifier, no encoding and the range %q", h, tt.partial)
				}
				want := map[string]string{
					"Etag": d.tag, "Cache-Control": "private, no-cache", "Content-Disposition": `attachment; filename="demo.txt"`,
					"Content-Security-Policy": "sandbox", "Repr-Digest": "sha-256=:AAAA:", "Content-Type": "text/x-demo", "Last-Modified": modified, "Accept-Ranges": "bytes",
				}
				switch {
				case tt.body == "envelope":
					want = map[string]string{"Cache-Control": "private, no-store", "Content-Type": "application/json; charset=utf-8", "Content-Disposition": "", "Etag": "", "Last-Modified": "", "Repr-Digest": ""}
					fixture.WantFailure(t, a, tt.code)
				case tt.code == http.StatusNotModified:
					want["Content-Type"], want["Last-Modified"], want["Repr-Digest"], want["Accept-Ranges"] = "", "", "", ""
				}
				for name, value := range want {
					if h.Get(name) != value {
						t.Errorf("%s is %q, want %q", name, h.Get(name), value)
					}
				}
				if tt.method == http.MethodHead && h.Get("Content-Length") != strconv.Itoa(len(all)) {
					t.Errorf("got the length %s, want %d", h.Get("Content-Length"), len(all))
				}
			})
		}
		if t.Failed() {
			continue
		}
		wantRanges(t, d)
		if log := d.Log.String(); strings.Contains(log, "superfluous") || strings.Contains(log, "internal error") {
			t.Errorf("got the log %s, want no superfluous headers and no internal errors", log)
		}
	}
}

// wantRanges checks the answer to a request for several ranges.
func wantRanges(t *testing.T, d *demo) {
	t.Helper()
	a := d.get(t, http.MethodGet, "Range", "bytes=0-1,-2,4-7")
	media, params, err := mime.ParseMediaType(a.Header.Get("Content-Type"))
	if a.Code != http.StatusPartialContent || err != nil || media != "multipart/byteranges" {
		t.Fatalf("got %d %v, want several ranges", a.Code, a.Header)
	}
	parts := multipart.NewReader(bytes.NewReader(a.Body), params["boundary"])
	for _, want := range []string{"01", "ef", "4567"} {
		part, err := parts.NextPart()
		if err != nil {
			t.Fatal(err)
		}
		got, err := io.ReadAll(part)
		if err != nil || string(got) != want || part.Header.Get("Content-Type") != "text/x-demo" {
			t.Errorf("got the part %s %v, %v, want %s", got, part.Header, err, want)
		}
	}
}

// TestContent_OldClients: a whole answer needs no HTTP/1.1.
func TestContent_OldClients(t *testing.T) {
	t.Parallel()
	d := newDemo(t, 3<<20, false)
	_, resp := d.open(t, "GET "+demoPath+" HTTP/1.0")
	body, err := io.ReadAll(resp.Body)
	if err != nil || !bytes.Equal(body, d.text) || resp.Header.Get("Content-Length") != strconv.Itoa(len(d.text)) {
		t.Errorf("got %d bytes, %v, %v, want %d", len(body), resp.Header, err, len(d.text))
	}
}

// TestContent_Counted: the bytes are counted in the log as those of other answers, whether the caller reads them all or
// not, and a file that is not read is closed.
func TestContent_Counted(t *testing.T) {
	t.Parallel()
	d := newDemo(t, 64<<20, false)
	line := func(what string) string {
		fixture.Await(t, what, func() bool { return strings.Contains(d.Log.String(), what) })
		log := d.Log.String()
		return log[strings.LastIndex(log[:strings.Index(log, what)], "\n")+1:]
	}
	d.get(t, http.MethodGet)
	if got := line(`"operation":"demo.get"`); !strings.Contains(got, `"bytes":67108864`) {
		t.Errorf("got the line %.300s, want all bytes", got)
	}
	conn, _ := d.open(t, "GET "+demoPath+" HTTP/1.1")
	_ = conn.Close()
	if got := line(`"reason":"the caller hung up"`); strings.Contains(got, `"bytes":67108864`) || !strings.Contains(got, `"operation":"demo.get","code":200,"status":"failed"`) {
		t.Errorf("got the line %.300s, want fewer bytes than the file has", got)
	}
}

// TestContent_SlowReader: a reader who takes nothing for the write timeout is cut off; one who takes some is not.
func TestContent_SlowReader(t *testing.T) {
	t.Parallel()
	d := newDemo(t, 64<<20, false, func(c *config.Config, _ *gateway.Options) { c.Timeouts.Write = time.Second })
	_, resp := d.open(t, "GET "+demoPath+" HTTP/1.1")
	fixture.Await(t, "the reader is cut off", func() bool {
		return strings.Contains(d.Log.String(), `"reason":"the caller read too slowly"`)
	})
	if _, err := io.ReadAll(resp.Body); err == nil {
		t.Error("got the whole content, want it cut off")
	}
}

// TestOwnCodes: rows choose the code of their success, and their paths the headers of OPTIONS.
func TestOwnCodes(t *testing.T) {
	t.Parallel()
	d := newDemo(t, 16, false)
	key := gatewaytest.WithKey(d.key)
	a := d.Do(t, http.MethodPost, "/api/demo/a", key, gatewaytest.Body("image/x-any", "abc"))
	if a.Code != http.StatusCreated || a.Status != "ok" || a.Header.Get("Location") != "/files/demo/a" || a.DataJSON() != `{"bytes":3,"media":"image/x-any","size":3}` {
		t.Errorf("got %d %s %v, want 201", a.Code, a.Body, a.Header)
	}
	a = d.Do(t, http.MethodPatch, "/api/demo/a", key, gatewaytest.Body("", "def"))
	if a.Code != http.StatusNoContent || len(a.Body) > 0 || a.Header.Get("X-Demo-Bytes") != "3" || a.Header.Get("Content-Type") != "" {
		t.Errorf("got %d %s %v, want 204 and no body", a.Code, a.Body, a.Header)
	}
	if a = d.Get(t, d.key, "/files/demo/a"); a.Text() != "abcdef" {
		t.Errorf("got %d %s, want abcdef", a.Code, a.Body)
	}
	if records := fixture.AuditRecords(t, d.Org, 10); len(records) < 2 || records[0].Code != 204 || records[1].Code != 201 {
		t.Errorf("got the audit records %+v, want the codes 204 and 201", records)
	}
	for path, want := range map[string][2]string{"/api/demo/a": {"2", "PATCH, POST, OPTIONS"}, demoPath: {"1", "GET, HEAD, OPTIONS"}} {
		a = d.Do(t, http.MethodOptions, path)
		if a.Code != http.StatusNoContent || a.Header.Get("X-Demo") != want[0] || a.Header.Get("Allow") != want[1] || len(a.Body) > 0 {
			t.Errorf("OPTIONS %s: got %d %s %v, want 204 with %q", path, a.Code, a.Body, a.Header, want)
		}
	}
	fixture.WantFailure(t, d.Do(t, http.MethodPut, "/api/demo/a", key), http.StatusMethodNotAllowed)
	a = d.Do(t, http.MethodOptions, demoPath, gatewaytest.Header("Origin", "https://a.example"), gatewaytest.Header("Access-Control-Request-Method", "GET"))
	fixture.WantFailure(t, a, http.StatusMethodNotAllowed)
	for _, path := range []string{"/files/demo/a/b", "/files/demo/", "/files/"} {
		fixture.WantFailure(t, d.Get(t, d.key, path), http.StatusNotFound)
	}
	if a = d.Page(t, "/files/folders"); a.Code == http.StatusNotFound || strings.HasPrefix(a.Text(), "{") {
		t.Errorf("got %d %.100s, want a page", a.Code, a.Body)
	}
}

// TestLimitUpload: a handler narrows the bound on an upload, by its declared length before anything is read.
func TestLimitUpload(t *testing.T) {
	t.Parallel()
	d := newDemo(t, 16, false)
	key := gatewaytest.WithKey(d.key)
	unknown := func(r *http.Request) { r.ContentLength = -1 }
	for _, tt := range []struct {
		size int
		most string
		more gatewaytest.Request
		want int // 0: accepted
	}{
		{10, "10", func(*http.Request) {}, 0},
		{10, "10", unknown, 0},
		{11, "10", func(*http.Request) {}, 10},
		{11, "10", unknown, 10},
		{1 << 20, "2000000", unknown, 0},
		{1<<20 + 1, "2000000", func(*http.Request) {}, 1 << 20},
		{1<<20 + 1, "2000000", unknown, 1 << 20},
	} {
		a := d.Do(t, http.MethodPost, "/api/demo/a?most="+tt.most, key, gatewaytest.Body("text/plain", strings.Repeat("x", tt.size)), tt.more)
		if tt.want == 0 && a.Code != http.StatusCreated || tt.want > 0 && (a.Code != 413 || !strings.Contains(a.Message, strconv.Itoa(tt.want)+" bytes")) {
			t.Errorf("%d bytes of at most %s: got %d %s, want a bound of %d", tt.size, tt.most, a.Code, a.Body, tt.want)
		}
	}
	for media, code := range map[string]int{"": 201, "a/b; c=d": 201, "nonsense;;": 415} {
		if a := d.Do(t, http.MethodPost, "/api/demo/a", key, gatewaytest.Body(media, "x")); a.Code != code {
			t.Errorf("media type %q: got %d %s, want %d", media, a.Code, a.Body, code)
		}
	}
	// The length alone is refused: the answer comes before the body was asked for.
	conn := fixture.Dial(t, d.App.Addr())
	fixture.Send(t, conn, fmt.Sprintf("POST /api/demo/a?most=10 HTTP/1.1\r\nHost: %s\r\nX-Service-Token: %s\r\nExpect: 100-continue\r\nContent-Length: 11\r\n\r\n", d.Host, d.key))
	resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil || resp.StatusCode != http.StatusRequestEntityTooLarge {
		t.Fatalf("got %v, %v, want 413 before the body", resp, err)
	}
	_ = resp.Body.Close()
}
