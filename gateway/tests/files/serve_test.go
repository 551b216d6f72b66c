package files

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"fmt"
	"image"
	"image/color"
	"image/jpeg"
	"io"
	"net"
	"net/http"
	"net/url"
	"path"
	"strings"
	"testing"
	"time"

	"tenantry/config"
	"tenantry/gateway"
	"tenantry/gateway/control"
	"tenantry/gateway/gatewaytest"
	"tenantry/gateway/tests/fixture"
	"tenantry/operation"
	"tenantry/tenants"
)

// hashOf returns the name of the bytes in an address.
func hashOf(address string) string {
	before, _, _ := strings.Cut(address, "?")
	return path.Base(before)
}

// with returns an address with another parameter; an empty value removes it.
func with(t *testing.T, address, name, value string) string {
	t.Helper()
	at, err := url.Parse(address)
	if err != nil {
		t.Fatal(err)
	}
	q := at.Query()
	if q.Del(name); value != "" {
		q.Set(name, value)
	}
	at.RawQuery = q.Encode()
	return at.String()
}

// param returns a parameter of an address.
func param(t *testing.T, address, name string) string {
	t.Helper()
	at, err := url.Parse(address)
	if err != nil {
		t.Fatal(err)
	}
	return at.Query().Get(name)
}

// bare returns an address without its signature.
func bare(t *testing.T, address string) string {
	t.Helper()
	return with(t, with(t, address, "until", ""), "key", "")
}

// TestFetch reads a file whole, in parts and under conditions.
func TestFetch(t *testing.T) {
	t.Parallel()
	a := open(t)
	text := filler(1, 3<<20)
	f := a.upload(t, "a.bin", "application/octet-stream", text)
	whole := a.fetch(t, f.URL)
	tag := whole.Header.Get("Etag")
	for name, want := range map[string]string{
		"Etag": `"` + hashOf(f.URL) + `"`, "Repr-Digest": digest(text), "Content-Length": fmt.Sprint(len(text)), "X-Content-Type-Options": "nosniff",
		"Referrer-Policy": "no-referrer", "Accept-Ranges": "bytes", "Content-Disposition": `attachment; filename="a.bin"`,
	} {
		if got := whole.Header.Get(name); got != want {
			t.Errorf("got %s: %s, want %s", name, got, want)
		}
	}
	if cache := whole.Header.Get("Cache-Control"); !strings.HasPrefix(cache, "private, max-age=") || strings.Contains(cache, "no-") {
		t.Errorf("got Cache-Control: %s, want it private until the address ends", cache)
	}
	for _, tt := range []struct {
		method  string
		headers []string
		code    int
		body    string
	}{
		{http.MethodGet, nil, 200, text},
		{http.MethodHead, nil, 200, ""},
		{http.MethodGet, []string{"Range", "bytes=5-9"}, 206, text[5:10]},
		{http.MethodGet, []string{"Range", "bytes=-3"}, 206, text[len(text)-3:]},
		{http.MethodGet, []string{"Range", "bytes=2000000-"}, 206, text[2000000:]},
		{http.MethodGet, []string{"If-None-Match", tag}, 304, ""},
		{http.MethodGet, []string{"If-None-Match", `"other"`}, 200, text},
		{http.MethodGet, []string{"If-Modified-Since", whole.Header.Get("Last-Modified")}, 304, ""},
		{http.MethodGet, []string{"If-Range", tag, "Range", "bytes=0-0"}, 206, text[:1]},
		{http.MethodGet, []string{"If-Range", `"other"`, "Range", "bytes=0-0"}, 200, text},
	} {
		got := a.fetchBy(t, tt.method, f.URL, tt.headers...)
		if got.Code != tt.code || got.Text() != tt.body {
			t.Errorf("%s %v: got %d with %d bytes, want %d with %d", tt.method, tt.headers, got.Code, len(got.Body), tt.code, len(tt.body))
		}
	}
	if got := a.fetch(t, f.URL, "Range", "bytes=9999999-"); got.Code != http.StatusRequestedRangeNotSatisfiable {
		t.Errorf("got %d, want 416", got.Code)
	}
	if got := a.fetch(t, f.URL+"&download=true"); !strings.HasPrefix(got.Header.Get("Content-Disposition"), "attachment") {
		t.Errorf("got %v, want a download", got.Header)
	}
}

// TestFetch_Address: an address is valid for one file, one content and its teams, in one organization, for a time.
func TestFetch_Address(t *testing.T) {
	t.Parallel()
	a := open(t)
	other := *a
	other.Org = a.Gateway.Org(t, "globex", tenants.FeatureTeams)
	other.key = other.Org.Key(t, tenants.ManageFiles)
	f, g := a.upload(t, "f.txt", "text/plain", "f"), a.upload(t, "g.txt", "text/plain", "f")
	theirs := other.upload(t, "f.txt", "text/plain", "f")
	key := param(t, f.URL, "key")
	at := func(o *archive, address string) int {
		t.Helper()
		to, err := url.Parse(address)
		if err != nil {
			t.Fatal(err)
		}
		return o.Do(t, http.MethodGet, to.RequestURI()).Code
	}
	later := fmt.Sprint(a.clock.Now().Add(100 * time.Hour).Unix())
	for name, tt := range map[string]struct {
		in      *archive
		address string
		code    int
	}{
		"right":                          {a, f.URL, 200},
		"no signature":                   {a, bare(t, f.URL), 403},
		"no time":                        {a, with(t, f.URL, "until", ""), 403},
		"later time":                     {a, with(t, f.URL, "until", later), 403},
		"no number":                      {a, with(t, f.URL, "until", "x"), 403},
		"other signature":                {a, with(t, f.URL, "key", fixture.FlipCharacter(key, 3)), 403},
		"other file with the same bytes": {a, with(t, f.URL, "file", g.PID), 403},
		"no file":                        {a, with(t, f.URL, "file", ""), 403},
		"unknown file":                   {a, with(t, f.URL, "file", "unknown"), 403},
		"unknown version":                {a, with(t, f.URL, "version", fixture.DocID(1)), 403},
		"other bytes":                    {a, strings.Replace(f.URL, hashOf(f.URL), hashOf(theirs.URL), 1), 403},
		"other organization":             {&other, f.URL, 403},
		"its own there":                  {&other, theirs.URL, 200},
		"signature of another one":       {&other, with(t, theirs.URL, "key", key), 403},
	} {
		if code := at(tt.in, tt.address); code != tt.code {
			t.Errorf("%s: got %d, want %d", name, code, tt.code)
		}
	}
	a.call(t, http.MethodPut, "/api/files/"+f.ID, `{"teams":["`+north+`"]}`)
	a.wantCode(t, f.URL, 403)
	now := a.read(t, f.ID).URL
	a.wantBytes(t, now, "f")
	a.clock.Advance(59 * time.Minute)
	a.wantBytes(t, now, "f")
	a.clock.Advance(62 * time.Minute)
	a.wantCode(t, now, 403)
	a.wantBytes(t, a.read(t, f.ID).URL, "f")
}

// TestFetch_Trash: a deleted file cannot be read until it is restored, and purged bytes are gone unless another file or
// version has them.
func TestFetch_Trash(t *testing.T) {
	t.Parallel()
	a := open(t)
	f, same := a.upload(t, "f.txt", "text/plain", "one"), a.upload(t, "same.txt", "text/plain", "one")
	versioned := a.upload(t, "versioned.txt", "text/plain", "two")
	alone := a.upload(t, "alone.txt", "text/plain", "two")
	replaced := decode[file](t, a.post(t, "/api/files/"+versioned.ID+"/content", "text/plain", "three"))
	purge := func(f file) {
		t.Helper()
		a.call(t, http.MethodDelete, "/api/files/"+f.ID, "")
		a.wantCode(t, f.URL, 404)
		a.call(t, http.MethodDelete, "/api/files/"+f.ID+"/purge", "")
		a.wantCode(t, f.URL, 404)
	}
	a.call(t, http.MethodDelete, "/api/files/"+f.ID, "")
	a.wantCode(t, f.URL, 404)
	a.wantCode(t, bare(t, f.URL), 403)
	a.call(t, http.MethodPost, "/api/files/"+f.ID+"/restore", "")
	a.wantBytes(t, f.URL, "one")
	purge(f)
	a.wantBytes(t, same.URL, "one")
	purge(alone) // its bytes are those of a version
	if s := a.state(t); s.Different != 3 || len(s.Objects) != 3 {
		t.Errorf("got %+v, want three contents", s)
	}
	purge(same)
	purge(replaced)
	if s := a.state(t); s.Different != 0 || s.Stored != 0 || len(s.Objects) != 0 {
		t.Errorf("got %+v, want nothing left", s)
	}
	if again := a.upload(t, "again.txt", "text/plain", "one"); again.Size == nil {
		t.Errorf("got %+v, want it stored again", again)
	}
}

// TestFetch_FolderPurged: the bytes of files that are purged with their folder, or expire, go with the next sweep.
func TestFetch_FolderPurged(t *testing.T) {
	t.Parallel()
	a := open(t)
	folder := a.folder(t, `{"name":"Plans"}`)
	inside := a.upload(t, "in.txt", "text/plain", "inside", "folder_id="+folder)
	a.post(t, "/api/files/"+inside.ID+"/content", "text/plain", "inside again")
	expired := a.upload(t, "out.txt", "text/plain", "outside")
	a.call(t, http.MethodDelete, "/api/files/"+expired.ID, "")
	a.call(t, http.MethodDelete, "/api/files/folders/"+folder+"?contents=true", "")
	a.wantCode(t, inside.URL, 404)
	a.clock.Advance(32 * fixture.Day)
	fixture.EmptyTrash(t, a.App)
	a.clock.Advance(2 * fixture.Day)
	fixture.EmptyTrash(t, a.App)
	if s := a.state(t); s.Different != 0 || len(s.Objects) != 0 {
		t.Errorf("got %+v, want nothing left", s)
	}
}

// TestFetch_Public: everybody reads the files in public folders, and those of an organization with that setting, unless
// they have teams.
func TestFetch_Public(t *testing.T) {
	t.Parallel()
	a := open(t)
	public, private := a.folder(t, `{"name":"Public","public":true}`), a.folder(t, `{"name":"Private"}`)
	below := a.folder(t, `{"name":"Below","folder_id":"`+public+`"}`)
	teams := a.folder(t, `{"name":"Teams","public":true,"teams":["`+north+`"]}`)
	in := func(folder string, more ...string) file {
		t.Helper()
		if folder != "" {
			more = append(more, "folder_id="+folder)
		}
		return a.upload(t, "a.txt", "text/plain", "text", more...)
	}
	open, closed := in(public), in(private)
	check := func(what string, f file, public bool) {
		t.Helper()
		now := a.read(t, f.ID).URL
		if got := param(t, now, "key") == ""; got != public {
			t.Errorf("%s: got the address %s, want it public: %t", what, now, public)
		}
		a.wantBytes(t, now, "text")
		if code := a.fetch(t, bare(t, now)).Code; code != map[bool]int{true: 200, false: 403}[public] {
			t.Errorf("%s: got %d without a signature, want it public: %t", what, code, public)
		}
	}
	check("in a public folder", open, true)
	check("in a private folder", closed, false)
	check("in no folder", in(""), false)
	check("in a folder in a public one", in(below), false)
	check("in a public folder, with teams", in(public, "teams[]="+north), false)
	check("in a public folder with teams", in(teams), false)
	if got := a.fetch(t, open.URL); got.Header.Get("Cache-Control") != "public, max-age=3600, immutable" {
		t.Errorf("got %v, want caches to keep it for an hour", got.Header)
	}
	a.call(t, http.MethodPut, "/api/files/"+open.ID, `{"folder_id":"`+private+`"}`)
	a.call(t, http.MethodPut, "/api/files/"+closed.ID, `{"folder_id":"`+public+`"}`)
	check("moved into a private folder", open, false)
	check("moved into a public folder", closed, true)
	a.call(t, http.MethodPut, "/api/files/folders/"+public, `{"public":false}`)
	check("the folder is private now", closed, false)
	a.call(t, http.MethodPut, "/api/files/folders/"+public, `{"public":true}`)
	check("the folder is public again", closed, true)
	a.call(t, http.MethodDelete, "/api/files/"+closed.ID, "")
	if code := a.fetch(t, bare(t, closed.URL)).Code; code != 403 && code != 404 {
		t.Errorf("got %d for a deleted file, want a refusal", code)
	}
	a.set(t, control.OrganizationFields{Settings: map[string]bool{tenants.SettingPublicFiles: true}})
	check("by the setting", open, true)
	check("by the setting, with teams", in("", "teams[]="+north), false)
	check("by the setting, in a folder with teams", in(teams), false)
	check("by the setting, in another folder", in(private), true)
	a.set(t, control.OrganizationFields{Settings: map[string]bool{tenants.SettingPublicFiles: false}})
	check("without the setting", open, false)
}

const gps = "48.1372N 11.5755E"

// photo returns a JPEG with an Exif segment.
func photo(t *testing.T) string {
	t.Helper()
	img := image.NewRGBA(image.Rect(0, 0, 800, 600))
	for x := range 800 {
		for y := range 600 {
			img.Set(x, y, color.RGBA{uint8(x), uint8(y), uint8(x * y), 255})
		}
	}
	var b bytes.Buffer
	if err := jpeg.Encode(&b, img, nil); err != nil {
		t.Fatal(err)
	}
	exif := "Exif\x00\x00MM\x00*\x00\x00\x00\x08\x00\x00" + "\x00\x00\x00\x00" + gps
	segment := "\xff\xe1" + string(binary.BigEndian.AppendUint16(nil, uint16(len(exif)+2))) + exif
	return b.String()[:2] + segment + b.String()[2:]
}

// TestFetch_Pictures: the public gets pictures without their metadata, and small ones.
func TestFetch_Pictures(t *testing.T) {
	t.Parallel()
	a := open(t)
	public := a.folder(t, `{"name":"Public","public":true}`)
	picture := photo(t)
	f := a.upload(t, "a.jpg", "image/jpeg", picture)
	shown := a.upload(t, "b.jpg", "image/jpeg", picture, "folder_id="+public)
	a.wantBytes(t, f.URL, picture)
	got := a.fetch(t, shown.URL)
	if _, err := jpeg.Decode(bytes.NewReader(got.Body)); err != nil || got.Code != 200 || strings.Contains(got.Text(), gps) {
		t.Errorf("got %d with %d bytes, %v, want a picture without its place", got.Code, len(got.Body), err)
	}
	if tag := got.Header.Get("Etag"); tag == a.fetch(t, f.URL).Header.Get("Etag") || tag == "" || got.Header.Get("Repr-Digest") != "" {
		t.Errorf("got %v, want another tag and no digest of the whole", got.Header)
	}
	if part := a.fetch(t, shown.URL, "Range", "bytes=1-500"); part.Text() != got.Text()[1:501] {
		t.Errorf("got %d bytes, want a part of the same", len(part.Body))
	}
	if tail := a.fetch(t, shown.URL, "Range", "bytes=-20"); tail.Text() != got.Text()[len(got.Body)-20:] {
		t.Errorf("got %q, want the end of the same", tail.Text())
	}
	for _, of := range []file{f, shown} {
		small := a.fetch(t, of.Thumbnail)
		config, err := jpeg.DecodeConfig(bytes.NewReader(small.Body))
		if err != nil || config.Width > 400 || config.Width < 100 || strings.Contains(small.Text(), gps) {
			t.Errorf("got %d %v, %v, want a small picture", small.Code, config, err)
		}
		if small.Header.Get("Etag") == got.Header.Get("Etag") {
			t.Error("want another tag for the small picture")
		}
	}
	a.wantCode(t, with(t, with(t, f.Thumbnail, "key", ""), "until", ""), 403)
	text := a.upload(t, "a.txt", "text/plain", "none")
	if text.Thumbnail != "" {
		t.Errorf("got %s, want no small picture of a text", text.Thumbnail)
	}
	a.wantCode(t, text.URL+"&thumbnail=true", 404)
	hidden := a.upload(t, "hidden.jpg", "image/jpeg", picture[:len(picture)-2], "folder_id="+public)
	a.wantCode(t, bare(t, hidden.URL), 403) // where its metadata ends cannot be known
	a.wantBytes(t, hidden.URL, picture[:len(picture)-2])
	broken := a.upload(t, "broken.jpg", "image/jpeg", picture[:300])
	if got := a.fetch(t, broken.URL+"&thumbnail=true"); got.Code != 404 {
		t.Errorf("got %d %s, want 404 for what is no picture", got.Code, got.Text())
	}
	a.state(t)
}

// TestFetch_Types: no browser runs what strangers have uploaded, whatever it is called and declared.
func TestFetch_Types(t *testing.T) {
	t.Parallel()
	a := open(t)
	const html, svg, pdf = "<!doctype html><script>alert(1)</script>", `<svg xmlns="http://www.w3.org/2000/svg" onload="alert(1)"/>`, "%PDF-1.7\n"
	const gif = "GIF89a/*\x01\x00\x00\x00*/=1;alert(1)"
	for _, tt := range []struct {
		name, media, body string
		inline            bool
		served            string
	}{
		{"page.html", "text/html", html, false, "text/html"},
		{"picture.png", "image/png", html, false, "image/png"},
		{"plain.txt", "text/plain", html, false, "text/plain"},
		{"picture.svg", "image/svg+xml", svg, false, "image/svg+xml"},
		{"x.xhtml", "application/xhtml+xml", html, false, "application/xhtml+xml"},
		{"script.js", "text/javascript", gif, false, "application/octet-stream"},
		{"both.gif", "image/gif", gif, true, "image/gif"},
		{"a.pdf", "application/pdf", pdf, true, "application/pdf"},
		{"not.pdf", "application/pdf", html, false, "application/pdf"},
		{"a.txt", "text/plain", "Straße", true, "text/plain; charset=utf-8"},
		{"a.bin", "multipart/form-data", "x", false, "application/octet-stream"},
	} {
		h := a.fetch(t, a.upload(t, tt.name, "", tt.body, "mimetype="+url.QueryEscape(tt.media)).URL).Header
		policy := h.Get("Content-Security-Policy")
		if inline := strings.HasPrefix(h.Get("Content-Disposition"), "inline"); inline != tt.inline || h.Get("Content-Type") != tt.served ||
			h.Get("X-Content-Type-Options") != "nosniff" || !strings.HasPrefix(policy, "default-src 'none'") ||
			strings.HasSuffix(policy, "; sandbox") == (tt.served == "application/pdf" && tt.inline) || strings.Contains(policy, "script-src") {
			t.Errorf("%s as %s: got %v, want inline: %t and %s", tt.name, tt.media, h, tt.inline, tt.served)
		}
	}
	for name, want := range map[string]string{
		`a"b.txt`: `inline; filename="a_b.txt"`, `../../etc/passwd`: `inline; filename="___.._etc_passwd"`, "a;b=c.txt": `inline; filename="a;b=c.txt"`,
		"Straße.txt": `inline; filename="Stra_e.txt"; filename*=UTF-8''Stra%C3%9Fe.txt`, "con.txt": `inline; filename="_con.txt"`,
		"%41.txt": `inline; filename="_41.txt"; filename*=UTF-8''%2541.txt`, "invoice\u202efdp.exe": `inline; filename="invoice_fdp.exe"`,
	} {
		got := a.fetch(t, a.upload(t, name, "text/plain", "x").URL).Header.Values("Content-Disposition")
		if len(got) != 1 || got[0] != want {
			t.Errorf("%q: got %q, want %q", name, got, want)
		}
	}
}

// TestFetch_FileHost: with the setting file_host, files are served there, and nothing else is.
func TestFetch_FileHost(t *testing.T) {
	t.Parallel()
	a := open(t, func(c *config.Config, _ *gateway.Options) {
		c.FileHost, c.TrustedProxies = "https://files.example.org/of", []string{"127.0.0.1"}
	})
	f := a.upload(t, "a.txt", "text/plain", "text")
	at, err := url.Parse(f.URL)
	if err != nil || at.Host != "files.example.org" || at.Path != "/of/acme/"+hashOf(f.URL) {
		t.Fatalf("got the address %s, %v, want one at the file host", f.URL, err)
	}
	here := operation.ContentPath + "content/" + hashOf(f.URL) + "?" + at.RawQuery
	for name, tt := range map[string]struct {
		host, path string
		with       []string
		code       int
	}{
		"file":                          {at.Host, at.RequestURI(), nil, 200},
		"through a proxy":               {"gateway", at.RequestURI(), []string{"X-Forwarded-Host", at.Host}, 200},
		"upper case":                    {"FILES.example.org", at.RequestURI(), nil, 200},
		"no signature":                  {at.Host, at.Path, nil, 403},
		"other organization":            {at.Host, strings.Replace(at.RequestURI(), "acme", "globex", 1), nil, 403},
		"no base":                       {at.Host, strings.TrimPrefix(at.RequestURI(), "/of"), nil, 404},
		"deeper":                        {at.Host, "/of/acme/x/y", nil, 404},
		"page":                          {at.Host, "/", nil, 404},
		"sign-in":                       {at.Host, "/sign-in", nil, 404},
		"API":                           {at.Host, "/api/files/" + f.ID, nil, 404},
		"API by way of the proxy":       {a.Host, "/api/files/" + f.ID, []string{"X-Forwarded-Host", at.Host}, 404},
		"address of the organization":   {at.Host, here, nil, 404},
		"dots":                          {at.Host, "/of/acme/../../api/files", nil, 404},
		"escaped":                       {at.Host, "/of/acme/%2e%2e%2fapi", nil, 404},
		"host in the organization":      {at.Host, "/of/x@acme/" + hashOf(f.URL), nil, 403},
		"same file at the organization": {a.Host, here, nil, 200},
	} {
		got := a.Gateway.Page(t, http.MethodGet, tt.host, tt.path, append(pairs(tt.with), gatewaytest.WithKey(a.key))...)
		if got.Code != tt.code {
			t.Errorf("%s: got %d %.200s, want %d", name, got.Code, got.Body, tt.code)
		}
	}
	if got := a.Gateway.Page(t, http.MethodPost, at.Host, at.RequestURI()); got.Code != http.StatusMethodNotAllowed {
		t.Errorf("got %d, want 405", got.Code)
	}
	if got := a.Gateway.Page(t, http.MethodHead, at.Host, at.RequestURI()); got.Code != 200 || len(got.Header.Values("Set-Cookie")) > 0 {
		t.Errorf("got %d %v, want 200 without cookies", got.Code, got.Header)
	}
	again := decode[file](t, fixture.PostJSON(t, a.Org, a.key, "/api/files", `{"filename":"b","mimetype":"text/plain","url":"`+f.URL+`"}`))
	if again.Checksum != f.Checksum {
		t.Errorf("got %+v, want the same bytes", again)
	}
}

// TestFetch_UnderWay: a download ends soon after its reader has lost the right to the file.
func TestFetch_UnderWay(t *testing.T) {
	t.Parallel()
	a := open(t)
	public := a.folder(t, `{"name":"Public","public":true}`)
	text := filler(1, 24<<20)
	for name, tt := range map[string]struct{ query, method, path, body string }{
		"deleted":      {"", http.MethodDelete, "/api/files/ID", ""},
		"other teams":  {"", http.MethodPut, "/api/files/ID", `{"teams":["` + north + `"]}`},
		"made private": {"folder_id=" + public, http.MethodPut, "/api/files/folders/" + public, `{"public":false}`},
	} {
		f := a.upload(t, "a.bin", "application/octet-stream", text, tt.query)
		at, err := url.Parse(f.URL)
		if err != nil {
			t.Fatal(err)
		}
		conn := fixture.Dial(t, a.App.Addr())
		if tcp, is := conn.(*net.TCPConn); is {
			_ = tcp.SetReadBuffer(64 << 10) // a larger one only makes the test longer
		}
		fixture.Send(t, conn, fmt.Sprintf("GET %s HTTP/1.1\r\nHost: %s\r\n\r\n", at.RequestURI(), a.Host))
		resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
		if err != nil || resp.StatusCode != http.StatusOK {
			t.Fatalf("%s: got %v, %v, want 200", name, resp, err)
		}
		a.call(t, tt.method, strings.Replace(tt.path, "ID", f.ID, 1), tt.body)
		time.Sleep(time.Second) // a right that was confirmed half a second ago still counts
		if n, err := io.Copy(io.Discard, resp.Body); err == nil || n == int64(len(text)) {
			t.Errorf("%s: got all %d bytes, %v, want the download cut off", name, n, err)
		}
		_ = resp.Body.Close()
	}
}

// TestURL: writing the address of a file gives a record the same bytes, if the caller can see a file that has them.
func TestURL(t *testing.T) {
	t.Parallel()
	a := open(t)
	limited := *a
	limited.key = a.limitedKey(t, north)
	f := a.upload(t, "a.txt", "text/plain", "text")
	hidden := a.upload(t, "b.txt", "text/plain", "secret", "teams[]="+south)
	create := func(o *archive, address string) *gatewaytest.Answer {
		t.Helper()
		return fixture.PostJSON(t, o.Org, o.key, "/api/files", `{"filename":"c.txt","mimetype":"text/plain","url":"`+address+`"}`)
	}
	for name, address := range map[string]string{
		"whole": f.URL, "without the signature": bare(t, f.URL), "with another one": with(t, f.URL, "key", "x"), "hash": hashOf(f.URL),
	} {
		got := decode[file](t, create(a, address))
		if got.Checksum != f.Checksum || hashOf(got.URL) != hashOf(f.URL) {
			t.Errorf("%s: got %+v, want the bytes of %+v", name, got, f)
		}
		a.wantBytes(t, got.URL, "text")
	}
	for _, foreign := range []string{
		"https://example.com/" + hashOf(f.URL), strings.Replace(f.URL, "acme", "globex", 1), "../" + hashOf(f.URL), f.URL[:strings.Index(f.URL, hashOf(f.URL))] + "../x",
	} {
		fixture.WantFaults(t, create(a, foreign), http.StatusUnprocessableEntity, "url format")
	}
	elsewhere := decode[file](t, create(a, "9f86d081884c7d65"))
	if elsewhere.Size != nil || elsewhere.Checksum != "" || strings.Contains(elsewhere.URL, "?") || hashOf(elsewhere.URL) != "9f86d081884c7d65" {
		t.Errorf("got %+v, want an address without bytes", elsewhere)
	}
	a.wantCode(t, elsewhere.URL, 403)
	if got := decode[file](t, create(&limited, hidden.URL)); got.Checksum != "" || got.Size != nil {
		t.Errorf("got %+v, want none of the bytes of another team", got)
	} else {
		a.wantCode(t, got.URL, 403)
	}
	later := a.upload(t, "later.txt", "text/plain", "secret")
	a.call(t, http.MethodDelete, "/api/files/"+hidden.ID, "")
	if got := decode[file](t, create(a, later.URL)); got.Checksum != later.Checksum {
		t.Errorf("got %+v, want the bytes, though an older file has the same address without them", got)
	}
	before := a.read(t, f.ID)
	a.call(t, http.MethodPut, "/api/files/"+f.ID, `{"url":"`+f.URL+`","type":"same"}`)
	if after := a.read(t, f.ID); after.Checksum != before.Checksum || after.URL != before.URL {
		t.Errorf("got %+v, want the bytes as before", after)
	}
	a.state(t)
}

// TestFetch_Modified: an answer tells when its file changed, and not since when others have the same bytes.
func TestFetch_Modified(t *testing.T) {
	t.Parallel()
	a := open(t)
	modified := func() string {
		t.Helper()
		return a.fetch(t, a.upload(t, "a.txt", "text/plain", "the same").URL).Header.Get("Last-Modified")
	}
	first := modified()
	a.clock.Advance(time.Minute)
	if second := modified(); first == "" || second == first {
		t.Errorf("got %s and %s, want the time of each file", first, second)
	}
}

// TestAudit_Contents: the audit log tells how much a deletion of a folder removed, and whether for good.
func TestAudit_Contents(t *testing.T) {
	t.Parallel()
	a := open(t)
	reader := a.Key(t, tenants.ViewAudit)
	for query, want := range map[string][]any{"contents=true": {"3", nil}, "contents=true&purge=true": {"3", "true"}} {
		folder := a.folder(t, `{"name":"Many"}`)
		for _, in := range []string{folder, a.folder(t, `{"name":"Below","folder_id":"`+folder+`"}`)} {
			a.upload(t, "a.txt", "text/plain", "text", "folder_id="+in)
		}
		a.call(t, http.MethodDelete, "/api/files/folders/"+folder+"?"+query, "")
		found := a.Get(t, reader, "/api/audit?filters[operation]=folders.delete&sort=-created_at&per_page=1").Field("results").([]any)
		facts := found[0].(map[string]any)["facts"].(map[string]any)
		if facts["contents"] != want[0] || facts["purge"] != want[1] {
			t.Errorf("%s: got %v, want contents and purge %v", query, facts, want)
		}
	}
}
