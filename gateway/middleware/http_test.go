package middleware

import (
	"net/http"
	"net/http/httptest"
	"net/netip"
	"regexp"
	"strings"
	"testing"
)

func requestTo(t *testing.T, peer string, headers ...string) *http.Request {
	t.Helper()
	r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "http://acme.localhost/api/x", nil)
	r.RemoteAddr = peer
	for i := 0; i < len(headers); i += 2 {
		r.Header.Add(headers[i], headers[i+1])
	}
	return r
}

var testProxies = []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8"), netip.MustParsePrefix("fd00::/8")}

// TestForwardedHostCountsOnlyFromATrustedProxy: X-Forwarded-Host of other peers is ignored, and of everybody if no
// proxy is trusted.
func TestForwardedHostCountsOnlyFromATrustedProxy(t *testing.T) {
	t.Parallel()
	const own, other = "acme.localhost", "other.localhost"
	tests := []struct {
		name    string
		proxies []netip.Prefix
		peer    string
		headers []string
		want    string
	}{
		{"no header", testProxies, "10.1.2.3:5", nil, own},
		{"trusted", testProxies, "10.1.2.3:5", []string{"X-Forwarded-Host", other}, other},
		{"trusted, IPv4 in IPv6", testProxies, "[::ffff:10.1.2.3]:5", []string{"X-Forwarded-Host", other}, other},
		{"trusted, IPv6", testProxies, "[fd00::1]:5", []string{"X-Forwarded-Host", other}, other},
		{"untrusted peer", testProxies, "192.0.2.1:5", []string{"X-Forwarded-Host", other}, own},
		{"untrusted peer that claims to be one", testProxies, "192.0.2.1:5", []string{"X-Forwarded-Host", other, "X-Forwarded-For", "10.1.2.3"}, own},
		{"no trusted proxies", nil, "127.0.0.1:5", []string{"X-Forwarded-Host", other}, own},
		{"given twice", testProxies, "10.1.2.3:5", []string{"X-Forwarded-Host", other, "X-Forwarded-Host", own}, own},
		{"no peer", testProxies, "@", []string{"X-Forwarded-Host", other}, own},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			p := New(Options{Proxies: test.proxies})
			if got := p.Host(requestTo(t, test.peer, test.headers...)); got != test.want {
				t.Errorf("host = %q, want %q", got, test.want)
			}
		})
	}
}

func TestPrefersStrict(t *testing.T) {
	t.Parallel()
	for line, want := range map[string]bool{
		"handling=strict": true, "Handling=Strict": true, ` handling = "strict" `: true, "respond-async, handling=strict; x=1": true, "handling=strict;wait=3": true,
		"": false, "handling=lenient": false, "strict": false, "handling": false, "handling=strictly": false, "xhandling=strict": false, "return=minimal; handling=strict": false,
	} {
		if got := prefersStrict(http.Header{"Prefer": {line}}); got != want {
			t.Errorf("prefersStrict(%q) = %t, want %t", line, got, want)
		}
	}
	if !prefersStrict(http.Header{"Prefer": {"return=minimal", "handling=strict"}}) || prefersStrict(nil) {
		t.Error("prefersStrict of several lines = false, or of none = true")
	}
}

// TestHeaderListIsSafe: a name that a caller chose cannot leave its place in the list or the header.
func TestHeaderListIsSafe(t *testing.T) {
	t.Parallel()
	safe := regexp.MustCompile(`^[A-Za-z0-9_.%+\[\]~-]*(, [A-Za-z0-9_.%+\[\]~-]*)*$`)
	for _, names := range [][]string{
		{"org_id"}, {"org_id", "locked"}, {"filters[a][b]"}, {"a\r\nSet-Cookie: x=1"}, {"a, b"}, {"ümlaut"}, {"日本"}, {"\x00\x1b"}, {`"quoted"`}, {"a b"}, {""},
		{strings.Repeat("é", 500)}, {strings.Repeat("\r\n", 500)}, {"a;b=c"}, {"<script>"},
	} {
		got := headerList(names)
		if !safe.MatchString(got) {
			t.Errorf("%q became %q", names, got)
		}
		if n := strings.Count(got, ","); n != len(names)-1 {
			t.Errorf("%q became %d names: %q", names, n+1, got)
		}
		if len(got) > len(names)*200 {
			t.Errorf("%d bytes for %d names", len(got), len(names))
		}
	}
	if got := headerList([]string{"org_id", "filters[a]", "a b"}); got != "org_id, filters[a], a+b" {
		t.Errorf("headerList of plain names = %q, want them readable", got)
	}
}

func TestRequestID(t *testing.T) {
	t.Parallel()
	made := regexp.MustCompile(`^[0-9a-f]{24}$`)
	for given, taken := range map[string]bool{
		"abc-123_X.y": true, strings.Repeat("a", 64): true, strings.Repeat("a", 65): false, "": false, "a b": false, "a\"b": false, "é": false, "a,b": false, "<x>": false,
	} {
		got := requestID(requestTo(t, "192.0.2.1:5", RequestIDHeader, given))
		if taken != (got == given) || (!taken && !made.MatchString(got)) {
			t.Errorf("%q: got %q, want taken = %v", given, got, (got == given))
		}
	}
	first, second := requestID(requestTo(t, "192.0.2.1:5")), requestID(requestTo(t, "192.0.2.1:5"))
	if first == second {
		t.Error("two requests have one identifier")
	}
}

func TestPreflight(t *testing.T) {
	t.Parallel()
	w := httptest.NewRecorder()
	Preflight(w, requestTo(t, "192.0.2.1:5", "Origin", "https://shop.example"), "GET, POST")
	h := w.Header()
	if w.Code != http.StatusNoContent || w.Body.Len() > 0 || h.Get("Access-Control-Allow-Origin") != "https://shop.example" || h.Get("Vary") != "Origin" || h.Get("Access-Control-Allow-Methods") != "GET, POST" {
		t.Errorf(`got %d %v, want %v and w.Body.Len() <= 0 and h.Get("Access-Control-Allow-Origin") = "https://shop.example" and h.Get("Vary") = "Origin" and h.Get("Access-Control-Allow-Methods") = "GET, POST"`,
			w.Code, h, http.StatusNoContent)
	}
	if h.Get("Access-Control-Allow-Credentials") != "" {
		t.Error("a page of another site must not act with this browser's session")
	}
}
