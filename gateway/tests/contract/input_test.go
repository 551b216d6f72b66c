package contract

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"

	"tenantry/gateway/gatewaytest"
	"tenantry/gateway/tests/fixture"
	"tenantry/operation"
)

func TestOperatorsInFiltersAreRefused(t *testing.T) {
	t.Parallel()
	w := fixture.NewQuietWorld(t, fixture.WithPlants, fixture.WithDemoFiles)
	p := w.A
	for _, query := range []string{
		"filters[$where]=1", "filters[$where]=sleep(1000)", "filters[$expr]=1", "filters[$or][0][country]=DE", "filters[$and][0][country]=DE", "filters[$nor][0][country]=DE", "filters[$not][country]=DE", "filters[$text]=x", "filters[$jsonSchema]=x", "filters[$comment]=x",
		"filters[email][$regex]=.*", "filters[email][$ne]=x", "filters[email][$gt]=", "filters[email][$in][]=x", "filters[email][$exists]=true", "filters[email][$type]=2", "filters[email][$where]=1", "filters[email][regex]=.*", "filters[email][like]=%25", "filters[email][$options]=i", "filters[email][not][eq]=x",
		"filters[__proto__]=1", "filters[__proto__][x]=1", "filters[constructor]=1", "filters[constructor][prototype]=1", "filters[prototype]=1", "filters[toString]=1",
		"filters[a.b]=1", "filters[fields.plan]=1", "filters[email.x]=1", "filters[.email]=1", "filters[email.]=1", "filters[$email]=1", "filters[email$]=1", "filters[_id]=1", "filters[org_id]=1", "filters[rev]=1", "filters[body]=x", "filters[f_email]=x", "filters[teams]=x", "filters[deleted]=true",
		"filters['email']=x", "filters[\"email\"]=x", "filters[email'--]=x", "filters[email%20OR%201=1]=x", "filters[email)]=x", "filters[*]=x", "filters[%20email]=x", "filters[EMAIL]=x", "filters[Email]=x", "filters[email%00]=x",
		"filters[email", "filters[email]]=x", "filters[[email]=x", "filters]email[=x", "filters[email]x=1", "filters[email][eq=x", "filters[]=x", "filters[][]=x", "filters[][email]=x", "filters[or]=x", "filters[or][]=x", "filters[or][0]=x", "filters[or][a][email]=x", "filters[or][-1][email]=x", "filters[or][0][or][0][email]=x", "filters[or][00][email]=x", "filters[or][0][$where]=x",
		"filters[email][eq][eq]=x", "filters[email][eq][a][b][c][d]=x", "filters=x", "filters={\"$where\":\"1\"}", "filters[created_at]=x", "filters[created_at][gt]=x", "filters[email][exists]=maybe", "filters[email]=a&filters=",
		"filters[email][gt]=a&filters[email][gt]=b", "filters[country][in]=DE&filters[country]=FR&filters[country]=ES", strings.Repeat("filters[email][ne]=x&", 60) + "filters[email][ne]=x",
	} {
		a := p.Get(t, p.FullKey, "/api/campaigns/count?"+query)
		fixture.WantRefused(t, query, a)
		if strings.Contains(a.Text(), `"count"`) {
			t.Errorf("%s counts: got %s, want it without %q", query, a.Body, `"count"`)
		}
	}
	// As values they are ordinary texts.
	for _, v := range []string{"$where", "{\"$ne\":null}", "' OR '1'='1", "\" OR 1=1 --", "%25", "_", ".*", "${7*7}", "{{7*7}}", "*", "\\", "'; DROP TABLE x; --", "[object Object]"} {
		for _, op := range []string{"", "[contains]", "[starts_with]", "[in][]"} {
			if a := p.Get(t, p.FullKey, "/api/campaigns/count?filters[email]"+op+"="+url.QueryEscape(v)); a.Code != http.StatusOK || a.DataJSON() != `{"count":0}` && v != "_" {
				t.Errorf("the value %q%s: got %d %.200s, want 200 and the count 0", v, op, a.Code, a.Body)
			}
		}
	}
	if a := p.Get(t, p.FullKey, "/api/campaigns/count?filters[email][contains]=_"); a.DataJSON() != `{"count":0}` {
		t.Errorf("an underscore is a wildcard: got %s, want the data %q", a.Body, `{"count":0}`)
	}
}

func malformedQueries() []string {
	return []string{
		"%zz=1", "a=%zz", "a=%", "a=%4", "a;b=1", "a=1;b=2", ";", "%ff=1", "a=%ff", "a=%c0%af", "a=%00", "%00=1", "a=%ed%a0%80", "a[=1", "a]=1", "a[b=1", "a[b]]=1", "a[[b]]=1", "a[b]c=1", "[a]=1", "a[b][c][d][e][f][g]=1",
		strings.Repeat("a=1&", 1000) + "a=1", "a=" + strings.Repeat("b", 129<<10),
	}
}

func TestMalformedQueryIsNeverDropped(t *testing.T) {
	t.Parallel()
	w := fixture.NewWorld(t, fixture.WithPlants, fixture.WithDemoFiles)
	for _, op := range w.Rows() {
		if fixture.SampleFor(&op).Slow {
			continue // the same pipeline; below
		}
		for _, p := range []*fixture.Party{w.A} {
			q := w.SampleCall(&op, p, false)
			for _, bad := range malformedQueries() {
				a := p.Do(t, q.Method, q.With(bad), append(slices.Clone(q.Changes), p.CredentialFor(&op))...)
				if a.Code != http.StatusBadRequest || a.Status != "failed" || strings.Contains(a.Text(), p.Mark) {
					t.Errorf("%s ?%.40s: got %d %.200s, want 400, the status failed and without %q",
						op.Name, bad, a.Code, a.Body, p.Mark)
				}
				fixture.WantPlain(t, op.Name+" ?"+bad[:min(40, len(bad))], a)
			}
		}
	}
	for _, query := range []string{"filters[country]=DE&%zz", "filters[country]=DE;x", "filters[country=DE", "filters[country]=%ff", "filters%5Bcountry=DE"} {
		a := w.A.Get(t, w.A.FullKey, "/api/campaigns/count?"+query)
		fixture.WantRefused(t, query, a)
		if strings.Contains(a.Text(), `"count"`) {
			t.Errorf("%s counts: got %s, want it without %q", query, a.Body, `"count"`)
		}
	}
}

// wrongFor returns JSON values that do not have the shape.
func wrongFor(shape operation.Shape) []string {
	wrong := map[string]string{
		"object": `{"$ne":null}`, "empty object": `{}`, "array": `["a"]`, "empty array": `[]`, "null": `null`, "number": `1`, "fraction": `1.5`, "boolean": `true`, "string": `"x"`, "long number": `123456789012345678901234567890`, "array of objects": `[{"$gt":""}]`,
	}
	switch shape {
	case operation.Text:
		delete(wrong, "string")
	case operation.Object:
		delete(wrong, "object")
		delete(wrong, "empty object")
	case operation.Integer:
		delete(wrong, "number")
	case operation.Boolean:
		delete(wrong, "boolean")
	case operation.List:
		delete(wrong, "array")
		delete(wrong, "empty array")
		delete(wrong, "array of objects")
	}
	out := make([]string, 0, len(wrong))
	for _, v := range wrong {
		out = append(out, v)
	}
	slices.Sort(out)
	return out
}

func TestWrongTypesAreRefusedEverywhere(t *testing.T) {
	t.Parallel()
	w := fixture.NewWorld(t, fixture.WithPlants, fixture.WithDemoFiles)
	p := w.A
	before := p.Export(t)
	bodies, queries := 0, 0
	refuse := func(what string, op *operation.Row, target string, changes ...gatewaytest.Request) {
		t.Helper()
		fixture.WantRefused(t, what, p.Do(t, op.Method, target, append(changes, p.CredentialFor(op))...))
	}
	for _, op := range w.Rows() {
		s := fixture.SampleFor(&op)
		q := w.SampleCall(&op, p, false)
		for _, field := range op.Body {
			for _, wrong := range wrongFor(field.Shape) {
				if wrong == "null" && field.Nullable {
					continue
				}
				body := map[string]any{}
				for name, v := range s.Body {
					if r, ok := v.(fixture.Ref); ok {
						v = p.IDs[r]
					}
					body[name] = v
				}
				body[field.Name] = json.RawMessage(wrong)
				refuse(fmt.Sprintf("%s, %s: %s", op.Name, field.Name, wrong), &op, q.Target, gatewaytest.JSON(body))
				bodies++
			}
		}
		if op.Body != nil {
			for _, whole := range []string{`[]`, `"x"`, `null`, `1`, `true`, `[{}]`, ``, ` `, `{`, `{}{}`, `{},`, `{"a":1,}`, `{'a':1}`, `{a:1}`, `NaN`, `{"a":NaN}`, `{"a":01}`, "\x00", `{"a":"` + "\x01" + `"}`} {
				if whole == "" && op.Bodiless {
					continue
				}
				refuse(fmt.Sprintf("%s with the body %q", op.Name, whole), &op, q.Target, gatewaytest.Body("application/json", whole))
			}
		}
		for _, param := range op.Params {
			if param.In != operation.InQuery {
				continue
			}
			for _, bad := range []string{"%s[]=a", "%s[0]=a", "%s[a]=a", "%s[$ne]=a", "%s[]=a&%[1]s[]=b", "%s=a&%[1]s=b", "%s=a&%[1]s[]=b", "%s[a][b]=c"} {
				if param.Shape == operation.Tree && !strings.HasPrefix(bad, "%s=a") || param.Shape == operation.List && !strings.Contains(bad, "[a]") {
					continue // filters and report inputs have tests of their own; a list may have many
				}
				refuse(op.Name+" ?"+fmt.Sprintf(bad, param.Name), &op, q.With(fmt.Sprintf(bad, param.Name)), q.Changes...)
				queries++
			}
		}
	}
	if bodies < 80 || queries < 80 {
		t.Errorf("got %d bodies and %d queries, want at least 80", bodies, queries)
	}
	// The content of objects.
	form, _ := rowNamed(w, "forms.update")
	inside := []string{}
	for _, wrong := range wrongFor(operation.Text) {
		inside = append(inside, `{"schema":{"a":{"title":`+wrong+`,"type":"Text"}}}`, `{"schema":{"a":{"title":"A","type":`+wrong+`}}}`, `{"email_alerts":{"subject":`+wrong+`}}`, `{"email_alerts":{"recipients":[`+wrong+`]}}`)
	}
	for _, wrong := range wrongFor(operation.Object) {
		inside = append(inside, `{"schema":{"a":`+wrong+`}}`)
	}
	for _, wrong := range wrongFor(operation.Boolean) {
		inside = append(inside, `{"schema":{"a":{"title":"A","type":"Text","required":`+wrong+`}}}`, `{"email_alerts":{"enabled":`+wrong+`}}`)
	}
	for _, wrong := range wrongFor(operation.List) {
		inside = append(inside, `{"email_alerts":{"recipients":`+wrong+`}}`)
	}
	for _, body := range inside {
		refuse(body, &form, "/api/form/collections/"+p.IDs[fixture.RefForm], gatewaytest.Body("application/json", body))
	}
	create, _ := rowNamed(w, "objects.create")
	for _, body := range inside {
		if schema := strings.TrimPrefix(body, "{"); strings.HasPrefix(schema, `"schema"`) {
			refuse("creating with "+body, &create, "/api/custom/objects", gatewaytest.Body("application/json", `{"name":"n","label":"l","label_plural":"p",`+schema))
		}
	}
	if p.Export(t) != before {
		t.Error("got a changed organization after refused input, want it unchanged")
	}
}

// TestLineBreaksAreRefusedInOneLineTexts checks that names, titles, tags and types accept no line breaks, in any
// operation. The exceptions are listed here.
func TestLineBreaksAreRefusedInOneLineTexts(t *testing.T) {
	t.Parallel()
	long := []string{"desc", "password", "records", "thanks"} // and what each of many records says is told of each
	w := fixture.NewWorld(t)
	p := w.A
	before := p.Export(t)
	asked := 0
	for _, op := range w.Rows() {
		s, q := fixture.SampleFor(&op), w.SampleCall(&op, p, false)
		for _, field := range op.Body {
			if field.Shape != operation.Text && field.Shape != operation.List || slices.Contains(long, field.Name) {
				continue
			}
			for _, bad := range []string{"a\r\nX-Evil: 1", "text/html\r\nX: y", "a\nb", "\ta", "a\u0085b", "\u007f"} {
				body := map[string]any{}
				for name, v := range s.Body {
					if r, ok := v.(fixture.Ref); ok {
						v = p.IDs[r]
					}
					body[name] = v
				}
				if body[field.Name] = bad; field.Shape == operation.List {
					body[field.Name] = []string{bad}
				}
				what := fmt.Sprintf("%s, %s: %q", op.Name, field.Name, bad)
				fixture.WantRefused(t, what, p.Do(t, op.Method, q.Target, gatewaytest.JSON(body), p.CredentialFor(&op)))
				asked++
			}
		}
	}
	if asked < 200 && !testing.Short() {
		t.Errorf("got %d bodies, want at least 200", asked)
	}
	if p.Export(t) != before {
		t.Error("got a changed organization after refused input, want it unchanged")
	}
	// A value stored before this rule can be read, exported and kept when other fields change.
	p.Import(t, `{"kind":"file","as_is":true,"id":"`+fixture.DocID(0xf77)+`","pid":"x77","filename":"a\r\nb","mimetype":"none","type":"t"}`)
	for _, change := range []string{`{"type":"u"}`, `{"filename":"c","mimetype":"text/plain; charset=utf-8"}`} {
		if !strings.Contains(p.Export(t), `"filename":"a\r\nb","mimetype":"none"`) {
			t.Error("got an export without the stored name, want it there")
		}
		if a := p.Do(t, http.MethodPut, "/api/files/"+fixture.DocID(0xf77), gatewaytest.Cookie(p.AdminCookie), gatewaytest.Body("application/json", change)); a.Code != http.StatusOK {
			t.Errorf("%s: got %s, want %v", change, a.Body, http.StatusOK)
		}
	}
}

func rowNamed(w *fixture.World, name string) (operation.Row, bool) {
	for _, op := range w.Rows() {
		if op.Name == name {
			return op, true
		}
	}
	return operation.Row{}, false
}

func TestOddJSONHasFixedAnswers(t *testing.T) {
	t.Parallel()
	w := fixture.NewWorld(t, fixture.WithPlants, fixture.WithDemoFiles)
	p := w.A
	post := func(body string) *gatewaytest.Answer {
		return p.Do(t, http.MethodPost, "/api/custom/objects", gatewaytest.WithKey(p.FullKey), gatewaytest.Body("application/json", body))
	}
	rest := `"label":"L","label_plural":"P"`
	for _, c := range []struct {
		body, message, ignored string
		code                   int
	}{
		{`{"name":"a","name":"b",` + rest + `}`, `The body gives the name "name" twice in one object, at byte 18`, "", 400},
		{`{"schema":{"a":{"title":"x","title":"y","type":"Text"}},"name":"a",` + rest + `}`, `The body gives the name "title" twice in one object, at byte 35`, "", 400},
		{`{"name":"a","n\u0061me":"b",` + rest + `}`, `The body gives the name "name" twice in one object, at byte 23`, "", 400},
		{`{"NAME":"a",` + rest + `}`, `Validation failed: name is required`, "NAME", 422},
		{`{"ſchema":{},"name":"a",` + rest + `} x`, `The body has bytes after its JSON value, at byte 58`, "", 400},
		{"\ufeff" + `{"name":"a",` + rest + `}`, `The body starts with a byte order mark; send plain UTF-8`, "", 400},
		{`{"name":"a","x":` + strings.Repeat("[", 32) + strings.Repeat("]", 32) + `,` + rest + `}`, `The body nests deeper than 32 levels`, "", 400},
		{`{"x":` + strings.Repeat("[", 200_000), `The body nests deeper than 32 levels`, "", 400},
		{"{\"name\":\"\xff\"," + rest + `}`, `The body is not valid UTF-8`, "", 400},
		{`{"name":"a\u0000b",` + rest + `}`, `The body contains a NUL character, at byte 17`, "", 400},
		{`{"n\u0000":"a",` + rest + `}`, `The body contains a NUL character, at byte 10`, "", 400},
		{`{"name":"a",` + rest + `}{}`, `The body has bytes after its JSON value, at byte 42`, "", 400},
		{`{"name":"a",` + rest, `The body is not valid JSON: it ends too early, after byte 42`, "", 400},
	} {
		a := post(c.body)
		// The JSON reader says where in the body.
		cut := func(s string) string { head, _, _ := strings.Cut(s, ", at byte"); return head }
		if a.Code != c.code || cut(a.Message) != cut(c.message) || a.Header.Get("X-Ignored") != c.ignored {
			t.Errorf("%.80q: %d %q %q, want %d %q %q", c.body, a.Code, a.Message, a.Header.Get("X-Ignored"), c.code, c.message, c.ignored)
		}
		fixture.WantPlain(t, c.body[:min(60, len(c.body))], a)
	}
	if a := post(`{"ſchema":{"a":{"title":"A","type":"Text"}},"name":"long_s",` + rest + `}`); a.Code != http.StatusOK || a.Header.Get("X-Ignored") != "%C5%BFchema" {
		t.Errorf("a name that folds to schema: got %d %s %v, want 200 and the header X-Ignored %q",
			a.Code, a.Body, a.Header["X-Ignored"], "%C5%BFchema")
	}
	if a := p.Get(t, p.FullKey, "/api/custom/objects/schema?name=long_s"); a.Code != http.StatusOK || strings.Contains(a.Text(), `"a":`) {
		t.Errorf("a name that folds to schema was read: got %s, want 200 and without %q", a.Body, `"a":`)
	}
	// Numbers that a double cannot represent are returned unchanged.
	update := func(body string) *gatewaytest.Answer {
		return p.Do(t, http.MethodPut, "/api/form/collections/"+p.IDs[fixture.RefForm], gatewaytest.WithKey(p.FullKey), gatewaytest.Body("application/json", body))
	}
	for _, number := range []string{"9007199254740993", "-9007199254740993", "0.1", "1e2", "12345678901234567890", "1.0"} {
		for range 2 {
			a := update(`{"email_alerts":{"limit":` + number + `}}`)
			if a.Code != http.StatusOK || !strings.Contains(a.Text(), `"email_alerts":{"limit":`+number+`}`) {
				t.Errorf("%s: got %d %s, want %v and containing %q",
					number, a.Code, a.Body, http.StatusOK, `"email_alerts":{"limit":`+number+`}`)
			}
			if a = update(`{}`); !strings.Contains(a.Text(), `"email_alerts":{"limit":`+number+`}`) {
				t.Errorf("%s, read again: got %d %s, want it with %q",
					number, a.Code, a.Body, `"email_alerts":{"limit":`+number+`}`)
			}
		}
	}
}

func TestMassAssignmentChangesNothing(t *testing.T) {
	t.Parallel()
	w := fixture.NewWorld(t, fixture.WithPlants, fixture.WithDemoFiles)
	p := w.A
	intruders := map[string]any{
		"org_id": 424242, "user_id": 434343, "standalone": true, "id": "feedfeedfeedfeedfeedfeed", "_id": "feedfeedfeedfeedfeedfeed", "created_at": "1999-01-02T03:04:05.678Z", "updated_at": "1999-01-02T03:04:05.678Z",
		"locked": true, "deleted": true, "rev": 454545, "external_id": "intruder-external", "external_created_at": "intruder-created", "external_updated_at": "intruder-updated", "pid": "intruder-pid", "secrets": map[string]any{"x": "intruder-secret"}, "hash": "intruder-hash",
		"slug": "intruder-slug", "admin": true, "roles": []string{"admin"}, "permissions": []string{"manage_keys"},
	}
	formLine := func() map[string]any {
		for line := range strings.Lines(p.Export(t)) {
			var m map[string]any
			if err := json.Unmarshal([]byte(line), &m); err == nil && m["kind"] == "form_collection" && m["id"] == p.IDs[fixture.RefForm] {
				for _, name := range []string{"name", "label", "label_plural", "schema", "email_alerts", "updated_at"} {
					delete(m, name) // what the operation may change
				}
				return m
			}
		}
		t.Fatal("got an export without the form, want it there")
		return nil
	}
	before := formLine()
	tried := 0
	for _, op := range w.Rows() {
		if op.Body == nil {
			continue
		}
		s := fixture.SampleFor(&op)
		tried++
		for _, strictly := range []bool{true, false} {
			exported := p.Export(t)
			q := w.SampleCall(&op, p, false)
			body := map[string]any{}
			n := fmt.Sprintf("%06d", w.N.Add(1))
			for name, v := range s.Body {
				switch x := v.(type) {
				case fixture.Ref:
					v = p.IDs[x]
				case string:
					v = strings.ReplaceAll(x, "{n}", n)
				}
				body[name] = v
			}
			for name, v := range intruders {
				body[name] = v
			}
			if schema, ok := body["schema"].(map[string]any); ok {
				body["schema"] = map[string]any{"species": map[string]any{"title": "Species", "type": "Text", "locked": true, "id": "intruder-field"}}
				_ = schema
			}
			changes := []gatewaytest.Request{gatewaytest.JSON(body), p.CredentialFor(&op)}
			if strictly {
				changes = append(changes, gatewaytest.Header("Prefer", "handling=strict"))
			}
			a := p.Do(t, op.Method, q.Target+"?org_id=424242&user_id=434343&standalone=1", changes...)
			if !op.Contract {
				if a.Code != http.StatusUnprocessableEntity {
					t.Errorf("%s: got %d %.300s, want %v", op.Name, a.Code, a.Body, http.StatusUnprocessableEntity)
				}
				for name := range intruders {
					own := slices.ContainsFunc(op.Body, func(f operation.Field) bool { return f.Name == name })
					if !own && !strings.Contains(a.Text(), `"field":"`+name+`"`) {
						t.Errorf("%s: got no fault of %s, want one", op.Name, name)
					}
				}
				continue
			}
			if strictly {
				if a.Code != http.StatusBadRequest {
					t.Errorf("%s, strictly: got %d %.300s, want 400", op.Name, a.Code, a.Body)
				}
				if p.Export(t) != exported {
					t.Errorf("%s, strictly refused: got a changed organization, want it unchanged", op.Name)
				}
				continue
			}
			if a.Status != "ok" {
				t.Errorf(`%s: got %d %.300s, want a.Status = "ok"`, op.Name, a.Code, a.Body)
			}
			if a.Header.Get("X-Ignored") == "" {
				t.Errorf("%s names nothing in X-Ignored, want a header X-Ignored", op.Name)
			}
			for _, text := range []string{a.Text(), p.Export(t)} {
				for _, sentinel := range []string{"424242", "434343", "454545", "feedfeed", "1999-01-02", "intruder", `"locked":true,"title":"Species"`} {
					if strings.Contains(text, sentinel) {
						t.Errorf("%s took %s: got %.300s, want it nowhere", op.Name, sentinel, text)
					}
				}
			}
		}
	}
	if tried < 4 && !testing.Short() {
		t.Errorf("got %d operations with a body, want at least 4", tried)
	}
	if after := formLine(); fmt.Sprint(after) != fmt.Sprint(before) {
		t.Errorf("form = %v\nwant %v", after, before)
	}
	if a := p.Do(t, http.MethodPut, "/api/form/collections/"+p.IDs[fixture.RefForm], gatewaytest.WithKey(p.FullKey), gatewaytest.JSON(map[string]any{"label": "Still mine"})); a.Status != "ok" {
		t.Errorf("the form cannot be updated any more: got %d %.200s, want the status ok", a.Code, a.Body)
	}
	a := p.Get(t, p.FullKey, "/api/form/collections/schema?id="+p.IDs[fixture.RefForm])
	if species := fmt.Sprint(a.Field("schema")); strings.Count(species, "locked:true") != 1 {
		t.Errorf("got another number of locked fields: %s, want 1", a.Body)
	}
}

func TestOddIdentifiersAreRefused(t *testing.T) {
	t.Parallel()
	w := fixture.NewWorld(t, fixture.WithPlants, fixture.WithDemoFiles)
	p := w.A
	for _, op := range w.Rows() {
		s := fixture.SampleFor(&op)
		for name, r := range s.Path {
			good, path := p.IDs[r], op.Path
			for _, other := range op.Aliases {
				if !strings.Contains(path, "{"+name+"}") {
					path = other
				}
			}
			odd := []string{
				"%2F", "%2f..%2f" + good, "..", "%2e%2e", "..%2f..%2f", good + "%2F", "%2F" + good, good + "%00", "%00", good + "%0a", good + "%20", "%20" + good, good + ".", good + ";x", good + "%3Fx", good + "%23", good + ",", strings.Repeat("a", 10_000), "%F0%9F%92%A5", "%ff", "%c0%af",
				"null", "undefined", "0", "-1", "1e3", "*", "%24ne", "%7B%22%24ne%22%3Anull%7D", "[object%20Object]", good + good, "%E2%80%8B" + good, "'%20OR%201=1--", "%252F",
			}
			if fixture.IsID(good) {
				odd = append(odd, strings.ToUpper(good), good[:23], good+"0", "0x"+good)
			}
			if r == fixture.RefUser {
				odd = append(odd, "+"+good, "0"+good, good+".0", "9223372036854775808", strings.Repeat("9", 400), "７００１", "1_0")
			}
			for _, id := range odd {
				q := w.Build(&op, path, s, func(at fixture.Slot) (string, bool) {
					if at.Name == "path "+name {
						return "ODDIDENTIFIER", true
					}
					return p.Own(at)
				}, func(name string) bool { return name == "field" })
				target := strings.Replace(q.Target, "ODDIDENTIFIER", id, 1)
				if op.Name == "reports.revoke_share" && name == "token_id" && strings.Trim(id, "abcdefghijklmnopqrstuvwxyz0123456789-_ABCDEFGHIJKLMNOPQRSTUVWXYZ") == "" && len(id) <= 128 {
					continue // every text of that form can be the identifier of a token
				}
				a := p.Do(t, q.Method, target, append(slices.Clone(q.Changes), p.CredentialFor(&op))...)
				what := fmt.Sprintf("%s with the %s %.60q", op.Name, name, id)
				if a.Code >= 500 || a.Code >= 300 && a.Code < 400 || a.Code == http.StatusOK && a.Status != "failed" || strings.Contains(a.Text(), p.Mark) {
					t.Errorf("%s: got %d %.300s, want a.Code < 500", what, a.Code, a.Body)
				}
				fixture.WantPlain(t, what, a)
			}
		}
	}
}

// matchesPath reports whether a row's path matches the other path, with fixed text or a parameter.
func matchesPath(template, path string) bool {
	return slices.EqualFunc(strings.Split(template, "/"), strings.Split(path, "/"), func(t, s string) bool {
		return t == s || strings.HasPrefix(t, "{")
	})
}

func TestEveryFailureIsTheEnvelope(t *testing.T) {
	t.Parallel()
	w := fixture.NewWorld(t, fixture.WithPlants, fixture.WithDemoFiles)
	p := w.A
	for _, op := range w.Rows() {
		q := w.SampleCall(&op, p, false)
		allowed := []string{}
		for _, other := range w.App.Operations() {
			if matchesPath(other.Path, op.Path) {
				allowed = append(allowed, other.Method)
				if other.Options != nil {
					allowed = append(allowed, http.MethodOptions)
				}
			}
		}
		for _, method := range []string{"GET", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "PROPFIND", "FOO"} {
			if slices.Contains(allowed, method) {
				continue
			}
			// Without the document, in which a path of fixed text may match one with a parameter.
			a := w.Unchecked(t, method, p.Host, q.Target, gatewaytest.WithKey(p.FullKey))
			what := method + " " + op.Path
			fixture.WantPlain(t, what, a)
			known := method != "PROPFIND" && method != "FOO"
			if known && (a.Code != http.StatusMethodNotAllowed || a.Header.Get("Allow") == "") || a.Code < 400 {
				t.Errorf("%s: got %d %v %.200s, want a.Code >= 400", what, a.Code, a.Header, a.Body)
			}
		}
		if op.Body != nil {
			huge := `{"x":"` + strings.Repeat("a", int(op.BodyMax())) + `"}`
			a := p.Do(t, op.Method, q.Target, p.CredentialFor(&op), gatewaytest.Body("application/json", huge))
			if a.Code != http.StatusRequestEntityTooLarge {
				t.Errorf("%s with a body too large: got %d %.200s, want 413", op.Name, a.Code, a.Body)
			}
			fixture.WantPlain(t, op.Name+", too large", a)
		}
	}
	for _, path := range []string{"/api", "/api/", "/auth", "/auth/", "/api/nothing", "/auth/nothing", "/api/files/", "/api//files/x", "/api/files/folders/", "/api/users/1/2/3", "/api/../api/users/1x", "/api/%2e%2e/x"} {
		a := p.Get(t, p.FullKey, path)
		if a.Code < 400 || a.Code > 499 {
			t.Errorf("%s: got %d %.200s, want a.Code >= 400 and a.Code <= 499", path, a.Code, a.Body)
		}
		fixture.WantPlain(t, path, a)
	}
}
