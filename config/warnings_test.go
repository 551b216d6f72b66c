package config_test

import (
	"fmt"
	"strings"
	"testing"

	"tenantry/config"
)

// TestWarnings checks that settings which are seldom intended give a warning with advice, that unsafe ones are refused,
// and that others give neither.
func TestWarnings(t *testing.T) {
	t.Parallel()
	const gib = 1 << 30
	const mongo = "store: m\ncontrol: m\nbackends: {m: {engine: mongo, uri: 'mongodb://x/'}}\n"
	proxies := func(list ...string) string { return "trusted_proxies: ['" + strings.Join(list, "', '") + "']" }
	first := func(n int, form string) (all []string) {
		for i := range n {
			all = append(all, fmt.Sprintf(form, i))
		}
		return all
	}
	for _, c := range []struct {
		text, environ  string
		memory         uint64
		fault, warning string // parts of it; empty: there is none
	}{
		{text: ""},
		{text: proxies("10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "100.64.0.0/10", "127.0.0.1", "::1", "fc00::/7", "104.16.0.0/13", "2a06:98c0::/29", "198.51.100.0/24")},
		{text: proxies("0.0.0.0/0"), fault: "trusted_proxies: 0.0.0.0/0 holds so many addresses"},
		{text: proxies("::/0"), fault: "trusted_proxies: ::/0 holds so many addresses"},
		{text: proxies("::ffff:0:0/96"), fault: "trusted_proxies: ::ffff:0:0/96 holds so many"},
		{text: proxies("0.0.0.0/1", "128.0.0.0/1"), fault: "0.0.0.0/1, together with 128.0.0.0/1, holds so many"},
		{text: proxies(first(256, "%d.0.0.0/8")...), fault: "0.0.0.0/8, together with 253 more networks, holds so many"}, // 10 and 127 are nobody's
		{text: proxies(first(256, "::ffff:52.%d.0.0/112")...), warning: "::ffff:52.0.0.0/112, together with 255 more networks, is very wide"},
		{text: proxies("52.0.0.0/12", "52.0.0.0/12", "52.0.0.0/13", "52.1.0.0/16")}, // each address counts once
		{text: proxies("52.0.0.0/12", "53.0.0.0/12"), warning: "52.0.0.0/12, together with 53.0.0.0/12, is very wide"},
		{text: proxies("2a00::/16", "2a01::/16"), fault: "2a00::/16, together with 2a01::/16, holds so many"},
		{text: proxies("20.0.0.0/8", "2001:d00::/23"), warning: "20.0.0.0/8 is very wide"}, // by its own kind of addresses
		{text: proxies("10.0.0.0/7"), fault: "name the networks of your own proxies, like 10.0.0.0/8"},
		{text: proxies("2000::/3"), fault: "2000::/3 holds so many"},
		{text: proxies("fc00::/6"), fault: "fc00::/6 holds so many"},
		{text: proxies("20.0.0.0/8"), warning: "trusted_proxies: 20.0.0.0/8 is very wide"},
		{text: proxies("2001:d00::/23"), warning: "trusted_proxies: 2001:d00::/23 is very wide"},
		{text: "public_url: 'https://{slug}.example.com'\nbase_domain: example.com"},
		{text: "public_url: 'https://{slug}.Example.com:8443/'\nbase_domain: example.com"},
		{text: "public_url: 'https://{slug}.example.com'"},
		{text: "public_url: 'https://{slug}.example.com'\nbase_domain: other.example", warning: "base_domain: links are written as https://{slug}.example.com, but only hosts like <slug>.other.example are answered"},
		{text: "public_url: 'https://example.com/{slug}'\nbase_domain: example.com", warning: "set public_url to https://{slug}.example.com"},
		{text: "sqlite: {cache: 512}", memory: gib},
		{text: "sqlite: {cache: 513}", memory: gib, warning: "sqlite.cache: 513 MiB are more than half of the 1024 MiB of memory"},
		{text: "sqlite: {cache: 1025}", memory: gib, fault: "sqlite.cache: 1025 MiB are more than the 1024 MiB of memory that this process may use: set it to 256 or less"},
		{text: "", memory: gib / 8, fault: "sqlite.cache: 256 MiB are more than the 128 MiB"},
		{text: mongo + "sqlite: {cache: 1025}\nfiles: {folder: /shared}", memory: gib},
		{text: mongo, warning: "files.folder: the bytes of files are in the data folder of this process"},
		{text: mongo + "files: {folder: /shared}"},
		{text: mongo + "files: {store: s3, s3: {endpoint: 'https://x', bucket: abc, access_key: a, secret_key: b}}"},
		{text: "memory: {limit: 2000}", memory: gib, warning: "memory.limit: 2000 MiB are more than the 1024 MiB"},
		{environ: "TENANTRY_PORT=tcp://10.0.0.1:80", warning: "environment: TENANTRY_PORT was set by Kubernetes for a Service and is not a setting; it is ignored"},
		{environ: "TENANTRY_PORT=tcp://10.0.0.1:80 TENANTRY_SERVICE_HOST=10.0.0.1 TENANTRY_SERVICE_PORT=80 TENANTRY_SERVICE_PORT_HTTP=80 TENANTRY_PORT_80_TCP=tcp://10.0.0.1:80" +
			" TENANTRY_PORT_80_TCP_PROTO=tcp TENANTRY_PORT_80_TCP_PORT=80 TENANTRY_PORT_80_TCP_ADDR=10.0.0.1 TENANTRY_REDIS_SERVICE_HOST=fd00::1 TENANTRY_REDIS_PORT=tcp://[fd00::1]:6379",
			warning: "environment: TENANTRY_PORT and 9 more variables were set by Kubernetes"},
		{environ: "TENANTRY_PORT=8080", fault: "port: there is no such setting"},
		{environ: "TENANTRY_SERVICE_HOST=example.com", fault: "service_host: there is no such setting"},
		{environ: "TENANTRY_PORTS=tcp://10.0.0.1:80", fault: "ports: there is no such setting"},
	} {
		t.Run(fmt.Sprint(c.text, c.environ, c.memory), func(t *testing.T) {
			t.Parallel()
			if c.memory == 0 {
				c.memory = 64 * gib
			}
			got, err := config.Load(config.Source{File: write(t, c.text), Environ: strings.Fields(c.environ), Memory: c.memory})
			if c.fault == "" && err != nil || c.fault != "" && (err == nil || !strings.Contains(err.Error(), c.fault)) {
				t.Errorf("faults = %v, want %q", err, c.fault)
			}
			var warnings strings.Builder
			for _, d := range got.Warnings {
				if d.Advice == "" {
					t.Errorf("no advice: %+v", d)
				}
				fmt.Fprintf(&warnings, "%s: %s; %s\n", d.About, d.Says, d.Advice)
			}
			if c.warning == "" && len(got.Warnings) > 0 || !strings.Contains(warnings.String(), c.warning) {
				t.Errorf("warnings = %q, want %q", warnings.String(), c.warning)
			}
		})
	}
	if got, err := config.Load(config.Source{}); err != nil || len(got.Warnings) > 0 {
		t.Errorf("on this machine: got %v and warnings %+v, want none", err, got.Warnings)
	}
}
