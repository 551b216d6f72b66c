package gateway_test

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
	"tenantry/tenants"
)

const objectsPath = "/api/custom/objects"

// post sends a JSON body with the key.
func post(t *testing.T, o *gatewaytest.Org, key, path, body string, more ...gatewaytest.Request) *gatewaytest.Answer {
	t.Helper()
	return o.Do(t, http.MethodPost, path, append([]gatewaytest.Request{gatewaytest.WithKey(key), jsonText(body)}, more...)...)
}

// wantCreated checks the whole answer to a creation and returns the new identifier.
func wantCreated(t *testing.T, a *gatewaytest.Answer, name, label, plural string) string {
	t.Helper()
	id, _ := a.Field("id").(string)
	if len(id) != 24 || strings.Trim(id, "0123456789abcdef") != "" {
		t.Errorf("the identifier %q is not 24 hex digits", id)
	}
	wantBody(t, a, http.StatusOK, envelopeOK("Custom Object created", `{"id":"`+id+`","name":"`+name+`","label":"`+label+`","label_plural":"`+plural+`"}`))
	return id
}

// namesOf returns the three names of a body, from one word.
func namesOf(word string) string {
	return `"name":"` + word + `","label":"` + word + ` one","label_plural":"` + word + ` many"`
}

func TestContract_CreateObject(t *testing.T) {
	t.Parallel()
	g := gatewaytest.Start(t)
	acme, other := g.Org(t, "acme", "teams"), g.Org(t, "other")
	key := acme.Key(t, tenants.ManageCustomObjects)
	const body = `{"name":"car","label":"Car","label_plural":"Cars","schema":{"plate":{"title":"Plate","type":"Text"},"hull":{"title":"Hull","type":"Hologram9"}}}`
	id := wantCreated(t, post(t, acme, key, objectsPath, body), "car", "Car", "Cars")
	schema := member(t, acme.Get(t, key, objectsPath+"/schema?id="+id).DataJSON(), "schema")
	wantMember(t, schema, `{"title":"Plate","type":"Text"}`, "plate")
	wantMember(t, schema, `{"title":"Hull","type":"Hologram9"}`, "hull")

	// The names are unique within the organization alone.
	wantCreated(t, post(t, other, other.Key(t, tenants.ManageCustomObjects), objectsPath, body), "car", "Car", "Cars")
	for _, row := range []struct{ name, label, plural, faults string }{
		{"car", "L", "P", "name duplicate"},
		{"n", "Car", "P", "label duplicate"},
		{"n", "L", "Cars", "label_plural duplicate"},
		{"car", "Car", "Cars", "name duplicate,label duplicate,label_plural duplicate"},
	} {
		a := post(t, acme, key, objectsPath, fmt.Sprintf(`{"name":%q,"label":%q,"label_plural":%q}`, row.name, row.label, row.plural))
		wantFaults(t, a, http.StatusConflict, strings.Split(row.faults, ",")...)
	}
	// No refusal above left anything behind.
	wantCreated(t, post(t, acme, key, objectsPath, `{"name":"n","label":"L","label_plural":"P"}`), "n", "L", "P")

	all := func(k string) []gatewaytest.Request {
		return []gatewaytest.Request{gatewaytest.WithKey(k), jsonText(body)}
	}
	read := acme.KeyWith(t, func(k *control.NewKey) {
		k.Kind, k.Permissions = "server_read", []string{"manage_custom_objects"}
	}).Token
	checkRows(t, acme, []exactRow{
		{name: "no key", method: "POST", path: objectsPath, with: []gatewaytest.Request{jsonText(body)}, code: 403, body: deniedBody},
		{name: "no permission", method: "POST", path: objectsPath, with: all(acme.Key(t, tenants.ManageForms)), code: 403, body: envelopeLacking("manage_custom_objects")},
		{name: "a reading key", method: "POST", path: objectsPath, with: all(read), code: 403, body: deniedBody},
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
		{"a list: elements", `{` + namesOf("a") + `,"schema":[{"title":"T","type":"text"},7,{"type":"Text"}]}`, "schema.0.type *,schema.1 type,schema.2.title required"},
		{"a list: 501", `{` + namesOf("a") + `,"schema":[` + strings.Repeat(`{"title":"T","type":"Text"},`, 500) + `{"title":"T","type":"Text"}]}`, "schema *"},
		{"everything at once", `{"name":"No","label":"L","schema":{"a":{"type":"text"},"b":{"title":"B"},"c d":{"title":"C","type":"Text"},"d":7}}`,
			"name *,label_plural required,schema.a.title required,schema.a.type *,schema.b.type required,schema.\"c d\" *,schema.d type"},
		{"name: capital", `{"name":"Car","label":"L","label_plural":"P"}`, "name *"},
		{"name: digit first", `{"name":"1car","label":"L","label_plural":"P"}`, "name *"},
		{"name: blank", `{"name":"my car","label":"L","label_plural":"P"}`, "name *"},
		{"name: 65", `{"name":"` + strings.Repeat("a", 65) + `","label":"L","label_plural":"P"}`, "name *"},
		{"type: lower case", `{` + namesOf("a") + `,"schema":{"f":{"title":"F","type":"text"}}}`, "schema.f.type *"},
		{"type: blank", `{` + namesOf("a") + `,"schema":{"f":{"title":"F","type":"Long Text"}}}`, "schema.f.type *"},
		{"type: underscore", `{` + namesOf("a") + `,"schema":{"f":{"title":"F","type":"Long_Text"}}}`, "schema.f.type *"},
		{"type: number", `{` + namesOf("a") + `,"schema":{"f":{"title":1,"type":2}}}`, "schema.f.title type,schema.f.type type"},
		{"field: empty", `{` + namesOf("a") + `,"schema":{"f":{}}}`, "schema.f.title required,schema.f.type required"},
		{"identifier: dot", `{` + namesOf("a") + `,"schema":{"a.b":{"title":"F","type":"Text"}}}`, "schema.\"a.b\" *"},
		{"identifier: 65", `{` + namesOf("a") + `,"schema":{"` + strings.Repeat("f", 65) + `":{"title":"F","type":"Text"}}}`, "* *"},
		{"501 fields", `{` + namesOf("a") + `,"schema":` + fields(501) + `}`, "schema *"},
	} {
		t.Run(row.name, func(t *testing.T) {
			a := post(t, acme, key, objectsPath, row.body)
			wantFaults(t, a, http.StatusUnprocessableEntity, strings.Split(row.faults, ",")...)
		})
	}
	long := strings.Repeat("a", 64)
	wantCreated(t, post(t, acme, key, objectsPath, `{"name":"`+long+`","label":"Long","label_plural":"Longs","schema":{"A-b_9`+strings.Repeat("f", 59)+`":{"title":"F","type":"Text"}}}`), long, "Long", "Longs")
	wantCreated(t, post(t, acme, key, objectsPath, `{`+namesOf("most")+`,"schema":`+fields(500)+`}`), "most", "most one", "most many")
	wantCreated(t, post(t, acme, key, objectsPath, `{`+namesOf("none")+`}`), "none", "none one", "none many")
	wantCreated(t, post(t, acme, key, objectsPath, `{`+namesOf("empty")+`,"schema":{}}`), "empty", "empty one", "empty many")
	known := []string{"Text", "LongText", "Number", "Boolean", "Date", "DateTime", "Email", "Phone", "Url", "Select", "MultiSelect", "Encrypted"}
	list := make([]string, len(known))
	for i, name := range known {
		list[i] = `"f` + strconv.Itoa(i) + `":{"title":"` + name + `","type":"` + name + `"}`
	}
	wantCreated(t, post(t, acme, key, objectsPath, `{`+namesOf("known")+`,"schema":{`+strings.Join(list, ",")+`}}`), "known", "known one", "known many")
}

// TestContract_CreateObjectOfAList: an array makes fields named 0, 1, 2.
func TestContract_CreateObjectOfAList(t *testing.T) {
	t.Parallel()
	g := gatewaytest.Start(t)
	acme := g.Org(t, "acme")
	key := acme.Key(t, tenants.ManageCustomObjects)
	id := wantCreated(t, post(t, acme, key, objectsPath,
		`{`+namesOf("a")+`,"schema":[{"title":"F","type":"Text"},{"title":"G","type":"Number","required":true}]}`), "a", "a one", "a many")
	schema := member(t, acme.Get(t, key, objectsPath+"/schema?id="+id).DataJSON(), "schema")
	wantMember(t, schema, `{"title":"F","type":"Text"}`, "0")
	wantMember(t, schema, `{"title":"G","type":"Number","required":true}`, "1")
	wantMember(t, schema, "", "2")
	wantCreated(t, post(t, acme, key, objectsPath, `{`+namesOf("b")+`,"schema":[]}`), "b", "b one", "b many")
}

func TestContract_CreateObjectDropsFields(t *testing.T) {
	t.Parallel()
	g := gatewaytest.Start(t)
	acme := g.Org(t, "acme", "teams")
	key := acme.Key(t, tenants.ManageCustomObjects)
	id := wantCreated(t, post(t, acme, key, objectsPath,
		`{`+namesOf("a")+`,"fields":{"x":{"title":"X","type":"Text"}},"schema":{"fields":{"title":"F","type":"Text"},"kept":{"title":"K","type":"Text"}}}`),
		"a", "a one", "a many")
	schema := member(t, acme.Get(t, key, objectsPath+"/schema?id="+id).DataJSON(), "schema")
	wantMember(t, schema, `{"title":"K","type":"Text"}`, "kept")
	wantMember(t, schema, "", "fields")
	wantMember(t, schema, "", "x")
	// What is dropped is not looked at either.
	wantCreated(t, post(t, acme, key, objectsPath, `{`+namesOf("b")+`,"fields":7,"schema":{"fields":"nonsense"}}`), "b", "b one", "b many")
}

func TestContract_CreateObjectIgnores(t *testing.T) {
	t.Parallel()
	g := gatewaytest.Start(t)
	acme := g.Org(t, "acme", "teams")
	key := acme.Key(t, tenants.ManageCustomObjects)
	for i, extra := range []struct{ field, value string }{
		{"id", `"` + docID(7) + `"`}, {"org_id", "99"}, {"user_id", "99"}, {"standalone", "true"}, {"locked", "true"},
		{"created_at", `"2001-01-01T00:00:00.000Z"`}, {"colour", `"red"`}, {"Name", `"other"`}, {"LABEL", `"other"`},
	} {
		word := "w" + strconv.Itoa(i)
		body := `{` + namesOf(word) + `,"` + extra.field + `":` + extra.value + `}`
		// Strict handling refuses, and stores nothing: the same names are free afterwards.
		refused := post(t, acme, key, objectsPath, body, strict())
		if wantFailure(t, refused, http.StatusBadRequest); !strings.Contains(refused.Message, extra.field) {
			t.Errorf("the refusal does not name %s: %s", extra.field, refused.Text())
		}
		a := post(t, acme, key, objectsPath, body)
		if id := wantCreated(t, a, word, word+" one", word+" many"); id == docID(7) {
			t.Error("the caller chose the identifier")
		}
		wantIgnored(t, a, extra.field)
	}
	a := post(t, acme, key, objectsPath+"?colour=red&size=1", `{`+namesOf("query")+`}`)
	wantCreated(t, a, "query", "query one", "query many")
	if names := ignored(a); len(names) != 2 || names[0] != "colour" || !strings.HasPrefix(names[1], "size") {
		t.Errorf("X-Ignored names %q", names)
	}
	wantFailure(t, post(t, acme, key, objectsPath+"?colour=red", `{`+namesOf("strict")+`}`, strict()), http.StatusBadRequest)
	wantCreated(t, post(t, acme, key, objectsPath+"?teams[]="+teamA, `{`+namesOf("known")+`,"teams":["`+teamA+`"]}`, strict()), "known", "known one", "known many")
}

// A failure of the store has an object as data.
func TestContract_CreateObjectGenericFailure(t *testing.T) {
	t.Parallel()
	g := gatewaytest.Start(t, gatewaytest.OwnFiles, func(c *config.Config, _ *gateway.Options) { c.SQLite.QueryTimeout = time.Second })
	acme := g.Org(t, "acme")
	key := acme.Key(t, tenants.ManageCustomObjects)
	body := `{` + namesOf("a") + `}`
	wantFaults(t, post(t, acme, key, objectsPath, `{"name":"a","label":"L"}`), http.StatusUnprocessableEntity, "label_plural required") // the key is known now
	conn, err := sqlite.OpenConn(filepath.Join(g.Config.Data, "db", fmt.Sprintf("org-%d.db", acme.Tenant(t).Org.OrgID)))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if err := sqlitex.ExecuteTransient(conn, "BEGIN IMMEDIATE", nil); err != nil {
		t.Fatal(err)
	}
	a := post(t, acme, key, objectsPath, body)
	if wantFailure(t, a, http.StatusServiceUnavailable); a.DataJSON() != "{}" || a.Header.Get("Retry-After") == "" {
		t.Errorf("answered %s with %v", a.Text(), a.Header)
	}
	if err := sqlitex.ExecuteTransient(conn, "ROLLBACK", nil); err != nil {
		t.Fatal(err)
	}
	wantCreated(t, post(t, acme, key, objectsPath, body), "a", "a one", "a many")
}

func TestContract_ObjectSchema(t *testing.T) {
	t.Parallel()
	g := gatewaytest.Start(t)
	acme, other := g.Org(t, "acme", "teams"), g.Org(t, "other")
	key := acme.Key(t, tenants.ManageCustomObjects)
	id := wantCreated(t, post(t, acme, key, objectsPath, `{`+namesOf("tree")+`,"schema":{"species":{"title":"Species","type":"Text"}}}`), "tree", "tree one", "tree many")
	with := []gatewaytest.Request{gatewaytest.WithKey(key)}
	plain := acme.Get(t, key, objectsPath+"/schema")
	wantMembers(t, plain.DataJSON(), "schema")
	if plain.Code != http.StatusOK || plain.Message != "Custom Object schema" {
		t.Errorf("%d %s", plain.Code, plain.Text())
	}
	byID, byName := acme.Get(t, key, objectsPath+"/schema?id="+id), acme.Get(t, key, objectsPath+"/schema?name=tree")
	if byID.Text() != byName.Text() || !strings.Contains(byID.Text(), `"species":{"title":"Species","type":"Text"}`) {
		t.Errorf("by id %s\nby name %s", byID.Text(), byName.Text())
	}
	missing := envelopeFailed("Custom Object not found")
	checkRows(t, acme, []exactRow{
		{name: "absent", path: objectsPath + "/schema?id=" + absentID, with: with, code: 404, body: missing},
		{name: "malformed", path: objectsPath + "/schema?id=x", with: with, code: 404, body: missing},
		{name: "absent name", path: objectsPath + "/schema?name=bush", with: with, code: 404, body: missing},
		{name: "no permission", path: objectsPath + "/schema", with: []gatewaytest.Request{gatewaytest.WithKey(acme.Key(t))}, code: 403, body: envelopeLacking("manage_custom_objects")},
		{name: "no key", path: objectsPath + "/schema", code: 403, body: deniedBody},
	})
	checkRows(t, other, []exactRow{{name: "of another organization", path: objectsPath + "/schema?id=" + id,
		with: []gatewaytest.Request{gatewaytest.WithKey(other.Key(t, tenants.ManageCustomObjects))}, code: 404, body: missing}})
}
