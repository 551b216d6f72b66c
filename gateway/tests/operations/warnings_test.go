package operations

import (
	"encoding/json"
	"errors"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"tenantry/config"
	"tenantry/gateway"
	"tenantry/gateway/control"
	"tenantry/gateway/gatewaytest"
	"tenantry/gateway/tests/fixture"
)

// warningsOf returns the warnings in the log and those of doctor, as "about: says".
func warningsOf(t *testing.T, g *gatewaytest.Gateway) (warned, found []string) {
	t.Helper()
	for line := range strings.Lines(g.Log.String()) {
		var said struct{ Level, Msg, About, Says, Advice string }
		if json.Unmarshal([]byte(line), &said) == nil && said.Level == "WARN" && said.Msg == "check the settings" && said.Advice != "" {
			warned = append(warned, said.About+": "+said.Says)
		}
	}
	for _, f := range fixture.Findings(t, g, control.Examination{Quick: true}) {
		if f.Verdict == control.Warning && f.Advice != "" {
			found = append(found, f.What+": "+f.Says)
		}
	}
	return warned, found
}

// TestServeAndDoctorGiveTheSameWarnings checks that unusual settings, data folders and proxies are in the server's log,
// once, and in doctor's findings.
func TestServeAndDoctorGiveTheSameWarnings(t *testing.T) {
	t.Parallel()
	above := t.TempDir()
	dir := filepath.Join(above, "data")
	if err := errors.Join(os.Mkdir(dir, 0o750), os.Chmod(dir, 0o750), os.Chmod(above, 0o777)); err != nil {
		t.Fatal(err)
	}
	g := gatewaytest.Start(t, gatewaytest.Embedded, func(c *config.Config, _ *gateway.Options) {
		c.Data, c.PublicURL = dir, "https://{slug}.localhost"
		c.Warnings = []config.Warning{{About: "sqlite.cache", Says: "is large", Advice: "make it smaller"}}
	})
	acme := g.Org(t, "acme")
	want := []string{"sqlite.cache: is large", "data: users other than the owner of " + dir + " may list it (mode 0750)",
		"data: everybody on this machine can replace " + dir + " by another folder, because everybody can write to " + above + " (mode 0777)"}
	warned, found := warningsOf(t, g)
	if !slices.Equal(warned, want) || !slices.Equal(found, want) {
		t.Errorf("serve warns of %q, doctor of %q, want %q", warned, found, want)
	}
	acme.Do(t, http.MethodGet, countPath)
	if warned, _ := warningsOf(t, g); len(warned) != len(want) {
		t.Errorf("a request without a proxy: got %q, want %v", warned, len(want))
	}
	for range 2 {
		acme.Do(t, http.MethodGet, countPath, gatewaytest.Header("X-Forwarded-For", "192.0.2.1"))
	}
	const proxy = "trusted_proxies: requests arrive with X-Forwarded-For or Forwarded, and no proxy is trusted"
	isProxy := func(text string) bool { return strings.HasPrefix(text, proxy) }
	warned, found = warningsOf(t, g)
	if len(warned) != len(want)+1 || !slices.ContainsFunc(warned, isProxy) || !slices.ContainsFunc(found, isProxy) {
		t.Errorf("behind a proxy: serve warns of %q, doctor of %q, want the proxy in both", warned, found)
	}
}
