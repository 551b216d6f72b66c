package console_test

import (
	"regexp"
	"strings"
	"testing"

	"tenantry/gateway/gatewaytest"
)

// TestNoValueDiffersFromEmptyText checks that records without a value and records with an empty text are two groups
// with different names, in the chart and in the table.
func TestNoValueDiffersFromEmptyText(t *testing.T) {
	t.Parallel()
	acme := gatewaytest.Start(t).Org(t, "acme")
	acme.Import(t, `{"kind":"custom_object","name":"tree","label":"Tree","label_plural":"Trees","schema":{"kind":{"title":"Kind","type":"Text"}}}`,
		`{"kind":"record","object":"tree","values":{"kind":"oak"}}`, `{"kind":"record","object":"tree","values":{"kind":""}}`, `{"kind":"record","object":"tree","values":{}}`,
		`{"kind":"record","object":"tree","values":{}}`,
		`{"kind":"custom_report","id":"`+barID+`","pid":"`+pid(barID)+`","title":"Kinds","class":"Records","source":"tree","visual":"bar","secure":false,"shareable":true,"query":{"group_by":[{"field":"kind"}],"measures":[{"op":"count"}]}}`)
	page := acme.Page(t, reportPath(barID)).Text()
	for _, name := range []string{"oak", "none", "empty"} {
		if n := len(regexp.MustCompile(`>`+name+`</t(d|ext)>`).FindAllString(page, -1)); n < 2 { // in the picture and in the table
			t.Errorf("%s is shown %d times, want at least 2: %s", name, n, page)
		}
	}
	if strings.Count(page, ">none</td>") != 1 {
		t.Error("two rows have the same name")
	}
}
