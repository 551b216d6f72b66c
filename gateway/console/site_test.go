package console_test

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"fmt"
	"html"
	"io"
	"mime/multipart"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"tenantry/gateway/control"
	"tenantry/gateway/demo"
	"tenantry/gateway/gatewaytest"
	"tenantry/modules/mail"
)

var (
	links = regexp.MustCompile(`href="([^"]*)"`)
	forms = regexp.MustCompile(`(?s)<form method="post" action="([^"#]*)[^>]*>(.*?)</form>`)
	input = regexp.MustCompile(`<input ([^>]*)>`)
	attr  = regexp.MustCompile(`([a-z]+)="([^"]*)"`)
)

// rich returns an organization with records of every kind, and a session of its administrator. change may edit each
// line that is imported.
func rich(t *testing.T, change func(string) string, options ...gatewaytest.Option) (*gatewaytest.Gateway, *gatewaytest.Org, *http.Cookie) {
	t.Helper()
	g, acme := start(t, options...)
	var bundle bytes.Buffer
	if err := demo.WriteBundle(&bundle, time.Now()); err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimSpace(bundle.String()), "\n")
	if change != nil {
		for i := range lines {
			lines[i] = change(lines[i])
		}
	}
	acme.Import(t, lines...)
	if err := g.App.PutUsage(t.Context(), "acme", demo.Usage(time.Now())); err != nil {
		t.Fatal(err)
	}
	_, cookie := acme.Person(t, "root@example.com", func(n *control.NewUser) { n.Name, n.Roles = "Root", []string{"admin"} })
	sent := &mail.Mail{Topic: mail.Invitation, To: "r***@example.com", State: mail.Sent, Tries: 1}
	if err := g.App.Mails().Mails.In(acme.Tenant(t).Workspace()).Insert(t.Context(), sent); err != nil {
		t.Fatal(err)
	}
	made := func(path, kind, body string) string { // records that bundles do not have
		t.Helper()
		if change != nil {
			body = change(body)
		}
		a := acme.Do(t, http.MethodPost, path, gatewaytest.Cookie(cookie), gatewaytest.Body(kind, body))
		id, _ := a.Field("id").(string)
		if a.Status != "ok" {
			t.Fatalf("%s: %d %s", path, a.Code, a.Body)
		}
		return id
	}
	const js = "application/json"
	account := made("/api/service-accounts", js, `{"name":"Shop of the North","permissions":["contacts"]}`)
	made("/api/webhooks", js, `{"name":"Shop hook","url":"https://localhost/hook","account":"`+account+`"}`)
	reporter := made("/api/service-accounts", js, `{"name":"Reporter of the North","permissions":["manage_reports"]}`)
	made("/api/report-schedules", js, `{"name":"Shop report","report":"`+demo.SecureReportID+`","account":"`+reporter+`","recipients":["ada@example.com"]}`)
	made("/api/keys", js, `{"name":"Shop key","kind":"server_full","account":"`+account+`"}`)
	made("/api/custom-reports/"+demo.SecureReportID+"/share", js, `{"params":{"country":"DE"}}`)
	tried := "/api/import/" + made("/api/import?as=contacts&dry_run=true", "text/csv", "Email,Town\nnobody@example.com,Bonn\nno address,Ulm\n")
	for deadline := time.Now().Add(patience); acme.Do(t, http.MethodGet, tried, gatewaytest.Cookie(cookie)).Field("state") == "running"; time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("the import does not end")
		}
	}
	return g, acme, cookie
}

// fill returns the values that a form sends unchanged.
func fill(markup string) url.Values {
	values := url.Values{}
	for _, found := range input.FindAllStringSubmatch(markup, -1) {
		at := map[string]string{}
		for _, a := range attr.FindAllStringSubmatch(found[1], -1) {
			at[a[1]] = html.UnescapeString(a[2])
		}
		if at["type"] == "checkbox" && !strings.Contains(found[1], " checked") || at["name"] == "" {
			continue
		}
		values.Add(at["name"], at["value"])
	}
	for _, found := range regexp.MustCompile(`(?s)<textarea [^>]*name="([^"]*)"[^>]*>(.*?)</textarea>`).FindAllStringSubmatch(markup, -1) {
		values.Add(found[1], strings.TrimPrefix(html.UnescapeString(found[2]), "\n"))
	}
	for _, found := range regexp.MustCompile(`(?s)<select [^>]*name="([^"]*)"[^>]*>(.*?)</select>`).FindAllStringSubmatch(markup, -1) {
		chosen := regexp.MustCompile(`<option( value="([^"]*)")? selected>([^<]*)`).FindStringSubmatch(found[2])
		switch {
		case chosen == nil:
			values.Add(found[1], "")
		case chosen[1] != "":
			values.Add(found[1], html.UnescapeString(chosen[2]))
		default:
			values.Add(found[1], html.UnescapeString(chosen[3]))
		}
	}
	return values
}

// formTo returns the values of the form with that action on the page. It fails the test if there is none.
func formTo(t *testing.T, page *gatewaytest.Answer, action string) url.Values {
	t.Helper()
	for _, f := range forms.FindAllStringSubmatch(page.Text(), -1) {
		if f[1] == action {
			return fill(f[2])
		}
	}
	t.Fatalf("no form to %s on the page:\n%s", action, page.Text())
	return nil
}

// person is a person with a browser session.
type person struct {
	t      *testing.T
	o      *gatewaytest.Org
	cookie *http.Cookie
}

func (p person) open(path string) *gatewaytest.Answer {
	p.t.Helper()
	return p.o.Page(p.t, path, gatewaytest.Cookie(p.cookie))
}

func (p person) send(action string, values url.Values, changes ...gatewaytest.Request) *gatewaytest.Answer {
	p.t.Helper()
	changes = append([]gatewaytest.Request{
		gatewaytest.Cookie(p.cookie), gatewaytest.Header("Origin", "http://"+p.o.Host), gatewaytest.Body("application/x-www-form-urlencoded", values.Encode()),
	}, changes...)
	return p.o.Do(p.t, http.MethodPost, action, changes...)
}

// follows returns the page that an answer redirects to. It fails the test if the answer is not a redirect.
func (p person) follows(a *gatewaytest.Answer) *gatewaytest.Answer {
	p.t.Helper()
	if a.Code != http.StatusSeeOther {
		p.t.Fatalf("got %d, want a redirect: %s", a.Code, a.Text())
	}
	page := p.open(a.Header.Get("Location"))
	checkPage(p.t, page, 200)
	return page
}

// kindOf returns the address of a page without identifiers and values. Each report is a kind of its own, because each
// has a different chart.
func kindOf(path string) string {
	return regexp.MustCompile(`/(custom-reports/[0-9a-f]{24})|/[0-9a-f]{24}|/[0-9]+|=[^&]*`).ReplaceAllString(path, "*$1")
}

// crawl opens every page that a link leads to, one of each kind.
func (p person) crawl(see func(path string, page *gatewaytest.Answer)) {
	p.t.Helper()
	seen, todo := map[string]bool{"/": true}, []string{"/"}
	const most = 700
	for len(todo) > 0 && len(seen) < most {
		path := todo[0]
		todo = todo[1:]
		page := p.open(path)
		see(path, page)
		for _, found := range links.FindAllStringSubmatch(page.Text(), -1) {
			next := html.UnescapeString(found[1])
			if !strings.HasPrefix(next, "/") || strings.HasPrefix(next, "/api/") || strings.HasPrefix(next, "/assets/") || seen[kindOf(next)] {
				continue
			}
			seen[kindOf(next)] = true
			todo = append(todo, next)
		}
	}
	if len(seen) >= most {
		p.t.Errorf("more than %d kinds of pages", most)
	}
}

// unlinked returns the pages that no link leads to, because other pages show the same.
func unlinked() []string {
	return []string{
		"/campaigns/count", "/campaigns/count/" + demo.CampaignID, "/compliance/schema", "/custom-reports/fields", "/form/collections/schema",
		"/files/folders/tree", "/files/66f100000000000000000001/versions", "/custom/objects/schema", "/find?q=a", "/events",
	}
}

// TestEveryPageOpens opens the page of every operation that reads. Each keeps to the rules for all pages and to a bound
// on its size, and its forms have no terms of the API.
func TestEveryPageOpens(t *testing.T) {
	t.Parallel()
	_, acme, cookie := rich(t, nil)
	p := person{t, acme, cookie}
	names := []string{`\bnull\b`, "StudlyCase", "=true", `\b[a-z]+_[a-z_]+=`}
	var taken []string // values of which fields take one
	for _, op := range acme.App.Operations() {
		names = append(names, `\b`+regexp.QuoteMeta(op.Name)+`\b`)
		for _, f := range op.Body {
			taken = append(taken, f.Enum...)
		}
		for _, q := range op.Params {
			taken = append(taken, q.Enum...)
		}
		for _, right := range op.Rule.Permissions() {
			taken = append(taken, string(right))
		}
	}
	values := regexp.MustCompile(`>(` + strings.Join(slices.DeleteFunc(taken, func(v string) bool { return !strings.Contains(v, "_") }), "|") + `)<`)
	forms, tags, jargon := regexp.MustCompile(`(?s)<form[^>]* class="form".*?</form>`), regexp.MustCompile(`(?s)<textarea.*?</textarea>|<[^>]*>`), regexp.MustCompile(strings.Join(names, "|"))
	opened := map[string]bool{}
	hold := func(path string, page *gatewaytest.Answer) {
		t.Helper()
		opened[strings.Split(path, "?")[0]] = true
		if page.Code != 200 {
			t.Errorf("%s: %d %.400s", path, page.Code, page.Text())
			return
		}
		if page.Header.Get("Content-Type") != "text/html; charset=utf-8" {
			return // the API reference has a document
		}
		checkPage(t, page, 200)
		for _, part := range strings.Split(page.Text(), "<time ")[1:] {
			if text, _, _ := strings.Cut(part[strings.IndexByte(part, '>')+1:], "<"); len(text) < 10 || !strings.ContainsAny(text, "-:") {
				t.Errorf("%s shows the time %q", path, text)
			}
		}
		for _, form := range forms.FindAllString(page.Text(), -1) {
			if said := jargon.FindString(tags.ReplaceAllString(form, " ")); said != "" && !strings.HasPrefix(path, "/docs") {
				t.Errorf("a form of %s says %q, want no terms of the API", path, said)
			}
		}
		if raw := values.FindString(page.Text()); raw != "" && !strings.HasPrefix(path, "/docs") {
			t.Errorf("%s shows %q, want a readable value", path, raw)
		}
		if len(page.Body) > 100<<10 {
			t.Errorf("%s has %d bytes, want at most %d", path, len(page.Body), 100<<10)
		}
	}
	p.crawl(hold)
	for _, path := range unlinked() {
		if opened[path] {
			t.Errorf("a link leads to %s", path)
		}
		hold(path, p.open(path))
	}
	everyPage(t, acme, func(path string, pattern *regexp.Regexp) {
		for path := range opened {
			if pattern.MatchString(path) {
				return
			}
		}
		t.Errorf("no link leads to a page %s", path)
	})
}

// everyPage calls see with the path of each page that the site serves: that of each operation that reads, takes a
// session and does not answer a file.
func everyPage(t *testing.T, o *gatewaytest.Org, see func(path string, pattern *regexp.Regexp)) {
	t.Helper()
	var document struct {
		Paths map[string]map[string]struct {
			Security  []map[string]any
			Responses map[string]struct{ Content map[string]any }
		}
	}
	if err := json.Unmarshal(o.Page(t, "/api/openapi.json").Body, &document); err != nil {
		t.Fatal(err)
	}
	seen := 0
	for path, methods := range document.Paths {
		get, reads := methods["get"]
		session := slices.ContainsFunc(get.Security, func(s map[string]any) bool { return s["session"] != nil })
		if _, is := get.Responses["200"].Content["application/json"]; !reads || !session || !is || strings.HasPrefix(path, "/api/files/tus/") { // which has a protocol of its own
			continue
		}
		seen++
		path = strings.TrimPrefix(path, "/api")
		see(path, regexp.MustCompile("^"+regexp.MustCompile(`\{[^}]*\}`).ReplaceAllString(path, "[^/]+")+"$"))
	}
	if seen < 40 {
		t.Errorf("the document has %d pages", seen)
	}
}

// evil is a text that sets a flag if it becomes markup.
const evil = `"'><script>ran=1</script><img src=x onerror=ran=1>`

// hostileOrg returns an organization with evil in every text that it stores, each followed by the name of its field,
// and the session of an administrator whose browser sends such a text as its name.
func hostileOrg(t *testing.T) (acme *gatewaytest.Org, cookie *http.Cookie, fields []string) {
	t.Helper()
	fields = []string{"title", "label", "label_plural", "name", "first_name", "last_name", "city", "filename", "desc", "wish", "model", "category", "form_name", "frame",
		"status", "country", "phone", "external_id", "folder", "parent", "row_key"}
	text := regexp.MustCompile(`"(` + strings.Join(fields, "|") + `)":"([^"]*)"`)
	tags := regexp.MustCompile(`"(tags)":\["([^"]*)"`)
	named := regexp.MustCompile(`^{"kind":"(custom_object|form_collection|role)"`)
	marked := func(field, before string) string {
		raw, err := json.Marshal(before + evil + field + "~")
		if err != nil {
			t.Fatal(err)
		}
		return string(raw)
	}
	g, acme, first := rich(t, func(line string) string {
		line = strings.NewReplacer("Town", `"<b>column~"`).Replace(line)
		kind, _, _ := strings.Cut(strings.TrimPrefix(line, `{"kind":"`), `"`)
		for _, more := range map[string][]string{
			"custom_report": {`"folder":"In "`, `"parent":"Of "`, `"row_key":""`}, "form_collection": {`"email_alerts":{"enabled":false,"subject":` + marked("subject", "") + `}`}, "file": {`"type":` + marked("type", "")},
		}[kind] {
			name, _, _ := strings.Cut(more, ":")
			line = regexp.MustCompile(`,`+name+`:("[^"]*"|{[^}]*})`).ReplaceAllString(line, "")
			line = strings.TrimSuffix(line, "}") + "," + more + "}"
		}
		line = text.ReplaceAllStringFunc(line, func(found string) string {
			parts := text.FindStringSubmatch(found)
			switch {
			case parts[1] == "name" && named.MatchString(line): // by which others refer to it; see below
				return found
			case parts[1] == "phone":
				parts[2] = "" // it would be too long
			}
			return `"` + parts[1] + `":` + marked(parts[1], parts[2])
		})
		return tags.ReplaceAllStringFunc(line, func(string) string { return `"tags":[` + marked("tags", "") })
	})
	if _, err := control.Call[control.Organization](t.Context(), g.Commands, "org.update", control.OrganizationChange{Slug: "acme", OrganizationFields: control.OrganizationFields{Name: evil + "organization~"}}); err != nil {
		t.Fatal(err)
	}
	acme.Person(t, "eve@example.com", func(n *control.NewUser) { n.Name, n.Roles = evil+"person~", []string{"admin"} })
	cookie = sessionOf(t, signIn(t, acme, "eve@example.com", gatewaytest.Password, gatewaytest.Header("User-Agent", evil+"agent~")))
	for path, body := range map[string]m{"/api/custom/objects": {"name": evil, "label": "a", "label_plural": "b"}, "/api/form/collections": {"name": evil, "label": "a", "label_plural": "b"}, "/api/roles": {"name": evil}, "/api/contacts/fields": {"key": evil, "title": "a", "type": "Text"}} {
		if a := acme.Do(t, http.MethodPost, path, gatewaytest.Cookie(first), gatewaytest.JSON(body)); a.Code != http.StatusUnprocessableEntity {
			t.Errorf("%s takes a name that is none: %d", path, a.Code)
		}
	}
	reason := m{"field": demo.SecretField, "reason": evil + "reason~"} // the last record of the audit
	if a := acme.Do(t, http.MethodPost, "/api/contacts/"+demo.ContactID+"/disclose", gatewaytest.Cookie(cookie), gatewaytest.JSON(reason)); a.Status != "ok" {
		t.Fatalf("%d %s", a.Code, a.Body)
	}
	return acme, cookie, append(fields, "tags", "organization", "person", "agent", "reason", "column", "type", "subject")
}

// TestTextIsNeverMarkup checks that no text that an organization stores becomes markup on a page.
func TestTextIsNeverMarkup(t *testing.T) {
	t.Parallel()
	acme, cookie, fields := hostileOrg(t)
	shown := map[string]int{}
	person{t, acme, cookie}.crawl(func(path string, page *gatewaytest.Answer) {
		text := page.Text()
		if page.Code != 200 {
			t.Errorf("%s: %d", path, page.Code)
		}
		if strings.Contains(text, "<script>ran") || strings.Contains(text, "<img") || strings.Contains(text, "<b>") {
			t.Errorf("%s has markup from a stored text", path)
		}
		for _, field := range fields {
			if said := html.UnescapeString(text); strings.Contains(said, ">"+field+"~") || strings.Contains(said, `\u003e`+field+"~") { // within JSON
				shown[field]++
			}
		}
	})
	for _, field := range fields {
		if shown[field] == 0 {
			t.Errorf("no page shows the text of %s, want one that does", field)
		}
	}
}

// TestFormsFromAnotherSiteAreRefused sends each form of each page from another site.
func TestFormsFromAnotherSiteAreRefused(t *testing.T) {
	t.Parallel()
	_, acme, cookie := rich(t, nil)
	p := person{t, acme, cookie}
	actions := map[string]url.Values{}
	p.crawl(func(_ string, page *gatewaytest.Answer) {
		for _, f := range forms.FindAllStringSubmatch(page.Text(), -1) {
			actions[f[1]] = fill(f[2])
		}
	})
	own := 0
	for action := range actions {
		if strings.HasPrefix(action, "/do/") {
			own++
		}
	}
	if own < 40 || len(actions)-own < 40 {
		t.Errorf("got %d forms of pages and %d of the reference, want at least 40 each", own, len(actions)-own)
	}
	before := acme.Do(t, http.MethodGet, "/api/audit?filters[outcome]=ok&per_page=1", gatewaytest.Cookie(cookie)).Field("count")
	for _, takesFile := range []string{"imports.create", "files.upload", "files.replace"} { // see TestImportByForm and TestFilesAreUploadedOnPages
		delete(actions, "/do/"+takesFile)
	}
	for action, values := range actions {
		for name := range values {
			if strings.HasPrefix(name, "path.") && values.Get(name) == "" {
				values.Set(name, "1") // else there is no such call
			}
		}
		for _, from := range [][]gatewaytest.Request{
			{gatewaytest.Header("Sec-Fetch-Site", "cross-site"), gatewaytest.Header("Origin", "https://evil.example")},
			{gatewaytest.Header("Sec-Fetch-Site", "same-site"), gatewaytest.Header("Origin", "http://other.localhost")},
			{gatewaytest.Header("Origin", "http://other.localhost")},
		} {
			a := acme.Do(t, http.MethodPost, action, append(from, gatewaytest.Cookie(cookie), gatewaytest.Body("application/x-www-form-urlencoded", values.Encode()))...)
			if a.Code != http.StatusForbidden || a.Header.Get("Set-Cookie") != "" {
				t.Errorf("%s: %d %.300s", action, a.Code, a.Text())
			}
		}
		values.Set("_send", "true")
		// A link carries nothing out, because any site can have one, and signing in can lead to one.
		if a := p.open(action + "?" + values.Encode()); strings.Contains(a.Text(), `id="answer"`) {
			t.Errorf("a link to %s was taken: %d %.300s", action, a.Code, a.Text())
		}
	}
	if after := acme.Do(t, http.MethodGet, "/api/audit?filters[outcome]=ok&per_page=1", gatewaytest.Cookie(cookie)).Field("count"); after != before {
		t.Errorf("successful operations in the audit = %v, want %v as before", after, before)
	}
}

// TestSignedOutFormsFromAnotherSiteAreRefused checks that a page of another site cannot sign people in or use a link
// up.
func TestSignedOutFormsFromAnotherSiteAreRefused(t *testing.T) {
	t.Parallel()
	g, acme := start(t)
	acme.Person(t, "ada@example.com", nil)
	invited, err := control.Call[control.User](t.Context(), g.Commands, "user.create", control.NewUser{Org: "acme", UserFields: control.UserFields{Name: "Bob", Email: "bob@example.com"}})
	if err != nil {
		t.Fatal(err)
	}
	link, err := g.App.SignInLink(t.Context(), "acme", "ada@example.com", "http://"+acme.Host, time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	_, invitation, _ := strings.Cut(invited.Link, "#")
	_, ticket, _ := strings.Cut(link, "#")
	for path, typed := range map[string]map[string]string{
		"/sign-in": {"email": "ada@example.com", "password": gatewaytest.Password}, "/welcome": {"token": invitation, "password": gatewaytest.Password}, "/enter": {"token": ticket},
	} {
		values := formTo(t, acme.Page(t, path), path)
		for name, value := range typed {
			values.Set(name, value)
		}
		body := gatewaytest.Body("application/x-www-form-urlencoded", values.Encode())
		for _, from := range [][]gatewaytest.Request{
			{gatewaytest.Header("Sec-Fetch-Site", "cross-site"), gatewaytest.Header("Origin", "https://evil.example")},
			{gatewaytest.Header("Sec-Fetch-Site", "same-site"), gatewaytest.Header("Origin", "http://other.localhost")},
			{gatewaytest.Header("Origin", "http://other.localhost")},
			{gatewaytest.Header("Origin", "null")},
		} {
			if a := acme.Do(t, http.MethodPost, path, append(from, body)...); a.Code != http.StatusForbidden || a.Header.Get("Set-Cookie") != "" || a.Header.Get("Location") != "" {
				t.Errorf("%s: %d %v", path, a.Code, a.Header)
			}
		}
		own := acme.Do(t, http.MethodPost, path, gatewaytest.Header("Origin", "http://"+acme.Host), body)
		if own.Code != http.StatusSeeOther || own.Header.Get("Location") != "/" {
			t.Errorf("%s from its own page: %d %s", path, own.Code, own.Text())
		}
		sessionOf(t, own)
	}
}

// TestSignInForm signs in without scripts. The form leads back to the page that was asked for, and never to another
// site.
func TestSignInForm(t *testing.T) {
	t.Parallel()
	_, acme := start(t)
	acme.Person(t, "ada@example.com", func(n *control.NewUser) { n.Roles = []string{"admin"} })
	wanted := acme.Page(t, "/contacts?filters[city]=Bonn")
	if got := wanted.Header.Get("Location"); got != "/sign-in?next=%2Fcontacts%3Ffilters%5Bcity%5D%3DBonn" {
		t.Fatalf("Location: %s", got)
	}
	page := acme.Page(t, wanted.Header.Get("Location"))
	checkPage(t, page, 200, "Sign in")
	values := formTo(t, page, "/sign-in")
	p := person{t, acme, &http.Cookie{}}
	values.Set("email", "ada@example.com")
	values.Set("password", "wrong")
	checkPage(t, p.send("/sign-in", values), 403, "E-mail address or password is wrong", `value="ada@example.com"`, `name="next" value="/contacts?filters[city]=Bonn"`)
	values.Set("password", gatewaytest.Password)
	in := p.send("/sign-in", values)
	p.cookie = sessionOf(t, in)
	if got := in.Header.Get("Location"); got != "/contacts?filters[city]=Bonn" {
		t.Errorf("Location: %s", got)
	}
	checkPage(t, p.follows(in), 200, "Nothing matches")
	for _, evil := range []string{"https://evil.example/", "//evil.example/", `/\evil.example`, "javascript:alert(1)", "/\t/evil.example", "evil", "http:/evil.example", strings.Repeat("/a", 2000)} {
		values.Set("next", evil)
		if got := p.send("/sign-in", values).Header.Get("Location"); got != "/" {
			t.Errorf("%q leads to %q", evil, got)
		}
	}
	out := p.send("/sign-out", url.Values{})
	if out.Code != http.StatusSeeOther || out.Header.Get("Location") != "/sign-in" || sessionOf(t, out).MaxAge >= 0 {
		t.Errorf("%d %v", out.Code, out.Header)
	}
	if a := p.open("/contacts"); a.Code != http.StatusSeeOther {
		t.Errorf("after sign-out: %d", a.Code)
	}
}

// TestWelcomeForm checks that the form accepts the whole link, and reports an invalid link or password.
func TestWelcomeForm(t *testing.T) {
	t.Parallel()
	g, acme := start(t)
	invited, err := control.Call[control.User](t.Context(), g.Commands, "user.create", control.NewUser{Org: "acme", UserFields: control.UserFields{Name: "Ada", Email: "ada@example.com"}})
	if err != nil {
		t.Fatal(err)
	}
	p := person{t, acme, &http.Cookie{}}
	values := formTo(t, acme.Page(t, "/welcome"), "/welcome")
	values.Set("token", "inv_"+strings.Repeat("a", 32))
	values.Set("password", gatewaytest.Password)
	checkPage(t, p.send("/welcome", values), 403, "was used already or has expired")
	values.Set("token", invited.Link)
	values.Set("password", "short")
	checkPage(t, p.send("/welcome", values), 422, "at least 12 characters")
	values.Set("password", gatewaytest.Password)
	a := p.send("/welcome", values)
	p.cookie = sessionOf(t, a)
	p.follows(a)
}

// TestRecordFromPageToPage creates, changes, deletes, restores, deletes and purges a record through forms.
func TestRecordFromPageToPage(t *testing.T) {
	t.Parallel()
	_, acme, cookie := rich(t, nil)
	p := person{t, acme, cookie}
	values := formTo(t, p.open("/do/contacts.create"), "/do/contacts.create")
	values.Set("email", "not an address")
	values.Set("first_name", "Žofie")
	values.Set("fields.age", "forty")
	refused := p.send("/do/contacts.create", values)
	checkPage(t, refused, 422, `value="Žofie"`, `aria-invalid="true"`)
	values.Set("email", "zofie@example.com")
	values.Set("fields.age", "40")
	values.Set("tags", "one\r\n two ")
	created := p.send("/do/contacts.create", values)
	page := p.follows(created)
	checkPage(t, page, 200, "Contact created", "Žofie", `value="40"`, "one\ntwo")
	address, _, _ := strings.Cut(created.Header.Get("Location"), "?")
	again, _, _ := strings.Cut(p.send("/do/contacts.create", values).Header.Get("Location"), "?") // what follows tells the second
	if again != address {
		t.Errorf("the form sent twice created %s and %s, want one record", address, again)
	}
	change := formTo(t, page, "/do/contacts.update")
	change.Set("city", "Brno")
	stale := formTo(t, page, "/do/contacts.update")
	checkPage(t, p.follows(p.send("/do/contacts.update", change)), 200, "Contact updated", "Brno")
	stale.Set("city", "Praha")
	checkPage(t, p.send("/do/contacts.update", stale), 412, "Somebody else has changed this", "Praha")
	if a := acme.Do(t, http.MethodGet, "/api"+address, gatewaytest.Cookie(cookie)); a.Field("city") != "Brno" || fmt.Sprint(a.Field("fields")) != "map[age:40]" || len(a.Field("tags").([]any)) != 2 {
		t.Errorf("%s", a.Text())
	}
	gone := p.follows(p.send("/do/contacts.delete", formTo(t, p.open(address), "/do/contacts.delete")))
	checkPage(t, gone, 200, "Contact deleted", "Undo")
	if a := p.open(address); a.Code != 404 {
		t.Errorf("the page of the deleted record: got %d, want 404", a.Code)
	}
	checkPage(t, p.follows(p.send("/do/contacts.restore", formTo(t, gone, "/do/contacts.restore"))), 200, "Contact restored", "Brno")
	p.follows(p.send("/do/contacts.delete", formTo(t, p.open(address), "/do/contacts.delete")))
	checkPage(t, p.open("/contacts?deleted=true"), 200, "Deleted contacts", "zofie@example.com", "Restore")
	trash := p.open(address + "?deleted=true")
	checkPage(t, trash, 200, "This was deleted", "Delete for good")
	p.follows(p.send("/do/contacts.delete", formTo(t, trash, "/do/contacts.delete")))
	checkPage(t, p.open("/contacts?deleted=true"), 200, "Nothing has been deleted")
}

// TestOnlyDeletedRecordsArePurged checks that only the page of a deleted record has a form that purges it, with a
// warning, and that the form leads back to the trash. A record with dependents is purged only when the form says so.
func TestOnlyDeletedRecordsArePurged(t *testing.T) {
	t.Parallel()
	_, acme, cookie := rich(t, nil)
	p := person{t, acme, cookie}
	all := func(page *gatewaytest.Answer, action string) url.Values { // with the dependents of the record
		sent := formTo(t, page, action)
		for _, name := range []string{"query.force", "query.contents"} {
			if strings.Contains(page.Text(), `name="`+name+`"`) {
				sent.Set(name, "true")
			}
		}
		return sent
	}
	purges := regexp.MustCompile(`action="/do/\w+\.purge"|name="query\.purge"`)
	for address, list := range map[string]string{
		"/files/66f100000000000000000001": "/files", "/files/folders/66f000000000000000000003": "/files/folders", "/contacts/66a000000000000000000002": "/contacts",
		"/custom/objects/bike": "/custom/objects", "/campaigns/66c000000000000000000001": "/campaigns", "/form/collections/66b000000000000000000001": "/form/collections",
	} {
		live := p.open(address)
		checkPage(t, live, 200)
		if found := purges.FindString(live.Text()); found != "" {
			t.Errorf("%s is not deleted but has the form %s", address, found)
		}
		action := regexp.MustCompile(`action="(/do/\w+\.delete)"`).FindStringSubmatch(live.Text())
		if action == nil {
			t.Errorf("%s has no form that deletes it", address)
			continue
		}
		gone := p.send(action[1], formTo(t, live, action[1]))
		if gone.Code == 422 {
			gone = p.send(action[1], all(gone, action[1]))
		}
		p.follows(gone)
		trash := p.open(address + "?deleted=true")
		checkPage(t, trash, 200, "<summary>Delete for good</summary>", "You cannot undo this.")
		ends := regexp.MustCompile(`<summary>Delete for good</summary><form method="post" action="([^"]*)"`).FindStringSubmatch(trash.Text())
		if ends == nil {
			t.Errorf("%s has no form that purges it", address)
			continue
		}
		a := p.send(ends[1], formTo(t, trash, ends[1]))
		if a.Code == 422 {
			checkPage(t, a, 422, `href="`+address+`?deleted=true">Cancel`)
			a = p.send(ends[1], all(a, ends[1]))
		}
		if to := a.Header.Get("Location"); !strings.HasPrefix(to, list+"?") || !strings.Contains(to, "deleted=true") {
			t.Errorf("%s: %d, to %q\n%s", address, a.Code, to, regexp.MustCompile(`class="error"[^<]*`).FindString(a.Text()))
			continue
		}
		p.follows(a)
		if a := p.open(address + "?deleted=true"); a.Code != 404 {
			t.Errorf("%s after the purge: got %d, want 404", address, a.Code)
		}
	}
}

// TestAdministratorIsCreatedByForm creates an administrator through forms.
func TestAdministratorIsCreatedByForm(t *testing.T) {
	t.Parallel()
	_, acme, cookie := rich(t, nil)
	p := person{t, acme, cookie}
	form := p.open("/do/users.create")
	checkPage(t, form, 200, `name="roles" value="sales"`)
	if n := strings.Count(form.Text(), `name="roles" value="admin"`); n != 1 {
		t.Errorf("the role of administrators is offered %d times, want once", n)
	}
	if page := p.open("/roles/admin"); page.Code != 200 || !strings.Contains(page.Text(), "Administrator") || strings.Contains(page.Text(), "/do/roles.") {
		t.Errorf("the built-in role: got %d, want a page without forms", page.Code)
	}
	change := formTo(t, p.open("/users/3"), "/do/users.update")
	change.Add("roles", "admin")
	checkPage(t, p.follows(p.send("/do/users.update", change)), 200, "User updated", `name="roles" value="admin" checked`)
}

// TestPermissionsOfAPersonByForm checks that the form of a person has only the person's own permissions, and that
// saving it unchanged does not add those of roles.
func TestPermissionsOfAPersonByForm(t *testing.T) {
	t.Parallel()
	_, acme, cookie := rich(t, nil)
	p := person{t, acme, cookie}
	p.api(http.MethodPost, "/api/roles", map[string]any{"name": "clerk", "permissions": []string{"contacts", "manage_forms"}})
	made := p.api(http.MethodPost, "/api/users", map[string]any{"name": "Cy", "email": "cy@example.com", "roles": []string{"clerk"}, "permissions": []string{"manage_files"}})
	id := fmt.Sprint(made.Field("id"))
	own := func() string {
		var people struct{ Results []json.RawMessage }
		if err := json.Unmarshal([]byte(p.api(http.MethodGet, "/api/users?filters[id]="+id, nil).DataJSON()), &people); err != nil || len(people.Results) != 1 {
			t.Fatalf("%v: %d people", err, len(people.Results))
		}
		return string(people.Results[0])
	}
	before := own()
	change := formTo(t, p.open("/users/"+id), "/do/users.update")
	if got := change["permissions"]; !slices.Equal(got, []string{"manage_files"}) || !strings.Contains(before, `"own_permissions":["manage_files"]`) {
		t.Errorf("the form has the permissions %q, want the own ones of %s", got, before)
	}
	checkPage(t, p.follows(p.send("/do/users.update", change)), 200, "User updated")
	if after := own(); after != before {
		t.Errorf("saved unchanged, the person is %s, want %s", after, before)
	}
	change = formTo(t, p.open("/users/"+id), "/do/users.update")
	change["permissions"] = []string{"manage_reports"}
	checkPage(t, p.follows(p.send("/do/users.update", change)), 200, "User updated", `name="permissions" value="manage_reports" checked`)
	if after := own(); !strings.Contains(after, `"own_permissions":["manage_reports"]`) {
		t.Errorf("the person is %s, want own_permissions = [manage_reports]", after)
	}
}

// TestDefinitionsByForm creates a custom object with fields and a record of it through forms.
func TestDefinitionsByForm(t *testing.T) {
	t.Parallel()
	_, acme, cookie := rich(t, nil)
	p := person{t, acme, cookie}
	page := p.open("/do/custom_objects.create")
	action := "/do/custom_objects.create"
	if page.Code != 200 {
		action = "/do/objects.create"
		page = p.open(action)
	}
	values := formTo(t, page, action)
	for name, value := range map[string]string{"name": "wheel", "label": "Wheel", "label_plural": "Wheels", "schema.0.title": "Size in cm", "schema.0.type": "Number", "schema.1.title": "Sold", "schema.1.key": "sold", "schema.1.type": "Boolean", "schema.2.title": "Price", "schema.2.type": "Money"} {
		values.Set(name, value)
	}
	values.Set("schema.1.key", "size_in_cm")
	checkPage(t, p.send(action, values), 422, "Two fields have the key")
	values.Set("schema.1.key", "sold")
	page = p.follows(p.send(action, values))
	checkPage(t, page, 200, "Size in cm", "size_in_cm", "they are not checked, summed or compared as numbers", "Price (Money)")
	values = formTo(t, page, "/do/objects.update")
	for name := range values {
		if row, is := strings.CutSuffix(name, ".key"); is && values.Get(name) == "price" {
			values.Set(row+".type", "Number")
		}
	}
	if page = p.follows(p.send("/do/objects.update", values)); page.Code != 200 || strings.Contains(page.Text(), "compared as numbers") {
		t.Errorf("without a custom type: got %d, want a page without the note: %s", page.Code, page.Text())
	}
	values = formTo(t, p.open("/do/records.create?path.name=wheel"), "/do/records.create")
	values.Set("values.size_in_cm", "66")
	values.Set("values.sold", "true")
	page = p.follows(p.send("/do/records.create", values))
	checkPage(t, page, 200, `value="66"`)
	checkPage(t, p.open("/custom/objects/wheel/records"), 200, "Size in cm", "66", "Yes")
}

// TestFaultsStandBesideTheirFields checks that faults are shown beside their fields and with the titles of the
// organization, also for defined fields and the rows of a schema.
func TestFaultsStandBesideTheirFields(t *testing.T) {
	t.Parallel()
	_, acme, cookie := rich(t, nil)
	p := person{t, acme, cookie}
	p.api(http.MethodPost, "/api/custom/objects", map[string]any{"name": "visit", "label": "Visit", "label_plural": "Visits", "schema": map[string]any{
		"began": map[string]any{"title": "Begin of it", "type": "DateTime"}, "size": map[string]any{"title": "Frame size", "type": "Number", "required": true}, "place": map[string]any{"title": "Where", "type": "GeoPoint"},
	}})
	const action = "/do/records.create"
	form := p.open(action + "?path.name=visit")
	checkPage(t, form, 200, `>Begin of it (UTC)</label>`, `name="values.began" value="" type="datetime-local"`)
	values := formTo(t, form, action)
	values.Set("values.began", "tomorrow")
	values.Set("values.size", "large")
	refused := p.send(action, values)
	checkPage(t, refused, 422, `<p id="records-create-values-size-said" class="error">Frame size must be a number.</p>`, `name="values.size" value="large" type="text" step="any" required aria-invalid="true" aria-describedby="records-create-values-size-said"`,
		`<p id="records-create-values-began-said" class="error">Begin of it must be a time like 2024-05-17T08:30:00Z.</p>`, `name="values.began" value="tomorrow" type="text"`)
	if strings.Contains(refused.Text(), `id="records-create-values-said" class="error"`) {
		t.Error("the faults of parts are repeated at the whole")
	}
	values = formTo(t, refused, action)
	values.Set("values.size", "")
	values.Set("_has.values.place", "json")
	values.Set("values.place", "{")
	checkPage(t, p.send(action, values), 422, "Where must be JSON: ")
	values.Del("values.place")
	values.Set("values.size", "")
	checkPage(t, p.send(action, values), 422, `class="error">Frame size is required.</p>`)
	for typed, stored := range map[string]string{"2026-05-17T08:30": "2026-05-17T08:30:00.000Z", "2026-05-17T08:30:21": "2026-05-17T08:30:21.000Z", "2026-05-17T08:30:21.5": "2026-05-17T08:30:21.500Z"} {
		values = formTo(t, form, action)
		values.Set("values.began", typed)
		values.Set("values.size", "7")
		values.Set("_once", typed)
		made := p.send(action, values)
		checkPage(t, p.follows(made), 200, `value="`+typed+`" type="datetime-local"`)
		address := strings.Split(made.Header.Get("Location"), "?")[0]
		if got := p.api(http.MethodGet, "/api"+address, nil).Field("values").(map[string]any)["began"]; got != stored {
			t.Errorf("%s is stored as %v, want a value of the field's type", typed, got)
		}
	}

	values = formTo(t, p.open("/custom/objects/visit"), "/do/objects.update")
	for i := range 3 {
		if n := fmt.Sprintf("schema.%d.", i); values.Get(n+"title") == "Frame size" {
			values.Set(n+"type", "Text")
		}
	}
	checkPage(t, p.send("/do/objects.update", values), 422, `-said">Frame size: 3 records would lack it or have an invalid value; "Even if it breaks something" changes it all the same.`)
}

// TestFolderLinksToItsContents checks that the page of a folder links to its files and folders by name, shows times and
// people readably, and does not offer the folder as its own parent.
func TestFolderLinksToItsContents(t *testing.T) {
	t.Parallel()
	_, acme, cookie := rich(t, nil)
	p := person{t, acme, cookie}
	page := p.open("/files/folders/66f000000000000000000001")
	checkPage(t, page, 200, `<a href="/files/66f100000000000000000001"><span dir="auto">price-list.pdf</span></a>`, `<a href="/files/folders/66f000000000000000000002"><span dir="auto">Spring</span></a>`, `<dt>User</dt><dd><a href="/users/4"><span dir="auto">Deniz Example</span></a>`,
		`<option value="66f000000000000000000002">Spring`)
	for _, never := range []string{"<dt>Mimetype", "<dt>Org", `<option value="66f000000000000000000001"`} {
		if strings.Contains(page.Text(), never) {
			t.Errorf("the page has %s, want it without", never)
		}
	}
	checkPage(t, p.open("/files/66f100000000000000000001"), 200, `<dt>Created at</dt><dd><time datetime="`)
	page = p.open("/files/folders")
	if checkPage(t, page, 200, `<a href="/files/folders/66f000000000000000000001"><span dir="auto">Catalogue</span></a>`); strings.Contains(page.Text(), `>66f0`) {
		t.Error("a folder is shown by its identifier, want its name")
	}
}

// TestManyRecordsAreSearched checks that a form searches records that are too many to list, and that the audit and the
// overview consider all of them.
func TestManyRecordsAreSearched(t *testing.T) {
	t.Parallel()
	_, acme, cookie := rich(t, nil)
	p := person{t, acme, cookie}
	var lines []string
	for i := range 230 {
		lines = append(lines, line(t, map[string]any{"kind": "contact", "id": fmt.Sprintf("66a1%020x", i), "first_name": "Many", "last_name": fmt.Sprintf("Number%d", i), "email": fmt.Sprintf("many%d@example.com", i)}),
			line(t, map[string]any{"kind": "user", "id": 1000 + i, "name": fmt.Sprintf("Colleague %d", i), "email": fmt.Sprintf("colleague%d@example.com", i)}))
	}
	acme.Import(t, lines...)
	const path, action = "/files/66f100000000000000000001", "/do/files.update"
	page := p.open(path)
	checkPage(t, page, 200, `<select id="files-update-contact_id" name="contact_id"`, `name="_find.contact_id"`)
	values := formTo(t, page, action)
	values.Set("_find.contact_id", "Number217")
	values.Set("_more", "contact_id")
	page = p.send(action, values)
	checkPage(t, page, 200, `selected>Many Number217 (many217@example.com)`)
	p.follows(p.send(action, formTo(t, page, action)))
	checkPage(t, p.open(path), 200, `selected>Many Number217 (many217@example.com)`)
	values.Set("_find.contact_id", "nobody at all")
	checkPage(t, p.send(action, values), 200, "Nothing has these words.")
	_, last := acme.Person(t, "last@example.com", func(n *control.NewUser) { n.Name, n.Permissions = "Zacharias", []string{"contacts"} })
	person{t, acme, last}.api(http.MethodPost, "/api/contacts", map[string]any{"email": "made@example.com"})
	checkPage(t, p.open("/audit"), 200, `<span dir="auto">Zacharias</span>`)
}

// TestSecretIsShownOnce checks that a new key is shown on the page after its creation and on no other.
func TestSecretIsShownOnce(t *testing.T) {
	t.Parallel()
	g, acme, cookie := rich(t, nil)
	p := person{t, acme, cookie}
	account := acme.Do(t, http.MethodPost, "/api/service-accounts", gatewaytest.Cookie(cookie), gatewaytest.JSON(map[string]any{"name": "shop", "permissions": []string{"contacts"}})).Field("id").(string)
	values := formTo(t, p.open("/do/keys.create"), "/do/keys.create")
	values.Set("name", "shop")
	values.Set("kind", "server_full")
	values.Set("account", account)
	made := p.send("/do/keys.create", values)
	checkPage(t, made, 200, "This is shown once", `<div class="card facts"><dl><dt>Token</dt>`)
	token := regexp.MustCompile(`tnt_server_full_[A-Za-z0-9_-]{20,}`).FindString(made.Text())
	if a := acme.Get(t, token, "/api/contacts?per_page=1"); a.Code != 200 {
		t.Errorf("the key does not work: %d %s", a.Code, a.Text())
	}
	p.crawl(func(path string, page *gatewaytest.Answer) {
		if strings.Contains(page.Text(), token) {
			t.Errorf("%s shows the key", path)
		}
	})
	if strings.Contains(g.Log.String(), token) {
		t.Error("the log shows the key")
	}
}

// TestPagesFollowRights checks that people without the right to an operation see neither its page nor its form, and
// cannot send the form.
func TestPagesFollowRights(t *testing.T) {
	t.Parallel()
	_, acme, admin := rich(t, nil)
	_, cookie := acme.Person(t, "clerk@example.com", func(n *control.NewUser) { n.Name, n.Permissions = "Clerk", []string{"contacts"} })
	p := person{t, acme, cookie}
	home := p.open("/")
	checkPage(t, home, 200, "Contacts", "Clerk")
	whole := person{t, acme, admin}.open("/")
	checkPage(t, whole, 200, `<td><span dir="auto">Clerk</span></td>`) // who signed in, not how the audit names them
	if strings.Contains(whole.Text(), "<h2>More</h2>") {
		t.Error("the navigation has pages without a group and an icon, want both for every tag; add it to site/navigation.go")
	}
	for _, hidden := range []string{`href="/keys"`, `href="/users"`, `href="/audit"`, `href="/custom-reports"`} {
		if strings.Contains(home.Text(), hidden) {
			t.Errorf("the navigation has %s", hidden)
		}
	}
	p.crawl(func(path string, page *gatewaytest.Answer) {
		if page.Code != 200 {
			t.Errorf("a link leads to %s, which answers %d", path, page.Code)
		}
		if path == "/docs" { // the reference lists all operations to everybody
			page.Body = nil
		}
	})
	checkPage(t, p.open("/keys"), 403, "You may not see this", "permission Manage keys")
	checkPage(t, p.open("/do/keys.create"), 403, "You may not do this")
	checkPage(t, p.send("/do/keys.create", formTo(t, person{t, acme, admin}.open("/do/keys.create"), "/do/keys.create")), 403, "You may not do this")
	checkPage(t, p.open("/do/nothing"), 404, "There is no such page")
	checkPage(t, p.open("/do/contacts.list"), 404, "There is no such page")
	checkPage(t, p.open("/contacts/66a0000000000000000000ff"), 404, "There is no such page")
}

// TestPagesBelongToOneOrganization checks that a session opens no page of another organization, and that the answer
// does not reveal whether the page exists there.
func TestPagesBelongToOneOrganization(t *testing.T) {
	t.Parallel()
	g, _, cookie := rich(t, nil)
	other := g.Org(t, "other")
	for _, path := range []string{"/contacts", "/contacts/66a000000000000000000001", "/do/contacts.create", "/keys?sort=name"} {
		theirs := other.Page(t, path, gatewaytest.Cookie(cookie))
		nobodys := g.Page(t, http.MethodGet, "nobody.localhost", path, gatewaytest.Cookie(cookie))
		if theirs.Code != http.StatusSeeOther || !strings.HasPrefix(theirs.Header.Get("Location"), "/sign-in") || theirs.Header.Get("Location") != nobodys.Header.Get("Location") || theirs.Code != nobodys.Code || theirs.Text() != nobodys.Text() {
			t.Errorf("%s: %d %s, of nobody %d %s", path, theirs.Code, theirs.Header.Get("Location"), nobodys.Code, nobodys.Header.Get("Location"))
		}
	}
}

// TestListsByForm checks that filters, columns, order and pages are in the address, and that the page shows the same
// call with curl.
func TestListsByForm(t *testing.T) {
	t.Parallel()
	_, acme, cookie := rich(t, nil)
	p := person{t, acme, cookie}
	a := p.open("/contacts?sort=-email&_field=country&_op=&_value=DE")
	if got, _ := url.QueryUnescape(a.Header.Get("Location")); a.Code != http.StatusSeeOther || got != "/contacts?filters[country]=DE&sort=-email" {
		t.Fatalf("%d %s", a.Code, got)
	}
	checkPage(t, p.follows(a), 200, "Country is DE", `aria-sort="descending"`, "x-service-token: $KEY", "/api/contacts?filters[country]=DE&sort=-email")
	own := p.follows(p.open("/contacts?_field=age&_op=gt&_value=30&_columns=age&_columns=email"))
	checkPage(t, own, 200, "Age is more than 30")
	if regexp.MustCompile(`<th[^>]*>(<a[^>]*>)?City<`).MatchString(own.Text()) {
		t.Error("a column that was not chosen is shown")
	}
	checkPage(t, p.open("/contacts?filters[frame]=M"), 200, "Frame size is M")
	if strings.Contains(p.open("/contacts").Text(), `<option value="passport_number"`) {
		t.Error("a filter on an encrypted field is offered")
	}
	first := p.open("/contacts?per_page=10")
	checkPage(t, first, 200, "page 1 of 4", "Next page")
	checkPage(t, p.open("/contacts?per_page=10&page=4"), 200, "page 4 of 4", "Previous page")
	checkPage(t, p.open("/contacts?sort=nothing"), 422, "Sort must name", `href="/contacts">Clear search and filters`)
	checkPage(t, p.open("/contacts?filters[nothing]=1"), 422, "Remove the filter: Nothing is 1")
	// An invalid value is reported on the page where the filter can be removed, and the other filters stay.
	checkPage(t, p.open("/contacts?filters[age][gt]=abc&filters[city]=Bonn"), 422, "<h1>Contacts</h1>", "Age must be a number.",
		`href="/contacts?filters%5Bcity%5D=Bonn" aria-label="Remove the filter: Age is more than abc"`)
	checkPage(t, p.open("/contacts?filters[city]=Nowhere&q=x"), 200, "Nothing matches.", `href="/contacts">Clear search and filters`)
	checkPage(t, p.open("/campaigns/count?%zz"), 400, "The address is not valid")
}

// TestValuesHaveTitles checks that lists, pages of records and filters show values with the titles that forms have for
// them, and that filters accept the titles.
func TestValuesHaveTitles(t *testing.T) {
	t.Parallel()
	_, acme, cookie := rich(t, nil)
	p := person{t, acme, cookie}
	checkPage(t, p.open("/do/keys.create"), 200, `<option value="server_full">Server full</option>`)
	keys := p.open("/keys")
	checkPage(t, keys, 200, `<td><span dir="auto">Server full</span></td>`, `<td><span dir="auto">Active</span></td>`)
	checkPage(t, p.open(regexp.MustCompile(`/keys/[0-9a-f]{24}`).FindString(keys.Text())), 200, `<dt>Kind</dt><dd><span dir="auto">Server full</span>`)
	checkPage(t, p.open("/custom-reports"), 200, `<td><span dir="auto">Bar</span></td>`, `<option value="title">Title</option>`)
	checkPage(t, p.open("/import"), 200, `<span dir="auto">Refused</span>`, `<span dir="auto">CSV</span>`, `<span dir="auto">Contacts</span>`, "Only check</th>")
	checkPage(t, p.open(regexp.MustCompile(`/import/[0-9a-f]{24}`).FindString(p.open("/import").Text())), 200, `<dt>What the rows become</dt><dd><span dir="auto">Contacts</span>`)
	checkPage(t, p.open("/audit"), 200, `<option>Denied</option>`)
	filtered := p.open("/audit?_field=outcome&_op=&_value=" + "+ok+")
	checkPage(t, p.follows(filtered), 200, "Outcome is OK", "/api/audit?filters[outcome]=ok")
	checkPage(t, p.follows(p.open("/users?_field=active&_op=&_value=no")), 200, "May sign in is No", "Nothing matches.", "filters[active]=false")
	// The page of compliance shows contacts by name, and what they lack with the titles of the settings.
	p.api(http.MethodPut, "/api/compliance/settings", map[string]any{"enabled": true, "lesson_tags_any": []string{"safety"}})
	name := nameOfContact(p, "66a000000000000000000002")
	checkPage(t, p.open("/compliance/contacts"), 200, `<td><a href="/contacts/66a000000000000000000002"><span dir="auto">`+name+`</span></a></td>`, `<li dir="auto">Lesson tags (any)</li>`)
	checkPage(t, p.open("/compliance/contacts/66a000000000000000000002"), 200, `<a href="/contacts/66a000000000000000000002"><span dir="auto">`+name, "Lesson tags (any)")
}

func nameOfContact(p person, id string) string {
	p.t.Helper()
	a := p.api(http.MethodGet, "/api/contacts/"+id, nil)
	return fmt.Sprint(a.Field("first_name"), " ", a.Field("last_name"))
}

// TestCurlHasTheTypedValues checks that the curl command below a refused or reloaded form has the values and the query
// that were typed, without secrets.
func TestCurlHasTheTypedValues(t *testing.T) {
	t.Parallel()
	_, acme, cookie := rich(t, nil)
	p := person{t, acme, cookie}
	call := func(a *gatewaytest.Answer) string {
		return html.UnescapeString(regexp.MustCompile(`(?s)<details class="curl">.*?<code>(.*?)</code>`).FindStringSubmatch(a.Text())[1])
	}
	page := p.open("/do/contacts.create")
	values := formTo(t, page, "/do/contacts.create")
	if values.Get("_has.fields.passport_number") != "secret" {
		t.Fatalf("the form has no secret field: %v", values)
	}
	for name, value := range map[string]string{"email": "it's none", "first_name": "Ada", "fields.age": "36", "fields.passport_number": "X123"} {
		values.Set(name, value)
	}
	for code, again := range map[int]string{422: "", 200: "curl"} {
		if values.Del("_more"); again != "" {
			values.Set("_more", again)
		}
		a := p.send("/do/contacts.create", values)
		if got := call(a); a.Code != code || !strings.Contains(got, `"email":"it'\''s none"`) || !strings.Contains(got, `"fields":{"age":36}`) || !strings.Contains(got, `"first_name":"Ada"`) || strings.Contains(got, "passport") || strings.Contains(got, "X123") {
			t.Errorf("%d %s", a.Code, got)
		}
	}
	wrong := p.send("/do/passwords.change", url.Values{"current": {"none of mine"}, "_has.current": {"secret"}, "new": {"short"}, "_has.new": {"secret"}})
	if got := call(wrong); wrong.Code != 422 || strings.Contains(got, "none of mine") || strings.Contains(got, "short") {
		t.Errorf("%d %s", wrong.Code, got)
	}
	if got := call(p.open("/do/imports.create?query.as=contacts")); !strings.Contains(got, "/api/import?as=contacts") {
		t.Error(got)
	}
}

// TestRecordsAreNamedByDefinedFields checks that lists and pages name a record by a field that the organization
// defined.
func TestRecordsAreNamedByDefinedFields(t *testing.T) {
	t.Parallel()
	_, acme, cookie := rich(t, nil)
	p := person{t, acme, cookie}
	list := p.open("/custom/objects/bike/records")
	checkPage(t, list, 200, "<h1>Bikes</h1>", `href="/custom/objects/bike/records/66b200000000000000000001"><span dir="auto">Alster</span>`)
	if regexp.MustCompile(`<th[^>]*>(<a[^>]*>)?Object<`).MatchString(list.Text()) {
		t.Error("a column repeats the value in the address for each record")
	}
	checkPage(t, p.open("/custom/objects/bike/records/66b200000000000000000001"), 200, "<h1 dir=\"auto\">Alster</h1>")
	checkPage(t, p.open("/do/records.create?path.name=bike"), 200, `Model <span class="must">required</span>`)
	checkPage(t, p.open("/form/collections/66b000000000000000000001/submissions/66b300000000000000000001"), 200, "<h1 dir=\"auto\">Request 1</h1>")
}

// TestRecordsAreFound finds records by their words, also records of custom objects and forms, if the person may see
// them.
func TestRecordsAreFound(t *testing.T) {
	t.Parallel()
	_, acme, cookie := rich(t, nil)
	p := person{t, acme, cookie}
	checkPage(t, p.open("/find?q=Alster"), 200, `<h2><a href="/custom/objects/bike/records?q=Alster">Bikes</a></h2>`, `href="/custom/objects/bike/records/66b200000000000000000001" dir="auto">Alster</a>`)
	checkPage(t, p.open("/custom/objects/bike/records?q=Alster"), 200, "1 entry")
	checkPage(t, p.open("/custom/objects/bike/records?sort=price"), 200, `aria-sort="ascending"><a href="/custom/objects/bike/records?sort=-price"`)
	checkPage(t, p.open("/find?q=aLSTER"), 200, `href="/custom/objects/bike/records/66b200000000000000000001" dir="auto">Alster</a>`)
	for words, address := range map[string]string{"profile": "/me", "sessions": "/me/sessions", "verification": "/audit/verification", "keys": "/keys"} {
		checkPage(t, p.open("/find?q="+words), 200, `<h2>Pages</h2>`, `<a href="`+address+`"`, "The same call by curl")
	}
	checkPage(t, p.open("/find?q=bike"), 200, `href="/custom/objects/bike" dir="auto">`)
	_, clerk := acme.Person(t, "clerk@example.com", func(n *control.NewUser) { n.Name, n.Permissions = "Clerk", []string{"contacts"} })
	if a := (person{t, acme, clerk}).open("/find?q=Alster"); a.Code != 200 || strings.Contains(a.Text(), "/custom/objects") {
		t.Errorf("%d %s", a.Code, a.Text())
	}
}

// TestDurationsHaveUnits checks that forms take durations in units of people for operations that take seconds.
func TestDurationsHaveUnits(t *testing.T) {
	t.Parallel()
	_, acme, cookie := rich(t, nil)
	p := person{t, acme, cookie}
	account := p.api(http.MethodPost, "/api/service-accounts", map[string]any{"name": "spans", "permissions": []string{"contacts"}}).Field("id")
	page := p.open("/do/keys.create")
	checkPage(t, page, 200, ">Allowed addresses", `name="_unit.expires_in"`, `<option value="86400" selected>days`, "Leave it empty if it should never end.")
	for _, c := range []struct {
		typed, unit string
		lasts       time.Duration // 0 for ever, negative if it is refused
	}{{"3", "3600", 3 * time.Hour}, {"2", "86400", 48 * time.Hour}, {"", "60", 0}, {"2.5", "60", -1}, {"two", "60", -1}, {"9000000000000000000", "86400", -1}, {"7", "x", 7 * time.Second}} {
		sent := formTo(t, page, "/do/keys.create")
		sent.Set("name", "key "+c.typed+c.unit)
		sent.Set("kind", "server_full")
		sent.Set("account", fmt.Sprint(account))
		sent.Set("expires_in", c.typed)
		sent.Set("_unit.expires_in", c.unit)
		sent.Set("_once", c.typed+"-"+c.unit)
		a := p.send("/do/keys.create", sent)
		if c.lasts < 0 {
			checkPage(t, a, 422, `value="`+c.typed+`"`, `<option value="`+c.unit+`" selected>`, "Lasts must be")
			continue
		}
		checkPage(t, a, 200, "This is shown once")
		key := p.api(http.MethodGet, "/api/keys?filters[name]="+url.QueryEscape("key "+c.typed+c.unit), nil).Field("results").([]any)[0].(map[string]any)
		began, _ := time.Parse(time.RFC3339, fmt.Sprint(key["created_at"]))
		if ends, err := time.Parse(time.RFC3339, fmt.Sprint(key["expires_at"])); (err != nil) != (c.lasts == 0) || err == nil && ends.Sub(began).Round(time.Second) != c.lasts {
			t.Errorf("%s of %s s: %v to %v", c.typed, c.unit, key["created_at"], key["expires_at"])
		}
	}
	checkPage(t, p.open("/custom-reports/66d000000000000000000001/shares"), 200, `name="expires_in" value="1"`, `<option value="3600" selected>hours`)
}

// TestAuditSaysWhoAndWhen checks that the audit shows subjects by name, and times.
func TestAuditSaysWhoAndWhen(t *testing.T) {
	t.Parallel()
	_, acme, cookie := rich(t, nil)
	p := person{t, acme, cookie}
	p.send("/do/contacts.delete", formTo(t, p.open("/contacts/66a000000000000000000001"), "/do/contacts.delete"))
	checkPage(t, p.open("/audit"), 200, "Delete a contact", "<td><span dir=\"auto\">Root</span></td>", "Created at", "<time datetime=")
}

// TestAuditIsVerified checks the page that verifies the audit log.
func TestAuditIsVerified(t *testing.T) {
	t.Parallel()
	_, acme, cookie := rich(t, nil)
	p := person{t, acme, cookie}
	checkPage(t, p.open("/audit"), 200, `href="/audit/verification">Verification`)
	checkPage(t, p.open("/audit/verification"), 200, "<h1 dir=\"auto\">Verify the audit log</h1>", "Checks whether records of the audit log were changed", "<dt>Intact</dt><dd><span dir=\"auto\">Yes", "<dt>Unsealed</dt>")
}

// TestUserOffersOnlyTheOtherState checks that the page of a user offers to deactivate or to reactivate, not both.
func TestUserOffersOnlyTheOtherState(t *testing.T) {
	t.Parallel()
	_, acme, cookie := rich(t, nil)
	p := person{t, acme, cookie}
	for _, names := range [][2]string{{"deactivate", "reactivate"}, {"reactivate", "deactivate"}} {
		page := p.open("/users/2")
		if strings.Contains(page.Text(), "/do/users."+names[1]) {
			t.Errorf("the page offers to %s a user in that state", names[1])
		}
		p.follows(p.send("/do/users."+names[0], formTo(t, page, "/do/users."+names[0])))
	}
}

// TestWhoMayCallWhat opens the explanation of rights from the page of a person, without the name of an operation.
func TestWhoMayCallWhat(t *testing.T) {
	t.Parallel()
	_, acme, cookie := rich(t, nil)
	p := person{t, acme, cookie}
	checkPage(t, p.open("/users/2"), 200, `href="/authz/explain?subject=user%3A2">What it may call`)
	checkPage(t, p.open("/authz/explain?subject=user%3A2"), 200, "<h1 dir=\"auto\">Explain what a key or a user may call</h1>", `<option value="contacts.list">Contacts: List contacts`, `<option value="user:2" selected>`)
	checkPage(t, p.open("/authz/explain?subject=user%3A2&operation=keys.create"), 200, "<dt>Allowed</dt>")
	checkPage(t, p.open("/authz/explain?subject=nobody&operation=nothing"), 422, `value="nothing"`, "Subject must have the form")
	checkPage(t, p.open("/files/folders/66f000000000000000000001"), 200, `href="/files?filters%5Bfolder_id%5D=66f000000000000000000001">Files`)
}

// TestSharesAreWithdrawn withdraws the shares of a report one at a time, with the button of each row.
func TestSharesAreWithdrawn(t *testing.T) {
	t.Parallel()
	_, acme, cookie := rich(t, nil)
	p := person{t, acme, cookie}
	const report = "/custom-reports/66d000000000000000000001"
	for range 2 {
		if a := acme.Do(t, http.MethodPost, "/api"+report+"/share", gatewaytest.Cookie(cookie), gatewaytest.JSON(map[string]any{})); a.Code != 200 {
			t.Fatal(a.Text())
		}
	}
	shares := p.open(report + "/shares")
	checkPage(t, shares, 200, "<h1 dir=\"auto\">Contacts by country: shares</h1>", "2 entries", "Issued by", "<span dir=\"auto\">Root</span>")
	checkPage(t, p.follows(p.send("/do/reports.revoke_share", formTo(t, shares, "/do/reports.revoke_share"))), 200, "Share deleted", "1 entry")
	run := p.open("/custom-reports/66d000000000000000000003/run?per_page=2")
	checkPage(t, run, 200, "<h1 dir=\"auto\">Service requests by month: run</h1>", "3 entries, page 1 of 2", "Next page")
	if regexp.MustCompile(`>\d{4}-\d\d<`).MatchString(run.Text()) {
		t.Error("months are not formatted as on the shared page")
	}
	if strings.Contains(run.Text(), "Rows on a page") || regexp.MustCompile(`\.\d{5}`).MatchString(run.Text()) {
		t.Error("the page asks for a page number, or shows figures of paging")
	}
}

// TestLockedInputsAreFixedByForm checks that the form that shares a report has a control for each locked input, and
// that the list of shares shows their values.
func TestLockedInputsAreFixedByForm(t *testing.T) {
	t.Parallel()
	_, acme, cookie := rich(t, nil)
	p := person{t, acme, cookie}
	made := acme.Do(t, http.MethodPost, "/api/custom-reports", gatewaytest.Cookie(cookie), gatewaytest.JSON(map[string]any{
		"title": "Of a city", "class": "Contacts", "query": map[string]any{"fields": []string{"city"}, "filter": map[string]any{"city": map[string]any{"input": "city"}, "country": map[string]any{"input": "country"}}},
		"input": map[string]any{"city": map[string]any{"rule": "locked", "label": "Home town", "choices": []string{"Lyon", "Torino"}}, "country": map[string]any{"rule": "editable", "label": "Land"}},
	}))
	if made.Code != 200 {
		t.Fatal(made.Text())
	}
	report := "/custom-reports/" + fmt.Sprint(made.Field("id"))
	checkPage(t, p.open(report), 200, `<a class="button" href="`+report+`/shares">Share</a>`)
	page := p.open(report + "/shares")
	checkPage(t, page, 200, "Home town</label>", `<select id="reports-share-params-city" name="params.city">`, `<option value="Torino">`)
	if strings.Contains(page.Text(), "params.country") || strings.Contains(p.open(report).Text(), `action="/do/reports.share"`) {
		t.Error("the form has a control for an input that readers set, or another page has the form too")
	}
	values := formTo(t, page, "/do/reports.share")
	values.Set("params.city", "Torino")
	once := p.send("/do/reports.share", values)
	checkPage(t, once, 200, "This is shown once", "<span data-copy", `<a href="`+report+`/shares">Continue</a>`)
	checkPage(t, p.open(report+"/shares"), 200, ">Fixed values</th>", "<dt>City</dt><dd><span dir=\"auto\">Torino</span></dd>")
	run := p.open(report + "/run?params[city]=Lyon")
	checkPage(t, run, 200, `name="params[country]"`, `<option value="Lyon" selected>`, ">Lyon</span>")
	checkPage(t, p.open(report+"/run?params[city]=Ulm"), 422, "Home town", `<option value="Ulm" selected>`)
	// Controls of times are datetime-local in UTC.
	of := func(rule string) map[string]any {
		return map[string]any{"rule": rule, "type": "datetime", "value": "2024-05-17T10:00:00Z"}
	}
	timed := p.api(http.MethodPost, "/api/custom-reports", map[string]any{
		"title": "Since", "class": "Contacts", "query": map[string]any{"fields": []string{"city"}, "filter": map[string]any{"created_at": map[string]any{"gte": map[string]any{"input": "since"}, "lt": map[string]any{"input": "until"}}}},
		"input": map[string]any{"since": of("locked"), "until": of("editable")},
	})
	report = "/custom-reports/" + fmt.Sprint(timed.Field("id"))
	const clock = `value="2024-05-17T10:00" type="datetime-local"`
	checkPage(t, p.open(report+"/run"), 200, "Since (UTC)</label>", `name="utc[since]" `+clock, `name="utc[until]" `+clock)
	checkPage(t, p.follows(p.open(report+"/run?utc[since]=2026-01-02T03:04&utc[until]=")), 200, `name="utc[since]" value="2026-01-02T03:04"`, `params[since]=2026-01-02T03`)
	page = p.open(report + "/shares")
	checkPage(t, page, 200, `name="params.since" `+clock)
	checkPage(t, p.send("/do/reports.share", formTo(t, page, "/do/reports.share")), 200, "This is shown once")
	checkPage(t, p.open(report+"/shares"), 200, `<time datetime="2024-05-17T10:00:00Z">`)
}

// TestImportByForm checks a file, imports it, and reads the result on the page of the import.
func TestImportByForm(t *testing.T) {
	t.Parallel()
	_, acme, cookie := rich(t, nil)
	p := person{t, acme, cookie}
	page := p.open("/do/imports.create")
	checkPage(t, page, 200, `enctype="multipart/form-data"`, `accept=".csv,.tsv,.json,.ndjson,.jsonl,.zip"`, "Only check", `<option value="contacts">Contacts</option>`, `<option value="records:bike">Records: Bike</option>`)
	upload := func(name, content string, fields map[string]string) *gatewaytest.Answer {
		var body bytes.Buffer
		w := multipart.NewWriter(&body)
		for field, value := range fields {
			_ = w.WriteField(field, value) // a buffer takes everything
		}
		part, err := w.CreateFormFile("file", name)
		if err != nil {
			t.Fatal(err)
		}
		_, _ = io.WriteString(part, content)
		_ = w.Close()
		return p.send("/do/imports.create", nil, gatewaytest.Body(w.FormDataContentType(), body.String()))
	}
	ended := func(a *gatewaytest.Answer) *gatewaytest.Answer {
		page := p.follows(a)
		for deadline := time.Now().Add(time.Minute); page.Header.Get("Refresh") != "" && time.Now().Before(deadline); time.Sleep(10 * time.Millisecond) {
			page = p.open(strings.Split(a.Header.Get("Location"), "?")[0])
		}
		return page
	}
	count := func() any {
		return acme.Do(t, http.MethodGet, "/api/contacts?per_page=1", gatewaytest.Cookie(cookie)).Field("count")
	}
	before := count()
	const csv = "email,first_name\nlin@example.com,Lin\nmoe@example.com,Moe\n"
	checkPage(t, ended(upload("people.csv", csv, map[string]string{"query.as": "contacts", "query.dry_run": "true", "query.key": ""})), 200, "Done", "<dt>Would be created</dt>", ">Import the file now")
	if after := count(); after != before {
		t.Errorf("contacts after a dry run = %v, want %v", after, before)
	}
	checkPage(t, ended(upload("people.csv", csv, map[string]string{"query.as": "contacts"})), 200, "Done", "<dt>Created</dt>", `<a href="/contacts">Contacts</a></li>`)
	checkPage(t, p.open("/contacts?filters[email]=moe@example.com"), 200, "Moe")
	checkPage(t, upload("people.exe", csv, nil), 422, "ends with .csv")
	checkPage(t, upload("people.csv", csv, nil), 422, "What the rows become is required for rows, for example contacts.")
	checkPage(t, p.open("/contacts"), 200, `href="/do/imports.create?query.as=contacts">Import a file`)
	checkPage(t, p.open("/do/imports.create?query.as=records%3Abike"), 200, `<option value="records:bike" selected>`)
	bad := ended(upload("people.csv", csv+"nobody,Moe\n", map[string]string{"query.as": "contacts"}))
	checkPage(t, bad, 200, `role="alert">Nothing was stored: 1 of 3 lines are bad.`, "<dt>Line 4</dt>", "<li dir=\"auto\">email must be a plain address such as name@example.com</li>")
	if strings.Contains(bad.Text(), "Import created") {
		t.Error("the page of an import that stored nothing says that it was made")
	}
	checked := ended(upload("people.csv", csv+"nobody,Moe\n", map[string]string{"query.as": "contacts", "query.dry_run": "true"}))
	checkPage(t, checked, 200, "<dt>Would be created</dt>")
	if strings.Contains(checked.Text(), "<dt>Created</dt>") {
		t.Error("a check that was refused says that something was created")
	}
	list := p.open("/import")
	checkPage(t, list, 200, "Refused", "Created at")
	if strings.Index(list.Text(), ">Refused</span>") > strings.Index(list.Text(), ">Done</span>") {
		t.Error("the list does not begin with the latest import")
	}
	// The options of the check are kept for the import.
	how := map[string]string{"query.as": "contacts", "query.dry_run": "true", "query.encoding": "windows-1252", "query.delimiter": "semicolon", "query.map": "Post=email\r\n\r\nTag=birthday:dd.mm.yyyy\r\n"}
	checked = ended(upload("leute.csv", "Post;Tag;Rest\nmueller@example.com;31.12.1980;\xfc\n", how))
	checkPage(t, checked, 200, "Done", "1980-12-31", ">Import the file now")
	link, _ := url.Parse(html.UnescapeString(regexp.MustCompile(`/do/imports\.create\?[^"]+`).FindString(checked.Text())))
	checkPage(t, p.open(link.String()), 200, `value="windows-1252"`, `value="semicolon"`, ">\nPost=email\nTag=birthday:dd.mm.yyyy</textarea>")
	checkPage(t, p.send("/do/imports.create", url.Values{}), 400, "The form did not arrive")
	for kind, form := range map[string]string{"text/plain": "email=x%40example.com", "application/x-www-form-urlencoded": "email=%zz"} {
		checkPage(t, p.send("/do/contacts.create", nil, gatewaytest.Body(kind, form)), 400, "The form did not arrive")
	}
	checkPage(t, p.open("/contacts?email=%zz"), 400, "The address is not valid")
	evil := p.send("/do/imports.create", nil, func(r *http.Request) {
		r.Header.Set("Content-Type", "multipart/form-data; boundary=x")
		r.Header.Set("Origin", "https://evil.example")
		body := "--x\r\nContent-Disposition: form-data; name=\"query.as\"\r\n\r\ncontacts\r\n--x\r\nContent-Disposition: form-data; name=\"file\"; filename=\"a.csv\"\r\n\r\n" + csv + "\r\n--x--\r\n"
		r.Body, r.ContentLength = io.NopCloser(strings.NewReader(body)), int64(len(body))
	})
	if evil.Code != http.StatusForbidden {
		t.Errorf("from another site: %d", evil.Code)
	}
}

// TestCampaignByForm creates a campaign with rows of conditions. Its page says how many contacts match.
func TestCampaignByForm(t *testing.T) {
	t.Parallel()
	_, acme, cookie := rich(t, nil)
	p := person{t, acme, cookie}
	values := formTo(t, p.open("/do/campaigns.create"), "/do/campaigns.create")
	for name, value := range map[string]string{"name": "Some", "filter.0.field": "country", "filter.0.op": "in", "filter.0.value": "DE, NL", "filter.1.field": "age", "filter.1.op": "gt", "filter.1.value": "30", "filter.2.field": "age", "filter.2.op": "lt", "filter.2.value": "90"} {
		values.Set(name, value)
	}
	page := p.follows(p.send("/do/campaigns.create", values))
	wanted := acme.Do(t, http.MethodGet, "/api/campaigns/count?filters[country][in][]=DE&filters[country][in][]=NL&filters[age][gt]=30&filters[age][lt]=90", gatewaytest.Cookie(cookie)).Field("count")
	checkPage(t, page, 200, "Campaign created", fmt.Sprintf(`Contacts who match</dt><dd><span class="number" dir="auto">%v<`, wanted))
	if fmt.Sprint(wanted) == "0" {
		t.Error("no contact matches, want some so that the test shows something")
	}
	sent := formTo(t, page, "/do/campaigns.update")
	if sent.Get("filter.1.value") != "30" && sent.Get("filter.0.value") != "30" && sent.Get("filter.2.value") != "30" {
		t.Errorf("the conditions are %v, want those that were typed", sent)
	}
	sent.Set("filter.0.field", "nothing")
	checkPage(t, p.send("/do/campaigns.update", sent), 422, "nothing")
	nested := acme.Do(t, http.MethodPost, "/api/campaigns", gatewaytest.Cookie(cookie), gatewaytest.JSON(map[string]any{"name": "Either", "filter": map[string]any{"or": []any{map[string]any{"country": "DE"}, map[string]any{"city": "Lyon"}}}}))
	if nested.Code == 200 { // a filter that rows cannot represent is kept as JSON
		page := p.open("/campaigns/" + nested.Field("id").(string))
		checkPage(t, page, 200, `"or"`)
		p.follows(p.send("/do/campaigns.update", formTo(t, page, "/do/campaigns.update")))
	}
}

// TestPagesStaySmall opens pages of an organization with as many records as it may have, and with long names in many
// scripts.
func TestPagesStaySmall(t *testing.T) {
	t.Parallel()
	_, acme, cookie := rich(t, nil)
	p := person{t, acme, cookie}
	fields := map[string]any{}
	for i := range 200 {
		fields[fmt.Sprintf("field_%d", i)] = map[string]any{"title": fmt.Sprintf("Field %d %s", i, strings.Repeat("ف", 100)), "type": "Text"}
	}
	names := []string{strings.Repeat("ن", 200), strings.Repeat("漢", 200), strings.Repeat("W", 200), strings.Repeat("e\u0301", 100), "\u202eevil\u202c <b>&amp;"}
	lines := []string{}
	add := func(kind string, values map[string]any) {
		values["kind"] = kind
		raw, err := json.Marshal(values)
		if err != nil {
			t.Fatal(err)
		}
		lines = append(lines, string(raw))
	}
	add("custom_object", map[string]any{"id": "66b1000000000000000000aa", "name": "wide", "label": "Wide", "label_plural": "Wides", "schema": fields})
	values := map[string]any{}
	for name := range fields {
		values[name] = strings.Repeat("x", 30)
	}
	for i := range 60 {
		add("record", map[string]any{"id": fmt.Sprintf("66b7%020d", i), "object": "wide", "values": values})
	}
	for i := range 500 {
		add("form_collection", map[string]any{"id": fmt.Sprintf("66b3%020d", i), "name": fmt.Sprintf("form_%d", i), "label": fmt.Sprintf("Form %d", i), "label_plural": fmt.Sprintf("Forms %d", i), "schema": map[string]any{}})
	}
	for i, name := range names {
		add("contact", map[string]any{"id": fmt.Sprintf("66a1%020d", i), "first_name": name, "last_name": name, "city": name})
		add("folder", map[string]any{"id": fmt.Sprintf("66f9%020d", i), "name": name})
	}
	for i := range 120 {
		add("file", map[string]any{"id": fmt.Sprintf("66fa%020d", i), "filename": fmt.Sprintf("plan %03d.pdf", i), "mimetype": "application/pdf", "folder_id": "66f9" + strings.Repeat("0", 20)})
	}
	acme.Import(t, lines...)
	folder := "/files/folders/66f9" + strings.Repeat("0", 20)
	checkPage(t, p.open(folder), 200, "120 files directly in it", "plan 000.pdf", "plan 049.pdf", "Next page")
	checkPage(t, p.open(folder+"?page=3&per_page=50"), 200, "plan 100.pdf", "plan 119.pdf", "Previous page")
	if text := p.open(folder).Text(); strings.Contains(text, "plan 050.pdf") || strings.Contains(text, "Previous page") {
		t.Errorf("the first page of the folder: %s", text)
	}
	acme.Person(t, "noor@example.com", func(n *control.NewUser) { n.Name = names[0] })
	for i := range map[bool]int{true: 100, false: 1000}[testing.Short()] {
		acme.KeyWith(t, func(k *control.NewKey) {
			k.Name, k.Expires = fmt.Sprintf("%.50s %d", names[i%len(names)], i), 48*time.Hour
		})
	}
	wide := acme.Do(t, http.MethodPost, "/api/custom-reports", gatewaytest.Cookie(cookie), gatewaytest.JSON(map[string]any{"title": "Wide", "class": "Records", "source": "wide", "query": map[string]any{
		"fields": []string{"field_0", "field_1", "field_2", "field_3"}, "filter": map[string]any{"field_5": "x", "field_6": "y", "field_7": "z"}, "sort": []string{"field_9", "-field_8"}}}))
	for _, path := range []string{"/custom-reports/" + wide.Field("id").(string), "/custom/objects/wide", "/custom/objects/wide/records", "/custom/objects/wide/records/66b7" + strings.Repeat("0", 20), "/do/records.create?path.name=wide", "/form/collections", "/contacts?sort=-created_at", "/contacts/66a1" + strings.Repeat("0", 20), "/files/folders", "/do/files.create", "/", "/keys", "/keys?sort=name&page=2&per_page=500", "/do/keys.create", "/users", "/find?q=" + url.QueryEscape("ن")} {
		page := p.open(path)
		checkPage(t, page, 200)
		for _, text := range regexp.MustCompile(`<(td|h1|h2|span|li|a)([^>]*)>[^<]*\p{Arabic}`).FindAllStringSubmatch(page.Text(), -1) {
			if !strings.Contains(text[2], ` dir="auto"`) && !strings.Contains(text[0], "\u2068") {
				t.Errorf("%s: the direction of %.200s is that of the page", path, text[0])
			}
		}
		var packed bytes.Buffer
		w := gzip.NewWriter(&packed)
		_, _ = w.Write(page.Body) // a buffer takes everything
		_ = w.Close()
		if packed.Len() > 100<<10 {
			t.Errorf("%s has %d bytes, %d compressed, want at most %d", path, len(page.Body), packed.Len(), 100<<10)
		}
	}
}

// TestReportByForm previews a report, stores it, and compares the charts of both.
func TestReportByForm(t *testing.T) {
	t.Parallel()
	_, acme, cookie := rich(t, nil)
	p := person{t, acme, cookie}
	page := p.open("/do/reports.create")
	checkPage(t, page, 200, `formaction="/do/reports.preview"`)
	values := formTo(t, page, "/do/reports.create")
	values.Set("title", "By city")
	values.Set("class", "Contacts")
	values.Set("visual", "bar")
	values.Set("_has.query", "json") // as for a query that the form cannot represent
	values.Set("query", `{"group_by": [{"field": "city"}], "measures": [{"op": "count"}]`)
	checkPage(t, p.send("/do/reports.preview", values), 422, "Contents must be JSON", `action="/do/reports.create"`)
	values.Set("query", `{"group_by": [{"field": "nothing"}], "measures": [{"op": "count"}]}`)
	checkPage(t, p.send("/do/reports.preview", values), 422, "nothing", `action="/do/reports.create"`)
	values.Set("query", `{"group_by": [{"field": "city"}], "measures": [{"op": "count"}]}`)
	before := acme.Do(t, http.MethodGet, "/api/custom-reports?per_page=1", gatewaytest.Cookie(cookie)).Field("count")
	tried := p.send("/do/reports.preview", values)
	checkPage(t, tried, 200, "Nothing has been stored yet", "<svg", "Leipzig", `value="By city"`)
	if after := acme.Do(t, http.MethodGet, "/api/custom-reports?per_page=1", gatewaytest.Cookie(cookie)).Field("count"); after != before {
		t.Errorf("reports after a preview = %v, want %v", after, before)
	}
	made := p.follows(p.send("/do/reports.create", formTo(t, tried, "/do/reports.create")))
	checkPage(t, made, 200, "By city")
	again := p.send("/do/reports.preview", formTo(t, made, "/do/reports.update"))
	checkPage(t, again, 200, "It is stored when you save it", "<svg", `action="/do/reports.update"`)
	checkPage(t, p.follows(p.send("/do/reports.update", formTo(t, again, "/do/reports.update"))), 200, "By city")
}

// TestFormRowsAreBounded checks that a small request cannot make a page of any size.
func TestFormRowsAreBounded(t *testing.T) {
	t.Parallel()
	_, acme, cookie := rich(t, nil)
	p := person{t, acme, cookie}
	for _, tt := range []struct{ action, part, field string }{
		{"/do/reports.create", "asks.filter", "field"}, {"/do/reports.create", "asks.fields", "field"}, {"/do/reports.create", "asks.groups", "field"}, {"/do/reports.create", "asks.measures", "op"},
		{"/do/reports.create", "asks.sort", "column"}, {"/do/reports.create", "input", "name"}, {"/do/campaigns.create", "filter", "field"}, {"/do/objects.create", "schema", "key"},
	} {
		values := formTo(t, p.open(tt.action), tt.action)
		values.Set("_more", "nothing")
		for i := range 50 {
			values.Set(fmt.Sprintf("%s.%d.%s", tt.part, i, tt.field), "")
		}
		checkPage(t, p.send(tt.action, values), 200, fmt.Sprintf(`name="%s.49.%s"`, tt.part, tt.field))
		for i := range 700 {
			values.Set(fmt.Sprintf("%s.%d.%s", tt.part, i, tt.field), "")
		}
		checkPage(t, p.send(tt.action, values), 400, "The form has too many lines")
	}
}

// TestReportBuilder composes a report line by line, without JSON and scripts.
func TestReportBuilder(t *testing.T) {
	t.Parallel()
	_, acme, cookie := rich(t, nil)
	p := person{t, acme, cookie}
	const create = "/do/reports.create"
	page := p.open(create)
	checkPage(t, page, 200, "Choose above what the report is about to see its fields.", `<option value="Records">`)
	define := formTo(t, p.open("/do/objects.create"), "/do/objects.create")
	define.Set("schema.1.title", "Size")
	define.Set("_more", "schema")
	checkPage(t, p.send("/do/objects.create", define), 200, `name="schema.1.title" value="Size"`, `name="schema.3.title"`)
	set := func(more string, pairs ...string) {
		t.Helper()
		values := formTo(t, page, create)
		for i := 0; i < len(pairs); i += 2 {
			values.Set(pairs[i], pairs[i+1])
		}
		values.Set("_more", more)
		page = p.send(create, values)
		checkPage(t, page, 200)
	}
	set("class", "class", "Records", "title", "Built")
	checkPage(t, page, 200, `value="Built"`, `<option value="Records" selected>`, `<option value="bike">`)
	set("source", "source", "bike")
	checkPage(t, page, 200, `<option value="bike" selected>`, `<option value="price">Price</option>`)
	set("class", "class", "Contacts", "source", "")
	set("asks.measures", "asks.show", "figures", "asks.groups.0.field", "city", "asks.measures.0.op", "count", "input.0.label", "Home country", "input.0.choices", "DE, NL", "input.0.value", "NL")
	checkPage(t, page, 200, `name="asks.measures.1.op"`, `<option value="home_country">the input home_country</option>`, `<option value="figure.1">Figure 2</option>`)
	values := formTo(t, page, create)
	for name, value := range map[string]string{"asks.measures.1.op": "avg", "asks.measures.1.field": "age", "asks.filter.0.field": "country", "asks.filter.0.input": "home_country",
		"asks.sort.0.column": "figure.0", "asks.sort.0.desc": "-", "asks.limit": "3", "visual": "bar", "exportable": "true"} {
		values.Set(name, value)
	}
	tried := p.send("/do/reports.preview", values)
	checkPage(t, tried, 200, "Nothing has been stored yet", "<svg", `<option value="figure.0" selected>`, `value="DE, NL"`)
	values.Set("_part", "true")
	values.Set("title", "")
	if part := p.send("/do/reports.preview", values); part.Code != 200 || !strings.HasPrefix(part.Text(), `<div id="tried">`) || !strings.Contains(part.Text(), "<svg") {
		t.Errorf("the preview alone: %d %.300s", part.Code, part.Text())
	}
	values.Set("asks.measures.1.field", "city")
	if part := p.send("/do/reports.preview", values); part.Code != 200 || !strings.Contains(part.Text(), "avg cannot be computed for") {
		t.Errorf("what is wrong alone: %d %.300s", part.Code, part.Text())
	}
	checkPage(t, p.open("/audit?filters[operation]=reports.preview"), 200, "0 entries") // previews are not audited
	made := p.follows(p.send(create, formTo(t, tried, create)))
	checkPage(t, made, 200, "Custom Report created")
	id := regexp.MustCompile(`/custom-reports/([0-9a-f]{24})/run`).FindStringSubmatch(made.Text())[1]
	stored := acme.Do(t, http.MethodGet, "/api/custom-reports/"+id, gatewaytest.Cookie(cookie))
	for field, want := range map[string]string{
		"query": `{"filter":{"country":{"input":"home_country"}},"group_by":[{"field":"city"}],"limit":3,"measures":[{"op":"count"},{"field":"age","op":"avg"}],"sort":["-count"]}`,
		"input": `{"home_country":{"choices":["DE","NL"],"label":"Home country","rule":"editable","value":"NL"}}`, "exportable": `true`,
	} {
		if got, err := json.Marshal(stored.Field(field)); err != nil || string(got) != want {
			t.Errorf("%s: %s, want %s", field, got, want)
		}
	}
	values = formTo(t, made, "/do/reports.update") // the source of the report has been deleted since
	values.Set("source", "gone")
	values.Set("class", "Records")
	checkPage(t, p.send("/do/reports.update", values), 422, "Which one must name an existing source", `<option value="gone" selected>`)
}

// TestWhoMatchesACampaign previews the contacts of a campaign before it is stored. Only people who may see contacts get
// examples.
func TestWhoMatchesACampaign(t *testing.T) {
	t.Parallel()
	_, acme, cookie := rich(t, nil)
	p := person{t, acme, cookie}
	const create = "/do/campaigns.create"
	values := formTo(t, p.open(create), create)
	for name, value := range map[string]string{"_try": "true", "filter.0.field": "country", "filter.0.op": "in", "filter.0.value": "DE, NL", "filter.1.field": "age", "filter.1.op": "gt", "filter.1.value": "30"} {
		values.Set(name, value)
	}
	count := fmt.Sprint(acme.Do(t, http.MethodGet, "/api/campaigns/count?filters[country][in][]=DE&filters[country][in][]=NL&filters[age][gt]=30", gatewaytest.Cookie(cookie)).Field("count"))
	page := p.send(create, values)
	checkPage(t, page, 200, count+" contacts match.", "@mail.example", `value="DE, NL"`)
	if n := strings.Count(page.Text(), "<tr>"); n != 6 {
		t.Errorf("the table has %d rows, want 6", n)
	}
	values.Set("_part", "true")
	if part := p.send(create, values); !strings.HasPrefix(part.Text(), `<div id="tried">`) || !strings.Contains(part.Text(), count+" contacts match.") {
		t.Errorf("alone: %s", part.Text())
	}
	values.Del("_part")
	values.Set("filter.1.value", "old")
	checkPage(t, p.send(create, values), 422, "must be a number", `value="old"`)
	values.Set("_has.filter", "json")
	values.Set("filter", `{"or": [{"country": "DE"}, {"age": {"gt": 30}}], "tags": ["a"], "member": true}`)
	checkPage(t, p.send(create, values), 422, `there is no field "member"`)
	values.Set("filter", `{"or": [{"country": "DE"}, {"age": {"gt": 30}}]}`)
	count = fmt.Sprint(acme.Do(t, http.MethodGet, "/api/campaigns/count?filters[or][0][country]=DE&filters[or][1][age][gt]=30", gatewaytest.Cookie(cookie)).Field("count"))
	checkPage(t, p.send(create, values), 200, count+" contacts match.")
	_, sender := acme.Person(t, "sender@example.com", func(n *control.NewUser) { n.Permissions = []string{"manage_campaigns"} })
	p.cookie = sender
	if text := p.send(create, values).Text(); !strings.Contains(text, count+" contacts match.") || strings.Contains(text, "@mail.example") {
		t.Error("a person who may not see contacts sees some, or does not see how many match")
	}
}

// TestSettingsHaveLabelsOfTheirSchema checks that the form of settings has the labels of their schema.
func TestSettingsHaveLabelsOfTheirSchema(t *testing.T) {
	t.Parallel()
	_, acme, cookie := rich(t, nil)
	p := person{t, acme, cookie}
	labels := []string{"Enable compliance", "Lesson tags (all)", "A lesson counts only if it has every one of these tags.", "Include form submissions"}
	page := p.open("/compliance/settings")
	checkPage(t, page, 200, labels...)
	if strings.Contains(page.Text(), "Lesson tags all") || strings.Contains(page.Text(), "Submission enabled") {
		t.Error("the form shows names of fields, want only their labels")
	}
	values := formTo(t, page, "/do/compliance.update")
	values.Set("lesson_tags_all", strings.Repeat("x", 201))
	checkPage(t, p.send("/do/compliance.update", values), 422, "Lesson tags (all)", "Include form submissions")
}

// TestTryIt calls operations from their pages in the reference, with the rights of the person who is signed in.
func TestTryIt(t *testing.T) {
	t.Parallel()
	_, acme, cookie := rich(t, nil)
	p := person{t, acme, cookie}
	checkPage(t, acme.Page(t, "/docs/contacts.list"), 200, `href="/docs/contacts.list/try"`) // for nobody in particular
	for path, want := range map[string]string{"/docs": `<a href="/docs" aria-current="page">`, "/docs/contacts.list": `<li><a href="/docs" dir="auto">API reference</a></li>`} {
		checkPage(t, p.open(path), 200, `aria-label="Pages"`, want)
		if stranger := acme.Page(t, path); strings.Contains(stranger.Text(), `aria-label="Pages"`) || stranger.Text() != acme.Do(t, http.MethodGet, path, gatewaytest.Cookie(&http.Cookie{Name: cookie.Name, Value: "none"})).Text() {
			t.Errorf("%s shows names of people to visitors who are not signed in", path)
		}
	}
	if a := acme.Page(t, "/docs/contacts.list/try"); a.Code != http.StatusSeeOther || a.Header.Get("Location") != "/sign-in?next=%2Fdocs%2Fcontacts.list%2Ftry" {
		t.Errorf("nobody: %d %s", a.Code, a.Header.Get("Location"))
	}
	checkPage(t, p.open("/docs/contacts.list/try"), 200, `method="get"`, `name="query.per_page"`, `name="more"`)
	checkPage(t, p.open("/docs/contacts.list/try?_send=true&query.per_page=1&more="+url.QueryEscape("filters[country]=DE&sort=-created_at")), 200,
		"Answer: 200 OK", `"country": "DE"`, "<dt>X-Request-Id</dt>", "/api/contacts?filters[country]=DE&per_page=1&sort=-created_at")
	checkPage(t, p.open("/docs/contacts.list/try?_send=true&query.per_page=many"), 422, "Answer: 422", "per_page")
	checkPage(t, p.open("/docs/contacts.get/try?_send=true&path.id="+url.QueryEscape("../users")), 404, "Answer: 404")

	made := formTo(t, p.open("/docs/teams.create/try"), "/docs/teams.create/try")
	if made.Get("body") != "{\n  \"name\": \"Sales\"\n}" {
		t.Errorf("an example: %s", made.Get("body"))
	}
	made.Set("body", `{"name":"Tried"}`)
	created := p.send("/docs/teams.create/try", made)
	checkPage(t, created, 200, "Answer: 200 OK", "Team created", `-d '{"name":"Tried"}'`)
	if again := p.send("/docs/teams.create/try", made); again.Code != 200 || fmt.Sprint(acme.Do(t, http.MethodGet, "/api/teams?filters[name]=Tried", gatewaytest.Cookie(cookie)).Field("count")) != "1" {
		t.Errorf("sent twice: %d", again.Code)
	}
	for body, code := range map[string]string{"": "400", "{": "400", `{"name":""}`: "422", `{"name":"x","name":"y"}`: "400"} {
		made.Set("body", body)
		if a := p.send("/docs/teams.create/try", made); a.Code < 400 || !strings.Contains(a.Text(), "Answer: "+code) {
			t.Errorf("%s: got %d, want %s", body, a.Code, code)
		}
	}
	if a := p.open("/docs/audit.export/try?_send=true"); a.Code != http.StatusSeeOther || a.Header.Get("Location") != "/api/audit/export" {
		t.Errorf("an export: %d %s", a.Code, a.Header.Get("Location"))
	}
	checkPage(t, p.open("/docs/contacts.list/try?_send=true&more="+url.QueryEscape("filters[name]=100%")), 400, "The rest of the query cannot be parsed")
	checkPage(t, p.open("/docs/contacts.untag/try"), 200, `<textarea id="try-query-tags" name="query.tags"`, "One per line.")
	secret := formTo(t, p.open("/docs/passwords.change/try"), "/docs/passwords.change/try")
	secret.Set("body", `{"present":"what nobody may read","next":"short"}`)
	if a := p.send("/docs/passwords.change/try", secret); !strings.Contains(a.Text(), `id="answer"`) || strings.Contains(a.Text(), "what nobody may read") {
		t.Errorf("a password is repeated: %d %s", a.Code, a.Text())
	}
	if a := p.open("/docs/teams.create/try?_send=true&body=" + url.QueryEscape(`{"name":"Lured"}`)); a.Code != 200 || strings.Contains(a.Text(), "Lured") {
		t.Errorf("a link to a write: %d %s", a.Code, a.Text())
	}
	for _, none := range []string{"/docs/nothing/try", "/docs/contacts.reveal/try", "/docs/imports.create/try", "/docs/sessions.create/try"} {
		checkPage(t, p.open(none), 404, "There is no such page")
	}
	checkPage(t, p.send("/docs/contacts.list/try", url.Values{}), 404, "There is no such page")

	_, clerk := acme.Person(t, "clerk@example.com", func(n *control.NewUser) { n.Permissions = []string{"contacts"} })
	checkPage(t, person{t, acme, clerk}.send("/docs/teams.create/try", made), 403, "Answer: 403", "manage_users")
}

// TestPagesWithoutParentAreLinked checks that pages without a page above them are linked from others.
func TestPagesWithoutParentAreLinked(t *testing.T) {
	t.Parallel()
	_, acme, cookie := rich(t, nil)
	p := person{t, acme, cookie}
	checkPage(t, p.open("/import"), 200, `href="/api/export"`, "Export the organization as a bundle")
	checkPage(t, p.open("/keys"), 200, `href="/authz/explain"`)
	checkPage(t, p.open("/usage"), 200, `href="/store/explain"`, `<figure class="card picture">`, "Bar chart of", "Store time", " MB", "15 entries")
	checkPage(t, p.open("/usage?_columns=day&_columns=operations&operation=contacts.list"), 200, "<li dir=\"auto\">List contacts</li>")
	for name := range demo.Usage(time.Now())[0].Operations {
		if name != "page" {
			checkPage(t, p.open("/docs/"+name), 200)
		}
	}
	p.api(http.MethodDelete, "/api/custom/objects/lesson?force=true", nil)
	checkPage(t, p.open("/compliance/contacts"), 200, "your organization has no lessons yet", `href="/do/objects.create"`)
	checkPage(t, p.open("/compliance/settings"), 200, `href="/compliance/contacts"`)
}

// TestNoticesCannotBeForged checks that an address shows the notice of a form only in the session that sent the form,
// and only unchanged.
func TestNoticesCannotBeForged(t *testing.T) {
	t.Parallel()
	_, acme, cookie := rich(t, nil)
	p := person{t, acme, cookie}
	after := p.send("/do/folders.create", url.Values{"name": {"New"}, "_has.name": {"text"}}).Header.Get("Location")
	checkPage(t, p.open(after), 200, "Folder created.")
	forged, _ := url.Parse(after)
	query := forged.Query()
	query.Set("_told", fmt.Sprint(time.Now().Unix())+"-"+strings.Repeat("0", 32))
	forged.RawQuery = query.Encode()
	_, other := acme.Person(t, "eve@example.com", func(n *control.NewUser) { n.Roles = []string{"admin"} })
	for what, page := range map[string]*gatewaytest.Answer{
		"another action":  p.open(strings.Replace(after, "folders.create", "folders.delete", 1)),
		"a forged mark":   p.open(forged.String()),
		"no mark":         p.open(strings.Split(after, "?")[0] + "?_done=folders.create"),
		"another session": person{t, acme, other}.open(after),
	} {
		if page.Code != 200 || strings.Contains(page.Text(), `role="status"`) {
			t.Errorf("%s: got %d and a notice, want none", what, page.Code)
		}
	}
}
