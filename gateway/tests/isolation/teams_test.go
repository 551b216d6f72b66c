package isolation

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"

	"tenantry/backends/record"
	"tenantry/gateway/control"
	"tenantry/gateway/gatewaytest"
	"tenantry/gateway/tests/fixture"
	"tenantry/operation"
	"tenantry/tenants"
)

// dependents has, for each resource on whose records others depend, the ways in which they do: the lines of a record,
// deleted or not, and of a dependent record of the team, and how the latter names the former. n is the number of the
// record.
func dependents() map[string]map[string]func(n int, team string, deleted bool) (name string, lines []string) {
	line := func(kind, format string, args ...any) string {
		return `{"kind":"` + kind + `",` + fmt.Sprintf(format, args...) + `}`
	}
	field := func(kind string, then func(key, team string, n int) string) func(int, string, bool) (string, []string) {
		return func(n int, team string, deleted bool) (string, []string) {
			key := fmt.Sprintf("f%d", n)
			return key, []string{line("contact_field", `"key":%q,"title":"T%d","type":%q,"deleted":%t`, key, n, kind, deleted), then(key, team, n)}
		}
	}
	contact := func(more string) func(key, team string, n int) string {
		return func(key, team string, n int) string {
			return line("contact", `"id":%q,"fields":{%q:"canary"},"teams":[%q]%s`, fixture.DocID(0x100000+n), key, team, more)
		}
	}
	report := func(query string) func(key, team string, n int) string {
		return func(key, team string, n int) string {
			return line("custom_report", `"id":%q,"title":"R","class":"Contacts","query":%s,"teams":[%q]`, fixture.DocID(0x200000+n), strings.ReplaceAll(query, "KEY", key), team)
		}
	}
	schema := `"schema":{"kind":{"title":"Kind","type":"Text"},"pin":{"title":"Pin","type":"Encrypted"}}`
	folder := func(n int, in string, deleted bool) string {
		return line("folder", `"id":%q,"name":"F%d","folder_id":%s,"deleted":%t`, fixture.DocID(n), n, in, deleted)
	}
	return map[string]map[string]func(int, string, bool) (string, []string){
		"contact_field": {
			"a value":                      field("Text", contact("")),
			"a secret":                     field("Encrypted", contact("")),
			"a value of a deleted contact": field("Text", contact(`,"deleted":true`)),
			"a campaign": field("Text", func(key, team string, n int) string {
				return line("campaign", `"id":%q,"name":"C","filter":{"or":[{%q:"x"},{"country":"DE"}]},"teams":[%q]`, fixture.DocID(0x200000+n), key, team)
			}),
			"a column of a report":  field("Text", report(`{"fields":["KEY"]}`)),
			"a filter of a report":  field("Text", report(`{"fields":["id"],"filter":{"KEY":"x"}}`)),
			"a group of a report":   field("Text", report(`{"group_by":[{"field":"KEY"}],"measures":[{"op":"count"}]}`)),
			"a measure of a report": field("Text", report(`{"measures":[{"op":"distinct","field":"KEY"}]}`)),
		},
		"custom_object": {"a report": func(n int, team string, deleted bool) (string, []string) {
			name := fmt.Sprintf("o%d", n)
			return name, []string{
				line("custom_object", `"id":%q,"name":%q,"label":"O%d","label_plural":"Os%d","deleted":%t,%s`, fixture.DocID(n), name, n, n, deleted, schema),
				line("record", `"object":%q,"values":{"kind":"canary"}`, name),
				line("custom_report", `"id":%q,"title":"R","class":"Records","source":%q,"query":{"fields":["kind"]},"teams":[%q]`, fixture.DocID(0x200000+n), name, team),
			}
		}},
		"form_collection": {"a report": func(n int, team string, deleted bool) (string, []string) {
			return fixture.DocID(n), []string{
				line("form_collection", `"id":%q,"name":"form%d","label":"F%d","label_plural":"Fs%d","deleted":%t,%s`, fixture.DocID(n), n, n, n, deleted, schema),
				line("submission", `"form":%q,"values":{"form_name":"canary"}`, fixture.DocID(n)),
				line("custom_report", `"id":%q,"title":"R","class":"Submissions","source":%q,"query":{"fields":["kind"]},"teams":[%q]`, fixture.DocID(0x200000+n), fixture.DocID(n), team),
			}
		}},
		"folder": {
			"a file": func(n int, team string, deleted bool) (string, []string) {
				return fixture.DocID(n), []string{folder(n, "null", deleted), fixture.FileLine(0x100000+n, "f", fixture.DocID(n), `,"teams":["`+team+`"]`)}
			},
			"a deleted file": func(n int, team string, deleted bool) (string, []string) {
				return fixture.DocID(n), []string{folder(n, "null", deleted), fixture.FileLine(0x100000+n, "f", fixture.DocID(n), `,"deleted":true,"teams":["`+team+`"]`)}
			},
			"a folder": func(n int, team string, deleted bool) (string, []string) {
				return fixture.DocID(n), []string{folder(n, "null", deleted), fixture.FolderLine(0x100000+n, "inner", fixture.DocID(n), `,"teams":["`+team+`"]`)}
			},
			"a file in a folder": func(n int, team string, deleted bool) (string, []string) {
				return fixture.DocID(n), []string{folder(n, "null", deleted), folder(0x100000+n, `"`+fixture.DocID(n)+`"`, deleted), fixture.FileLine(0x200000+n, "f", fixture.DocID(0x100000+n), `,"teams":["`+team+`"]`)}
			},
		},
		"custom_report": {"a report that shows it": func(n int, team string, deleted bool) (string, []string) {
			return fixture.DocID(n), []string{
				line("custom_report", `"id":%q,"title":"Child","class":"Campaigns","query":{},"teams":[%q],"deleted":%t`, fixture.DocID(n), fixture.TeamA, deleted),
				line("custom_report", `"id":%q,"title":"R","class":"Campaigns","query":{},"child_reports":[%q],"teams":[%q]`, fixture.DocID(0x200000+n), fixture.DocID(n), team),
			}
		}},
	}
}

// changesRecord reports whether the row changes a record of the resource in its path, and whether that record is in the
// trash.
func changesRecord(op *operation.Row, of string) (is, deleted bool) {
	s := fixture.SampleFor(op)
	names := op.Resource == of || op.Resource == "" && slices.Contains(slices.Collect(maps.Values(s.Path)), map[string]fixture.Ref{"form_collection": fixture.RefForm, "folder": fixture.RefFolder, "custom_report": fixture.RefReport}[of])
	is = names && len(s.Path) == 1 && op.Method != http.MethodGet && (op.Method != http.MethodPost || op.OnRecord) && op.Credentials&operation.Key != 0
	return is, strings.HasSuffix(op.Path, "/restore")
}

// tried is a change of one record.
type tried struct {
	what, method, target, body string
	// sure: the change succeeds if only records of the caller's team depend on the record.
	sure bool
}

// changes returns the calls of a row on a record: with each set of its switches, with all fields of its body and with
// each alone.
func changes(op *operation.Row, name func() string) (all []tried) {
	path := func(query []string) string {
		at, end := strings.Index(op.Path, "{"), strings.Index(op.Path, "}")
		return op.Path[:at] + name() + op.Path[end+1:] + "?" + strings.Join(query, "&")
	}
	var switches []string
	for _, p := range op.Params {
		if p.In == operation.InQuery && p.Shape == operation.Boolean {
			switches = append(switches, p.Name)
		}
	}
	for set := range 1 << len(switches) {
		var query []string
		for i, one := range switches {
			query = append(query, fmt.Sprintf("%s=%t", one, set>>i&1 == 1))
		}
		last := set == 1<<len(switches)-1
		preview := slices.Contains(query, "preview=true")
		if op.Body == nil {
			all = append(all, tried{op.Name + " " + strings.Join(query, " "), op.Method, path(query), "", !preview && !slices.Contains(query, "force=false") && !slices.Contains(query, "contents=false")})
			continue
		}
		bodies := map[string]map[string]any{"all": {}}
		for field, value := range fixture.SampleFor(op).Body {
			if _, isRef := value.(fixture.Ref); isRef {
				continue
			}
			if text, is := value.(string); is {
				value = strings.ReplaceAll(text, "{n}", fmt.Sprint(len(all)))
			}
			if other, has := map[string]any{"type": "LongText", "schema": map[string]any{}}[field]; has {
				value = other
			}
			bodies["all"][field] = value
			bodies[field] = map[string]any{field: value}
		}
		for _, field := range slices.Sorted(maps.Keys(bodies)) {
			if field != "all" && !last {
				continue
			}
			raw, err := json.Marshal(bodies[field])
			if err != nil {
				panic(err)
			}
			all = append(all, tried{op.Name + " of " + field + " " + strings.Join(query, " "), op.Method, path(query), string(raw), false})
		}
	}
	return all
}

// TestDefinitionsUsedByOtherTeamsAreProtected checks that a caller limited to a team cannot change, delete, restore or
// purge a record on which records of another team depend, even with force, and can if only records of its own team do.
func TestDefinitionsUsedByOtherTeamsAreProtected(t *testing.T) {
	t.Parallel()
	g := gatewaytest.Start(t)
	rows := g.App.Operations()
	carrying := slices.DeleteFunc(slices.Clone(g.App.Transfer().Importable()), func(r *record.Resource) bool { return !r.Carrying() })
	ways := dependents()
	for _, r := range carrying {
		if ways[r.Name] == nil {
			t.Errorf("got no dependent of a %s, want at least one", r.Name)
		}
	}
	for slug, team := range map[string]string{"other": fixture.TeamB, "own": fixture.TeamA} {
		acme := g.Org(t, slug, tenants.FeatureTeams)
		acme.Import(t, fixture.TeamLines()...)
		key := acme.KeyWith(t, func(k *control.NewKey) {
			k.Permissions, k.Teams = fixture.PermissionNames(tenants.AllPermissions()), []string{fixture.TeamA}
		}).Token
		lines, calls, n := []string{}, []tried{}, 0x1000
		for _, r := range carrying {
			for _, way := range slices.Sorted(maps.Keys(ways[r.Name])) {
				for i := range rows {
					is, restores := changesRecord(&rows[i], r.Name)
					if !is {
						continue
					}
					for _, deleted := range []bool{false, true} {
						purges := slices.ContainsFunc(rows[i].Params, func(p operation.Param) bool { return p.Name == "purge" })
						if restores != deleted && !(deleted && purges) {
							continue
						}
						for _, c := range changes(&rows[i], func() string {
							n++
							name, more := ways[r.Name][way](n, team, deleted)
							lines = append(lines, more...)
							return name
						}) {
							c.what = fmt.Sprintf("%s, of a %s (deleted: %t) with %s", c.what, r.Name, deleted, way)
							if deleted && purges && !strings.Contains(c.target, "purge=true") {
								continue // there is none for it
							}
							calls = append(calls, c)
						}
					}
				}
			}
		}
		acme.Import(t, lines...)
		lasting := func() []string { // what is sent again as it is changes the time alone
			return strings.Split(fixture.Blanked(nil).ReplaceAllString(fixture.Export(t, acme), ""), "\n")
		}
		before := lasting()
		refused := 0
		for _, c := range calls {
			with := []gatewaytest.Request{gatewaytest.WithKey(key)}
			if c.body != "" {
				with = append(with, fixture.JSONText(c.body))
			}
			a := acme.Do(t, c.method, c.target, with...)
			switch said := a.Code == http.StatusForbidden && a.Message == fixture.NotTheirs; {
			case slug == "own" && (said || c.sure && a.Code != http.StatusOK):
				t.Errorf("%s, of the caller's team alone: got %d %s, want it allowed", c.what, a.Code, a.Body)
			case slug == "own":
			case said:
				refused++
			case c.body == "" || strings.Contains(c.what, "of all "):
				t.Errorf("%s: got %d %s, want a refusal", c.what, a.Code, a.Body)
			}
		}
		if slug == "own" {
			continue
		}
		if refused < 150 {
			t.Errorf("%d of %d calls were refused, want at least 150", refused, len(calls))
		}
		after := lasting()
		for i := range before {
			if i >= len(after) || before[i] != after[i] {
				t.Fatalf("first change: got %[2]s\nwant %[1]s", before[i], after[min(i, len(after)-1)])
			}
		}
		if len(after) != len(before) {
			t.Errorf("something was added: got %s, want nothing", after[len(before)])
		}
	}
}

// TestConcurrentWriteOfAnotherTeamIsKept checks that a record that another team stores while a limited caller changes
// its definition is kept and the change undone, and that nothing is stored that depends on a definition that is gone.
func TestConcurrentWriteOfAnotherTeamIsKept(t *testing.T) {
	t.Parallel()
	const fields, reports = "/api/contacts/fields", "/api/custom-reports"
	id, child := fixture.DocID(0xa0), fixture.DocID(0xa1)
	setup := append(fixture.TeamLines(), `{"kind":"contact_field","key":"plan","title":"Plan","type":"Text"}`,
		`{"kind":"form_collection","id":"`+id+`","name":"ask","label":"Ask","label_plural":"Asks","schema":{"kind":{"title":"Kind","type":"Text"}}}`,
		fixture.FolderLine(0xa0, "F", "null", ""), `{"kind":"custom_report","id":"`+child+`","title":"Child","class":"Campaigns","query":{},"teams":["`+fixture.TeamA+`"]}`)
	ofB := func(more string) string { return `{` + more + `,"teams":["` + fixture.TeamB + `"]}` }
	contact, file := ofB(`"email":"b@example.com","fields":{"plan":"canary"}`), ofB(`"filename":"canary","mimetype":"text/plain","folder_id":"`+id+`"`)
	report := func(class, more string) string { return ofB(`"title":"canary","class":"` + class + `",` + more) }
	plan := report("Contacts", `"query":{"fields":["plan"]}`)
	for name, c := range map[string]struct {
		asked              string
		skip               int64
		method, path, body string
		then, with         string // what the other team stores meanwhile
		kept, as           string // what is there afterwards
	}{
		"a value of a field that is purged":     {"find contacts", 0, http.MethodDelete, fields + "/plan?purge=true&force=true", "", "/api/contacts", contact, fields + "/plan", `"type":"Text"`},
		"a value of a field of another type":    {"find contacts", 0, http.MethodPut, fields + "/plan?force=true", `{"type":"Number"}`, "/api/contacts", contact, fields + "/plan", `"type":"Text"`},
		"a report on a field that is deleted":   {"find custom_reports", 0, http.MethodDelete, fields + "/plan?force=true", "", reports, plan, fields + "/plan", `"type":"Text"`},
		"a file in a folder that is renamed":    {"find files", 0, http.MethodPut, fixture.FoldersPath + "/" + id, `{"name":"Other"}`, fixture.FilesPath, file, fixture.FoldersPath + "/" + id, `"name":"F"`},
		"a file in a folder that is purged":     {"find files", 1, http.MethodDelete, fixture.FoldersPath + "/" + id + "?purge=true&contents=true", "", fixture.FilesPath, file, fixture.FilesPath, `"folder_id":"` + id + `"`},
		"a report on a form that is changed":    {"find custom_reports", 0, http.MethodPut, fixture.FormsPath + id, `{"schema":{}}`, reports, report("Submissions", `"source":"`+id+`","query":{"fields":["kind"]}`), "/api/form/collections/" + id, `"kind"`},
		"a report that shows one that is gone":  {"find custom_reports", 1, http.MethodDelete, reports + "/" + child, "", reports, report("Campaigns", `"query":{},"child_reports":["`+child+`"]`), reports + "/" + child, "Child"},
		"a report that shows one that is ended": {"find custom_reports", 1, http.MethodDelete, reports + "/" + child + "?purge=true", "", reports, report("Campaigns", `"query":{},"child_reports":["`+child+`"]`), reports + "/" + child, "Child"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := fixture.NewStoreGate()
			acme := gatewaytest.Start(t, b.Option).Org(t, "acme", tenants.FeatureTeams)
			acme.Import(t, setup...)
			ask := fixture.WithToken(acme, acme.Key(t, tenants.AllPermissions()...))
			limited := acme.KeyWith(t, func(k *control.NewKey) {
				k.Permissions, k.Teams = fixture.PermissionNames(tenants.AllPermissions()), []string{fixture.TeamA}
			}).Token
			a := b.During(t, c.asked, c.skip, func() *gatewaytest.Answer {
				with := []gatewaytest.Request{gatewaytest.WithKey(limited), fixture.IdempotencyKey("once")}
				if c.body != "" {
					with = append(with, fixture.JSONText(c.body))
				}
				return acme.Do(t, c.method, c.path, with...)
			}, func() { ask.Want(t, 200, http.MethodPost, c.then, c.with) })
			if a.Code != http.StatusForbidden || a.Message != fixture.NotTheirs {
				t.Errorf("it is answered %d %s, want 403 and Message %v", a.Code, a.Body, fixture.NotTheirs)
			}
			ask.Want(t, 200, http.MethodGet, c.kept, "", c.as)
			ask.Want(t, 200, http.MethodGet, c.then, "", "canary")
		})
	}
	for name, c := range map[string]struct{ path, body string }{
		"a report":   {reports, plan},
		"a campaign": {"/api/campaigns", ofB(`"name":"canary","filter":{"plan":"x"}`)},
	} {
		t.Run(name+" on a field that is purged before it is stored", func(t *testing.T) {
			t.Parallel()
			b := fixture.NewStoreGate()
			acme := gatewaytest.Start(t, b.Option).Org(t, "acme", tenants.FeatureTeams)
			acme.Import(t, setup...)
			ask := fixture.WithToken(acme, acme.Key(t, tenants.AllPermissions()...))
			limited := fixture.WithToken(acme, acme.KeyWith(t, func(k *control.NewKey) {
				k.Permissions, k.Teams = fixture.PermissionNames(tenants.AllPermissions()), []string{fixture.TeamA}
			}).Token)
			a := b.During(t, "find contact_fields", 1, func() *gatewaytest.Answer {
				return acme.Do(t, http.MethodPost, c.path, gatewaytest.WithKey(ask.Token), fixture.JSONText(c.body))
			}, func() { limited.Want(t, 200, http.MethodDelete, fields+"/plan?purge=true", "") })
			if a.Code != http.StatusUnprocessableEntity {
				t.Errorf("it is answered %d %s, want 422", a.Code, a.Body)
			}
			ask.Want(t, 200, http.MethodGet, c.path, "", "!canary")
		})
	}
}

// TestReportOfAllFieldsDependsOnEach checks that a report of all fields depends on each of them.
func TestReportOfAllFieldsDependsOnEach(t *testing.T) {
	t.Parallel()
	acme := gatewaytest.Start(t).Org(t, "acme", tenants.FeatureTeams)
	acme.Import(t, append(fixture.TeamLines(), `{"kind":"contact_field","key":"plan","title":"Plan","type":"Text"}`,
		`{"kind":"custom_report","title":"All","class":"Contacts","query":{},"teams":["`+fixture.TeamB+`"]}`)...)
	limited := fixture.WithToken(acme, acme.KeyWith(t, func(k *control.NewKey) { k.Permissions, k.Teams = []string{"contacts"}, []string{fixture.TeamA} }).Token)
	limited.Want(t, 403, http.MethodPut, "/api/contacts/fields/plan", `{"title":"Other"}`, fixture.NotTheirs)
	limited.Want(t, 200, http.MethodPut, "/api/contacts/fields/plan", `{"title":"Plan"}`)
	limited.Want(t, 200, http.MethodPost, "/api/contacts/fields", `{"key":"more","title":"More","type":"Text"}`)
}

// TestAddedFieldsAffectNoOtherTeam lets a limited caller add fields to definitions that records of other teams
// depend on.
func TestAddedFieldsAffectNoOtherTeam(t *testing.T) {
	t.Parallel()
	acme := gatewaytest.Start(t).Org(t, "acme", tenants.FeatureTeams)
	const kind, more = `"kind":{"title":"Kind","type":"Text"}`, `"more":{"title":"More","type":"Text"}`
	report := func(class, source string) string {
		return `{"kind":"custom_report","title":"R","class":"` + class + `","source":"` + source + `","query":{"fields":["kind"]},"teams":["` + fixture.TeamB + `"]}`
	}
	acme.Import(t, append(fixture.TeamLines(), `{"kind":"custom_object","name":"tree","label":"Tree","label_plural":"Trees","schema":{`+kind+`}}`,
		`{"kind":"form_collection","id":"`+fixture.DocID(1)+`","name":"ask","label":"Ask","label_plural":"Asks","schema":{`+kind+`}}`, report("Records", "tree"), report("Submissions", fixture.DocID(1)))...)
	limited := fixture.WithToken(acme, acme.KeyWith(t, func(k *control.NewKey) {
		k.Permissions, k.Teams = fixture.PermissionNames(tenants.AllPermissions()), []string{fixture.TeamA}
	}).Token)
	for _, path := range []string{fixture.TreePath, fixture.FormsPath + fixture.DocID(1)} {
		limited.Want(t, 200, http.MethodPut, path, `{"schema":{`+kind+`,`+more+`}}`)
		for _, body := range []string{
			`{"schema":{` + kind + `,` + more + `,"must":{"title":"Must","type":"Text","required":true}}}`, `{"schema":{` + more + `}}`, `{"schema":{"kind":{"title":"Other","type":"Text"},` + more + `}}`, `{"label":"Other"}`,
		} {
			limited.Want(t, 403, http.MethodPut, path, body, fixture.NotTheirs)
		}
	}
}

// TestLimitedCallerCannotChangeWiderReports checks that a caller limited to a team cannot change a report that shows
// more, or its share tokens, and can change one that does not.
func TestLimitedCallerCannotChangeWiderReports(t *testing.T) {
	t.Parallel()
	acme := gatewaytest.Start(t).Org(t, "acme", tenants.FeatureTeams)
	acme.Import(t, append(fixture.TeamLines(), `{"kind":"custom_report","id":"`+fixture.DocID(1)+`","title":"B","class":"Campaigns","query":{}}`)...)
	limited := gatewaytest.WithKey(acme.KeyWith(t, func(k *control.NewKey) {
		k.Permissions, k.Teams = fixture.PermissionNames(tenants.AllPermissions()), []string{fixture.TeamA}
	}).Token)
	root := fixture.As(acme, gatewaytest.WithKey(acme.Key(t, tenants.AllPermissions()...)))
	calls, n := 0, 0x10
	for _, op := range acme.App.Operations() {
		if !strings.HasPrefix(op.Path, "/api/custom-reports/{id}") || op.Method == http.MethodGet || op.Credentials&operation.Key == 0 {
			continue
		}
		for more, own := range map[string]bool{
			`"teams":[]`: false, `"teams":["` + fixture.TeamA + `","` + fixture.TeamB + `"]`: false, `"teams":["` + fixture.TeamA + `"]`: true,
			`"teams":["` + fixture.TeamA + `"],"child_reports":["` + fixture.DocID(1) + `"]`: false,
		} {
			n++
			path := "/api/custom-reports/" + fixture.DocID(n)
			acme.Import(t, `{"kind":"custom_report","id":"`+fixture.DocID(n)+`","title":"R","class":"Campaigns","query":{},`+more+`}`)
			token := fmt.Sprint(root.Want(t, http.MethodPost, path+"/share", `{}`, 200, "").Field("id"))
			if strings.HasSuffix(op.Path, "/restore") {
				root.Want(t, http.MethodDelete, path, "", 200, "")
			}
			with := []gatewaytest.Request{limited}
			if op.Body != nil {
				with = append(with, fixture.JSONText(`{}`))
			}
			calls++
			a := acme.Do(t, op.Method, strings.NewReplacer("{id}", fixture.DocID(n), "{token_id}", token).Replace(op.Path), with...)
			if said := a.Code == http.StatusUnprocessableEntity && strings.Contains(a.Message, "shows more than your teams"); said == own || own && a.Code != http.StatusOK {
				t.Errorf("%[1]s of a report with %[2]s: got %[3]d %[4]s, want refused = %[5]t",
					op.Name, more, a.Code, a.Body, !own)
			}
			if !own && !strings.HasSuffix(op.Path, "/restore") {
				root.Want(t, http.MethodGet, path+"/shares", "", 200, token)
			}
		}
	}
	if calls < 7*4 {
		t.Errorf("%d calls were tried, want at least %v", calls, 7*4)
	}
}

// TestLimitedCallerCannotChangeRightsBeyondItsTeams checks that a caller limited to a team cannot change a role that
// others may have, or a team, person, account or key beyond it.
func TestLimitedCallerCannotChangeRightsBeyondItsTeams(t *testing.T) {
	t.Parallel()
	acme := gatewaytest.Start(t).Org(t, "acme", tenants.FeatureTeams)
	acme.Import(t, append(fixture.TeamLines(), `{"kind":"role","name":"editor","permissions":["contacts"]}`,
		`{"kind":"user","id":70,"name":"Bob","email":"bob@example.com","roles":["editor"],"teams":["`+fixture.TeamB+`"]}`,
		`{"kind":"service_account","id":"`+fixture.DocID(9)+`","name":"theirs","permissions":["contacts"],"teams":["`+fixture.TeamB+`"]}`)...)
	root := fixture.As(acme, gatewaytest.WithKey(acme.Key(t, tenants.AllPermissions()...)))
	key := root.Create(t, "/api/keys", `{"name":"k","kind":"server_full","account":"`+fixture.DocID(9)+`"}`)
	limited := gatewaytest.WithKey(acme.KeyWith(t, func(k *control.NewKey) {
		k.Permissions, k.Teams = fixture.PermissionNames(tenants.AllPermissions()), []string{fixture.TeamA}
	}).Token)
	of := map[string]string{"role": "editor", "team": fixture.TeamB, "user": "70", "service_account": fixture.DocID(9), "key": key}
	state := func() (all string) {
		for _, path := range []string{"/api/roles", "/api/teams", "/api/users/70", "/api/service-accounts/" + fixture.DocID(9), "/api/keys/" + key} {
			all += root.Want(t, http.MethodGet, path, "", 200, "").Text()
		}
		return all
	}
	before, calls := state(), 0
	for _, op := range acme.App.Operations() {
		at, end := strings.Index(op.Path, "{"), strings.Index(op.Path, "}")
		if of[op.Resource] == "" || op.Method == http.MethodGet || at < 0 || op.Credentials&operation.Key == 0 {
			continue
		}
		body := map[string]any{}
		for name, value := range fixture.SampleFor(&op).Body {
			if _, isRef := value.(fixture.Ref); !isRef {
				body[name] = value
			}
		}
		with := []gatewaytest.Request{limited}
		if op.Body != nil {
			with = append(with, gatewaytest.JSON(body))
		}
		calls++
		if a := acme.Do(t, op.Method, op.Path[:at]+of[op.Resource]+op.Path[end+1:], with...); a.Code < 400 {
			t.Errorf("%s: got %d %s, want a.Code >= 400", op.Name, a.Code, a.Body)
		}
	}
	if after := state(); after != before || calls < 12 {
		t.Errorf("%d calls: state was\n%s\nis now\n%s, want it unchanged after at least 12 calls", calls, before, after)
	}
}
