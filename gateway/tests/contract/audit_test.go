package contract

import (
	"fmt"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"tenantry/gateway/control"
	"tenantry/gateway/gatewaytest"
	"tenantry/gateway/tests/fixture"
	"tenantry/tenants"
)

// TestAuditOverHTTP checks that records of calls and commands are listed newest first, filtered and exported, and that
// callers limited to teams see none.
func TestAuditOverHTTP(t *testing.T) {
	t.Parallel()
	g := gatewaytest.Start(t)
	acme := g.Org(t, "acme", tenants.FeatureTeams)
	ada, _ := acme.Person(t, "ada@example.com", nil)
	reader := fixture.As(acme, gatewaytest.WithKey(acme.Key(t, tenants.ViewAudit)))
	writer := fixture.As(acme, gatewaytest.WithKey(acme.Key(t, tenants.ManageCampaigns)))
	made := writer.Create(t, "/api/campaigns", `{"name":"Spring"}`)
	for range 3 {
		writer.Want(t, http.MethodPut, "/api/campaigns/"+made, `{"name":"Summer"}`, 200, "")
	}
	writer.Want(t, http.MethodPut, "/api/campaigns/"+made, `{"name":7}`, 422, "")
	writer.Want(t, http.MethodPost, "/api/roles", `{"name":"editor"}`, 403, "")

	told := func(as fixture.Client, query string) (operations []string) {
		t.Helper()
		a := as.Want(t, http.MethodGet, "/api/audit?"+query, "", 200, "Audit Records found")
		for _, one := range a.Field("results").([]any) {
			operations = append(operations, one.(map[string]any)["operation"].(string))
		}
		return operations
	}
	for query, want := range map[string][]string{
		"per_page=3": {"roles.create", "campaigns.update", "campaigns.update"},
		"after=&per_page=2&sort=created_at&filters[subject]=command": {"org.create", "user.create"},
		"filters[records]=" + made + "&filters[outcome]=failed":      {"campaigns.update"},
		"filters[operation][starts_with]=roles.":                     {"roles.create"},
		"filters[outcome]=denied":                                    {"roles.create"},
		"filters[created_at][lt]=2001-01-01":                         nil,
		fmt.Sprintf("filters[records]=user:%d", ada.ID):              {"sessions.create", "user.create"},
	} {
		got := told(reader, query)
		if strings.Contains(query, "user:") { // two of one millisecond come in any order
			slices.Sort(got)
			slices.Sort(want)
		}
		if !slices.Equal(got, want) {
			t.Errorf("%s: %v, want %v", query, got, want)
		}
	}

	// The cursor continues where a page ended, and the export equals all pages.
	var pages, lines []string
	for after, n := "", 0; n == 0 || after != ""; n++ {
		a := reader.Want(t, http.MethodGet, "/api/audit?per_page=2&filters[records]="+made+"&after="+url.QueryEscape(after), "", 200, "")
		for _, one := range a.Field("results").([]any) {
			pages = append(pages, one.(map[string]any)["id"].(string))
		}
		after, _ = a.Field("next").(string)
	}
	export := reader.Do(t, http.MethodGet, "/api/audit/export?filters[records]="+made, reader.As)
	for line := range strings.Lines(export.Text()) {
		_, id, _ := strings.Cut(line, `"id":"`)
		lines = append(lines, id[:24])
	}
	if len(pages) != 5 || !slices.Equal(pages, lines) || export.Header.Get("Content-Type") != "application/x-ndjson" {
		t.Errorf("got the pages %v and the export %v (%s), want 5 equal records as application/x-ndjson",
			pages, lines, export.Header.Get("Content-Type"))
	}
	if got := told(reader, "per_page=1"); got[0] != "audit.export" {
		t.Errorf("the export left %v, want got[0] audit.export", got)
	}
	reader.Want(t, http.MethodGet, "/api/audit/export?filters[facts]=1", "", 422, "facts")
	reader.Want(t, http.MethodGet, "/api/audit?sort=facts", "", 422, "sort must name at most")

	team := fixture.As(acme, gatewaytest.WithKey(acme.Key(t, tenants.ManageUsers))).Create(t, "/api/teams", `{"name":"Red"}`)
	limited := fixture.As(acme, gatewaytest.WithKey(acme.KeyWith(t, func(k *control.NewKey) { k.Permissions, k.Teams = []string{"view_audit"}, []string{team} }).Token))
	for _, path := range []string{"/api/audit", "/api/audit/export", "/api/audit/verification", "/api/audit/" + pages[0]} {
		limited.Want(t, http.MethodGet, path, "", 403, "Only callers who are not limited to teams")
		writer.Want(t, http.MethodGet, path, "", 403, "Lacking necessary permission view_audit")
	}
	reader.Want(t, http.MethodGet, "/api/audit/"+pages[0], "", 200, `"records":["`+made+`"]`)
}

// TestAuditLogIsSealed checks that the hourly round seals the audit log, and that callers who may read it can verify
// it.
func TestAuditLogIsSealed(t *testing.T) {
	t.Parallel()
	clock := &fixture.Clock{}
	g := gatewaytest.Start(t, clock.Option)
	acme := g.Org(t, "acme", tenants.FeatureTeams)
	key := acme.Key(t, tenants.ViewAudit)
	writer := fixture.As(acme, gatewaytest.WithKey(acme.Key(t, tenants.ManageCampaigns)))
	const path = "/api/audit/verification"
	told := func(want string) {
		t.Helper()
		a := acme.Get(t, key, path)
		got := regexp.MustCompile(`"until":"[^"]+"`).ReplaceAllString(a.DataJSON(), `"until":"T"`)
		if a.Code != 200 || a.Message != "Audit Log verified" || got != want {
			t.Errorf("got %d %s: %s, want %s", a.Code, a.Message, got, want)
		}
	}
	writer.Create(t, "/api/campaigns", `{"name":"Spring"}`)
	open := len(acme.Get(t, key, "/api/audit").Field("results").([]any))
	told(fmt.Sprintf(`{"intact":true,"records":0,"from":null,"until":null,"faults":[],"unsealed":%d,"next":null}`, open))
	clock.Advance(time.Hour)
	fixture.EmptyTrash(t, g.App)
	told(fmt.Sprintf(`{"intact":true,"records":%d,"from":null,"until":"T","faults":[],"unsealed":0,"next":null}`, open))

	for query, want := range map[string]string{
		"?after=-1": "Validation failed: after must be a whole number, at least 0", "?after=x": "Validation failed: after must be a whole number, at least 0",
	} {
		if a := acme.Get(t, key, path+query); a.Code != 422 || a.Message != want {
			t.Errorf("%s: got %d %s, want 422 and a.Message = %v", query, a.Code, a.Message, want)
		}
	}
	if a := acme.Get(t, acme.Key(t, tenants.ManageCampaigns), path); a.Code != 403 || a.Message != "Lacking necessary permission view_audit" {
		t.Errorf(`got %d %s, want 403 and a.Message = "Lacking necessary permission view_audit"`, a.Code, a.Message)
	}
	if a := g.Org(t, "globex").Get(t, key, path); a.Code != 403 {
		t.Errorf("the key of another organization: got %d, want 403", a.Code)
	}
}
