package contract

import (
	"fmt"
	"net/http"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"tenantry/config"
	"tenantry/gateway"
	"tenantry/gateway/control"
	"tenantry/gateway/gatewaytest"
	"tenantry/gateway/tests/fixture"
	"tenantry/tenants"
)

const (
	missingFolder = `{"status":"failed","message":"Folder not found","data":[]}`
)

// unixTimes matches the times of a file, which are integers.
var unixTimes = regexp.MustCompile(`"(created_at|updated_at)":\d{10}([,}])`)

func maskTimes(body string) string { return unixTimes.ReplaceAllString(body, `"$1":0$2`) }

func TestContract_FolderExactBytes(t *testing.T) {
	t.Parallel()
	g := gatewaytest.Start(t, func(c *config.Config, _ *gateway.Options) { c.FileHost = "https://cdn.example.com" })
	acme, plain := g.Org(t, "acme", "teams"), g.Org(t, "plain")
	const at = `,"user_id":7,"created_at":"2024-01-02T03:04:05.006Z","updated_at":"2024-02-03T04:05:06.007Z"`
	lines := append(fixture.TeamLines(),
		fixture.UserLine,
		`{"kind":"contact","id":"`+fixture.DocID(5)+`","first_name":"Ada","last_name":"Lovelace"}`,
		fixture.FolderLine(16, "Contracts", "null", `,"teams":["`+fixture.TeamA+`"]`+at),
		fixture.FolderLine(17, "Leases", fixture.DocID(16), at),
		fixture.FileLine(32, "lease.pdf", fixture.DocID(16), `,"user_id":7,"contact_id":"`+fixture.DocID(5)+`","pid":"abcdefghijklmnopqrstuv","hash":"0f00","type":"document"`),
	)
	acme.Import(t, lines...)
	plain.Import(t, lines...)
	answer := func(o *gatewaytest.Org, teams, none string) string {
		org := strconv.FormatInt(o.Tenant(t).Org.OrgID, 10)
		rest := `"editable":true,"deletable":true,"created_at":"2024-01-02T03:04:05.006Z","updated_at":"2024-02-03T04:05:06.007Z"}`
		return fixture.EnvelopeOK("Folder found", `{"id":"`+fixture.DocID(16)+`","name":"Contracts","folder_id":null,"org_id":`+org+`,"user_id":7,`+teams+
			`"files":[{"id":"`+fixture.DocID(32)+`","pid":"abcdefghijklmnopqrstuv","org_id":"`+org+`","user_id":7,"url":"https://cdn.example.com/`+o.Slug+`/0f00",`+
			`"filename":"lease.pdf","mimetype":"text/plain","contact_id":"`+fixture.DocID(5)+`","contact_name":"Ada Lovelace","user_name":"Grace Hopper",`+
			`"folder_id":"`+fixture.DocID(16)+`","folder_name":"Contracts","type":"document",`+none+`"created_at":0,"updated_at":0}],"files_count":1,`+
			`"folders":[{"id":"`+fixture.DocID(17)+`","name":"Leases","folder_id":"`+fixture.DocID(16)+`","org_id":`+org+`,"user_id":7,`+none+rest+`],"folders_count":1,`+rest)
	}
	for _, row := range []struct {
		org         *gatewaytest.Org
		teams, none string
	}{{acme, `"teams":["` + fixture.TeamA + `"],`, `"teams":[],`}, {plain, "", ""}} {
		a := row.org.Get(t, row.org.Key(t), "/api/files/folders/"+fixture.DocID(16))
		if got, want := maskTimes(a.Text()), answer(row.org, row.teams, row.none); a.Code != http.StatusOK || got != want {
			t.Errorf("%s answered %d %s\nwant %s", row.org.Slug, a.Code, got, want)
		}
	}

	child := acme.Get(t, acme.Key(t), "/api/files/folders/"+fixture.DocID(17))
	fixture.WantMember(t, child.DataJSON(), strconv.Quote(fixture.DocID(16)), "folder_id")
	fixture.WantMember(t, child.DataJSON(), "[]", "files")
	fixture.WantMember(t, child.DataJSON(), "0", "files_count")
	fixture.WantMember(t, child.DataJSON(), "[]", "folders")
}

func TestContract_FileWithoutContactOrUser(t *testing.T) {
	t.Parallel()
	g := gatewaytest.Start(t)
	acme := g.Org(t, "acme", "teams")
	acme.Import(t, fixture.FolderLine(16, "F", "null", ""), fixture.FileLine(32, "a", fixture.DocID(16), ""))
	a := acme.Get(t, acme.Key(t), "/api/files/folders/"+fixture.DocID(16))
	file := element(t, fixture.Member(t, a.DataJSON(), "files"), 0)
	for name, want := range map[string]string{"contact_name": `""`, "user_name": `""`, "folder_name": `"F"`} {
		fixture.WantMember(t, file, want, name)
	}
	if pid := column(t, fixture.Member(t, a.DataJSON(), "files"), "pid")[0]; len(pid) < 22 {
		t.Errorf("the pid %q holds less than 128 bits, want at least 22", pid)
	}
}

func TestContract_FolderParameters(t *testing.T) {
	t.Parallel()
	g := gatewaytest.Start(t)
	acme := g.Org(t, "acme", "teams")
	const at = `,"user_id":7,"created_at":"2024-01-02T03:04:05.006Z","updated_at":"2024-02-03T04:05:06.007Z"`
	acme.Import(t, fixture.UserLine,
		fixture.FolderLine(1, "Root", "null", at), fixture.FolderLine(2, "Child", fixture.DocID(1), at),
		fixture.FolderLine(3, "Bin", "null", `,"deleted":true`+at), fixture.FolderLine(4, "Deleted child", fixture.DocID(1), `,"deleted":true`),
		fixture.FileLine(8, "a", fixture.DocID(1), ""), fixture.FileLine(9, "deleted", fixture.DocID(1), `,"deleted":true`),
	)
	key := gatewaytest.WithKey(acme.Key(t))
	org := strconv.FormatInt(acme.Tenant(t).Org.OrgID, 10)
	basic := func(id int, name, parent string, files, folders int) string {
		return fixture.EnvelopeOK("Folder found", fmt.Sprintf(`{"id":"%s","name":"%s","folder_id":%s,"org_id":%s,"user_id":7,"teams":[],"files_count":%d,"folders_count":%d,`+
			`"editable":true,"deletable":true,"created_at":"2024-01-02T03:04:05.006Z","updated_at":"2024-02-03T04:05:06.007Z"}`, fixture.DocID(id), name, parent, org, files, folders))
	}
	root, child, bin := basic(1, "Root", "null", 1, 1), basic(2, "Child", strconv.Quote(fixture.DocID(1)), 0, 0), basic(3, "Bin", "null", 0, 0)
	with := []gatewaytest.Request{key}
	get := func(name string, id int, query, body string) exactRow {
		code := http.StatusOK
		if body == missingFolder {
			code = http.StatusNotFound
		}
		return exactRow{name: name, path: "/api/files/folders/" + fixture.DocID(id) + "?schema=basic" + query, with: with, code: code, body: body}
	}
	checkRows(t, acme, []exactRow{
		get("basic has the counts alone", 1, "", root),
		get("deleted=false is the default", 1, "&deleted=false", root),
		get("a deleted folder is hidden", 3, "", missingFolder),
		get("deleted=true finds it", 3, "&deleted=true", bin),
		get("deleted=true hides the others", 1, "&deleted=true", missingFolder),
		get("folder_id is the parent", 2, "&folder_id="+fixture.DocID(1), child),
		get("folder_id is another", 2, "&folder_id="+fixture.DocID(3), missingFolder),
		get("folder_id of a top-level folder", 1, "&folder_id="+fixture.DocID(1), missingFolder),
		get("folder_id=null at top level", 1, "&folder_id=null", root),
		get("folder_id=null below", 2, "&folder_id=null", missingFolder),
		get("folder_id malformed", 2, "&folder_id=xyz", missingFolder),
		{name: "absent", path: "/api/files/folders/" + fixture.AbsentID, with: with, code: 404, body: missingFolder},
		{name: "malformed", path: "/api/files/folders/nothing", with: with, code: 404, body: missingFolder},
		{name: "upper case", path: "/api/files/folders/" + strings.ToUpper(fixture.AbsentID), with: with, code: 404, body: missingFolder},
		{name: "a file is no folder", path: "/api/files/folders/" + fixture.DocID(8), with: with, code: 404, body: missingFolder},
		{name: "no key", path: "/api/files/folders/" + fixture.DocID(1), code: 403, body: fixture.DeniedBody},
	})
	full, explicit := acme.Get(t, "", "/api/files/folders/"+fixture.DocID(1), key), acme.Get(t, "", "/api/files/folders/"+fixture.DocID(1)+"?schema=full", key)
	if full.Text() != explicit.Text() || !strings.Contains(full.Text(), `"files":[`) {
		t.Errorf("schema=full: got %s\nwant the default %s", full.Text(), explicit.Text())
	}
	for query, fault := range map[string]string{
		"schema=none": "schema", "schema=": "schema", "schema=Full": "schema", "deleted=maybe": "deleted",
		"page=0": "page", "page=-1": "page", "page=one": "page", "page=1.5": "page", "page=": "page",
		"page=1&per_page=0": "per_page", "page=1&per_page=-5": "per_page", "page=1&per_page=ten": "per_page",
	} {
		a := acme.Get(t, "", "/api/files/folders/"+fixture.DocID(1)+"?"+query, key)
		if fixture.WantFailure(t, a, http.StatusUnprocessableEntity); !strings.Contains(a.Text(), `"field":"`+fault+`"`) {
			t.Errorf("%s: the answer does not name %s: got %s, want it with %q",
				query, fault, a.Text(), `"field":"`+fault+`"`)
		}
	}
}

func TestContract_FolderChildren(t *testing.T) {
	t.Parallel()
	g := gatewaytest.Start(t)
	small, large := g.Org(t, "small"), g.Org(t, "large")
	if _, err := control.Call[control.Organization](t.Context(), g.Commands, "org.update", control.OrganizationChange{Slug: "small", OrganizationFields: control.OrganizationFields{Limits: map[string]int64{"folder_children": 3}}}); err != nil {
		t.Fatal(err)
	}
	small.Import(t, fixture.FolderLine(1, "Root", "null", ""),
		fixture.FileLine(0x15, "c", fixture.DocID(1), ""), fixture.FileLine(0x12, "b", fixture.DocID(1), ""), fixture.FileLine(0x11, "b", fixture.DocID(1), ""), fixture.FileLine(0x13, "a", fixture.DocID(1), ""), fixture.FileLine(0x14, "d", fixture.DocID(1), ""),
		fixture.FolderLine(0x23, "y", fixture.DocID(1), ""), fixture.FolderLine(0x22, "x", fixture.DocID(1), ""), fixture.FolderLine(0x21, "x", fixture.DocID(1), ""), fixture.FolderLine(0x24, "w", fixture.DocID(1), ""))
	files := []string{fixture.DocID(0x13), fixture.DocID(0x11), fixture.DocID(0x12), fixture.DocID(0x15), fixture.DocID(0x14)} // by name, then id
	folders := []string{fixture.DocID(0x24), fixture.DocID(0x21), fixture.DocID(0x22), fixture.DocID(0x23)}
	key := small.Key(t)
	path := "/api/files/folders/" + fixture.DocID(1)

	a := small.Get(t, key, path)
	for name, want := range map[string][]string{"files": files[:3], "folders": folders[:3]} {
		if got := column(t, fixture.Member(t, a.DataJSON(), name), "id"); !slices.Equal(got, want) {
			t.Errorf("%s are %q, want %q", name, got, want)
		}
	}
	fixture.WantMember(t, a.DataJSON(), "5", "files_count")
	fixture.WantMember(t, a.DataJSON(), "4", "folders_count")

	for _, row := range []struct {
		query              string
		page, files, dirs  string // page; pages of each
		wantFiles, wantDir []string
	}{
		{"page=1", "1", "2", "2", files[:3], folders[:3]},
		{"page=2", "2", "2", "2", files[3:], folders[3:]},
		{"page=1&per_page=2", "1", "3", "2", files[:2], folders[:2]},
		{"page=2&per_page=2", "2", "3", "2", files[2:4], folders[2:]},
		{"page=3&per_page=2", "3", "3", "2", files[4:], nil},
		{"page=2&per_page=100", "2", "2", "2", files[3:], folders[3:]}, // cut to the limit
		{"page=9", "9", "2", "2", nil, nil},
	} {
		a := small.Get(t, key, path+"?"+row.query)
		fixture.WantMember(t, a.DataJSON(), "5", "files_count")
		fixture.WantMember(t, a.DataJSON(), "4", "folders_count")
		for _, side := range []struct {
			name, pages, count string
			ids                []string
		}{{"files", row.files, "5", row.wantFiles}, {"folders", row.dirs, "4", row.wantDir}} {
			object := fixture.Member(t, a.DataJSON(), side.name)
			fixture.WantMembers(t, object, "page", "pages", "count", "results")
			fixture.WantMember(t, object, row.page, "page")
			fixture.WantMember(t, object, side.pages, "pages")
			fixture.WantMember(t, object, side.count, "count")
			if got := column(t, fixture.Member(t, object, "results"), "id"); !slices.Equal(got, side.ids) {
				t.Errorf("%s: the %s are %q, want %q", row.query, side.name, got, side.ids)
			}
		}
	}
	// per_page has no effect without page.
	if a := small.Get(t, key, path+"?per_page=1"); len(column(t, fixture.Member(t, a.DataJSON(), "files"), "id")) != 3 {
		t.Errorf("per_page without page: got %s, want 3 files", a.Text())
	}

	lines := []string{fixture.FolderLine(1, "Root", "null", ""), fixture.FolderLine(2, "Empty", "null", "")}
	for i := range 1001 {
		lines = append(lines, fixture.FileLine(0x1000+i, fmt.Sprintf("f%04d", i), fixture.DocID(1), ""))
	}
	large.Import(t, lines...)
	key = large.Key(t)
	counts := func(query string) (list []string, data string) {
		data = large.Get(t, key, path+query).DataJSON()
		list = column(t, fixture.Member(t, data, "files", "results"), "id")
		return list, data
	}
	data := large.Get(t, key, path).DataJSON()
	if n := len(column(t, fixture.Member(t, data, "files"), "id")); n != 1000 {
		t.Errorf("the default limit lets %d files through, want 1000", n)
	}
	fixture.WantMember(t, data, "1001", "files_count")
	if list, data := counts("?page=1"); len(list) != 50 || fixture.Member(t, data, "files", "pages") != "21" {
		t.Errorf("the default page has %d of %s pages, want 50 of 21", len(list), fixture.Member(t, data, "files", "pages"))
	}
	if list, data := counts("?page=2&per_page=5000"); len(list) != 1 || fixture.Member(t, data, "files", "pages") != "2" {
		t.Errorf("per_page=5000: got %d files on page 2 of %s, want 1 on page 2 of 2",
			len(list), fixture.Member(t, data, "files", "pages"))
	}
	empty := large.Get(t, key, "/api/files/folders/"+fixture.DocID(2)+"?page=1").DataJSON()
	fixture.WantMember(t, empty, "[]", "files", "results")
	fixture.WantMember(t, empty, "0", "folders", "count")
}

func TestContract_DeleteFile(t *testing.T) {
	t.Parallel()
	g := gatewaytest.Start(t)
	acme := g.Org(t, "acme", "teams")
	acme.Import(t, append(fixture.TeamLines(), fixture.FolderLine(1, "Root", "null", ""),
		fixture.FileLine(16, "a", fixture.DocID(1), ""), fixture.FileLine(17, "b", fixture.DocID(1), ""), fixture.FileLine(18, "c", fixture.DocID(1), `,"teams":["`+fixture.TeamA+`"]`), fixture.FileLine(19, "d", fixture.DocID(1), `,"deleted":true`))...)
	key := []gatewaytest.Request{gatewaytest.WithKey(acme.Key(t))}
	read := acme.KeyWith(t, func(k *control.NewKey) { k.Kind = "server_read" }).Token
	missing := envelopeFailed("File not found")
	row := func(name, id string, code int, body string, with []gatewaytest.Request) exactRow {
		return exactRow{name: name, method: http.MethodDelete, path: "/api/files/" + id, with: with, code: code, body: body}
	}
	folder := func(files string) exactRow {
		return exactRow{name: files + " files left", path: "/api/files/folders/" + fixture.DocID(1) + "?schema=basic&page=1", with: key}
	}
	count := func(t *testing.T, want string) {
		t.Helper()
		fixture.WantMember(t, acme.Do(t, http.MethodGet, folder(want).path, key...).DataJSON(), want, "files_count")
	}
	count(t, "3")
	checkRows(t, acme, []exactRow{
		row("no key", fixture.DocID(16), 403, fixture.DeniedBody, nil),
		row("a reading key", fixture.DocID(16), 403, fixture.DeniedBody, []gatewaytest.Request{gatewaytest.WithKey(read)}),
		row("success", fixture.DocID(16), 200, fixture.EnvelopeOK("File record deleted", `{"id":"`+fixture.DocID(16)+`"}`), key),
		row("second time", fixture.DocID(16), 200, missing, key),
		row("deleted before", fixture.DocID(19), 200, missing, key),
		row("absent", fixture.AbsentID, 200, missing, key),
		row("malformed", "x", 200, missing, key),
		row("a folder", fixture.DocID(1), 200, missing, key),
		row("out of scope", fixture.DocID(18)+"?teams[]="+fixture.TeamB, 200, missing, key),
	})
	count(t, "2")
	files := column(t, fixture.Member(t, acme.Do(t, http.MethodGet, "/api/files/folders/"+fixture.DocID(1), key...).DataJSON(), "files"), "id")
	if !slices.Equal(files, []string{fixture.DocID(17), fixture.DocID(18)}) {
		t.Errorf("files = %q, want 17 and 18", files)
	}
	checkRows(t, acme, []exactRow{row("in scope", fixture.DocID(18)+"?teams[]="+fixture.TeamA, 200, fixture.EnvelopeOK("File record deleted", `{"id":"`+fixture.DocID(18)+`"}`), key)})
	count(t, "1")
	// The deletion is soft: the record can be restored.
	if a := acme.Do(t, http.MethodPost, "/api/files/"+fixture.DocID(16)+"/restore", gatewaytest.WithKey(acme.Key(t, tenants.ManageFiles))); a.Code != http.StatusOK {
		t.Errorf("restoring the file: got %d %s, want %d", a.Code, a.Body, http.StatusOK)
	}
	count(t, "2")
}
