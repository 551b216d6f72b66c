package middleware

import (
	"net/netip"
	"strings"
	"testing"
)

func TestRemote(t *testing.T) {
	t.Parallel()
	const none = ""
	each := func(values ...string) (headers []string) {
		for _, v := range values {
			headers = append(headers, "X-Forwarded-For", v)
		}
		return headers
	}
	standard := func(values ...string) (headers []string) {
		for _, v := range values {
			headers = append(headers, "Forwarded", v)
		}
		return headers
	}
	tests := []struct {
		name    string
		proxies []netip.Prefix
		peer    string
		headers []string
		want    string
	}{
		{"direct", nil, "192.0.2.1:5", nil, "192.0.2.1"},
		{"direct, IPv4 in IPv6", nil, "[::ffff:192.0.2.1]:5", nil, "192.0.2.1"},
		{"no peer", nil, "@", nil, none},
		{"no trusted proxies", nil, "192.0.2.1:5", append(each("198.51.100.7"), standard("for=198.51.100.7")...), "192.0.2.1"},
		{"untrusted peer", testProxies, "192.0.2.1:5", append(each("198.51.100.7"), standard("for=198.51.100.7")...), "192.0.2.1"},
		{"the proxy itself", testProxies, "10.0.0.1:5", nil, "10.0.0.1"},
		{"one proxy", testProxies, "10.0.0.1:5", each("198.51.100.7"), "198.51.100.7"},
		{"an address that the client sent", testProxies, "10.0.0.1:5", each("10.9.9.9, 203.0.113.9, 198.51.100.7"), "198.51.100.7"},
		{"two proxies", testProxies, "10.0.0.1:5", each("203.0.113.9, 198.51.100.7, 10.0.0.2"), "198.51.100.7"},
		{"two lines", testProxies, "10.0.0.1:5", each("203.0.113.9", "198.51.100.7"), "198.51.100.7"},
		{"only proxies", testProxies, "10.0.0.1:5", each("10.0.0.3, 10.0.0.2"), "10.0.0.3"},
		{"a trusted proxy in IPv6 form", testProxies, "[::ffff:10.0.0.1]:5", each("::ffff:198.51.100.7"), "198.51.100.7"},
		{"a port", testProxies, "10.0.0.1:5", each("198.51.100.7:51234"), "198.51.100.7"},
		{"a port of a proxy", testProxies, "10.0.0.1:5", each("198.51.100.7, 10.0.0.2:443"), "198.51.100.7"},
		{"IPv6", testProxies, "10.0.0.1:5", each("2001:db8::1"), "2001:db8::1"},
		{"IPv6 in brackets", testProxies, "10.0.0.1:5", each("[2001:db8::1]"), "2001:db8::1"},
		{"IPv6 and a port", testProxies, "10.0.0.1:5", each("[2001:db8::1]:443"), "2001:db8::1"},
		{"a zone", testProxies, "10.0.0.1:5", each("[fe80::1%eth0]:443"), "fe80::1"},
		{"unknown", testProxies, "10.0.0.1:5", each("unknown"), none},
		{"unknown after others", testProxies, "10.0.0.1:5", each("10.9.9.9, 198.51.100.7, unknown"), none},
		{"unknown before a proxy", testProxies, "10.0.0.1:5", each("198.51.100.7, unknown, 10.0.0.2"), none},
		{"unknown before the caller", testProxies, "10.0.0.1:5", each("unknown, 198.51.100.7"), "198.51.100.7"},
		{"garbage", testProxies, "10.0.0.1:5", each("198.51.100.7, <script>"), none},
		{"empty", testProxies, "10.0.0.1:5", each(""), none},
		{"an empty last one", testProxies, "10.0.0.1:5", each("10.9.9.9,"), none},
		{"an obfuscated one", testProxies, "10.0.0.1:5", each("_hidden"), none},
		{"a port out of range", testProxies, "10.0.0.1:5", each("198.51.100.7:99999"), none},
		{"a port that is not a number", testProxies, "10.0.0.1:5", each("198.51.100.7:http"), none},
		{"a port that is missing", testProxies, "10.0.0.1:5", each("198.51.100.7:"), none},
		{"brackets that are not closed", testProxies, "10.0.0.1:5", each("[2001:db8::1"), none},
		{"text after brackets", testProxies, "10.0.0.1:5", each("[2001:db8::1]443"), none},
		{"IPv4 in brackets", testProxies, "10.0.0.1:5", each("[198.51.100.7]:443"), none},
		{"a host name", testProxies, "10.0.0.1:5", each("localhost"), none},

		{"RFC 7239", testProxies, "10.0.0.1:5", standard("for=198.51.100.7;proto=https;by=10.0.0.1;host=evil.example"), "198.51.100.7"},
		{"any case, quoted", testProxies, "10.0.0.1:5", standard(`proto=https; For="198.51.100.7"`), "198.51.100.7"},
		{"quoted with a port", testProxies, "10.0.0.1:5", standard(`for="198.51.100.7:4711"`), "198.51.100.7"},
		{"quoted IPv6", testProxies, "10.0.0.1:5", standard(`for="[2001:db8:cafe::17]:4711"`), "2001:db8:cafe::17"},
		{"an obfuscated port", testProxies, "10.0.0.1:5", standard(`for="198.51.100.7:_x1"`), "198.51.100.7"},
		{"an empty obfuscated port", testProxies, "10.0.0.1:5", standard(`for="198.51.100.7:_"`), none},
		{"a malformed obfuscated port", testProxies, "10.0.0.1:5", standard(`for="198.51.100.7:_x 1"`), none},
		{"a port of six digits", testProxies, "10.0.0.1:5", standard(`for="198.51.100.7:000080"`), none},
		{"an address that the client sent in Forwarded", testProxies, "10.0.0.1:5", standard(`for=10.9.9.9, for=198.51.100.7`), "198.51.100.7"},
		{"two proxies and two lines", testProxies, "10.0.0.1:5", standard(`for=203.0.113.9, for=198.51.100.7`, `for="10.0.0.2:80"`), "198.51.100.7"},
		{"escaped in quotes", testProxies, "10.0.0.1:5", standard(`for="198\.51.100.7"`), "198.51.100.7"},
		{"a comma in quotes", testProxies, "10.0.0.1:5", standard(`for=203.0.113.9;ext="a, for=10.9.9.9", for=198.51.100.7`), "198.51.100.7"},
		{"empty pairs", testProxies, "10.0.0.1:5", standard(`;for=198.51.100.7;`), "198.51.100.7"},
		{"unknown in Forwarded", testProxies, "10.0.0.1:5", standard(`for=198.51.100.7, for=unknown`), none},
		{"an obfuscated node", testProxies, "10.0.0.1:5", standard(`for=198.51.100.7, for="_SEVKISEK"`), none},
		{"no for", testProxies, "10.0.0.1:5", standard(`for=198.51.100.7, proto=https`), none},
		{"for twice", testProxies, "10.0.0.1:5", standard(`for=198.51.100.7;for=203.0.113.9`), none},
		{"an empty Forwarded", testProxies, "10.0.0.1:5", standard(``), none},
		{"an empty last element", testProxies, "10.0.0.1:5", standard(`for=10.9.9.9,`), none},
		{"quotes that are not closed", testProxies, "10.0.0.1:5", standard(`for="10.9.9.9, for=198.51.100.7`), none},
		{"quotes in the middle", testProxies, "10.0.0.1:5", standard(`for=198.51.100.7"`), none},
		{"an escape at the end", testProxies, "10.0.0.1:5", standard(`for="198.51.100.7\`), none},
		{"no pair", testProxies, "10.0.0.1:5", standard(`198.51.100.7`), none},
		{"text after quotes", testProxies, "10.0.0.1:5", standard(`for="198.51.100.7"x`), none},

		{"both agree", testProxies, "10.0.0.1:5", append(each("198.51.100.7, 10.0.0.2"), standard(`for="198.51.100.7:80"`)...), "198.51.100.7"},
		{"both disagree", testProxies, "10.0.0.1:5", append(each("198.51.100.7"), standard(`for=10.9.9.9`)...), none},
		{"one of both cannot be read", testProxies, "10.0.0.1:5", append(each("198.51.100.7"), standard(`for=unknown`)...), none},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			var want netip.Addr
			if test.want != none {
				want = netip.MustParseAddr(test.want)
			}
			p := New(Options{Proxies: test.proxies})
			if got := p.remote(requestTo(t, test.peer, test.headers...)); got != want {
				t.Errorf("remote = %s, want %s", got, want)
			}
		})
	}
}

// FuzzForwarded: whatever headers a client sends, the caller is the address that the trusted proxy adds, or none.
func FuzzForwarded(f *testing.F) {
	for _, seed := range []string{
		"", "198.51.100.7:51234", "[2001:db8::1]:443", "unknown", `for=192.0.2.60;proto=http;by=203.0.113.43`, `for="[2001:db8::1]:_x", for=_y`,
		`for="a\"b,c";x=`, `for="`, `;;,,`, `for=1;for=2`, "10.9.9.9,", `=`, `"`, `\`,
	} {
		f.Add(seed)
	}
	const caller = "198.51.100.7"
	p := New(Options{Proxies: testProxies})
	f.Fuzz(func(t *testing.T, client string) {
		if strings.ContainsAny(client, "\r\n\x00") {
			return
		}
		ask := func(headers ...string) string { return p.remote(requestTo(t, "10.0.0.1:5", headers...)).String() }
		if got := ask("X-Forwarded-For", client+", "+caller); got != caller {
			t.Errorf("X-Forwarded-For: %q makes the caller %s", client, got)
		}
		none := netip.Addr{}.String()
		if got := ask("Forwarded", client+", for="+caller); got != caller && got != none {
			t.Errorf("Forwarded: %q makes the caller %s", client, got)
		}
		if got := ask("X-Forwarded-For", caller, "Forwarded", client); got != caller && got != none {
			t.Errorf("Forwarded: %q beside X-Forwarded-For makes the caller %s", client, got)
		}
		if got := ask("X-Forwarded-For", client); got == "10.0.0.1" && !strings.Contains(client, "10.0.0.1") && !strings.Contains(client, ":") {
			t.Errorf("X-Forwarded-For: %q makes the caller the proxy", client)
		}
	})
}
