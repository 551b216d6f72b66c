package tenants

import (
	"net/netip"
	"regexp"
	"strings"
	"testing"

	"tenantry/internal/fault"
)

func TestHostVariantsResolveToOneSlug(t *testing.T) {
	t.Parallel()
	const none = ""
	long := strings.Repeat("a", 63)
	tests := []struct{ host, base, want string }{
		{"acme.localhost:8080", "", "acme"},
		{"acme.localhost", "", "acme"},
		{"ACME.LocalHost:8080", "", "acme"},
		{"acme.localhost.:8080", "", "acme"},
		{"acme.localhost..", "", none},
		{"acme.example.com", "", "acme"},
		{"a.b.example.com", "", "a"},
		{"123.localhost", "", "123"},
		{long + ".localhost", "", long},
		{long + "a.localhost", "", none},
		{"", "", none},
		{".", "", none},
		{":8080", "", none},
		{"localhost", "", none},
		{"localhost:8080", "", none},
		{"acme", "", none},
		{"acme.", "", none},
		{".localhost", "", none},
		{"acme..localhost", "", none},
		{"127.0.0.1", "", none},
		{"127.0.0.1:8080", "", none},
		{"127.1", "", none},
		{"10.0x7f", "", none},
		{"0x7f.0x1", "", none},
		{"[::1]:8080", "", none},
		{"::1", "", none},
		{"fe80::1", "", none},
		{"user@acme.localhost", "", none},
		{"user:pw@acme.localhost", "", none},
		{"acme.localhost:8080:90", "", none},
		{"acme.localhost:", "", none},
		{"acme.localhost:http", "", none},
		{"acme.localhost:+80", "", none},
		{"acme.localhost:65536", "", none},
		{"http://acme.localhost", "", none},
		{"acme.localhost/", "", none},
		{"acme.localhost?x", "", none},
		{"acme.localhost\x00", "", none},
		{"acme.local host", "", none},
		{" acme.localhost", "", none},
		{"acme%2elocalhost", "", none},
		{"xn--acme-x.localhost", "", none},
		{"ab--c.localhost", "", none},
		{"аcme.localhost", "", none}, // Cyrillic a
		{"ac\u212ae.localhost", "", none},
		{"acme。localhost", "", none},
		{"ac_me.localhost", "", none},
		{"-acme.localhost", "", none},
		{"acme-.localhost", "", none},
		{strings.Repeat("a.", 200) + "com", "", none},
		{strings.Repeat("a.", 125) + "com", "", "a"}, // 253 characters
		{strings.Repeat("a.", 125) + "coma", "", none},
		{strings.Repeat("a.", 125) + "coma:80", "", none},
		{"acme.localhost:000080", "", none},

		{"acme.example.com", "example.com", "acme"},
		{"ACME.EXAMPLE.COM:443", "example.com", "acme"},
		{"acme.example.com.", "example.com", "acme"},
		{"acme.example.com..", "example.com", none},
		{"example.com", "example.com", none},
		{"example.com.", "example.com", none},
		{"a.acme.example.com", "example.com", none},
		{"acme.example.com.evil.com", "example.com", none},
		{"acme.evil.com", "example.com", none},
		{"acmeexample.com", "example.com", none},
		{"acme.xexample.com", "example.com", none},
		{"acme.com", "example.com", none},
		{"xn--acme.example.com", "example.com", none},
		{"127.0.0.1", "example.com", none},
		{"", "example.com", none},
	}
	for _, tt := range tests {
		got, ok := hostSlug(tt.host, tt.base)
		if !ok {
			got = none
		}
		if got != tt.want {
			t.Errorf("hostSlug(%q, %q) = %q, want %q", tt.host, tt.base, got, tt.want)
		}
	}
}

func FuzzHostSlug(f *testing.F) {
	for _, seed := range []string{"acme.localhost:8080", "127.0.0.1", "[::1]", "xn--a.b", "A.B.:1", "a@b.c", "0x1.0x2"} {
		f.Add(seed, "")
		f.Add(seed, "example.com")
		f.Add(seed+".example.com", "example.com")
	}
	pattern := regexp.MustCompile(`^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$`)
	f.Fuzz(func(t *testing.T, host, base string) {
		if base != "" && base != "example.com" {
			return
		}
		slug, ok := hostSlug(host, base)
		if !ok {
			return
		}
		if !pattern.MatchString(slug) || strings.HasPrefix(slug, "xn--") {
			t.Errorf("hostSlug(%q, %q) = %q, which is no slug", host, base, slug)
		}
		if !strings.HasPrefix(strings.ToLower(host), slug+".") {
			t.Errorf("hostSlug(%q, %q) = %q, which is not its first label", host, base, slug)
		}
		name, _, _ := strings.Cut(host, ":")
		if _, err := netip.ParseAddr(strings.TrimSuffix(name, ".")); err == nil {
			t.Errorf("hostSlug(%q, %q) took an IP address", host, base)
		}
		if rest := strings.TrimSuffix(strings.ToLower(name), "."); base != "" && rest != slug+"."+base {
			t.Errorf("hostSlug(%q, %q) = %q outside the base domain", host, base, slug)
		}
	})
}

func TestSlugRules(t *testing.T) {
	t.Parallel()
	tests := map[string]string{
		"acme": "", "a": "", "a1-b": "", "1": "", strings.Repeat("a", 63): "",
		"": fault.Required, strings.Repeat("a", 64): fault.Length,
		"ACME": fault.Format, "аcme": fault.Format, "acme ": fault.Format, "a.b": fault.Format, "-a": fault.Format, "a-": fault.Format,
		"xn--a": fault.Format, "ab--c": fault.Format, "a_b": fault.Format, "a\x00": fault.Format,
		"admin": fault.Forbidden, "www": fault.Forbidden, "api": fault.Forbidden, "status": fault.Forbidden,
	}
	for slug, want := range tests {
		var faults fault.List
		checkSlug(&faults, slug)
		got := ""
		if len(faults) > 0 {
			got = faults[0].Code
		}
		if got != want {
			t.Errorf("slug %q: %q, want %q", slug, got, want)
		}
	}
	for _, slug := range reservedSlugs() {
		if !validSlug(slug) {
			t.Errorf("the reserved slug %q is none", slug)
		}
	}
}
