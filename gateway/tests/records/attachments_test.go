package records

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"io/fs"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"tenantry/config"
	"tenantry/gateway"
	"tenantry/gateway/control"
	"tenantry/gateway/gatewaytest"
	"tenantry/gateway/tests/fixture"
	"tenantry/tenants"
)

const png = "\x89PNG\r\n\x1a\n\x00\x00\x00\rIHDR"

// filesPage is a form with fields of the type File, and a page whose visitors fill it in.
type filesPage struct {
	*gatewaytest.Org
	clock         *fixture.Clock
	visitor, full string // keys
	form          string
}

// newFilesPage defines the form with these fields.
func newFilesPage(t *testing.T, fields string, options ...gatewaytest.Option) *filesPage {
	t.Helper()
	clock := new(fixture.Clock)
	g := gatewaytest.Start(t, append(options, clock.Option)...)
	p := &filesPage{Org: g.Org(t, "acme", tenants.FeatureTeams), clock: clock}
	p.visitor, p.full = p.pageKey(t, 0), p.Key(t, tenants.AllPermissions()...)
	p.form = p.define(t, "apply", fields)
	return p
}

func (p *filesPage) pageKey(t *testing.T, work int) string {
	t.Helper()
	return p.KeyWith(t, func(k *control.NewKey) {
		k.Kind, k.Permissions, k.Origins = string(tenants.Browser), []string{"create_form_submissions"}, []string{fixture.PageOrigin}
		k.ProofOfWork, k.Name = work, fmt.Sprintf("page %d", work)
	}).Token
}

func (p *filesPage) define(t *testing.T, name, fields string) string {
	t.Helper()
	a := fixture.PostJSON(t, p.Org, p.full, "/api/form/collections", fmt.Sprintf(`{"name":%q,"label":%q,"label_plural":%q,"schema":%s}`, name, name, name+"s", fields))
	if a.Code != http.StatusOK {
		t.Fatalf("got %d %s, want a form", a.Code, a.Body)
	}
	return a.Field("id").(string)
}

// from names the page that sends a request with a browser key.
func from(key string) gatewaytest.Request {
	return func(r *http.Request) {
		if strings.HasPrefix(key, "tnt_browser_") {
			r.Header.Set("Origin", fixture.PageOrigin)
		}
	}
}

// send uploads a file for a field.
func (p *filesPage) send(t *testing.T, key, form, field, media, content string, more ...gatewaytest.Request) *gatewaytest.Answer {
	t.Helper()
	q := url.Values{"field": {field}, "filename": {"a b.png"}}
	all := append([]gatewaytest.Request{gatewaytest.WithKey(key), from(key), gatewaytest.Body(media, content)}, more...)
	return p.Do(t, http.MethodPost, "/api/form/collections/"+form+"/files?"+q.Encode(), all...)
}

// token uploads a file, which must be taken.
func (p *filesPage) token(t *testing.T, form, field, media, content string) string {
	t.Helper()
	a := p.send(t, p.visitor, form, field, media, content)
	token, _ := a.Field("token").(string)
	if a.Code != http.StatusOK || token == "" {
		t.Fatalf("got %d %s, want 200 and a token", a.Code, a.Body)
	}
	return token
}

// submit sends a submission with the value of a field as JSON.
func (p *filesPage) submit(t *testing.T, key, form, field, value string, more ...gatewaytest.Request) *gatewaytest.Answer {
	t.Helper()
	all := append([]gatewaytest.Request{from(key)}, more...)
	return fixture.PostJSON(t, p.Org, key, "/api/form/collections/"+form+"/submissions", `{"values":{"form_name":"x","`+field+`":`+value+`}}`, all...)
}

func (p *filesPage) count(t *testing.T, path string) string {
	t.Helper()
	return fmt.Sprint(p.Get(t, p.full, path).Field("count"))
}

func (p *filesPage) wantStored(t *testing.T, what string, files, submissions int) {
	t.Helper()
	for path, want := range map[string]int{"/api/files": files, "/api/form/collections/" + p.form + "/submissions": submissions} {
		if got := p.count(t, path); got != fmt.Sprint(want) {
			t.Errorf("%s: %s has %s, want %d", what, path, got, want)
		}
	}
}

func quoted(texts ...string) string {
	raw, err := json.Marshal(texts)
	if err != nil {
		panic(err)
	}
	return string(raw)
}

const photo = `{"photo":{"title":"Photo","type":"File","accept":["image/*"]},"other":{"title":"Other","type":"File"},
	"many":{"title":"Many","type":"File","max_files":3},"note":{"title":"Note","type":"Text"}}`

// TestFilesOfSubmissions: a visitor's file is a file of the organization once it is submitted, and not before.
func TestFilesOfSubmissions(t *testing.T) {
	t.Parallel()
	p := newFilesPage(t, photo)
	token := p.token(t, p.form, "photo", "image/png", png)
	p.wantStored(t, "before the submission", 0, 0)
	sent := p.submit(t, p.visitor, p.form, "photo", `"`+token+`"`)
	if sent.Code != http.StatusOK {
		t.Fatalf("got %d %s, want the submission stored", sent.Code, sent.Body)
	}
	p.wantStored(t, "after the submission", 1, 1)
	id := sent.Field("values").(map[string]any)["photo"].(string)
	file := p.Get(t, p.full, "/api/files/"+id)
	if file.Field("filename") != "a b.png" || file.Field("mimetype") != "image/png" || file.Field("detected") != "image/png" {
		t.Errorf("the file is %s, want what was sent", file.Body)
	}
	address, err := url.Parse(file.Field("url").(string))
	if err != nil {
		t.Fatal(err)
	}
	if a := p.Do(t, http.MethodGet, address.RequestURI()); string(a.Body) != png {
		t.Errorf("the file has %q, want what was sent", a.Body)
	}

	fixture.WantFaults(t, p.submit(t, p.visitor, p.form, "photo", `"`+token+`"`), http.StatusUnprocessableEntity, "values.photo unknown")
	a, b := p.token(t, p.form, "many", "text/plain", "a"), p.token(t, p.form, "many", "text/plain", "b")
	if got := p.submit(t, p.visitor, p.form, "many", quoted(a, b)); got.Code != http.StatusOK || strings.Contains(got.Text(), a) {
		t.Errorf("got %d %s, want two identifiers", got.Code, got.Body)
	}
	p.wantStored(t, "after two files", 3, 2)

	// Purging a submission leaves its file, and a purged file leaves its identifier.
	path := "/api/form/collections/" + p.form + "/submissions/" + sent.Field("id").(string)
	p.Do(t, http.MethodDelete, "/api/files/"+id, gatewaytest.WithKey(p.full))
	p.Do(t, http.MethodDelete, "/api/files/"+id+"/purge", gatewaytest.WithKey(p.full))
	if got := p.Get(t, p.full, path).Field("values").(map[string]any)["photo"]; got != id {
		t.Errorf("the submission has %v, want %s", got, id)
	}
	p.Do(t, http.MethodDelete, path+"?purge=true", gatewaytest.WithKey(p.full))
	p.wantStored(t, "after the purges", 2, 1)
}

// TestTokensAreBound: a token is of one field of one form of one organization, for one submission within an hour.
func TestTokensAreBound(t *testing.T) {
	t.Parallel()
	p := newFilesPage(t, photo)
	second := p.define(t, "second", photo)
	token := p.token(t, p.form, "photo", "image/png", png)
	beta := &filesPage{Org: p.Gateway.Org(t, "beta"), clock: p.clock}
	beta.visitor, beta.full = beta.pageKey(t, 0), beta.Key(t, tenants.AllPermissions()...)
	beta.form = beta.define(t, "apply", photo)
	list := p.token(t, p.form, "many", "text/plain", "a")
	for what, a := range map[string]*gatewaytest.Answer{
		"another field":        p.submit(t, p.visitor, p.form, "other", `"`+token+`"`),
		"another form":         p.submit(t, p.visitor, second, "photo", `"`+token+`"`),
		"another organization": beta.submit(t, beta.visitor, beta.form, "photo", `"`+token+`"`),
		"another token":        p.submit(t, p.visitor, p.form, "photo", `"`+fixture.FlipCharacter(token, len(token)-1)+`"`),
		"an identifier":        p.submit(t, p.visitor, p.form, "photo", `"`+fixture.DocID(1)+`"`),
		"a text":               p.submit(t, p.visitor, p.form, "photo", `"a.png"`),
		"the token twice":      p.submit(t, p.visitor, p.form, "many", quoted(list, list)),
		"a required text":      p.submit(t, p.visitor, p.form, "note", `1`),
	} {
		if fixture.WantFailure(t, a, http.StatusUnprocessableEntity); a.Code == http.StatusOK {
			t.Errorf("%s is taken: %s", what, a.Body)
		}
	}
	p.wantStored(t, "after refusals", 0, 0)
	codes := fixture.Concurrently(8, func(int) int { return p.submit(t, p.visitor, p.form, "photo", `"`+token+`"`).Code })
	if codes[http.StatusOK] != 1 || codes[http.StatusUnprocessableEntity] != 7 {
		t.Errorf("eight submissions with a token got %v, want one 200 and 422 otherwise", codes)
	}
	p.wantStored(t, "after one success", 1, 1)

	// A program that fills in the hidden field gets a success, and nothing is stored.
	filled := p.token(t, p.form, "photo", "image/png", png)
	spam := func(r *http.Request) { r.URL.RawQuery = "honeypot=x" }
	if a := p.submit(t, p.visitor, p.form, "photo", `"`+filled+`"`, spam); a.Code != http.StatusOK {
		t.Errorf("got %d %s, want 200", a.Code, a.Body)
	}
	p.wantStored(t, "after spam", 1, 1)

	late := p.token(t, p.form, "photo", "image/png", png+"late")
	p.clock.Advance(61 * time.Minute)
	fixture.WantFaults(t, p.submit(t, p.visitor, p.form, "photo", `"`+late+`"`), http.StatusUnprocessableEntity, "values.photo unknown")
}

// TestFieldsJudgeFiles: a field refuses files by what their sender declares, what their bytes show, and their size.
func TestFieldsJudgeFiles(t *testing.T) {
	t.Parallel()
	p := newFilesPage(t, `{"photo":{"title":"P","type":"File","accept":["image/*"]},"small":{"title":"S","type":"File","max_size":10},
		"note":{"title":"N","type":"Text"},"pdf":{"title":"D","type":"File","accept":["application/pdf"]}}`)
	chunked := func(r *http.Request) { r.ContentLength = -1 }
	page := "<!DOCTYPE html><script>alert(1)</script>"
	for _, tt := range []struct {
		field, media, content string
		change                gatewaytest.Request
		code                  int
	}{
		{"photo", "image/png", png, nil, 200},
		{"photo", "image/png", png + page, nil, 200}, // it is served as a picture
		{"photo", "image/png", page, nil, 422},
		{"photo", "text/html", png + page, nil, 422},
		{"photo", "image/svg+xml", `<svg xmlns="http://www.w3.org/2000/svg" onload="alert(1)"/>`, nil, 422},
		{"photo", "image/png", page + png, nil, 422},
		{"pdf", "application/pdf", "MZ\x00\x01\x02", nil, 422},
		{"pdf", "application/pdf", "%PDF-1.7\n", nil, 200},
		{"small", "text/plain", "0123456789", nil, 200},
		{"small", "text/plain", "0123456789a", nil, 413},
		{"small", "text/plain", "0123456789", chunked, 200},
		{"small", "text/plain", "0123456789a", chunked, 413},
		{"small", "nonsense", "a", nil, 200},
		{"note", "text/plain", "a", nil, 422},
		{"form_name", "text/plain", "a", nil, 422},
		{"none", "text/plain", "a", nil, 422},
		{"", "text/plain", "a", nil, 422},
		{"small", "text/plain", "a", gatewaytest.Header("Content-Digest", "sha-256=:RK/0qy18MlBSVnWgjwz6lZEWjP/lF5HF9bvEF8FabDg=:"), 422},
	} {
		var more []gatewaytest.Request
		if tt.change != nil {
			more = append(more, tt.change)
		}
		if a := p.send(t, p.visitor, p.form, tt.field, tt.media, tt.content, more...); a.Code != tt.code {
			t.Errorf("%s of %s %q: got %d %s, want %d", tt.field, tt.media, tt.content, a.Code, a.Body, tt.code)
		}
	}
	fixture.WantFailure(t, p.send(t, p.visitor, fixture.DocID(9), "photo", "image/png", png), http.StatusNotFound)
	noRight := p.KeyWith(t, func(k *control.NewKey) {
		k.Kind, k.Permissions, k.Origins, k.Name = string(tenants.Browser), []string{"view_form_submissions"}, []string{fixture.PageOrigin}, "other"
	}).Token
	fixture.WantFailure(t, p.send(t, noRight, p.form, "photo", "image/png", png), http.StatusForbidden)
	p.Do(t, http.MethodDelete, "/api/form/collections/"+p.form, gatewaytest.WithKey(p.full))
	fixture.WantFailure(t, p.send(t, p.visitor, p.form, "photo", "image/png", png), http.StatusNotFound)
}

// TestVisitorsCannotFillAnOrganization: at most so many files wait for submissions of a form, and within the quota.
func TestVisitorsCannotFillAnOrganization(t *testing.T) {
	t.Parallel()
	p := newFilesPage(t, photo, func(c *config.Config, _ *gateway.Options) { c.TrustedProxies = []string{"127.0.0.1"} })
	at := func(key, address, content string) int {
		return p.send(t, key, p.form, "other", "text/plain", content, gatewaytest.Header("X-Forwarded-For", address)).Code
	}
	for i := range 98 {
		if code := at(p.visitor, fmt.Sprintf("192.0.2.%d", i/10), fmt.Sprint(i)); code != http.StatusOK {
			t.Fatalf("file %d: got %d, want 200", i, code)
		}
	}
	if code := at(p.visitor, "192.0.2.1", "the eleventh"); code != http.StatusTooManyRequests {
		t.Errorf("the eleventh of an address: got %d, want 429", code)
	}
	codes := fixture.Concurrently(8, func(i int) int { return at(p.visitor, fmt.Sprintf("192.0.2.%d", 100+i), fmt.Sprint("more", i)) })
	if codes[http.StatusOK] != 2 || codes[http.StatusTooManyRequests] != 6 {
		t.Errorf("eight uploads beyond 98 got %v, want two 200 and six 429", codes)
	}
	if code := at(p.full, "192.0.2.1", "of another key"); code != http.StatusOK {
		t.Errorf("a server key beside visitors: got %d, want 200", code)
	}
	second := p.define(t, "second", photo)
	p.token(t, second, "other", "text/plain", "other form")

	p.clock.Advance(61 * time.Minute)
	p.token(t, p.form, "other", "text/plain", "after an hour")
	fixture.EmptyTrash(t, p.Gateway.App)
	if after := p.stored(t); after != int64(len("after an hour")) {
		t.Errorf("%d bytes are left, want only those of the file that still waits", after)
	}

	if _, err := p.Gateway.App.Directory().Update(t.Context(), "acme", func(o *tenants.Organization) error {
		o.Limits = map[string]int64{tenants.LimitFileBytes: 20}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	a := p.send(t, p.visitor, p.form, "other", "text/plain", strings.Repeat("x", 30))
	if fixture.WantFailure(t, a, http.StatusInsufficientStorage); strings.ContainsAny(a.Message, "0123456789") {
		t.Errorf("a visitor learns %q, want no amounts", a.Message)
	}
}

// TestKeysNameFiles: a server key may name files that it sees, and a browser key none.
func TestKeysNameFiles(t *testing.T) {
	t.Parallel()
	p := newFilesPage(t, photo)
	p.Import(t, fixture.TeamLines()...)
	p.Import(t, fixture.FileLine(5, "open.txt", "", ""), fixture.FileLine(6, "team.txt", "", `,"teams":["`+fixture.TeamA+`"]`))
	limited := p.KeyWith(t, func(k *control.NewKey) {
		k.Permissions, k.Teams, k.Name = []string{"create_form_submissions"}, []string{fixture.TeamB}, "limited"
	}).Token
	for _, tt := range []struct {
		what, key, file, fault string
	}{
		{"a file", p.full, fixture.DocID(5), ""},
		{"a file of a team", p.full, fixture.DocID(6), ""},
		{"no file", p.full, fixture.DocID(7), "values.photo unknown"},
		{"a file of another team", limited, fixture.DocID(6), "values.photo unknown"},
		{"a file without teams", limited, fixture.DocID(5), ""},
		{"a file by a browser key", p.visitor, fixture.DocID(5), "values.photo forbidden"},
		{"no file by a browser key", p.visitor, fixture.DocID(7), "values.photo forbidden"},
	} {
		a := p.submit(t, tt.key, p.form, "photo", `"`+tt.file+`"`)
		switch {
		case tt.fault != "":
			fixture.WantFaults(t, a, http.StatusUnprocessableEntity, tt.fault)
		case a.Code != http.StatusOK || !strings.Contains(a.Text(), tt.file):
			t.Errorf("%s: got %d %s, want it stored", tt.what, a.Code, a.Body)
		}
	}
	p.Do(t, http.MethodDelete, "/api/files/"+fixture.DocID(5), gatewaytest.WithKey(p.full))
	fixture.WantFaults(t, p.submit(t, p.full, p.form, "photo", `"`+fixture.DocID(5)+`"`), http.StatusUnprocessableEntity, "values.photo unknown")
	mixed := quoted(fixture.DocID(6), p.token(t, p.form, "many", "text/plain", "mixed"))
	if a := p.submit(t, p.full, p.form, "many", mixed); a.Code != http.StatusOK {
		t.Errorf("an identifier and a token: got %d %s, want 200", a.Code, a.Body)
	}
}

// TestFilesOfAFolder: files belong to the teams of the folder of the field, also while it is in the trash, and lie in it.
// Otherwise they belong to the teams that the caller is limited to.
func TestFilesOfAFolder(t *testing.T) {
	t.Parallel()
	p := newFilesPage(t, photo)
	p.Import(t, fixture.TeamLines()...)
	p.Import(t, fixture.FolderLine(8, "Photos", "", `,"teams":["`+fixture.TeamA+`"]`), fixture.FolderLine(9, "Open", "", ""))
	forms := map[string]string{"": p.define(t, "none", `{"photo":{"title":"Photo","type":"File"}}`)}
	for _, folder := range []string{fixture.DocID(8), fixture.DocID(9)} {
		forms[folder] = p.define(t, "to_"+folder[20:], inFolder(folder))
	}
	limited := p.limited(t, fixture.TeamB, "create_form_submissions")
	submit := func(key, folder string) *gatewaytest.Answer {
		t.Helper()
		return p.submit(t, key, forms[folder], "photo", `"`+p.token(t, forms[folder], "photo", "text/plain", "a")+`"`)
	}
	check := func(what, key, folder, in, teams string) {
		t.Helper()
		a := submit(key, folder)
		if a.Code != http.StatusOK {
			t.Fatalf("%s: got %d %s, want 200", what, a.Code, a.Body)
		}
		a = p.Get(t, p.full, "/api/files/"+a.Field("values").(map[string]any)["photo"].(string))
		if a.Field("folder_id") != in || fmt.Sprint(a.Field("teams")) != "["+teams+"]" {
			t.Errorf("%s: got %s, want the folder %q and the teams %s", what, a.Body, in, teams)
		}
	}
	check("a folder with a team", p.visitor, fixture.DocID(8), fixture.DocID(8), fixture.TeamA)
	check("a folder with a team, a limited key", limited, fixture.DocID(8), fixture.DocID(8), fixture.TeamA)
	check("a folder without teams", p.visitor, fixture.DocID(9), fixture.DocID(9), "")
	check("a folder without teams, a limited key", limited, fixture.DocID(9), fixture.DocID(9), fixture.TeamB)
	check("no folder", p.visitor, "", "", "")
	check("no folder, a limited key", limited, "", "", fixture.TeamB)
	p.Do(t, http.MethodDelete, "/api/files/folders/"+fixture.DocID(8)+"?contents=true", gatewaytest.WithKey(p.full))
	check("a folder in the trash", p.visitor, fixture.DocID(8), "", fixture.TeamA)
	p.Do(t, http.MethodDelete, "/api/files/folders/"+fixture.DocID(8)+"?contents=true&purge=true", gatewaytest.WithKey(p.full))
	fixture.WantFaults(t, submit(p.visitor, fixture.DocID(8)), http.StatusUnprocessableEntity, "values.photo unknown")
}

// inFolder returns the schema of a form that lays photos in a folder.
func inFolder(folder string) string {
	return `{"photo":{"title":"Photo","type":"File","folder_id":"` + folder + `"}}`
}

// limited returns a key that is limited to a team.
func (p *filesPage) limited(t *testing.T, team string, permissions ...string) string {
	t.Helper()
	return p.KeyWith(t, func(k *control.NewKey) {
		k.Permissions, k.Teams, k.Name = permissions, []string{team}, "limited to "+team
	}).Token
}

// TestFoldersOfFieldsAreSeen: only who sees a folder lets a form lay files in it. A folder that the form names already
// may stay.
func TestFoldersOfFieldsAreSeen(t *testing.T) {
	t.Parallel()
	p := newFilesPage(t, photo)
	p.Import(t, fixture.TeamLines()...)
	p.Import(t, fixture.FolderLine(8, "Photos", "", `,"teams":["`+fixture.TeamA+`"]`))
	limited := p.limited(t, fixture.TeamB, "manage_forms")
	create := func(key, folder string) *gatewaytest.Answer {
		return fixture.PostJSON(t, p.Org, key, "/api/form/collections", `{"name":"into","label":"Into","label_plural":"Intos","schema":`+inFolder(folder)+`}`)
	}
	update := func(key, body string) *gatewaytest.Answer {
		return p.Do(t, http.MethodPut, "/api/form/collections/"+p.form, gatewaytest.WithKey(key), gatewaytest.Body("application/json", body))
	}
	unknown := "schema.photo.folder_id unknown"
	fixture.WantFaults(t, create(limited, fixture.DocID(8)), http.StatusUnprocessableEntity, unknown)
	fixture.WantFaults(t, create(p.full, fixture.DocID(9)), http.StatusUnprocessableEntity, unknown)
	fixture.WantFaults(t, update(limited, `{"schema":`+inFolder(fixture.DocID(8))+`}`), http.StatusUnprocessableEntity, unknown)
	for _, key := range []string{p.full, limited} {
		if a := update(key, `{"schema":`+inFolder(fixture.DocID(8))+`}`); a.Status != "ok" {
			t.Errorf("got %d %s, want ok", a.Code, a.Body)
		}
	}
}

// TestUploadsNeedProof: a browser key that requires work requires it for each file.
func TestUploadsNeedProof(t *testing.T) {
	t.Parallel()
	p := newFilesPage(t, photo)
	key := p.pageKey(t, 4)
	prove := func() gatewaytest.Request {
		t.Helper()
		a := p.Get(t, key, "/api/form/collections/"+p.form+"/challenge", gatewaytest.Header("Origin", fixture.PageOrigin))
		for n := 0; ; n++ {
			proof := fmt.Sprintf("%s:%d", a.Field("challenge"), n)
			if sum := sha256.Sum256([]byte(proof)); sum[0] < 16 {
				return func(r *http.Request) { r.URL.RawQuery += "&proof=" + url.QueryEscape(proof) }
			}
		}
	}
	fixture.WantFaults(t, p.send(t, key, p.form, "photo", "image/png", png), http.StatusUnprocessableEntity, "proof required")
	proof := prove()
	if a := p.send(t, key, p.form, "photo", "image/png", png, proof); a.Code != http.StatusOK {
		t.Errorf("got %d %s, want 200", a.Code, a.Body)
	}
	fixture.WantFaults(t, p.send(t, key, p.form, "photo", "image/png", png, proof), http.StatusUnprocessableEntity, "proof duplicate")
}

// TestStrangersSendSmallFiles: a browser key may send 10 MiB if the field does not say, a server key more, and nobody
// more than the organization takes. At most 100 MiB wait.
func TestStrangersSendSmallFiles(t *testing.T) {
	t.Parallel()
	p := newFilesPage(t, `{"any":{"title":"A","type":"File"},"large":{"title":"L","type":"File","max_size":52428800}}`)
	large := strings.Repeat("x", 10<<20+1)
	fixture.WantFailure(t, p.send(t, p.visitor, p.form, "any", "text/plain", large), http.StatusRequestEntityTooLarge)
	for _, tt := range []struct{ key, field, content string }{
		{p.full, "any", large}, {p.visitor, "large", strings.Repeat("y", 50<<20)},
	} {
		if a := p.send(t, tt.key, p.form, tt.field, "text/plain", tt.content); a.Code != http.StatusOK {
			t.Errorf("%d bytes for %s: got %d %s, want 200", len(tt.content), tt.field, a.Code, a.Body)
		}
	}
	fixture.WantFailure(t, p.send(t, p.visitor, p.form, "large", "text/plain", large), http.StatusTooManyRequests)
	if _, err := p.Gateway.App.Directory().Update(t.Context(), "acme", func(o *tenants.Organization) error {
		o.Limits = map[string]int64{tenants.LimitFileSize: 5}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	fixture.WantFailure(t, p.send(t, p.full, p.form, "large", "text/plain", "123456"), http.StatusRequestEntityTooLarge)
}

// TestVisitorsShareTheBytes: the files of all visitors that wait for a form have a bound on their bytes, too.
func TestVisitorsShareTheBytes(t *testing.T) {
	t.Parallel()
	p := newFilesPage(t, photo, func(c *config.Config, _ *gateway.Options) { c.TrustedProxies = []string{"127.0.0.1"} })
	large := strings.Repeat("x", 10<<20)
	at := func(address, content string) int {
		return p.send(t, p.visitor, p.form, "other", "text/plain", content, gatewaytest.Header("X-Forwarded-For", address)).Code
	}
	for n := range 10 {
		if code := at(fmt.Sprintf("2001:db8:0:%d::%d", n/2, n), large); code != http.StatusOK {
			t.Fatalf("file %d: got %d, want 200", n, code)
		}
	}
	if code := at("2001:db8:0:9::1", "x"); code != http.StatusTooManyRequests {
		t.Errorf("a byte beyond 100 MiB: got %d, want 429", code)
	}
	p.clock.Advance(61 * time.Minute)
	for n, want := range []int{http.StatusOK, http.StatusOK, http.StatusTooManyRequests} { // of one /64
		if code := at(fmt.Sprintf("2001:db8:0:1::%d", n), large); code != want {
			t.Errorf("file %d of one network: got %d, want %d", n, code, want)
		}
	}
}

// TestArrivingFilesOfFormsCount: what arrives for a form counts against the quota, as other uploads.
func TestArrivingFilesOfFormsCount(t *testing.T) {
	t.Parallel()
	p := newFilesPage(t, photo)
	if _, err := p.Gateway.App.Directory().Update(t.Context(), "acme", func(o *tenants.Organization) error {
		o.Limits = map[string]int64{tenants.LimitFileBytes: 100_000}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	conn := fixture.Dial(t, p.Gateway.App.Addr())
	fixture.Send(t, conn, fmt.Sprintf("POST /api/form/collections/%s/files?field=other&filename=a HTTP/1.1\r\nHost: %s\r\n"+
		"X-Service-Token: %s\r\nTransfer-Encoding: chunked\r\n\r\n%x\r\n%s\r\n", p.form, p.Host, p.full, 60_000, strings.Repeat("x", 60_000)))
	fixture.Await(t, "bytes have arrived", func() bool {
		found, err := filepath.Glob(filepath.Join(p.Config.Data, "incoming", "file-*"))
		if err != nil || len(found) == 0 {
			return false
		}
		info, err := os.Stat(found[0])
		return err == nil && info.Size() == 60_000
	})
	if a := p.send(t, p.full, p.form, "other", "text/plain", strings.Repeat("y", 60_000), func(r *http.Request) { r.ContentLength = -1 }); a.Code != http.StatusInsufficientStorage {
		t.Errorf("got %d %s, want 507", a.Code, a.Body)
	}
}

// TestWaitingFilesKeepTheirBytes: a purge of a file with the same bytes leaves those of a file that waits.
func TestWaitingFilesKeepTheirBytes(t *testing.T) {
	t.Parallel()
	p := newFilesPage(t, photo)
	submitted := func(token string) string {
		t.Helper()
		a := p.submit(t, p.visitor, p.form, "photo", `"`+token+`"`)
		if a.Code != http.StatusOK {
			t.Fatalf("got %d %s, want 200", a.Code, a.Body)
		}
		return a.Field("values").(map[string]any)["photo"].(string)
	}
	first, second := p.token(t, p.form, "photo", "image/png", png), p.token(t, p.form, "photo", "image/png", png)
	p.Do(t, http.MethodDelete, "/api/files/"+submitted(first)+"/purge", gatewaytest.WithKey(p.full))
	if got := p.stored(t); got != int64(len(png)) {
		t.Errorf("%d bytes are stored, want %d", got, len(png))
	}
	p.Do(t, http.MethodDelete, "/api/files/"+submitted(second)+"/purge", gatewaytest.WithKey(p.full))
	if got := p.stored(t); got != 0 {
		t.Errorf("%d bytes are stored after the last purge, want none", got)
	}
}

// TestFilesTravel: values of fields of files are the same after an export and an import.
func TestFilesTravel(t *testing.T) {
	t.Parallel()
	p := newFilesPage(t, photo)
	a := p.submit(t, p.visitor, p.form, "many", quoted(p.token(t, p.form, "many", "text/plain", "a"), p.token(t, p.form, "many", "text/plain", "b")))
	want := fmt.Sprint(a.Field("values").(map[string]any)["many"])
	path := "/api/form/collections/" + p.form + "/submissions"
	csv := p.Get(t, p.full, path+"/export?format=csv").Text()
	if ids := strings.Fields(strings.Trim(want, "[]")); !strings.Contains(csv, ids[0]) || !strings.Contains(csv, ids[1]) {
		t.Errorf("the export is %s, want both of %s", csv, want)
	}
	other := p.Gateway.Org(t, "beta")
	other.Import(t, strings.Split(strings.TrimSpace(fixture.Export(t, p.Org)), "\n")...)
	key := other.Key(t, tenants.AllPermissions()...)
	if got := fmt.Sprint(other.Get(t, key, path+"/"+a.Field("id").(string)).Field("values").(map[string]any)["many"]); got != want {
		t.Errorf("got %s after the import, want %s", got, want)
	}
}

// stored returns how many bytes of files the organization has.
func (p *filesPage) stored(t *testing.T) (bytes int64) {
	t.Helper()
	err := filepath.WalkDir(p.Gateway.Config.FilesDir(), func(_ string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		info, err := d.Info()
		if err == nil {
			bytes += info.Size()
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return bytes
}
