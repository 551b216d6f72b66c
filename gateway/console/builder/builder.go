// Package builder makes the part of a form that composes the query of a report: its source, filter, columns, groups,
// figures and order, and the inputs that readers set. Query and Inputs convert the form back into the body of the
// operation. A query that the form cannot represent is edited as JSON.
package builder

import (
	"bytes"
	"cmp"
	"encoding/json"
	"net/url"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"tenantry/backends/record/schema"
	"tenantry/gateway/console/input"
	"tenantry/gateway/console/layout"
	"tenantry/gateway/console/show"
	"tenantry/gateway/console/site"
	"tenantry/gateway/console/visit"
	"tenantry/internal/fault"
	"tenantry/internal/strictjson"
	"tenantry/operation"
	"tenantry/reports"
)

// Askable returns what a report of the class and source can query. If the class or source does not exist, the result
// has no fields; ok is false if the person may not read it.
func Askable(v *visit.Visit, class, source string) (a reports.Askable, ok bool) {
	for _, q := range []url.Values{{"class": {class}, "source": {source}}, {}} {
		if q.Get("source") == "" {
			q.Del("source")
		}
		if data, found := v.ReadNamed("reports.fields", q.Encode()); found {
			return a, json.Unmarshal(data.Raw(), &a) == nil
		}
	}
	return a, false
}

// IsQuery reports whether a field is the query of a report.
func IsQuery(f *operation.Field) bool {
	return reflect.TypeOf(f.Type) == reflect.TypeFor[reports.Query]()
}

// IsInputs reports whether a field is the inputs of a report.
func IsInputs(f *operation.Field) bool {
	return reflect.TypeOf(f.Type) == reflect.TypeFor[map[string]reports.Input]()
}

// Complete completes the controls of a report's form, which depend on each other, and moves those that are seldom
// needed to the second result. Controls of other forms are returned unchanged.
func Complete(
	v *visit.Visit, controls, more []input.Control, current strictjson.Value, sent url.Values,
) (often, seldom []input.Control) {
	control := func(name string) *input.Control {
		for i := range controls {
			if controls[i].Name == name {
				return &controls[i]
			}
		}
		return &input.Control{}
	}
	query, class, source := control("query"), control("class"), control("source")
	if query.Kind != "query" {
		return controls, more
	}
	askable, ok := Askable(v, class.Value, source.Value)
	if !ok {
		query.Kind = "json"
		return controls, more
	}
	sourceControls(v, class, source, askable.Classes)
	values, inputs := sent, inputOptions(control("input"))
	if sent == nil {
		if values, ok = queryValues(current.Get("query"), Fields(askable.Fields)); !ok {
			query.Kind = "json"
			return orderControls(controls, more)
		}
	}
	query.Grids = queryGrids(askable.Fields, inputs, values, sent == nil)
	show := values.Get("asks.show")
	query.Options = []layout.Option{
		{Value: "rows", Title: "Rows, one for each record", Chosen: show == "rows"},
		{Value: "figures", Title: "Figures of groups of records", Chosen: show == "figures"},
	}
	query.Value = values.Get("asks.limit")
	query.Max = strconv.Itoa(reports.MaxRows)
	if query.Hint = ""; len(askable.Fields) == 0 {
		query.Hint = "Choose above what the report is about to see its fields."
	}
	return orderControls(controls, more)
}

// orderControls puts the controls of a report into the order of the form, and moves those that are seldom needed to the
// second result, unless they have an error.
func orderControls(controls, more []input.Control) (often, seldom []input.Control) {
	last := []string{"pid", "portal_visible", "visual_props", "folder", "parent", "row_key", "actions"}
	first := []string{"title", "desc", "class", "source", "query", "visual", "input"}
	slices.SortStableFunc(controls, func(a, b input.Control) int {
		// The index -1 of a control that is not in first becomes the largest uint, so that it comes last.
		return cmp.Compare(uint(slices.Index(first, a.Name)), uint(slices.Index(first, b.Name)))
	})
	for _, c := range controls {
		if slices.Contains(last, c.Name) && c.Error == "" {
			more = append(more, c)
		} else {
			often = append(often, c)
		}
	}
	return often, more
}

// sourceControls makes the controls of class and source choices, if all their options are known.
func sourceControls(v *visit.Visit, class, source *input.Control, classes []reports.AskableClass) {
	class.Kind, class.Reloads, class.Hint = "choice", true, ""
	options, of := []layout.Option{}, ""
	for _, k := range classes {
		options = append(options, layout.Option{Value: k.Name, Title: k.Name})
		if k.Name == class.Value {
			of = k.SourceOf
		}
	}
	class.Options = layout.Choose(options, class.Value)
	switch records, all := show.RecordOptions(v, of); {
	case of == "" && source.Value == "":
		source.Kind = "hidden"
	case all:
		source.Kind, source.Reloads, source.Required, source.Hint = "choice", true, true, ""
		source.Options = layout.Choose(records, source.Value)
	}
}

// inputOptions returns the inputs in the control as options for the value of a condition.
func inputOptions(c *input.Control) (all []layout.Option) {
	for _, g := range c.Grids {
		for _, line := range g.Lines {
			if name := inputName(line[0].Value, line[1].Value); name != "" {
				all = append(all, layout.Option{Value: name, Title: "the input " + name})
			}
		}
	}
	var parser strictjson.Parser
	if inputs, err := parser.Parse(c.Value); c.Kind == "json" && err == nil {
		for _, m := range inputs.Members {
			all = append(all, layout.Option{Value: m.Name, Title: "the input " + m.Name})
		}
	}
	return all
}

// Fields returns the fields of a report as fields of a filter.
func Fields(fields []reports.AskableField) (all []show.DefinedField) {
	for _, f := range fields {
		kind := map[string]string{reports.TypeNumber: "Number", reports.TypeBoolean: "Boolean"}[f.Type]
		all = append(all, show.DefinedField{Key: f.Name, Field: schema.Field{Title: f.Title, Type: kind}})
	}
	return all
}

// Names of the grids of a query in the form.
const (
	gridFilter   = "asks.filter"
	gridFields   = "asks.fields"
	gridGroups   = "asks.groups"
	gridMeasures = "asks.measures"
	gridSort     = "asks.sort"
)

// queryGrids makes the grids of a query from the values of the form. A fresh form has a blank line in each.
func queryGrids(
	fields []reports.AskableField, inputs []layout.Option, values url.Values, fresh bool,
) []input.Grid {
	free := map[bool]int{true: 1}[fresh]
	var all, grouped, measured []layout.Option
	for _, f := range fields {
		option := layout.Option{Value: f.Name, Title: f.Title}
		all = append(all, option)
		if f.Groups {
			grouped = append(grouped, option)
		}
		if len(f.Measures) > 0 {
			measured = append(measured, option)
		}
	}
	var ops, by, order []layout.Option
	for _, name := range reports.Measures() {
		ops = append(ops, layout.Option{Value: name, Title: reports.MeasureTitle(name)})
	}
	for _, name := range reports.Buckets() {
		by = append(by, layout.Option{Value: name, Title: "by " + name})
	}

	groups := input.NewGrid(gridGroups, values, free,
		input.CellKind{Name: "field", Title: "Field of group", Options: layout.Blank("–", grouped...)},
		input.CellKind{Name: "by", Title: "Period of group", Options: layout.Blank("each value", by...)})
	measures := input.NewGrid(gridMeasures, values, free,
		input.CellKind{Name: "op", Title: "Figure", Options: layout.Blank("–", ops...)},
		input.CellKind{Name: "field", Title: "Field of figure", Options: layout.Blank("– no field", measured...)})
	for i := range groups.Lines {
		order = append(order, layout.Option{Value: "group." + strconv.Itoa(i), Title: "Group " + strconv.Itoa(i+1)})
	}
	for i := range measures.Lines {
		order = append(order, layout.Option{Value: "figure." + strconv.Itoa(i), Title: "Figure " + strconv.Itoa(i+1)})
	}
	for _, f := range grouped {
		order = append(order, layout.Option{Value: "field." + f.Value, Title: f.Title})
	}
	columns := input.NewGrid(gridFields, values, free,
		input.CellKind{Name: "field", Title: "Column", Options: layout.Blank("–", all...)})
	directions := layout.Blank("smallest first", layout.Option{Value: "-", Title: "largest first"})
	sorts := input.NewGrid(gridSort, values, free,
		input.CellKind{Name: "column", Title: "Order", Options: layout.Blank("–", order...)},
		input.CellKind{Name: "desc", Title: "Direction of order", Options: directions})
	filter := input.ConditionGrid(gridFilter, values, free, Fields(fields), inputs)

	filter.Title, filter.Hint = "Which records", "All conditions must hold. Without any, the report has all records."
	columns.Title, columns.Hint, columns.For = "Columns", "Without any, the report has all fields.", "rows"
	groups.Title, groups.For = "Groups", "figures"
	measures.Title, measures.For = "Figures", "figures"
	sorts.Title, sorts.Hint = "Order", "Rows are ordered by fields, figures by the groups and figures above."
	return []input.Grid{filter, columns, groups, measures, sorts}
}

// queryValues converts a query into the values of its form. ok is false if the form cannot represent it.
func queryValues(q strictjson.Value, fields []show.DefinedField) (url.Values, bool) {
	values := url.Values{"asks.show": {"rows"}}
	conditions, ok := input.ConditionsOf(q.Get("filter"))
	if !ok {
		return nil, false
	}
	set := func(grid string, line int, name, value string) {
		values.Set(grid+"."+strconv.Itoa(line)+"."+name, value)
	}
	input.SetConditions(values, gridFilter, conditions)
	columns := map[string]string{}
	for i, g := range q.Get("group_by").Items {
		set(gridGroups, i, "field", g.Get("field").Text)
		set(gridGroups, i, "by", g.Get("by").Text)
		columns[g.Get("field").Text] = "group." + strconv.Itoa(i)
	}
	for i, m := range q.Get("measures").Items {
		op, field := m.Get("op").Text, m.Get("field").Text
		set(gridMeasures, i, "op", op)
		set(gridMeasures, i, "field", field)
		columns[reports.MeasureColumn(op, field)] = "figure." + strconv.Itoa(i)
	}
	if len(columns) > 0 {
		values.Set("asks.show", "figures")
	}
	for i, f := range q.Get("fields").Items {
		set(gridFields, i, "field", f.Text)
	}
	for i, s := range q.Get("sort").Items {
		column, desc := strings.CutPrefix(s.Text, "-")
		value := columns[column]
		if len(columns) == 0 {
			value = "field." + column
		}
		set(gridSort, i, "column", value)
		set(gridSort, i, "desc", map[bool]string{true: "-"}[desc])
	}
	values.Set("asks.limit", q.Get("limit").Text)
	var faults fault.List
	roundTrip := show.Parse(Query(values, fields, &faults))
	if q.Is == strictjson.Null {
		q = show.Parse(map[string]any{})
	}
	return values, len(faults) == 0 && bytes.Equal(roundTrip.Raw(), q.Raw())
}

// Query converts the values of a form into a query. The operation validates it.
func Query(sent url.Values, fields []show.DefinedField, faults *fault.List) map[string]any {
	get := func(grid string, line int, name string) string {
		return sent.Get(grid + "." + strconv.Itoa(line) + "." + name)
	}
	q := map[string]any{}
	if filter := input.FilterOf(gridFilter, sent, fields, faults); len(filter) > 0 {
		q["filter"] = filter
	}
	columns := map[string]string{} // names of columns, by the values of the options of the order
	if sent.Get("asks.show") == "figures" {
		var groups, measures []any
		for i := range input.CountLines(gridGroups, "field", sent) {
			field := get(gridGroups, i, "field")
			if field == "" {
				continue
			}
			g := map[string]any{"field": field}
			if by := get(gridGroups, i, "by"); by != "" {
				g["by"] = by
			}
			groups, columns["group."+strconv.Itoa(i)] = append(groups, g), field
		}
		for i := range input.CountLines(gridMeasures, "op", sent) {
			op, field := get(gridMeasures, i, "op"), get(gridMeasures, i, "field")
			if op == "" {
				continue
			}
			m := map[string]any{"op": op}
			if field != "" {
				m["field"] = field
			}
			measures, columns["figure."+strconv.Itoa(i)] = append(measures, m), reports.MeasureColumn(op, field)
		}
		if len(groups)+len(measures) == 0 {
			measures = []any{map[string]any{"op": "count"}} // the only figure that every report has
		}
		setList(q, "group_by", groups)
		setList(q, "measures", measures)
	} else {
		var names []any
		for i := range input.CountLines(gridFields, "field", sent) {
			if name := get(gridFields, i, "field"); name != "" {
				names = append(names, name)
			}
		}
		setList(q, "fields", names)
	}
	var order []any
	for i := range input.CountLines(gridSort, "column", sent) {
		of := get(gridSort, i, "column")
		column, known := columns[of]
		if name, field := strings.CutPrefix(of, "field."); field && len(columns) == 0 {
			column, known = name, true
		}
		if known {
			order = append(order, get(gridSort, i, "desc")+column)
		}
	}
	setList(q, "sort", order)
	if limit := sent.Get("asks.limit"); limit != "" {
		q["limit"] = input.Number(limit)
	}
	return q
}

func setList(object map[string]any, name string, list []any) {
	if len(list) > 0 {
		object[name] = list
	}
}

// InputsControl makes the control of a report's inputs. If its lines cannot represent them, they are edited as JSON.
func InputsControl(c *input.Control, now strictjson.Value, sent url.Values) {
	values := sent
	if sent == nil {
		values = url.Values{}
		for i, m := range now.Members {
			set := func(name, value string) { values.Set(c.Name+"."+strconv.Itoa(i)+"."+name, value) }
			set("name", m.Name)
			for _, name := range []string{"label", "type", "rule", "value"} {
				set(name, m.Value.Get(name).Text)
			}
			var choices []string
			for _, choice := range m.Value.Get("choices").Items {
				choices = append(choices, choice.Text)
			}
			set("choices", strings.Join(choices, ", "))
		}
		var faults fault.List
		roundTrip := show.Parse(Inputs(c.Name, values, &faults))
		if len(faults) > 0 || now.Is != strictjson.Null && !bytes.Equal(roundTrip.Raw(), now.Raw()) {
			c.Kind, c.Value = "json", show.Pretty(now)
			return
		}
	}
	types := layout.Blank("any text", layout.Options(reports.InputTypes(), "")...)
	rules := []layout.Option{
		{Value: reports.Editable, Title: "set by readers"},
		{Value: reports.Locked, Title: "locked"},
	}
	g := input.NewGrid(c.Name, values, map[bool]int{true: 1}[sent == nil],
		input.CellKind{Name: "name", Title: "Name of input", Above: "Name", Reloads: true},
		input.CellKind{Name: "label", Title: "Label of input", Above: "Label"},
		input.CellKind{Name: "type", Title: "Type of input", Options: types},
		input.CellKind{Name: "rule", Title: "Who sets input", Options: rules},
		input.CellKind{Name: "value", Title: "Value of input", Above: "Default value"},
		input.CellKind{Name: "choices", Title: "Choices of input", Above: "Choices, such as DE, FR"})
	for _, line := range g.Lines { // a blank line is set by readers
		if rule := &line[3]; rule.Value == "" {
			rule.Options = layout.Choose(rule.Options[:2], reports.Editable)
		}
	}
	c.Kind, c.Grids = "inputs", []input.Grid{g}
	c.Hint = "A condition can take the value of an input. " +
		"Readers set it, or you set a locked one when you share the report."
}

// inputName returns the name of an input. Without one, it is made from the title.
func inputName(name, title string) string {
	if name == "" {
		return site.KeyFrom(title)
	}
	return name
}

// Inputs converts the lines of a form into the inputs of a report.
func Inputs(field string, sent url.Values, faults *fault.List) map[string]any {
	inputs := map[string]any{}
	for i := range input.CountLines(field, "name", sent) {
		get := func(name string) string { return sent.Get(field + "." + strconv.Itoa(i) + "." + name) }
		name := inputName(get("name"), get("label"))
		if name == "" {
			continue
		}
		if _, duplicate := inputs[name]; duplicate {
			faults.Add(field, fault.Duplicate, "two inputs have the name %q", name)
		}
		in := map[string]any{"rule": get("rule"), "value": get("value")}
		for _, part := range []string{"label", "type"} {
			if text := get(part); text != "" {
				in[part] = text
			}
		}
		if choices := input.SplitLines(strings.Split(get("choices"), ",")); len(choices) > 0 {
			in["choices"] = choices
		}
		inputs[name] = in
	}
	return inputs
}
