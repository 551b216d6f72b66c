package bundle

import (
	"strings"
	"testing"
)

// TestFieldsAreNotMadeSecretOverStoredValues: a bundle makes no field Encrypted, and none that is so plain, while there
// are values of it, whether the bundle has the records or not; without values it does, and other changes are taken.
func TestFieldsAreNotMadeSecretOverStoredValues(t *testing.T) {
	t.Parallel()
	const (
		field    = `{"kind":"contact_field","key":"plan","title":"Plan","type":"TYPE"}`
		object   = `{"kind":"custom_object","name":"tree","label":"Tree","label_plural":"Trees","schema":{"species":{"title":"Species","type":"TYPE"}}}`
		form     = `{"kind":"form_collection","id":"000000000000000000000091","name":"visit","label":"Visit","label_plural":"Visits","schema":{"note":{"title":"Note","type":"TYPE"}}}`
		contact  = `{"kind":"contact","external_id":"c-1","fields":{"plan":"gold"}}`
		record   = `{"kind":"record","object":"tree","external_id":"t-1","values":{"species":"oak"}}`
		sent     = `{"kind":"submission","id":"000000000000000000000092","form":"000000000000000000000091","values":{"form_name":"Visit","note":"secret"}}`
		plain    = "Text"
		unlike   = "LongText"
		secretly = "Encrypted"
	)
	for _, row := range []struct{ name, definition, data, field string }{
		{"contact field", field, contact, "type"},
		{"custom object", object, record, "schema.species.type"},
		{"form", form, sent, "schema.note.type"},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			of := func(typ string) string { return strings.ReplaceAll(row.definition, "TYPE", typ) }
			for _, turn := range []struct{ from, to string }{{plain, secretly}, {secretly, plain}} {
				w := newWorld(t)
				acme := w.org("acme")
				w.mustLoad(acme, of(turn.from))
				w.mustLoad(acme, of(turn.to)) // there are no values yet
				w.mustLoad(acme, of(turn.from))
				w.mustLoad(acme, row.data)
				before := w.dump(acme, true)
				bundles := []string{of(turn.to), of(turn.to) + "\n" + row.data}
				if head, _, fields := strings.Cut(row.definition, `"schema":`); fields && turn.from == secretly {
					bundles = append(bundles, head+`"schema":{}}`)
				}
				for _, bundle := range bundles {
					r, err := w.load(acme, bundle, ImportOptions{})
					if err == nil || len(r.Problems) == 0 || len(r.Problems[0].Errors) != 1 ||
						r.Problems[0].Errors[0].Field != row.field || !strings.Contains(r.Problems[0].Errors[0].Message, map[bool]string{true: "is Encrypted and cannot be dropped while ", false: "cannot become or stop being Encrypted while "}[strings.HasSuffix(bundle, `"schema":{}}`)]) {
						t.Errorf("%s to %s: %v %+v", turn.from, turn.to, err, r.Problems)
					}
				}
				if after := w.dump(acme, true); after != before {
					t.Errorf("a refused change has changed something:\n%s\nbefore\n%s", after, before)
				}
				if turn.from == plain {
					w.mustLoad(acme, of(unlike)) // which operations take when they are forced to
				}
			}
		})
	}
}
