package console_test

import (
	"encoding/json"
	"fmt"
	"html"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"reflect"
	"regexp"
	"strings"
	"testing"

	controls "tenantry/gateway/console/input"
	"tenantry/gateway/console/layout"
	"tenantry/gateway/gatewaytest"
	"tenantry/internal/fault"
	"tenantry/internal/strictjson"
)

// typed returns the values that a browser sends for a form: controls change values that they cannot hold.
func typed(markup string, values url.Values) url.Values {
	for _, found := range input.FindAllStringSubmatch(markup, -1) {
		at := map[string]string{}
		for _, a := range attr.FindAllStringSubmatch(found[1], -1) {
			at[a[1]] = html.UnescapeString(a[2])
		}
		switch at["type"] {
		case "text", "email", "password":
			values.Set(at["name"], strings.NewReplacer("\n", "", "\r", "").Replace(at["value"]))
		case "date":
			if !regexp.MustCompile(`^\d{4,}-\d\d-\d\d$`).MatchString(at["value"]) {
				values.Set(at["name"], "")
			}
		case "number":
			if !regexp.MustCompile(`^-?(\d+|\d*\.\d+)([eE][-+]?\d+)?$`).MatchString(at["value"]) {
				values.Set(at["name"], "")
			}
		}
	}
	for _, found := range regexp.MustCompile(`(?s)<textarea [^>]*name="([^"]*)"[^>]*>(.*?)</textarea>`).FindAllStringSubmatch(markup, -1) {
		value := strings.ReplaceAll(strings.TrimPrefix(html.UnescapeString(found[2]), "\n"), "\r\n", "\n")
		values.Set(found[1], strings.ReplaceAll(value, "\n", "\r\n"))
	}
	return values
}

// api makes a call as the person and fails the test unless it succeeds. body may be nil.
func (p person) api(method, path string, body any) *gatewaytest.Answer {
	p.t.Helper()
	changes := []gatewaytest.Request{gatewaytest.Cookie(p.cookie)}
	if body != nil {
		changes = append(changes, gatewaytest.JSON(body))
	}
	a := p.o.Do(p.t, method, path, changes...)
	if a.Code != http.StatusOK {
		p.t.Fatalf("%s %s: %d %s", method, path, a.Code, a.Text())
	}
	return a
}

// TestSavingUnchangedChangesNothing saves the form of every kind of record unchanged. Values that the form does not
// show are kept, and values that it shows are sent back exactly.
func TestSavingUnchangedChangesNothing(t *testing.T) {
	t.Parallel()
	_, acme, cookie := rich(t, nil)
	p := person{t, acme, cookie}
	api := p.api
	type object = map[string]any
	fields := object{}
	values := object{}
	for name, of := range map[string][2]any{
		"lines": {"Text", " two\nlines "}, "long": {"LongText", "\n\n  first\nlast\n"}, "big": {"Number", json.Number("12345678901234567")}, "small": {"Number", json.Number("1e-7")},
		"yes": {"Boolean", true}, "no": {"Boolean", false}, "day": {"Date", "2024-05-17"}, "moment": {"DateTime", "2024-05-17T08:30:00.123Z"},
		"several": {"MultiSelect", []string{"a, b", "two\nlines", " blank "}}, "plain": {"MultiSelect", []string{"x", "y"}}, "none": {"MultiSelect", nil},
		"choice": {"Select", " <one> "}, "__proto__": {"Text", "x"}, "secret": {"Encrypted", "hush"}, "absent": {"Text", nil}, "locked": {"Text", "kept"},
		"place": {"GeoPoint", object{"lat": 50.7, "a.b": []any{1, nil, "x"}}}, "count": {"Stars", 3}, "told": {"Stars", "3"}, "flag": {"Stars", true}, "list": {"Tags", []any{"x", 1}},
	} {
		fields[name] = object{"title": "The " + name, "type": of[0], "locked": name == "locked"}
		if of[1] != nil {
			values[name] = of[1]
		}
	}
	for i := range 300 {
		fields[fmt.Sprintf("f%d", i)] = object{"title": "F", "type": "Text"}
		values[fmt.Sprintf("f%d", i)] = fmt.Sprint(i)
	}
	api(http.MethodPost, "/api/custom/objects", object{"name": "odd", "label": "Odd", "label_plural": "Odds", "schema": fields})
	odd := api(http.MethodPost, "/api/custom/objects/odd/records", object{"values": values}).Field("id").(string)
	api(http.MethodPost, "/api/contacts", object{"email": "odd@example.com", "first_name": " blank ", "tags": []string{"a, b", "c"}, "fields": object{"age": json.Number("41.50")}})

	checked := map[string]int{}
	const most = 3 // of each kind
	check := func(path string, most int) {
		t.Helper()
		page := p.open(path)
		for _, f := range forms.FindAllStringSubmatch(page.Text(), -1) {
			if !strings.HasSuffix(f[1], ".update") || checked[f[1]] >= most {
				continue
			}
			checked[f[1]]++
			shown := strings.Split(path, "?")[0]
			state := func() string {
				a := acme.Do(t, http.MethodGet, "/api"+shown, gatewaytest.Cookie(cookie))
				var data map[string]any
				if err := json.Unmarshal([]byte(a.DataJSON()), &data); err != nil {
					t.Fatal(err)
				}
				for _, moment := range []string{"updated_at", "updated_by", "last_seen_at", "last_used_at", "generation"} {
					delete(data, moment)
				}
				raw, _ := json.MarshalIndent(data, "", " ") // it was JSON
				return string(raw)
			}
			before := state()
			if a := p.send(f[1], typed(f[2], fill(f[2]))); a.Code != http.StatusSeeOther {
				said := regexp.MustCompile(`class="error"[^>]*>[^<]*`).FindAllString(a.Text(), -1)
				t.Errorf("%s: %d %q", path, a.Code, said)
			} else if after := state(); after != before {
				was, is := strings.Split(before, "\n"), strings.Split(after, "\n")
				for i := range was {
					if i >= len(is) || was[i] != is[i] {
						t.Errorf("%s is changed from line %d: %.300s\nto %.300s", path, i, strings.Join(was[i:], "\n"), strings.Join(is[min(i, len(is)):], "\n"))
						break
					}
				}
			}
		}
	}
	check("/custom/objects/odd", most)
	check("/custom/objects/odd/records/"+odd, most)
	p.crawl(func(path string, page *gatewaytest.Answer) {
		check(path, most)
		for _, found := range regexp.MustCompile(`<td[^>]*><a href="([^"]*)"`).FindAllStringSubmatch(page.Text(), most) {
			check(html.UnescapeString(found[1]), most)
		}
	})
	for query, plain := range askedQueries() {
		made := api(http.MethodPost, "/api/custom-reports", object{"title": "Asked", "class": "Contacts", "query": json.RawMessage(query), "input": json.RawMessage(`{
			"city": {"rule": "editable", "value": ""}, "older": {"rule": "locked", "value": "30", "label": " Older ", "type": "number", "choices": ["30", "40.0"]}}`)}).Field("id").(string)
		checkPage(t, p.open("/custom-reports/"+made), 200, map[bool]string{true: `name="asks.show"`, false: `<textarea id="reports-update-query"`}[plain], `name="input.0.name"`)
		check("/custom-reports/"+made, 1000)
	}
	odds := api(http.MethodPost, "/api/custom-reports", object{"title": "Odd", "class": "Records", "source": "odd", "query": json.RawMessage(`{"group_by": [{"field": "day", "by": "month"}], "measures": [{"op": "sum", "field": "big"}], "sort": ["-sum_big"]}`),
		"input": json.RawMessage(`{"a": {"rule": "editable", "value": "", "choices": ["a, b", " c"]}}`)}).Field("id").(string)
	checkPage(t, p.open("/custom-reports/"+odds), 200, `<option value="odd" selected>`, `<option value="figure.0" selected>`, `<textarea id="reports-update-input"`)
	check("/custom-reports/"+odds, 1000)
	for filter, plain := range map[string]bool{`{"country": "DE", "age": {"gt": 30, "lte": 4e1}, "tags": ["a", "b"]}`: false, `{"age": {"gt": 30, "lte": 4e1}, "city": {"in": ["Ulm", "Bonn"]}}`: true, `{"city": {"eq": "Ulm"}}`: false, `{"or": [{"city": "Ulm"}]}`: false} {
		made := api(http.MethodPost, "/api/campaigns", object{"name": "Filtered", "filter": json.RawMessage(filter)}).Field("id").(string)
		checkPage(t, p.open("/campaigns/"+made), 200, map[bool]string{true: `name="filter.0.field"`, false: `<textarea id="campaigns-update-filter"`}[plain])
		check("/campaigns/"+made, 1000)
	}
	t.Logf("%v", checked)
	for _, kind := range []string{"contacts", "objects", "records", "users", "roles", "teams", "campaigns", "reports"} {
		if checked["/do/"+kind+".update"] == 0 {
			t.Errorf("no form of %s was sent, want some", kind)
		}
	}
}

// TestPreviewChangesNothing previews a change and a deletion of a custom object. The page counts the affected records
// and does not say that anything was done.
func TestPreviewChangesNothing(t *testing.T) {
	t.Parallel()
	_, acme, cookie := rich(t, nil)
	p := person{t, acme, cookie}
	const at = "/custom/objects/bike"
	page := p.open(at)
	if text := page.Text(); strings.Index(text, "Force") < strings.Index(text, "Label plural") {
		t.Error("the options come before the fields, want them after")
	}
	values := formTo(t, page, "/do/objects.update")
	values.Set("schema.3.title", "") // the model
	values.Set("schema.3.key", "")
	values.Set("query.preview", "true")
	tried := p.send("/do/objects.update", values)
	checkPage(t, tried, 200, "Nothing has been changed yet", "<dt>Records</dt><dd><span class=\"number\" dir=\"auto\">12</span>")
	if formTo(t, tried, "/do/objects.update").Has("query.preview") {
		t.Error("the form would only preview again")
	}
	checkPage(t, p.open(at), 200, `value="model"`)
	values = formTo(t, p.open("/do/objects.delete?path.name=bike"), "/do/objects.delete")
	checkPage(t, p.send("/do/objects.delete", values), 422, "12 records; \"Even if it breaks something\" deletes it all the same")
	values.Set("query.preview", "true")
	checkPage(t, p.send("/do/objects.delete", values), 200, "Nothing has been changed yet")
	checkPage(t, p.open(at), 200, "<h1 dir=\"auto\">Bike</h1>")
}

// TestValuesOfAnotherTypeAreNotLost changes the types of fields. Stored values are shown, kept while other values are
// changed, and can be corrected.
func TestValuesOfAnotherTypeAreNotLost(t *testing.T) {
	t.Parallel()
	_, acme, cookie := rich(t, nil)
	p := person{t, acme, cookie}
	api := p.api
	tests := map[string]struct {
		was, is string
		value   any
		shown   string // in the form, before and after a refusal
		typed   string // the correction
		mended  any    // the value that is stored for it
	}{
		"season": {"Text", "Date", "early spring 2024", "early spring 2024", "2024-03-20", "2024-03-20"},
		"about":  {"Text", "Number", "about 40", `"about 40"`, "40", 40.0},
		"digits": {"Text", "Number", "41", `"41"`, "41", 41.0},
		"word":   {"Text", "Boolean", "true", `"true"`, "true", true},
		"choice": {"Text", "MultiSelect", "one", `"one"`, `["one"]`, []any{"one"}},
		"mail":   {"LongText", "Email", "not\nmail", "not\r\nmail", "a@example.com", "a@example.com"},
		"site":   {"Text", "Url", " nowhere ", " nowhere ", "", nil},
		"yes":    {"Boolean", "Text", true, "true", `"yes"`, "yes"},
		"number": {"Number", "Date", 7, "7", `"2024-03-20"`, "2024-03-20"},
		"figure": {"Number", "Select", 7, "7", `"seven"`, "seven"},
		"list":   {"MultiSelect", "Text", []string{"x", "y"}, "[\r\n  \"x\",\r\n  \"y\"\r\n]", `"x, y"`, "x, y"},
	}
	before, after, values := m{"other": m{"title": "Other", "type": "Text"}}, m{"other": m{"title": "Other", "type": "Text"}}, m{"other": "o"}
	mended := m{"other": "changed"}
	for name, test := range tests {
		before[name], after[name], values[name] = m{"title": name, "type": test.was}, m{"title": name, "type": test.is}, test.value
		if test.mended != nil {
			mended[name] = test.mended
		}
	}
	api(http.MethodPost, "/api/custom/objects", m{"name": "odd", "label": "Odd", "label_plural": "Odds", "schema": before})
	id := api(http.MethodPost, "/api/custom/objects/odd/records", m{"values": values}).Field("id").(string)
	api(http.MethodPut, "/api/custom/objects/odd?force=true", m{"schema": after})
	stored := func(want m) {
		t.Helper()
		got := acme.Do(t, http.MethodGet, "/api/custom/objects/odd/records/"+id, gatewaytest.Cookie(cookie)).Field("values")
		if is, want := line(t, m{"values": got}), line(t, m{"values": want}); is != want {
			t.Errorf("stored values = %s, want %s", is, want)
		}
	}
	const action = "/do/records.update"
	page := p.open("/custom/objects/odd/records/" + id)
	sent := typed(page.Text(), formTo(t, page, action))
	for name, test := range tests {
		if got := sent.Get("values." + name); got != test.shown {
			t.Errorf("the form shows %s = %q, want %q", name, got, test.shown)
		}
	}
	sent.Set("values.other", "changed") // values that did not change are not validated
	p.follows(p.send(action, sent))
	values["other"] = "changed"
	stored(values)
	page = p.open("/custom/objects/odd/records/" + id)
	for range 2 { // a form that was refused is sent again
		sent := typed(page.Text(), formTo(t, page, action))
		sent.Set("values.season", "late spring")
		page = p.send(action, sent)
		checkPage(t, page, 422, "must be a date like 2024-05-17", `value="late spring"`)
		stored(values)
	}
	sent = typed(page.Text(), formTo(t, page, action))
	for name, test := range tests {
		sent.Set("values."+name, test.typed)
	}
	p.follows(p.send(action, sent))
	stored(mended)
}

// TestInvalidDateStaysInTheForm checks that a text that is not a date stays in a refused form, although the stored
// value is a date by then.
func TestInvalidDateStaysInTheForm(t *testing.T) {
	t.Parallel()
	_, acme, cookie := rich(t, nil)
	p := person{t, acme, cookie}
	const path, action = "/contacts/66a000000000000000000001", "/do/contacts.update"
	values := formTo(t, p.open(path), action)
	values.Set("_has.fields.last_order", "text")
	values.Set("fields.last_order", "early spring 2024")
	refused := p.send(action, values)
	checkPage(t, refused, 422, "must be a date like 2024-05-17")
	if got := typed(refused.Text(), formTo(t, refused, action)).Get("fields.last_order"); got != "early spring 2024" {
		t.Errorf("the form has %q, want the text that was typed", got)
	}
}

// askedQueries returns queries of every kind, and whether the form can represent them without JSON.
func askedQueries() map[string]bool {
	return map[string]bool{
		`{}`:           true,
		`{"limit": 7}`: true,
		`{"fields": ["last_name", "id", "city"], "sort": ["-last_name", "city"]}`:                                                                                                                    true,
		`{"filter": {"city": {"input": "city"}, "age": {"gt": {"input": "older"}, "lte": 40.50}, "country": {"nin": ["DE", "FR"]}}}`:                                                                 true,
		`{"filter": {"created_at": {"gte": "2024-05-17"}, "phone": {"exists": true}}, "measures": [{"op": "count"}]}`:                                                                                true,
		`{"group_by": [{"field": "created_at", "by": "quarter"}, {"field": "city"}], "measures": [{"op": "count"}, {"op": "max", "field": "age"}], "sort": ["created_at", "-max_age"], "limit": 10}`: true,
		`{"group_by": [{"field": "city"}]}`:                                          true,
		`{"filter": {"or": [{"city": "Ulm"}, {"country": "DE"}]}}`:                   false,
		`{"filter": {"city": {"eq": "Ulm"}}, "measures": [{"op": "count"}]}`:         false,
		`{"filter": {"city": ["Ulm"]}, "measures": [{"op": "count"}]}`:               false,
		`{"filter": {"city": " blank "}}`:                                            false,
		`{"filter": {"city": {"in": ["a, b"]}}, "fields": ["id"]}`:                   false,
		`{"filter": {"city": ""}, "fields": []}`:                                     false,
		`{"group_by": [], "measures": [], "sort": [], "fields": ["id"], "limit": 1}`: false,
	}
}

// TestFormsReachTheirOwnOperation checks that parameters in a form cannot change the path to that of another operation.
func TestFormsReachTheirOwnOperation(t *testing.T) {
	t.Parallel()
	_, acme, cookie := rich(t, nil)
	p := person{t, acme, cookie}
	for _, path := range []url.Values{{"path.name}/records/{id": {"none"}}, {"path.name": {"bike/records"}, "path.id": {".."}}, {"path.name": {"bike"}, "path.id": {"."}}, {"path.name": {"{id}"}, "path.id": {"bike"}}, {"path.name": {""}, "path.id": {"%2F"}}} {
		a := p.send("/do/records.delete", path)
		checkPage(t, a, 404)
		if strings.Contains(a.Text(), "There is no custom object") {
			t.Errorf("%v: %s", path, a.Text())
		}
	}
}

// TestFormsAreNotLostWithTheSession sends a form after the session has ended. The answer says so without a redirect, so
// that the browser keeps what was typed.
func TestFormsAreNotLostWithTheSession(t *testing.T) {
	t.Parallel()
	g, acme, _ := rich(t, nil)
	values := url.Values{"email": {"new@example.com"}}
	a := person{t, acme, &http.Cookie{Name: "none", Value: "x"}}.send("/do/contacts.create", values)
	checkPage(t, a, 403, "Nothing was saved", `href="/sign-in"`)
	nobodys := g.Page(t, http.MethodPost, "nobody.localhost", "/do/contacts.create", gatewaytest.Header("Origin", "http://nobody.localhost"), gatewaytest.Body("application/x-www-form-urlencoded", values.Encode()))
	if nobodys.Code != a.Code || nobodys.Text() != a.Text() {
		t.Errorf("on an unknown host: got %d %s, want the same answer", nobodys.Code, nobodys.Text())
	}
}

// TestSecondTryKeepsWhatOthersChanged checks that a form that is corrected after a refusal still detects changes by
// others.
func TestSecondTryKeepsWhatOthersChanged(t *testing.T) {
	t.Parallel()
	_, acme, cookie := rich(t, nil)
	p := person{t, acme, cookie}
	const path = "/contacts/66a000000000000000000001"
	mine, theirs := formTo(t, p.open(path), "/do/contacts.update"), formTo(t, p.open(path), "/do/contacts.update")
	mine.Set("email", "no address")
	refused := p.send("/do/contacts.update", mine)
	checkPage(t, refused, 422)
	theirs.Set("city", "Brno")
	p.follows(p.send("/do/contacts.update", theirs))
	mine = formTo(t, refused, "/do/contacts.update")
	mine.Set("email", "an@example.com")
	late := p.send("/do/contacts.update", mine)
	checkPage(t, late, 412, "Somebody else has changed this")
	theirs = formTo(t, p.open(path), "/do/contacts.update")
	theirs.Set("city", "Praha")
	p.follows(p.send("/do/contacts.update", theirs))
	late = p.send("/do/contacts.update", formTo(t, late, "/do/contacts.update"))
	checkPage(t, late, 412, "Somebody else has changed this")
	p.follows(p.send("/do/contacts.update", formTo(t, late, "/do/contacts.update")))
}

// TestDuplicateConditionsAreRefused checks that two conditions that cannot be in one filter are refused, and not
// merged.
func TestDuplicateConditionsAreRefused(t *testing.T) {
	t.Parallel()
	_, acme, cookie := rich(t, nil)
	p := person{t, acme, cookie}
	values := formTo(t, p.open("/do/campaigns.create"), "/do/campaigns.create")
	for name, value := range map[string]string{"name": "Twice", "filter.0.field": "city", "filter.0.op": "contains", "filter.0.value": "a", "filter.1.field": "city", "filter.1.op": "contains", "filter.1.value": "b"} {
		values.Set(name, value)
	}
	checkPage(t, p.send("/do/campaigns.create", values), 422, "Two conditions compare City in the same way")
}

// TestSecretsAreAskedForAgain checks that a form that is refused for another value asks for its secrets again, because
// it does not repeat them.
func TestSecretsAreAskedForAgain(t *testing.T) {
	t.Parallel()
	_, acme, cookie := rich(t, nil)
	p := person{t, acme, cookie}
	values := formTo(t, p.open("/do/contacts.create"), "/do/contacts.create")
	values.Set("email", "no address")
	values.Set("fields.passport_number", "C01X00T47")
	refused := p.send("/do/contacts.create", values)
	checkPage(t, refused, 422, "Type it again")
	if strings.Contains(refused.Text(), "C01X00T47") {
		t.Error("the page shows the secret")
	}
}

// TestPagesAreCompleteOrRefused checks that a page whose calls exceed a limit is refused, and not shown in part.
func TestPagesAreCompleteOrRefused(t *testing.T) {
	t.Parallel()
	_, acme, cookie := rich(t, nil, noTime, gatewaytest.Limits("50/h", "off", "off", "off"))
	p := person{t, acme, cookie}
	whole := regexp.MustCompile(`name="_once" value="[^"]*"`)
	first := ""
	for range 60 {
		page := p.open("/contacts/66a000000000000000000001")
		if page.Code == http.StatusTooManyRequests {
			if page.Header.Get("Retry-After") == "" {
				t.Error("no Retry-After")
			}
			continue
		}
		text := whole.ReplaceAllString(page.Text(), "")
		if first == "" {
			first = text
		}
		if page.Code != http.StatusOK || text != first {
			t.Fatalf("got %d and %d bytes, want 200 and the first page of %d bytes", page.Code, len(text), len(first))
		}
	}
	if first == "" {
		t.Error("no page was complete")
	}
}

// TestSavingKeepsMembersOfFields saves the rows of a schema as the page shows them. Members of a field that its row has
// no control for are sent back unchanged.
func TestSavingKeepsMembersOfFields(t *testing.T) {
	t.Parallel()
	const schema = `{
		"code": {
			"title": "Code", "type": "Text", "required": true,
			"pattern": "^[A-Z]\"+$", "range": {"least": 12345678901234567890}
		},
		"fixed": {"title": "Fixed", "type": "Text", "locked": true, "pattern": "x"},
		"paper": {
			"title": "Paper", "type": "File", "accept": ["image/*", "application/pdf"], "max_size": 1000, "max_files": 3,
			"folder_id": "665f1c2ab4d3e2f1a0b9c8d7", "pattern": "x"
		},
		"plain": {"title": "Plain", "type": "Date"},
		"sealed": {"title": "Sealed", "type": "File", "locked": true, "accept": ["image/*"], "max_files": 2}
	}`
	var p strictjson.Parser
	now, err := p.Parse(schema)
	if err != nil {
		t.Fatal(err)
	}
	pages, err := layout.New(nil, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	saved := func(now strictjson.Value, sent url.Values) (url.Values, map[string]any) {
		t.Helper()
		w := httptest.NewRecorder()
		pages.Render(w, 200, "input", &controls.Control{Kind: "schema", Name: "schema", Rows: controls.SchemaRows(now, sent)})
		var faults fault.List
		values := fill(w.Body.String())
		fields := controls.SchemaOf(values, &faults)
		if len(faults) > 0 {
			t.Errorf("got the faults %v, want none", faults)
		}
		return values, fields
	}
	values, fields := saved(now, nil)
	if !reflect.DeepEqual(fields, now.Any()) {
		t.Errorf("got %v, want %v", fields, now.Any())
	}
	values.Set("schema.0.title", "The code")
	_, fields = saved(strictjson.Value{}, values) // after a refusal
	want := now.Table()
	want["code"].(map[string]any)["title"] = "The code"
	if !reflect.DeepEqual(fields, want) {
		t.Errorf("got %v, want %v", fields, want)
	}
	for _, others := range []string{"{", "[1]", "null", `{"required":false}`, `{"locked":true}`, `{"max_files":2}`, `{"title":"T","x":1}`} {
		values.Set("schema.0.others", others)
		var faults fault.List
		if controls.SchemaOf(values, &faults); len(faults) != 1 || faults[0].Field != "schema.code" {
			t.Errorf("others %s: got the faults %v, want one of schema.code", others, faults)
		}
	}
}
