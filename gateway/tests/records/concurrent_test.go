package records

import (
	"bytes"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"testing"

	"tenantry/gateway/gatewaytest"
	"tenantry/gateway/tests/fixture"
	"tenantry/modules/imports/bundle"
	"tenantry/tenants"
)

// TestConcurrent_PurgedPreconditionsRefuseTheWrite checks that a record is not created if something it was made from is
// purged after the call has read it, and that nothing of it remains for a new record with the same name.
func TestConcurrent_PurgedPreconditionsRefuseTheWrite(t *testing.T) {
	t.Parallel()
	other := fixture.DocID(0xfff)
	const (
		object = `{"name":"tree","label":"Tree","label_plural":"Trees","schema":{"kind":{"title":"Kind","type":"Text"}}}`
		field  = `{"key":"pin","title":"Pin","type":"Encrypted"}`
		form   = `{"name":"survey","label":"Survey","label_plural":"Surveys","schema":{"q":{"title":"Q","type":"Text"}}}`
	)
	for _, c := range []struct {
		name  string
		setup func(*testing.T, fixture.KeyClient) (id string) // which stands for {id}
		asked string
		skip  int64
		// The held call, the concurrent action, and the answer to the call.
		method, path, body string
		meanwhile          func(*testing.T, fixture.KeyClient, string)
		code               int
		wanted             string
		after              func(*testing.T, fixture.KeyClient)
	}{
		{
			name: "a record of an object",
			setup: func(t *testing.T, c fixture.KeyClient) string {
				c.Want(t, 200, http.MethodPost, fixture.ObjectsPath, object)
				return ""
			},
			asked:  "find custom_objects",
			method: http.MethodPost, path: fixture.TreePath + "/records", body: `{"values":{"kind":"oak"}}`,
			meanwhile: func(t *testing.T, c fixture.KeyClient, _ string) {
				c.Want(t, 200, http.MethodDelete, fixture.TreePath+"?purge=true&force=true", "")
			},
			code: 404, wanted: "Custom Object not found",
			after: func(t *testing.T, c fixture.KeyClient) {
				c.Want(t, 200, http.MethodPost, fixture.ObjectsPath, object)
				c.Want(t, 200, http.MethodGet, fixture.TreePath+"/records", "", `"count":0`)
			},
		},
		{
			name: "records of an object",
			setup: func(t *testing.T, c fixture.KeyClient) string {
				c.Want(t, 200, http.MethodPost, fixture.ObjectsPath, object)
				return ""
			},
			asked:  "find custom_objects",
			method: http.MethodPost, path: fixture.TreePath + "/records/bulk", body: `{"records":[{"values":{"kind":"oak"}},{"values":{"kind":"elm"}}]}`,
			meanwhile: func(t *testing.T, c fixture.KeyClient, _ string) {
				c.Want(t, 200, http.MethodDelete, fixture.TreePath+"?purge=true&force=true", "")
			},
			code: 404, wanted: "Custom Object not found",
			after: func(t *testing.T, c fixture.KeyClient) {
				c.Want(t, 200, http.MethodPost, fixture.ObjectsPath, object)
				c.Want(t, 200, http.MethodGet, fixture.TreePath+"/records", "", `"count":0`)
			},
		},
		{
			name: "a record of an object that changes",
			setup: func(t *testing.T, c fixture.KeyClient) string {
				c.Want(t, 200, http.MethodPost, fixture.ObjectsPath, object)
				return ""
			},
			asked:  "find custom_objects",
			method: http.MethodPost, path: fixture.TreePath + "/records", body: `{"values":{"kind":"oak"}}`,
			meanwhile: func(t *testing.T, c fixture.KeyClient, _ string) {
				c.Want(t, 200, http.MethodPut, fixture.TreePath, `{"schema":{"kind":{"title":"Kind","type":"Number"}}}`)
			},
			code: 422, wanted: "values.kind",
			after: func(t *testing.T, c fixture.KeyClient) {
				c.Want(t, 200, http.MethodGet, fixture.TreePath+"/records", "", `"count":0`)
			},
		},
		{
			name: "a secret of a contact",
			setup: func(t *testing.T, c fixture.KeyClient) string {
				c.Want(t, 200, http.MethodPost, "/api/contacts/fields", field)
				return ""
			},
			asked:  "find contact_fields",
			method: http.MethodPost, path: "/api/contacts", body: `{"email":"ada@example.com","fields":{"pin":"0000"}}`,
			meanwhile: func(t *testing.T, c fixture.KeyClient, _ string) {
				c.Want(t, 200, http.MethodDelete, "/api/contacts/fields/pin?purge=true", "")
			},
			code: 422, wanted: "pin",
			after: func(t *testing.T, c fixture.KeyClient) {
				c.Want(t, 200, http.MethodGet, "/api/contacts", "", `"count":0`)
			},
		},
		{
			name: "a contact that changes",
			setup: func(t *testing.T, c fixture.KeyClient) string {
				c.Want(t, 200, http.MethodPost, "/api/contacts/fields", `{"key":"town","title":"Town","type":"Text"}`)
				return c.Want(t, 200, http.MethodPost, "/api/contacts", `{"email":"ada@example.com"}`).Field("id").(string)
			},
			asked:  "find contact_fields",
			method: http.MethodPut, path: "/api/contacts/{id}", body: `{"fields":{"town":"Ulm"}}`,
			meanwhile: func(t *testing.T, c fixture.KeyClient, _ string) {
				c.Want(t, 200, http.MethodDelete, "/api/contacts/fields/town?purge=true", "")
				c.Want(t, 200, http.MethodPost, "/api/contacts/fields", `{"key":"town","title":"Town","type":"Number"}`)
			},
			code: 422, wanted: "town",
			after: func(t *testing.T, c fixture.KeyClient) { c.Want(t, 200, http.MethodGet, "/api/contacts", "", "!Ulm") },
		},
		{
			name: "what a form is filled in with",
			setup: func(t *testing.T, c fixture.KeyClient) string {
				return c.Want(t, 200, http.MethodPost, "/api/form/collections", form).Field("id").(string)
			},
			asked:  "find form_collections",
			method: http.MethodPost, path: "/api/form/collections/{id}/submissions", body: `{"values":{"form_name":"survey","q":"a"}}`,
			meanwhile: func(t *testing.T, c fixture.KeyClient, id string) {
				c.Want(t, 200, http.MethodDelete, "/api/form/collections/"+id+"?purge=true", "")
			},
			code: 404, wanted: "Form Collection not found",
		},
		{
			name: "a file in a folder",
			setup: func(t *testing.T, c fixture.KeyClient) string {
				return c.Want(t, 200, http.MethodPost, fixture.FoldersPath, `{"name":"F"}`).Field("id").(string)
			},
			asked:  "find folders",
			method: http.MethodPost, path: fixture.FilesPath, body: `{"filename":"a.txt","mimetype":"text/plain","folder_id":"{id}"}`,
			meanwhile: func(t *testing.T, c fixture.KeyClient, id string) {
				c.Want(t, 200, http.MethodDelete, fixture.FoldersPath+"/"+id, "")
			},
			code: 422, wanted: "folder_id",
			after: func(t *testing.T, c fixture.KeyClient) {
				c.Want(t, 200, http.MethodGet, fixture.FilesPath, "", `"count":0`)
			},
		},
		{
			name: "a folder in one that is moved into it",
			setup: func(t *testing.T, c fixture.KeyClient) string {
				return c.Want(t, 200, http.MethodPost, fixture.FoldersPath, `{"name":"A"}`).Field("id").(string)
			},
			asked:  "find folders",
			skip:   3,
			method: http.MethodPut, path: fixture.FoldersPath + "/{id}", body: `{"folder_id":"` + other + `"}`,
			meanwhile: func(t *testing.T, c fixture.KeyClient, id string) {
				c.Want(t, 200, http.MethodPut, fixture.FoldersPath+"/"+other, `{"folder_id":"`+id+`"}`)
			},
			code: 422, wanted: "folder_id must not be the folder itself",
		},
		{
			name: "a folder that is emptied",
			setup: func(t *testing.T, c fixture.KeyClient) string {
				return c.Want(t, 200, http.MethodPost, fixture.FoldersPath, `{"name":"F"}`).Field("id").(string)
			},
			asked:  "find files",
			method: http.MethodDelete, path: fixture.FoldersPath + "/{id}?contents=true",
			meanwhile: func(t *testing.T, c fixture.KeyClient, id string) {
				c.Want(t, 200, http.MethodPost, fixture.FilesPath, `{"filename":"late.txt","mimetype":"text/plain","folder_id":"`+id+`"}`)
			},
			code: 200, wanted: "Folder deleted",
			after: func(t *testing.T, c fixture.KeyClient) {
				c.Want(t, 200, http.MethodGet, fixture.FilesPath, "", `"count":0`)
				c.Want(t, 200, http.MethodGet, fixture.FilesPath+"?deleted=true", "", "late.txt")
			},
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			b := fixture.NewStoreGate()
			acme := gatewaytest.Start(t, b.Option).Org(t, "acme")
			ask := fixture.WithToken(acme, acme.Key(t, tenants.AllPermissions()...))
			acme.Import(t, fixture.FolderLine(0xfff, "Other", "", ""))
			id := c.setup(t, ask)
			filled := strings.NewReplacer("{id}", id)
			a := b.During(t, c.asked, c.skip, func() *gatewaytest.Answer {
				changes := []gatewaytest.Request{gatewaytest.WithKey(ask.Token)}
				if c.body != "" {
					changes = append(changes, fixture.JSONText(filled.Replace(c.body)))
				}
				return acme.Do(t, c.method, filled.Replace(c.path), changes...)
			}, func() { c.meanwhile(t, ask, id) })
			if a.Code != c.code || !strings.Contains(a.Text(), c.wanted) {
				t.Errorf("it is answered %d %s, want %d with %s", a.Code, a.Body, c.code, c.wanted)
			}
			if c.after != nil {
				c.after(t, ask)
			}
		})
	}
}

// TestConcurrent_DeletedRightsAreNotAssigned checks that a role or team that is assigned while it is deleted is either
// kept or not assigned.
func TestConcurrent_DeletedRightsAreNotAssigned(t *testing.T) {
	t.Parallel()
	const north = "aaaaaaaaaaaaaaaaaaaaaaaa"
	type call struct{ method, path, body string }
	gives := map[string]call{
		"a role":     {http.MethodPut, "/api/users/{uid}", `{"roles":["editor"]}`},
		"a team":     {http.MethodPut, "/api/users/{uid}", `{"teams":["` + north + `"]}`},
		"an account": {http.MethodPost, "/api/service-accounts", `{"name":"crm","permissions":["contacts"],"teams":["` + north + `"]}`},
	}
	ends := map[string]call{
		"a role": {http.MethodDelete, "/api/roles/editor", ""}, "a team": {http.MethodDelete, "/api/teams/" + north, ""}, "an account": {http.MethodDelete, "/api/teams/" + north, ""},
	}
	asked := map[string]string{"a role": "find roles", "a team": "find teams", "an account": "find teams"}
	// A deletion looks for holders before it begins, last among the accounts, and the other call looks for what it
	// assigns.
	looks := map[string]string{"a role": "find users", "a team": "find accounts", "an account": "find accounts"}
	for name, give := range gives {
		start := func(t *testing.T) (*fixture.StoreGate, func(call) *gatewaytest.Answer) {
			t.Helper()
			b := fixture.NewStoreGate()
			acme := gatewaytest.Start(t, b.Option).Org(t, "acme", tenants.FeatureTeams)
			c := fixture.WithToken(acme, acme.Key(t, tenants.AllPermissions()...))
			acme.Import(t, `{"kind":"team","id":"`+north+`","name":"North"}`, `{"kind":"role","name":"editor","label":"E","permissions":["manage_forms"]}`)
			user, _ := acme.Person(t, "ada@example.com", nil)
			uid := strconv.FormatInt(user.ID, 10)
			c.Want(t, 200, http.MethodGet, "/api/teams", "") // so that the key is known from now on
			return b, func(one call) *gatewaytest.Answer {
				with := []gatewaytest.Request{gatewaytest.WithKey(c.Token)}
				if one.body != "" {
					with = append(with, fixture.JSONText(one.body))
				}
				return acme.Do(t, one.method, strings.ReplaceAll(one.path, "{uid}", uid), with...)
			}
		}
		t.Run(name+" that is found, and then deleted", func(t *testing.T) {
			t.Parallel()
			b, do := start(t)
			a := b.During(t, asked[name], map[string]int64{"a role": 1}[name], func() *gatewaytest.Answer { return do(give) }, func() {
				if a := do(ends[name]); a.Code != 200 {
					t.Errorf("got %d %s, want 200", a.Code, a.Body)
				}
			})
			if a.Code == 200 {
				t.Errorf("it is given after it was deleted: got %s, want a code other than 200", a.Body)
			}
		})
		t.Run(name+" that nobody has, and then somebody", func(t *testing.T) {
			t.Parallel()
			b, do := start(t)
			a := b.During(t, looks[name], 0, func() *gatewaytest.Answer { return do(ends[name]) }, func() {
				if a := do(give); a.Code != 200 {
					t.Errorf("got %d %s, want 200", a.Code, a.Body)
				}
			})
			if a.Code != 422 {
				t.Errorf("it is deleted after it was given: got %d %s, want 422", a.Code, a.Body)
			}
			if a := do(call{http.MethodGet, ends[name].path, ""}); a.Code != 200 {
				t.Errorf("it is gone: got %d %s, want 200", a.Code, a.Body)
			}
		})
	}
}

// TestConcurrent_ValuesMatchTheirFields checks that a field stays as it was if it becomes Encrypted, or plain, while
// a value of it is stored, so that no value is left in clear text or sealed for nobody.
func TestConcurrent_ValuesMatchTheirFields(t *testing.T) {
	t.Parallel()
	for _, types := range [][2]string{{"Text", "Encrypted"}, {"Encrypted", "Text"}} {
		field := func(kind string) string { return `"secret":{"title":"Secret","type":"` + kind + `"}` }
		for _, c := range []struct{ asked, definitions, definition, list, body, one, change string }{
			{
				"find contacts", "/api/contacts/fields", `{"key":"secret","title":"Secret","type":"` + types[0] + `"}`,
				"/api/contacts", `{"fields":{"secret":"canary"}}`, "/api/contacts/fields/secret", `{"type":"` + types[1] + `"}`,
			},
			{
				"find records", fixture.ObjectsPath, `{"name":"tree","label":"Tree","label_plural":"Trees","schema":{` + field(types[0]) + `}}`,
				fixture.TreePath + "/records", `{"values":{"secret":"canary"}}`, fixture.TreePath, `{"schema":{` + field(types[1]) + `}}`,
			},
			{
				"find form_submissions", "/api/form/collections", `{"name":"ask","label":"Ask","label_plural":"Asks","schema":{` + field(types[0]) + `}}`,
				"/api/form/collections/{id}/submissions", `{"values":{"form_name":"x","secret":"canary"}}`, "/api/form/collections/{id}", `{"schema":{` + field(types[1]) + `}}`,
			},
		} {
			t.Run(c.asked+" "+types[0], func(t *testing.T) {
				t.Parallel()
				b := fixture.NewStoreGate()
				acme := gatewaytest.Start(t, b.Option).Org(t, "acme")
				ask := fixture.WithToken(acme, acme.Key(t, tenants.AllPermissions()...))
				id, _ := ask.Want(t, 200, http.MethodPost, c.definitions, c.definition).Field("id").(string)
				filled := strings.NewReplacer("{id}", id)
				a := b.During(t, c.asked, 0, func() *gatewaytest.Answer {
					return acme.Do(t, http.MethodPut, filled.Replace(c.one), gatewaytest.WithKey(ask.Token), fixture.JSONText(c.change), fixture.IdempotencyKey("once"))
				}, func() { ask.Want(t, 200, http.MethodPost, filled.Replace(c.list), c.body) })
				if a.Code != 422 || !strings.Contains(a.Text(), "Encrypted") {
					t.Errorf("it is answered %d %s, want 422 with Encrypted", a.Code, a.Body)
				}
				if a := acme.Do(t, http.MethodPut, filled.Replace(c.one), gatewaytest.WithKey(ask.Token), fixture.JSONText(c.change), fixture.IdempotencyKey("once")); a.Code != 422 {
					t.Errorf("once more: got %d %s, want 422", a.Code, a.Body)
				}
				ask.Want(t, 200, http.MethodGet, filled.Replace(c.one), "", `"type":"`+types[0]+`"`)
				var out bytes.Buffer
				if _, err := acme.App.Transfer().Export(t.Context(), acme.Tenant(t), &out, bundle.ExportOptions{}); err != nil {
					t.Fatal(err)
				}
				if inClear := strings.Contains(out.String(), "canary"); inClear != (types[0] == "Text") {
					t.Errorf("value in clear text = %v, want it for Text only", inClear)
				}
			})
		}
	}
}

// TestConcurrent_ExportsHideDeletedFields checks that values of a field that is deleted during an export are in none of
// the following records.
func TestConcurrent_ExportsHideDeletedFields(t *testing.T) {
	t.Parallel()
	gate := fixture.NewStoreGate()
	acme := gatewaytest.Start(t, gate.Option).Org(t, "acme")
	const many, page = 1100, 500
	lines := []string{`{"kind":"contact_field","key":"secret","title":"Secret","type":"Text"}`}
	for i := range many {
		lines = append(lines, fmt.Sprintf(`{"kind":"contact","id":"%s","email":"c%d@example.com","fields":{"secret":"canary-%d"}}`, fixture.DocID(0xa000+i), i, i))
	}
	acme.Import(t, lines...)
	ask := fixture.WithToken(acme, acme.Key(t, tenants.AllPermissions()...))
	a := gate.During(t, "find contacts", 1, func() *gatewaytest.Answer {
		return acme.Do(t, http.MethodGet, "/api/contacts/export?format=ndjson", gatewaytest.WithKey(ask.Token))
	}, func() { ask.Want(t, 200, http.MethodDelete, "/api/contacts/fields/secret?force=true", "") })
	if n := strings.Count(string(a.Body), "canary-"); a.Code != 200 || n != page {
		t.Errorf("got %d, %d values, want those of the first %d records", a.Code, n, page)
	}
	if n := strings.Count(string(a.Body), "\n"); n != many {
		t.Errorf("got %d records, want %d", n, many)
	}
}

// TestConcurrent_ImportsFollowDefinitions checks that an import ends if a definition is purged or changed before its
// records are stored, and that an import that changes a definition undoes that if values of the old one were stored in
// between.
func TestConcurrent_ImportsFollowDefinitions(t *testing.T) {
	t.Parallel()
	const object = `{"name":"tree","label":"Tree","label_plural":"Trees","schema":{"kind":{"title":"Kind","type":"Text"}}}`
	const field = "/api/contacts/fields/pin"
	plain := func(t *testing.T, c fixture.KeyClient) {
		t.Helper()
		c.Want(t, 200, http.MethodPost, "/api/contacts/fields", `{"key":"pin","title":"PIN","type":"Text"}`)
	}
	encrypted := func(t *testing.T, c fixture.KeyClient) { c.Want(t, 200, http.MethodPut, field, `{"type":"Encrypted"}`) }
	purged := func(t *testing.T, c fixture.KeyClient) {
		c.Want(t, 200, http.MethodDelete, fixture.TreePath+"?purge=true&force=true", "")
	}
	for name, one := range map[string]struct {
		setup     func(*testing.T, fixture.KeyClient)
		asked     string
		skip      int64
		lines     string
		meanwhile func(*testing.T, fixture.KeyClient)
		wanted    string // in the error, or in what is said of a line
		after     func(*testing.T, fixture.KeyClient)
	}{
		"a record of an object that is purged": {
			setup: func(t *testing.T, c fixture.KeyClient) { c.Want(t, 200, http.MethodPost, fixture.ObjectsPath, object) },
			asked: "find custom_objects", lines: `{"kind":"record","object":"tree","values":{"kind":"canary"}}`,
			meanwhile: purged, wanted: "definitions were changed meanwhile",
			after: func(t *testing.T, c fixture.KeyClient) {
				c.Want(t, 200, http.MethodPost, fixture.ObjectsPath, object)
				c.Want(t, 200, http.MethodGet, fixture.TreePath+"/records", "", `"count":0`)
			},
		},
		"a record of an object in the trash that is purged": {
			setup: func(t *testing.T, c fixture.KeyClient) {
				c.Want(t, 200, http.MethodPost, fixture.ObjectsPath, object)
				c.Want(t, 200, http.MethodDelete, fixture.TreePath+"?force=true", "")
			},
			asked: "find custom_objects", lines: `{"kind":"record","as_is":true,"id":"0000000000000000000000b1","object":"tree","values":{"kind":"canary"}}`,
			meanwhile: purged, wanted: "definitions were changed meanwhile",
			after: func(t *testing.T, c fixture.KeyClient) {
				c.Want(t, 200, http.MethodPost, fixture.ObjectsPath, object)
				c.Want(t, 200, http.MethodGet, fixture.TreePath+"/records", "", `"count":0`)
			},
		},
		"a value that is to be sealed by then": {
			setup: plain, asked: "find contact_fields", lines: `{"kind":"contact","email":"a@example.com","fields":{"pin":"canary"}}`,
			meanwhile: encrypted, wanted: "definitions were changed meanwhile",
		},
		"a value of a contact that is changed": {
			setup: func(t *testing.T, c fixture.KeyClient) {
				plain(t, c)
				c.Want(t, 200, http.MethodPost, "/api/contacts", `{"external_id":"1815"}`)
			},
			asked: "find contact_fields", lines: `{"kind":"contact","external_id":"1815","fields":{"pin":"canary"}}`,
			meanwhile: encrypted, wanted: "or its definition was changed",
		},
		"a field that is to be sealed": {
			setup: plain, asked: "find contacts", skip: 1, lines: `{"kind":"contact_field","key":"pin","title":"PIN","type":"Encrypted"}`,
			meanwhile: func(t *testing.T, c fixture.KeyClient) {
				c.Want(t, 200, http.MethodPost, "/api/contacts", `{"email":"a@example.com","fields":{"pin":"1815"}}`)
			},
			wanted: "cannot become or stop being Encrypted",
			after:  func(t *testing.T, c fixture.KeyClient) { c.Want(t, 200, http.MethodGet, field, "", `"type":"Text"`) },
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := fixture.NewStoreGate()
			acme := gatewaytest.Start(t, b.Option).Org(t, "acme")
			c := fixture.WithToken(acme, acme.Key(t, tenants.AllPermissions()...))
			one.setup(t, c)
			var report bundle.Report
			var err error
			b.During(t, one.asked, one.skip, func() *gatewaytest.Answer {
				report, err = acme.App.Transfer().Import(t.Context(), acme.Tenant(t), gatewaytest.Source([]byte(one.lines)), bundle.ImportOptions{})
				return &gatewaytest.Answer{}
			}, func() { one.meanwhile(t, c) })
			if said := fmt.Sprint(err, report.Problems); err == nil || !strings.Contains(said, one.wanted) {
				t.Errorf("it is said to be %s, want %q", said, one.wanted)
			}
			if one.after != nil {
				one.after(t, c)
			}
			var out bytes.Buffer
			if _, err := acme.App.Transfer().Export(t.Context(), acme.Tenant(t), &out, bundle.ExportOptions{}); err != nil {
				t.Fatal(err)
			}
			if strings.Contains(out.String(), "canary") {
				t.Errorf("got the imported value in %s, want it nowhere", out.String())
			}
		})
	}
}
