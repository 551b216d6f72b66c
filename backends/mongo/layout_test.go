package mongo

import (
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"tenantry/backends/driver"
	"tenantry/crypto/secret"

	"go.mongodb.org/mongo-driver/v2/bson"
	"pgregory.net/rapid"
)

// TestStoredDocuments: the stored form of documents, as an administrator sees it.
func TestStoredDocuments(t *testing.T) {
	t.Parallel()
	_, k := offline(t)
	long := strings.Repeat("[", maxNesting+2) + strings.Repeat("]", maxNesting+2)
	for name, c := range map[string]struct {
		body, custom string
		values       []any
		want         string // after _id and org_id
	}{
		"everything": {`{"id":"a/b","name":"x","n":5,"at":1700000000000,"tags":["a","b"],"schema":{"a.b":[1,{"$c":null}]}}`, `{"a.b":2,"big":9007199254740993,"list":["a",1,null],"o":{"a":1},"none":null}`,
			[]any{"x", int64(5), nil, nil, int64(1_700_000_000_000), nil, []string{"a", "b"}, nil},
			`"id":"a/b","name":"x","n":5,"at":{"$date":"2023-11-14T22:13:20Z"},"tags":["a","b"],"schema":{"a%2Eb":[1,{"%24c":null}]},"rev":7,"custom":{"a%2Eb":2,"big":9007199254740993,"list":["a",1,null],"o":{"a":1},"none":null}`},
		"what is missing is null, what the body leaves out follows the revision": {`{"name":"","at":0,"day":"","tags":[]}`, "", []any{nil, int64(0), nil, false, nil, nil, nil, nil},
			`"name":null,"at":null,"day":null,"tags":null,"rev":7,"n":0,"flag":false`},
		"other ways to say nothing": {`{"name":null,"tags":null,"n":null}`, "", []any{nil, nil, nil, nil, nil, nil, nil, nil},
			`"name":null,"tags":null,"n":null,"rev":7,"json":{"name":"null","tags":"null"}`},
		"names that are taken": {`{"org_id":5,"rev":1,"body":"b","f":[],"custom":{}}`, `{}`, []any{nil, nil, nil, nil, nil, nil, nil, nil},
			`"org_id_":5,"rev_":1,"body_":"b","f":[],"custom_":{},"rev":7,"custom":{}`},
		"numbers that BSON spells otherwise": {`{"x":1.50,"u":1e2,"v":12345678901234567890}`, `{"k":1.0}`, []any{nil, nil, 1.5, nil, nil, nil, nil, nil},
			`"x":1.5,"u":100.0,"v":1.2345678901234567E+19,"rev":7,"custom":{"k":1.0},"json":{"x":"1.50","u":"1e2","v":"12345678901234567890","custom":"{\"k\":1.0}"}`},
		"what BSON has nothing like": {`{"twice":{"a":1,"a":2},"deep":` + long + `}`, `{"deep":` + long + `}`, []any{nil, nil, nil, nil, nil, nil, nil, nil}, ""},
		"a body of another form":     {`{"name": "x"  }`, "", []any{"x", nil, nil, nil, nil, nil, nil, nil}, `"rev":7,"name":"x","json":{"body":"{\"name\": \"x\"  }"}`},
		"a name with a dot":          {`{"a.b":1,"name":"x"}`, "", []any{"x", nil, nil, nil, nil, nil, nil, nil}, `"rev":7,"name":"x","json":{"body":"{\"a.b\":1,\"name\":\"x\"}"}`},
		"a name twice":               {`{"a":1,"a":2}`, "", []any{nil, nil, nil, nil, nil, nil, nil, nil}, `"rev":7,"json":{"body":"{\"a\":1,\"a\":2}"}`},
		"values that the body lacks": {`{"z":"text"}`, "", []any{"x", nil, nil, nil, nil, nil, nil, nil}, `"z":"text","rev":7,"name":"x"`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := driver.Document{ID: "a/b", Body: []byte(c.body), Values: c.values}
			if c.custom != "" {
				d.Custom = []byte(c.custom)
			}
			doc := roundTrip(t, k, d)
			got, err := bson.MarshalExtJSON(doc, false, false)
			if err != nil {
				t.Fatal(err)
			}
			if want := `{"_id":"org-1/a/b","org_id":"org-1",` + c.want + `}`; c.want != "" && string(got) != want {
				t.Errorf("%s\nwant\n%s", got, want)
			}
		})
	}
}

// roundTrip encodes a document, checks that the server would accept it and that decoding returns the original, and
// returns the encoded form.
func roundTrip(t interface {
	Helper()
	Fatalf(string, ...any)
}, k *kind, d driver.Document) bson.Raw {
	t.Helper()
	doc, err := k.document("org-1", &d, 7)
	if err != nil {
		t.Fatalf("%s: %v", d.Body, err)
	}
	if err := doc.Validate(); err != nil {
		t.Fatalf("%s became %s: %v", d.Body, doc, err)
	}
	if err := keepsTo(doc, k.validator()); err != nil {
		t.Fatalf("%s became %s, which the server would refuse: %v", d.Body, doc, err)
	}
	back, err := (&workspace{name: "org-1"}).decode(k, doc)
	if err != nil || back.ID != d.ID || back.Rev != 7 || string(back.Body) != string(d.Body) || string(back.Custom) != string(d.Custom) || (back.Custom == nil) != (d.Custom == nil) {
		t.Fatalf("%s %s came back as %s %s %+v, %v", d.Body, d.Custom, back.Body, back.Custom, back, err)
	}
	return doc
}

// keepsTo checks a document by the parts of JSON Schema that validator uses.
func keepsTo(doc bson.Raw, validator bson.D) error {
	raw, err := bson.Marshal(validator)
	if err != nil {
		return err
	}
	var v struct {
		Schema struct {
			Required   []string
			Properties map[string]struct {
				BSONType any `bson:"bsonType"`
				Items    struct {
					BSONType string `bson:"bsonType"`
				}
			}
		} `bson:"$jsonSchema"`
	}
	if err := bson.Unmarshal(raw, &v); err != nil {
		return err
	}
	names := map[bson.Type]string{bson.TypeInt64: "long", bson.TypeInt32: "int", bson.TypeDouble: "double", bson.TypeString: "string", bson.TypeDateTime: "date",
		bson.TypeBoolean: "bool", bson.TypeArray: "array", bson.TypeEmbeddedDocument: "object", bson.TypeNull: "null"}
	for _, name := range v.Schema.Required {
		if doc.Lookup(name).Type == 0 {
			return fmt.Errorf("%s is missing", name)
		}
	}
	for name, p := range v.Schema.Properties {
		got := doc.Lookup(name)
		types, _ := p.BSONType.(bson.A)
		if got.Type != 0 && !slices.Contains(types, any(names[got.Type])) {
			return fmt.Errorf("%s is a %s, not one of %v", name, got.Type, types)
		}
		if got.Type == bson.TypeArray {
			elements, _ := got.Array().Values()
			for _, e := range elements {
				if names[e.Type] != p.Items.BSONType {
					return fmt.Errorf("%s has a %s", name, e.Type)
				}
			}
		}
	}
	return nil
}

// TestServersCheckDocuments: the server is told to check documents. If it cannot, Inspect reports it.
func TestServersCheckDocuments(t *testing.T) {
	t.Parallel()
	for name, refused := range map[string]bool{"checks": false, "cannot": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := &fakeServer{}
			f.answer = func(name string, _ bson.Raw) bson.D {
				switch {
				case name == "collMod" && refused:
					return refusal(59, "CommandNotFound")
				case name == "find" || name == "listCollections" || name == "listIndexes":
					return cursor()
				}
				return done(1)
			}
			e := openAt(t, Options{URI: secret.New("mongodb://" + fake(t, f, nil).member("rs0").addr + "/?replicaSet=rs0")})
			other := things()
			other.Name = "others"
			if _, err := e.Open(t.Context(), driver.Opening{Workspace: "org-1", Collections: []*driver.Collection{things(), other}}); err != nil {
				t.Fatal(err)
			}
			if err := e.Wait(t.Context()); err != nil {
				t.Fatal(err)
			}
			reported := slices.ContainsFunc(e.Inspect(t.Context()), func(f driver.Finding) bool {
				return strings.Contains(f.Says, "not checked by the server")
			})
			if asked := f.took("collMod"); reported != refused || refused && asked != 1 || !refused && asked != 2 {
				t.Errorf("%d collMod commands, reported: %t; want reported: %t", asked, reported, refused)
			}
		})
	}
}

// TestBodiesRoundTrip: every JSON body is returned byte for byte.
func TestBodiesRoundTrip(t *testing.T) {
	t.Parallel()
	_, k := offline(t)
	names := rapid.OneOf(rapid.SampledFrom([]string{"name", "n", "x", "flag", "at", "day", "tags", "any", "rev", "rev_", "_id", "org_id", "custom", "json", "body", "f", "", "a.b", "$x", "%", "é", "z"}), rapid.String())
	text := func(rt *rapid.T, s string) string {
		b, err := json.Marshal(s)
		if err != nil {
			rt.Fatal(err)
		}
		return string(b)
	}
	var value func(rt *rapid.T, depth int) string
	object := func(rt *rapid.T, depth int) string {
		var all []string
		for range rapid.IntRange(0, 4).Draw(rt, "members") {
			all = append(all, text(rt, names.Draw(rt, "name"))+":"+value(rt, depth))
		}
		return "{" + strings.Join(all, ",") + "}"
	}
	value = func(rt *rapid.T, depth int) string {
		switch rapid.IntRange(0, 5+min(depth, 2)).Draw(rt, "type") {
		case 0:
			return rapid.SampledFrom([]string{"null", "true", "false", "0", `""`, "[]", "{}", " 1", "[ ]"}).Draw(rt, "word")
		case 1:
			return rapid.SampledFrom([]string{"1", "-0", "1.0", "1e5", "1E400", "0.1", "1e-7", "1e21", "9223372036854775807", "9223372036854775808", "123456789012345678901234567890"}).Draw(rt, "number")
		case 2:
			b, err := json.Marshal(rapid.Float64Range(-1e300, 1e300).Draw(rt, "float"))
			if err != nil {
				rt.Fatal(err)
			}
			return string(b)
		case 3:
			return rapid.SampledFrom([]string{`"<>&"`, `"\u2028\u0000"`, `"\ud800"`, `"\/"`, `"é日\n"`}).Draw(rt, "special")
		case 4, 5:
			return text(rt, rapid.String().Draw(rt, "text"))
		case 6:
			return object(rt, depth-1)
		}
		var all []string
		for range rapid.IntRange(0, 3).Draw(rt, "elements") {
			all = append(all, value(rt, depth-1))
		}
		return "[" + strings.Join(all, ",") + "]"
	}
	rapid.Check(t, func(rt *rapid.T) {
		d := driver.Document{ID: "a", Body: []byte(object(rt, 3)), Values: make([]any, len(k.fields))}
		for i, v := range []any{"x", int64(5), math.Inf(1), true, int64(-1), "2024-01-01", []string{"a", ""}, 2.5} {
			if rapid.Bool().Draw(rt, "has a value") {
				d.Values[i] = v
			}
		}
		if rapid.Bool().Draw(rt, "has custom values") {
			d.Custom = []byte(object(rt, 3))
		}
		roundTrip(rt, k, d)
	})
}

func TestInvalidDocumentsAreErrors(t *testing.T) {
	t.Parallel()
	_, k := offline(t)
	good := driver.Document{ID: "a", Body: []byte(`{"name":"x"}`), Values: []any{"x", nil, nil, nil, nil, nil, nil, nil}}
	raw, err := k.document("org-1", &good, 1)
	if err != nil {
		t.Fatal(err)
	}
	for _, other := range []string{"org-10", "org-2", "org"} {
		if d, err := (&workspace{name: other}).decode(k, raw); err == nil {
			t.Errorf("workspace %s decoded another's document as %+v", other, d)
		}
	}
	for _, bad := range []driver.Document{
		{ID: "a", Values: []any{"x"}}, {ID: "a", Values: good.Values, Custom: []byte(`[1]`)}, {ID: "a", Values: good.Values, Custom: []byte(`{`)}, {ID: "a", Values: good.Values, Body: []byte{0xff}},
		{ID: "a", Values: []any{int64(1), nil, nil, nil, nil, nil, nil, nil}}, {ID: "a", Values: []any{nil, nil, nil, nil, nil, nil, "red", nil}}, {ID: "a", Values: []any{nil, nil, nil, nil, nil, nil, nil, []string{"x"}}},
		{ID: "a", Values: []any{nil, nil, nil, nil, 1.5, nil, nil, nil}},
	} {
		if doc, err := k.document("w", &bad, 1); err == nil {
			t.Errorf("document(%+v) = %v, want an error", bad, doc)
		}
	}
	for _, foreign := range []bson.D{
		{{Key: "_id", Value: bson.NewObjectID()}, {Key: "org_id", Value: "org-1"}, {Key: "rev", Value: 1}}, {{Key: "_id", Value: "org-1/a"}, {Key: "org_id", Value: "org-1"}},
		{{Key: "_id", Value: "org-1/a"}, {Key: "org_id", Value: "org-1"}, {Key: "name", Value: bson.NewObjectID()}, {Key: "rev", Value: 1}},
		{{Key: "_id", Value: "org-1/a"}, {Key: "org_id", Value: "org-1"}, {Key: "rev", Value: 1}, {Key: "custom", Value: bson.D{{Key: "k", Value: bson.Regex{Pattern: "secret"}}}}},
	} {
		raw, err := bson.Marshal(foreign)
		if err != nil {
			t.Fatal(err)
		}
		if d, err := (&workspace{name: "org-1"}).decode(k, raw); err == nil || strings.Contains(err.Error(), "secret") {
			t.Errorf("decode(%v) = %+v, %v; want an error without values", foreign, d, err)
		}
	}
}
