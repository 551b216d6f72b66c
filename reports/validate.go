package reports

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strings"
	"unicode/utf8"

	"tenantry/backends/record"
	"tenantry/backends/record/schema"
	"tenantry/backends/store"
	"tenantry/internal/fault"
	"tenantry/internal/texts"
	"tenantry/operation/filters"
	"tenantry/tenants"
)

// Limits of a report.
const (
	MaxChildren = 100
	maxTitle    = 200
)

// Validate notes everything that is wrong with the report itself: names, rules, types,
// the form of its query. Whether its source and fields exist is for Check, since they may
// be stored later than the report.
func (m *Module) Validate(r *Report, errs *fault.List) {
	if r.PID != "" && !validPID(r.PID) {
		errs.Add("pid", "format", "pid must have 16 to 64 of letters, digits, \"_\", \"-\", because whoever knows it may read the report")
	}
	class, ok := m.classes[r.Class]
	switch {
	case !ok:
		errs.Add("class", "unknown", "class must be one of %s", strings.Join(slices.Sorted(maps.Keys(m.classes)), ", "))
	case class.NeedsSource() && r.Source == "":
		errs.Add("source", "required", "source is required for reports of class %s", r.Class)
	}
	if r.Visual != "" && !slices.Contains(Visuals(), r.Visual) {
		errs.Add("visual", "unknown", "visual must be %s", choice(Visuals()))
	}
	if r.ID != "" && slices.Contains(r.ChildReports, r.ID) {
		errs.Add("child_reports", "forbidden", "child_reports must not name the report itself")
	}
	validateInputs(r.Input, errs)
	for _, name := range r.Query.Definition(errs).Filter.Inputs() {
		if _, declared := r.Input[name]; !declared {
			errs.Add("query.filter", "unknown", "query.filter takes the value of %q, which is no input of the report", texts.Clip(name))
		}
	}
}

func validateInputs(inputs map[string]Input, errs *fault.List) {
	if len(inputs) > MaxInputs {
		errs.Add("input", "length", "input must have at most %d inputs", MaxInputs)
		return
	}
	for _, name := range slices.Sorted(maps.Keys(inputs)) {
		in, at := inputs[name], "input."+texts.Clip(name)
		if !store.ValidKey(name) {
			errs.Add(at, "format", "%s: the name must have 1 to 64 of letters, digits, \"-\", \"_\"", at)
		}
		if in.Rule != Locked && in.Rule != Editable {
			errs.Add(at+".rule", "unknown", "%s.rule must be locked or editable", at)
		}
		if in.Type != "" && !slices.Contains(InputTypes(), in.Type) {
			errs.Add(at+".type", "unknown", "%s.type must be %s", at, choice(InputTypes()))
		}
		atMost(errs, at+".label", in.Label, maxTitle)
		checkInput(errs, at+".value", in, in.Value)
		checkChoices(errs, at+".choices", in)
	}
}

func checkChoices(errs *fault.List, at string, in Input) {
	if len(in.Choices) > MaxChoices {
		errs.Add(at, "length", "%s must have at most %d choices", at, MaxChoices)
		return
	}
	noteRepeats(in.Choices, at, errs)
	for _, choice := range in.Choices {
		if choice == "" {
			errs.Add(at, "required", "%s: no choice is empty, since an input can be left without a value", at)
		}
		checkInput(errs, at, Input{Type: in.Type}, choice)
	}
}

// Check notes where the report does not fit the organization's data: a source or field
// that does not exist, is secret or of another type, an input's value that does not fit.
// The error, if any, means that it cannot be told.
func (m *Module) Check(ctx context.Context, t *tenants.Tenant, ws *store.Workspace, r *Report, errs *fault.List) error {
	if _, ok := m.classes[r.Class]; !ok {
		return nil // Validate notes it
	}
	d, err := m.dataset(ctx, t, ws, r.Class, r.Source)
	if errors.Is(err, ErrSource) {
		errs.Add("source", "unknown", "source names nothing that reports of class %s can ask", r.Class)
		return nil
	}
	if err != nil {
		return err
	}
	check(&d, r, errs)
	return nil
}

// ask notes what is wrong with a report that is to be stored together with definitions that are
// only known. Whether its query's fields exist is left to a run: the organization may change
// them afterwards just as well.
func (m *Module) ask(c *record.Checking, r *Report) {
	m.Validate(r, c.Errs)
	if _, ok := m.classes[r.Class]; !ok { // nothing could run it
		c.Never = append(c.Never, "class")
	}
	definer := definerOf(r.Class)
	if definer != "" && !c.Known.Covers(definer) {
		return // Check asks the store
	}
	defined, known := c.Known.Fields(definer, r.Source)
	if !known && r.Source != "" && r.Class != "Contacts" && definer != "" {
		c.Missing("source", definer)
	}
	if len(*c.Errs) == 0 {
		m.CheckFields(r, defined, c.Errs)
	}
}

// definerOf returns the resource that defines the fields of a class's records, "" where there is none.
func definerOf(class string) string {
	return map[string]string{"Contacts": "contact_field", "Records": "custom_object", classSubmissions: "form_collection"}[class]
}

// uses returns the definition of which the report asks for fields. One whose query cannot be read asks for all of them.
func (r *Report) uses() record.Use {
	var errs fault.List
	def := r.Query.Definition(&errs)
	use := record.Use{Resource: definerOf(r.Class)}
	if use.Resource != "contact_field" {
		use.Name = r.Source
		return use
	}
	use.All = len(errs) > 0 || !def.aggregates() && len(def.Fields) == 0
	use.Fields = slices.Concat(def.Filter.Fields(), def.Fields, []string{r.RowKey})
	for _, g := range def.Groups {
		use.Fields = append(use.Fields, g.Field)
	}
	for _, m := range def.Measures {
		use.Fields = append(use.Fields, m.Field)
	}
	for _, s := range def.Sort {
		use.Fields = append(use.Fields, s.Column)
	}
	return use
}

// CheckFields is Check where the fields that the organization defines for the report's
// source are known but may not be stored yet. Reports of other than the built-in classes
// are left to Check.
func (m *Module) CheckFields(r *Report, defined schema.Fields, errs *fault.List) {
	builtIn, ok := m.classes[r.Class].(*class)
	if !ok {
		return
	}
	if d, err := builtIn.over(nil, r.Source, defined); err == nil { // else Validate notes it
		check(&d, r, errs)
	}
}

// Broken returns the identifiers of the reports on a source, a record of the resource, that the workspace
// shows which could be run over the fields before a change of them and cannot be over those after it; nil:
// the source is gone. Every report is read, so this is for changes, which are few.
func (m *Module) Broken(ctx context.Context, ws *store.Workspace, resource, source string, before, after schema.Fields) (ids []string, err error) {
	err = m.Reports.In(ws).Each(ctx, store.Filter{}, store.Live, func(r *Report) error {
		if definerOf(r.Class) != resource || source != "" && r.Source != source {
			return nil
		}
		var ran, runs fault.List
		m.CheckFields(r, before, &ran)
		m.CheckFields(r, after, &runs)
		if len(ran) == 0 && (len(runs) > 0 || after == nil) {
			ids = append(ids, r.ID)
		}
		return nil
	})
	return ids, err
}

func check(d *Dataset, r *Report, errs *fault.List) {
	var parsing fault.List
	def := r.Query.Definition(&parsing)
	if len(parsing) > 0 {
		return // Validate notes it
	}
	Bind(d, def, func(name string) (filters.Input, bool) {
		in, ok := r.Input[name]
		return filters.Input{Value: in.Value, Set: in.Value != "", Type: in.Type}, ok
	}, errs)
}

func atMost(errs *fault.List, field, value string, runes int) {
	if utf8.RuneCountInString(value) > runes {
		errs.Add(field, "length", "%s must have at most %d characters", field, runes)
	}
}

// validPID reports whether a report may be given the public identifier. One that has a
// shorter or longer one from former times is still read by it.
func validPID(text string) bool { return len(text) >= 16 && len(text) <= 64 && plainText(text) }

// plainText reports whether text has 1 to 128 of letters, digits, "_" and "-".
func plainText(text string) bool { return texts.Plain(text, 128, "_-") }

// Visuals are what a report can be shown as.
func Visuals() []string { return []string{"table", "number", "bar", "line", "area", "pie", "heat"} }

// choice writes names as people do: "a, b or c".
func choice(names []string) string {
	last := len(names) - 1
	return strings.Join(names[:last], ", ") + " or " + names[last]
}
