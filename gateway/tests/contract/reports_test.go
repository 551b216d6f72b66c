package contract

import (
	"net/http"
	"strconv"
	"testing"

	"tenantry/gateway/control"
	"tenantry/gateway/gatewaytest"
	"tenantry/gateway/tests/fixture"
)

const (
	missingReport = `{"status":"failed","message":"Custom Report not found","data":[]}`
)

func TestContract_CustomReport(t *testing.T) {
	t.Parallel()
	g := gatewaytest.Start(t)
	acme, plain := g.Org(t, "acme", "teams"), g.Org(t, "plain")
	acme.Import(t, fixture.ReportLines()...)
	plain.Import(t, fixture.ReportLines()...)
	with := []gatewaytest.Request{gatewaytest.WithKey(acme.Key(t))}

	a := acme.Do(t, http.MethodGet, fixture.ReportPath+fixture.DocID(fixture.ReportOpen), with...)
	if a.Code != http.StatusOK || a.Status != "ok" || a.Message != "Custom Report found" {
		t.Fatalf(`got %d %s, want %v and a.Status = "ok" and a.Message = "Custom Report found"`,
			a.Code, a.Text(), http.StatusOK)
	}
	data := a.DataJSON()
	fixture.WantMembers(t, data, "id", "pid", "title", "class", "secure", "portal_visible", "teams", "input", "share_url",
		"desc", "source", "query", "shareable", "exportable", "visual", "visual_props", "folder", "parent", "row_key", "actions", "child_reports", "created_at", "updated_at")
	for name, want := range map[string]string{
		"id": strconv.Quote(fixture.DocID(fixture.ReportOpen)), "pid": strconv.Quote(fixture.OpenPID), "title": `"Countries"`, "class": `"Contacts"`, "secure": "false", "portal_visible": "true",
		"teams": "[]", "input": `{"status":{"rule":"editable","value":"active"}}`, "share_url": strconv.Quote(fixture.BaseURL(acme) + "/shared/reports/" + fixture.OpenPID),
		"desc": `"Who is where"`, "visual": `"bar"`, "visual_props": `{"stacked":true}`, "folder": `"Sales"`, "row_key": `"country"`, "exportable": "true",
		"actions": `{"delete":{"label":"Delete"}}`, "child_reports": "[]",
	} {
		fixture.WantMember(t, data, want, name)
	}
	if n := len(formTimes.FindAllString(data, -1)); n != 2 {
		t.Errorf("created_at and updated_at are no RFC 3339 times with milliseconds: got %s, want 2", data)
	}
	secure := acme.Do(t, http.MethodGet, fixture.ReportPath+fixture.DocID(fixture.ReportSecure), with...)
	fixture.WantMember(t, secure.DataJSON(), "true", "secure")
	locked := acme.Do(t, http.MethodGet, fixture.ReportPath+fixture.DocID(fixture.ReportLocked), with...)
	fixture.WantMember(t, locked.DataJSON(), `{"rule":"locked","value":"DE"}`, "input", "region")
	fixture.WantMember(t, acme.Do(t, http.MethodGet, fixture.ReportPath+fixture.DocID(fixture.ReportStranger), with...).DataJSON(), `["`+fixture.TeamA+`"]`, "teams")
	if off := plain.Get(t, plain.Key(t), fixture.ReportPath+fixture.DocID(fixture.ReportStranger)); off.Code != http.StatusOK || fixture.Member(t, off.DataJSON(), "teams") != "" {
		t.Errorf("without the feature: got %s, want no teams", off.Text())
	}
	read := acme.KeyWith(t, func(k *control.NewKey) { k.Kind = "server_read" }).Token
	fixture.WantBody(t, acme.Get(t, read, fixture.ReportPath+fixture.DocID(fixture.ReportOpen)), http.StatusOK, a.Text())
	checkRows(t, acme, []exactRow{
		{name: "absent", path: fixture.ReportPath + fixture.AbsentID, with: with, code: 404, body: missingReport},
		{name: "malformed", path: fixture.ReportPath + "x", with: with, code: 404, body: missingReport},
		{name: "a pid is no id", path: fixture.ReportPath + fixture.OpenPID, with: with, code: 404, body: missingReport},
		{name: "out of scope", path: fixture.ReportPath + fixture.DocID(fixture.ReportStranger) + "?teams[]=" + fixture.TeamB, with: with, code: 404, body: missingReport},
		{name: "no key", path: fixture.ReportPath + fixture.DocID(fixture.ReportOpen), code: 403, body: fixture.DeniedBody},
		{name: "bad key", path: fixture.ReportPath + fixture.DocID(fixture.ReportOpen), with: []gatewaytest.Request{gatewaytest.WithKey("nonsense")}, code: 403, body: fixture.DeniedBody},
	})
}
