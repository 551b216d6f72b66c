package gateway_test

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"testing"

	"tenantry/gateway/gatewaytest"
	"tenantry/operation"
	"tenantry/tenants"
)

// sample says how to call one operation: what its identifiers name, and good values for the
// rest. {n} in a text stands for a number that is new in every call.
type sample struct {
	path  map[string]ref
	query []value
	body  map[string]any // a ref, or a value
	// volatile are members of the answer that differ from call to call.
	volatile []string
	// once: a good call uses its identifier up.
	once bool
	// slow: a call costs a password hash.
	slow bool
}

// value is one query parameter; is may be a ref or a text.
type value struct {
	name string
	is   any
}

// samples holds one sample for every operation.
func samples() map[string]sample {
	schema := map[string]any{"species": map[string]any{"title": "Species", "type": "Text"}}
	return map[string]sample{
		"folders.get": {
			path:  map[string]ref{"id": refFolder},
			query: []value{{"schema", "full"}, {"deleted", "false"}, {"folder_id", refParent}, {"page", "1"}, {"per_page", "20"}},
		},
		"files.delete": {path: map[string]ref{"id": refFile}},
		"exports.get":  {query: []value{{"public_key", "tenantry-transfer-public-key:AAAA"}}},
		"objects.create": {
			body:     map[string]any{"name": "tree{n}", "label": "Tree {n}", "label_plural": "Trees {n}", "schema": schema},
			volatile: []string{"id", "name", "label", "label_plural"},
		},
		"objects.schema": {query: []value{{"id", refObject}, {"name", refObjectName}}},
		"forms.update": {
			path:     map[string]ref{"id": refForm},
			body:     map[string]any{"name": "form{n}", "label": "Form {n}", "label_plural": "Forms {n}", "schema": schema, "email_alerts": map[string]any{"enabled": false}},
			volatile: []string{"name", "label", "label_plural"},
		},
		"forms.schema":    {query: []value{{"id", refForm}}},
		"forms.challenge": {path: map[string]ref{"id": refForm}, volatile: []string{"challenge", "expires_at"}},
		"reports.get":     {path: map[string]ref{"id": refReport}},
		"reports.shared": {
			path:  map[string]ref{"pid": refPID, "report_id": refReport},
			query: []value{{"token", refShare}, {"data", "1"}, {"provider", "store"}, {"params[country]", "FR"}},
		},
		"reports.export_shared": {
			path:  map[string]ref{"pid": refPID, "report_id": refReport},
			query: []value{{"token", refShare}, {"format", "csv"}, {"columns", ""}, {"bom", "true"}, {"provider", "store"}, {"params[country]", "FR"}},
		},
		"reports.share": {
			path:     map[string]ref{"id": refSecure},
			body:     map[string]any{"params": map[string]any{"region": "DE"}, "expires_in": 60},
			volatile: []string{"id", "token", "url", "expires_at"},
		},
		"reports.revoke_shares": {path: map[string]ref{"id": refScratch}},
		"reports.list_shares":   {path: map[string]ref{"id": refScratch}, query: []value{{"page", "1"}, {"per_page", "20"}, {"sort", "-created_at"}, {"after", ""}}},
		"reports.revoke_share":  {path: map[string]ref{"id": refSecure, "token_id": refTokenID}},
		"reports.run":           {path: map[string]ref{"id": refReport}, query: []value{{"page", "1"}, {"per_page", "20"}, {"whole", "false"}, {"params[country]", "FR"}}},
		"reports.fields":        {query: []value{{"class", "Records"}, {"source", refObjectName}}},
		"reports.export":        {path: map[string]ref{"id": refReport}, query: []value{{"format", "csv"}, {"columns", ""}, {"bom", "true"}, {"params[country]", "FR"}}},
		"reports.duplicate":     {path: map[string]ref{"id": refReport}, volatile: []string{"id", "pid", "share_url", "created_at", "updated_at"}},
		"compliance.schema":     {},
		"compliance.check":      {query: []value{{"page", "1"}, {"per_page", "20"}, {"after", ""}}},
		"compliance.check_one":  {path: map[string]ref{"id": refContact}},
		"users.get":             {path: map[string]ref{"id": refUser}},
		"organization.get":      {volatile: []string{"id", "updated_at"}},
		"organization.update": {
			body:     map[string]any{"name": "Acme {n}", "features": map[string]any{"teams": true}, "settings": map[string]any{"sign_in_names_organization": false}, "limits": map[string]any{"folder_children": 100}, "frame_origins": []string{"https://www.example.com"}},
			volatile: []string{"id", "slug", "name", "url", "created_at", "updated_at"},
		},
		"me.get":        {volatile: []string{"id", "name", "email", "created_at"}},
		"me.update":     {body: map[string]any{"name": "Grace {n}"}, volatile: []string{"id", "name", "email", "created_at"}},
		"store.explain": {query: []value{{"call", "/api/audit?per_page=1"}}, volatile: []string{"took_us", "questions"}},
		"audit.verify":  {query: []value{{"after", "0"}}},
		"authz.explain": {query: []value{{"operation", "folders.get"}, {"subject", refSubject}}},
		"contacts.reveal": {
			path:     map[string]ref{"id": refContact},
			query:    []value{{"field", secretField}, {"public_key", "CQAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA="}},
			volatile: []string{"field_value"},
		},
		"campaigns.count": {path: map[string]ref{"id": refCampaign}, query: []value{{"filters[country]", "DE"}}},
		"sessions.create": {
			body:     map[string]any{"email": refEmail, "password": gatewaytest.Password},
			volatile: []string{"id", "name"}, once: true, slow: true,
		},
		"sessions.delete":     {},
		"sessions.redeem":     {body: map[string]any{"token": refSignIn}, volatile: []string{"id", "name"}, once: true},
		"sessions.list":       {query: []value{{"page", "1"}, {"per_page", "20"}}, volatile: []string{"count", "pages", "results"}},
		"sessions.get":        {path: map[string]ref{"id": refSession}, volatile: []string{"id", "address", "started_at", "last_used_at", "expires_at"}},
		"sessions.end":        {path: map[string]ref{"id": refSession}, once: true},
		"sessions.end_others": {},
		"passwords.check":     {body: map[string]any{"token": refInvite}, volatile: []string{"expires_at"}, once: true},
		"passwords.change": {
			body: map[string]any{"present_password": gatewaytest.Password, "password": gatewaytest.Password}, slow: true,
		},
		"contacts.disclose": {
			path:     map[string]ref{"id": refContact},
			body:     map[string]any{"field": secretField, "reason": "a visa", "public_key": "CQAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA="},
			volatile: []string{"field_value"},
		},
		"passwords.create": {
			body:     map[string]any{"token": refInvite, "password": gatewaytest.Password},
			volatile: []string{"id", "name"}, once: true, slow: true,
		},
	}
}

// asked returns the rows that a test asks many questions of each: all of them. With -short, as under the race
// detector, which looks for how goroutines meet and not for what inputs do, those of every
// sixth area, beginning elsewhere in each test.
func (w *world) asked() []operation.Row {
	all := w.App.Operations()
	if !testing.Short() {
		return all
	}
	var tags []string
	return slices.DeleteFunc(all, func(op operation.Row) bool {
		if !slices.Contains(tags, op.Tag) {
			tags = append(tags, op.Tag)
		}
		return (slices.Index(tags, op.Tag)+len(w.test))%6 > 0
	})
}

// sampleFor returns the sample of a row. One that was made from a resource says all of it by itself.
func sampleFor(op *operation.Row) sample {
	if op.Resource == "" {
		return samples()[op.Name]
	}
	s := sample{path: map[string]ref{}, body: map[string]any{}, volatile: []string{"id", "created_at", "updated_at", "created", "updated", "results", "pid", "share_url"}}
	for _, p := range op.Params {
		switch {
		case p.In == operation.InHeader: // for no more than one row
		case p.In == operation.InPath:
			spare := map[string]ref{"teams.delete": refSpareTeam, "roles.delete": refSpareRole, "service_accounts.delete": refSpareAccount}[op.Name]
			s.path[p.Name] = cmp.Or(spare, ref(cmp.Or(p.Ref, op.Resource)))
		case p.Ref != "":
			s.query = append(s.query, value{p.Name, ref(p.Ref)})
		case p.Shape == operation.Tree:
			name, _, _ := strings.Cut(p.Example, "=")
			s.query = append(s.query, value{name, ref(op.Resource)})
		case p.Name == "page": // after goes without it
		default:
			words := append(slices.Clone(p.Enum), map[bool]string{true: "true"}[p.Shape == operation.Boolean])
			s.query = append(s.query, value{p.Name, strings.Trim(cmp.Or(p.Example, p.Default, words[0]), `["]`)})
		}
	}
	for _, f := range op.Body {
		text, isText := f.Example.(json.RawMessage)
		switch {
		case f.Ref == "team": // which every row takes
		case f.Ref != "":
			s.body[f.Name] = ref(f.Ref)
		case f.Shape == operation.Boolean:
			s.body[f.Name] = true
		case isText && f.Shape == operation.Text && len(f.Enum) == 0:
			s.body[f.Name] = numbered(op.Resource, strings.Trim(string(text), `"`))
			s.volatile = append(s.volatile, f.Name)
		default:
			s.body[f.Name] = f.Example
		}
	}
	maps.Copy(s.body, fitting()[op.Name])
	return s
}

// fitting has the values of generated rows that must fit what a party has.
func fitting() map[string]map[string]any {
	type m = map[string]any
	return map[string]map[string]any{
		"folders.update":        {"folder_id": nil},
		"objects.update":        {"schema": m{"kind": m{"title": "Kind", "type": "Text"}, "pin": m{"title": "Pin", "type": "Encrypted"}}},
		"records.create":        {"values": m{"kind": "oak", "pin": "1234"}},
		"records.bulk":          {"records": []any{m{"values": m{"kind": "ash"}}, m{"values": m{"none": 1}}}},
		"records.update":        {"values": m{"kind": "elm"}},
		"forms.create":          {"name": "made{n}"},
		"reports.create":        {"class": "Contacts", "child_reports": []string{}, "pid": "made-for-a-test-{n}"},
		"reports.preview":       {"class": "Contacts", "child_reports": []string{}, "pid": "seen-in-a-test-{n}"},
		"reports.update":        {"class": "Campaigns", "child_reports": []string{}},
		"contacts.create":       {"email": "ada{n}@example.com", "fields": m{"plan": "gold"}},
		"contacts.update":       {"email": "ada{n}@example.com", "fields": m{"plan": "gold"}},
		"contact_fields.create": {"key": "made{n}", "type": "Text"},
		"contact_fields.update": {"type": "Text"},
	}
}

// numbered makes a text another one in each call: an address stays one, the name of a role, and a media type.
func numbered(resource, text string) string {
	switch {
	case strings.Contains(text, "@"):
		return strings.Replace(text, "@", "{n}@", 1)
	case resource == "role", strings.HasPrefix(text, "application/"): // a media type stays one
		return text + "{n}"
	}
	return text + " {n}"
}

// uncovered returns what the samples lack, or have too much, against the rows.
func uncovered(rows []operation.Row, have map[string]sample) []string {
	var faults []string
	fault := func(format string, args ...any) { faults = append(faults, fmt.Sprintf(format, args...)) }
	named := map[string]bool{}
	for _, op := range rows {
		named[op.Name] = true
		s, ok := have[op.Name]
		if !ok {
			fault("operation %s has no sample; add one to samples", op.Name)
			continue
		}
		params, body := map[string]bool{}, map[string]bool{}
		for _, p := range op.Params {
			params[string(p.In)+" "+p.Name] = true
			_, inPath := s.path[p.Name]
			inQuery := slices.ContainsFunc(s.query, func(v value) bool { return root(v.name) == p.Name })
			if p.In == operation.InPath && !inPath || p.In == operation.InQuery && !inQuery {
				fault("the sample of %s lacks the %s parameter %s", op.Name, p.In, p.Name)
			}
		}
		for _, f := range op.Body {
			body[f.Name] = true
			if _, ok := s.body[f.Name]; !ok {
				fault("the sample of %s lacks the body field %s", op.Name, f.Name)
			}
		}
		for name := range s.path {
			if !params["path "+name] {
				fault("the sample of %s has the path parameter %s, the operation has not", op.Name, name)
			}
		}
		for _, v := range s.query {
			if !params["query "+root(v.name)] {
				fault("the sample of %s has the query parameter %s, the operation has not", op.Name, v.name)
			}
		}
		for name := range s.body {
			if !body[name] {
				fault("the sample of %s has the body field %s, the operation has not", op.Name, name)
			}
		}
	}
	for name := range have {
		if !named[name] {
			fault("there is a sample for %s, but no such operation", name)
		}
	}
	return faults
}

func root(name string) string {
	before, _, _ := strings.Cut(name, "[")
	return before
}

func TestSamplesCoverEveryOperation(t *testing.T) {
	t.Parallel()
	g := gatewaytest.Start(t)
	rows := slices.DeleteFunc(g.App.Operations(), func(o operation.Row) bool { return o.Resource != "" }) // whose samples are made of the row
	for _, fault := range uncovered(rows, samples()) {
		t.Error(fault)
	}
	for _, op := range rows {
		less := samples()
		delete(less, op.Name)
		if len(uncovered(rows, less)) != 1 {
			t.Errorf("the missing sample of %s is not noticed", op.Name)
		}
		if others := slices.DeleteFunc(slices.Clone(rows), func(o operation.Row) bool { return o.Name == op.Name }); len(uncovered(others, samples())) != 1 {
			t.Errorf("the sample left over of %s is not noticed", op.Name)
		}
		more := op
		more.Params = append(slices.Clone(op.Params), operation.Param{Name: "another_id", In: operation.InQuery})
		if len(uncovered([]operation.Row{more}, map[string]sample{op.Name: sampleFor(&op)})) != 1 {
			t.Errorf("a new parameter of %s is not noticed", op.Name)
		}
	}
}

// uses reports whether a good call leaves nothing for the next one.
func uses(op *operation.Row) bool {
	return op.Resource != "" && (op.Method == http.MethodDelete || strings.HasSuffix(op.Path, "/restore") || strings.HasSuffix(op.Path, "/bulk/delete"))
}

// slot is one place of a request where an identifier stands.
type slot struct {
	name string // "path id", "query folder_id", "body token"
	ref  ref
}

// slots returns the places of one path of an operation that take identifiers.
func (s sample) slots(op *operation.Row, path string) []slot {
	var out []slot
	for name, r := range s.path {
		if strings.Contains(path, "{"+name+"}") {
			out = append(out, slot{"path " + name, r})
		}
	}
	for _, v := range s.query {
		if r, ok := v.is.(ref); ok {
			out = append(out, slot{"query " + v.name, r})
		}
	}
	for name, v := range s.body {
		if r, ok := v.(ref); ok {
			out = append(out, slot{"body " + name, r})
		}
	}
	if op.Teams {
		out = append(out, slot{"query teams[]", refTeam}, slot{"query teams", refTeam})
		if op.Body != nil {
			out = append(out, slot{"body teams", refTeam})
		}
	}
	slices.SortFunc(out, func(a, b slot) int { return strings.Compare(a.name, b.name) })
	return out
}

// ask is a request that was built.
type ask struct {
	method, target string
	changes        []gatewaytest.Request
	text           string // target and body
}

// build makes a request for the operation. id gives the identifier of a slot; teams are only
// part of the request where it gives one. Of the query, only what with admits is there.
func (w *world) build(op *operation.Row, path string, s sample, id func(slot) (string, bool), with func(name string) bool) ask {
	n := fmt.Sprintf("%06d", w.n.Add(1))
	q := ask{method: op.Method, target: path}
	var query []string
	pair := func(name, v string) { query = append(query, url.QueryEscape(name)+"="+url.QueryEscape(v)) }
	body := map[string]any{}
	for name, v := range s.body {
		if text, ok := v.(string); ok {
			v = strings.ReplaceAll(text, "{n}", n)
		}
		body[name] = v
	}
	for _, v := range s.query {
		if text, ok := v.is.(string); ok && with(v.name) {
			pair(v.name, text)
		}
	}
	for _, at := range s.slots(op, path) {
		v, given := id(at)
		place, name, _ := strings.Cut(at.name, " ")
		switch {
		case place == "path":
			q.target = strings.ReplaceAll(q.target, "{"+name+"}", url.PathEscape(v))
		case !given:
			if place == "body" {
				delete(body, name)
			}
		case name == "teams" && place == "body":
			body[name] = []string{v}
		case place == "body" && slices.ContainsFunc(op.Body, func(f operation.Field) bool { return f.Name == name && f.Shape == operation.List }):
			body[name] = []string{v}
		case place == "body":
			body[name] = v
		case with(name):
			pair(name, v)
		}
	}
	if len(query) > 0 {
		q.target += "?" + strings.Join(query, "&")
	}
	q.text = q.target
	if op.Upload != nil {
		q.changes = append(q.changes, gatewaytest.Body(op.Upload[0], ""))
	}
	if op.Body != nil {
		raw, err := json.Marshal(body)
		if err != nil {
			panic(err)
		}
		q.changes = append(q.changes, gatewaytest.Body("application/json", string(raw)))
		q.text += string(raw)
	}
	return q
}

// own fills slots with the party's identifiers and names no teams.
func (p *party) own(at slot) (string, bool) {
	if strings.HasSuffix(at.name, " teams") || strings.HasSuffix(at.name, " teams[]") {
		return "", false
	}
	return p.ids[at.ref], true
}

func all(string) bool { return true }

// randomLike returns an identifier of nothing, in the shape of the given one.
func randomLike(like string) string {
	if _, err := strconv.ParseInt(like, 10, 64); err == nil {
		return "9" + digits(len(like)-1, "0123456789")
	}
	if isID(like) {
		return digits(hexShape, "0123456789abcdef")
	}
	if who, id, ok := strings.Cut(like, ":"); ok { // user:7
		return who + ":" + randomLike(id)
	}
	keep := 0
	if at := strings.IndexByte(like, '_'); at > 0 && at < 5 { // inv_...
		keep = at + 1
	}
	end := len(like)
	if at := strings.IndexByte(like, '@'); at > 0 {
		end = at
	}
	return like[:keep] + digits(end-keep, "abcdefghijklmnopqrstuvwxyz") + like[end:]
}

func isID(text string) bool {
	return len(text) == hexShape && strings.Trim(text, "0123456789abcdef") == ""
}

func digits(n int, of string) string {
	out := make([]byte, n)
	for i := range out {
		out[i] = of[rand.IntN(len(of))]
	}
	return string(out)
}

// credential is something a caller shows, with its twin of nobody.
type credential struct {
	name        string
	shown, twin []gatewaytest.Request
}

// credentials returns all kinds of credentials that the party has.
func (p *party) credentials(t testing.TB) []credential {
	key := func(kind tenants.KeyKind, token string, more ...gatewaytest.Request) credential {
		return credential{
			name:  string(kind),
			shown: append([]gatewaytest.Request{gatewaytest.WithKey(token)}, more...),
			twin:  append([]gatewaytest.Request{gatewaytest.WithKey(randomKey(t, kind))}, more...),
		}
	}
	return []credential{
		key(tenants.ServerFull, p.key), key(tenants.ServerRead, p.readKey),
		key(tenants.Browser, p.pageKey, gatewaytest.Header("Origin", pageOrigin)),
		{"session of an administrator", []gatewaytest.Request{gatewaytest.Cookie(p.adminCookie)}, []gatewaytest.Request{gatewaytest.Cookie(randomCookie())}},
	}
}

func TestKeyOfAnotherOrganization(t *testing.T) {
	t.Parallel()
	w := newWorld(t, withPlants)
	for _, pair := range [][2]*party{{w.a, w.b}, {w.b, w.a}} {
		stranger, host := pair[0], pair[1]
		before := host.export(t)
		calls := 0
		for _, op := range w.asked() {
			s := sampleFor(&op)
			for _, path := range op.Paths() {
				for _, c := range stranger.credentials(t) {
					for name, ids := range map[string]*party{"the stranger's": stranger, "its own": host} {
						id := ids.own
						if s.once {
							id = func(at slot) (string, bool) { return randomLike(ids.ids[at.ref]), true }
						}
						q := w.build(&op, path, s, id, all)
						got := host.Do(t, q.method, q.target, append(q.changes, c.shown...)...)
						want := host.Do(t, q.method, q.target, append(q.changes, c.twin...)...)
						what := fmt.Sprintf("%s %s with %s of %s on %s, %s identifiers", op.Method, path, c.name, stranger.Slug, host.Slug, name)
						if g, w := canonical(got, "", s.volatile), canonical(want, "", s.volatile); g != w {
							t.Errorf("%s:\n%s\nas nobody:\n%s", what, g, w)
						}
						if op.Credentials != operation.Open {
							wantDenied(t, what, got)
						}
						calls++
					}
				}
			}
		}
		if calls < 8*len(w.asked()) {
			t.Errorf("%d calls only", calls)
		}
		if host.export(t) != before {
			t.Errorf("strangers changed %s", host.Slug)
		}
	}
}

func TestIdentifiersOfAnotherOrganization(t *testing.T) {
	t.Parallel()
	w := newWorld(t, withPlants)
	for i, pair := range [][2]*party{{w.a, w.b}, {w.b, w.a}} {
		victim, caller := pair[0], pair[1]
		before := victim.export(t)
		tried := map[string]int{}
		for _, op := range w.asked() {
			s := sampleFor(&op)
			for _, path := range op.Paths() {
				for _, at := range s.slots(&op, path) {
					if uses(&op) && !strings.HasPrefix(at.name, "path ") {
						tried[op.Name]++
						continue // the second call would find no record, whatever else it names
					}
					w.tryForeign(t, &op, path, s, at, caller, victim, i == 0)
					tried[op.Name]++
				}
			}
		}
		for _, op := range w.asked() {
			if tried[op.Name] == 0 && (len(op.Params) > 0 || op.Teams) && op.Upload == nil && op.Name != "exports.get" && op.Name != "store.explain" && op.Name != "audit.verify" && op.Name != "sessions.list" { // which name none
				t.Errorf("no identifier of %s was tried", op.Name)
			}
		}
		if victim.export(t) != before {
			t.Errorf("%s's key changed %s", caller.Slug, victim.Slug)
		}
	}
}

// tryForeign calls with the victim's identifier in one slot, or with each of that shape, whatever kind is meant, and holds
// the answer against that to an identifier of nothing.
func (w *world) tryForeign(t *testing.T, op *operation.Row, path string, s sample, at slot, caller, victim *party, ofEachKind bool) {
	foreign := map[ref]string{at.ref: victim.ids[at.ref]}
	if ofEachKind && isID(victim.ids[at.ref]) { // what is another kind's identifier leads nowhere, too, whoever of the two asks
		for r, id := range victim.ids {
			if isID(id) {
				foreign[r] = id
			}
		}
	}
	var shows []gatewaytest.Request
	if op.Credentials&operation.Key != 0 && !op.Rule.IsAdminOnly() {
		shows = append(shows, gatewaytest.WithKey(caller.key))
	}
	if op.Credentials&operation.Session != 0 {
		shows = append(shows, gatewaytest.Cookie(caller.adminCookie))
	}
	if len(shows) == 0 {
		shows = append(shows, func(*http.Request) {})
	}
	random := randomLike(victim.ids[at.ref])
	for i, show := range shows {
		call := func(identifier string) *gatewaytest.Answer {
			q := w.build(op, path, s, func(other slot) (string, bool) {
				if other == at {
					return identifier, true
				}
				return caller.own(other)
			}, func(name string) bool { return name != "public_key" && name != "filters[country]" })
			return caller.Do(t, q.method, q.target, append(q.changes, show)...)
		}
		want := canonical(call(random), random, s.volatile)
		for r, id := range foreign {
			if r == at.ref || i == 0 { // what another kind's identifier leads to does not depend on who asks
				holdForeign(t, op, path, s, at, caller, r, id, call(id), want)
			}
		}
	}
}

func holdForeign(t *testing.T, op *operation.Row, path string, s sample, at slot, caller *party, r ref, id string, got *gatewaytest.Answer, want string) {
	t.Helper()
	if g := canonical(got, id, s.volatile); g != want {
		t.Errorf("%s %s by %s with the other organization's %s as %s:\n%s\nwith a random identifier:\n%s", op.Method, path, caller.Slug, r, at.name, g, want)
	}
	// A path identifier that leads somewhere would make a success.
	if strings.HasPrefix(at.name, "path ") && got.Status != "failed" {
		t.Errorf("%s %s by %s with the other organization's %s: %d %.200s", op.Method, path, caller.Slug, r, got.Code, got.Body)
	}
}
