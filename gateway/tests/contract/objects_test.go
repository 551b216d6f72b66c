package contract

import (
	"fmt"
	"net/http"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"zombiezen.com/go/sqlite"
	"zombiezen.com/go/sqlite/sqlitex"

	"tenantry/config"
	"tenantry/gateway"
	"tenantry/gateway/control"
	"tenantry/gateway/gatewaytest"
	"tenantry/gateway/tests/fixture"
	"tenantry/tenants"
)

func TestContract_CreateObject(t *testing.T) {
	t.Parallel()
	g := gatewaytest.Start(t)
	acme, other := g.Org(t, "acme", "teams"), g.Org(t, "other")
	key := acme.Key(t, tenants.ManageCustomObjects)
	const body = `{"name":"car","label":"Car","label_plural":"Cars","schema":{"plate":{"title":"Plate","type":"Text"},"hull":{"title":"Hull","type":"Hologram9"}}}`
	id := fixture.WantCreated(t, fixture.PostJSON(t, acme, key, fixture.ObjectsPath, body), "car", "Car", "Cars")
	schema := fixture.Member(t, acme.Get(t, key, fixture.ObjectsPath+"/schema?id="+id).DataJSON(), "schema")
	fixture.WantMember(t, schema, `{"title":"Plate","type":"Text"}`, "plate")
	fixture.WantMember(t, schema, `{"title":"Hull","type":"Hologram9"}`, "hull")

	// The names are unique only within the organization.
	fixture.WantCreated(t, fixture.PostJSON(t, other, other.Key(t, tenants.ManageCustomObjects), fixture.ObjectsPath, body), "car", "Car", "Cars")
	for _, row := range []struct{ name, label, plural, faults string }{
		{"car", "L", "P", "name duplicate"},
		{"n", "Car", "P", "label duplicate"},
		{"n", "L", "Cars", "label_plural duplicate"},
		{"car", "Car", "Cars", "name duplicate,label duplicate,label_plural duplicate"},
	} {
		a := fixture.PostJSON(t, acme, key, fixture.ObjectsPath, fmt.Sprintf(`{"name":%q,"label":%q,"label_plural":%q}`, row.name, row.label, row.plural))
		fixture.WantFaults(t, a, http.StatusConflict, strings.Split(row.faults, ",")...)
	}
	// The refusals above stored nothing.
	fixture.WantCreated(t, fixture.PostJSON(t, acme, key, fixture.ObjectsPath, `{"name":"n","label":"L","label_plural":"P"}`), "n", "L", "P")

	all := func(k string) []gatewaytest.Request {
		return []gatewaytest.Request{gatewaytest.WithKey(k), fixture.JSONText(body)}
	}
	read := acme.KeyWith(t, func(k *control.NewKey) {
		k.Kind, k.Permissions = "server_read", []string{"manage_custom_objects"}
	}).Token
	checkRows(t, acme, []exactRow{
		{name: "no key", method: "POST", path: fixture.ObjectsPath, with: []gatewaytest.Request{fixture.JSONText(body)}, code: 403, body: fixture.DeniedBody},
		{name: "no permission", method: "POST", path: fixture.ObjectsPath, with: all(acme.Key(t, tenants.ManageForms)), code: 403, body: fixture.EnvelopeLacking("manage_custom_objects")},
		{name: "a reading key", method: "POST", path: fixture.ObjectsPath, with: all(read), code: 403, body: fixture.DeniedBody},
	})
}

func TestContract_CreateObjectValidation(t *testing.T) {
	t.Parallel()
	g := gatewaytest.Start(t)
	acme := g.Org(t, "acme", "teams")
	key := acme.Key(t, tenants.ManageCustomObjects)
	fields := func(n int) string {
		list := make([]string, n)
		for i := range list {
			list[i] = fmt.Sprintf(`"f%d":{"title":"F","type":"Text"}`, i)
		}
		return `{` + strings.Join(list, ",") + `}`
	}
	for _, row := range []struct {
		name, body string
		faults     string
	}{
		{"nothing", `{}`, "name required,label required,label_plural required"},
		{"nulls", `{"name":null,"label":null,"label_plural":null}`, "name *,label *,label_plural *"},
		{"empty", `{"name":"","label":"","label_plural":""}`, "name *,label *,label_plural *"},
		{"types", `{"name":1,"label":[],"label_plural":{},"schema":"x"}`, "name type,label type,label_plural type,schema type"},
		{"a list: elements", `{` + fixture.NamesOf("a") + `,"schema":[{"title":"T","type":"text"},7,{"type":"Text"}]}`, "schema.0.type *,schema.1 type,schema.2.title required"},
		{"a list: 501", `{` + fixture.NamesOf("a") + `,"schema":[` + strings.Repeat(`{"title":"T","type":"Text"},`, 500) + `{"title":"T","type":"Text"}]}`, "schema *"},
		{"everything at once", `{"name":"No","label":"L","schema":{"a":{"type":"text"},"b":{"title":"B"},"c d":{"title":"C","type":"Text"},"d":7}}`,
			"name *,label_plural required,schema.a.title required,schema.a.type *,schema.b.type required,schema.\"c d\" *,schema.d type"},
		{"name: capital", `{"name":"Car","label":"L","label_plural":"P"}`, "name *"},
		{"name: digit first", `{"name":"1car","label":"L","label_plural":"P"}`, "name *"},
		{"name: blank", `{"name":"my car","label":"L","label_plural":"P"}`, "name *"},
		{"name: 65", `{"name":"` + strings.Repeat("a", 65) + `","label":"L","label_plural":"P"}`, "name *"},
		{"type: lower case", `{` + fixture.NamesOf("a") + `,"schema":{"f":{"title":"F","type":"text"}}}`, "schema.f.type *"},
		{"type: blank", `{` + fixture.NamesOf("a") + `,"schema":{"f":{"title":"F","type":"Long Text"}}}`, "schema.f.type *"},
		{"type: underscore", `{` + fixture.NamesOf("a") + `,"schema":{"f":{"title":"F","type":"Long_Text"}}}`, "schema.f.type *"},
		{"type: number", `{` + fixture.NamesOf("a") + `,"schema":{"f":{"title":1,"type":2}}}`, "schema.f.title type,schema.f.type type"},
		{"field: empty", `{` + fixture.NamesOf("a") + `,"schema":{"f":{}}}`, "schema.f.title required,schema.f.type required"},
		{"identifier: dot", `{` + fixture.NamesOf("a") + `,"schema":{"a.b":{"title":"F","type":"Text"}}}`, "schema.\"a.b\" *"},
		{"identifier: 65", `{` + fixture.NamesOf("a") + `,"schema":{"` + strings.Repeat("f", 65) + `":{"title":"F","type":"Text"}}}`, "* *"},
		{"501 fields", `{` + fixture.NamesOf("a") + `,"schema":` + fields(501) + `}`, "schema *"},
	} {
		t.Run(row.name, func(t *testing.T) {
			a := fixture.PostJSON(t, acme, key, fixture.ObjectsPath, row.body)
			fixture.WantFaults(t, a, http.StatusUnprocessableEntity, strings.Split(row.faults, ",")...)
		})
	}
	long := strings.Repeat("a", 64)
	fixture.WantCreated(t, fixture.PostJSON(t, acme, key, fixture.ObjectsPath, `{"name":"`+long+`","label":"Long","label_plural":"Longs","schema":{"A-b_9`+strings.Repeat("f", 59)+`":{"title":"F","type":"Text"}}}`), long, "Long", "Longs")
	fixture.WantCreated(t, fixture.PostJSON(t, acme, key, fixture.ObjectsPath, `{`+fixture.NamesOf("most")+`,"schema":`+fields(500)+`}`), "most", "most one", "most many")
	fixture.WantCreated(t, fixture.PostJSON(t, acme, key, fixture.ObjectsPath, `{`+fixture.NamesOf("none")+`}`), "none", "none one", "none many")
	fixture.WantCreated(t, fixture.PostJSON(t, acme, key, fixture.ObjectsPath, `{`+fixture.NamesOf("empty")+`,"schema":{}}`), "empty", "empty one", "empty many")
	known := []string{"Text", "LongText", "Number", "Boolean", "Date", "DateTime", "Email", "Phone", "Url", "Select", "MultiSelect", "Encrypted"}
	list := make([]string, len(known))
	for i, name := range known {
		list[i] = `"f` + strconv.Itoa(i) + `":{"title":"` + name + `","type":"` + name + `"}`
	}
	fixture.WantCreated(t, fixture.PostJSON(t, acme, key, fixture.ObjectsPath, `{`+fixture.NamesOf("known")+`,"schema":{`+strings.Join(list, ",")+`}}`), "known", "known one", "known many")
}

// TestContract_CreateObjectOfAList checks that an array defines fields named 0, 1, 2.
func TestContract_CreateObjectOfAList(t *testing.T) {
	t.Parallel()
	g := gatewaytest.Start(t)
	acme := g.Org(t, "acme")
	key := acme.Key(t, tenants.ManageCustomObjects)
	id := fixture.WantCreated(t, fixture.PostJSON(t, acme, key, fixture.ObjectsPath,
		`{`+fixture.NamesOf("a")+`,"schema":[{"title":"F","type":"Text"},{"title":"G","type":"Number","required":true}]}`), "a", "a one", "a many")
	schema := fixture.Member(t, acme.Get(t, key, fixture.ObjectsPath+"/schema?id="+id).DataJSON(), "schema")
	fixture.WantMember(t, schema, `{"title":"F","type":"Text"}`, "0")
	fixture.WantMember(t, schema, `{"title":"G","type":"Number","required":true}`, "1")
	fixture.WantMember(t, schema, "", "2")
	fixture.WantCreated(t, fixture.PostJSON(t, acme, key, fixture.ObjectsPath, `{`+fixture.NamesOf("b")+`,"schema":[]}`), "b", "b one", "b many")
}

func TestContract_CreateObjectDropsFields(t *testing.T) {
	t.Parallel()
	g := gatewaytest.Start(t)
	acme := g.Org(t, "acme", "teams")
	key := acme.Key(t, tenants.ManageCustomObjects)
	id := fixture.WantCreated(t, fixture.PostJSON(t, acme, key, fixture.ObjectsPath,
		`{`+fixture.NamesOf("a")+`,"fields":{"x":{"title":"X","type":"Text"}},"schema":{"fields":{"title":"F","type":"Text"},"kept":{"title":"K","type":"Text"}}}`),
		"a", "a one", "a many")
	schema := fixture.Member(t, acme.Get(t, key, fixture.ObjectsPath+"/schema?id="+id).DataJSON(), "schema")
	fixture.WantMember(t, schema, `{"title":"K","type":"Text"}`, "kept")
	fixture.WantMember(t, schema, "", "fields")
	fixture.WantMember(t, schema, "", "x")
	// Ignored fields are not checked either.
	fixture.WantCreated(t, fixture.PostJSON(t, acme, key, fixture.ObjectsPath, `{`+fixture.NamesOf("b")+`,"fields":7,"schema":{"fields":"nonsense"}}`), "b", "b one", "b many")
}

func TestContract_CreateObjectIgnores(t *testing.T) {
	t.Parallel()
	g := gatewaytest.Start(t)
	acme := g.Org(t, "acme", "teams")
	key := acme.Key(t, tenants.ManageCustomObjects)
	for i, extra := range []struct{ field, value string }{
		{"id", `"` + fixture.DocID(7) + `"`}, {"org_id", "99"}, {"user_id", "99"}, {"standalone", "true"}, {"locked", "true"},
		{"created_at", `"2001-01-01T00:00:00.000Z"`}, {"colour", `"red"`}, {"Name", `"other"`}, {"LABEL", `"other"`},
	} {
		word := "w" + strconv.Itoa(i)
		body := `{` + fixture.NamesOf(word) + `,"` + extra.field + `":` + extra.value + `}`
		// Strict handling refuses and stores nothing, so the same names are free afterwards.
		refused := fixture.PostJSON(t, acme, key, fixture.ObjectsPath, body, strict())
		if fixture.WantFailure(t, refused, http.StatusBadRequest); !strings.Contains(refused.Message, extra.field) {
			t.Errorf("the refusal does not name %s: got %s, want it there", extra.field, refused.Text())
		}
		a := fixture.PostJSON(t, acme, key, fixture.ObjectsPath, body)
		if id := fixture.WantCreated(t, a, word, word+" one", word+" many"); id == fixture.DocID(7) {
			t.Error("got the identifier that the caller sent, want a new one")
		}
		wantIgnored(t, a, extra.field)
	}
	a := fixture.PostJSON(t, acme, key, fixture.ObjectsPath+"?colour=red&size=1", `{`+fixture.NamesOf("query")+`}`)
	fixture.WantCreated(t, a, "query", "query one", "query many")
	if names := ignored(a); len(names) != 2 || names[0] != "colour" || !strings.HasPrefix(names[1], "size") {
		t.Errorf("X-Ignored = %q, want colour and size", names)
	}
	fixture.WantFailure(t, fixture.PostJSON(t, acme, key, fixture.ObjectsPath+"?colour=red", `{`+fixture.NamesOf("strict")+`}`, strict()), http.StatusBadRequest)
	fixture.WantCreated(t, fixture.PostJSON(t, acme, key, fixture.ObjectsPath+"?teams[]="+fixture.TeamA, `{`+fixture.NamesOf("known")+`,"teams":["`+fixture.TeamA+`"]}`, strict()), "known", "known one", "known many")
}

// TestContract_CreateObjectGenericFailure checks that a failure of the store has an object as data.
func TestContract_CreateObjectGenericFailure(t *testing.T) {
	t.Parallel()
	g := gatewaytest.Start(t, gatewaytest.OwnFiles, func(c *config.Config, _ *gateway.Options) { c.SQLite.QueryTimeout = 5 * time.Second })
	acme := g.Org(t, "acme")
	key := acme.Key(t, tenants.ManageCustomObjects)
	body := `{` + fixture.NamesOf("a") + `}`
	fixture.WantFaults(t, fixture.PostJSON(t, acme, key, fixture.ObjectsPath, `{"name":"a","label":"L"}`), http.StatusUnprocessableEntity, "label_plural required") // the key is known now
	conn, err := sqlite.OpenConn(filepath.Join(g.Config.Data, "db", fmt.Sprintf("org-%d.db", acme.Tenant(t).Org.OrgID)))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if err := sqlitex.ExecuteTransient(conn, "BEGIN IMMEDIATE", nil); err != nil {
		t.Fatal(err)
	}
	a := fixture.PostJSON(t, acme, key, fixture.ObjectsPath, body)
	if fixture.WantFailure(t, a, http.StatusServiceUnavailable); a.DataJSON() != "{}" || a.Header.Get("Retry-After") == "" {
		t.Errorf("answered %s with %v, want the data %q and a header Retry-After", a.Text(), a.Header, "{}")
	}
	if err := sqlitex.ExecuteTransient(conn, "ROLLBACK", nil); err != nil {
		t.Fatal(err)
	}
	fixture.WantCreated(t, fixture.PostJSON(t, acme, key, fixture.ObjectsPath, body), "a", "a one", "a many")
}

func TestContract_ObjectSchema(t *testing.T) {
	t.Parallel()
	g := gatewaytest.Start(t)
	acme, other := g.Org(t, "acme", "teams"), g.Org(t, "other")
	key := acme.Key(t, tenants.ManageCustomObjects)
	id := fixture.WantCreated(t, fixture.PostJSON(t, acme, key, fixture.ObjectsPath, `{`+fixture.NamesOf("tree")+`,"schema":{"species":{"title":"Species","type":"Text"}}}`), "tree", "tree one", "tree many")
	with := []gatewaytest.Request{gatewaytest.WithKey(key)}
	plain := acme.Get(t, key, fixture.ObjectsPath+"/schema")
	fixture.WantMembers(t, plain.DataJSON(), "schema")
	if plain.Code != http.StatusOK || plain.Message != "Custom Object schema" {
		t.Errorf(`got %d %s, want %v and plain.Message = "Custom Object schema"`, plain.Code, plain.Text(), http.StatusOK)
	}
	byID, byName := acme.Get(t, key, fixture.ObjectsPath+"/schema?id="+id), acme.Get(t, key, fixture.ObjectsPath+"/schema?name=tree")
	if byID.Text() != byName.Text() || !strings.Contains(byID.Text(), `"species":{"title":"Species","type":"Text"}`) {
		t.Errorf("by id: got %s\nby name: %s, want the same with species", byID.Text(), byName.Text())
	}
	missing := envelopeFailed("Custom Object not found")
	checkRows(t, acme, []exactRow{
		{name: "absent", path: fixture.ObjectsPath + "/schema?id=" + fixture.AbsentID, with: with, code: 404, body: missing},
		{name: "malformed", path: fixture.ObjectsPath + "/schema?id=x", with: with, code: 404, body: missing},
		{name: "absent name", path: fixture.ObjectsPath + "/schema?name=bush", with: with, code: 404, body: missing},
		{name: "no permission", path: fixture.ObjectsPath + "/schema", with: []gatewaytest.Request{gatewaytest.WithKey(acme.Key(t))}, code: 403, body: fixture.EnvelopeLacking("manage_custom_objects")},
		{name: "no key", path: fixture.ObjectsPath + "/schema", code: 403, body: fixture.DeniedBody},
	})
	checkRows(t, other, []exactRow{{name: "of another organization", path: fixture.ObjectsPath + "/schema?id=" + id,
		with: []gatewaytest.Request{gatewaytest.WithKey(other.Key(t, tenants.ManageCustomObjects))}, code: 404, body: missing}})
}
