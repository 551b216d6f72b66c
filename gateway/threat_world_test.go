package gateway_test

import (
	"bytes"
	"cmp"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"tenantry/backends/sqlite/sqlitetest"
	"tenantry/crypto/tokens"
	"tenantry/gateway/control"
	"tenantry/gateway/gatewaytest"
	"tenantry/modules/imports/bundle"
	"tenantry/tenants"
)

const (
	keyHeader    = "x-service-token"
	cookieName   = "tenantry_session"
	secretField  = "ssn"
	pageOrigin   = "https://www.example.com"
	deniedBody   = `{"status":"failed","message":"Token is either expired or does not have the correct permissions","data":[]}`
	hexShape     = 24
	contactsMany = 12
)

// ref names an identifier that every party has.
type ref string

const (
	refFolder       ref = "folder"
	refParent       ref = "parent folder"
	refFile         ref = "file"
	refTeam         ref = "team"
	refObject       ref = "custom object"
	refObjectName   ref = "custom object's name"
	refForm         ref = "form"
	refContact      ref = "contact"
	refCampaign     ref = "campaign"
	refUser         ref = "user"
	refEmail        ref = "e-mail address of a person with a password"
	refReport       ref = "report"
	refChild        ref = "child report"
	refPID          ref = "pid"
	refScratch      ref = "report whose shares may be revoked"
	refSecure       ref = "secure report"
	refSecurePID    ref = "pid of the secure report"
	refShare        ref = "share token"
	refSecureShare  ref = "share token of the secure report"
	refTokenID      ref = "identifier of a share token"
	refSubject      ref = "who may call"
	refSpareRole    ref = "role that nobody has"
	refSpareTeam    ref = "team that nothing bears"
	refSpareAccount ref = "service account without keys"
	refInvite       ref = "single-use link"
	refSession      ref = "session"
	refSignIn       ref = "link that signs in"
	refOtherTeam    ref = "another team"
	refContactOther ref = "contact of the other team"
)

// party is an organization that holds a record of every kind, with a marker of its own in
// every text.
type party struct {
	*gatewaytest.Org
	mark   string // in every text; its occurrences are numbered
	prefix string // of every identifier
	marks  int
	ids    map[ref]string

	key, readKey, pageKey  string // server_full, server_read, browser; all permissions
	adminCookie, cookie    *http.Cookie
	admin, person          control.User
	strangersSecretOfFirst string // plaintext of the first contact's encrypted field
}

func (p *party) text() string {
	p.marks++
	return fmt.Sprintf("%s%04d", p.mark, p.marks)
}

func (p *party) id(n int) string { return fmt.Sprintf("%s%08x", p.prefix, n) }

// world is a gateway with two organizations.
type world struct {
	*gatewaytest.Gateway
	a, b *party
	n    atomic.Int64
	test string
}

// newWorld makes both organizations, each of which has identifiers of its own, and people
// who are signed in.
func newWorld(t testing.TB, options ...gatewaytest.Option) *world {
	t.Helper()
	w := newQuietWorld(t, options...)
	w.a.signIn(t)
	w.b.signIn(t)
	return w
}

// newQuietWorld makes both organizations without anybody signed in, which spares the
// hashing of passwords.
func newQuietWorld(t testing.TB, options ...gatewaytest.Option) *world {
	t.Helper()
	g := gatewaytest.Start(t, options...)
	w := &world{Gateway: g, test: t.Name()}
	w.a = newParty(t, g, "acme", "ac0ffee5ac0ffee5", 7000)
	w.b = newParty(t, g, "birch", "bd15ea5ebd15ea5e", 8000)
	w.n.Store(900_000) // tests count from 1, however many resources there are
	defer w.n.Store(0)
	for _, op := range g.App.Operations() {
		if op.Upload != nil || op.Name == "usage.list" {
			w.a.ids[ref(op.Resource)], w.b.ids[ref(op.Resource)] = w.a.Tenant(t).Workspace().NewID(), w.b.Tenant(t).Workspace().NewID() // unless somebody signs in
		}
		if op.Name == "audit.list" { // commands have left some
			for _, p := range []*party{w.a, w.b} {
				first, _ := p.Do(t, op.Method, op.Path, gatewaytest.WithKey(p.key)).Field("results").([]any)[0].(map[string]any)
				p.ids[ref(op.Resource)], _ = first["id"].(string)
			}
		}
		if op.Resource == "" || op.Method != http.MethodPost || len(op.Params) > 0 {
			continue
		}
		for _, p := range []*party{w.a, w.b} { // a record of each resource that rows are made of, unless there is one
			if p.ids[ref(op.Resource)] != "" {
				continue
			}
			q := w.build(&op, op.Path, sampleFor(&op), func(at slot) (string, bool) { return p.ids[at.ref], true }, all)
			a := p.Do(t, q.method, q.target, append(q.changes, gatewaytest.WithKey(p.key))...)
			if p.ids[ref(op.Resource)], _ = cmp.Or(a.Field("id"), a.Field("name")).(string); a.Status != "ok" {
				t.Fatalf("%s: %d %s", op.Name, a.Code, a.Body)
			}
		}
	}
	return w
}

func newParty(t testing.TB, g *gatewaytest.Gateway, slug, prefix string, users int) *party {
	t.Helper()
	p := &party{Org: g.Org(t, slug, "teams"), mark: "qz" + slug + "zq", prefix: prefix, ids: map[ref]string{}}
	if g.Config.BaseDomain != "" {
		p.Host = slug + "." + g.Config.BaseDomain
	}
	p.Import(t, p.bundle(users)...)
	all := tenants.AllPermissions()
	p.key = p.Key(t, all...)
	p.readKey = p.KeyWith(t, func(k *control.NewKey) { k.Kind, k.Permissions = string(tenants.ServerRead), names(all) }).Token
	p.pageKey = p.KeyWith(t, func(k *control.NewKey) {
		k.Kind, k.Permissions, k.Origins = string(tenants.Browser), names(all), []string{pageOrigin}
	}).Token
	p.ids[refShare], _ = p.share(t, p.ids[refReport], map[string]any{})
	p.ids[refSecureShare], _ = p.share(t, p.ids[refSecure], map[string]any{"region": "DE"})
	_, p.ids[refTokenID] = p.share(t, p.ids[refSecure], map[string]any{"region": "DE"})
	p.ids[refInvite] = p.invite(t)
	p.ids[refSubject] = "user:" + p.ids[refUser]
	return p
}

// signIn makes an administrator and a person with all permissions, and their sessions.
func (p *party) signIn(t testing.TB) {
	t.Helper()
	all := tenants.AllPermissions()
	p.admin, p.adminCookie = p.Person(t, p.text()+"@example.com", func(u *control.NewUser) { u.Name, u.Roles = p.text(), []string{"admin"} })
	p.person, p.cookie = p.Person(t, p.text()+"@example.com", func(u *control.NewUser) { u.Name, u.Permissions = p.text(), names(all) })
	p.ids[refEmail] = p.person.Email
	hash, _ := tokens.HashOpaque("ses", p.SignIn(t, p.admin.Email).Value)
	p.ids[refSession] = hash[:24]
	link, err := p.App.SignInLink(t.Context(), p.Slug, p.person.Email, "", time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	_, p.ids[refSignIn], _ = strings.Cut(link, "#")
	a := p.Do(t, http.MethodPost, "/api/import?dry_run=true", gatewaytest.Cookie(p.adminCookie), gatewaytest.Body("application/x-ndjson", ""))
	if p.ids["import"], _ = a.Field("id").(string); a.Code != http.StatusOK {
		t.Fatalf("an import of %s: %d %s", p.Slug, a.Code, a.Body)
	}
	for ; a.Code == http.StatusOK && a.Field("state") == "running"; time.Sleep(time.Millisecond) {
		a = p.Do(t, http.MethodGet, "/api/import/"+p.ids["import"], gatewaytest.Cookie(p.adminCookie))
	}
}

func names(permissions []tenants.Permission) []string {
	out := make([]string, len(permissions))
	for i, permission := range permissions {
		out[i] = string(permission)
	}
	return out
}

// share issues a share token and returns it with its identifier.
func (p *party) share(t testing.TB, report string, params map[string]any) (token, id string) {
	t.Helper()
	a := p.Do(t, http.MethodPost, "/api/custom-reports/"+report+"/share", gatewaytest.WithKey(p.key), gatewaytest.JSON(map[string]any{"params": params}))
	token, _ = a.Field("token").(string)
	var claims struct {
		ID string `json:"jti"`
	}
	if parts := strings.Split(token, "."); len(parts) == 3 {
		raw, _ := base64.RawURLEncoding.DecodeString(parts[1])
		_ = json.Unmarshal(raw, &claims)
	}
	if claims.ID == "" {
		t.Fatalf("sharing report %s of %s: %d %s", report, p.Slug, a.Code, a.Body)
	}
	return token, claims.ID
}

// invite returns the secret of a single-use link with which a new person chooses a password.
func (p *party) invite(t testing.TB) string {
	t.Helper()
	made, err := control.Call[control.User](t.Context(), p.Commands, "user.create", control.NewUser{Org: p.Slug, UserFields: control.UserFields{Name: p.text(), Email: p.text() + "@example.com"}})
	if err != nil {
		t.Fatal(err)
	}
	at := strings.LastIndexAny(made.Link, "=#/")
	token := made.Link[at+1:]
	if len(token) < 20 {
		t.Fatalf("the link %q holds no token", made.Link)
	}
	return token
}

func (p *party) bundle(users int) []string {
	var lines []string
	add := func(kind string, fields map[string]any) string {
		fields["kind"] = kind
		raw, err := json.Marshal(fields)
		if err != nil {
			panic(err)
		}
		lines = append(lines, string(raw))
		id, _ := fields["id"].(string)
		return id
	}
	type m = map[string]any
	add("organization", m{"name": p.text(), "limits": m{"folder_children": 100}})
	team := add("team", m{"id": p.id(1), "name": p.text()})
	other := add("team", m{"id": p.id(2), "name": p.text()})
	role := p.text()
	add("role", m{"name": role, "label": p.text(), "permissions": []string{"contacts"}})
	add("user", m{"id": users + 1, "name": p.text(), "email": p.text() + "@example.com", "roles": []string{role}, "teams": []string{team}, "active": true})
	add("role", m{"name": p.mark + "spare", "permissions": []string{"contacts"}})
	p.ids[refSpareRole] = p.mark + "spare"
	p.ids[refSpareTeam] = add("team", m{"id": p.id(3), "name": p.mark + "spare"})
	p.ids[refSpareAccount] = add("service_account", m{"id": p.id(4), "name": p.mark + "spare", "permissions": []string{}, "active": true})
	p.ids[refTeam], p.ids[refOtherTeam], p.ids[refUser] = team, other, strconv.Itoa(users+1)

	p.ids[refParent] = add("folder", m{"id": p.id(10), "name": p.text(), "user_id": users + 1})
	p.ids[refFolder] = add("folder", m{"id": p.id(11), "name": p.text(), "folder_id": p.id(10), "user_id": users + 1})
	add("folder", m{"id": p.id(12), "name": p.text(), "folder_id": p.id(11), "user_id": users + 1, "teams": []string{team}})
	add("folder", m{"id": p.id(13), "name": p.text(), "folder_id": p.id(11), "teams": []string{other}})
	add("folder", m{"id": p.id(14), "name": p.text(), "deleted": true})
	for n, teams := range [][]string{{team}, {team}, {other}, {team}} {
		add("file", m{
			"id": p.id(20 + n), "pid": p.text(), "filename": p.text() + ".pdf", "mimetype": "application/" + p.text(), "hash": p.text(),
			"folder_id": p.id(11), "contact_id": p.id(30), "user_id": users + 1, "type": p.text(), "teams": teams,
		})
	}
	p.ids[refFile] = p.id(20)

	add("contact_field", m{"key": "plan", "title": p.text(), "type": "Text"})
	add("contact_field", m{"key": secretField, "title": p.text(), "type": "Encrypted"})
	p.ids["contact_field"] = p.text()
	add("contact_field", m{"key": p.ids["contact_field"], "title": p.text(), "type": "Text"})
	for n := range contactsMany {
		teams := [][]string{{}, {team}, {other}}[n%3]
		secret := p.text()
		if n == 0 {
			p.strangersSecretOfFirst = secret
		}
		add("contact", m{
			"id": p.id(30 + n), "email": p.text() + "@example.com", "first_name": p.text(), "last_name": p.text(), "phone": p.text(),
			"country": []string{"DE", "FR"}[n%2], "city": p.text(), "status": p.text(), "tags": []string{p.text()}, "teams": teams,
			"external_id": p.text(), "fields": m{"plan": p.text(), secretField: secret},
		})
	}
	p.ids[refContact], p.ids[refContactOther] = p.id(30), p.id(32)
	p.ids[refCampaign] = add("campaign", m{"id": p.id(50), "name": p.text(), "filter": m{"country": "DE"}})

	object := p.text()
	p.ids[refObjectName] = object
	p.ids[refObject] = add("custom_object", m{"id": p.id(60), "name": object, "label": p.text(), "label_plural": p.text(), "schema": m{
		"kind": m{"title": p.text(), "type": "Text"}, "pin": m{"title": p.text(), "type": "Encrypted"},
	}})
	p.ids["custom_object"] = object
	p.ids["record"] = add("record", m{"id": p.id(61), "object": object, "values": m{"kind": p.text(), "pin": p.text()}, "external_id": p.text()})
	p.ids[refForm] = add("form_collection", m{
		"id": p.id(70), "name": p.text(), "label": p.text(), "label_plural": p.text(), "user_id": users + 1, "external_id": p.text(),
		"schema":       m{"why": m{"title": p.text(), "type": "LongText"}},
		"email_alerts": m{"enabled": true, "recipients": []string{p.text() + "@example.com"}, "subject": p.text()},
	})
	p.ids["form_collection"] = p.ids[refForm]
	p.ids["submission"] = add("submission", m{"id": p.id(71), "form": p.id(70), "values": m{"form_name": p.text(), "why": p.text()}})

	report := func(n int, class, source string, more m) string {
		fields := m{
			"id": p.id(n), "pid": p.text() + "report", "title": p.text(), "desc": p.text(), "class": class, "source": source, "folder": p.text(),
			"parent": p.text(), "row_key": p.text(), "secure": false, "actions": m{"open": p.text()}, "visual_props": m{"legend": p.text()}, "portal_visible": true, "exportable": true,
		}
		maps.Copy(fields, more)
		if source == "" {
			delete(fields, "source")
		}
		add("custom_report", fields)
		return p.id(n)
	}
	p.ids[refReport] = report(80, "Contacts", "", m{
		"pid": p.mark + "openreport", "query": m{"filter": m{"country": m{"input": "country"}}, "limit": 50}, "child_reports": []string{p.id(81), p.id(82), p.id(83), p.id(84)},
		"input": m{"country": m{"rule": "editable", "value": "DE", "label": p.text()}},
	})
	p.ids[refPID] = p.mark + "openreport"
	p.ids[refChild] = report(81, "Records", object, m{"query": m{"fields": []string{"kind", "external_id"}}})
	report(82, "Submissions", p.id(70), m{"query": m{}})
	report(83, "Files", "", m{"query": m{}})
	report(84, "Campaigns", "", m{"query": m{}})
	p.ids[refSecure] = report(85, "Contacts", "", m{
		"pid": p.mark + "securereport", "secure": true, "query": m{"filter": m{"country": m{"input": "region"}}, "fields": []string{"id", "country", "email"}},
		"input": m{"region": m{"rule": "locked", "value": ""}, "city": m{"rule": "editable", "value": ""}},
	})
	p.ids[refSecurePID] = p.mark + "securereport"
	p.ids["custom_report"] = p.id(86)
	p.ids[refScratch] = report(86, "Campaigns", "", m{"pid": p.mark + "scratchreport", "query": m{}})
	report(87, "Campaigns", "", m{"query": m{}, "teams": []string{other}})
	add("compliance_settings", m{"enabled": true, "lesson_tags_all": []string{p.text()}, "lesson_tags_any": []string{p.text()}})
	return lines
}

// export returns everything the organization holds, secrets in clear.
func (p *party) export(t testing.TB) string {
	t.Helper()
	var out bytes.Buffer
	if _, err := p.App.Transfer().Export(t.Context(), p.Tenant(t), &out, bundle.ExportOptions{RevealSecrets: true}); err != nil {
		t.Fatal(err)
	}
	return out.String()
}

// sql runs a statement on the organization's database, past the gateway.
func (p *party) sql(t testing.TB, statement string, args ...any) {
	t.Helper()
	sqlitetest.Exec(t, p.database(t), statement, args...)
}

// read returns one value of the organization's database, as text.
func (p *party) read(t testing.TB, query string, args ...any) string {
	t.Helper()
	return sqlitetest.Text(t, p.database(t), query, args...)
}

// database returns the path of the organization's own database file.
func (p *party) database(t testing.TB) string {
	t.Helper()
	return filepath.Join(p.Config.Data, "db", fmt.Sprintf("org-%d.db", p.Tenant(t).Org.OrgID))
}

// randomKey returns a well-formed key of nobody.
func randomKey(t testing.TB, kind tenants.KeyKind) string {
	t.Helper()
	key, err := tokens.NewAPIKey(kind)
	if err != nil {
		t.Fatal(err)
	}
	return key.Text.Reveal()
}

// randomCookie returns a well-formed session of nobody.
func randomCookie() *http.Cookie {
	token, _ := tokens.NewOpaque("ses")
	return &http.Cookie{Name: cookieName, Value: token.Reveal()}
}

// blanks are the expressions of blanked, which is asked for few lists of names, often.
var blanks sync.Map

// blanked are members that differ from call to call.
func blanked(more []string) *regexp.Regexp {
	names := strings.Join(append([]string{"retrieved_at", "updated_at"}, more...), "|")
	known, ok := blanks.Load(names)
	if !ok {
		known, _ = blanks.LoadOrStore(names, regexp.MustCompile(`"(`+names+`)":("[^"]*"|[0-9]+)`))
	}
	return known.(*regexp.Regexp)
}

// canonical writes an answer so that two of them can be compared: without what differs
// from call to call, and without the identifier that was asked for.
func canonical(a *gatewaytest.Answer, identifier string, volatile []string) string {
	h := a.Header.Clone()
	h.Del("Date")
	h.Del("X-Request-Id")
	h.Del("RateLimit-Remaining") // counts the caller's own requests
	h.Del("RateLimit-Reset")
	if len(volatile) > 0 {
		h.Del("Content-Length")
		if h.Get("ETag") != "" {
			h.Set("ETag", "*")
		}
	}
	var out strings.Builder
	fmt.Fprintln(&out, a.Code)
	_ = h.Write(&out)
	out.Write(blanked(volatile).ReplaceAll(a.Body, []byte(`"$1":"*"`)))
	text := out.String()
	if identifier != "" {
		text = strings.ReplaceAll(text, identifier, "<identifier>")
	}
	return text
}

// unchecked sends a request whose answer is not held against the OpenAPI document.
func (w *world) unchecked(t testing.TB, method, host, path string, changes ...gatewaytest.Request) *gatewaytest.Answer {
	t.Helper()
	a := w.As(t, method, host, path, changes...)
	var e struct{ Status, Message string }
	if json.Unmarshal(a.Body, &e) == nil {
		a.Status, a.Message = e.Status, e.Message
	}
	return a
}

// wantDenied fails the test where the answer is not the one refusal of credentials.
func wantDenied(t testing.TB, what string, a *gatewaytest.Answer) {
	t.Helper()
	if a.Code != http.StatusForbidden || a.Text() != deniedBody {
		t.Errorf("%s: %d %.200s, want the denial", what, a.Code, a.Body)
	}
}

// wantPlain fails the test where a failure is not the bare envelope or tells about the inside.
func wantPlain(t testing.TB, what string, a *gatewaytest.Answer) {
	t.Helper()
	if a.Code < http.StatusBadRequest {
		return
	}
	var keys map[string]json.RawMessage
	if err := json.Unmarshal(a.Body, &keys); err != nil || len(keys) != 3 || keys["status"] == nil || keys["message"] == nil || keys["data"] == nil {
		t.Errorf("%s: the failure %d is no envelope: %.300s", what, a.Code, a.Body)
	}
	text := strings.ToLower(a.Text())
	for _, inside := range []string{"goroutine", ".go:", "sqlite", "select ", "insert into", "no such table", "panic", "runtime error", "redis:", "unmarshal", "/tmp/", "0xc0"} {
		if strings.Contains(text, inside) {
			t.Errorf("%s: the failure %d tells about the inside (%q): %.300s", what, a.Code, inside, a.Body)
		}
	}
}

// wantRefused fails the test where the answer is not a 4xx in the envelope.
func wantRefused(t testing.TB, what string, a *gatewaytest.Answer) {
	t.Helper()
	if a.Code < 400 || a.Code > 499 || a.Status != "failed" {
		t.Errorf("%s: %d %.300s, want a 4xx", what, a.Code, a.Body)
	}
	wantPlain(t, what, a)
}
