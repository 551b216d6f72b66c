package transfer

import (
	"bytes"
	"strings"
	"testing"
)

// TestNullEmpties: what a line says is null is empty afterwards, in fields of every record and in those that the organization defined,
// encrypted ones too; what it does not give stays.
func TestNullEmpties(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	acme := w.org("acme")
	fields := `{"kind":"contact_field","key":"age","title":"Age","type":"Number"}` + "\n" + `{"kind":"contact_field","key":"plan","title":"Plan","type":"Text"}` + "\n" +
		`{"kind":"contact_field","key":"pin","title":"PIN","type":"Encrypted"}` + "\n"
	w.mustLoad(acme, fields+`{"kind":"contact","external_id":"a","email":"a@example.com","city":"Bonn","tags":["x"],"fields":{"age":5,"plan":"gold","pin":"1234"}}`+"\n")
	for _, c := range []struct {
		line, lacks, has string
		updated          int
	}{
		{`{"kind":"contact","external_id":"a"}`, "", `"city":"Bonn"`, 0},
		{`{"kind":"contact","external_id":"a","city":null,"tags":null}`, `"city" "tags"`, `"email":"a@example.com"`, 1},
		{`{"kind":"contact","external_id":"a","city":null,"tags":null}`, `"city"`, `"email":"a@example.com"`, 0},
		{`{"kind":"contact","external_id":"a","fields":{"age":null}}`, `"age"`, `"plan":"gold","pin"`, 1},
		{`{"kind":"contact","external_id":"a","fields":{"pin":null}}`, `"pin":`, `"plan":"gold"`, 1},
		{`{"kind":"contact","external_id":"a","fields":{"pin":null,"age":null}}`, `"pin":`, `"plan":"gold"`, 0},
		{`{"kind":"contact","external_id":"a","fields":{"pin":"5678","age":7}}`, "", `"age":7`, 1},
		{`{"kind":"contact","external_id":"a","fields":null}`, `"fields"`, `"email":"a@example.com"`, 1},
	} {
		report := w.mustLoad(acme, c.line+"\n")
		var out bytes.Buffer
		if _, err := w.service.Export(t.Context(), acme, &out, ExportOptions{RevealSecrets: true}); err != nil {
			t.Fatal(err)
		}
		line := ""
		for l := range strings.Lines(out.String()) {
			if strings.HasPrefix(l, `{"kind":"contact",`) {
				line = l
			}
		}
		if report.Updated != c.updated || report.Created != 0 {
			t.Errorf("%s: %d updated, %d created", c.line, report.Updated, report.Created)
		}
		for _, gone := range strings.Fields(c.lacks) {
			if strings.Contains(line, gone) {
				t.Errorf("%s: %s", c.line, line)
			}
		}
		if strings.ReplaceAll(c.has, `,"pin"`, "") != "" && !strings.Contains(line, strings.ReplaceAll(c.has, `,"pin"`, "")) {
			t.Errorf("%s: %s lacks %s", c.line, line, c.has)
		}
	}
	if _, err := w.load(acme, `{"kind":"contact_field","key":"age","title":null}`+"\n", ImportOptions{}); err == nil {
		t.Error("what must be there is not null")
	}
}
