package files

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	"tenantry/backends/enginetest"
	"tenantry/backends/store"
	"tenantry/internal/request"
	"tenantry/modules/files/contents"
	"tenantry/operation"
	"tenantry/operation/schematest"
	"tenantry/tenants"
)

const (
	teamA = "aaaaaaaaaaaaaaaaaaaaaaaa"
	teamB = "bbbbbbbbbbbbbbbbbbbbbbbb"
)

// names finds made-up contacts and users, and counts how often it was asked.
type names struct{ contactCalls, userCalls int }

type (
	contactNames struct{ *names }
	userNames    struct{ *names }
)

func (n contactNames) Names(_ context.Context, _ *store.Workspace, ids []string) (map[string]string, error) {
	n.contactCalls++
	found := map[string]string{}
	for _, id := range ids {
		found[id] = "contact " + id[:2]
	}
	return found, nil
}

func (n userNames) Names(_ context.Context, _ *tenants.Tenant, ids []int64) (map[int64]string, error) {
	n.userCalls++
	found := map[int64]string{}
	for _, id := range ids {
		if id != 99 {
			found[id] = fmt.Sprintf("user %d", id)
		}
	}
	return found, nil
}

type fixture struct {
	*schematest.Bench
	module *Module
	kinds  Kinds
	names  *names
}

func newFixture(t testing.TB, edit func(*tenants.Organization)) *fixture {
	t.Helper()
	n := &names{}
	m := New(Deps{
		CDNBase: func(*tenants.Tenant) string { return "https://cdn.example.com/" }, Contacts: contactNames{n}, Users: userNames{n},
		Contents: contents.New(contents.Options{}),
	})
	bench := schematest.Open(t, enginetest.Open(t), m)
	bench.Tenant.Org.Features = map[string]bool{tenants.FeatureTeams: true}
	if edit != nil {
		edit(&bench.Tenant.Org)
	}
	return &fixture{bench, m, m.Kinds, n}
}

func (f *fixture) folder(t testing.TB, rec Folder) string {
	t.Helper()
	if err := f.kinds.Folders.In(f.Base()).Insert(t.Context(), &rec); err != nil {
		t.Fatal(err)
	}
	return rec.ID
}

func (f *fixture) file(t testing.TB, rec File) string {
	t.Helper()
	if err := f.kinds.Files.In(f.Base()).Insert(t.Context(), &rec); err != nil {
		t.Fatal(err)
	}
	return rec.ID
}

func (f *fixture) get(t testing.TB, id, query string) schematest.Answer {
	t.Helper()
	return f.Do(t, schematest.Request{Operation: "folders.get", Path: map[string]string{"id": id}, Query: query})
}

func (f *fixture) remove(t testing.TB, id, query string) schematest.Answer {
	t.Helper()
	return f.Do(t, schematest.Request{Operation: "files.delete", Path: map[string]string{"id": id}, Query: query})
}

func decode(t testing.TB, a schematest.Answer) map[string]any {
	t.Helper()
	if a.Status != "ok" {
		t.Fatalf("answer %+v", a)
	}
	var m map[string]any
	if err := json.Unmarshal([]byte(a.Data), &m); err != nil {
		t.Fatal(err)
	}
	return m
}

func column(t testing.TB, list any, key string) []string {
	t.Helper()
	items, ok := list.([]any)
	if !ok {
		t.Fatalf("%v is no list", list)
	}
	out := []string{}
	for _, item := range items {
		m, _ := item.(map[string]any)
		s, _ := m[key].(string)
		out = append(out, s)
	}
	return out
}

func TestFolderAnswer(t *testing.T) {
	t.Parallel()
	f := newFixture(t, nil)
	const contact = "cccccccccccccccccccccccc"
	parent := f.folder(t, Folder{Name: "top", UserID: 3})
	rec := Folder{Name: "Contracts", FolderID: parent, UserID: 7}
	rec.CreatedAt, rec.UpdatedAt = 1717509162005, 1717595562000
	id := f.folder(t, rec)
	kid := Folder{Name: "kid", FolderID: id, UserID: 7, Teams: []string{teamA}}
	kid.CreatedAt = 1717509162005
	kidID := f.folder(t, kid)
	full := File{PID: "p1", Filename: "b.pdf", Mimetype: "application/pdf", Hash: "abc", FolderID: id, ContactID: contact, UserID: 7, Type: "document"}
	full.CreatedAt, full.UpdatedAt = 1717509162005, 1717595562999
	fullID := f.file(t, full)
	bare := File{PID: "p2", Filename: "a.txt", Mimetype: "text/plain", FolderID: id}
	bare.CreatedAt = 1717509162005
	bareID := f.file(t, bare)

	got := f.get(t, id, "")
	want := `{"id":"` + id + `","name":"Contracts","folder_id":"` + parent + `","org_id":1,"user_id":7,"teams":[],"files":[` +
		`{"id":"` + bareID + `","pid":"p2","org_id":"1","user_id":0,"url":"","filename":"a.txt","mimetype":"text/plain","contact_id":"","contact_name":"","user_name":"","folder_id":"` + id + `","folder_name":"Contracts","type":"","teams":[],"created_at":1717509162,"updated_at":1717509162},` +
		`{"id":"` + fullID + `","pid":"p1","org_id":"1","user_id":7,"url":"https://cdn.example.com/abc","filename":"b.pdf","mimetype":"application/pdf","contact_id":"` + contact + `","contact_name":"contact cc","user_name":"user 7","folder_id":"` + id + `","folder_name":"Contracts","type":"document","teams":[],"created_at":1717509162,"updated_at":1717595562}` +
		`],"files_count":2,"folders":[` +
		`{"id":"` + kidID + `","name":"kid","folder_id":"` + id + `","org_id":1,"user_id":7,"teams":["` + teamA + `"],"editable":true,"deletable":true,"created_at":"2024-06-04T13:52:42.005Z","updated_at":"2024-06-04T13:52:42.005Z"}` +
		`],"folders_count":1,"editable":true,"deletable":true,"created_at":"2024-06-04T13:52:42.005Z","updated_at":"2024-06-05T13:52:42.000Z"}`
	if got.Code != 200 || got.Message != "Folder found" || got.Data != want {
		t.Errorf("got  %+v\nwant %s", got, want)
	}
	if f.names.contactCalls != 1 || f.names.userCalls != 1 {
		t.Errorf("%d look-ups of contacts, %d of users; want one each", f.names.contactCalls, f.names.userCalls)
	}
	if top := decode(t, f.get(t, parent, "")); top["folder_id"] != nil {
		t.Errorf("folder_id at top level is %v", top["folder_id"])
	}
}

func TestFolderWithoutTeamsFeature(t *testing.T) {
	t.Parallel()
	f := newFixture(t, func(o *tenants.Organization) { o.Features = nil })
	id := f.folder(t, Folder{Name: "x", Teams: []string{teamA}})
	f.folder(t, Folder{Name: "y", FolderID: id, Teams: []string{teamB}})
	f.file(t, File{PID: "p", Filename: "f", Mimetype: "a/b", FolderID: id, Teams: []string{teamB}})
	got := f.get(t, id, "teams[]="+teamA)
	if strings.Contains(got.Data, `"teams"`) {
		t.Errorf("teams are shown: %s", got.Data)
	}
	if m := decode(t, got); m["files_count"] != 1.0 || m["folders_count"] != 1.0 {
		t.Errorf("scoped without the feature: %s", got.Data)
	}
}

func TestFolderParameters(t *testing.T) {
	t.Parallel()
	f := newFixture(t, nil)
	parent := f.folder(t, Folder{Name: "parent"})
	id := f.folder(t, Folder{Name: "x", FolderID: parent})
	gone := f.folder(t, Folder{Name: "gone", Trash: Trash{Deleted: true}})
	hidden := f.folder(t, Folder{Name: "hidden", Teams: []string{teamB}})
	for _, tt := range []struct {
		name, id, query string
		code            int
	}{
		{"plain", id, "", 200},
		{"full", id, "schema=full", 200},
		{"unknown schema", id, "schema=FULL", 422},
		{"empty schema", id, "schema=", 422},
		{"not deleted", id, "deleted=true", 404},
		{"deleted", gone, "deleted=true", 200},
		{"deleted, live asked", gone, "", 404},
		{"deleted=0", gone, "deleted=0", 404},
		{"deleted malformed", id, "deleted=maybe", 422},
		{"parent", id, "folder_id=" + parent, 200},
		{"other parent", id, "folder_id=" + gone, 404},
		{"top asked, is not", id, "folder_id=null", 404},
		{"top asked, is", parent, "folder_id=null", 200},
		{"parent asked, at top", parent, "folder_id=" + id, 404},
		{"parent malformed", parent, "folder_id=", 404},
		{"parent an operator", parent, "folder_id[$ne]=x", 400},
		{"page 0", id, "page=0", 422},
		{"page negative", id, "page=-1", 422},
		{"page no number", id, "page=x", 422},
		{"page empty", id, "page=", 422},
		{"page far", id, "page=1000000000&per_page=1000", 200},
		{"page too far", id, "page=1000000001", 422},
		{"page overflow", id, "page=99999999999999999999", 422},
		{"per_page 0", id, "page=1&per_page=0", 422},
		{"per_page huge", id, "page=1&per_page=4611686018427387904", 200},
		{"twice", id, "page=1&page=2", 400},
		{"missing", "0123456789abcdef01234567", "", 404},
		{"malformed", "x", "", 404},
		{"upper case", strings.ToUpper(id), "", map[bool]int{true: 200, false: 404}[strings.ToUpper(id) == id]},
		{"traversal", "../" + id, "", 404},
		{"out of scope", hidden, "teams[]=" + teamA, 404},
		{"in scope", hidden, "teams[]=" + teamB, 200},
		{"invalid team ignored", hidden, "teams[]=zzz", 200},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			got := f.get(t, tt.id, tt.query)
			if got.Code != tt.code {
				t.Fatalf("got %+v, want %d", got, tt.code)
			}
			if tt.code == 404 && (got.Message != "Folder not found" || got.Data != "[]") {
				t.Errorf("got %+v", got)
			}
		})
	}
}

func TestFolderReportsAllProblems(t *testing.T) {
	t.Parallel()
	f := newFixture(t, nil)
	got := f.get(t, f.folder(t, Folder{Name: "x"}), "schema=x&deleted=x&page=0&per_page=0")
	for _, field := range []string{"schema", "deleted", "page", "per_page"} {
		if !strings.Contains(got.Data, `"field":"`+field+`"`) {
			t.Errorf("%s is not reported: %+v", field, got)
		}
	}
}

func TestFolderPagesAndCaps(t *testing.T) {
	t.Parallel()
	f := newFixture(t, func(o *tenants.Organization) { o.Limits = map[string]int64{tenants.LimitFolderChildren: 4} })
	id := f.folder(t, Folder{Name: "x"})
	for _, name := range []string{"e", "c", "a", "f", "b", "d"} {
		f.file(t, File{PID: "p" + name, Filename: name, Mimetype: "a/b", FolderID: id})
	}
	f.folder(t, Folder{Name: "kid", FolderID: id})
	f.file(t, File{PID: "elsewhere", Filename: "0", Mimetype: "a/b"})
	f.file(t, File{PID: "deleted", Filename: "0", Mimetype: "a/b", FolderID: id, Trash: Trash{Deleted: true}})

	m := decode(t, f.get(t, id, ""))
	if got := column(t, m["files"], "filename"); !slices.Equal(got, []string{"a", "b", "c", "d"}) || m["files_count"] != 6.0 {
		t.Errorf("capped list: %v, count %v", got, m["files_count"])
	}
	m = decode(t, f.get(t, id, "schema=basic"))
	if _, ok := m["files"]; ok || m["files_count"] != 6.0 || m["folders_count"] != 1.0 {
		t.Errorf("basic: %v", m)
	}
	for _, tt := range []struct {
		query           string
		files           []string
		pages, kidPages float64
		folders         int
	}{
		{"page=1&per_page=2", []string{"a", "b"}, 3, 1, 1},
		{"page=3&per_page=2", []string{"e", "f"}, 3, 1, 0},
		{"page=4&per_page=2", []string{}, 3, 1, 0},
		{"page=2&per_page=4", []string{"e", "f"}, 2, 1, 0},
		{"page=1", []string{"a", "b", "c", "d"}, 2, 1, 1}, // 50 is cut to 4
		{"page=1&per_page=5000", []string{"a", "b", "c", "d"}, 2, 1, 1},
	} {
		m := decode(t, f.get(t, id, tt.query))
		files, _ := m["files"].(map[string]any)
		folders, _ := m["folders"].(map[string]any)
		if got := column(t, files["results"], "filename"); !slices.Equal(got, tt.files) {
			t.Errorf("%s: files %v", tt.query, got)
		}
		if files["pages"] != tt.pages || files["count"] != 6.0 || m["files_count"] != 6.0 || len(files) != 4 {
			t.Errorf(`%s: got %v, want files["pages"] = %v and files["count"] = 6.0 and m["files_count"] = 6.0 and len(files) = 4`,
				tt.query, files, tt.pages)
		}
		if got := column(t, folders["results"], "name"); len(got) != tt.folders || folders["pages"] != tt.kidPages || folders["count"] != 1.0 {
			t.Errorf("%s: folders %v", tt.query, folders)
		}
	}
}

func TestEmptyFolderPage(t *testing.T) {
	t.Parallel()
	f := newFixture(t, nil)
	got := f.get(t, f.folder(t, Folder{Name: "x"}), "page=1")
	if want := `"files":{"page":1,"pages":0,"count":0,"results":[]},"files_count":0`; !strings.Contains(got.Data, want) {
		t.Errorf("got %s", got.Data)
	}
	if got := f.get(t, f.folder(t, Folder{Name: "x"}), ""); !strings.Contains(got.Data, `"files":[],"files_count":0,"folders":[]`) {
		t.Errorf("got %s", got.Data)
	}
}

// TestLargeTreeEndsEarly holds that a tree of large folders ends before what does not fit the page, and reserves
// room beyond what every call may hold.
func TestLargeTreeEndsEarly(t *testing.T) {
	t.Parallel()
	f := newFixture(t, nil)
	const many = 6
	for range many {
		f.folder(t, Folder{Name: strings.Repeat("x", 1<<20)})
	}
	room := &noRoom{}
	ctx := request.With(t.Context(), &request.Request{Room: room})
	c := &operation.Call{Tenant: f.Tenant, Workspace: f.Base(), Header: http.Header{}}
	if _, err := f.module.tree(ctx, c, struct{}{}); !errors.Is(err, errNoRoom) || room.asked == 0 {
		t.Errorf("without room: %v, asked for %d", err, room.asked)
	}
	tree, err := f.module.tree(t.Context(), c, struct{}{})
	if n := len(tree.Results); err != nil || tree.Count != many || n == 0 || n >= many || !strings.Contains(c.Header.Get("X-Warning"), fmt.Sprintf("after %d folders", n)) {
		t.Errorf("%d of %d folders, %v: %v", n, tree.Count, c.Header, err)
	}
}

var errNoRoom = errors.New("no room")

// noRoom refuses all that is asked for.
type noRoom struct{ asked int64 }

func (r *noRoom) Hold(_ context.Context, more int64) error { r.asked += more; return errNoRoom }

func TestEqualNamesAreOrderedByID(t *testing.T) {
	t.Parallel()
	f := newFixture(t, nil)
	id := f.folder(t, Folder{Name: "x"})
	var want []string
	for i := range 5 {
		rec := File{PID: fmt.Sprint(i), Filename: "same", Mimetype: "a/b", FolderID: id}
		rec.ID = fmt.Sprintf("%024x", 50-i)
		want = append(want, f.file(t, rec))
	}
	slices.Sort(want)
	if got := column(t, decode(t, f.get(t, id, ""))["files"], "id"); !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

func TestDeletedFolderShowsDeletedFoldersAndLiveFiles(t *testing.T) {
	t.Parallel()
	f := newFixture(t, nil)
	id := f.folder(t, Folder{Name: "x", Trash: Trash{Deleted: true}})
	f.folder(t, Folder{Name: "live", FolderID: id})
	f.folder(t, Folder{Name: "dead", FolderID: id, Trash: Trash{Deleted: true}})
	f.file(t, File{PID: "1", Filename: "live", Mimetype: "a/b", FolderID: id})
	f.file(t, File{PID: "2", Filename: "dead", Mimetype: "a/b", FolderID: id, Trash: Trash{Deleted: true}})
	m := decode(t, f.get(t, id, "deleted=true"))
	if got := column(t, m["folders"], "name"); !slices.Equal(got, []string{"dead"}) {
		t.Errorf("folders %v", got)
	}
	if got := column(t, m["files"], "filename"); !slices.Equal(got, []string{"live"}) {
		t.Errorf("files %v", got)
	}
}

func TestCycleOfFoldersEnds(t *testing.T) {
	t.Parallel()
	f := newFixture(t, nil)
	a, b := Folder{Name: "a"}, Folder{Name: "b"}
	a.ID, b.ID = teamA, teamB
	a.FolderID, b.FolderID = b.ID, a.ID
	f.folder(t, a)
	f.folder(t, b)
	m := decode(t, f.get(t, a.ID, ""))
	if got := column(t, m["folders"], "name"); !slices.Equal(got, []string{"b"}) || m["folders_count"] != 1.0 {
		t.Errorf("got %v", m)
	}
}

func TestTeamLimitedCallerSeesAndCountsItsOwn(t *testing.T) {
	t.Parallel()
	f := newFixture(t, nil)
	id := f.folder(t, Folder{Name: "x"})
	f.file(t, File{PID: "1", Filename: "all", Mimetype: "a/b", FolderID: id})
	f.file(t, File{PID: "2", Filename: "ours", Mimetype: "a/b", FolderID: id, Teams: []string{teamA}})
	f.file(t, File{PID: "3", Filename: "theirs", Mimetype: "a/b", FolderID: id, Teams: []string{teamB}})
	limited := schematest.Key()
	limited.Teams = []string{teamA}
	for _, query := range []string{"", "teams[]=" + teamA, "teams[]=" + teamA + "&teams[]=" + teamB, "teams[]=garbage"} {
		m := decode(t, f.Do(t, schematest.Request{Operation: "folders.get", Path: map[string]string{"id": id}, Query: query, Principal: limited}))
		if got := column(t, m["files"], "filename"); !slices.Equal(got, []string{"all", "ours"}) || m["files_count"] != 2.0 {
			t.Errorf("%s: %v, count %v", query, got, m["files_count"])
		}
	}
	m := decode(t, f.Do(t, schematest.Request{Operation: "folders.get", Path: map[string]string{"id": id}, Query: "teams[]=" + teamB, Principal: limited}))
	if got := column(t, m["files"], "filename"); !slices.Equal(got, []string{"all"}) {
		t.Errorf("a foreign team shows %v", got)
	}
}

func TestDelete(t *testing.T) {
	t.Parallel()
	f := newFixture(t, nil)
	folder := f.folder(t, Folder{Name: "x"})
	id := f.file(t, File{PID: "1", Filename: "a", Mimetype: "a/b", FolderID: folder, Teams: []string{teamA}})
	refused := func(what, id, query string) {
		t.Helper()
		got := f.remove(t, id, query)
		if got.Code != 200 || got.Status != "failed" || got.Message != "File not found" || got.Data != "[]" {
			t.Errorf(`%s: got %+v, want 200 and got.Status = "failed" and got.Message = "File not found" and got.Data = "[]"`,
				what, got)
		}
	}
	refused("malformed", "x", "")
	refused("missing", "0123456789abcdef01234567", "")
	refused("a folder's id", folder, "")
	refused("out of scope", id, "teams[]="+teamB)
	if got := f.remove(t, id, ""); got.Code != 200 || got.Status != "ok" || got.Message != "File record deleted" || got.Data != `{"id":"`+id+`"}` {
		t.Errorf("got %+v", got)
	}
	refused("deleted already", id, "")
	if m := decode(t, f.get(t, folder, "")); m["files_count"] != 0.0 {
		t.Errorf("the deleted file is counted: %v", m)
	}
}

func TestConcurrentDeletesSucceedOnce(t *testing.T) {
	t.Parallel()
	f := newFixture(t, nil)
	id := f.file(t, File{PID: "1", Filename: "a", Mimetype: "a/b"})
	const callers = 6
	answers := make(chan schematest.Answer, callers)
	for range callers {
		go func() { answers <- f.remove(t, id, "") }()
	}
	done := 0
	for range callers {
		if got := <-answers; got.Status == "ok" {
			done++
		}
	}
	if done != 1 {
		t.Errorf("%d deletes succeeded", done)
	}
}

func BenchmarkFolderPage(b *testing.B) {
	f := newFixture(b, nil)
	id := f.folder(b, Folder{Name: "x"})
	batch := make([]*File, 1000)
	for i := range 100 {
		for j := range batch {
			batch[j] = &File{PID: fmt.Sprintf("%d-%d", i, j), Filename: fmt.Sprintf("file %06d", i*1000+j), Mimetype: "a/b", FolderID: id, UserID: 7}
		}
		if err := f.kinds.Files.In(f.Base()).Insert(b.Context(), batch...); err != nil {
			b.Fatal(err)
		}
	}
	for _, query := range []string{"page=1&per_page=50", "page=1000&per_page=50", "page=1&per_page=50&teams[]=" + teamA} {
		b.Run(query, func(b *testing.B) {
			for b.Loop() {
				if got := f.get(b, id, query); got.Code != 200 {
					b.Fatalf("got %v, want 200", got)
				}
			}
		})
	}
}
