package builder

import (
	"cmp"
	"slices"
	"strings"

	"tenantry/gateway/console/input"
	"tenantry/gateway/console/layout"
	"tenantry/gateway/console/site"
	"tenantry/gateway/console/visit"
	"tenantry/reports"
)

// ReportInput is an input of a report.
type ReportInput struct {
	Name string
	reports.Input
}

// maxReports bounds the reports whose inputs are shown together.
const maxReports = 6

// ReportInputs returns the inputs of a report with the rule; with "", all of the report's inputs. With a rule, the
// inputs of the reports that are shared with it are included. Of inputs with the same name, the first counts.
func ReportInputs(v *visit.Visit, path map[string]string, rule string) (all []ReportInput) {
	get := v.Site.Rows["reports.get"]
	if !v.May(get) {
		return nil
	}
	for ids, i := []string{path["id"]}, 0; i < min(len(ids), maxReports); i++ {
		a, err := v.Read(get, map[string]string{"id": ids[i]}, "")
		if err != nil || !a.OK() {
			continue
		}
		for _, m := range a.Data.Get("input").Members {
			text := func(name string) string { return m.Value.Get(name).Text }
			in := ReportInput{m.Name, reports.Input{
				Rule: text("rule"), Value: text("value"), Label: text("label"), Type: text("type"),
			}}
			for _, c := range m.Value.Get("choices").Items {
				in.Choices = append(in.Choices, c.Text)
			}
			known := slices.ContainsFunc(all, func(other ReportInput) bool { return other.Name == in.Name })
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
	slices.SortStableFunc(all, func(a, b ReportInput) int { return cmp.Compare(a.Name, b.Name) })
	return all
}

// Control makes the control of an input. Its value is value if set is true, and the default of the input otherwise.
func (in ReportInput) Control(name, id, value string, set bool) input.Control {
	c := input.Control{
		Name: name, ID: id, Label: cmp.Or(in.Label, site.Label(in.Name)),
		Kind: "text", Value: in.Value, Unmarked: strings.HasSuffix(name, "]"),
	}
	if set {
		c.Value = value
	}
	switch {
	case len(in.Choices) > 0:
		c.Kind, c.Options = "choice", layout.Options(in.Choices, c.Value)
	case in.Type == reports.TypeNumber:
		c.Kind = "number"
	case in.Type == reports.TypeDate:
		c.Kind = "date"
	case in.Type == reports.TypeDatetime && input.IsDatetimeLocal(input.ToDatetimeLocal(c.Value)):
		c.Kind, c.Value = "datetime", input.ToDatetimeLocal(c.Value)
		if rest, asked := strings.CutPrefix(name, "params["); asked {
			c.Name = "utc[" + rest // see input.WithDatetimes
		}
	case in.Type == reports.TypeBoolean:
		c.Kind, c.Options = "choice", layout.YesOrNo(c.Value)
	}
	c.Fit(nil)
	return c
}
