package objects

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	"tenantry/backends/driver"
	"tenantry/backends/enginetest"
	"tenantry/backends/record/schema"
	"tenantry/backends/store"
	"tenantry/operation/schematest"
	"tenantry/tenants"
)

type fixture struct {
	*schematest.Bench
	kinds  Kinds
	engine driver.Engine
}

func newFixture(t *testing.T) *fixture {
	t.Helper()
	engine := enginetest.Open(t)
	m := New(new(tenants.Directory))
	return &fixture{schematest.Open(t, engine, m), m.Kinds, engine}
}

func (f *fixture) create(t *testing.T, body string) schematest.Answer {
	t.Helper()
	return f.Do(t, schematest.Request{Operation: "objects.create", Body: body})
}

func (f *fixture) stored(t *testing.T, name string) *Definition {
	t.Helper()
	def, err := f.kinds.Definitions.In(f.Base()).First(t.Context(), store.Query{Filter: store.Eq("name", name)})
	if err != nil {
		t.Fatal(err)
	}
	return def
}

func TestCreate(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	got := f.create(t, `{"name":"tree","label":"Tree","label_plural":"Trees","schema":{"species":{"title":"Species","type":"Text","required":true},"odd":{"title":"Odd","type":"Unheard"}}}`)
	def := f.stored(t, "tree")
	want := `{"id":"` + def.ID + `","name":"tree","label":"Tree","label_plural":"Trees"}`
	if got.Code != 200 || got.Status != "ok" || got.Message != "Custom Object created" || got.Data != want || len(got.Ignored) != 0 {
		t.Errorf("got %+v, want %s", got, want)
	}
	if !def.Schema["species"].Required || def.Schema["odd"].Type != "Unheard" || len(def.Schema) != 2 {
		t.Errorf("stored %+v", def.Schema)
	}
	if got := f.create(t, `{"name":"bare","label":"Bare","label_plural":"Bares"}`); got.Status != "ok" {
		t.Errorf("without a schema: %+v", got)
	}
}

func TestCallersCannotSetReservedFields(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	body := `{"name":"tree","label":"Tree","label_plural":"Trees","id":"aaaaaaaaaaaaaaaaaaaaaaaa","org_id":99,"created_at":1,"NAME":"x","fields":{"z":{"title":"Z","type":"Text"}},
		"schema":{"fields":{"y":1},"a":{"title":"A","type":"Text","locked":true}}}`
	got := f.create(t, body)
	want := []string{"id", "org_id", "created_at", "NAME", "fields", "schema.fields", "schema.a.locked"}
	if got.Status != "ok" || !slices.Equal(got.Ignored, want) {
		t.Fatalf("got %+v, want ignored %q", got, want)
	}
	def := f.stored(t, "tree")
	if def.ID == "aaaaaaaaaaaaaaaaaaaaaaaa" || def.CreatedAt < 1000 || len(def.Schema) != 1 || def.Schema["a"].Locked {
		t.Errorf("stored %+v", def)
	}
}

func TestStrictHandlingStoresNothing(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	got := f.Do(t, schematest.Request{Operation: "objects.create", Strict: true, Body: `{"name":"tree","label":"Tree","label_plural":"Trees","schema":{"fields":1}}`})
	if got.Code != 400 || !strings.Contains(got.Message, "schema.fields") {
		t.Errorf("got %+v", got)
	}
	if n, err := f.kinds.Definitions.In(f.Base()).Count(t.Context(), store.Filter{}); n != 0 || err != nil {
		t.Errorf("%d stored, %v", n, err)
	}
}

func TestCreateRefusals(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	for _, tt := range []struct {
		name, body string
		code       int
		fields     []string
	}{
		{"nothing", `{}`, 422, []string{"name", "label", "label_plural"}},
		{"wrong types", `{"name":1,"label":null,"label_plural":["x"],"schema":1}`, 422, []string{"name", "label", "label_plural", "schema"}},
		{"blank", `{"name":"","label":" ","label_plural":"\t"}`, 422, []string{"name", "label", "label_plural"}},
		{"schema null", `{"name":"a","label":"b","label_plural":"c","schema":null}`, 422, []string{"schema"}},
		{"name pattern", `{"name":"Tree","label":"b","label_plural":"c"}`, 422, []string{"name"}},
		{"name starts with a digit", `{"name":"1a","label":"b","label_plural":"c"}`, 422, []string{"name"}},
		{"name too long", `{"name":"` + strings.Repeat("a", 65) + `","label":"b","label_plural":"c"}`, 422, []string{"name"}},
		{"label too long", `{"name":"a","label":"` + strings.Repeat("ä", 201) + `","label_plural":"c"}`, 422, []string{"label"}},
		{"line break in a label", `{"name":"a","label":"b\r\nc","label_plural":"c"}`, 422, []string{"label"}},
		{"everything at once", `{"name":"A","label":"b","schema":{"x":{"title":"X"},"y":{"title":"Y","type":"text"}}}`, 422, []string{"name", "label_plural", "schema.x.type", "schema.y.type"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			got := f.create(t, tt.body)
			if got.Code != tt.code || got.Status != "failed" || !strings.HasPrefix(got.Message, "Validation failed: ") {
				t.Fatalf("got %+v", got)
			}
			for _, field := range tt.fields {
				if !strings.Contains(got.Data, `"field":"`+field+`"`) {
					t.Errorf("%s is not named: %s", field, got.Data)
				}
			}
			if n := strings.Count(got.Data, `"field"`); n != len(tt.fields) {
				t.Errorf("%d problems: %s", n, got.Data)
			}
		})
	}
}

func TestDuplicatesAreAllNamed(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.create(t, `{"name":"tree","label":"Tree","label_plural":"Trees"}`)
	f.create(t, `{"name":"bush","label":"Bush","label_plural":"Bushes"}`)
	for _, tt := range []struct {
		body   string
		fields []string
	}{
		{`{"name":"tree","label":"a","label_plural":"as"}`, []string{"name"}},
		{`{"name":"a","label":"Tree","label_plural":"as"}`, []string{"label"}},
		{`{"name":"a","label":"a","label_plural":"Trees"}`, []string{"label_plural"}},
		{`{"name":"tree","label":"Bush","label_plural":"as"}`, []string{"name", "label"}},
		{`{"name":"tree","label":"Tree","label_plural":"Trees"}`, []string{"name", "label", "label_plural"}},
	} {
		got := f.create(t, tt.body)
		if got.Code != 409 || strings.Count(got.Data, `"code":"duplicate"`) != len(tt.fields) || !strings.HasPrefix(got.Message, "Validation failed: ") {
			t.Errorf(`%s: got %+v, want 409 and beginning with "Validation failed: "`, tt.body, got)
		}
		for _, field := range tt.fields {
			if !strings.Contains(got.Data, `"field":"`+field+`"`) || !strings.Contains(got.Message, field+" is already in use") {
				t.Errorf("%s: %s is not named: %+v", tt.body, field, got)
			}
		}
	}
	// A label may equal another's name: each part is unique for itself.
	if got := f.create(t, `{"name":"a","label":"tree","label_plural":"Tree"}`); got.Status != "ok" {
		t.Errorf("got %+v", got)
	}
}

func TestDuplicatesOfAChangeAreAllNamed(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	for _, name := range []string{"a", "b"} {
		if got := f.create(t, `{"name":"`+name+`","label":"`+name+` one","label_plural":"`+name+` many"}`); got.Status != "ok" {
			t.Fatalf(`got %+v, want got.Status = "ok"`, got)
		}
	}
	got := f.Do(t, schematest.Request{Operation: "objects.update", Path: map[string]string{"name": "b"}, Body: `{"label":"a one","label_plural":"a many"}`})
	if got.Code != 409 || strings.Count(got.Data, `"code":"duplicate"`) != 2 {
		t.Errorf("got %+v", got)
	}
}

func TestParallelCreatesOfOneObjectNameMakeOne(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	const callers = 32
	answers := make(chan schematest.Answer, callers)
	for i := range callers {
		go func() {
			answers <- f.create(t, fmt.Sprintf(`{"name":"tree","label":"Tree %d","label_plural":"Trees %d"}`, i, i))
		}()
	}
	made := 0
	for range callers {
		switch got := <-answers; got.Code {
		case 200:
			made++
		case 409:
		default:
			t.Errorf("got %+v", got)
		}
	}
	if made != 1 {
		t.Errorf("%d were made", made)
	}
}

func TestFailingStoreAnswersAnEmptyObject(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	if err := f.engine.Close(); err != nil {
		t.Fatal(err)
	}
	got := f.create(t, `{"name":"tree","label":"Tree","label_plural":"Trees"}`)
	if got.Code != 503 || got.Status != "failed" || got.Data != "{}" {
		t.Errorf("got %+v", got)
	}
}

func TestPermission(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	for _, operation := range []string{"objects.create", "objects.schema"} {
		got := f.Do(t, schematest.Request{Operation: operation, Principal: schematest.Key(tenants.Contacts)})
		if got.Code != 403 || got.Message != "Lacking necessary permission manage_custom_objects" || got.Data != `{"permission":"manage_custom_objects"}` {
			t.Errorf(`%s: got %+v, want 403 and got.Message = "Lacking necessary permission manage_custom_objects" and got.Data = "{\"permission\":\"manage_custom_objects\"}"`,
				operation, got)
		}
	}
}

func TestSchema(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	def := &Definition{Name: "tree", Label: "Tree", LabelPlural: "Trees", Schema: schema.Fields{"species": {Title: "Species", Type: schema.Text, Required: true}}}
	other := &Definition{Name: "own", Label: "Own", LabelPlural: "Owns", Schema: schema.Fields{"external_id": {Title: "Mine", Type: schema.Number}}}
	if err := f.kinds.Definitions.In(f.Base()).Insert(context.Background(), def, other); err != nil {
		t.Fatal(err)
	}
	const common = `"external_id":{"title":"External ID","type":"Text","locked":true}`
	tree := `{"schema":{` + common + `,"species":{"title":"Species","type":"Text","required":true}}}`
	for query, want := range map[string]string{
		"":                            `{"schema":{` + common + `}}`,
		"id=" + def.ID:                tree,
		"name=tree":                   tree,
		"name=tree&id=" + def.ID:      tree,
		"name=own":                    `{"schema":{"external_id":{"title":"Mine","type":"Number"}}}`,
		"name=tree&id=" + other.ID:    "",
		"id=x":                        "",
		"id=":                         "",
		"name=":                       "",
		"name=Tree":                   "",
		"id=aaaaaaaaaaaaaaaaaaaaaaaa": "",
	} {
		got := f.Do(t, schematest.Request{Operation: "objects.schema", Query: query})
		if want == "" {
			if got.Code != 404 || got.Message != "Custom Object not found" || got.Data != "[]" {
				t.Errorf(`%s: got %+v, want 404 and got.Message = "Custom Object not found" and got.Data = "[]"`, query, got)
			}
		} else if got.Code != 200 || got.Message != "Custom Object schema" || got.Data != want {
			t.Errorf(`%s: got %+v, want 200 and got.Message = "Custom Object schema" and got.Data = %v`, query, got, want)
		}
	}
}
