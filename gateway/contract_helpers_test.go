package gateway_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	"tenantry/gateway"
	"tenantry/gateway/gatewaytest"
	"tenantry/modules/audit"
)

const (
	teamA = "0000000000000000000000a1"
	teamB = "0000000000000000000000b2"
	// absentID is an identifier that no record has.
	absentID = "ffffffffffffffffffffffff"
)

// docID returns a document identifier.
func docID(n int) string { return fmt.Sprintf("%024x", n) }

func envelopeOK(message, data string) string {
	return `{"status":"ok","message":"` + message + `","data":` + data + `}`
}

func envelopeFailed(message string) string {
	return `{"status":"failed","message":"` + message + `","data":[]}`
}

func envelopeLacking(permission string) string {
	return `{"status":"failed","message":"Lacking necessary permission ` + permission + `","data":{"permission":"` + permission + `"}}`
}

// bundleTeams are the lines of the two teams.
func bundleTeams() []string {
	return []string{
		`{"kind":"team","id":"` + teamA + `","name":"A"}`,
		`{"kind":"team","id":"` + teamB + `","name":"B"}`,
	}
}

// baseURL returns the organization's own address.
func baseURL(o *gatewaytest.Org) string {
	return "http://" + strings.Replace(o.App.Addr().String(), "127.0.0.1", o.Host, 1)
}

func strict() gatewaytest.Request { return gatewaytest.Header("Prefer", "handling=strict") }

func jsonText(body string) gatewaytest.Request { return gatewaytest.Body("application/json", body) }

// exactRow is a request and the whole body that must answer it.
type exactRow struct {
	name   string
	method string // GET where empty
	path   string
	with   []gatewaytest.Request
	code   int // 200 where 0
	body   string
}

func checkRows(t *testing.T, o *gatewaytest.Org, rows []exactRow) {
	t.Helper()
	for _, row := range rows {
		t.Run(row.name, func(t *testing.T) {
			method, code := row.method, row.code
			if method == "" {
				method = http.MethodGet
			}
			if code == 0 {
				code = http.StatusOK
			}
			wantBody(t, o.Do(t, method, row.path, row.with...), code, row.body)
		})
	}
}

func wantBody(t *testing.T, a *gatewaytest.Answer, code int, body string) {
	t.Helper()
	if a.Code != code || a.Text() != body {
		t.Errorf("answered %d %s\nwant     %d %s", a.Code, a.Text(), code, body)
	}
}

// wantFailure checks a failure whose message the rules do not spell.
func wantFailure(t *testing.T, a *gatewaytest.Answer, code int) {
	t.Helper()
	wantMembers(t, a.Text(), "status", "message", "data")
	if a.Code != code || a.Status != "failed" || a.Message == "" {
		t.Errorf("answered %d %s, want a %d with status failed", a.Code, a.Text(), code)
	}
}

// wantFaults checks an answer that lists problems, each written "field code"; * stands
// for any field or code. The order does not matter.
func wantFaults(t *testing.T, a *gatewaytest.Answer, code int, want ...string) {
	t.Helper()
	var e struct {
		Data struct {
			Errors []struct{ Field, Code, Message string }
		}
	}
	if err := json.Unmarshal(a.Body, &e); err != nil {
		t.Errorf("answered %d %s: %v", a.Code, a.Text(), err)
		return
	}
	good := a.Code == code && a.Status == "failed" && strings.HasPrefix(a.Message, "Validation failed: ") && len(e.Data.Errors) == len(want)
	for _, f := range e.Data.Errors {
		good = good && f.Message != "" && strings.Contains(a.Message, f.Message) && slices.ContainsFunc(want, func(pattern string) bool {
			field, code := pattern[:strings.LastIndex(pattern, " ")], pattern[strings.LastIndex(pattern, " ")+1:]
			return (field == "*" || field == f.Field) && (code == "*" || code == f.Code)
		})
	}
	if !good {
		t.Errorf("answered %d %s\nwant     %d with the problems %q", a.Code, a.Text(), code, want)
	}
}

// memberNames returns the names of a JSON object's members in their order.
func memberNames(t *testing.T, object string) []string {
	t.Helper()
	names := []string{}
	dec := json.NewDecoder(strings.NewReader(object))
	if token, err := dec.Token(); err != nil || token != json.Delim('{') {
		t.Errorf("no JSON object: %s", object)
		return nil
	}
	for dec.More() {
		name, err := dec.Token()
		if err != nil {
			t.Errorf("%s: %v", object, err)
			return nil
		}
		names = append(names, name.(string))
		var value json.RawMessage
		if err := dec.Decode(&value); err != nil {
			t.Errorf("%s: %v", object, err)
			return nil
		}
	}
	return names
}

// wantMembers checks the names of an object's members and their order.
func wantMembers(t *testing.T, object string, names ...string) {
	t.Helper()
	if got := memberNames(t, object); !slices.Equal(got, names) {
		t.Errorf("the members are %q, want %q", got, names)
	}
}

// member returns a member of a JSON object as it is spelled, "" where it has none. A path
// leads through nested objects.
func member(t *testing.T, object string, path ...string) string {
	t.Helper()
	for _, name := range path {
		var m map[string]json.RawMessage
		if err := json.Unmarshal([]byte(object), &m); err != nil {
			t.Errorf("no JSON object: %s", object)
			return ""
		}
		object = string(m[name])
	}
	return object
}

// wantMember checks one member as it is spelled.
func wantMember(t *testing.T, object, want string, path ...string) {
	t.Helper()
	if got := member(t, object, path...); got != want {
		t.Errorf("%s is %s, want %s", strings.Join(path, "."), got, want)
	}
}

// column returns one string member of every object in a list.
func column(t *testing.T, list, name string) []string {
	t.Helper()
	var objects []map[string]any
	if err := json.Unmarshal([]byte(list), &objects); err != nil {
		t.Errorf("no list of objects: %s", list)
		return nil
	}
	values := []string{}
	for _, o := range objects {
		text, _ := o[name].(string)
		values = append(values, text)
	}
	return values
}

// element returns an element of a JSON list as it is spelled, "" where there is none.
func element(t *testing.T, list string, i int) string {
	t.Helper()
	var elements []json.RawMessage
	if err := json.Unmarshal([]byte(list), &elements); err != nil || i >= len(elements) {
		t.Errorf("no list with an element %d: %s", i, list)
		return ""
	}
	return string(elements[i])
}

// ignored returns the names in the header X-Ignored, sorted.
func ignored(a *gatewaytest.Answer) []string {
	names := strings.FieldsFunc(strings.Join(a.Header.Values("X-Ignored"), ","), func(r rune) bool { return r == ',' || r == ' ' })
	slices.Sort(names)
	return names
}

func wantIgnored(t *testing.T, a *gatewaytest.Answer, names ...string) {
	t.Helper()
	slices.Sort(names)
	if got := ignored(a); !slices.Equal(got, names) {
		t.Errorf("X-Ignored names %q, want %q; the answer was %d %s", got, names, a.Code, a.Text())
	}
}

// trashTurn takes one turn of emptying the trash, and reports whether it was this replica's.
func trashTurn(t testing.TB, a *gateway.App) bool {
	t.Helper()
	taken, err := a.EmptyTrash(t.Context())
	if err != nil {
		t.Errorf("emptying the trash: %v", err)
	}
	return taken
}

// emptyTrash takes turns until nothing is left to do.
func emptyTrash(t testing.TB, a *gateway.App) {
	t.Helper()
	turns := 0
	for trashTurn(t, a) {
		turns++
	}
	if turns == 0 {
		t.Error("emptying the trash took no turn: another replica takes one, or no round is due")
	}
}

// auditRecords returns up to limit records of the organization's audit log, read behind the API, newest first.
func auditRecords(t testing.TB, o *gatewaytest.Org, limit int) []audit.Record {
	t.Helper()
	records, err := audit.New().Recent(t.Context(), o.Tenant(t).Workspace(), limit, 0)
	if err != nil {
		t.Fatalf("reading the audit log: %v", err)
	}
	return records
}
