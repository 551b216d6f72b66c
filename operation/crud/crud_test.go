package crud_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"

	"tenantry/backends/enginetest"
	"tenantry/backends/record"
	"tenantry/backends/store"
	"tenantry/operation"
	"tenantry/operation/crud"
	"tenantry/operation/schematest"
	"tenantry/tenants"
)

// note has the kinds of fields that the module of plants has not, and no trash and no teams.
type note struct {
	store.Meta
	Title  string          `json:"title" as:"heading" rule:"required max=50 unique" use:"named" doc:"What it is about." example:"Rent"`
	Mood   string          `json:"mood,omitempty" rule:"enum=good|bad" use:"filter" doc:"How it sounds."`
	Due    int64           `json:"due,omitempty" store:"time" rule:"format=time" use:"filter" doc:"By when."`
	Score  *int64          `json:"score,omitempty" rule:"min=-5 max=5" use:"filter" doc:"How good."`
	Extra  json.RawMessage `json:"extra,omitempty" doc:"Anything."`
	Code   string          `json:"code,omitempty" rule:"max=20 unique" use:"hidden filter"`
	Origin string          `json:"origin,omitempty" rule:"max=20" use:"once" doc:"Where it came from."`
	Seen   int64           `json:"seen,omitempty" use:"computed" doc:"How often it was read."`
}

type notes struct {
	*record.Of[note]
	crud.Options
}

func (n notes) Kept() []record.Kept { return []record.Kept{n.Of} }

func (n notes) Operations() []operation.Row {
	o := n.Options
	o.Path, o.Things, o.Read, o.Write = "/api/notes", "Notes", operation.AnyCaller(), operation.Needs(tenants.ManageFiles)
	return crud.Rows(n.Of.Resource, o)
}

func newNotes() notes { return notesOf(5) }

func notesOf(most int) notes {
	return notes{Of: record.Must(record.Options[note]{
		Traits: record.Traits{Name: "note", Most: most},
		Spec: store.Spec{
			Name: "notes", Indexes: []store.Index{{Fields: []string{"due"}}, {Fields: []string{"score"}}, {Fields: []string{"mood"}}},
			Access: []store.Access{{Sort: []string{"due"}}},
		},
	})}
}

type bench struct{ *schematest.Bench }

func (b bench) do(t *testing.T, action, id, query, body string, code int) map[string]any {
	t.Helper()
	a := b.Do(t, schematest.Request{Operation: "notes." + action, Path: map[string]string{"id": id}, Query: query, Body: body})
	if a.Code != code {
		t.Fatalf("%s %s %s %s: %+v, want %d", action, id, query, body, a, code)
	}
	var data map[string]any
	_ = json.Unmarshal([]byte(a.Data), &data) // a list: there is none
	if data == nil {
		data = map[string]any{}
	}
	data["says"] = a.Message
	return data
}

// TestRows: fields of every kind are taken, shown, cleared and kept from callers as they are declared.
func TestRows(t *testing.T) {
	t.Parallel()
	b := bench{schematest.Open(t, enginetest.Open(t), newNotes())}
	made := b.do(t, "create", "", "", `{"heading":"Rent"}`, 200)
	id := made["id"].(string)
	for _, empty := range []string{"mood", "due", "score", "extra"} {
		if value, shown := made[empty]; !shown || value != nil {
			t.Errorf("%s that was not given: %v", empty, value)
		}
	}
	if _, shown := made["code"]; shown || made["seen"] != 0.0 {
		t.Errorf("created: %v", made)
	}
	full := b.do(t, "update", id, "", `{"mood":"good","due":"2026-03-01T09:30:00.000Z","score":-5,"extra":{"a":[1]}}`, 200)
	if got := fmt.Sprintf("%v %v %v %v", full["mood"], full["due"], full["score"], full["extra"]); got != "good 2026-03-01T09:30:00.000Z -5 map[a:[1]]" {
		t.Errorf("updated: %s", got)
	}
	cleared := b.do(t, "update", id, "", `{"mood":null,"due":null,"score":null,"extra":null}`, 200)
	if got := fmt.Sprintf("%v %v %v %v", cleared["mood"], cleared["due"], cleared["score"], cleared["extra"]); got != "<nil> <nil> <nil> <nil>" {
		t.Errorf("taken away: %s", got)
	}
	for body, says := range map[string]string{
		`{"origin":"x"}`:  `"origin" is not a field`,
		`{"seen":5}`:      `"seen" is not a field`,
		`{"heading":""}`:  "heading must not be empty",
		`{"heading":5}`:   "heading must be a string",
		`{"score":6}`:     "score must be a whole number from -5 to 5",
		`{"mood":"odd"}`:  "mood must be good or bad",
		`{"due":"later"}`: "due must be a time like",
		`{"code":"x"}`:    "",
	} {
		code := 422
		if says == "" {
			code = 200
		}
		if got := b.do(t, "update", id, "", body, code); !strings.Contains(got["says"].(string), says) {
			t.Errorf("%s: %v", body, got)
		}
	}
	if got := b.do(t, "create", "", "", `{"heading":"Rent"}`, 409); !strings.Contains(got["says"].(string), "heading is already in use") {
		t.Errorf("a name that is taken: %v", got)
	}
	for _, query := range []string{"sort=code", "filters[code]=x", "filters[seen]=0", "deleted=true", "q=x"} {
		if a := b.Do(t, schematest.Request{Operation: "notes.list", Query: query}); a.Code != 422 && a.Code != 400 {
			t.Errorf("%s: %+v", query, a)
		}
	}
	b.do(t, "delete", id, "", "", 200)
	b.do(t, "get", id, "", "", 404)
}

// TestRows_Cursors: what is missing has its place in every order, and there are no more records than may be.
func TestRows_Cursors(t *testing.T) {
	t.Parallel()
	b := bench{schematest.Open(t, enginetest.Open(t), newNotes())}
	for i, body := range []string{
		`"due":"2026-03-01T00:00:00Z","score":2,"mood":"bad"`, `"score":-1`, `"due":"1965-03-01T00:00:00Z","mood":"good"`, `"score":2,"mood":"bad"`, `"due":"2026-03-01T00:00:00Z"`,
	} {
		b.do(t, "create", "", "", fmt.Sprintf(`{"heading":"N%d",%s}`, i, body), 200)
	}
	if got := b.do(t, "create", "", "", `{"heading":"one too many"}`, 422); !strings.Contains(got["says"].(string), "there are already 5 notes") {
		t.Errorf("create = %v, want a refusal at 5 notes", got)
	}
	names := func(page map[string]any) (names string) {
		for _, one := range page["results"].([]any) {
			names += one.(map[string]any)["heading"].(string) + " "
		}
		return names
	}
	for _, order := range []string{"due", "-due", "score", "-score,due", "mood,-score", "-mood,-id", "heading"} {
		want, got, after := names(b.do(t, "list", "", "sort="+order, "", 200)), "", ""
		for range 7 {
			page := b.do(t, "list", "", "per_page=1&sort="+order+"&after="+after, "", 200)
			got += names(page)
			if after = page["next"].(string); after == "" {
				break
			}
		}
		if got != want {
			t.Errorf("sort=%s by cursor: %s, by page %s", order, got, want)
		}
	}
}

// TestOnly: a list has only what the module lets it have, whatever the caller filters by, and its faults are answered.
func TestOnly(t *testing.T) {
	t.Parallel()
	n := newNotes()
	n.List.Around = crud.Only(func(_ context.Context, c *operation.Call) (store.Filter, error) {
		if c.Query.Text("sort") == "-heading" {
			return store.Filter{}, operation.Forbidden("Not backwards")
		}
		return store.Eq("mood", "good"), nil
	})
	b := bench{schematest.Open(t, enginetest.Open(t), n)}
	for _, note := range []string{`"A","mood":"good"`, `"B","mood":"bad"`, `"C"`, `"D","mood":"good"`} {
		b.do(t, "create", "", "", `{"heading":`+note+`}`, 200)
	}
	for query, want := range map[string]float64{
		"": 2, "filters[mood]=bad": 0, "filters[heading]=D": 1, "filters[heading]=B": 0, "per_page=1&after=": 2,
	} {
		if got := b.do(t, "list", "", query, "", 200); got["count"] != want {
			t.Errorf("%s: %v, want %v records", query, got, want)
		}
	}
	if got := b.do(t, "list", "", "sort=-heading", "", 403); got["says"] != "Not backwards" {
		t.Errorf("a refusal: %v", got)
	}
	got := b.do(t, "list", "", "sort=-heading&per_page=none", "", 422) // as without Only
	if !strings.Contains(got["says"].(string), "per_page must be") {
		t.Errorf("an invalid parameter of a list that refuses: %v, want the fault of per_page", got)
	}
}

// TestRows_Before: a module sees each change before it is stored, may complete or refuse it, and leaves
// actions out. A change that somebody else came before is made anew.
func TestRows_Before(t *testing.T) {
	t.Parallel()
	n := newNotes()
	n.List = crud.Absent()
	var seen []string
	n.Before = crud.Before(func(ctx context.Context, c *operation.Call, _ *store.Preconditions, rec, was *note) error {
		switch {
		case was == nil:
			rec.Seen = 7
			seen = append(seen, "create")
		case rec == nil:
			if seen = append(seen, "purge"); len(seen) == 3 { // somebody else changes it now
				_, err := n.In(c.Workspace).Update(ctx, was.ID, func(rec *note) error { rec.Seen++; return nil })
				return err
			}
		case rec.Mood == "bad":
			return operation.Forbidden("No bad moods")
		default:
			seen = append(seen, "update "+was.Mood+"-"+rec.Mood)
		}
		return nil
	})
	b := bench{schematest.Open(t, enginetest.Open(t), n)}
	if len(b.Rows) != 4 {
		t.Errorf("%d rows, want get, create, update and delete", len(b.Rows))
	}
	made := b.do(t, "create", "", "", `{"heading":"Rent","mood":"good"}`, 200)
	id := made["id"].(string)
	if made["seen"] != 7.0 {
		t.Errorf("what the module adds: %v", made)
	}
	if got := b.do(t, "update", id, "", `{"mood":"bad"}`, 403); got["says"] != "No bad moods" {
		t.Errorf("what the module refuses: %v", got)
	}
	b.do(t, "update", id, "", `{"mood":null}`, 200)
	if got := b.do(t, "delete", id, "", "", 200); got["seen"] != 8.0 {
		t.Errorf("deleted: %v, want it as it was last", got)
	}
	if got := strings.Join(seen, ", "); got != "create, update good-, purge, purge" {
		t.Errorf("seen: %s", got)
	}
}

// TestDrain_AsksForAnotherCall where there is more than one may change, and says when: who repeats the call is not
// answered what the one before was.
func TestDrain_AsksForAnotherCall(t *testing.T) {
	t.Parallel()
	n := newNotes()
	b := bench{schematest.Open(t, enginetest.Open(t), n)}
	b.do(t, "create", "", "", `{"heading":"Rent"}`, 200)
	seen, done := 0, 0
	err := crud.Drain(t.Context(), n.In(b.Tenant.Workspace()), store.Filter{}, store.Live, func(recs []*note) error {
		if seen++; seen%2 == 0 {
			return store.ErrConflict // somebody else changed them
		}
		done += len(recs)
		return nil
	})
	var problem *operation.Problem
	want := fmt.Sprintf("%d dependent records are done and 1 are left: repeat the call", done)
	if !errors.As(err, &problem) || problem.Code != 409 || problem.RetryAfter <= 0 || problem.Message != want || done == 0 || done == seen {
		t.Errorf("%+v, want %q after %d batches", err, want, seen)
	}
}
