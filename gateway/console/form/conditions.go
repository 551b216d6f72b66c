package form

import (
	"bytes"
	"net/url"

	"tenantry/backends/record/schema"
	"tenantry/gateway/console/input"
	"tenantry/gateway/console/show"
	"tenantry/gateway/console/site"
	"tenantry/gateway/console/visit"
	"tenantry/internal/fault"
	"tenantry/internal/strictjson"
)

// filterControl makes the control of a campaign's filter. If rows cannot represent the filter, it is edited as JSON.
func filterControl(v *visit.Visit, c *input.Control, now strictjson.Value, sent url.Values) {
	rows, simple := input.ConditionsOf(now)
	values, fields, free := sent, filterable(v), 0
	if c.Kind, c.Value = "json", show.Pretty(now); sent == nil {
		values, free = url.Values{}, input.BlankConditions
		input.SetConditions(values, c.Name, rows)
		var faults fault.List
		roundTrip := show.Parse(input.FilterOf(c.Name, values, fields, &faults))
		simple = simple && (now.Is == strictjson.Null || bytes.Equal(roundTrip.Raw(), now.Raw()) && faults == nil)
	} else {
		simple = sent.Get("_has."+c.Name) == "conditions"
	}
	if simple {
		c.Kind, c.Hint = "conditions", "All conditions must hold. Without any, all contacts match."
		c.Grids = []input.Grid{input.ConditionGrid(c.Name, values, free, fields, nil)}
	}
}

// filterable returns the fields of contacts that filters can use.
func filterable(v *visit.Visit) (fields []show.DefinedField) {
	list := v.Site.ListOf("contact")
	if list == nil {
		return nil
	}
	for _, name := range list.Parameter("filters").Names {
		fields = append(fields, show.DefinedField{Key: name, Field: schema.Field{Title: site.Label(name)}})
	}
	for _, f := range show.Defined(v, list.Shows, nil) {
		if f.Type != "Encrypted" {
			fields = append(fields, f)
		}
	}
	return fields
}
