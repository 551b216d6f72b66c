package store_test

import (
	"strings"
	"testing"

	"tenantry/backends/store"
)

type base struct {
	Name string `json:"name"`
}

func refused[T any](spec store.Spec) func() error {
	return func() error {
		_, err := store.Define[T](spec)
		return err
	}
}

func TestDefineRefusesInvalidSpecs(t *testing.T) {
	t.Parallel()
	type bare struct {
		Name string `json:"name"`
	}
	type viaPointer struct {
		*store.Meta
		Name string `json:"name"`
	}
	type pointedBase struct {
		store.Meta
		*base
	}
	type r struct {
		store.Meta
		ID2     string `json:"id"`
		Name    string `json:"name"`
		Title   string `json:"title"`
		Both    string `json:"name_title"`
		Upper   string `json:"Upper"`
		Dash    string `json:"-"`
		Untaged string
		Map     map[string]string `json:"map"`
		Bytes   []byte            `json:"bytes"`
		Ints    []int             `json:"ints"`
		Uint    uint64            `json:"uint"`
		Any     any               `json:"any"`
		When    string            `json:"when" store:"time"`
		WhenPtr *int64            `json:"when_ptr" store:"time"`
		Teams   string            `json:"teams"`
		Deleted string            `json:"deleted"`
		OrgID   string            `json:"org_id"`
	}
	type optional struct {
		store.Meta
		Deleted *bool  `json:"deleted"`
		OrgID   *int64 `json:"org_id"`
	}
	type custom struct {
		store.Meta
		Fields map[string]any `json:"fields" store:"custom"`
	}
	type customText struct {
		store.Meta
		Fields string `json:"fields" store:"custom"`
	}
	type customTwice struct {
		store.Meta
		A map[string]any `json:"a" store:"custom"`
		B map[string]any `json:"b" store:"custom"`
	}
	type shadowed struct {
		store.Meta
		Mine int64 `json:"created_at"`
	}
	type member struct {
		store.Meta
		OrgID int64  `json:"org_id"`
		Name  string `json:"name"`
	}
	index := func(fields ...string) []store.Index { return []store.Index{{Fields: fields}} }
	for name, tt := range map[string]struct {
		define func() error
		want   string // what the error names
	}{
		"no Meta":               {refused[bare](store.Spec{Name: "x"}), "store.Meta"},
		"no struct":             {refused[string](store.Spec{Name: "x"}), "store.Meta"},
		"Meta by pointer":       {refused[viaPointer](store.Spec{Name: "x"}), "pointer"},
		"base by pointer":       {refused[pointedBase](store.Spec{Name: "x", Fields: []string{"name"}}), "pointer"},
		"empty name":            {refused[r](store.Spec{}), `""`},
		"upper-case name":       {refused[r](store.Spec{Name: "Things"}), "Things"},
		"name with a digit":     {refused[r](store.Spec{Name: "1st"}), "1st"},
		"name with a dash":      {refused[r](store.Spec{Name: "a-b"}), "a-b"},
		"name with a newline":   {refused[r](store.Spec{Name: "a\n"}), "invalid"},
		"name of 64":            {refused[r](store.Spec{Name: strings.Repeat("a", 64)}), "invalid"},
		"unknown field":         {refused[r](store.Spec{Name: "x", Fields: []string{"missing"}}), "missing"},
		"Go name":               {refused[r](store.Spec{Name: "x", Fields: []string{"Name"}}), "Name"},
		"upper-case field":      {refused[r](store.Spec{Name: "x", Fields: []string{"Upper"}}), "Upper"},
		"field without tag":     {refused[r](store.Spec{Name: "x", Fields: []string{"Untaged"}}), "Untaged"},
		"dash":                  {refused[r](store.Spec{Name: "x", Fields: []string{"-"}}), "-"},
		"the id":                {refused[r](store.Spec{Name: "x", Fields: []string{"id"}}), "id"},
		"a map":                 {refused[r](store.Spec{Name: "x", Fields: []string{"map"}}), "map"},
		"bytes":                 {refused[r](store.Spec{Name: "x", Fields: []string{"bytes"}}), "bytes"},
		"numbers":               {refused[r](store.Spec{Name: "x", Fields: []string{"ints"}}), "ints"},
		"unsigned":              {refused[r](store.Spec{Name: "x", Fields: []string{"uint"}}), "uint"},
		"any":                   {refused[r](store.Spec{Name: "x", Fields: []string{"any"}}), "any"},
		"a time of text":        {refused[r](store.Spec{Name: "x", Fields: []string{"when"}}), "when"},
		"a time by pointer":     {refused[r](store.Spec{Name: "x", Fields: []string{"when_ptr"}}), "when_ptr"},
		"teams of text":         {refused[r](store.Spec{Name: "x", Teams: true}), "teams"},
		"deleted of text":       {refused[r](store.Spec{Name: "x", SoftDelete: true}), "deleted"},
		"org_id of text":        {refused[r](store.Spec{Name: "x", Partition: true}), "org_id"},
		"no teams":              {refused[member](store.Spec{Name: "x", Teams: true}), "teams"},
		"no deleted":            {refused[member](store.Spec{Name: "x", SoftDelete: true}), "deleted"},
		"no org_id":             {refused[custom](store.Spec{Name: "x", Custom: true, Partition: true}), "org_id"},
		"deleted by pointer":    {refused[optional](store.Spec{Name: "x", SoftDelete: true}), "deleted"},
		"org_id by pointer":     {refused[optional](store.Spec{Name: "x", Partition: true}), "org_id"},
		"Custom without tag":    {refused[r](store.Spec{Name: "x", Custom: true}), "custom"},
		"tag without Custom":    {refused[custom](store.Spec{Name: "x"}), "custom"},
		"custom text":           {refused[customText](store.Spec{Name: "x", Custom: true}), "custom"},
		"two customs":           {refused[customTwice](store.Spec{Name: "x", Custom: true}), "custom"},
		"one JSON name twice":   {refused[shadowed](store.Spec{Name: "x"}), "created_at"},
		"index of undeclared":   {refused[r](store.Spec{Name: "x", Fields: []string{"name"}, Indexes: index("name", "title")}), "title"},
		"index of the id":       {refused[r](store.Spec{Name: "x", Indexes: index("id")}), "id"},
		"index of nothing":      {refused[r](store.Spec{Name: "x", Indexes: index()}), "index"},
		"index twice":           {refused[r](store.Spec{Name: "x", Fields: []string{"name"}, Indexes: append(index("name"), index("name")...)}), "name"},
		"one index name twice":  {refused[r](store.Spec{Name: "x", Fields: []string{"name", "title", "name_title"}, Indexes: append(index("name", "title"), index("name_title")...)}), "name_title"},
		"partition index twice": {refused[member](store.Spec{Name: "x", Fields: []string{"name"}, Partition: true, Indexes: append(index("name"), index("org_id", "name")...)}), "org_id_name"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			err := tt.define()
			if err == nil {
				t.Fatal("Define returned no error")
			}
			if !strings.Contains(err.Error(), tt.want) {
				t.Errorf("error %q does not name %q", err, tt.want)
			}
		})
	}
}

func TestDefineDeclares(t *testing.T) {
	t.Parallel()
	type embedded struct {
		store.Meta
		base
		Teams []string `json:"teams"`
	}
	spec := store.Spec{Name: "things", Fields: []string{"name"}, Teams: true, Indexes: []store.Index{{Fields: []string{"name", "created_at", "teams"}}}}
	k := define[embedded](t, spec)
	var got []string
	for _, f := range k.Spec().Collection().Fields {
		got = append(got, f.Name)
	}
	if want := "created_at name teams updated_at"; strings.Join(got, " ") != want {
		t.Errorf("fields %q, want %q", got, want)
	}
	members := define[member](t, store.Spec{Name: "m", Fields: []string{"email"}, Partition: true, Indexes: []store.Index{{Fields: []string{"email"}, Unique: true}, {}}})
	indexes := members.Spec().Collection().Indexes
	if len(indexes) != 2 || strings.Join(indexes[0].Fields, " ") != "org_id email" || !indexes[0].Unique || strings.Join(indexes[1].Fields, " ") != "org_id" {
		t.Errorf("the indexes of a partitioned kind are %+v", indexes)
	}
}

// A kind has its own copy of the Spec: later changes to the caller's Spec do not affect it.
func TestDefineKeepsItsOwnSpec(t *testing.T) {
	t.Parallel()
	spec := store.Spec{Name: "one", Fields: []string{"name"}, Indexes: []store.Index{{Fields: []string{"name"}, Unique: true}}}
	one := define[plain](t, spec)
	before := one.Spec().Collection()
	spec.Name, spec.Teams, spec.Indexes[0].Fields[0] = "two", false, "count"
	spec.Fields = []string{"count"}
	two := define[plain](t, spec)
	if one.Spec() == two.Spec() || one.Spec().Name != "one" || one.Spec().Collection() != before || before.Name != "one" ||
		before.Indexes[0].Fields[0] != "name" || before.Indexes[0].Name != "name" {
		t.Errorf("the first kind became %+v with %+v", one.Spec(), one.Spec().Collection())
	}
	if two.Spec().Collection().Name != "two" {
		t.Errorf("the second kind is %+v", two.Spec().Collection())
	}
}
