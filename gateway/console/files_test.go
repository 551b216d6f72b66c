package console_test

import (
	"bytes"
	"html"
	"image"
	"image/color"
	"image/draw"
	"image/png"
	"mime/multipart"
	"net/http"
	"net/textproto"
	"regexp"
	"strings"
	"testing"

	"tenantry/gateway/control"
	"tenantry/gateway/gatewaytest"
)

// The folder Catalogue of the demo, and Spring in it.
const (
	catalogue = "/files/folders/66f000000000000000000001"
	spring    = "/files/folders/66f000000000000000000002"
)

// sentFile is a file of a form.
type sentFile struct{ name, media, content string }

// uploads sends a form with files as browsers do: the fields before the files.
func (p person) uploads(action string, fields map[string]string, files ...sentFile) *gatewaytest.Answer {
	p.t.Helper()
	var b bytes.Buffer
	w := multipart.NewWriter(&b)
	for name, value := range fields {
		if err := w.WriteField(name, value); err != nil {
			p.t.Fatal(err)
		}
	}
	for _, f := range files {
		part, err := w.CreatePart(textproto.MIMEHeader{
			"Content-Disposition": {multipart.FileContentDisposition("file", f.name)}, "Content-Type": {f.media},
		})
		if err != nil {
			p.t.Fatal(err)
		}
		_, _ = part.Write([]byte(f.content)) // to memory
	}
	if err := w.Close(); err != nil {
		p.t.Fatal(err)
	}
	return p.o.Do(p.t, http.MethodPost, action, gatewaytest.Cookie(p.cookie), gatewaytest.Header("Origin", "http://"+p.o.Host),
		gatewaytest.Body(w.FormDataContentType(), b.String()))
}

// fileNamed returns the record of the file with that name.
func (p person) fileNamed(name string) map[string]any {
	p.t.Helper()
	found := p.api(http.MethodGet, "/api/files?filters[filename]="+strings.ReplaceAll(name, " ", "+"), nil).Field("results").([]any)
	if len(found) != 1 {
		p.t.Fatalf("%d files are named %s", len(found), name)
	}
	return found[0].(map[string]any)
}

// picturePNG returns a picture.
func picturePNG(t *testing.T) string {
	t.Helper()
	var b bytes.Buffer
	blue := image.NewRGBA(image.Rect(0, 0, 300, 200))
	draw.Draw(blue, blue.Bounds(), image.NewUniform(color.RGBA{30, 90, 190, 255}), image.Point{}, draw.Src)
	if err := png.Encode(&b, blue); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

// TestFilesAreUploadedOnPages uploads files with the forms of the pages, without scripts, and looks at their pages.
func TestFilesAreUploadedOnPages(t *testing.T) {
	t.Parallel()
	_, acme, cookie := rich(t, nil)
	p := person{t, acme, cookie}
	page := p.open(catalogue)
	fields := formTo(t, page, "/do/files.upload")
	sent := map[string]string{}
	for name := range fields {
		if name != "file" {
			sent[name] = fields.Get(name)
		}
	}
	picture := picturePNG(t)
	after := p.follows(p.uploads("/do/files.upload", sent,
		sentFile{"a b.png", "image/png", picture}, sentFile{"note.txt", "text/plain", "Hello."}, sentFile{"empty", "application/octet-stream", ""}))
	checkPage(t, after, 200, "Files stored.", ">a b.png<", ">note.txt<", ">empty<", `class="thumb" data-small src="`, "6 bytes", "0 bytes")
	if csp := after.Header.Get("Content-Security-Policy"); !strings.Contains(csp, "; frame-src http") || strings.Contains(csp, "frame-src 'self'") {
		t.Errorf("Content-Security-Policy: %s", csp)
	}
	if csp := p.open("/contacts").Header.Get("Content-Security-Policy"); strings.Contains(csp, "frame-src") || strings.Contains(csp, "http") {
		t.Errorf("Content-Security-Policy of a page without files: %s", csp)
	}
	path := "/files/" + p.fileNamed("a b.png")["id"].(string)
	shown := p.open(path)
	checkPage(t, shown, 200, `<h1 dir="auto">a b.png</h1>`, `<a href="`+catalogue+`" dir="auto">Catalogue</a>`, "&download=true", "<summary>Checksum</summary>", "<li>image/png</li>")
	if strings.Contains(shown.Text(), `name="url"`) || strings.Contains(shown.Text(), "Earlier versions") {
		t.Error("the page of a new file offers another address or has versions")
	}
	small := regexp.MustCompile(`<a class="shown" href="([^"]*)"><img data-small src="([^"]*)"`).FindStringSubmatch(shown.Text())
	if small == nil || small[1] == small[2] {
		t.Fatalf("the page shows no small picture: %v", small)
	}
	bytesAt := func(address string) *gatewaytest.Answer {
		return acme.Page(t, regexp.MustCompile(`^http://[^/]*`).ReplaceAllString(html.UnescapeString(address), ""))
	}
	if a := bytesAt(small[1]); a.Code != 200 || a.Text() != picture {
		t.Errorf("the picture: %d", a.Code)
	}

	replace := map[string]string{}
	for name, values := range formTo(t, shown, "/do/files.replace") {
		if name != "file" {
			replace[name] = values[0]
		}
	}
	after = p.follows(p.uploads("/do/files.replace", replace, sentFile{"c.png", "image/png", "<script>alert(1)</script>"}))
	checkPage(t, after, 200, "File replaced.", `<h1 dir="auto">c.png</h1>`, "Earlier versions", "a b.png", "Root",
		"The file is declared as image/png, but its content looks like text/html.", "This kind of file is not shown here.")
	if strings.Contains(after.Text(), "<iframe") || strings.Contains(after.Text(), "<img class=\"shown") {
		t.Error("a page shows HTML that is named as a picture")
	}
	old := regexp.MustCompile(`<a href="(http[^"]*version=[^"]*download=true)">`).FindStringSubmatch(after.Text())
	if old == nil {
		t.Fatalf("no address of the earlier version:\n%s", after.Text())
	}
	if a := bytesAt(old[1]); a.Code != 200 || a.Text() != picture || !strings.HasPrefix(a.Header.Get("Content-Disposition"), "attachment") {
		t.Errorf("the earlier version: %d %v", a.Code, a.Header)
	}
	checkPage(t, p.uploads("/do/files.replace", replace, sentFile{"d.png", "image/png", "late"}), 412, "Somebody else has changed this")
	if got := p.fileNamed("c.png")["filename"]; got != "c.png" {
		t.Errorf("a form that was outdated has renamed the file to %v", got)
	}

	checkPage(t, p.uploads("/do/files.upload", sent, sentFile{"", "application/octet-stream", ""}), 422, "hoose a file", `name="_back" value="`+catalogue+`"`)
	checkPage(t, p.uploads("/do/files.upload", map[string]string{"query.folder_id": "66f0ffffffffffffffffffff"}, sentFile{"lost.txt", "text/plain", "x"}), 422, "Folder")
	foreign := acme.Do(t, http.MethodPost, "/do/files.upload", gatewaytest.Cookie(cookie), gatewaytest.Header("Origin", "http://evil.example"),
		gatewaytest.Body("multipart/form-data; boundary=x", "--x\r\nContent-Disposition: form-data; name=\"file\"; filename=\"evil.txt\"\r\n\r\nx\r\n--x--\r\n"))
	if foreign.Code == http.StatusSeeOther || strings.Contains(p.open("/files").Text(), "evil.txt") {
		t.Errorf("a form of another site is accepted: %d", foreign.Code)
	}
	away := p.uploads("/do/files.upload", map[string]string{"_back": "https://evil.example/"}, sentFile{"away.txt", "text/plain", "x"})
	if to := away.Header.Get("Location"); !strings.HasPrefix(to, "/?") {
		t.Errorf("a form leads to %s", to)
	}
}

// TestPagesNameFiles: pages name the files that values are, and link to them.
func TestPagesNameFiles(t *testing.T) {
	t.Parallel()
	_, acme, cookie := rich(t, nil)
	p := person{t, acme, cookie}
	made := func(path, body string) string {
		t.Helper()
		a := acme.Do(t, http.MethodPost, path, gatewaytest.Cookie(cookie), gatewaytest.Body("application/json", body))
		id, _ := a.Field("id").(string)
		if a.Status != "ok" {
			t.Fatalf("%s: %d %s", path, a.Code, a.Body)
		}
		return id
	}
	first, second := "66f100000000000000000001", "66f100000000000000000002"
	name := func(id string) string {
		return acme.Do(t, http.MethodGet, "/api/files/"+id, gatewaytest.Cookie(cookie)).Field("filename").(string)
	}
	form := made("/api/form/collections", `{"name":"damage","label":"Damage","label_plural":"Damages","schema":{`+
		`"photo":{"title":"Photo","type":"File"},"papers":{"title":"Papers","type":"File","max_files":3}}}`)
	submission := made("/api/form/collections/"+form+"/submissions", `{"values":{"form_name":"One","photo":"`+first+`","papers":["`+first+`","`+second+`"]}}`)
	list := "/form/collections/" + form + "/submissions"
	for _, path := range []string{list, list + "/" + submission} {
		page := p.open(path)
		for _, id := range []string{first, second} {
			checkPage(t, page, 200, `<a href="/files/`+id+`" dir="auto">`+html.EscapeString(name(id))+`</a>`)
		}
	}
}

// TestPagesOfFilesWithoutBytes looks at pages of files whose bytes are elsewhere, and of people who may not upload.
func TestPagesOfFilesWithoutBytes(t *testing.T) {
	t.Parallel()
	_, acme, cookie := rich(t, nil)
	p := person{t, acme, cookie}
	page := p.open("/files/66f100000000000000000001")
	checkPage(t, page, 200, "The content of this file is not stored here.", `name="url"`, "/do/files.replace")
	for _, never := range []string{"download=true", "Checksum", "<iframe"} {
		if strings.Contains(page.Text(), never) {
			t.Errorf("the page has %q", never)
		}
	}
	checkPage(t, p.open("/files"), 200, `data-resumable="/api/files/tus"`, "Drop files here, or choose them", "Add a file that is stored elsewhere", `<th scope="col" class="number">Size`)
	deleted := p.open("/files?deleted=true")
	if strings.Contains(deleted.Text(), "Drop files here") {
		t.Error("the trash takes files")
	}
	checkPage(t, p.open("/files?filters[folder_id]="+spring[len("/files/folders/"):]), 200, `name="query.folder_id" value="66f000000000000000000002"`,
		`<li><a href="`+catalogue+`" dir="auto">Catalogue</a></li><li><a href="`+spring+`" dir="auto">Spring</a></li>`)
	checkPage(t, p.open("/do/files.upload"), 200, `<select id="files-upload-query-folder_id"`, `type="file" multiple required`)
	_, reader := acme.Person(t, "reader@example.com", func(n *control.NewUser) { n.Permissions = []string{"contacts"} })
	checkPage(t, person{t, acme, reader}.open("/do/files.upload"), 403, "You may not do this")
}

// TestFolderSaysWhatIsPublic checks that the page of a folder has a switch that says what it does, and what it has done.
func TestFolderSaysWhatIsPublic(t *testing.T) {
	t.Parallel()
	_, acme, cookie := rich(t, nil)
	p := person{t, acme, cookie}
	page := p.open(spring)
	checkPage(t, page, 200, `<input type="checkbox" id="folders-update-public" name="public" value="true"`, "Everybody who has the address of a file in this folder may read it", `<a href="`+catalogue+`" dir="auto">Catalogue</a></li></ol>`)
	values := formTo(t, page, "/do/folders.update")
	values.Set("public", "true")
	checkPage(t, p.follows(p.send("/do/folders.update", values)), 200, "This folder is public: everybody")
	p.follows(p.uploads("/do/files.upload", map[string]string{"query.folder_id": spring[len("/files/folders/"):]}, sentFile{"open.txt", "text/plain", "x"}))
	checkPage(t, p.open("/files/"+p.fileNamed("open.txt")["id"].(string)), 200, "Everybody who has the address of this file may read it")
}
