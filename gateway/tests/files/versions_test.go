package files

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"tenantry/config"
	"tenantry/gateway"
	"tenantry/gateway/gatewaytest"
	"tenantry/gateway/tests/fixture"
	"tenantry/tenants"
)

type version struct {
	ID       string `json:"id"`
	URL      string `json:"url"`
	Filename string `json:"filename"`
	Mimetype string `json:"mimetype"`
	Size     int64  `json:"size"`
	Checksum string `json:"checksum"`
}

// versions returns the earlier contents of a file.
func (a *archive) versions(t *testing.T, id string) []version {
	t.Helper()
	out := decode[struct {
		Count   int
		Results []version
	}](t, a.Get(t, a.key, "/api/files/"+id+"/versions"))
	if out.Count != len(out.Results) {
		t.Errorf("got the count %d of %d versions", out.Count, len(out.Results))
	}
	return out.Results
}

// replace gives a file other bytes.
func (a *archive) replace(t *testing.T, id, query, media, body string) file {
	t.Helper()
	return decode[file](t, a.post(t, "/api/files/"+id+"/content"+query, media, body))
}

// TestReplace keeps what a file had before, and ends its address.
func TestReplace(t *testing.T) {
	t.Parallel()
	a := open(t)
	f := a.upload(t, "a.md", "text/markdown", "one", "teams[]="+north)
	second := a.replace(t, f.ID, "", "", "two")
	if second.ID != f.ID || second.PID != f.PID || second.Filename != "a.md" || second.Mimetype != "text/markdown" || second.Checksum != sumOf("two") || len(second.Teams) != 1 {
		t.Errorf("got %+v, want the same record with other bytes", second)
	}
	a.wantCode(t, f.URL, 404)
	a.wantBytes(t, second.URL, "two")
	third := a.replace(t, f.ID, "?filename=b.txt", "text/plain", "three")
	if third.Filename != "b.txt" || third.Mimetype != "text/plain" {
		t.Errorf("got %+v, want the name and type that were sent", third)
	}
	form := newForm().file("file", "c.csv", "text/csv", "one")
	fourth := decode[file](t, a.postForm(t, "/api/files/"+f.ID+"/content", form))
	if fourth.Filename != "c.csv" || fourth.Mimetype != "text/csv" || fourth.Checksum != f.Checksum {
		t.Errorf("got %+v, want the name and type of the part", fourth)
	}
	found := a.versions(t, f.ID)
	for i, want := range []version{
		{Filename: "b.txt", Mimetype: "text/plain", Checksum: sumOf("three")}, {Filename: "a.md", Mimetype: "text/markdown", Checksum: sumOf("two")},
		{Filename: "a.md", Mimetype: "text/markdown", Checksum: sumOf("one")},
	} {
		if len(found) != 3 || found[i].Filename != want.Filename || found[i].Mimetype != want.Mimetype || found[i].Checksum != want.Checksum {
			t.Fatalf("got %+v, want %+v at %d", found, want, i)
		}
	}
	a.wantBytes(t, found[0].URL, "three")
	a.wantBytes(t, found[1].URL, "two")
	a.wantBytes(t, found[2].URL, "one")
	a.wantCode(t, with(t, found[0].URL, "version", found[1].ID), 403)
	a.wantCode(t, with(t, found[0].URL, "version", ""), 403)
	a.wantCode(t, bare(t, found[0].URL), 403)
	if a.replace(t, f.ID, "", "", "one"); len(a.versions(t, f.ID)) != 3 {
		t.Errorf("got %d versions, want none for the same bytes", len(a.versions(t, f.ID)))
	}
	a.state(t)
}

// TestReplace_Refused: nothing changes.
func TestReplace_Refused(t *testing.T) {
	t.Parallel()
	a := open(t)
	f := a.upload(t, "a.txt", "text/plain", "one")
	before := a.state(t)
	to := "/api/files/" + f.ID + "/content"
	two := newForm().file("file", "a", "", "x").file("file", "b", "", "y")
	for name, answer := range map[string]*gatewaytest.Answer{
		"two files": a.postForm(t, to, two),
		"no file":   a.postForm(t, to, newForm().field("filename", "x")),
		"digest":    a.post(t, to, "text/plain", "x", gatewaytest.Header("Content-Digest", digest("y"))),
		"name":      a.post(t, to+"?filename=a%0Ab", "text/plain", "x"),
		"type":      a.post(t, to+"?mimetype=none", "text/plain", "x"),
	} {
		if answer.Code != http.StatusUnprocessableEntity {
			t.Errorf("%s: got %d %s, want 422", name, answer.Code, answer.Text())
		}
	}
	revision := a.Get(t, a.key, "/api/files/"+f.ID).Header.Get("Etag")
	if answer := a.post(t, to, "text/plain", "two", gatewaytest.Header("If-Match", `"99-x"`)); answer.Code != http.StatusPreconditionFailed {
		t.Errorf("got %d %s, want 412", answer.Code, answer.Text())
	}
	if answer := a.post(t, "/api/files/"+fixture.DocID(9)+"/content", "text/plain", "x"); answer.Code != http.StatusNotFound {
		t.Errorf("got %d %s, want 404", answer.Code, answer.Text())
	}
	a.wantSame(t, before)
	if answer := a.post(t, to, "text/plain", "two", gatewaytest.Header("If-Match", revision)); answer.Code != http.StatusOK {
		t.Errorf("got %d %s, want 200 with the revision %s", answer.Code, answer.Text(), revision)
	}
	if answer := a.post(t, to, "text/plain", "three", gatewaytest.Header("If-Match", revision)); answer.Code != http.StatusPreconditionFailed {
		t.Errorf("got %d %s, want 412 with the former revision", answer.Code, answer.Text())
	}
	a.state(t)
}

// TestReplace_Many: a hundred versions are kept, and the bytes of older ones go, also if all have the same time.
func TestReplace_Many(t *testing.T) {
	t.Parallel()
	now := time.Now()
	a := open(t, func(_ *config.Config, o *gateway.Options) { o.Now = func() time.Time { return now } })
	f := a.upload(t, "a.txt", "text/plain", "content 0")
	for n := range 104 {
		a.replace(t, f.ID, "", "", fmt.Sprint("content ", n+1))
	}
	found := a.versions(t, f.ID)
	if len(found) != 100 || found[0].Checksum != sumOf("content 103") || found[99].Checksum != sumOf("content 4") {
		t.Errorf("got %d versions from %+v, want the last hundred", len(found), found[0])
	}
	if s := a.state(t); s.Different != 101 || len(s.Objects) != 101 {
		t.Errorf("got %+v, want 101 contents", s)
	}
	counts := fixture.Concurrently(8, func(i int) int {
		return a.post(t, "/api/files/"+f.ID+"/content", "text/plain", fmt.Sprint("at once ", i)).Code
	})
	if n := len(a.versions(t, f.ID)); n != 100 || counts[200]+counts[409] != 8 || counts[200] == 0 {
		t.Errorf("got %d versions and %v, want 100", n, counts)
	}
	a.call(t, http.MethodDelete, "/api/files/"+f.ID, "")
	a.call(t, http.MethodDelete, "/api/files/"+f.ID+"/purge", "")
	a.wantCode(t, found[0].URL, 404)
	if s := a.state(t); s.Different != 0 || s.Stored != 0 || len(s.Objects) != 0 {
		t.Errorf("got %+v, want the versions gone with the file", s)
	}
}

// TestURL_KeepsVersions: a change of url keeps the bytes that the file loses by it, as any other change of them.
func TestURL_KeepsVersions(t *testing.T) {
	t.Parallel()
	a := open(t)
	one, two := a.upload(t, "1.txt", "text/plain", "one"), a.upload(t, "2.txt", "text/plain", "two")
	f := a.upload(t, "a.txt", "text/plain", "mine")
	put := func(url string) {
		t.Helper()
		a.call(t, http.MethodPut, "/api/files/"+f.ID, `{"url":`+url+`}`)
	}
	put(`"elsewhere"`)
	found := a.versions(t, f.ID)
	if len(found) != 1 || found[0].Checksum != sumOf("mine") || found[0].Filename != "a.txt" {
		t.Fatalf("got %+v, want the former content", found)
	}
	a.wantBytes(t, found[0].URL, "mine")
	put("null")
	if n := len(a.versions(t, f.ID)); n != 1 {
		t.Errorf("got %d versions, want none of a file without bytes", n)
	}
	for range 52 {
		put(`"` + hashOf(one.URL) + `"`)
		put(`"` + hashOf(two.URL) + `"`)
	}
	if found = a.versions(t, f.ID); len(found) != 100 || found[0].Checksum != sumOf("one") {
		t.Errorf("got %d versions, want the last hundred", len(found))
	}
	a.state(t)
}

// TestReplace_Interrupted: versions that interrupted calls have left over are removed by the next one.
func TestReplace_Interrupted(t *testing.T) {
	t.Parallel()
	hook := &fixture.StoreHook{}
	a := open(t, gatewaytest.Embedded, hook.Option)
	f := a.upload(t, "a.txt", "text/plain", "content")
	for n := range 104 {
		want := http.StatusOK
		if n > 100 {
			want = http.StatusInternalServerError
			hook.AfterWrite(true, func() { panic("killed") })
		}
		answer := a.post(t, "/api/files/"+f.ID+"/content", "text/plain", fmt.Sprint("content ", n))
		if answer.Code != want {
			t.Fatalf("%d: got %d %s, want %d", n, answer.Code, answer.Text(), want)
		}
	}
	if n := len(a.versions(t, f.ID)); n != 100 {
		t.Errorf("got %d versions, want no more than 100 shown", n)
	}
	a.replace(t, f.ID, "", "", "content")
	if s := a.state(t); s.Different != 101 || len(s.Objects) != 101 {
		t.Errorf("got %+v, want 101 contents", s)
	}
}

// TestReplace_Elsewhere: a file whose bytes are elsewhere has none to keep.
func TestReplace_Elsewhere(t *testing.T) {
	t.Parallel()
	a := open(t)
	id := fixture.As(a.Org, gatewaytest.WithKey(a.Key(t, tenants.ManageFiles))).Create(t, "/api/files", `{"filename":"a","mimetype":"text/plain","url":"9f86d081884c7d65"}`)
	if f := a.replace(t, id, "", "", "here"); f.Checksum != sumOf("here") || !strings.Contains(f.URL, "key=") {
		t.Errorf("got %+v, want it stored here", f)
	}
	if found := a.versions(t, id); len(found) != 0 {
		t.Errorf("got %+v, want none", found)
	}
}
