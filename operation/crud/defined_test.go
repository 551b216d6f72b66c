package crud_test

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"tenantry/backends/enginetest"
	"tenantry/backends/record"
	"tenantry/backends/record/schema"
	"tenantry/backends/store"
	"tenantry/operation"
	"tenantry/operation/crud"
	"tenantry/operation/schematest"
	"tenantry/tenants"
	"tenantry/tenants/secrets"
)

// animal defines what is kept of pets: the path of their rows names it.
type animal struct {
	store.Meta
	Name   string        `json:"name" rule:"required max=64 format=name unique" use:"named"`
	Schema schema.Fields `json:"schema,omitempty" use:"always"`
}

type pet struct {
	store.Meta
	Animal  string            `json:"animal" rule:"required max=64 ref=animal" use:"filter" doc:"What it is." example:"cat"`
	Values  map[string]any    `json:"values,omitempty" store:"custom" doc:"What is known of it." example:"{\"name\":\"Tom\"}"`
	Secrets map[string]string `json:"secrets,omitempty" use:"secret"`
	Deleted bool              `json:"deleted,omitempty" use:"scope"`
}

type pets struct {
	animals *record.Of[animal]
	pets    *record.Of[pet]
	dir     *tenants.Directory // known once the bench is there
	keep    *crud.Keeper[animal]
}

func newPets() *pets {
	p := &pets{
		animals: record.Must(record.Options[animal]{
			Traits: record.Traits{Name: "animal", Key: "name", Definition: true}, Spec: store.Spec{Name: "animals"},
			Defines: func(a *animal) (string, schema.Fields, bool) { return a.Name, a.Schema, a.Schema != nil },
		}),
		pets: record.Must(record.Options[pet]{
			Traits: record.Traits{Name: "pet", DefinedBy: "animal"},
			Spec:   store.Spec{Name: "pets", Indexes: []store.Index{{Fields: []string{"animal"}}}, Access: []store.Access{{Where: []string{"animal"}}}},
		}),
	}
	record.Link(record.Described(p.Kept()))
	return p
}

func (p *pets) Kept() []record.Kept { return []record.Kept{p.animals, p.pets} }

func (p *pets) DataKeys(ctx context.Context, t *tenants.Tenant, purpose string) (*tenants.DataKeys, error) {
	return p.dir.DataKeys(ctx, t, purpose)
}

func (p *pets) Operations() []operation.Row {
	animals := crud.Options{
		Path: "/api/animals", Things: "Animals", Read: operation.AnyCaller(), Write: operation.AnyCaller(), List: crud.Absent(),
		Show: crud.ShowEach(func(_ *operation.Call, a *animal) map[string]string {
			return map[string]string{"called": a.Name}
		}),
		Example: map[string]string{"called": "cat"},
	}
	if p.keep != nil {
		animals.Keeper = crud.Keep(*p.keep)
	}
	return append(
		crud.Rows(p.animals.Resource, animals),
		crud.Rows(p.pets.Resource, crud.Options{
			Path: "/api/animals/{name}/pets", Things: "Pets", Within: "Animal", Read: operation.AnyCaller(), Write: operation.AnyCaller(), Keys: p,
		})...)
}

func openPets(t *testing.T, p *pets) *schematest.Bench {
	t.Helper()
	b := schematest.Open(t, enginetest.Open(t), p)
	p.dir = b.Directory
	for _, a := range []animal{
		{Name: "cat", Schema: schema.Fields{"name": {Title: "Name", Type: schema.Text}, "lives": {Title: "Lives", Type: schema.Number}, "chip": {Title: "Chip", Type: schema.Encrypted, Required: true}}},
		{Name: "dog", Schema: schema.Fields{"name": {Title: "Name", Type: schema.Text}}},
	} {
		if err := p.animals.In(b.Base()).Insert(t.Context(), &a); err != nil {
			t.Fatal(err)
		}
	}
	return b
}

// TestRows_Defined: the path names the definition, whose fields are taken, filtered by and kept apart.
func TestRows_Defined(t *testing.T) {
	t.Parallel()
	p := newPets()
	b := openPets(t, p)
	do := func(action, animal, id, query, body string, code int) map[string]any {
		t.Helper()
		a := b.Do(t, schematest.Request{Operation: "pets." + action, Path: map[string]string{"name": animal, "id": id}, Query: query, Body: body})
		if a.Code != code {
			t.Fatalf("%s %s: %+v, want %d", action, body, a, code)
		}
		var data map[string]any
		_ = json.Unmarshal([]byte(a.Data), &data)
		if data == nil {
			data = map[string]any{}
		}
		if data["says"] = a.Message; strings.Contains(a.Data, "4711") {
			t.Errorf("%s shows the value of an encrypted field: %s", action, a.Data)
		}
		return data
	}
	tom := do("create", "cat", "", "", `{"values":{"name":"Tom","lives":9,"chip":"4711"}}`, 200)
	id := tom["id"].(string)
	if got := fmt.Sprint(tom["animal"], tom["values"]); got != "catmap[lives:9 name:Tom]" {
		t.Errorf("created: %s", got)
	}
	rex := do("create", "dog", "", "", `{"values":{"name":"Rex"}}`, 200)["id"].(string)
	for _, c := range []struct {
		action, animal, id, query, body string
		code                            int
		says                            string
	}{
		{"create", "cow", "", "", `{"values":{}}`, 404, "Animal not found"},
		{"create", "cat", "", "", `{"values":{"name":"x"}}`, 422, "values.chip is required"},
		{"create", "cat", "", "", `{"values":{"name":5,"wings":2,"chip":7}}`, 422, "values.chip must be a string; values.name must be a string; values.wings is not a field"},
		{"create", "cat", "", "", `{"animal":"dog","values":{"chip":"1"}}`, 422, `"animal" is not a field`},
		{"create", "cat", "", "", `{"secrets":{"chip":"1"}}`, 422, `"secrets" is not a field`},
		{"update", "cat", id, "", `{"values":{"chip":null}}`, 422, "values.chip is required"},
		{"update", "cat", id, "", `{"values":null}`, 422, "values.chip is required"},
		{"get", "dog", id, "", "", 404, "Pet not found"},
		{"update", "dog", id, "", `{"values":{"name":"x"}}`, 404, "Pet not found"},
		{"delete", "cat", rex, "purge=true", "", 404, "Pet not found"},
		{"restore", "dog", id, "", "", 404, "Pet not found"},
		{"list", "cow", "", "", "", 404, "Animal not found"},
		{"list", "dog", "", "filters[lives]=9", "", 422, "lives"},
		{"list", "cat", "", "filters[chip]=4711", "", 422, "chip"},
	} {
		if got := do(c.action, c.animal, c.id, c.query, c.body, c.code); !strings.Contains(fmt.Sprint(got["says"]), c.says) {
			t.Errorf("%s of %s %s%s: %v, want %s", c.action, c.animal, c.query, c.body, got["says"], c.says)
		}
	}
	if got := do("update", "cat", id, "", `{"values":{"lives":8}}`, 200); fmt.Sprint(got["values"]) != "map[lives:8 name:Tom]" {
		t.Errorf("changed: %v", got)
	}
	for query, want := range map[string]float64{"": 1, "filters[lives]=8": 1, "filters[lives]=9": 0, "filters[name][starts_with]=T": 1} {
		if got := do("list", "cat", "", query, "", 200); got["count"] != want {
			t.Errorf("%s: %v, want %v", query, got, want)
		}
	}
	stored, err := p.pets.In(b.Base()).Get(t.Context(), id)
	if err != nil || len(stored.Secrets) != 1 || strings.Contains(fmt.Sprint(stored.Secrets, stored.Values), "4711") {
		t.Fatalf("stored: %+v, %v", stored, err)
	}
	vault := secrets.Vault{Keys: p, Tenant: b.Tenant}
	if plain, err := vault.Open(t.Context(), secrets.Place{Collection: "pets", Record: id}, "chip", stored.Secrets["chip"]); err != nil || plain.Reveal() != "4711" {
		t.Errorf("it opens as %q, %v", plain.Reveal(), err)
	}
	// A field that is no longer defined keeps its values, which nobody sees or sets, and null takes away.
	if _, err := p.animals.In(b.Base()).Update(t.Context(), catID(t, p, b), func(a *animal) error { delete(a.Schema, "lives"); return nil }); err != nil {
		t.Fatal(err)
	}
	if got := do("update", "cat", id, "", `{"values":{"name":"Thomas"}}`, 200); fmt.Sprint(got["values"]) != "map[name:Thomas]" {
		t.Errorf("after its definition went: %v", got)
	}
	do("update", "cat", id, "", `{"values":{"lives":7}}`, 422)
	do("update", "cat", id, "", `{"values":{"never":null}}`, 422)
	keeps := func(want string) {
		t.Helper()
		if stored, err := p.pets.In(b.Base()).Get(t.Context(), id); err != nil || fmt.Sprint(stored.Values) != want {
			t.Errorf("stored: %+v, %v; want %s", stored, err, want)
		}
	}
	keeps("map[lives:8 name:Thomas]")
	do("update", "cat", id, "", `{"values":{"lives":null}}`, 200)
	keeps("map[name:Thomas]")
	do("delete", "cat", id, "", "", 200)
	if got := do("list", "cat", "", "deleted=true", "", 200); got["count"] != 1.0 {
		t.Errorf("in the trash: %v", got)
	}
	do("restore", "cat", id, "", "", 200)
}

func catID(t *testing.T, p *pets, b *schematest.Bench) string {
	t.Helper()
	a, err := p.animals.In(b.Base()).First(t.Context(), store.Query{Filter: store.Eq("name", "cat")})
	if err != nil {
		t.Fatal(err)
	}
	return a.ID
}

// TestRows_Keeper: a service stores what was read and checked, and a module shows records its own way.
func TestRows_Keeper(t *testing.T) {
	t.Parallel()
	var seen []string
	p := newPets()
	p.keep = &crud.Keeper[animal]{
		Insert: func(ctx context.Context, c *operation.Call, rec *animal) (*animal, error) {
			seen = append(seen, "insert")
			return rec, p.animals.In(c.Workspace).Insert(ctx, rec)
		},
		Update: func(ctx context.Context, c *operation.Call, rec *animal, change func(*animal) error) (*animal, error) {
			seen = append(seen, "update "+rec.Name)
			return p.animals.In(c.Workspace).Update(ctx, rec.ID, change)
		},
		Delete: func(ctx context.Context, c *operation.Call, rec *animal) error {
			seen = append(seen, "delete "+rec.Name)
			return p.animals.In(c.Workspace).Delete(ctx, rec)
		},
	}
	b := openPets(t, p)
	for _, c := range []struct {
		action, name, body string
		code               int
		data               string
	}{
		{"create", "", `{"name":"cow"}`, 200, `{"called":"cow"}`},
		{"create", "", `{"name":"cow"}`, 409, "name is already in use"},
		{"create", "", `{"name":"Bad Name"}`, 422, "name"},
		{"get", "cow", "", 200, `{"called":"cow"}`},
		{"update", "cow", `{"name":"ox"}`, 422, `name\" is not a field`},
		{"update", "cow", `{"schema":{"milk":{"title":"Milk","type":"Number"}}}`, 200, `{"called":"cow"}`},
		{"update", "ox", `{"schema":{}}`, 404, ""},
		{"delete", "cow", "", 200, `{"called":"cow"}`},
		{"delete", "cow", "", 404, ""},
	} {
		a := b.Do(t, schematest.Request{Operation: "animals." + c.action, Path: map[string]string{"name": c.name}, Body: c.body})
		if a.Code != c.code || !strings.Contains(a.Data, c.data) {
			t.Errorf("%s %s %s: %+v, want %d %s", c.action, c.name, c.body, a, c.code, c.data)
		}
	}
	if got := strings.Join(seen, ", "); got != "insert, insert, update cow, update cow, delete cow" { // a change is refused while it is asked for
		t.Errorf("kept: %s", got)
	}
}
