package files

import (
	"bufio"
	"cmp"
	"fmt"
	"net/http"
	"os"
	"path"
	"path/filepath"
	"strings"
	"testing"

	"tenantry/config"
	"tenantry/gateway"
	"tenantry/gateway/control"
	"tenantry/gateway/gatewaytest"
	"tenantry/gateway/tests/fixture"
	"tenantry/internal/formdata"
	"tenantry/tenants"
)

// TestUpload stores files one by one and several at once, and reads them at their addresses.
func TestUpload(t *testing.T) {
	t.Parallel()
	a := open(t)
	folder := a.folder(t, `{"name":"Plans"}`)
	contact := fixture.As(a.Org, gatewaytest.WithKey(a.key)).Create(t, "/api/contacts", `{"first_name":"Ada"}`)
	f := a.upload(t, "a b.txt", "text/plain; charset=utf-8", "Hello.\n", "folder_id="+folder, "contact_id="+contact, "type=note", "teams[]="+north)
	if f.Filename != "a b.txt" || f.Mimetype != "text/plain" || f.FolderID != folder || f.ContactID != contact || f.Type != "note" ||
		len(f.Teams) != 1 || *f.Size != 7 || f.Checksum != sumOf("Hello.\n") || !strings.HasPrefix(f.Detected, "text/plain") {
		t.Errorf("got %+v, want what was sent", f)
	}
	a.wantBytes(t, f.URL, "Hello.\n")
	if again := a.read(t, f.ID); again.URL != f.URL {
		t.Errorf("got the address %s when reading, want %s", again.URL, f.URL)
	}
	form := newForm().file("file", "1.txt", "text/plain", "one").field("folder_id", folder).file("file", "2.bin", "", "\x00\x01two").
		field("teams[]", north).field("teams[]", south).file("file[]", "3.png", "text/x-mine", "\x89PNG\r\n\x1a\nthree")
	all := filesOf(t, a.postForm(t, uploadPath+"?type=scan", form))
	for i, want := range []file{
		{Filename: "1.txt", Mimetype: "text/plain", Detected: "text/plain; charset=utf-8"},
		{Filename: "2.bin", Mimetype: "application/octet-stream", Detected: "application/octet-stream", FolderID: folder},
		{Filename: "3.png", Mimetype: "text/x-mine", Detected: "image/png", FolderID: folder, Teams: []string{north, south}},
	} {
		got := all[i]
		if got.Filename != want.Filename || got.Mimetype != want.Mimetype || got.Detected != want.Detected || got.FolderID != want.FolderID ||
			len(got.Teams) != len(want.Teams) || got.Type != "scan" {
			t.Errorf("%d: got %+v, want %+v", i, got, want)
		}
	}
	a.wantBytes(t, all[1].URL, "\x00\x01two")
	if f := a.upload(t, "a.png", "application/x-www-form-urlencoded", "\x89PNG\r\n\x1a\n"); f.Mimetype != "image/png" {
		t.Errorf("got the type %s, want what the bytes show rather than what curl sends by itself", f.Mimetype)
	}
	empty := a.upload(t, "empty", "", "")
	if *empty.Size != 0 || empty.Checksum != sumOf("") {
		t.Errorf("got %+v, want an empty file", empty)
	}
	a.wantBytes(t, empty.URL, "")
}

// TestUpload_Refused: nothing remains of what is refused.
func TestUpload_Refused(t *testing.T) {
	t.Parallel()
	a := open(t)
	limited := a.limitedKey(t, north)
	hidden := a.folder(t, `{"name":"Hidden","teams":["`+south+`"]}`)
	a.upload(t, "first.txt", "text/plain", "first")
	before := a.state(t)
	big := filler(1, 200<<10)
	ok := func() *form { return newForm().file("file", "ok.txt", "text/plain", big) }
	named := func(name string) string { return uploadPath + "?filename=" + name }
	many := newForm()
	for range 101 {
		many.file("file", "x.txt", "text/plain", "x")
	}
	longFields, manyFields := newForm(), newForm()
	for range 34 {
		longFields.field("teams[]", strings.Repeat("a", 2000))
	}
	for range 1025 {
		manyFields.field("teams[]", "")
	}
	for _, tt := range []struct {
		name    string
		path    string
		key     string // empty: that of the archive
		body    any    // text, or *form
		headers []string
		fault   string // field and code
	}{
		{"no name", uploadPath, "", "x", nil, "filename required"},
		{"line in a name", named("a%0Ab"), "", "x", nil, "filename *"},
		{"long name", named(strings.Repeat("a", 256)), "", "x", nil, "filename length"},
		{"no type", named("a") + "&mimetype=none", "", "x", nil, "mimetype *"},
		{"unknown folder", named("a") + "&folder_id=" + fixture.DocID(9), "", "x", nil, "folder_id *"},
		{"unknown contact", named("a") + "&contact_id=" + fixture.DocID(9), "", "x", nil, "contact_id *"},
		{"unknown team", named("a") + "&teams[]=" + fixture.DocID(9), "", "x", nil, "* *"},
		{"wrong digest", named("a"), "", big, []string{"Content-Digest", digest("y")}, "Content-Digest mismatch"},
		{"other digest", named("a"), "", big, []string{"Content-Digest", "sha-512=:AAAA:"}, "Content-Digest unknown"},
		{"malformed digest", named("a"), "", big, []string{"Content-Digest", "sha-256=:AAAA:"}, "Content-Digest format"},
		{"team of others", named("a") + "&teams[]=" + south, limited, "x", nil, "* *"},
		{"folder of others", named("a") + "&folder_id=" + hidden, limited, "x", nil, "folder_id *"},
		{"no file", uploadPath, "", newForm().field("type", "x"), nil, "file required"},
		{"101 files", uploadPath, "", many, nil, "file length"},
		{"long field", uploadPath, "", newForm().field("type", strings.Repeat("x", 2001)).file("file", "x", "", "x"), nil, "type length"},
		{"long fields", uploadPath, "", longFields.file("file", "x", "", "x"), nil, "teams length"},
		{"many fields", uploadPath, "", manyFields.file("file", "x", "", "x"), nil, "teams length"},
		{"a field after the last file", uploadPath, "", ok().field("type", "x"), nil, "type forbidden"},
		{"second without a name", uploadPath, "", ok().file("file", "", "text/plain", "x"), nil, "file[1].filename required"},
		{"second in no folder", uploadPath, "", ok().field("folder_id", fixture.DocID(9)).file("file", "x", "", "x"), nil, "file[1].folder_id *"},
		{"second with a wrong digest", uploadPath, "", ok().file("file", "x", "", "x", "Content-Digest", digest("y")), nil, "file[1].Content-Digest mismatch"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			key := cmp.Or(tt.key, a.key)
			body := gatewaytest.Body("text/plain", fmt.Sprint(tt.body))
			if f, is := tt.body.(*form); is {
				body = gatewaytest.Body(f.FormDataContentType(), f.end())
			}
			answer := a.Do(t, http.MethodPost, tt.path, append(pairs(tt.headers), gatewaytest.WithKey(key), body)...)
			fixture.WantFaults(t, answer, http.StatusUnprocessableEntity, tt.fault)
			a.wantSame(t, before)
		})
	}
}

// TestUpload_Malformed: forms that end early or have parts that nobody asked for leave nothing.
func TestUpload_Malformed(t *testing.T) {
	t.Parallel()
	a := open(t)
	a.upload(t, "first.txt", "text/plain", "first")
	before := a.state(t)
	big := filler(1, 200<<10)
	whole := newForm().file("file", "a", "", big).file("file", "b", "", big)
	body, media := whole.end(), whole.FormDataContentType()
	second := strings.LastIndex(body, "Content-Disposition")
	for _, tt := range []struct{ name, media, body string }{
		{"no boundary", "multipart/form-data", body},
		{"another boundary", "multipart/form-data; boundary=other", body},
		{"cut in the second", media, body[:300<<10]},
		{"cut before the end", media, body[:len(body)-6]},
		{"cut after a boundary", media, body[:second]},
		{"cut in a boundary", media, body[:second-4]},
		{"cut in a header", media, body[:second+10]},
		{"malformed header", media, body[:second] + "x" + body[second+10:]},
		{"long header", media, body[:second] + "X-A: " + strings.Repeat("a", 2*formdata.MaxHeader) + "\r\n" + body[second:]},
		{"long beginning", media, strings.Repeat("a\r\n", formdata.MaxHeader) + body},
		{"empty", media, ""},
		{"unknown part", media, strings.Replace(body, `form-data; name="file"; filename="b"`, `form-data; name="size"`, 1)},
	} {
		for _, send := range []gatewaytest.Request{func(*http.Request) {}, chunked} {
			answer := a.post(t, uploadPath, tt.media, tt.body, send)
			if answer.Code != http.StatusBadRequest || answer.Status != "failed" {
				t.Errorf("%s: got %d %s, want 400", tt.name, answer.Code, answer.Text())
			}
		}
	}
	a.wantSame(t, before)
}

// TestUpload_CutConnection: a sender who hangs up leaves nothing.
func TestUpload_CutConnection(t *testing.T) {
	t.Parallel()
	a := open(t)
	a.upload(t, "first.txt", "text/plain", "first")
	before := a.state(t)
	whole := newForm().file("file", "a", "", filler(1, 100<<10)).file("file", "b", "", filler(2, 100<<10))
	form := whole.end()
	for name, tt := range map[string]struct{ path, media, body string }{
		"raw": {uploadPath + "?filename=cut.txt", "text/plain", filler(1, 200<<10)}, "form": {uploadPath, whole.FormDataContentType(), form},
	} {
		conn := fixture.Dial(t, a.App.Addr())
		fixture.Send(t, conn, fmt.Sprintf("POST %s HTTP/1.1\r\nHost: %s\r\nX-Service-Token: %s\r\nContent-Type: %s\r\nContent-Length: %d\r\n\r\n%s",
			tt.path, a.Host, a.key, tt.media, len(tt.body), tt.body[:len(tt.body)-10<<10]))
		fixture.Await(t, name+": a file is arriving", func() bool { return len(a.temporary(t)) > 0 })
		if err := conn.Close(); err != nil {
			t.Fatal(err)
		}
		fixture.Await(t, name+": no temporary file", func() bool { return len(a.temporary(t)) == 0 })
		a.wantSame(t, before)
	}
}

// TestUpload_IsShownAsUsed: administrators see how many bytes of files are stored.
func TestUpload_IsShownAsUsed(t *testing.T) {
	t.Parallel()
	a := open(t)
	_, admin := a.Person(t, "admin@example.com", fixture.WithRoles("admin"))
	used := func() any {
		return a.Do(t, http.MethodGet, "/api/organization", gatewaytest.Cookie(admin)).Field("used").(map[string]any)["file_bytes"]
	}
	first := a.upload(t, "a.txt", "text/plain", "0123456789")
	a.upload(t, "b.txt", "text/plain", "0123456789")
	a.upload(t, "c.txt", "text/plain", "01234")
	if got := fmt.Sprint(used()); got != "15" {
		t.Errorf("got %s bytes, want 15", got)
	}
	a.call(t, http.MethodDelete, "/api/files/"+first.ID, "")
	if got := fmt.Sprint(used()); got != "15" {
		t.Errorf("got %s bytes with one in the trash, want 15", got)
	}
}

// TestUpload_TakesAPlace: an upload under way has one of the places of its organization.
func TestUpload_TakesAPlace(t *testing.T) {
	t.Parallel()
	a := open(t)
	u := a.begin(t, 10)
	conn := u.hold(t, 0, length(10), "x")
	places := func(n int) bool {
		_, _, figures := fixture.CallAdmin(t, a.Gateway, http.MethodGet, "/metrics")
		return strings.Contains(figures, fmt.Sprintf("\ntenantry_uploads %d\n", n))
	}
	fixture.Await(t, "one place is taken", func() bool { return places(1) })
	if err := conn.Close(); err != nil {
		t.Fatal(err)
	}
	fixture.Await(t, "it is given back", func() bool { return places(0) })
}

// TestUpload_ArrivingCounts: what is arriving counts against the quota until its upload has ended, as that of others.
func TestUpload_ArrivingCounts(t *testing.T) {
	t.Parallel()
	a := open(t)
	a.limit(t, tenants.LimitFileBytes, 100_000)
	path := uploadPath + "?filename=a.txt"
	first := a.begin(t, 60_000)
	for name, head := range map[string]string{
		"raw":         "POST " + path + " HTTP/1.1\r\nContent-Type: text/plain\r\n",
		"replacement": "POST /api/files/" + a.upload(t, "first.txt", "text/plain", "first").ID + "/content HTTP/1.1\r\n",
		"part": "PATCH " + first.path + " HTTP/1.1\r\nTus-Resumable: 1.0.0\r\nUpload-Offset: 0\r\n" +
			"Content-Type: application/offset+octet-stream\r\n",
	} {
		conn := fixture.Dial(t, a.App.Addr())
		fixture.Send(t, conn, fmt.Sprintf("%sHost: %s\r\nX-Service-Token: %s\r\nTransfer-Encoding: chunked\r\n\r\n%x\r\n%s\r\n",
			head, a.Host, a.key, 50_000, filler(1, 50_000)))
		fixture.Await(t, name+": bytes have arrived", func() bool { return a.arrived(t) >= 50_000 })
		for how, answer := range map[string]*gatewaytest.Answer{
			"raw":  a.post(t, path, "text/plain", filler(2, 60_000), chunked),
			"form": a.postForm(t, uploadPath, newForm().file("file", "b.txt", "text/plain", filler(2, 60_000)), chunked),
		} {
			if answer.Code != http.StatusInsufficientStorage {
				t.Errorf("%s beside a %s: got %d %s, want 507", how, name, answer.Code, answer.Text())
			}
		}
		if err := conn.Close(); err != nil {
			t.Fatal(err)
		}
		fixture.Await(t, name+": no temporary file", func() bool { return len(a.temporary(t)) == 0 })
	}
	fixture.Await(t, "room again", func() bool { // the count of what was cut ends after its temporary file
		return a.post(t, path, "text/plain", filler(2, 60_000)).Code == http.StatusOK
	})
}

// arrived returns how many bytes are in the files that are arriving.
func (a *archive) arrived(t *testing.T) (all int64) {
	t.Helper()
	for _, name := range a.temporary(t) {
		if info, err := os.Stat(filepath.Join(a.Config.Data, "incoming", name)); err == nil {
			all += info.Size()
		}
	}
	return all
}

// TestUpload_Limits: limits are applied before the first byte if the length is known, and as soon as they are exceeded
// otherwise.
func TestUpload_Limits(t *testing.T) {
	t.Parallel()
	const setting = 100_000
	a := open(t, func(c *config.Config, _ *gateway.Options) { c.Limits.FileSize = setting })
	first := a.upload(t, "first.txt", "text/plain", filler(1, 1000))
	before := a.state(t)
	path := uploadPath + "?filename=a.txt"
	refused := func(name string, code int, text string, size int, with ...gatewaytest.Request) {
		t.Helper()
		for _, path := range []string{path, "/api/files/" + first.ID + "/content"} {
			answer := a.post(t, path, "text/plain", filler(2, size), with...)
			fixture.WantFailure(t, answer, code)
			if !strings.Contains(answer.Message, text) {
				t.Errorf("%s: got %s, want %q", name, answer.Message, text)
			}
		}
		form := newForm().file("file", "a.txt", "text/plain", "a").file("file", "b.txt", "text/plain", filler(2, size))
		if answer := a.postForm(t, uploadPath, form, with...); answer.Code != code {
			t.Errorf("%s: got %d %s for a form, want %d", name, answer.Code, answer.Text(), code)
		}
		a.wantSame(t, before)
	}
	refused("setting", 413, "larger than 100000 bytes", setting+1)
	refused("setting, chunked", 413, "larger than 100000 bytes", setting+1, chunked)
	a.limit(t, tenants.LimitFileSize, 50_000)
	refused("organization", 413, "larger than 50000 bytes, the limit file_size of the organization", 50_001)
	refused("organization, chunked", 413, "larger than 50000 bytes", 50_001, chunked)
	for long := 50_001; long < 50_100; long++ { // the bound lies in the last boundary of the form, or just before it
		body := newForm().file("file", "b.txt", "text/plain", "").end()
		form := newForm().file("file", "b.txt", "text/plain", filler(2, long-len(body)))
		if answer := a.postForm(t, uploadPath, form, chunked); answer.Code != 413 {
			t.Fatalf("a form of %d bytes: got %d %s, want 413", long, answer.Code, answer.Text())
		}
	}
	a.wantSame(t, before)
	a.limit(t, tenants.LimitFileBytes, 20_000)
	refused("quota", 507, "", 19_001)
	refused("quota, chunked", 507, "", 19_001, chunked)
	// Nobody reads the bytes of a file for which there is no room.
	conn := fixture.Dial(t, a.App.Addr())
	fixture.Send(t, conn, fmt.Sprintf("POST %s HTTP/1.1\r\nHost: %s\r\nX-Service-Token: %s\r\nContent-Length: 30000\r\nExpect: 100-continue\r\n\r\n", path, a.Host, a.key))
	resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err == nil {
		defer resp.Body.Close()
	}
	if err != nil || resp.StatusCode != http.StatusInsufficientStorage {
		t.Errorf("got %v, %v, want 507 before a byte", resp, err)
	}
	a.upload(t, "b.txt", "text/plain", filler(2, 19_000))
	if _, err := control.Call[control.Organization](t.Context(), a.Commands, "org.update", control.OrganizationChange{
		Slug: a.Slug, OrganizationFields: control.OrganizationFields{Limits: map[string]int64{tenants.LimitFileBytes: 0, tenants.LimitFileSize: 0}},
	}); err != nil {
		t.Fatal(err)
	}
	a.upload(t, "c.txt", "text/plain", filler(3, setting))
}

// TestUpload_Once: equal bytes are kept once in an organization, under a name that another organization cannot know.
func TestUpload_Once(t *testing.T) {
	t.Parallel()
	a := open(t)
	other := &archive{Org: a.Gateway.Org(t, "globex", tenants.FeatureTeams)}
	other.key = other.Key(t, tenants.ManageFiles)
	text := filler(3, 5000)
	one, two := a.upload(t, "1.txt", "text/plain", text), a.upload(t, "2.bin", "application/zip", text)
	form := newForm().file("file", "3", "", text).file("file", "4", "", text+"!").file("file", "5", "", text+"!")
	filesOf(t, a.postForm(t, uploadPath, form))
	if s := a.state(t); s.Different != 2 || s.Stored != 10_001 || len(s.Objects) != 2 || s.Records != 5 {
		t.Errorf("got %+v, want two contents of five files", s)
	}
	same := func(f file) string { return path.Base(strings.SplitN(f.URL, "?", 2)[0]) }
	theirs := other.upload(t, "1.txt", "text/plain", text)
	if same(one) != same(two) || same(one) == same(theirs) || strings.Contains(one.URL, one.Checksum[:16]) {
		t.Errorf("got the addresses %s, %s and %s, want a name of the bytes that is the organization's own", one.URL, two.URL, theirs.URL)
	}
	counts := fixture.Concurrently(8, func(i int) int {
		return a.post(t, fmt.Sprint(uploadPath, "?filename=", i), "text/plain", "at once").Code
	})
	if s := a.state(t); counts[200] != 8 || s.Different != 3 || s.Records != 13 {
		t.Errorf("got %v and %+v, want eight files with one content", counts, s)
	}
}

// TestUpload_Keys: only keys that may write files store any.
func TestUpload_Keys(t *testing.T) {
	t.Parallel()
	a := open(t)
	f := a.upload(t, "first.txt", "text/plain", "first")
	before := a.state(t)
	for _, tt := range []struct {
		name   string
		change func(*control.NewKey)
	}{
		{"read only", func(k *control.NewKey) {
			k.Kind, k.Permissions = string(tenants.ServerRead), []string{string(tenants.ManageFiles)}
		}},
		{"browser", func(k *control.NewKey) { k.Kind, k.Origins = string(tenants.Browser), []string{"https://example.com"} }},
		{"without the permission", func(k *control.NewKey) { k.Permissions = []string{string(tenants.Contacts)} }},
	} {
		key := a.KeyWith(t, tt.change).Token
		for _, path := range []string{uploadPath + "?filename=a", "/api/files/" + f.ID + "/content", "/api/files/tus"} {
			answer := a.Do(t, http.MethodPost, path, gatewaytest.WithKey(key), gatewaytest.Body("text/plain", "x"))
			if answer.Code != http.StatusForbidden && answer.Code != http.StatusUnauthorized {
				t.Errorf("%s, %s: got %d %s, want a refusal", tt.name, path, answer.Code, answer.Text())
			}
		}
	}
	if answer := a.Do(t, http.MethodPost, uploadPath+"?filename=a", gatewaytest.Body("text/plain", "x")); answer.Code != http.StatusForbidden {
		t.Errorf("got %d %s without a key, want 403", answer.Code, answer.Text())
	}
	a.wantSame(t, before)
}

// TestUpload_Teams: callers with teams store files for their own, and see no others.
func TestUpload_Teams(t *testing.T) {
	t.Parallel()
	a := open(t)
	ours, theirs := *a, *a
	ours.key, theirs.key = a.limitedKey(t, north), a.limitedKey(t, south)
	f := ours.upload(t, "ours.txt", "text/plain", "ours", "teams[]="+north)
	if answer := theirs.Get(t, theirs.key, "/api/files/"+f.ID); answer.Status == "ok" {
		t.Errorf("got %s, want the file hidden from another team", answer.Text())
	}
	for _, path := range []string{"/api/files/" + f.ID + "/versions"} {
		if answer := theirs.Get(t, theirs.key, path); answer.Code != http.StatusNotFound {
			t.Errorf("%s: got %d %s, want 404", path, answer.Code, answer.Text())
		}
	}
	if answer := theirs.post(t, "/api/files/"+f.ID+"/content", "text/plain", "mine"); answer.Code != http.StatusNotFound {
		t.Errorf("got %d %s, want 404", answer.Code, answer.Text())
	}
	a.wantBytes(t, a.read(t, f.ID).URL, "ours")
}
