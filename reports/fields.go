package reports

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"net/http"
	"slices"

	"tenantry/internal/fault"
	"tenantry/operation"
	"tenantry/tenants"
)

// Askable describes what reports can query: the classes, and the fields of one class.
type Askable struct {
	Classes []AskableClass `json:"classes" doc:"The classes, in the order of their names"`
	Fields  []AskableField `json:"fields" doc:"The fields of the given class and source, in the order of columns; empty without these"`
}

// AskableClass is a class of records.
type AskableClass struct {
	Name        string `json:"name"`
	NeedsSource bool   `json:"needs_source" doc:"Whether a report of the class must name a source"`
	SourceOf    string `json:"source_of" doc:"The kind of its sources: custom_object (by name) or form_collection (by id); empty if it needs none"`
}

// AskableField is a field, with what a query can do with it.
type AskableField struct {
	Column
	Operators []string `json:"operators" doc:"Operators of filters on it"`
	Measures  []string `json:"measures" doc:"Measures that can be computed of it"`
	Groups    bool     `json:"groups" doc:"Whether rows can be grouped and sorted by it"`
	By        []string `json:"by" doc:"The periods by which it can be grouped; empty if it is not a date"`
}

// Buckets returns the names of the periods that dates can be grouped by, the shortest first.
func Buckets() []string {
	all := buckets()
	return slices.SortedFunc(maps.Keys(all), func(a, b string) int { return cmp.Compare(all[a], all[b]) })
}

// Measures returns the names of all measures, count first.
func Measures() []string {
	all := measureOps()
	return slices.SortedFunc(maps.Keys(all), func(a, b string) int { return cmp.Compare(all[a], all[b]) })
}

// InputTypes returns the types that an input can have.
func InputTypes() []string {
	return []string{TypeText, TypeNumber, TypeBoolean, TypeDate, TypeDatetime}
}

// Askable returns the fields that a report may name, in the order of columns, and what it can do with each.
func (d *Dataset) Askable() []AskableField {
	all := []AskableField{}
	for _, f := range d.fields {
		if f.Secret {
			continue
		}
		a := AskableField{
			Column: f.Column, Operators: f.filter().Operators(), Measures: []string{}, Groups: f.groups(), By: []string{},
		}
		for _, name := range Measures() {
			op := measureOps()[name]
			if _, fits := measured(Measure{op, f.Name}, f); fits && name != "count" {
				a.Measures = append(a.Measures, name)
			}
		}
		if f.dated() {
			a.By = Buckets()
		}
		all = append(all, a)
	}
	return all
}

type fieldsInput struct {
	Class  string `json:"class" rule:"max=64" doc:"The class whose fields are answered: Contacts, Records, Submissions, Files or Campaigns." example:"Contacts"`
	Source string `json:"source" rule:"max=200" doc:"The custom object (by name) or form (by id), where the class needs one." example:"bike"`
}

func (m *Module) askable(ctx context.Context, c *operation.Call, in fieldsInput) (Askable, error) {
	out := Askable{Classes: []AskableClass{}, Fields: []AskableField{}}
	for _, name := range slices.Sorted(maps.Keys(m.classes)) {
		of := AskableClass{Name: name, NeedsSource: m.classes[name].NeedsSource()}
		if of.NeedsSource {
			of.SourceOf = definerOf(name)
		}
		out.Classes = append(out.Classes, of)
	}
	class, known := m.classes[in.Class]
	switch {
	case in.Class == "", known && class.NeedsSource() && in.Source == "":
		return out, nil
	case !known:
		return out, fault.One("class", fault.Unknown, "class must be the name of a class of reports")
	}
	d, err := m.dataset(ctx, c.Tenant, c.Workspace, in.Class, in.Source)
	if errors.Is(err, ErrSource) {
		return out, fault.One("source", fault.Unknown, "source must name an existing source of reports of class %s", in.Class)
	}
	if err == nil {
		out.Fields = d.Askable()
	}
	return out, err
}

func (m *Module) fieldsOperation() operation.Row {
	return operation.Typed(operation.Row{
		Name: "reports.fields", Method: http.MethodGet, Path: "/api/custom-reports/fields",
		Policy: operation.Policy{
			Credentials: operation.Key | operation.Session, Kinds: operation.ServerKeys,
			Rule: operation.Needs(tenants.ManageReports),
		},
		Request: operation.Request{Teams: true},
		Response: operation.Response{
			Message: "Report fields found",
			Example: Askable{
				Classes: []AskableClass{
					{Name: "Contacts"}, {Name: "Records", NeedsSource: true, SourceOf: "custom_object"},
				},
				Fields: []AskableField{{
					Column: Column{
						"country", "Country", TypeText,
					}, Operators: []string{"eq", "ne", "in"}, Measures: []string{
						"min", "max", "distinct",
					}, Groups: true, By: []string{},
				}},
			},
			Failures: []operation.Failure{{
				Code:    http.StatusUnprocessableEntity,
				Message: "Validation failed: source must name an existing source of reports of class Records",
				When:    "there is no such class, or no such source of it",
			}},
		},
		Docs: operation.Docs{
			Aside: true, Tag: tag, Summary: "Get what custom reports can query", Title: "What custom reports can query",
			Description: "Answers the classes and, for the given class and source, the fields that a query may name and what " +
				"it can do with each. Encrypted fields are left out, because reports cannot use them.",
		},
	}, m.askable)
}

// MeasureTitle returns the title of a measure for people.
func MeasureTitle(name string) string {
	if op := measureOps()[name]; name != "count" {
		return Measure{Op: op}.title()
	}
	return "Count"
}

// MeasureColumn returns the name of the column of a measure.
func MeasureColumn(op, field string) string { return Measure{measureOps()[op], field}.Column() }
