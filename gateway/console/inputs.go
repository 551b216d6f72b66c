package console

import (
	"cmp"
	"slices"
	"strings"

	"tenantry/gateway/console/layout"
	"tenantry/gateway/console/site"
	"tenantry/reports"
)

// inputView is an input of a report.
type inputView struct {
	name string
	reports.Input
}

// inputs returns the inputs of a report and the reports at its address that have that rule, or any; a name stands for one of them.
func (v *visit) inputs(path map[string]string, rule string) (all []inputView) {
	get := v.site.Rows["reports.get"]
	if !v.may(get) {
		return nil
	}
	for ids, i := []string{path["id"]}, 0; i < min(len(ids), few); i++ {
		a, err := v.read(get, map[string]string{"id": ids[i]}, "")
		if err != nil || !a.Ok() {
			continue
		}
		for _, m := range a.Data.Get("input").Members {
			text := func(name string) string { return m.Value.Get(name).Text }
			in := inputView{m.Name, reports.Input{Rule: text("rule"), Value: text("value"), Label: text("label"), Type: text("type")}}
			for _, c := range m.Value.Get("choices").Items {
				in.Choices = append(in.Choices, c.Text)
			}
			known := slices.ContainsFunc(all, func(other inputView) bool { return other.name == in.name })
			if !known && (rule == "" || (in.Rule == reports.Editable) == (rule == reports.Editable)) {
				all = append(all, in)
			}
		}
		if i == 0 && rule != "" {
			for _, id := range a.Data.Get("child_reports").Items {
				ids = append(ids, id.Text)
			}
		}
	}
	slices.SortStableFunc(all, func(a, b inputView) int { return cmp.Compare(a.name, b.name) })
	return all
}

// control makes the control of an input, with the value that was given, else its own.
func (in inputView) control(name, id, given string, is bool) control {
	c := control{Name: name, ID: id, Label: cmp.Or(in.Label, site.Label(in.name)), Kind: "text", Value: in.Value, Bare: strings.HasSuffix(name, "]")}
	if is {
		c.Value = given
	}
	switch {
	case len(in.Choices) > 0:
		c.Kind, c.Options = "choice", layout.Options(in.Choices, c.Value)
	case in.Type == reports.TypeNumber:
		c.Kind = "number"
	case in.Type == reports.TypeDate:
		c.Kind = "date"
	case in.Type == reports.TypeDatetime && clocked(onClock(c.Value)):
		c.Kind, c.Value = "datetime", onClock(c.Value)
		if rest, asked := strings.CutPrefix(name, "params["); asked {
			c.Name = "utc[" + rest // see timed
		}
	case in.Type == reports.TypeBoolean:
		c.Kind, c.Options = "choice", layout.YesOrNo(c.Value)
	}
	c.fit(nil)
	return c
}
