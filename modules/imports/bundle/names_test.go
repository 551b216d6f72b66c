package bundle

import (
	"os"
	"regexp"
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

// TestDocumentListsEveryField checks that docs/bundle.md names each kind with its fields, apart from the times that all
// documents may have.
func TestDocumentListsEveryField(t *testing.T) {
	t.Parallel()
	document, err := os.ReadFile("../../../docs/bundle.md")
	if err != nil {
		t.Fatal(err)
	}
	listed := map[string][]string{}
	rows, names := regexp.MustCompile("(?m)^\\| `([a-z_]+)` \\| (`.*`) \\|$"), regexp.MustCompile("`([a-z_]+)`")
	example := regexp.MustCompile(`\(.*?\)`)
	for _, row := range rows.FindAllStringSubmatch(string(document), -1) {
		for _, name := range names.FindAllStringSubmatch(example.ReplaceAllString(row[2], ""), -1) {
			listed[row[1]] = append(listed[row[1]], name[1])
		}
	}
	w := newWorld(t)
	all, err := w.service.session(w.org("acme"), nil, false)
	check(t, err)
	for _, k := range all.kinds {
		var fields []string
		for i := range k.Fields {
			if name := k.Fields[i].Name; name != createdAt && name != updatedAt {
				fields = append(fields, name)
			}
		}
		if got := listed[k.Name]; !slices.Equal(slices.Sorted(slices.Values(got)), slices.Sorted(slices.Values(fields))) {
			t.Errorf("the fields of %s in docs/bundle.md are %v, want %v", k.Name, got, fields)
		}
		delete(listed, k.Name)
	}
	if len(listed) > 0 {
		t.Errorf("docs/bundle.md lists %v, want only kinds of a bundle", listed)
	}
}
