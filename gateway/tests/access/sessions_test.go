package access

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	"tenantry/config"
	"tenantry/gateway"
	"tenantry/gateway/gatewaytest"
	"tenantry/gateway/tests/fixture"
	"tenantry/operation"
)

func TestSessionCookieIsHostBound(t *testing.T) {
	t.Parallel()
	for _, public := range []string{"", "https://{slug}.example.test"} {
		w := fixture.NewWorld(t, func(c *config.Config, _ *gateway.Options) { c.PublicURL = public })
		p := w.A
		a := p.Do(t, http.MethodPost, "/auth/sign-in", gatewaytest.JSON(map[string]string{"email": p.IDs[fixture.RefEmail], "password": gatewaytest.Password}))
		lines := a.Header.Values("Set-Cookie")
		if len(lines) != 1 {
			t.Fatalf("public_url %q: %d cookies, want 1", public, len(lines))
		}
		c, err := http.ParseSetCookie(lines[0])
		if err != nil {
			t.Fatal(err)
		}
		tls := public != ""
		if !c.HttpOnly || c.SameSite != http.SameSiteLaxMode && c.SameSite != http.SameSiteStrictMode || c.Domain != "" || c.Path != "/" || c.Secure != tls || strings.HasPrefix(c.Name, "__Host-") != tls {
			t.Errorf("public_url %q: got the cookie %s, want one for scripts of no page, this host and path /, Secure and __Host- with TLS",
				public, lines[0])
		}
		if c.Value == p.MemberCookie.Value {
			t.Error("a second sign-in: got the first session's token, want another one")
		}
		if strings.Contains(a.Text(), c.Value) {
			t.Error("got the session's token in the body, want it in the cookie only")
		}
		path := "/api/custom-reports/"
		if a := p.Do(t, http.MethodGet, path+p.IDs[fixture.RefReport], gatewaytest.Cookie(c)); a.Code != http.StatusOK {
			t.Errorf("at home: got %d %.200s, want 200", a.Code, a.Body)
		}
		for _, id := range []string{w.A.IDs[fixture.RefReport], w.B.IDs[fixture.RefReport]} {
			fixture.WantDenied(t, "elsewhere", w.B.Do(t, http.MethodGet, path+id, gatewaytest.Cookie(c)))
		}
		fixture.WantDenied(t, "two cookies, the first of nobody", p.Do(t, http.MethodGet, path+p.IDs[fixture.RefReport], gatewaytest.Cookie(&http.Cookie{Name: c.Name, Value: "x"}), gatewaytest.Cookie(c)))
		for _, v := range []string{"", "x", c.Value + "x", c.Value[:len(c.Value)-1], strings.ToUpper(c.Value), p.FullKey} {
			fixture.WantDenied(t, fmt.Sprintf("cookie %.20q", v), p.Do(t, http.MethodGet, path+p.IDs[fixture.RefReport], gatewaytest.Cookie(&http.Cookie{Name: c.Name, Value: v})))
		}
		if a := p.Do(t, http.MethodPost, "/auth/sign-out", gatewaytest.Cookie(c)); a.Code != http.StatusOK {
			t.Errorf("signing out: got %d %.200s, want 200", a.Code, a.Body)
		}
		fixture.WantDenied(t, "after signing out", p.Do(t, http.MethodGet, path+p.IDs[fixture.RefReport], gatewaytest.Cookie(c)))
	}
}

func TestOtherSitesCannotActWithASession(t *testing.T) {
	t.Parallel()
	w := fixture.NewWorld(t)
	p := w.A
	before := p.Export(t)
	h := gatewaytest.Header
	sites := map[string][]gatewaytest.Request{
		"sibling subdomain":         {h("Origin", "http://"+w.B.Host), h("Sec-Fetch-Site", "same-site")},
		"sibling, no fetch headers": {h("Origin", "http://"+w.B.Host)},
		"another site":              {h("Origin", "https://evil.test"), h("Sec-Fetch-Site", "cross-site")},
		"no origin named":           {h("Sec-Fetch-Site", "cross-site")},
		"null origin":               {h("Origin", "null")},
		"a page in a frame":         {h("Origin", "null"), h("Sec-Fetch-Site", "cross-site"), h("Sec-Fetch-Mode", "navigate"), h("Sec-Fetch-Dest", "iframe")},
		"own name, another port":    {h("Origin", "http://"+p.Host+":1")},
	}
	unsafe := 0
	for _, op := range w.Rows() {
		if op.Method == http.MethodGet || op.Credentials&(operation.Session|operation.Open) == 0 {
			continue
		}
		unsafe++
		q := w.SampleCall(&op, p, false)
		for name, site := range sites {
			changes := append(slices.Clone(q.Changes), gatewaytest.Cookie(p.AdminCookie))
			a := p.Do(t, q.Method, q.Target, append(changes, site...)...)
			if a.Code != http.StatusForbidden || a.Status != "failed" || a.Header.Get("Set-Cookie") != "" || a.Header.Get("Access-Control-Allow-Origin") != "" || a.Header.Get("Access-Control-Allow-Credentials") != "" {
				t.Errorf("%s from %s: got %d %.200s %v, want 403, the status failed, no header Set-Cookie, no header Access-Control-Allow-Origin and no header Access-Control-Allow-Credentials",
					op.Name, name, a.Code, a.Body, a.Header)
			}
		}
		if op.Body == nil {
			continue
		}
		for _, kind := range []string{"text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x", "", "application/json; charset=latin1", "application/jsonx", "text/json", "application/json, text/plain", "application/merge-patch+json"} {
			if op.Paged && (strings.HasSuffix(kind, "urlencoded") || strings.HasPrefix(kind, "multipart")) {
				continue // its page takes these, without a session
			}
			a := p.Do(t, q.Method, q.Target, gatewaytest.Cookie(p.AdminCookie), gatewaytest.Body(kind, `{"name":"n"}`))
			if a.Code != http.StatusUnsupportedMediaType {
				t.Errorf("%s with %q: got %d %.200s, want 415", op.Name, kind, a.Code, a.Body)
			}
			fixture.WantPlain(t, op.Name+" with "+kind, a)
		}
	}
	if unsafe < 7 {
		t.Errorf("%d operations that change something by a session, want at least 7", unsafe)
	}
	if p.Export(t) != before {
		t.Error("got a changed organization after requests of another site, want it unchanged")
	}
	// The same request from this origin is accepted.
	a := p.Do(t, http.MethodPut, "/api/form/collections/"+p.IDs[fixture.RefForm], gatewaytest.Cookie(p.AdminCookie), gatewaytest.JSON(map[string]any{"label": "Mine"}), h("Origin", "http://"+p.Host), h("Sec-Fetch-Site", "same-origin"))
	if a.Status != "ok" {
		t.Errorf("from its own page: got %d %.200s, want the status ok", a.Code, a.Body)
	}
	// Reading changes nothing either.
	before = p.Export(t)
	for _, op := range w.Rows() {
		if op.Method != http.MethodGet {
			continue
		}
		for _, path := range op.Paths() {
			for _, full := range []bool{false, true} {
				q := w.Build(&op, path, fixture.SampleFor(&op), p.Own, func(name string) bool { return full || name == "field" })
				for _, more := range []string{"", "_method=DELETE", "method=delete&action=delete&deleted=1"} {
					target := q.Target
					if more != "" {
						target = q.With(more)
					}
					p.Do(t, http.MethodGet, target, p.CredentialFor(&op), h("X-HTTP-Method-Override", "DELETE"), h("X-Method-Override", "PUT"))
				}
			}
		}
	}
	if p.Export(t) != before {
		t.Error("got a changed organization after a GET, want it unchanged")
	}
	// A preflight grants nothing to sessions.
	for _, op := range w.Rows() {
		a := w.Unchecked(t, http.MethodOptions, p.Host, w.SampleCall(&op, p, false).Target, h("Origin", "https://evil.test"), h("Access-Control-Request-Method", op.Method), h("Access-Control-Request-Headers", "content-type"))
		if a.Header.Get("Access-Control-Allow-Credentials") != "" || op.Kinds&operation.Browser == 0 && !op.AnySite && strings.Contains(a.Header.Get("Access-Control-Allow-Methods"), op.Method) {
			t.Errorf("a preflight of %s: got %v, want neither credentials nor the method allowed", op.Name, a.Header)
		}
	}
}

func TestCompressedBodiesAreRefused(t *testing.T) {
	t.Parallel()
	w := fixture.NewWorld(t)
	p := w.A
	var packed bytes.Buffer
	z := gzip.NewWriter(&packed)
	_, _ = z.Write(make([]byte, 10<<20))
	_ = z.Close()
	for _, op := range w.Rows() {
		if op.Body == nil {
			continue
		}
		q := w.SampleCall(&op, p, false)
		for _, encoding := range []string{"gzip", "deflate", "br", "identity", "gzip, gzip"} {
			a := p.Do(t, q.Method, q.Target, p.CredentialFor(&op), gatewaytest.Body("application/json", packed.String()), gatewaytest.Header("Content-Encoding", encoding))
			if a.Code != http.StatusUnsupportedMediaType {
				t.Errorf("got %s, %s: %d %.200s, want %v", op.Name, encoding, a.Code, a.Body, http.StatusUnsupportedMediaType)
			}
		}
	}
}
