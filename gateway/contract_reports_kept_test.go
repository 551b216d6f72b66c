package gateway_test

import (
	"testing"

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
