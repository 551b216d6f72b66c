package records

import (
	"bytes"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"

	"tenantry/config"
	"tenantry/gateway"
	"tenantry/gateway/control"
	"tenantry/gateway/gatewaytest"
	"tenantry/gateway/tests/fixture"
	"tenantry/modules/imports/bundle"
	"tenantry/tenants"
)

// cabinet is an organization with folders and files.
type cabinet struct{ orchard }

func newCabinet(t *testing.T, options ...gatewaytest.Option) cabinet {
	t.Helper()
	c := cabinet{newOrchard(t, gatewaytest.Start(t, options...), "acme")}
	c.Import(t, append(fixture.TeamLines(), fixture.UserLine, `{"kind":"contact","id":"`+fixture.DocID(5)+`","first_name":"Ada","last_name":"Lovelace"}`)...)
	return c
}

// folder creates a folder and returns its identifier; parent "" is the top level.
func (c cabinet) folder(t *testing.T, name, parent string) string {
	t.Helper()
	return c.do(t, http.MethodPost, fixture.FoldersPath, fmt.Sprintf(`{"name":%q,"folder_id":%s}`, name, orNull(parent)), 200)["id"].(string)
}

func (c cabinet) file(t *testing.T, name, folder string) string {
	t.Helper()
	return c.do(t, http.MethodPost, fixture.FilesPath, fmt.Sprintf(`{"filename":%q,"mimetype":"text/plain","folder_id":%s}`, name, orNull(folder)), 200)["id"].(string)
}

func orNull(id string) string {
	if id == "" {
		return "null"
	}
	return `"` + id + `"`
}

// tree formats the tree of folders as a(b()c()).
func (c cabinet) tree(t *testing.T) string {
	t.Helper()
	var grow func(list any) string
	grow = func(list any) (text string) {
		for _, one := range list.([]any) {
			text += one.(map[string]any)["name"].(string) + "(" + grow(one.(map[string]any)["folders"]) + ")"
		}
		return text
	}
	got := c.do(t, http.MethodGet, fixture.FoldersPath+"/tree", "", 200)
	text := grow(got["results"])
	if n := strings.Count(text, "("); fmt.Sprint(got["count"]) != fmt.Sprint(n) {
		t.Errorf("the tree has %d folders and the count %v, want the same: %s", n, got["count"], text)
	}
	return text
}

// shown returns the names of live and of deleted files and folders, sorted.
func (c cabinet) shown(t *testing.T) (live, deleted string) {
	t.Helper()
	list := func(query string) string {
		var names []string
		for path, name := range map[string]string{fixture.FoldersPath: "name", fixture.FilesPath: "filename"} {
			for _, one := range c.do(t, http.MethodGet, path+query, "", 200)["results"].([]any) {
				names = append(names, one.(map[string]any)[name].(string))
			}
		}
		slices.Sort(names)
		return strings.Join(names, " ")
	}
	return list("?per_page=1000"), list("?deleted=true")
}

func TestFolders_LifeOfATree(t *testing.T) {
	t.Parallel()
	c := newCabinet(t)
	a := c.folder(t, "A", "")
	b := c.folder(t, "B", a)
	d := c.folder(t, "D", b)
	e := c.folder(t, "E", a)
	z := c.folder(t, "0", "")
	if got := c.tree(t); got != "0()A(B(D())E())" {
		t.Errorf("the tree: got %s, want %q", got, "0()A(B(D())E())")
	}
	for sort, first := range map[string]string{"name": z, "-name": e, "created_at": a, "-created_at,name": z} {
		one, _ := c.do(t, http.MethodGet, fixture.FoldersPath+"?sort="+sort, "", 200)["results"].([]any)[0].(map[string]any)
		if one["id"] != first {
			t.Errorf("sorted by %s, %v is first, want %v", sort, one, first)
		}
	}
	got := c.do(t, http.MethodGet, fixture.FoldersPath+"?filters[folder_id]="+a+"&sort=-editable", "", 422) // no index begins with it
	if !strings.Contains(got["message"].(string), "sort must name") {
		t.Errorf(`got %v, want containing "sort must name"`, got)
	}
	got = c.do(t, http.MethodGet, fixture.FoldersPath+"?filters[folder_id]="+a+"&q=B", "", 200)
	want := map[string]any{"name": "B", "folder_id": a, "editable": true, "deletable": true}
	one, _ := got["results"].([]any)[0].(map[string]any)
	for name, value := range want {
		if one[name] != value {
			t.Errorf("%s is %v, want %v", name, one[name], value)
		}
	}
	if _, has := one["files"]; has || fmt.Sprintf("%v %v %v", got["count"], one["user_id"], one["teams"]) != "1 0 []" || got["message"] != "Folders found" {
		t.Errorf("listed: got %v, want one folder without files and the count 1", got)
	}
	for _, refused := range []struct{ body, says string }{
		{`{"folder_id":"` + a + `"}`, "must not be the folder itself"},
		{`{"folder_id":"` + d + `"}`, "or a folder inside it"},
		{`{"folder_id":"` + fixture.AbsentID + `"}`, "folder_id names a folder"},
		{`{"folder_id":"nothing","name":""}`, "name"},
		{`{"user_id":3}`, "user_id"},
	} {
		if got := c.do(t, http.MethodPut, fixture.FoldersPath+"/"+a, refused.body, 422); !strings.Contains(got["message"].(string), refused.says) {
			t.Errorf("%s: got %v, want containing %q", refused.body, got, refused.says)
		}
	}
	c.do(t, http.MethodPost, fixture.FoldersPath, `{"name":"X","folder_id":"`+fixture.AbsentID+`"}`, 422)
	if got := c.do(t, http.MethodPut, fixture.FoldersPath+"/"+b, `{"folder_id":"`+e+`","name":"B2"}`, 200); got["folder_id"] != e || got["message"] != "Folder updated" {
		t.Errorf("moved: got %v, want %v and message %q", got, e, "Folder updated")
	}
	c.do(t, http.MethodPut, fixture.FoldersPath+"/"+e, `{"folder_id":null}`, 200)
	if got := c.tree(t); got != "0()A()E(B2(D()))" {
		t.Errorf("the tree after the moves: got %s, want %q", got, "0()A()E(B2(D()))")
	}
	c.do(t, http.MethodPut, fixture.FoldersPath+"/"+a, `{"folder_id":"`+d+`"}`, 200)
	c.do(t, http.MethodPut, fixture.FoldersPath+"/"+e, `{"folder_id":"`+a+`"}`, 422)
	if got := c.do(t, http.MethodDelete, fixture.FoldersPath+"/"+z, "", 200); got["message"] != "Folder deleted" {
		t.Errorf(`got %v, want got["message"] = "Folder deleted"`, got)
	}
	c.do(t, http.MethodPost, fixture.FoldersPath, `{"name":"X","folder_id":"`+z+`"}`, 422) // it is in the trash
}

// TestFolders_RestoreTheirContent checks that a folder is restored with everything that was deleted with it, at any
// depth, and without what had been deleted before.
func TestFolders_RestoreTheirContent(t *testing.T) {
	t.Parallel()
	c := newCabinet(t)
	a := c.folder(t, "A", "")
	b := c.folder(t, "B", a)
	d := c.folder(t, "D", b)
	gone := c.folder(t, "gone", b)
	c.file(t, "gone.1", gone)
	in := map[string]string{"a.1": c.file(t, "a.1", a), "a.2": c.file(t, "a.2", a), "d.1": c.file(t, "d.1", d), "top": c.file(t, "top", "")}
	c.do(t, http.MethodDelete, fixture.FilesPath+"/"+in["a.2"], "", 200)
	c.do(t, http.MethodDelete, fixture.FoldersPath+"/"+gone+"?contents=true", "", 200)
	check := func(when, live, deleted string) {
		t.Helper()
		if l, d := c.shown(t); l != live || d != deleted {
			t.Errorf("%s: %q are live, %q deleted; want %q, %q", when, l, d, live, deleted)
		}
	}
	check("before", "A B D a.1 d.1 top", "a.2 gone gone.1")
	if got := c.do(t, http.MethodDelete, fixture.FoldersPath+"/"+a, "", 422); !strings.Contains(got["message"].(string), "contents=true") {
		t.Errorf(`got %v, want containing "contents=true"`, got)
	}
	c.do(t, http.MethodDelete, fixture.FoldersPath+"/"+a+"?purge=true", "", 422)
	check("refused", "A B D a.1 d.1 top", "a.2 gone gone.1")
	c.do(t, http.MethodDelete, fixture.FoldersPath+"/"+a+"?contents=true", "", 200)
	check("deleted", "top", "A B D a.1 a.2 d.1 gone gone.1")
	c.do(t, http.MethodPost, fixture.FoldersPath+"/"+a+"/restore", "", 200)
	check("restored", "A B D a.1 d.1 top", "a.2 gone gone.1")
	if got := c.tree(t); got != "A(B(D()))" {
		t.Errorf("the tree: got %s, want %q", got, "A(B(D()))")
	}
	c.do(t, http.MethodPost, fixture.FoldersPath+"/"+gone+"/restore", "", 200)
	check("the earlier one, too", "A B D a.1 d.1 gone gone.1 top", "a.2")

	c.do(t, http.MethodDelete, fixture.FoldersPath+"/"+a+"?contents=true", "", 200)
	c.do(t, http.MethodPost, fixture.FoldersPath+"/"+b+"/restore", "", 200) // its folder stays deleted
	check("a part of it", "B D d.1 gone gone.1 top", "A a.1 a.2")
	if got := c.tree(t); got != "B(D()gone())" {
		t.Errorf("the tree: got %s, want %q", got, "B(D()gone())")
	}
	if got := c.do(t, http.MethodPost, fixture.FilesPath+"/"+in["a.1"]+"/restore", "", 200); got["folder_id"] != "" {
		t.Errorf("a file that was in a folder of the trash: got %v, want no folder_id", got)
	}
	c.do(t, http.MethodPost, fixture.FoldersPath+"/"+a+"/restore", "", 200)
	check("the rest", "A B D a.1 d.1 gone gone.1 top", "a.2")

	c.do(t, http.MethodDelete, fixture.FoldersPath+"/"+b+"?contents=true", "", 200)
	c.do(t, http.MethodDelete, fixture.FoldersPath+"/"+b+"?purge=true", "", 200)
	check("purged in the trash", "A a.1 top", "a.2")
	sub := c.folder(t, "sub", a)
	c.file(t, "sub.1", sub)
	c.do(t, http.MethodDelete, fixture.FoldersPath+"/"+a+"?purge=true&contents=true", "", 200)
	check("purged", "a.1 top", "")

	e := c.folder(t, "E", "")
	last := c.file(t, "e.1", e)
	c.do(t, http.MethodDelete, fixture.FilesPath+"/"+last, "", 200)
	c.do(t, http.MethodDelete, fixture.FoldersPath+"/"+e+"?purge=true", "", 422) // it would end what can be restored
	check("refused for what is in the trash", "E a.1 top", "e.1")
}

// TestFolders_OtherTeams checks that a caller limited to teams changes nothing that it cannot see.
func TestFolders_OtherTeams(t *testing.T) {
	t.Parallel()
	c := newCabinet(t)
	key := c.KeyWith(t, func(k *control.NewKey) {
		k.Permissions, k.Teams = []string{string(tenants.ManageFiles)}, []string{fixture.TeamA}
	}).Token
	limited := cabinet{orchard{c.Org, key}}
	shared := c.folder(t, "shared", "")
	hidden := c.do(t, http.MethodPost, fixture.FoldersPath, `{"name":"hidden","folder_id":"`+shared+`","teams":["`+fixture.TeamB+`"]}`, 200)["id"].(string)
	inner := c.do(t, http.MethodPost, fixture.FoldersPath, `{"name":"inner","folder_id":"`+hidden+`","teams":["`+fixture.TeamA+`"]}`, 200)["id"].(string)
	if got := limited.tree(t); got != "inner()shared()" {
		t.Errorf("the tree of team A: got %s, want %q", got, "inner()shared()")
	}
	limited.do(t, http.MethodPost, fixture.FoldersPath, `{"name":"X","folder_id":"`+hidden+`"}`, 422)
	limited.do(t, http.MethodPut, fixture.FoldersPath+"/"+inner, `{"folder_id":"`+hidden+`"}`, 200) // where it is
	limited.do(t, http.MethodGet, fixture.FilesPath+"?filters[folder_id]="+hidden, "", 200)
	limited.do(t, http.MethodDelete, fixture.FoldersPath+"/"+hidden, "", 404)
	if got := limited.do(t, http.MethodDelete, fixture.FoldersPath+"/"+shared+"?contents=true", "", 403); got["message"] != fixture.NotTheirs {
		t.Errorf(`got %v, want got["message"] = %v`, got, fixture.NotTheirs)
	}
	if got := c.tree(t); got != "shared(hidden(inner()))" {
		t.Errorf("after refusals: got %s, want %q", got, "shared(hidden(inner()))")
	}
	c.do(t, http.MethodDelete, fixture.FoldersPath+"/"+shared+"?contents=true", "", 200)
	limited.do(t, http.MethodPost, fixture.FoldersPath+"/"+shared+"/restore", "", 403)
	limited.do(t, http.MethodDelete, fixture.FoldersPath+"/"+shared+"?purge=true", "", 403)
	c.do(t, http.MethodPost, fixture.FoldersPath+"/"+shared+"/restore", "", 200)
	if got := c.tree(t); got != "shared(hidden(inner()))" {
		t.Errorf("restored: got %s, want %q", got, "shared(hidden(inner()))")
	}
}

// TestFolders_ConcurrentMovesLoseNone checks that no folder is lost when two are concurrently moved into each other.
func TestFolders_ConcurrentMovesLoseNone(t *testing.T) {
	t.Parallel()
	c := newCabinet(t)
	var ids []string
	for i := range 3 {
		ids = append(ids, c.folder(t, fmt.Sprint(i), ""))
	}
	for range 10 {
		var movers sync.WaitGroup
		for i := range ids {
			movers.Go(func() {
				body := gatewaytest.Body("application/json", `{"folder_id":"`+ids[(i+1)%len(ids)]+`"}`)
				a := c.Do(t, http.MethodPut, fixture.FoldersPath+"/"+ids[i], gatewaytest.WithKey(c.key), body)
				if a.Code != 200 && a.Code != 422 && a.Code != 409 {
					t.Errorf("got %d %s, want 200, 422 or 409", a.Code, a.Body)
				}
			})
		}
		movers.Wait()
		if got := c.tree(t); strings.Count(got, "(") != len(ids) {
			t.Fatalf("after concurrent moves: got %s, want every folder once in the tree", got)
		}
		for _, id := range ids {
			c.do(t, http.MethodPut, fixture.FoldersPath+"/"+id, `{"folder_id":null}`, 200)
		}
	}
}

func TestFolders_Depth(t *testing.T) {
	t.Parallel()
	c := newCabinet(t)
	parent := ""
	var ids []string
	for i := range 100 {
		parent = c.folder(t, fmt.Sprint(i), parent)
		ids = append(ids, parent)
	}
	if got := c.do(t, http.MethodPost, fixture.FoldersPath, `{"name":"X","folder_id":"`+parent+`"}`, 422); !strings.Contains(got["message"].(string), "at most 100 levels") {
		t.Errorf(`got %v, want containing "at most 100 levels"`, got)
	}
	if n := strings.Count(c.tree(t), "("); n != 100 {
		t.Errorf("got %d folders in the tree, want 100", n)
	}
	// A moved folder brings its depth along, including deleted folders.
	moved := c.folder(t, "moved", "")
	within := c.folder(t, "within", moved)
	for _, deleted := range []bool{false, true} {
		if deleted {
			c.do(t, http.MethodDelete, fixture.FoldersPath+"/"+within, "", 200)
		}
		if got := c.do(t, http.MethodPut, fixture.FoldersPath+"/"+moved, `{"folder_id":"`+ids[98]+`"}`, 422); !strings.Contains(got["message"].(string), "at most 100 levels") {
			t.Errorf(`got %v, want containing "at most 100 levels"`, got)
		}
	}
	c.do(t, http.MethodPut, fixture.FoldersPath+"/"+moved, `{"folder_id":"`+ids[97]+`"}`, 200)
	c.do(t, http.MethodPut, fixture.FoldersPath+"/"+moved, `{"folder_id":null}`, 200)
	c.do(t, http.MethodDelete, fixture.FoldersPath+"/"+moved+"?purge=true&contents=true", "", 200)
	c.do(t, http.MethodDelete, fixture.FoldersPath+"/"+ids[0]+"?contents=true", "", 200)
	if live, _ := c.shown(t); live != "" {
		t.Errorf("left: got %s, want no live", live)
	}
	c.do(t, http.MethodPost, fixture.FoldersPath+"/"+ids[0]+"/restore", "", 200)
	if n := strings.Count(c.tree(t), "("); n != 100 {
		t.Errorf("%d folders came back, want 100", n)
	}
}

func TestFiles_Life(t *testing.T) {
	t.Parallel()
	c := newCabinet(t, func(cfg *config.Config, _ *gateway.Options) { cfg.FileHost = "https://cdn.example.com" })
	folder := c.folder(t, "Contracts", "")
	_, grace := c.Person(t, "files@example.com", func(u *control.NewUser) { u.Permissions = []string{string(tenants.ManageFiles)} })
	made := c.Do(t, http.MethodPost, fixture.FilesPath, gatewaytest.Cookie(grace), gatewaytest.Body("application/json",
		`{"filename":"lease.pdf","mimetype":"application/pdf","folder_id":"`+folder+`","contact_id":"`+fixture.DocID(5)+`","type":"document","url":"https://cdn.example.com/acme/0f00"}`))
	if made.Code != 200 || made.Message != "File created" {
		t.Fatalf(`got %d %s, want 200 and made.Message = "File created"`, made.Code, made.Body)
	}
	data := made.Data.(map[string]any)
	path := fixture.FilesPath + "/" + data["id"].(string)
	for _, name := range []string{"user_name", "folder_name"} {
		if _, has := data[name]; has {
			t.Errorf("a new file has %s: %v, want none", name, data)
		}
	}
	if data["contact_name"] != "Ada Lovelace" || data["url"] != "https://cdn.example.com/acme/0f00" || len(data["pid"].(string)) < 22 {
		t.Errorf("created: got %v, want the contact's name, the url and a long pid", data)
	}
	fixture.WantMembers(t, made.DataJSON(), "id", "pid", "org_id", "user_id", "url", "filename", "mimetype", "contact_id", "contact_name", "folder_id", "type", "teams", "created_at", "updated_at", "size", "detected", "checksum", "thumbnail")
	got := c.do(t, http.MethodGet, path, "", 200)
	if got["user_name"] != "Person files@example.com" || got["folder_name"] != "Contracts" || got["message"] != "File found" {
		t.Errorf("read: got %v, want user_name %q, folder_name Contracts and message %q",
			got, "Person files@example.com", "File found")
	}
	c.file(t, "bare.txt", "")
	listed := c.do(t, http.MethodGet, fixture.FilesPath+"?sort=-created_at", "", 200)["results"].([]any)
	if bare := listed[0].(map[string]any); len(listed) != 2 || bare["folder_name"] != nil || bare["user_name"] != "" || bare["url"] != "" || listed[1].(map[string]any)["folder_name"] != "Contracts" {
		t.Errorf("listed: got %v, want 2 files with their names", listed)
	}
	if got := c.do(t, http.MethodPut, path, `{"url":"../x","filename":""}`, 422); len(got["errors"].([]any)) != 2 {
		t.Errorf("two faults: got %v, want both", got)
	}
	for _, body := range []string{`{"url":"https://evil.example.com/x"}`, `{"url":"../x"}`, `{"url":"https://cdn.example.com/other/0f00"}`, `{"url":3}`, `{"filename":null}`, `{"hash":"x"}`, `{"pid":"x"}`, `{"user_id":1}`, `{"contact_id":"` + fixture.AbsentID + `"}`} {
		c.do(t, http.MethodPut, path, body, 422)
	}
	c.do(t, http.MethodPost, fixture.FilesPath, `{"filename":"x"}`, 422)
	if got := c.do(t, http.MethodPut, path, `{"url":"beef","folder_id":null}`, 200); got["url"] != "https://cdn.example.com/acme/beef" || got["folder_id"] != "" || got["filename"] != "lease.pdf" {
		t.Errorf("changed: got %v, want url https://cdn.example.com/acme/beef, no folder_id and filename lease.pdf",
			got)
	}
	if got := c.do(t, http.MethodPut, path, `{"url":null,"folder_id":"`+folder+`"}`, 200); got["url"] != "" || got["folder_id"] != folder {
		t.Errorf("changed: got %v, want no url and %v", got, folder)
	}
	if got := c.do(t, http.MethodDelete, path, "", 200); got["message"] != "File record deleted" {
		t.Errorf(`got %v, want got["message"] = "File record deleted"`, got)
	}
	c.do(t, http.MethodGet, path, "", 404)
	if got := c.do(t, http.MethodGet, path+"?deleted=true", "", 200); got["folder_name"] != "Contracts" {
		t.Errorf("in the trash: got %v, want folder_name Contracts", got)
	}
	if got := c.do(t, http.MethodPost, path+"/restore", "", 200); got["message"] != "File restored" || got["folder_id"] != folder {
		t.Errorf(`got %v, want got["message"] = "File restored" and got["folder_id"] = %v`, got, folder)
	}
	if got := c.do(t, http.MethodDelete, path+"/purge", "", 200); got["message"] != "File deleted" {
		t.Errorf(`got %v, want got["message"] = "File deleted"`, got)
	}
	c.do(t, http.MethodGet, path+"?deleted=true", "", 404)
	c.do(t, http.MethodDelete, path+"/purge", "", 404)
}

// TestFolders_TrashTravels checks that records deleted together are restored together after a bundle moved them.
func TestFolders_TrashTravels(t *testing.T) {
	t.Parallel()
	c := newCabinet(t)
	a := c.folder(t, "A", "")
	b := c.folder(t, "B", a)
	c.file(t, "b.1", b)
	c.do(t, http.MethodDelete, fixture.FilesPath+"/"+c.file(t, "before", b), "", 200)
	c.do(t, http.MethodDelete, fixture.FoldersPath+"/"+a+"?contents=true", "", 200)
	var dump bytes.Buffer
	if _, err := c.App.Transfer().Export(t.Context(), c.Tenant(t), &dump, bundle.ExportOptions{}); err != nil {
		t.Fatal(err)
	}
	to := cabinet{newOrchard(t, c.Gateway, "globex")}
	to.Import(t, strings.TrimSpace(dump.String()))
	to.do(t, http.MethodPost, fixture.FoldersPath+"/"+a+"/restore", "", 200)
	if live, deleted := to.shown(t); live != "A B b.1" || deleted != "before" {
		t.Errorf("live: %s; deleted: got %s, want live %q and deleted before", live, deleted, "A B b.1")
	}
	if got := to.tree(t); got != "A(B())" {
		t.Errorf("the tree: got %s, want %q", got, "A(B())")
	}
}
