package contract

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"tenantry/config"
	"tenantry/gateway"
	"tenantry/gateway/gatewaytest"
	"tenantry/gateway/tests/fixture"
	"tenantry/internal/goldentest"
	"tenantry/modules/imports/bundle"
	"tenantry/operation"
)

// TestGolden calls every row of a rich organization in many ways, and compares the answers, a later export and the
// OpenAPI document with the golden files, byte for byte except for identifiers, times and tokens. A change of
// testdata/golden is a change that callers see.
func TestGolden(t *testing.T) {
	t.Parallel()
	holdGolden(t, func(*config.Config, *gateway.Options) {})
}

func holdGolden(t *testing.T, option gatewaytest.Option) {
	t.Helper()
	if testing.Short() {
		t.Skip("which bytes are answered is nothing for the race detector")
	}
	w := fixture.NewWorld(t, func(c *config.Config, _ *gateway.Options) { c.PublicURL = "https://{slug}.example.com" }, option)
	answers := &golden{w: w, blanks: goldentest.NewBlanks(w.A.Prefix, w.B.Prefix)}
	rows := w.App.Operations()
	// In the original order of the golden files. After signing out there is no session.
	areas := []string{"Files", "Custom objects", "Forms", "Reports", "Compliance", "Users", "Contacts", "Campaigns", "Sessions"}
	slices.SortStableFunc(rows, func(a, b operation.Row) int {
		return cmp.Or(cmp.Compare(uint(slices.Index(areas, a.Tag)), uint(slices.Index(areas, b.Tag))), // what is not in the list comes last
			strings.Compare(firstSessions(a.Name), firstSessions(b.Name)))
	})
	var document bytes.Buffer
	if err := json.Indent(&document, w.A.Page(t, "/api/openapi.json").Body, "", " "); err != nil {
		t.Fatal(err)
	}
	goldentest.Want(t, "openapi.json", document.String())
	ask := func(generated bool) {
		for i := range rows {
			for _, path := range rows[i].Paths() {
				later := rows[i].Resource != "" || slices.Contains([]string{"reports.fields", "reports.run", "reports.duplicate", "compliance.check", "compliance.check_one"}, rows[i].Name) || slices.Contains([]string{"Keys", "Organization"}, rows[i].Tag) || strings.HasPrefix(rows[i].Name, "me.") // than those of before
				if generated == later && rows[i].Upload == nil && rows[i].Streams == nil {
					answers.ask(t, &rows[i], path)
				}
			}
		}
	}
	ask(false)
	goldentest.Want(t, "answers.txt", answers.text.String())
	goldentest.Want(t, "export.ndjson", hashes.ReplaceAllString(answers.blanks.Fill(w.A.Export(t)), "$1<pid>$2<hash>"))
	var plain bytes.Buffer
	if _, err := w.App.Transfer().Export(t.Context(), w.A.Tenant(t), &plain, bundle.ExportOptions{}); err != nil {
		t.Fatal(err)
	}
	goldentest.Want(t, "export_without_secrets.ndjson", hashes.ReplaceAllString(answers.blanks.Fill(plain.String()), "$1<pid>$2<hash>"))
	answers.text.Reset()
	w.A.AddPeople(t) // who signed out above
	ask(true)
	goldentest.Want(t, "generated.txt", answers.text.String())
}

func firstSessions(name string) string {
	for i, last := range []string{"passwords.create", "sessions.create", "sessions.delete"} {
		if name == last {
			return strconv.Itoa(i)
		}
	}
	return ""
}

// golden records questions and answers.
type golden struct {
	w      *fixture.World
	blanks *goldentest.Blanks
	text   strings.Builder
}

// question is one way to call an operation.
type question struct {
	what   string
	as     []gatewaytest.Request
	target string
	body   *string
}

// timely replaces values that depend on time: uses are stored once a minute, and some calls make keys that expire after
// a second.
var timely = strings.NewReplacer(`"last_used_at":"<time>"`, `"last_used_at":null`, `"unused_since":"<time>"`, `"unused_since":null`, `"old_token_until":"<time>"`, `"old_token_until":null`,
	`"state":"expired"`, `"state":"active"`)

// lasting matches the rights of keys that expire during the test.
var lasting = regexp.MustCompile(`"may":"(Nothing: the key is expired\.|[^"]*; until <time>\.)"`)

// rotated matches the overlaps of rotated keys, some of which end during the test.
var rotated = regexp.MustCompile(`"rotated":\[("<time>",?)+\]`)

// holding matches the storage of the organization, parts of which are stored in the background.
var holding = regexp.MustCompile(`"used":\{"documents":[0-9]+,"bytes":[0-9]+,"file_bytes":[0-9]+\}`)

// heads matches the heads of audit logs in queries.
var heads = regexp.MustCompile(`head=tenantry[^& ]*`)

// addresses matches what differs in the addresses of files, and ages how long they last.
var (
	addresses = regexp.MustCompile(`(/files/content/)[0-9a-f]{40}[^ "]*`)
	ages      = regexp.MustCompile(`max-age=[0-9]+`)
	hashes    = regexp.MustCompile(`("pid":")[A-Za-z0-9_-]{22}(","filename":"[^"]*","mimetype":"[^"]*","hash":")[0-9a-f]{40}`)
)

// unneeded matches the unused permissions of keys, which depend on uses stored in the background.
var unneeded = regexp.MustCompile(`"unused_permissions":\[[^\]]*\]`)

// ask records a question and its answer, with placeholders for generated addresses of reports.
func (g *golden) ask(t *testing.T, op *operation.Row, path string) {
	t.Helper()
	fmt.Fprintf(&g.text, "# %s %s %s\n", op.Name, op.Method, path)
	madePID := regexp.MustCompile(`("pid":"|/shared/reports/|/f/)[A-Za-z0-9_-]{22}"`)
	cursor := regexp.MustCompile(`("next":"|id: )[a-z2-7]{10}-\d+`)
	sent := regexp.MustCompile(`test-[a-z2-7]{26}|whsec_[\w+/=]+|"took_ms":\d+`)
	challenge := regexp.MustCompile(`[A-Z2-7]{26}\.\d+\.[\w-]{43}`)
	for _, q := range g.questions(op, path) {
		changes := slices.Clone(q.as)
		asked := q.what + " " + q.target
		if q.body != nil {
			changes = append(changes, gatewaytest.Body("application/json", *q.body))
			asked += " " + *q.body
		}
		a := g.w.Unchecked(t, op.Method, g.w.A.Host, q.target, changes...)
		if told := []string{"Audit", "Usage"}; a.Code == 200 && slices.Contains(told, op.Tag) && (!strings.Contains(path, "{") || op.Name == "audit.proof") {
			a.Body = []byte("(what was asked before)")
		}
		headers := ""
		for _, name := range []string{"Content-Type", "Cache-Control", "Vary", "Access-Control-Allow-Origin", "X-Ignored", "X-Warning", "Retry-After", "Set-Cookie", "Location"} {
			for _, v := range a.Header.Values(name) {
				headers += " " + name + "=" + v
			}
		}
		headers = strings.Replace(headers, " Content-Type=application/json; charset=utf-8 Cache-Control=private, no-store", "", 1)
		asked = heads.ReplaceAllString(strings.ReplaceAll(asked, g.w.A.IDs[fixture.RefProven], "<proven>"), "head=<head>")
		asked, headers = addresses.ReplaceAllString(asked, "$1"), ages.ReplaceAllString(headers, "max-age=<seconds>")
		a.Body = cursor.ReplaceAll(addresses.ReplaceAll(a.Body, []byte("$1")), []byte(`$1<cursor>`))
		a.Body = sent.ReplaceAll(a.Body, []byte("<sent>"))
		text := g.blanks.Fill(madePID.ReplaceAllString(fmt.Sprintf("> %s\n%d%s %s\n", asked, a.Code, headers, challenge.ReplaceAll(a.Body, []byte("<challenge>"))), "$1<pid>\""))
		_, _ = timely.WriteString(&g.text, unneeded.ReplaceAllString(lasting.ReplaceAllString(rotated.ReplaceAllString(holding.ReplaceAllString(text, `"used":"<what is there>"`), `"rotated":[]`), `"may":"<until it ends>"`), `"unused_permissions":["<until it is used>"]`)) // to memory
	}
}

func (g *golden) questions(op *operation.Row, path string) []question {
	p, s := g.w.A, fixture.SampleFor(op)
	key, session := []gatewaytest.Request{gatewaytest.WithKey(p.FullKey)}, []gatewaytest.Request{gatewaytest.Cookie(p.MemberCookie)}
	admin := []gatewaytest.Request{gatewaytest.Cookie(p.AdminCookie)}
	own := key
	switch {
	case op.Credentials == operation.Open:
		own = nil
	case op.Rule.IsAdminOnly():
		own = admin
	case op.Credentials&operation.Key == 0:
		own = session
	}
	required := func(name string) bool {
		at := slices.IndexFunc(op.Params, func(param operation.Param) bool { return param.Name == fixture.ParamRoot(name) })
		return at >= 0 && op.Params[at].Required
	}
	make := func(what string, as []gatewaytest.Request, id func(fixture.Slot) (string, bool), with func(string) bool) question {
		built := g.w.Build(op, path, s, id, with)
		q := question{what: what, as: as, target: built.Target}
		if op.Body != nil {
			body := strings.TrimPrefix(built.Text, built.Target)
			q.body = &body
		}
		return q
	}
	base := func() question { return make("own", own, p.Own, required) }
	var all []question
	add := func(q question) { all = append(all, q) }
	more := func(what, pair string) {
		q := base()
		q.what = what
		if strings.Contains(q.target, "?") {
			q.target += "&" + pair
		} else {
			q.target += "?" + pair
		}
		add(q)
	}
	if s.Slow { // and slowed down: what is asked often would be refused
		add(base())
	} else {
		add(make("everything", own, p.Own, func(string) bool { return true }))
		add(base())
		for _, as := range []question{
			{what: "key", as: key}, {what: "read key", as: []gatewaytest.Request{gatewaytest.WithKey(p.ReadKey)}},
			{what: "page key", as: []gatewaytest.Request{gatewaytest.WithKey(p.BrowserKey), gatewaytest.Header("Origin", fixture.PageOrigin)}},
			{what: "person", as: session}, {what: "administrator", as: admin},
			{what: "another's key", as: []gatewaytest.Request{gatewaytest.WithKey(g.w.B.FullKey)}},
		} {
			if op.Name == "sessions.delete" && len(as.as) > 0 && (as.what == "person" || as.what == "administrator") {
				continue
			}
			add(make(as.what, as.as, p.Own, required))
		}
		for _, v := range []string{"x", strings.Repeat("0", fixture.IDLength), strings.Repeat("a", 300)} {
			if len(s.Path) > 0 {
				add(make("identifier", own, func(at fixture.Slot) (string, bool) {
					if strings.HasPrefix(at.Name, "path ") {
						return v, true
					}
					return p.Own(at)
				}, required))
			}
		}
		if op.Teams {
			for _, pair := range []string{"teams[]=" + p.IDs[fixture.RefTeam], "teams=" + p.IDs[fixture.RefOtherTeam], "teams[]=x", "teams[$ne]=x"} {
				more("teams", pair)
			}
		}
	}
	add(make("nobody", nil, p.Own, required))
	for _, param := range op.Params {
		if param.In == operation.InPath {
			continue
		}
		if param.Required {
			add(make("without "+param.Name, own, p.Own, func(name string) bool { return name != param.Name && required(name) }))
		}
		name := url.QueryEscape(param.Name)
		for _, pair := range []string{"=", "=1", "=0", "=-1", "=true", "=x%00y", "=99999999999999999999", "=a&" + name + "=b", "[]=a", "[$ne]=x", "[country]=DE", "[a][b]=c"} {
			if param.Name == "q" && pair == "=1" {
				continue // which names have one in them is luck: some are of identifiers
			}
			more("parameter", name+pair)
		}
		at := slices.IndexFunc(s.Query, func(v fixture.QueryValue) bool { return fixture.ParamRoot(v.Name) == param.Name })
		ends := op.Name == "keys.list" && param.Name == "state" // some keys end while this runs, or do not
		if at >= 0 && !param.Required && !ends {
			add(make("with "+param.Name, own, p.Own, func(name string) bool { return required(name) || fixture.ParamRoot(name) == param.Name }))
		}
	}
	more("unknown", "nothing=1&page=1&per_page=2")
	strict := base()
	strict.what, strict.as = "strict", append(slices.Clone(own), gatewaytest.Header("Prefer", "handling=strict"))
	strict.target += map[bool]string{true: "&", false: "?"}[strings.Contains(strict.target, "?")] + "nothing=1"
	add(strict)
	if op.Body != nil {
		g.bodies(op, base, add)
	}
	return all
}

// bodies asks with bodies that contain what they should not.
func (g *golden) bodies(op *operation.Row, base func() question, add func(question)) {
	for _, raw := range []string{``, `{`, `[]`, `null`, `"x"`, `{}`, `{"a":1,"a":2}`, `{} {}`, "{\"\xff\":1}", `{"nothing":1}`} {
		q := base()
		q.what, q.body = "body", &raw
		add(q)
	}
	for _, field := range op.Body {
		for _, v := range []any{nil, "", " ", 1, -1, 1.5, 1e30, true, []any{}, []any{map[string]any{"title": "T", "type": "Text"}}, map[string]any{}, map[string]any{"a": map[string]any{"title": "A", "type": "Number", "required": true}, "b": 1}, strings.Repeat("é", 300), "x\u0000y"} {
			q := base()
			var body map[string]any
			_ = json.Unmarshal([]byte(*q.body), &body)
			body[field.Name] = v
			raw, _ := json.Marshal(body)
			text := string(raw)
			q.what, q.body = "field "+field.Name, &text
			add(q)
		}
		q := base()
		var body map[string]any
		_ = json.Unmarshal([]byte(*q.body), &body)
		delete(body, field.Name)
		raw, _ := json.Marshal(body)
		text := string(raw)
		q.what, q.body = "without "+field.Name, &text
		add(q)
	}
}
