package load

import (
	"fmt"
	"net/http"
	"regexp"
	"runtime"
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

// TestCachedOrganizationsAreBounded calls three times as many organizations as may be cached, once each, on shared
// files and on separate files. At the end no more than the bound are cached.
func TestCachedOrganizationsAreBounded(t *testing.T) {
	t.Parallel()
	const most = 32
	figure := regexp.MustCompile(`(?m)^tenantry_kept\{of="(.*)"\} (\d+)$`)
	for name, isolate := range map[string]gatewaytest.Option{"shared": gatewaytest.SharedFiles, "file": gatewaytest.OwnFiles} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			g := gatewaytest.Start(t, isolate, func(c *config.Config, _ *gateway.Options) {
				c.Memory.Organizations, c.SQLite.MaxOpenFiles = most, most/4
			})
			kept := func() map[string]int {
				_, _, figures := fixture.CallAdmin(t, g, http.MethodGet, "/metrics")
				of := map[string]int{}
				for _, found := range figure.FindAllStringSubmatch(figures, -1) {
					of[found[1]], _ = strconv.Atoi(found[2])
				}
				return of
			}
			// settled returns the numbers of cached entries after a garbage collection has removed unused ones.
			settled := func() (of map[string]int, least int) {
				for range 2 { // what was counted is stored, and its organizations are let go where nobody asks again
					g.App.FlushUsage(t.Context())
				}
				for deadline := time.Now().Add(20 * time.Second); time.Now().Before(deadline); time.Sleep(10 * time.Millisecond) {
					runtime.GC()
					most := most
					if of = kept(); of["homes"] <= most && of["opened"] <= most+1 && of["slugs"] <= most && of["backend.default"] <= 2*most {
						break
					}
				}
				for _, n := range of {
					least = max(least, n)
				}
				return of, least
			}
			var file strings.Builder
			for i := range 3 * most {
				fmt.Fprintf(&file, "{\"slug\":\"o%d\",\"name\":\"O\"}\n", i)
			}
			if report, err := fixture.CreateOrganizations(t.Context(), t, g, strings.NewReader(file.String()), false, nil); err != nil || report.Failed > 0 {
				t.Fatalf("got %+v, %v, want no error and report.Failed <= 0", report, err)
			}
			for i := range 3 * most {
				o := &gatewaytest.Org{Gateway: g, Slug: fmt.Sprint("o", i), Host: fmt.Sprint("o", i, ".localhost")}
				if _, err := g.App.Directory().DataKeys(t.Context(), o.Tenant(t), "fields"); err != nil {
					t.Fatal(err)
				}
				if a := o.Get(t, o.Key(t, tenants.Contacts), "/api/contacts"); a.Code != http.StatusOK {
					t.Fatalf("got %d %s, want %v", a.Code, a.Body, http.StatusOK)
				}
				if i%most != most-1 {
					continue
				}
				of, highest := settled()
				t.Logf("after %d organizations: %v", i+1, of)
				if of["organizations"] == 0 || of["data_keys"] == 0 || of["keys"] == 0 || of["homes"] == 0 || of["backend.default"] == 0 {
					t.Errorf("tenantry_kept = %v, want more than 0 of each", of)
				}
				if highest > 2*most {
					t.Errorf("after %d organizations, of which %d are to be kept: got %v, want at most %v",
						i+1, most, of, 2*most)
				}
			}
		})
	}
}
