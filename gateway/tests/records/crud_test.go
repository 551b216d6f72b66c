package records

import (
	"bytes"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"strings"
	"testing"

	"tenantry/gateway/control"
	"tenantry/gateway/gatewaytest"
	"tenantry/gateway/tests/fixture"
	"tenantry/modules/imports/bundle"
	"tenantry/modules/imports/tabular"
	"tenantry/tenants"
)

// orchard is an organization that keeps plants.
type orchard struct {
	*gatewaytest.Org
	key string
}

// do calls with a body, if given, checks the code, and returns the data.
func (o orchard) do(t *testing.T, method, path, body string, code int) map[string]any {
	t.Helper()
	change := []gatewaytest.Request{gatewaytest.WithKey(o.key)}
	if body != "" {
		change = append(change, gatewaytest.Body("application/json", body))
	}
	a := o.Do(t, method, path, change...)
	if a.Code != code {
		t.Fatalf("%s %s %s: %d %s, want %d", method, path, body, a.Code, a.Body, code)
	}
	data, _ := a.Data.(map[string]any)
	if data == nil {
		data = map[string]any{}
	}
	data["message"] = a.Message
	return data
}

func (o orchard) names(t *testing.T, query string) string {
	t.Helper()
	var names []string
	for _, one := range o.do(t, http.MethodGet, "/api/plants?"+query, "", 200)["results"].([]any) {
		names = append(names, one.(map[string]any)["name"].(string))
	}
	return strings.Join(names, " ")
}

func newOrchard(t *testing.T, g *gatewaytest.Gateway, slug string) orchard {
	t.Helper()
	org := g.Org(t, slug, tenants.FeatureTeams)
	return orchard{org, org.Key(t, tenants.ManageFiles)}
}

// TestResourceFromOneDescription checks that a module with one description, added by one line, has all seven
// operations. Every answer is checked against the OpenAPI document.
func TestResourceFromOneDescription(t *testing.T) {
	t.Parallel()
	const module = "../fixture/plants.go"
	if text, err := os.ReadFile(module); err != nil || strings.Count(string(text), "\n") >= 60 {
		t.Errorf("%s has %d lines (%v), want fewer than 60", module, strings.Count(string(text), "\n"), err)
	}
	g := gatewaytest.Start(t, fixture.WithPlants)
	o := newOrchard(t, g, "acme")
	made := o.do(t, http.MethodPost, "/api/plants", `{"name":"Oak","species":"oak","height":1850,"notes":["old","hollow"]}`, 200)
	id := made["id"].(string)
	if made["message"] != "Plant created" || fmt.Sprint(made["height"]) != "1850" || made["folder_id"] != nil || made["felled"] != false || fmt.Sprint(made["teams"]) != "[]" || made["deleted"] != nil {
		t.Errorf("created: got %v, want all fields with their defaults", made)
	}
	path := "/api/plants/" + id
	if got := o.do(t, http.MethodGet, path, "", 200); got["message"] != "Plant found" || got["created_at"] != made["created_at"] {
		t.Errorf("read: got %v, want %v", got, made)
	}
	if got := o.do(t, http.MethodPut, path, `{"felled":true}`, 200); got["message"] != "Plant updated" || got["felled"] != true || got["name"] != "Oak" || fmt.Sprint(got["height"]) != "1850" {
		t.Errorf("updated: got %v, want felled, the rest unchanged", got)
	}
	folder := "0123456789abcdef01234567"
	o.Import(t, `{"kind":"folder","id":"`+folder+`","name":"Pictures"}`)
	o.do(t, http.MethodPut, path, `{"folder_id":"`+folder+`"}`, 200)
	o.Import(t, `{"kind":"folder","id":"`+folder+`","name":"Pictures","deleted":true}`)
	if got := o.do(t, http.MethodPut, path, `{"height":3}`, 200); got["folder_id"] != folder {
		t.Errorf("what it refers to went to the trash: got %v, want %v", got, folder)
	}
	if got := o.do(t, http.MethodPut, path, `{"height":null,"folder_id":null,"notes":null,"teams":null}`, 200); got["height"] != nil || got["folder_id"] != nil || fmt.Sprint(got["notes"], got["teams"]) != "[] []" {
		t.Errorf("emptied: got %v, want no height, folder, notes and teams", got)
	}
	o.do(t, http.MethodPut, path, `{"name":null}`, 422)
	if got := o.do(t, http.MethodDelete, path, "", 200); got["message"] != "Plant deleted" {
		t.Errorf("deleted: got %v, want message %q", got, "Plant deleted")
	}
	o.do(t, http.MethodGet, path, "", 404)
	o.do(t, http.MethodPut, path, `{"felled":true}`, 404)
	o.do(t, http.MethodDelete, path, "", 404)
	if o.do(t, http.MethodGet, path+"?deleted=true", "", 200)["felled"] != true || o.names(t, "deleted=true") != "Oak" || o.names(t, "") != "" {
		t.Error("got a deleted record outside the trash, want it only there")
	}
	o.do(t, http.MethodPost, "/api/plants", `{"name":"Oak","species":"oak"}`, 409) // what can be restored keeps its name
	if got := o.do(t, http.MethodPost, path+"/restore", "", 200); got["message"] != "Plant restored" {
		t.Errorf("restored: got %v, want message %q", got, "Plant restored")
	}
	o.do(t, http.MethodPost, path+"/restore", "", 404)
	o.do(t, http.MethodGet, path, "", 200)
	if got := o.do(t, http.MethodDelete, path+"?purge=true", "", 200); got["message"] != "Plant deleted" {
		t.Errorf("purged: got %v, want message %q", got, "Plant deleted")
	}
	o.do(t, http.MethodGet, path+"?deleted=true", "", 404)

	o.Import(t, `{"kind":"plant","name":"Ash","species":"ash","notes":["tall"]}`)
	o.Import(t, `{"kind":"folder","id":"`+folder+`","name":"Pictures","deleted":false}`)
	for _, c := range []struct {
		file, key        string
		created, updated int
	}{
		{"Name,Species,Height,Notes,Felled,Folder ID\nElm,elm,200,old;tall,true," + folder + "\n", "", 1, 0},
		{"name,height\nElm,300\n", "name", 0, 1},
	} {
		report, err := tabular.Import(t.Context(), g.App.Transfer(), o.Tenant(t), gatewaytest.Source([]byte(c.file)), tabular.Options{As: "plants", Format: tabular.CSV, Key: c.key})
		if err != nil || report.Created != c.created || report.Updated != c.updated {
			t.Errorf("rows of CSV %q: got %v, %+v, want no error, Created %v and Updated %v",
				c.file, err, report, c.created, c.updated)
		}
	}
	var dump bytes.Buffer
	if _, err := g.App.Transfer().Export(t.Context(), o.Tenant(t), &dump, bundle.ExportOptions{}); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{`"kind":"plant"`, `"name":"Ash"`, `"notes":["tall"]`, `"name":"Elm"`, `"height":300,"notes":["old","tall"],"folder_id":"` + folder + `"`, `"felled":true`} {
		if !strings.Contains(dump.String(), want) {
			t.Errorf("the dump lacks %s:\n%s", want, dump.String())
		}
	}
	if got := o.names(t, "sort=name"); got != "Ash Elm" {
		t.Errorf("listed: got %s, want %q", got, "Ash Elm")
	}
	o.do(t, http.MethodPost, "/api/plants", `{"name":"Oak","species":"oak"}`, 200)
}

// TestCRUD_Refuses checks that every body is checked against the declared fields, with all problems reported together.
func TestCRUD_Refuses(t *testing.T) {
	t.Parallel()
	g := gatewaytest.Start(t, fixture.WithPlants)
	o := newOrchard(t, g, "acme")
	id := o.do(t, http.MethodPost, "/api/plants", `{"name":"Elm","species":"elm"}`, 200)["id"].(string)
	for _, c := range []struct {
		method, path, body string
		code               int
		says               string
	}{
		{"POST", "", `{}`, 422, "name is required; species is required"},
		{"POST", "", `{"name":" ","species":"fir","height":0,"notes":["a","a"],"felled":"no","folder_id":"x"}`, 422, "species must be oak or elm or ash; height must be a whole number from 1 to 20000; notes names the same element twice; " +
			"folder_id must be an identifier of 24 lower-case hexadecimal digits; felled must be true or false; name must not be empty"},
		{"POST", "", `{"name":"x","species":"oak","id":"665f1c2ab4d3e2f1a0b9c8d7","deleted":true,"created_at":"2020-01-01T00:00:00Z","org_id":7}`, 422, `"id" is not a field`},
		{"POST", "", `{"name":"x","species":"oak","folder_id":"665f1c2ab4d3e2f1a0b9c8d7"}`, 422, "folder_id names a folder that is not in this organization"},
		{"POST", "", `{"name":"x","species":"oak","teams":["665f1c2ab4d3e2f1a0b9c8d7"]}`, 422, "teams names a team that is not in this organization"},
		{"POST", "", `{"name":"Elm","species":"oak"}`, 409, "name is already in use"},
		{"POST", "", `[]`, 400, "The body must be a JSON object"},
		{"PUT", "/" + id, `{"species":"fir"}`, 422, "species must be oak or elm or ash"},
		{"PUT", "/" + id, `{"name":""}`, 422, "name must not be empty"},
		{"PUT", "/" + id, `{"deleted":true}`, 422, `"deleted" is not a field`},
		{"PUT", "/x", `{"species":"oak"}`, 404, "Plant not found"},
		{"GET", "/x", "", 404, "Plant not found"},
		{"GET", "/665f1c2ab4d3e2f1a0b9c8d7", "", 404, "Plant not found"},
		{"DELETE", "/x", "", 404, "Plant not found"},
		{"DELETE", "/" + id + "?purge=perhaps", "", 422, "purge must be true or false"},
		{"POST", "/x/restore", "", 404, "Plant not found"},
		{"GET", "?page=0&per_page=x&sort=name,-notes", "", 422, "page must be a whole number from 1 to 1000000000; per_page must be"},
		{"GET", "?sort=name,-notes", "", 422, "each once, with - before it for descending order: id, name, height, created_at, updated_at"},
		{"GET", "?filters[notes]=x", "", 422, "notes"},
		{"GET", "?filters[height]=tall", "", 422, "filters[height] must be a number"},
		{"GET", "?after=e30", "", 422, "after must be the value of next in an answer"},
		{"GET", "?page=2&after=", "", 422, "after and page exclude each other"},
		{"GET", "?sort=name,name", "", 422, "each once"},
		{"GET", "?nothing=1", "", 400, "nothing"},
	} {
		if got := o.do(t, c.method, "/api/plants"+c.path, c.body, c.code); !strings.Contains(got["message"].(string), c.says) {
			t.Errorf("%s %s %s: %s, want %s", c.method, c.path, c.body, got["message"], c.says)
		}
	}
	if got := o.names(t, ""); got != "Elm" {
		t.Errorf("what was refused left %s, want Elm", got)
	}
	reader := o
	reader.key = o.Key(t, tenants.Contacts)
	reader.do(t, http.MethodGet, "/api/plants", "", 200)
	if got := reader.do(t, http.MethodPost, "/api/plants", `{"name":"x","species":"oak"}`, 403); got["permission"] != "manage_files" {
		t.Errorf("without the permission: got %v, want permission manage_files", got)
	}
}

// TestCRUD_Lists checks order, filters, words, pages and cursors.
func TestCRUD_Lists(t *testing.T) {
	t.Parallel()
	g := gatewaytest.Start(t, fixture.WithPlants)
	o := newOrchard(t, g, "acme")
	for i, height := range []int{300, 100, 0, 200, 100, 0} { // 0: there is none
		body := fmt.Sprintf(`{"name":"P%d","species":"%s"`, i, []string{"oak", "elm"}[i%2])
		if height > 0 {
			body += fmt.Sprintf(`,"height":%d`, height)
		}
		o.do(t, http.MethodPost, "/api/plants", body+"}", 200)
	}
	for query, want := range map[string]string{
		"":                         "P0 P1 P2 P3 P4 P5",
		"sort=-id":                 "P5 P4 P3 P2 P1 P0",
		"sort=height":              "P2 P5 P1 P4 P3 P0",
		"sort=-height":             "P0 P3 P4 P1 P5 P2",
		"sort=-name":               "P5 P4 P3 P2 P1 P0",
		"filters[species]=elm":     "P1 P3 P5",
		"filters[height][gte]=200": "P0 P3",
		"filters[or][0][name]=P1&filters[or][1][name]=P4": "P1 P4",
		"q=P3":                         "P3",
		"q=nothing":                    "",
		"page=2&per_page=4":            "P4 P5",
		"page=3&per_page=4":            "",
		"per_page=4611686018427387904": "P0 P1 P2 P3 P4 P5",
	} {
		if got := o.names(t, query); got != want {
			t.Errorf("%s: %s, want %s", query, got, want)
		}
	}
	if got := o.do(t, http.MethodGet, "/api/plants?page=2&per_page=4", "", 200); fmt.Sprintf("%v %v %v %v", got["page"], got["pages"], got["count"], got["next"]) != "2 2 6 <nil>" {
		t.Errorf("a page: got %v, want page 2 of 2 with 6 records and no next", got)
	}
	next := o.do(t, http.MethodGet, "/api/plants?per_page=2&sort=-height&after=", "", 200)["next"].(string)
	for _, order := range []string{"height", "-created_at", ""} {
		if got := o.do(t, http.MethodGet, "/api/plants?per_page=2&sort="+order+"&after="+next, "", 422); !strings.Contains(got["message"].(string), "with the same sort") {
			t.Errorf("a cursor of another order: got %v, want a refusal", got)
		}
	}
	for _, order := range []string{"", "id", "-id", "height", "-height", "-height,name", "name,-created_at"} {
		var names []string
		after := ""
		for pages := 1; ; pages++ {
			got := o.do(t, http.MethodGet, "/api/plants?per_page=2&sort="+order+"&filters[felled]=false&after="+url.QueryEscape(after), "", 200)
			if fmt.Sprintf("%v %v %v", got["count"], got["page"], got["pages"]) != "6 <nil> <nil>" {
				t.Errorf("by cursor: got %v, want the count 6 without pages", got)
			}
			for _, one := range got["results"].([]any) {
				names = append(names, one.(map[string]any)["name"].(string))
			}
			if after = got["next"].(string); after == "" || pages > 3 {
				if pages != 3 {
					t.Errorf("sort=%s: %d pages, want 3", order, pages)
				}
				break
			}
		}
		if got, want := strings.Join(names, " "), o.names(t, "sort="+order); got != want {
			t.Errorf("sort=%s by cursor: %s, by page %s", order, got, want)
		}
	}
}

// TestCRUD_Teams checks that a caller limited to teams sees and creates nothing outside of them.
func TestCRUD_Teams(t *testing.T) {
	t.Parallel()
	g := gatewaytest.Start(t, fixture.WithPlants)
	o := newOrchard(t, g, "acme")
	const north, south = "aaaaaaaaaaaaaaaaaaaaaaaa", "bbbbbbbbbbbbbbbbbbbbbbbb"
	o.Import(t, `{"kind":"team","id":"`+north+`","name":"North"}`, `{"kind":"team","id":"`+south+`","name":"South"}`)
	hidden := o.do(t, http.MethodPost, "/api/plants", `{"name":"Hidden","species":"oak","teams":["`+south+`"]}`, 200)["id"].(string)
	o.do(t, http.MethodPost, "/api/plants", `{"name":"Common","species":"oak"}`, 200)
	limited := o
	limited.key = o.KeyWith(t, func(k *control.NewKey) {
		k.Permissions, k.Teams = []string{string(tenants.ManageFiles)}, []string{north}
	}).Token
	if got := limited.names(t, ""); got != "Common" {
		t.Errorf("seen: got %s, want Common", got)
	}
	for _, c := range [][2]string{{"GET", ""}, {"PUT", ""}, {"DELETE", ""}, {"DELETE", "?purge=true"}, {"POST", "/restore"}} {
		body := ""
		if c[0] == "PUT" {
			body = `{"species":"elm"}`
		}
		limited.do(t, c[0], "/api/plants/"+hidden+c[1], body, 404)
	}
	if made := limited.do(t, http.MethodPost, "/api/plants", `{"name":"Own","species":"oak"}`, 200); fmt.Sprint(made["teams"]) != "["+north+"]" {
		t.Errorf("without a team: got %v, want the caller's team", made)
	}
	for _, teams := range []string{`["` + south + `"]`, `["` + north + `","` + south + `"]`} {
		if got := limited.do(t, http.MethodPost, "/api/plants", `{"name":"x","species":"oak","teams":`+teams+`}`, 422); !strings.Contains(got["message"].(string), "teams must be among those of the caller") {
			t.Errorf(`%s: got %v, want containing "teams must be among those of the caller"`, teams, got)
		}
	}
	// Other teams of a record stay: a change neither removes them nor hides the record from them.
	common := o.do(t, http.MethodPost, "/api/plants", `{"name":"Open","species":"oak"}`, 200)["id"].(string)
	both := o.do(t, http.MethodPost, "/api/plants", `{"name":"Both","species":"oak","teams":["`+north+`","`+south+`"]}`, 200)["id"].(string)
	for _, c := range []struct {
		id, body string
		code     int
		teams    string
	}{
		{common, `{"height":3}`, 200, "[]"},
		{common, `{"teams":["` + north + `"]}`, 422, ""},
		{both, `{"height":3}`, 200, "[" + north + " " + south + "]"},
		{both, `{"teams":["` + north + `"]}`, 422, ""},
		{both, `{"teams":[]}`, 422, ""},
		{both, `{"teams":["` + south + `"]}`, 200, "[" + south + "]"},
	} {
		got := limited.do(t, http.MethodPut, "/api/plants/"+c.id, c.body, c.code)
		if c.code == 200 && fmt.Sprint(got["teams"]) != c.teams {
			t.Errorf("%[1]s of a caller of one team: got %[2]v, want the teams %[3]s", c.body, got, c.teams)
		}
	}
	if got := o.do(t, http.MethodPut, "/api/plants/"+common+"?teams[]="+north, `{}`, 200); fmt.Sprint(got["teams"]) != "[]" {
		t.Errorf("a narrowed request: got %v, want the teams unchanged", got)
	}
	o.do(t, http.MethodDelete, "/api/plants/"+both+"?purge=true", "", 200)
	o.do(t, http.MethodDelete, "/api/plants/"+common+"?purge=true", "", 200)
	if got := o.names(t, "teams[]="+south); got != "Hidden Common" {
		t.Errorf("narrowed: got %s, want %q", got, "Hidden Common")
	}
}

// TestCRUD_Revisions checks that a change for another revision is refused, and that an unchanged answer is not sent
// again.
func TestCRUD_Revisions(t *testing.T) {
	t.Parallel()
	g := gatewaytest.Start(t, fixture.WithPlants)
	o := newOrchard(t, g, "acme")
	path := "/api/plants/" + o.do(t, http.MethodPost, "/api/plants", `{"name":"Elm","species":"elm"}`, 200)["id"].(string)
	with := func(method, path, body string, header ...string) *gatewaytest.Answer {
		t.Helper()
		change := []gatewaytest.Request{gatewaytest.WithKey(o.key)}
		if body != "" {
			change = append(change, gatewaytest.Body("application/json", body))
		}
		if header != nil {
			change = append(change, gatewaytest.Header(header[0], header[1]))
		}
		return o.Do(t, method, path, change...)
	}
	first := with("GET", path, "").Header.Get("ETag")
	if a := with("GET", path, "", "If-None-Match", first); first == "" || a.Code != http.StatusNotModified {
		t.Errorf("ETag %q: got %d %s, want first set and 304", first, a.Code, a.Body)
	}
	second := with("PUT", path, `{"height":5}`, "If-Match", first)
	if second.Code != 200 || second.Header.Get("ETag") == first {
		t.Errorf("a change with the right tag: got %d %s, %s, want 200 and a new tag",
			second.Code, second.Body, second.Header.Get("ETag"))
	}
	for _, c := range []struct{ method, path, body string }{{"PUT", path, `{"height":6}`}, {"DELETE", path, ""}, {"DELETE", path + "?purge=true", ""}} {
		if a := with(c.method, c.path, c.body, "If-Match", first); a.Code != http.StatusPreconditionFailed {
			t.Errorf("%s %s of an old revision: got %d %s, want 412", c.method, c.path, a.Code, a.Body)
		}
	}
	gone := with("DELETE", path, "", "If-Match", second.Header.Get("ETag"))
	if gone.Code != 200 {
		t.Errorf("deleted as it was seen: got %d %s, want 200", gone.Code, gone.Body)
	}
	if a := with("POST", path+"/restore", "", "If-Match", first); a.Code != http.StatusPreconditionFailed {
		t.Errorf("restored of an old revision: got %d %s, want 412", a.Code, a.Body)
	}
	deleted := with("GET", path+"?deleted=true", "").Header.Get("ETag")
	if gone.Header.Get("ETag") != deleted {
		t.Errorf("deleted with the tag %q, now %q, want the same", gone.Header.Get("ETag"), deleted)
	}
	if a := with("POST", path+"/restore", "", "If-Match", deleted); a.Code != 200 {
		t.Errorf("restored as it was seen: got %d %s, want 200", a.Code, a.Body)
	}
}
