package gateway_test

import (
	"bytes"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"tenantry/backends/store"
	"tenantry/config"
	"tenantry/gateway"
	"tenantry/gateway/gatewaytest"
	"tenantry/modules/imports/bundle"
	"tenantry/tenants"
)

// between holds a call back right after it has asked the store for something.
type between struct {
	what    atomic.Pointer[string] // operation and collection; nil: no call is held back
	skip    atomic.Int64           // how many such questions pass
	reached chan struct{}
	goOn    chan struct{}
}

func (b *between) option(_ *config.Config, o *gateway.Options) {
	o.Observe = func(c store.Call) {
		what := b.what.Load()
		if what == nil || *what != c.Operation+" "+c.Collection || b.skip.Add(-1) >= 0 || !b.what.CompareAndSwap(what, nil) {
			return
		}
		b.reached <- struct{}{}
		<-b.goOn
	}
}

// asked begins first, has it wait after it has asked for what, does then, and returns what first was answered.
func (b *between) asked(t *testing.T, what string, skip int64, first func() *gatewaytest.Answer, then func()) *gatewaytest.Answer {
	t.Helper()
	b.skip.Store(skip)
	b.what.Store(&what)
	answer := make(chan *gatewaytest.Answer, 1)
	go func() { answer <- first() }()
	select {
	case <-b.reached:
	case a := <-answer:
		t.Fatalf("%s is not asked for: %d %s", what, a.Code, a.Body)
	case <-time.After(time.Minute):
		t.Fatalf("%s is not asked for", what)
	}
	goOn := sync.OnceFunc(func() { b.goOn <- struct{}{} })
	t.Cleanup(goOn)
	then()
	goOn()
	return <-answer
}

func newBetween() *between {
	return &between{reached: make(chan struct{}), goOn: make(chan struct{})}
}

// TestMeanwhile_WhatIsStoredStandsOnWhatWasRead: what is purged while something is made of it, by a call that has read it
// already, is not made any more, and nothing of it is there for what takes its name.
func TestMeanwhile_WhatIsStoredStandsOnWhatWasRead(t *testing.T) {
	t.Parallel()
	other := docID(0xfff)
	const (
		object = `{"name":"tree","label":"Tree","label_plural":"Trees","schema":{"kind":{"title":"Kind","type":"Text"}}}`
		field  = `{"key":"pin","title":"Pin","type":"Encrypted"}`
		form   = `{"name":"survey","label":"Survey","label_plural":"Surveys","schema":{"q":{"title":"Q","type":"Text"}}}`
	)
	for _, c := range []struct {
		name  string
		setup func(*testing.T, asking) (id string) // which stands for {id}
		asked string
		skip  int64
		// The call that is held back, what is done meanwhile, and what the call is answered.
		method, path, body string
		meanwhile          func(*testing.T, asking, string)
		code               int
		wanted             string
		after              func(*testing.T, asking)
	}{
		{
			name:   "a record of an object",
			setup:  func(t *testing.T, c asking) string { c.do(t, 200, posted, objectsPath, object); return "" },
			asked:  "find custom_objects",
			method: posted, path: treePath + "/records", body: `{"values":{"kind":"oak"}}`,
			meanwhile: func(t *testing.T, c asking, _ string) { c.do(t, 200, del, treePath+"?purge=true&force=true", "") },
			code:      404, wanted: "Custom Object not found",
			after: func(t *testing.T, c asking) {
				c.do(t, 200, posted, objectsPath, object)
				c.do(t, 200, get, treePath+"/records", "", `"count":0`)
			},
		},
		{
			name:   "records of an object",
			setup:  func(t *testing.T, c asking) string { c.do(t, 200, posted, objectsPath, object); return "" },
			asked:  "find custom_objects",
			method: posted, path: treePath + "/records/bulk", body: `{"records":[{"values":{"kind":"oak"}},{"values":{"kind":"elm"}}]}`,
			meanwhile: func(t *testing.T, c asking, _ string) { c.do(t, 200, del, treePath+"?purge=true&force=true", "") },
			code:      404, wanted: "Custom Object not found",
			after: func(t *testing.T, c asking) {
				c.do(t, 200, posted, objectsPath, object)
				c.do(t, 200, get, treePath+"/records", "", `"count":0`)
			},
		},
		{
			name:   "a record of an object that changes",
			setup:  func(t *testing.T, c asking) string { c.do(t, 200, posted, objectsPath, object); return "" },
			asked:  "find custom_objects",
			method: posted, path: treePath + "/records", body: `{"values":{"kind":"oak"}}`,
			meanwhile: func(t *testing.T, c asking, _ string) {
				c.do(t, 200, change, treePath, `{"schema":{"kind":{"title":"Kind","type":"Number"}}}`)
			},
			code: 422, wanted: "values.kind",
			after: func(t *testing.T, c asking) { c.do(t, 200, get, treePath+"/records", "", `"count":0`) },
		},
		{
			name:   "a secret of a contact",
			setup:  func(t *testing.T, c asking) string { c.do(t, 200, posted, "/api/contacts/fields", field); return "" },
			asked:  "find contact_fields",
			method: posted, path: "/api/contacts", body: `{"email":"ada@example.com","fields":{"pin":"0000"}}`,
			meanwhile: func(t *testing.T, c asking, _ string) {
				c.do(t, 200, del, "/api/contacts/fields/pin?purge=true", "")
			},
			code: 422, wanted: "pin",
			after: func(t *testing.T, c asking) { c.do(t, 200, get, "/api/contacts", "", `"count":0`) },
		},
		{
			name: "a contact that changes",
			setup: func(t *testing.T, c asking) string {
				c.do(t, 200, posted, "/api/contacts/fields", `{"key":"town","title":"Town","type":"Text"}`)
				return c.do(t, 200, posted, "/api/contacts", `{"email":"ada@example.com"}`).Field("id").(string)
			},
			asked:  "find contact_fields",
			method: change, path: "/api/contacts/{id}", body: `{"fields":{"town":"Ulm"}}`,
			meanwhile: func(t *testing.T, c asking, _ string) {
				c.do(t, 200, del, "/api/contacts/fields/town?purge=true", "")
				c.do(t, 200, posted, "/api/contacts/fields", `{"key":"town","title":"Town","type":"Number"}`)
			},
			code: 422, wanted: "town",
			after: func(t *testing.T, c asking) { c.do(t, 200, get, "/api/contacts", "", "!Ulm") },
		},
		{
			name: "what a form is filled in with",
			setup: func(t *testing.T, c asking) string {
				return c.do(t, 200, posted, "/api/form/collections", form).Field("id").(string)
			},
			asked:  "find form_collections",
			method: posted, path: "/api/form/collections/{id}/submissions", body: `{"values":{"form_name":"survey","q":"a"}}`,
			meanwhile: func(t *testing.T, c asking, id string) {
				c.do(t, 200, del, "/api/form/collections/"+id+"?purge=true", "")
			},
			code: 404, wanted: "Form Collection not found",
		},
		{
			name: "a file in a folder",
			setup: func(t *testing.T, c asking) string {
				return c.do(t, 200, posted, foldersPath, `{"name":"F"}`).Field("id").(string)
			},
			asked:  "find folders",
			method: posted, path: filesPath, body: `{"filename":"a.txt","mimetype":"text/plain","folder_id":"{id}"}`,
			meanwhile: func(t *testing.T, c asking, id string) { c.do(t, 200, del, foldersPath+"/"+id, "") },
			code:      422, wanted: "folder_id",
			after: func(t *testing.T, c asking) { c.do(t, 200, get, filesPath, "", `"count":0`) },
		},
		{
			name: "a folder in one that is moved into it",
			setup: func(t *testing.T, c asking) string {
				return c.do(t, 200, posted, foldersPath, `{"name":"A"}`).Field("id").(string)
			},
			asked:  "find folders",
			skip:   3,
			method: change, path: foldersPath + "/{id}", body: `{"folder_id":"` + other + `"}`,
			meanwhile: func(t *testing.T, c asking, id string) {
				c.do(t, 200, change, foldersPath+"/"+other, `{"folder_id":"`+id+`"}`)
			},
			code: 422, wanted: "folder_id must not be the folder itself",
		},
		{
			name: "a folder that is emptied",
			setup: func(t *testing.T, c asking) string {
				return c.do(t, 200, posted, foldersPath, `{"name":"F"}`).Field("id").(string)
			},
			asked:  "find files",
			method: del, path: foldersPath + "/{id}?contents=true",
			meanwhile: func(t *testing.T, c asking, id string) {
				c.do(t, 200, posted, filesPath, `{"filename":"late.txt","mimetype":"text/plain","folder_id":"`+id+`"}`)
			},
			code: 200, wanted: "Folder deleted",
			after: func(t *testing.T, c asking) {
				c.do(t, 200, get, filesPath, "", `"count":0`)
				c.do(t, 200, get, filesPath+"?deleted=true", "", "late.txt")
			},
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			b := newBetween()
			acme := gatewaytest.Start(t, b.option).Org(t, "acme")
			ask := asking{acme, acme.Key(t, tenants.AllPermissions()...)}
			acme.Import(t, folderLine(0xfff, "Other", "", ""))
			id := c.setup(t, ask)
			filled := strings.NewReplacer("{id}", id)
			a := b.asked(t, c.asked, c.skip, func() *gatewaytest.Answer {
				changes := []gatewaytest.Request{gatewaytest.WithKey(ask.key)}
				if c.body != "" {
					changes = append(changes, jsonText(filled.Replace(c.body)))
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

// TestMeanwhile_RightsAreHeldByWhatIsThere: a role or team that somebody is given while it is deleted is kept, or not given any more.
func TestMeanwhile_RightsAreHeldByWhatIsThere(t *testing.T) {
	t.Parallel()
	const north = "aaaaaaaaaaaaaaaaaaaaaaaa"
	type call struct{ method, path, body string }
	gives := map[string]call{
		"a role":     {change, "/api/users/{uid}", `{"roles":["editor"]}`},
		"a team":     {change, "/api/users/{uid}", `{"teams":["` + north + `"]}`},
		"an account": {posted, "/api/service-accounts", `{"name":"crm","permissions":["contacts"],"teams":["` + north + `"]}`},
	}
	ends := map[string]call{
		"a role": {del, "/api/roles/editor", ""}, "a team": {del, "/api/teams/" + north, ""}, "an account": {del, "/api/teams/" + north, ""},
	}
	asked := map[string]string{"a role": "find roles", "a team": "find teams", "an account": "find teams"}
	// A deletion looks for who holds it, last in the accounts, before it begins, and the other call looks for what it gives.
	looks := map[string]string{"a role": "find users", "a team": "find accounts", "an account": "find accounts"}
	for name, give := range gives {
		start := func(t *testing.T) (*between, func(call) *gatewaytest.Answer) {
			t.Helper()
			b := newBetween()
			acme := gatewaytest.Start(t, b.option).Org(t, "acme", tenants.FeatureTeams)
			c := asking{acme, acme.Key(t, tenants.AllPermissions()...)}
			acme.Import(t, `{"kind":"team","id":"`+north+`","name":"North"}`, `{"kind":"role","name":"editor","label":"E","permissions":["manage_forms"]}`)
			user, _ := acme.Person(t, "ada@example.com", nil)
			uid := strconv.FormatInt(user.ID, 10)
			c.do(t, 200, get, "/api/teams", "") // so that the key is known from now on
			return b, func(one call) *gatewaytest.Answer {
				with := []gatewaytest.Request{gatewaytest.WithKey(c.key)}
				if one.body != "" {
					with = append(with, jsonText(one.body))
				}
				return acme.Do(t, one.method, strings.ReplaceAll(one.path, "{uid}", uid), with...)
			}
		}
		t.Run(name+" that is found, and then deleted", func(t *testing.T) {
			t.Parallel()
			b, do := start(t)
			a := b.asked(t, asked[name], map[string]int64{"a role": 1}[name], func() *gatewaytest.Answer { return do(give) }, func() {
				if a := do(ends[name]); a.Code != 200 {
					t.Errorf("%d %s", a.Code, a.Body)
				}
			})
			if a.Code == 200 {
				t.Errorf("it is given after it was deleted: %s", a.Body)
			}
		})
		t.Run(name+" that nobody has, and then somebody", func(t *testing.T) {
			t.Parallel()
			b, do := start(t)
			a := b.asked(t, looks[name], 0, func() *gatewaytest.Answer { return do(ends[name]) }, func() {
				if a := do(give); a.Code != 200 {
					t.Errorf("%d %s", a.Code, a.Body)
				}
			})
			if a.Code != 422 {
				t.Errorf("it is deleted after it was given: %d %s", a.Code, a.Body)
			}
			if a := do(call{get, ends[name].path, ""}); a.Code != 200 {
				t.Errorf("it is gone: %d %s", a.Code, a.Body)
			}
		})
	}
}

// TestMeanwhile_ValuesAreAsTheirFieldsAre: a field that becomes, or stops being, Encrypted while a value of it is stored stays as it was,
// so that no value lies in clear where it is to be sealed, or sealed where nobody can read it.
func TestMeanwhile_ValuesAreAsTheirFieldsAre(t *testing.T) {
	t.Parallel()
	for _, types := range [][2]string{{"Text", "Encrypted"}, {"Encrypted", "Text"}} {
		field := func(kind string) string { return `"secret":{"title":"Secret","type":"` + kind + `"}` }
		for _, c := range []struct{ asked, definitions, definition, list, body, one, change string }{
			{
				"find contacts", "/api/contacts/fields", `{"key":"secret","title":"Secret","type":"` + types[0] + `"}`,
				"/api/contacts", `{"fields":{"secret":"canary"}}`, "/api/contacts/fields/secret", `{"type":"` + types[1] + `"}`,
			},
			{
				"find records", objectsPath, `{"name":"tree","label":"Tree","label_plural":"Trees","schema":{` + field(types[0]) + `}}`,
				treePath + "/records", `{"values":{"secret":"canary"}}`, treePath, `{"schema":{` + field(types[1]) + `}}`,
			},
			{
				"find form_submissions", "/api/form/collections", `{"name":"ask","label":"Ask","label_plural":"Asks","schema":{` + field(types[0]) + `}}`,
				"/api/form/collections/{id}/submissions", `{"values":{"form_name":"x","secret":"canary"}}`, "/api/form/collections/{id}", `{"schema":{` + field(types[1]) + `}}`,
			},
		} {
			t.Run(c.asked+" "+types[0], func(t *testing.T) {
				t.Parallel()
				b := newBetween()
				acme := gatewaytest.Start(t, b.option).Org(t, "acme")
				ask := asking{acme, acme.Key(t, tenants.AllPermissions()...)}
				id, _ := ask.do(t, 200, posted, c.definitions, c.definition).Field("id").(string)
				filled := strings.NewReplacer("{id}", id)
				a := b.asked(t, c.asked, 0, func() *gatewaytest.Answer {
					return acme.Do(t, change, filled.Replace(c.one), gatewaytest.WithKey(ask.key), jsonText(c.change), again("once"))
				}, func() { ask.do(t, 200, posted, filled.Replace(c.list), c.body) })
				if a.Code != 422 || !strings.Contains(a.Text(), "Encrypted") {
					t.Errorf("it is answered %d %s", a.Code, a.Body)
				}
				if a := acme.Do(t, change, filled.Replace(c.one), gatewaytest.WithKey(ask.key), jsonText(c.change), again("once")); a.Code != 422 {
					t.Errorf("once more: %d %s", a.Code, a.Body)
				}
				ask.do(t, 200, get, filled.Replace(c.one), "", `"type":"`+types[0]+`"`)
				var out bytes.Buffer
				if _, err := acme.App.Transfer().Export(t.Context(), acme.Tenant(t), &out, bundle.ExportOptions{}); err != nil {
					t.Fatal(err)
				}
				if inClear := strings.Contains(out.String(), "canary"); inClear != (types[0] == "Text") {
					t.Errorf("its value is in clear: %v", inClear)
				}
			})
		}
	}
}

// TestMeanwhile_ImportsStandOnWhatIsDefined: an import ends where what it was checked against is purged or changed before it stores, and
// one that changes a definition puts it back where values of the former one came between.
func TestMeanwhile_ImportsStandOnWhatIsDefined(t *testing.T) {
	t.Parallel()
	const object = `{"name":"tree","label":"Tree","label_plural":"Trees","schema":{"kind":{"title":"Kind","type":"Text"}}}`
	const field = "/api/contacts/fields/pin"
	plain := func(t *testing.T, c asking) {
		t.Helper()
		c.do(t, 200, posted, "/api/contacts/fields", `{"key":"pin","title":"PIN","type":"Text"}`)
	}
	encrypted := func(t *testing.T, c asking) { c.do(t, 200, change, field, `{"type":"Encrypted"}`) }
	purged := func(t *testing.T, c asking) { c.do(t, 200, del, treePath+"?purge=true&force=true", "") }
	for name, one := range map[string]struct {
		setup     func(*testing.T, asking)
		asked     string
		skip      int64
		lines     string
		meanwhile func(*testing.T, asking)
		wanted    string // in the error, or in what is said of a line
		after     func(*testing.T, asking)
	}{
		"a record of an object that is purged": {
			setup: func(t *testing.T, c asking) { c.do(t, 200, posted, objectsPath, object) },
			asked: "find custom_objects", lines: `{"kind":"record","object":"tree","values":{"kind":"canary"}}`,
			meanwhile: purged, wanted: "what is defined was changed meanwhile",
			after: func(t *testing.T, c asking) {
				c.do(t, 200, posted, objectsPath, object)
				c.do(t, 200, get, treePath+"/records", "", `"count":0`)
			},
		},
		"a record of an object in the trash that is purged": {
			setup: func(t *testing.T, c asking) {
				c.do(t, 200, posted, objectsPath, object)
				c.do(t, 200, del, treePath+"?force=true", "")
			},
			asked: "find custom_objects", lines: `{"kind":"record","as_is":true,"id":"0000000000000000000000b1","object":"tree","values":{"kind":"canary"}}`,
			meanwhile: purged, wanted: "what is defined was changed meanwhile",
			after: func(t *testing.T, c asking) {
				c.do(t, 200, posted, objectsPath, object)
				c.do(t, 200, get, treePath+"/records", "", `"count":0`)
			},
		},
		"a value that is to be sealed by then": {
			setup: plain, asked: "find contact_fields", lines: `{"kind":"contact","email":"a@example.com","fields":{"pin":"canary"}}`,
			meanwhile: encrypted, wanted: "what is defined was changed meanwhile",
		},
		"a value of a contact that is changed": {
			setup: func(t *testing.T, c asking) {
				plain(t, c)
				c.do(t, 200, posted, "/api/contacts", `{"external_id":"1815"}`)
			},
			asked: "find contact_fields", lines: `{"kind":"contact","external_id":"1815","fields":{"pin":"canary"}}`,
			meanwhile: encrypted, wanted: "what it is defined by, was changed",
		},
		"a field that is to be sealed": {
			setup: plain, asked: "find contacts", skip: 1, lines: `{"kind":"contact_field","key":"pin","title":"PIN","type":"Encrypted"}`,
			meanwhile: func(t *testing.T, c asking) {
				c.do(t, 200, posted, "/api/contacts", `{"email":"a@example.com","fields":{"pin":"1815"}}`)
			},
			wanted: "cannot become or stop being Encrypted",
			after:  func(t *testing.T, c asking) { c.do(t, 200, get, field, "", `"type":"Text"`) },
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBetween()
			acme := gatewaytest.Start(t, b.option).Org(t, "acme")
			c := asking{acme, acme.Key(t, tenants.AllPermissions()...)}
			one.setup(t, c)
			var report bundle.Report
			var err error
			b.asked(t, one.asked, one.skip, func() *gatewaytest.Answer {
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
				t.Errorf("what was imported is there: %s", out.String())
			}
		})
	}
}
