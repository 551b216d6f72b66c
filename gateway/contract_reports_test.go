package gateway_test

import (
	"net/http"
	"strconv"
	"testing"

	"tenantry/gateway/control"
	"tenantry/gateway/gatewaytest"
)

const (
	reportPath     = "/api/custom-reports/"
	missingReport  = `{"status":"failed","message":"Custom Report not found","data":[]}`
	openPID        = "open-report-0123456789"
	lockedPID      = "lock-report-0123456789"
	securePID      = "safe-report-0123456789"
	bundlePID      = "pack-report-0123456789"
	reportOpen     = 0x21
	reportLocked   = 0x22
	reportSecure   = 0x23
	reportBundle   = 0x24
	reportChild    = 0x25
	reportStranger = 0x26
)

// reportLines are five contacts and a report of each sort.
func reportLines() []string {
	const query = `"query":{"filter":{"status":{"input":"status"}},"group_by":[{"field":"country"}],"measures":[{"op":"count"}],"sort":["country"],"limit":10}`
	const locked = `"query":{"filter":{"country":{"input":"region"},"status":{"input":"status"}},"fields":["email"],"sort":["email"]}`
	const inputs = `"input":{"region":{"rule":"locked","value":"DE"},"status":{"rule":"editable","value":"active"}}`
	contact := func(id int, email, country, status, team string) string {
		return `{"kind":"contact","id":"` + docID(id) + `","email":"` + email + `","country":"` + country + `","status":"` + status + `"` + team + `}`
	}
	return append(bundleTeams(),
		contact(1, "ada@example.com", "DE", "active", ""), contact(2, "bob@example.com", "DE", "inactive", ""),
		contact(3, "cyd@example.com", "FR", "active", ""), contact(4, "dan@example.com", "DE", "active", `,"teams":["`+teamA+`"]`),
		`{"kind":"custom_report","id":"`+docID(reportOpen)+`","pid":"`+openPID+`","title":"Countries","secure":false,"desc":"Who is where","class":"Contacts",`+query+
			`,"input":{"status":{"rule":"editable","value":"active"}},"visual":"bar","visual_props":{"stacked":true},"folder":"Sales","row_key":"country",`+
			`"exportable":true,"portal_visible":true,"actions":{"delete":{"label":"Delete"}}}`,
		`{"kind":"custom_report","id":"`+docID(reportLocked)+`","pid":"`+lockedPID+`","title":"Locked","secure":false,"class":"Contacts",`+locked+`,`+inputs+`,"visual":"table"}`,
		`{"kind":"custom_report","id":"`+docID(reportSecure)+`","pid":"`+securePID+`","title":"Secure","class":"Contacts","secure":true,`+query+
			`,"input":{"status":{"rule":"editable","value":"active"}},"visual":"table"}`,
		`{"kind":"custom_report","id":"`+docID(reportBundle)+`","pid":"`+bundlePID+`","title":"Bundle","secure":false,"class":"Contacts","query":{"measures":[{"op":"count"}]},"visual":"number",`+
			`"child_reports":["`+docID(reportChild)+`"]}`,
		`{"kind":"custom_report","id":"`+docID(reportChild)+`","title":"Child","secure":false,"class":"Contacts",`+query+
			`,"input":{"status":{"rule":"editable","value":"active"}},"visual":"pie"}`,
		`{"kind":"custom_report","id":"`+docID(reportStranger)+`","title":"Stranger","class":"Contacts","query":{"measures":[{"op":"count"}]},"visual":"number","teams":["`+teamA+`"]}`)
}

func TestContract_CustomReport(t *testing.T) {
	t.Parallel()
	g := gatewaytest.Start(t)
	acme, plain := g.Org(t, "acme", "teams"), g.Org(t, "plain")
	acme.Import(t, reportLines()...)
	plain.Import(t, reportLines()...)
	with := []gatewaytest.Request{gatewaytest.WithKey(acme.Key(t))}

	a := acme.Do(t, http.MethodGet, reportPath+docID(reportOpen), with...)
	if a.Code != http.StatusOK || a.Status != "ok" || a.Message != "Custom Report found" {
		t.Fatalf("%d %s", a.Code, a.Text())
	}
	data := a.DataJSON()
	wantMembers(t, data, "id", "pid", "title", "class", "secure", "portal_visible", "teams", "input", "share_url",
		"desc", "source", "query", "shareable", "exportable", "visual", "visual_props", "folder", "parent", "row_key", "actions", "child_reports", "created_at", "updated_at")
	for name, want := range map[string]string{
		"id": strconv.Quote(docID(reportOpen)), "pid": strconv.Quote(openPID), "title": `"Countries"`, "class": `"Contacts"`, "secure": "false", "portal_visible": "true",
		"teams": "[]", "input": `{"status":{"rule":"editable","value":"active"}}`, "share_url": strconv.Quote(baseURL(acme) + "/shared/reports/" + openPID),
		"desc": `"Who is where"`, "visual": `"bar"`, "visual_props": `{"stacked":true}`, "folder": `"Sales"`, "row_key": `"country"`, "exportable": "true",
		"actions": `{"delete":{"label":"Delete"}}`, "child_reports": "[]",
	} {
		wantMember(t, data, want, name)
	}
	if n := len(formTimes.FindAllString(data, -1)); n != 2 {
		t.Errorf("created_at and updated_at are no RFC 3339 times with milliseconds: %s", data)
	}
	secure := acme.Do(t, http.MethodGet, reportPath+docID(reportSecure), with...)
	wantMember(t, secure.DataJSON(), "true", "secure")
	locked := acme.Do(t, http.MethodGet, reportPath+docID(reportLocked), with...)
	wantMember(t, locked.DataJSON(), `{"rule":"locked","value":"DE"}`, "input", "region")
	wantMember(t, acme.Do(t, http.MethodGet, reportPath+docID(reportStranger), with...).DataJSON(), `["`+teamA+`"]`, "teams")
	if off := plain.Get(t, plain.Key(t), reportPath+docID(reportStranger)); off.Code != http.StatusOK || member(t, off.DataJSON(), "teams") != "" {
		t.Errorf("without the feature: %s", off.Text())
	}
	read := acme.KeyWith(t, func(k *control.NewKey) { k.Kind = "server_read" }).Token
	wantBody(t, acme.Get(t, read, reportPath+docID(reportOpen)), http.StatusOK, a.Text())
	checkRows(t, acme, []exactRow{
		{name: "absent", path: reportPath + absentID, with: with, code: 404, body: missingReport},
		{name: "malformed", path: reportPath + "x", with: with, code: 404, body: missingReport},
		{name: "a pid is no id", path: reportPath + openPID, with: with, code: 404, body: missingReport},
		{name: "out of scope", path: reportPath + docID(reportStranger) + "?teams[]=" + teamB, with: with, code: 404, body: missingReport},
		{name: "no key", path: reportPath + docID(reportOpen), code: 403, body: deniedBody},
		{name: "bad key", path: reportPath + docID(reportOpen), with: []gatewaytest.Request{gatewaytest.WithKey("nonsense")}, code: 403, body: deniedBody},
	})
}
