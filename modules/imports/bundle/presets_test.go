package bundle

import (
	"bytes"
	"strings"
	"testing"
)

// TestNullIsWhatHoldsUnsaid: null of a switch is what holds where nothing is said, of a time, and the name of the
// organization, it is nothing, and of a field that nobody defined there is nothing to empty.
func TestNullIsWhatHoldsUnsaid(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	acme := w.org("acme")
	report := `{"kind":"custom_report","id":"0000000000000000000000b1","title":"R","class":"Contacts","secure":`
	dump := func() string {
		t.Helper()
		var out bytes.Buffer
		if _, err := w.service.Export(t.Context(), acme, &out, ExportOptions{}); err != nil {
			t.Fatal(err)
		}
		return out.String()
	}
	for _, c := range []struct{ line, has, lacks string }{
		{report + `null}`, `"secure":true`, ""},
		{report + `false}`, `"secure":false`, ""},
		{report + `null}`, `"secure":true`, `"secure":false`},
		{`{"kind":"contact","external_id":"a","email":"a@example.com","created_at":"2024-05-01T00:00:00Z"}`, "2024-05-01T00:00:00", ""},
		{`{"kind":"contact","external_id":"a","created_at":null}`, "2024-05-01T00:00:00", `"created_at":null`},
		{`{"kind":"contact","external_id":"a","city":"Bonn","fields":{"nothing":null}}`, `"city":"Bonn"`, "nothing"},
		{`{"kind":"organization","name":null,"features":{"teams":true}}`, `"features":{"teams":true}`, `"name":null,"features"`},
		{`{"kind":"organization","name":"Acme"}`, `"features":{"teams":true}`, ""},
	} {
		w.mustLoad(acme, c.line+"\n")
		if text := dump(); !strings.Contains(text, c.has) || c.lacks != "" && strings.Contains(text, c.lacks) {
			t.Errorf("%s: got %s, want containing %q", c.line, text, c.has)
		}
	}
}
