package compliance

import (
	"testing"

	"tenantry/backends/enginetest"
	"tenantry/operation/schematest"
	"tenantry/tenants"
)

func TestSchema(t *testing.T) {
	t.Parallel()
	bench := schematest.Open(t, enginetest.Open(t), New(Deps{}))
	const want = `{"schema":{"enabled":{"type":"boolean","label":"Enable compliance","default":false},` +
		`"lesson_tags_all":{"type":"array","label":"Lesson tags (all)","description":"A lesson counts only if it has every one of these tags."},` +
		`"lesson_tags_any":{"type":"array","label":"Lesson tags (any)","description":"A lesson counts only if it has at least one of these tags."},` +
		`"submission_enabled":{"type":"boolean","label":"Include form submissions","default":false}}}`
	admin := &tenants.Principal{Kind: tenants.Person, UserID: 1, Admin: true}
	got := bench.Do(t, schematest.Request{Operation: "compliance.schema", Principal: admin})
	if got.Code != 200 || got.Status != "ok" || got.Message != "Compliance configuration schema" || got.Data != want {
		t.Errorf("got  %+v\nwant %s", got, want)
	}
	strongest := schematest.Key()
	strongest.Admin = true // no service account can be one, whatever it claims
	for who, p := range map[string]*tenants.Principal{
		"key with everything": strongest,
		"person":              {Kind: tenants.Person, UserID: 2, Permissions: tenants.AllPermissions()},
	} {
		got := bench.Do(t, schematest.Request{Operation: "compliance.schema", Principal: p})
		if got.Code != 403 || got.Message != "Manage Compliance" || got.Data != `{"permission":"Manage Compliance"}` {
			t.Errorf(`%s: got %+v, want 403 and got.Message = "Manage Compliance" and got.Data = "{\"permission\":\"Manage Compliance\"}"`,
				who, got)
		}
	}
}
