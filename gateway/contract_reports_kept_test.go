package gateway_test

import (
	"fmt"
	"regexp"
	"strings"
	"testing"
	"time"

	"tenantry/gateway/control"
	"tenantry/gateway/gatewaytest"
	"tenantry/tenants"
)

func TestContract_KeepReports(t *testing.T) {
	t.Parallel()
	acme := gatewaytest.Start(t).Org(t, "acme", tenants.FeatureTeams)
	acme.Import(t, bundleTeams()...)
	c := asking{acme, acme.Key(t, tenants.ManageReports)}
	limited := asking{acme, acme.KeyWith(t, func(k *control.NewKey) { k.Permissions, k.Teams = []string{"manage_reports"}, []string{teamA} }).Token}
	const reports = "/api/custom-reports"
	c.do(t, 422, posted, reports, `{"title":"x","class":"Nothing","visual":"cake","pid":"short"}`, `"class"`, `"visual"`, `"pid"`)
	c.do(t, 422, posted, reports, `{"title":"x","class":"Records","source":"nowhere"}`, "source names nothing")
	c.do(t, 422, posted, reports, `{"title":"x","class":"Contacts","query":{"fields":["shoe_size"]}}`, "shoe_size")
	all := reports + "/" + c.do(t, 200, posted, reports, `{"title":"All","class":"Contacts"}`, "Custom Report created", `"secure":true`, `"share_url":"http`).Field("id").(string)
	limited.do(t, 200, get, reports+"?q=All", "", `"pid":""`, `"share_url":""`)
	for _, body := range []string{`{"secure":false}`, `{"teams":["` + teamA + `"]}`} {
		limited.do(t, 422, change, all, body, `"teams"`)
	}
	limited.do(t, 422, del, all, "", `"teams"`)
	c.do(t, 422, change, all, `{"pid":null}`, "is no field that can be set here")
	limited.do(t, 422, posted, reports, `{"title":"b","class":"Contacts","teams":["`+teamB+`"]}`, `"teams"`)
	own := reports + "/" + limited.do(t, 200, posted, reports, `{"title":"Own","class":"Contacts"}`, teamA).Field("id").(string)
	limited.do(t, 200, change, own, `{"secure":false}`, "Custom Report updated", "!\"pid\":\"\"")
	limited.do(t, 422, change, own, `{"teams":[]}`, `"teams"`)
	limited.do(t, 200, del, own, "", "Custom Report deleted")
	limited.do(t, 200, posted, own+"/restore", "", "Custom Report restored")
	c.do(t, 200, del, own+"?purge=true", "")
	c.do(t, 404, get, own, "")
}

// TestContract_ReportsAreHeldToEverything: everything wrong with a report is told at once, and a preview is held to what
// a report that is stored is held to.
func TestContract_ReportsAreHeldToEverything(t *testing.T) {
	t.Parallel()
	acme := gatewaytest.Start(t).Org(t, "acme", tenants.FeatureTeams)
	c := asking{acme, acme.Key(t, tenants.ManageReports)}
	for _, path := range []string{"/api/custom-reports", "/api/custom-reports/preview"} {
		c.do(t, 422, posted, path, `{"title":"","class":"Contacts","query":{"fields":["shoe"]},"child_reports":["`+docID(1)+`"],"teams":["`+docID(2)+`"]}`,
			`"field":"title"`, `"field":"query.fields`, `"field":"child_reports"`, `"field":"teams"`)
		a := c.do(t, 422, posted, path, `{"title":"","class":"Records","source":""}`, `"field":"title"`, `"field":"source"`)
		if faults := regexp.MustCompile(`"field":`).FindAllString(a.Text(), -1); len(faults) != 2 {
			t.Errorf("a fault is told twice: %s", a.Body)
		}
	}
}

// TestContract_ReportFields: what a report can ask is told as it is held to.
func TestContract_ReportFields(t *testing.T) {
	t.Parallel()
	acme := gatewaytest.Start(t).Org(t, "acme")
	c := asking{acme, acme.Key(t, tenants.ManageReports, tenants.ManageCustomObjects)}
	const path = "/api/custom-reports/fields"
	c.do(t, 200, posted, "/api/custom/objects", `{"name":"bike","label":"Bike","label_plural":"Bikes","schema":{"size":{"title":"Size","type":"Number"},"pin":{"title":"Pin","type":"Encrypted"},"sold":{"title":"Sold","type":"Date"},"tags":{"title":"Tags","type":"MultiSelect"}}}`)
	c.do(t, 200, get, path, "", `{"name":"Contacts","needs_source":false,"source_of":""}`, `{"name":"Records","needs_source":true,"source_of":"custom_object"}`, `"source_of":"form_collection"`, `"fields":[]`)
	c.do(t, 200, get, path+"?class=Records", "", `"fields":[]`)
	c.do(t, 200, get, path+"?class=Records&source=bike", "", `{"name":"size","title":"Size","type":"number","operators":["eq","ne","gt","gte","lt","lte","in","nin","exists"],"measures":["sum","avg","min","max","distinct"],"groups":true,"by":[]}`,
		`{"name":"sold","title":"Sold","type":"date","operators":["eq","ne","gt","gte","lt","lte","in","nin","exists"],"measures":["min","max","distinct"],"groups":true,"by":["day","week","month","quarter","year"]}`,
		`{"name":"tags","title":"Tags","type":"list","operators":["eq","ne","in","nin","contains","exists"],"measures":[],"groups":false,"by":[]}`, "!pin")
	c.do(t, 422, get, path+"?class=Records&source=none", "", `"field":"source"`)
	c.do(t, 422, get, path+"?class=Nothing", "", `"field":"class"`)
	asking{acme, acme.Key(t, tenants.ManageForms)}.do(t, 403, get, path, "", "manage_reports")
	c.do(t, 422, posted, "/api/custom-reports", `{"title":"x","class":"Contacts","input":{"a":{"rule":"editable","type":"number","value":"3","choices":["1","x","1",""]}}}`,
		"input.a.value must be one of the choices", "input.a.choices must be a number", `names \"1\" twice`, "no choice is empty")
}

// TestContract_APurgedReportTakesItsTokens: another report of the same address is not opened by them.
func TestContract_APurgedReportTakesItsTokens(t *testing.T) {
	t.Parallel()
	acme := gatewaytest.Start(t).Org(t, "acme")
	c := asking{acme, acme.Key(t, tenants.ManageReports)}
	const path, pid = "/api/custom-reports", "abcdefghijklmnop1234"
	made := func(title string) (id, token string) {
		id = c.do(t, 200, posted, path, `{"title":"`+title+`","class":"Contacts","pid":"`+pid+`"}`).Field("id").(string)
		return id, c.do(t, 200, posted, path+"/"+id+"/share", `{}`).Field("token").(string)
	}
	first, old := made("One")
	c.do(t, 200, get, "/api/reports/shared/"+pid+"?token="+old, "", "One")
	for range 10 {
		c.do(t, 200, posted, path+"/"+first+"/share", `{}`)
	}
	before, err := acme.Tenant(t).Workspace().Documents(t.Context())
	c.do(t, 200, del, path+"/"+first+"?purge=true", "")
	after, more := acme.Tenant(t).Workspace().Documents(t.Context()) // with what the purge itself makes: an audit record, a revocation
	if before-after < 8 || err != nil || more != nil {
		t.Errorf("%d documents, and %d after the purge (%v, %v)", before, after, err, more)
	}
	_, fresh := made("Other")
	c.do(t, 403, get, "/api/reports/shared/"+pid+"?token="+old, "", "!Other")
	c.do(t, 200, get, "/api/reports/shared/"+pid+"?token="+fresh, "", "Other")
}

// TestReportsOfALimitedCallerAreOneQuestion: whatever their number, their children are asked for once.
func TestReportsOfALimitedCallerAreOneQuestion(t *testing.T) {
	t.Parallel()
	acme := gatewaytest.Start(t).Org(t, "acme", tenants.FeatureTeams)
	acme.Import(t, bundleTeams()...)
	limited := asking{acme, acme.KeyWith(t, func(k *control.NewKey) { k.Permissions, k.Teams = []string{"manage_reports"}, []string{teamA} }).Token}
	const reports = "/api/custom-reports"
	calls := func(id string) int {
		if a := acme.Do(t, get, reports, gatewaytest.WithKey(limited.key), gatewaytest.Header("X-Request-Id", id)); a.Code != 200 || strings.Contains(a.Text(), `"pid":""`) {
			t.Fatalf("%d %s", a.Code, a.Body)
		}
		return logged(t, acme.Gateway, id).StoreCalls
	}
	before := 0
	for i := range 20 {
		child := limited.do(t, 200, posted, reports, `{"title":"child","class":"Contacts"}`).Field("id").(string)
		limited.do(t, 200, posted, reports, fmt.Sprintf(`{"title":"r%d","class":"Contacts","child_reports":[%q]}`, i, child))
		if i == 0 {
			before = calls("before-the-others")
		}
	}
	if after := calls("after-the-others"); after > before+3 { // the organization, the key and its account may be read anew
		t.Errorf("the store was asked %d times for one report with a child, and %d times for 20", before, after)
	}
}

// TestContract_ListsInTheOrderOfTime: what organizations make few of is listed with the newest first.
func TestContract_ListsInTheOrderOfTime(t *testing.T) {
	t.Parallel()
	acme := gatewaytest.Start(t).Org(t, "acme")
	c := asking{acme, acme.Key(t, tenants.AllPermissions()...)}
	for path, body := range map[string]string{
		"/api/custom-reports": `{"title":"%s","class":"Contacts"}`, objectsPath: `{"name":"%[1]s","label":"%[1]s","label_plural":"%[1]s"}`, "/api/form/collections": `{"name":"%[1]s","label":"%[1]s","label_plural":"%[1]s"}`,
	} {
		c.do(t, 200, posted, path, fmt.Sprintf(body, "older"))
		time.Sleep(2 * time.Millisecond) // times are in milliseconds
		c.do(t, 200, posted, path, fmt.Sprintf(body, "newer"))
		for sort, first := range map[string]string{"-created_at": "newer", "created_at": "older"} {
			c.do(t, 200, get, path+"?per_page=1&sort="+sort, "", first)
		}
	}
}
