package bundle

import (
	"slices"
	"testing"

	"tenantry/internal/fault"
	"tenantry/internal/strictjson"
)

// TestNamesHaveOneRule: what a record is called is a label, whichever record that is, and a line is read without blanks
// around it.
func TestNamesHaveOneRule(t *testing.T) {
	t.Parallel()
	some := 0
	for _, r := range newWorld(t).deps.Resources {
		for i := range r.Fields {
			f := &r.Fields[i]
			if !slices.Contains([]string{"name", "title", "label", "label_plural", "filename"}, f.Name) || f.Name == r.KeyField().Name || f.Rule.Format == "name" {
				continue
			}
			some++
			rec, errs := r.New(), fault.List{}
			f.Read(strictjson.Value{Is: strictjson.Text, Text: " \u00a0North \u200b"}, rec, &errs)
			if got := r.Text(rec, f.Name); f.Rule.Format != "label" || got != "North" || len(errs) > 0 {
				t.Errorf("%s.%s: %q by the format %q, %v", r.Name, f.Name, got, f.Rule.Format, errs)
			}
		}
	}
	if some < 10 {
		t.Errorf("%d names", some)
	}
}
