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

// Validate notes every fault of the report itself: names, rules, types, and the form of its query. Check handles
// whether its source and fields exist, because they may be stored later than the report.
func (m *Module) Validate(r *Report, errs *fault.List) {
	if r.PID != "" && !validPID(r.PID) {
		errs.Add(
			"pid", "format",
			"pid must have 16 to 64 of A-Z, a-z, 0-9, \"_\" and \"-\", because knowing it may be enough to read the report",
		)
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
			errs.Add(
				"query.filter", "unknown", "query.filter uses the value of %q, which is not an input of the report",
				texts.Clip(name),
			)
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
			errs.Add(at, "format", "%s: the name must have 1 to 64 of A-Z, a-z, 0-9, \"_\" and \"-\"", at)
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
			errs.Add(at, "required", "%s: choices must not be empty; an input can be left without a value anyway", at)
		}
		checkInput(errs, at, Input{Type: in.Type}, choice)
	}
}

// Check notes what does not fit the organization's data: a source or field that does not exist, is secret or has
// another type, an input's value that does not fit. An error means that this cannot be determined now.
func (m *Module) Check(ctx context.Context, t *tenants.Tenant, ws *store.Workspace, r *Report, errs *fault.List) error {
	if _, ok := m.classes[r.Class]; !ok {
		return nil // Validate notes it
	}
	d, err := m.dataset(ctx, t, ws, r.Class, r.Source)
	if errors.Is(err, ErrSource) {
		errs.Add("source", "unknown", "source must name an existing source of reports of class %s", r.Class)
		return nil
	}
	if err != nil {
		return err
	}
	check(&d, r, errs)
	return nil
}

// checkWith checks a report that is stored together with definitions, which are known but may not be stored yet.
// Missing fields do not refuse it, because the organization could also remove them later.
func (m *Module) checkWith(c *record.Checking, r *Report) {
	m.Validate(r, c.Errs)
	if _, ok := m.classes[r.Class]; !ok { // it could never be run
		c.Never = append(c.Never, "class")
	}
	definer := definerOf(r.Class)
	if definer != "" && !c.Known.Covers(definer) {
		return // Check queries the store
	}
	defined, known := c.Known.Fields(definer, r.Source)
	if !known && r.Source != "" && r.Class != "Contacts" && definer != "" {
		c.Missing("source", definer)
	}
	if len(*c.Errs) == 0 {
		m.CheckFields(r, defined, c.Errs)
	}
}

// definerOf returns the resource that defines the fields of a class's records; "" if there is none.
func definerOf(class string) string {
	return map[string]string{
		"Contacts": "contact_field", "Records": "custom_object", classSubmissions: "form_collection",
	}[class]
}

// uses returns the definition whose fields the report uses. A report with an invalid query uses all of them.
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

// CheckFields is Check for known definitions, which need not be stored yet. It does nothing for classes that are not
// built in.
func (m *Module) CheckFields(r *Report, defined schema.Fields, errs *fault.List) {
	builtIn, ok := m.classes[r.Class].(*class)
	if !ok {
		return
	}
	if d, err := builtIn.over(nil, r.Source, defined); err == nil { // otherwise Validate notes it
		check(&d, r, errs)
	}
}

// Broken returns the identifiers of the reports on a source, which is a record of the resource, that could be run with
// the fields before a change but cannot with those after it; after is nil if the source is removed. Only reports that
// the workspace shows are included. It reads every report, which is acceptable because such changes are rare.
func (m *Module) Broken(
	ctx context.Context, ws *store.Workspace, resource, source string, before, after schema.Fields,
) (ids []string, err error) {
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
		in := r.Input[name]
		return filters.Input{Value: in.Value, Set: in.Value != "", Type: in.Type}, true // Validate notes undeclared ones
	}, errs)
}

func atMost(errs *fault.List, field, value string, runes int) {
	if utf8.RuneCountInString(value) > runes {
		errs.Add(field, "length", "%s must have at most %d characters", field, runes)
	}
}

// validPID reports whether the text may become a public identifier. Reports that already have a shorter or longer one
// keep it.
func validPID(text string) bool { return len(text) >= 16 && len(text) <= 64 && plainText(text) }

// plainText reports whether text has 1 to 128 of letters, digits, "_" and "-".
func plainText(text string) bool { return texts.Plain(text, 128, "_-") }

// Visuals are the ways to show a report.
func Visuals() []string { return []string{"table", "number", "bar", "line", "area", "pie", "heat"} }

// choice joins names for people: "a, b or c".
func choice(names []string) string {
	last := len(names) - 1
	return strings.Join(names[:last], ", ") + " or " + names[last]
}
