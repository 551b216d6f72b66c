package load

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"tenantry/config"
	"tenantry/gateway"
	"tenantry/gateway/gatewaytest"
	"tenantry/gateway/tests/fixture"
	"tenantry/operation"
	"tenantry/tenants"
)

// acceptEncoding sets the client's Accept-Encoding, with each value on its own line.
func acceptEncoding(lines ...string) gatewaytest.Request {
	return func(r *http.Request) { r.Header["Accept-Encoding"] = lines }
}

// unpacked returns the body of an answer after decompression, and whether it was compressed. It checks the headers.
func unpacked(t *testing.T, a *gatewaytest.Answer) (string, bool) {
	t.Helper()
	if got := a.Header.Get("Content-Length"); got != strconv.Itoa(len(a.Body)) {
		t.Errorf("Content-Length = %q, want %d", got, len(a.Body))
	}
	switch encoding := a.Header.Values("Content-Encoding"); {
	case len(encoding) == 0:
		return a.Text(), false
	case len(encoding) > 1 || encoding[0] != "gzip":
		t.Fatalf("Content-Encoding %q, want at most 1 encoding and encoding[0] gzip", encoding)
	}
	gz, err := gzip.NewReader(bytes.NewReader(a.Body))
	if err != nil {
		t.Fatal(err)
	}
	gz.Multistream(false)
	body, err := io.ReadAll(gz)
	if err != nil {
		t.Fatal(err)
	}
	return string(body), true
}

// varies reports whether the answer tells caches that the encoding depends on the client.
func varies(a *gatewaytest.Answer) bool {
	return slices.Contains(a.Header.Values("Vary"), "Accept-Encoding")
}

// hasCacheHeaders reports whether the answer has the headers that caches need. An answer that may not be cached needs
// none.
func hasCacheHeaders(a *gatewaytest.Answer) bool {
	return varies(a) != (a.Header.Get("Cache-Control") == "private, no-store")
}

// startAt runs a gateway whose clock stands still, so that two reads of a report are equal.
func startAt(t *testing.T, now time.Time) *gatewaytest.Gateway {
	return gatewaytest.Start(t, func(_ *config.Config, o *gateway.Options) { o.Now = func() time.Time { return now } })
}

// packLines returns the lines of a bundle with many contacts and a public report of them.
func packLines() []string {
	lines := fixture.ReportLines()
	for n := 100; n < 300; n++ {
		lines = append(lines, fmt.Sprintf(`{"kind":"contact","id":"%s","email":"person%d@example.com","city":"Köln <&> %d","country":"DE"}`, fixture.DocID(n), n, n%7))
	}
	return append(lines, `{"kind":"custom_report","id":"`+fixture.DocID(900)+`","pid":"ManyManyManyRows","title":"Many","secure":false,"class":"Contacts","query":{"fields":["email","city"],"sort":["email"]},"visual":"table"}`)
}

// TestCompression_EveryKindOfAnswer checks that compressed and plain answers have the same content.
func TestCompression_EveryKindOfAnswer(t *testing.T) {
	t.Parallel()
	g := startAt(t, time.Now())
	acme := g.Org(t, "acme", "teams")
	acme.Import(t, packLines()...)
	key := gatewaytest.WithKey(acme.Key(t, tenants.ManageForms))
	long := strings.Repeat("x", 1500)
	for _, row := range []struct {
		name, path string
		with       []gatewaytest.Request
		code       int
		small      bool
	}{
		{name: "an operation", path: fixture.SharedPath + "ManyManyManyRows?data=1", code: 200},
		{name: "a small operation", path: fixture.SharedPath + "ManyManyManyRows", code: 200, small: true},
		{name: "with a key", path: "/api/form/collections/schema", with: []gatewaytest.Request{key}, code: 200, small: true},
		{name: "a refusal", path: "/api/campaigns/count?filters[" + long[:300] + "]=1&filters[" + long[:299] + "]=1&filters[" + long[:298] + "]=1&filters[" + long[:297] + "]=1", with: []gatewaytest.Request{key}, code: 422},
		{name: "no such route", path: "/api/zzz", code: 404, small: true},
		{name: "the document", path: "/api/openapi.json", code: 200},
		{name: "a page", path: "/sign-in", code: 200},
		{name: "a page of a report", path: "/shared/reports/ManyManyManyRows", code: 200},
		{name: "no such page", path: "/zzz", code: 404, small: true},
		{name: "style", path: "/assets/console.css", code: 200},
		{name: "script", path: "/assets/console.js", code: 200},
		{name: "a redirect", path: "/", code: 303, small: true},
	} {
		t.Run(row.name, func(t *testing.T) {
			get := func(method string, encoding ...gatewaytest.Request) *gatewaytest.Answer {
				return g.Page(t, method, acme.Host, row.path, append(encoding, row.with...)...)
			}
			plain, packed := get(http.MethodGet), get(http.MethodGet, acceptEncoding("gzip, deflate, br"))
			want, zipped := unpacked(t, plain)
			if plain.Code != row.code || zipped || row.small != (len(want) <= 1024) {
				t.Fatalf("got %d, compressed %t, %d bytes %.200s", plain.Code, zipped, len(want), want)
			}
			got, zipped := unpacked(t, packed)
			if packed.Code != row.code || got != want || zipped == row.small {
				t.Errorf("got %d, compressed %t:\n%.300s\nwant\n%.300s", packed.Code, zipped, got, want)
			}
			if zipped && len(packed.Body)*10 > len(want)*7 {
				t.Errorf("%d bytes became %d", len(want), len(packed.Body))
			}
			for _, a := range []*gatewaytest.Answer{plain, packed} {
				if len(want) > 0 && !hasCacheHeaders(a) {
					t.Errorf("Vary = %q, Cache-Control = %q, want those of a compressed answer",
						a.Header.Values("Vary"), a.Header.Get("Cache-Control"))
				}
			}
			for _, of := range []*gatewaytest.Answer{plain, packed} {
				var encoding []gatewaytest.Request
				if of == packed {
					encoding = append(encoding, acceptEncoding("gzip"))
				}
				head := get(http.MethodHead, encoding...)
				for _, name := range []string{"Content-Length", "Content-Encoding", "Content-Type", "Vary", "Cache-Control", "Location"} {
					if got, want := head.Header.Values(name), of.Header.Values(name); !slices.Equal(got, want) && row.code != http.StatusSeeOther {
						t.Errorf("HEAD: %s is %q, GET %q", name, got, want)
					}
				}
				if head.Code != row.code || len(head.Body) > 0 {
					t.Errorf("HEAD: got %d, %d bytes, want %d and no Body", head.Code, len(head.Body), row.code)
				}
			}
		})
	}
}

// TestCompression_OverOneKilobyte checks that 1,024 bytes are sent plain and one more is compressed.
func TestCompression_OverOneKilobyte(t *testing.T) {
	t.Parallel()
	g := gatewaytest.Start(t)
	acme := g.Org(t, "acme")
	key := acme.Key(t)
	read := func(desc int) (string, bool) {
		t.Helper()
		acme.Import(t, `{"kind":"custom_report","id":"`+fixture.DocID(1)+`","title":"t","class":"Contacts","query":{"fields":["email"]},"desc":"`+strings.Repeat("d", desc)+`"}`)
		return unpacked(t, g.Page(t, http.MethodGet, acme.Host, fixture.ReportPath+fixture.DocID(1), gatewaytest.WithKey(key), acceptEncoding("gzip")))
	}
	short, _ := read(1)
	for size, want := range map[int]bool{1023: false, 1024: false, 1025: true, 4096: true} {
		if body, zipped := read(size - len(short) + 1); len(body) != size || zipped != want {
			t.Errorf("got %d bytes, of %d: compressed %t, want %v body and %v", len(body), size, zipped, size, want)
		}
	}
}

// TestCompression_FollowsAcceptEncoding checks that a client that refuses gzip, or sends an unreadable header, gets the
// whole answer uncompressed.
func TestCompression_FollowsAcceptEncoding(t *testing.T) {
	t.Parallel()
	g := startAt(t, time.Now())
	acme := g.Org(t, "acme", "teams")
	acme.Import(t, packLines()...)
	want := acme.Page(t, fixture.SharedPath+"ManyManyManyRows?data=1").Text()
	for _, row := range []struct {
		lines []string
		want  bool
	}{
		{[]string{"gzip"}, true}, {[]string{"GZip"}, true}, {[]string{"x-gzip"}, true}, {[]string{"*"}, true}, {[]string{"br, *;q=0.1"}, true},
		{[]string{"br", "gzip"}, true}, {[]string{"deflate,\tgzip ; q=0.001"}, true}, {[]string{"gzip;q=1.000"}, true}, {[]string{"gzip; Q=0.5"}, true},
		{[]string{",, ,gzip,"}, true}, {[]string{"gzip, *;q=0"}, true}, {[]string{"gzip;q=0.5, identity;q=0.5"}, true}, {[]string{"identity;q=0, gzip"}, true},

		{nil, false}, {[]string{""}, false}, {[]string{"identity"}, false}, {[]string{"br, deflate"}, false}, {[]string{"gzipped"}, false}, {[]string{"not-gzip"}, false},
		{[]string{"gzip;q=0"}, false}, {[]string{"gzip;q=0.0"}, false}, {[]string{"gzip ; q=0.000"}, false}, {[]string{"*, gzip;q=0"}, false}, {[]string{"*;q=0"}, false},
		{[]string{"gzip", "gzip;q=0"}, false}, {[]string{"gzip;q=0.5, identity"}, false},
		{[]string{"gzip;"}, false}, {[]string{"gzip;q"}, false}, {[]string{"gzip;q="}, false}, {[]string{"gzip;q=x"}, false}, {[]string{"gzip;q=-1"}, false},
		{[]string{"gzip;q=2"}, false}, {[]string{"gzip;q=1.1"}, false}, {[]string{"gzip;q=NaN"}, false}, {[]string{"gzip;q=Inf"}, false}, {[]string{"gzip;q=1e0"}, false},
		{[]string{"gzip;q=0x1p0"}, false}, {[]string{"gzip;q=0.1234"}, false}, {[]string{"gzip;level=9"}, false}, {[]string{"gzip;q=1;q=1"}, false}, {[]string{`"gzip"`}, false},
		{[]string{"gzip\xff"}, false}, {[]string{";;;=,=;q"}, false}, {[]string{"gzip=1"}, false}, {[]string{strings.Repeat("gzip;q=0,", 2000)}, false},
		{[]string{strings.Repeat(";", 20_000)}, false}, {slices.Repeat([]string{"gzip;q=0"}, 500), false},
	} {
		a := acme.Page(t, fixture.SharedPath+"ManyManyManyRows?data=1", acceptEncoding(row.lines...))
		body, zipped := unpacked(t, a)
		if a.Code != http.StatusOK || body != want || zipped != row.want || !hasCacheHeaders(a) {
			t.Errorf("%[1]q: got %[2]d, compressed %[3]t, Vary %[4]q, %[5]d bytes, want 200, compressed %[6]t and Vary",
				row.lines, a.Code, zipped, a.Header.Values("Vary"), len(body), row.want)
		}
	}
}

// TestCompression_NeverOfSecrets checks that secrets next to values that a caller chose are never compressed, because
// the length would reveal them ("BREACH"). Every operation that answers with secrets is audited.
func TestCompression_NeverOfSecrets(t *testing.T) {
	t.Parallel()
	g := gatewaytest.Start(t)
	acme := g.Org(t, "acme", "teams")
	acme.Import(t, append(fixture.ReportLines()[7:8],
		`{"kind":"contact_field","key":"diary","title":"Diary","type":"Encrypted"}`,
		`{"kind":"contact","id":"`+fixture.DocID(1)+`","email":"ada@example.com","fields":{"diary":"`+strings.Repeat("dear diary ", 200)+`"}}`)...)
	key := gatewaytest.WithKey(acme.Key(t, tenants.Contacts, tenants.ManageReports, tenants.ManageCustomObjects))
	long := strings.Repeat("a", 1500)
	for name, a := range map[string]*gatewaytest.Answer{
		"contacts.reveal":         g.Page(t, http.MethodGet, acme.Host, fixture.RevealPath("diary", ""), key, acceptEncoding("gzip")),
		"contacts.reveal refused": g.Page(t, http.MethodGet, acme.Host, fixture.RevealPath("diary", "&public_key=x&zzz="+long), key, acceptEncoding("gzip")),
		"reports.share":           g.Page(t, http.MethodPost, acme.Host, fixture.ReportPath+fixture.DocID(fixture.ReportLocked)+"/share", key, acceptEncoding("gzip"), fixture.JSONText(`{"params":{"region":"`+long[:900]+`"}}`)),
		"objects.create":          g.Page(t, http.MethodPost, acme.Host, "/api/custom/objects", key, acceptEncoding("gzip"), fixture.JSONText(`{"name":"thing","schema":{"a":{"title":"`+long+`","type":"Text"}}}`)),
		"sessions.create":         g.Page(t, http.MethodPost, acme.Host, "/auth/sign-in", acceptEncoding("gzip"), fixture.JSONText(`{"email":"ada@example.com","password":"wrong"}`)),
		"passwords.create":        g.Page(t, http.MethodPost, acme.Host, "/auth/password", acceptEncoding("gzip"), fixture.JSONText(`{"token":"wrong","password":"`+gatewaytest.Password+`"}`)),
	} {
		body, zipped := unpacked(t, a)
		if zipped || varies(a) || !json.Valid([]byte(body)) {
			t.Errorf("%s: got %d, compressed %t, Vary %q, want it uncompressed: %.200s",
				name, a.Code, zipped, a.Header.Values("Vary"), body)
		}
		if large := name == "contacts.reveal" || name == "reports.share"; large && (a.Code != http.StatusOK || len(body) <= 1024) {
			t.Errorf("%s: got %d, %d bytes %s, want 200 with more than 1024 bytes", name, a.Code, len(body), body)
		}
	}
	audited := map[string]bool{}
	for _, op := range g.App.Operations() {
		audited[op.Name] = op.Audit == operation.AuditAlways
	}
	for _, name := range []string{"contacts.reveal", "reports.share", "sessions.create", "sessions.delete", "passwords.create"} {
		if !audited[name] {
			t.Errorf("%s answers with a secret and is not audited, want an audit record", name)
		}
	}
}

// TestCompression_LogHasTheSentSize checks that the access log has the size on the network.
func TestCompression_LogHasTheSentSize(t *testing.T) {
	t.Parallel()
	g := gatewaytest.Start(t)
	acme := g.Org(t, "acme", "teams")
	acme.Import(t, packLines()...)
	longTexts(t, acme, 1)
	for i, path := range []string{
		fixture.SharedPath + "ManyManyManyRows?data=1", "/api/openapi.json", "/shared/reports/ManyManyManyRows", "/assets/console.css", "HEAD /sign-in",
		"HEAD " + fixture.SharedPath + longPID + "/export", // more than goes out at once
	} {
		method, path, head := strings.Cut(path, " ")
		if !head {
			method, path = http.MethodGet, method
		}
		id := fmt.Sprintf("look-for-me-%d", i)
		a := g.Page(t, method, acme.Host, path, acceptEncoding("gzip"), gatewaytest.Header("X-Request-Id", id))
		var line struct {
			RequestID string `json:"request_id"`
			Bytes     int
		}
		fixture.Await(t, "the line of "+path, func() bool {
			for text := range strings.Lines(g.Log.String()) {
				if strings.Contains(text, id) {
					return json.Unmarshal([]byte(text), &line) == nil
				}
			}
			return false
		})
		if method == http.MethodHead {
			if line.Bytes != 0 || a.Code != http.StatusOK {
				t.Errorf("HEAD %s: %d, the log has %d bytes, want Bytes 0 and 200", path, a.Code, line.Bytes)
			}
		} else if _, zipped := unpacked(t, a); !zipped || line.Bytes != len(a.Body) {
			t.Errorf("%s: sent %d bytes, compressed %t, the log has %d, want the compressed size",
				path, len(a.Body), zipped, line.Bytes)
		}
	}
}

// TestHeadAnswersLikeGet checks that HEAD has the code and headers of GET and no body.
func TestHeadAnswersLikeGet(t *testing.T) {
	t.Parallel()
	w := fixture.NewWorld(t)
	for _, op := range w.App.Operations() {
		if op.Method != http.MethodGet || op.Credentials == operation.Operator {
			continue
		}
		q := w.Build(&op, op.Path, fixture.SampleFor(&op), w.A.Own, fixture.Every)
		as := append(q.Changes, w.A.CredentialFor(&op))
		got, head := w.A.Do(t, q.Method, q.Target, as...), w.A.Do(t, http.MethodHead, q.Target, as...)
		if head.Code != got.Code || len(head.Body) > 0 || head.Header.Get("Content-Type") != got.Header.Get("Content-Type") || head.Header.Get("ETag") != got.Header.Get("ETag") {
			t.Errorf("%s: HEAD %d, %d bytes, GET %d, want the same code and headers without a body",
				op.Name, head.Code, len(head.Body), got.Code)
		}
	}
}
