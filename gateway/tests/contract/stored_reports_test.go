package contract

import (
	"fmt"
	"net/http"
	"regexp"
	"strings"
	"testing"
	"time"

	"tenantry/gateway/control"
	"tenantry/gateway/gatewaytest"
	"tenantry/gateway/tests/fixture"
	"tenantry/tenants"
)

func TestContract_KeepReports(t *testing.T) {
	t.Parallel()
	acme := gatewaytest.Start(t).Org(t, "acme", tenants.FeatureTeams)
	acme.Import(t, fixture.TeamLines()...)
	c := fixture.WithToken(acme, acme.Key(t, tenants.ManageReports))
	limited := fixture.WithToken(acme, acme.KeyWith(t, func(k *control.NewKey) { k.Permissions, k.Teams = []string{"manage_reports"}, []string{fixture.TeamA} }).Token)
	const reports = "/api/custom-reports"
	c.Want(t, 422, http.MethodPost, reports, `{"title":"x","class":"Nothing","visual":"cake","pid":"short"}`, `"class"`, `"visual"`, `"pid"`)
	c.Want(t, 422, http.MethodPost, reports, `{"title":"x","class":"Records","source":"nowhere"}`, "source must name an existing source")
	c.Want(t, 422, http.MethodPost, reports, `{"title":"x","class":"Contacts","query":{"fields":["shoe_size"]}}`, "shoe_size")
	all := reports + "/" + c.Want(t, 200, http.MethodPost, reports, `{"title":"All","class":"Contacts"}`, "Custom Report created", `"secure":true`, `"share_url":"http`).Field("id").(string)
	limited.Want(t, 200, http.MethodGet, reports+"?q=All", "", `"pid":""`, `"share_url":""`)
	for _, body := range []string{`{"secure":false}`, `{"teams":["` + fixture.TeamA + `"]}`} {
		limited.Want(t, 422, http.MethodPut, all, body, `"teams"`)
	}
	limited.Want(t, 422, http.MethodDelete, all, "", `"teams"`)
	c.Want(t, 422, http.MethodPut, all, `{"pid":null}`, "is not a field that can be set here")
	limited.Want(t, 422, http.MethodPost, reports, `{"title":"b","class":"Contacts","teams":["`+fixture.TeamB+`"]}`, `"teams"`)
	own := reports + "/" + limited.Want(t, 200, http.MethodPost, reports, `{"title":"Own","class":"Contacts"}`, fixture.TeamA).Field("id").(string)
	limited.Want(t, 200, http.MethodPut, own, `{"secure":false}`, "Custom Report updated", "!\"pid\":\"\"")
	limited.Want(t, 422, http.MethodPut, own, `{"teams":[]}`, `"teams"`)
	limited.Want(t, 200, http.MethodDelete, own, "", "Custom Report deleted")
	limited.Want(t, 200, http.MethodPost, own+"/restore", "", "Custom Report restored")
	c.Want(t, 200, http.MethodDelete, own+"?purge=true", "")
	c.Want(t, 404, http.MethodGet, own, "")
}

// TestContract_AllFaultsOfAReportAreReported checks that all faults of a report are reported together, and that a
// preview is checked like a stored report.
func TestContract_AllFaultsOfAReportAreReported(t *testing.T) {
	t.Parallel()
	acme := gatewaytest.Start(t).Org(t, "acme", tenants.FeatureTeams)
	c := fixture.WithToken(acme, acme.Key(t, tenants.ManageReports))
	for _, path := range []string{"/api/custom-reports", "/api/custom-reports/preview"} {
		c.Want(t, 422, http.MethodPost, path, `{"title":"","class":"Contacts","query":{"fields":["shoe"]},"child_reports":["`+fixture.DocID(1)+`"],"teams":["`+fixture.DocID(2)+`"]}`,
			`"field":"title"`, `"field":"query.fields`, `"field":"child_reports"`, `"field":"teams"`)
		a := c.Want(t, 422, http.MethodPost, path, `{"title":"","class":"Records","source":""}`, `"field":"title"`, `"field":"source"`)
		if faults := regexp.MustCompile(`"field":`).FindAllString(a.Text(), -1); len(faults) != 2 {
			t.Errorf("a fault is told twice: got %s, want 2", a.Body)
		}
	}
}

// TestContract_ReportFields checks that the offered fields are those that reports accept.
func TestContract_ReportFields(t *testing.T) {
	t.Parallel()
	acme := gatewaytest.Start(t).Org(t, "acme")
	c := fixture.WithToken(acme, acme.Key(t, tenants.ManageReports, tenants.ManageCustomObjects))
	const path = "/api/custom-reports/fields"
	c.Want(t, 200, http.MethodPost, "/api/custom/objects", `{"name":"bike","label":"Bike","label_plural":"Bikes","schema":{"size":{"title":"Size","type":"Number"},"pin":{"title":"Pin","type":"Encrypted"},"sold":{"title":"Sold","type":"Date"},"tags":{"title":"Tags","type":"MultiSelect"}}}`)
	c.Want(t, 200, http.MethodGet, path, "", `{"name":"Contacts","needs_source":false,"source_of":""}`, `{"name":"Records","needs_source":true,"source_of":"custom_object"}`, `"source_of":"form_collection"`, `"fields":[]`)
	c.Want(t, 200, http.MethodGet, path+"?class=Records", "", `"fields":[]`)
	c.Want(t, 200, http.MethodGet, path+"?class=Records&source=bike", "", `{"name":"size","title":"Size","type":"number","operators":["eq","ne","gt","gte","lt","lte","in","nin","exists"],"measures":["sum","avg","min","max","distinct"],"groups":true,"by":[]}`,
		`{"name":"sold","title":"Sold","type":"date","operators":["eq","ne","gt","gte","lt","lte","in","nin","exists"],"measures":["min","max","distinct"],"groups":true,"by":["day","week","month","quarter","year"]}`,
		`{"name":"tags","title":"Tags","type":"list","operators":["eq","ne","in","nin","contains","exists"],"measures":[],"groups":false,"by":[]}`, "!pin")
	c.Want(t, 422, http.MethodGet, path+"?class=Records&source=none", "", `"field":"source"`)
	c.Want(t, 422, http.MethodGet, path+"?class=Nothing", "", `"field":"class"`)
	fixture.WithToken(acme, acme.Key(t, tenants.ManageForms)).Want(t, 403, http.MethodGet, path, "", "manage_reports")
	c.Want(t, 422, http.MethodPost, "/api/custom-reports", `{"title":"x","class":"Contacts","input":{"a":{"rule":"editable","type":"number","value":"3","choices":["1","x","1",""]}}}`,
		"input.a.value must be one of the choices", "input.a.choices must be a number", `names \"1\" twice`, "choices must not be empty")
}

// TestContract_PurgedReportEndsItsTokens checks that its tokens do not open another report with the same address.
func TestContract_PurgedReportEndsItsTokens(t *testing.T) {
	t.Parallel()
	acme := gatewaytest.Start(t).Org(t, "acme")
	c := fixture.WithToken(acme, acme.Key(t, tenants.ManageReports))
	const path, pid = "/api/custom-reports", "abcdefghijklmnop1234"
	made := func(title string) (id, token string) {
		id = c.Want(t, 200, http.MethodPost, path, `{"title":"`+title+`","class":"Contacts","pid":"`+pid+`"}`).Field("id").(string)
		return id, c.Want(t, 200, http.MethodPost, path+"/"+id+"/share", `{}`).Field("token").(string)
	}
	first, old := made("One")
	c.Want(t, 200, http.MethodGet, "/api/reports/shared/"+pid+"?token="+old, "", "One")
	for range 10 {
		c.Want(t, 200, http.MethodPost, path+"/"+first+"/share", `{}`)
	}
	before, err := acme.Tenant(t).Workspace().Documents(t.Context())
	c.Want(t, 200, http.MethodDelete, path+"/"+first+"?purge=true", "")
	after, more := acme.Tenant(t).Workspace().Documents(t.Context()) // with what the purge itself makes: an audit record, a revocation
	if before-after < 8 || err != nil || more != nil {
		t.Errorf("got %d documents before and %d after the purge (%v, %v), want at least 8 fewer",
			before, after, err, more)
	}
	_, fresh := made("Other")
	c.Want(t, 403, http.MethodGet, "/api/reports/shared/"+pid+"?token="+old, "", "!Other")
	c.Want(t, 200, http.MethodGet, "/api/reports/shared/"+pid+"?token="+fresh, "", "Other")
}

// TestReportsOfALimitedCallerAreOneQuery checks that the children of all reports are read with one query.
func TestReportsOfALimitedCallerAreOneQuery(t *testing.T) {
	t.Parallel()
	acme := gatewaytest.Start(t).Org(t, "acme", tenants.FeatureTeams)
	acme.Import(t, fixture.TeamLines()...)
	limited := fixture.WithToken(acme, acme.KeyWith(t, func(k *control.NewKey) { k.Permissions, k.Teams = []string{"manage_reports"}, []string{fixture.TeamA} }).Token)
	const reports = "/api/custom-reports"
	calls := func(id string) int {
		if a := acme.Do(t, http.MethodGet, reports, gatewaytest.WithKey(limited.Token), gatewaytest.Header("X-Request-Id", id)); a.Code != 200 || strings.Contains(a.Text(), `"pid":""`) {
			t.Fatalf(`got %d %s, want 200 and nothing containing "\"pid\":\"\""`, a.Code, a.Body)
		}
		return fixture.Logged(t, acme.Gateway, id).StoreCalls
	}
	before := 0
	for i := range 20 {
		child := limited.Want(t, 200, http.MethodPost, reports, `{"title":"child","class":"Contacts"}`).Field("id").(string)
		limited.Want(t, 200, http.MethodPost, reports, fmt.Sprintf(`{"title":"r%d","class":"Contacts","child_reports":[%q]}`, i, child))
		if i == 0 {
			before = calls("before-the-others")
		}
	}
	if after := calls("after-the-others"); after > before+3 { // the organization, the key and its account may be read anew
		t.Errorf("the store was asked %d times for one report with a child, and %d times for 20, want at most %v",
			before, after, before+3)
	}
}

// TestContract_ListsInTheOrderOfTime checks that short lists begin with the newest records.
func TestContract_ListsInTheOrderOfTime(t *testing.T) {
	t.Parallel()
	acme := gatewaytest.Start(t).Org(t, "acme")
	c := fixture.WithToken(acme, acme.Key(t, tenants.AllPermissions()...))
	for path, body := range map[string]string{
		"/api/custom-reports": `{"title":"%s","class":"Contacts"}`, fixture.ObjectsPath: `{"name":"%[1]s","label":"%[1]s","label_plural":"%[1]s"}`, "/api/form/collections": `{"name":"%[1]s","label":"%[1]s","label_plural":"%[1]s"}`,
	} {
		c.Want(t, 200, http.MethodPost, path, fmt.Sprintf(body, "older"))
		time.Sleep(2 * time.Millisecond) // times are in milliseconds
		c.Want(t, 200, http.MethodPost, path, fmt.Sprintf(body, "newer"))
		for sort, first := range map[string]string{"-created_at": "newer", "created_at": "older"} {
			c.Want(t, 200, http.MethodGet, path+"?per_page=1&sort="+sort, "", first)
		}
	}
}
