package form

import (
	"encoding/json"
	"math"
	"net/http"
	"net/url"
	"strconv"
	"strings"

	"tenantry/gateway/console/builder"
	"tenantry/gateway/console/input"
	"tenantry/gateway/console/show"
	"tenantry/gateway/console/site"
	"tenantry/gateway/console/visit"
	"tenantry/internal/fault"
	"tenantry/internal/strictjson"
	"tenantry/operation"
)

// Body converts a form into the body of its operation. Its faults are texts that cannot be converted into JSON; the
// operation validates everything else.
func Body(
	v *visit.Visit, row *operation.Row, path map[string]string, sent url.Values,
) (map[string]any, []fault.Fault) {
	if row.Body == nil {
		return nil, nil
	}
	var faults fault.List
	body := map[string]any{}
	for i := range row.Body {
		f := &row.Body[i]
		if !sent.Has("_has."+f.Name) && !sent.Has(f.Name) {
			continue
		}
		text := strings.ReplaceAll(sent.Get(f.Name), "\r\n", "\n")
		switch {
		case f.Shape == operation.Boolean && text == "" && sent.Get("_has."+f.Name) == "choice":
		case f.Shape == operation.Boolean:
			body[f.Name] = sent.Get(f.Name) == "true"
		case f.Shape == operation.List && sent.Get("_has."+f.Name) == "json",
			f.Shape == operation.Object && sent.Get("_has."+f.Name) == "json":
			if strings.TrimSpace(text) == "" {
				if f.Nullable && row.Method == http.MethodPut {
					body[f.Name] = nil
				}
				continue
			}
			if err := strictjson.Check([]byte(text)); err != nil {
				faults.Add(f.Name, fault.Format, "%s must be JSON: %v", site.Title(f.Ask, f.Name), err)
				continue
			}
			body[f.Name] = json.RawMessage(text)
		case f.Shape == operation.List:
			if values := input.SplitLines(sent[f.Name]); len(values) > 0 || row.Method == http.MethodPut {
				body[f.Name] = values
			}
		case f.Shape == operation.Object && sent.Get("_has."+f.Name) == "conditions":
			body[f.Name] = input.FilterOf(f.Name, sent, filterable(v), &faults)
		case f.Shape == operation.Object && sent.Get("_has."+f.Name) == "query":
			askable, _ := builder.Askable(v, sent.Get("class"), sent.Get("source"))
			body[f.Name] = builder.Query(sent, builder.Fields(askable.Fields), &faults)
		case f.Shape == operation.Object && sent.Get("_has."+f.Name) == "inputs":
			body[f.Name] = builder.Inputs(f.Name, sent, &faults)
		case f.Shape == operation.Object && f.Name == "schema":
			body[f.Name] = input.SchemaOf(sent, &faults)
		case f.Shape == operation.Object:
			parts := parts(v, row, f, path, sent, &faults)
			if f.Members != nil {
				keepEmpty(f, parts, sent)
			}
			if len(parts) > 0 || row.Method == http.MethodPut {
				body[f.Name] = parts
			}
		case text == "" && (f.Secret || row.Method != http.MethodPut && !f.Required):
		case text == "" && f.Nullable:
			body[f.Name] = nil
		case text == "" && (len(f.Enum) > 0 || f.Ref != "" || f.Shape == operation.Integer) && !f.Required:
		case f.Shape == operation.Integer:
			body[f.Name] = spanSeconds(input.Number(text), sent.Get("_unit."+f.Name))
		default:
			body[f.Name] = text
		}
	}
	return body, faults
}

// spanSeconds returns a duration in seconds. A value that is not a whole number is returned unchanged, so that the
// operation refuses it.
func spanSeconds(typed any, unit string) any {
	n, isNumber := typed.(json.Number)
	count, err := n.Int64()
	seconds, unitErr := strconv.ParseInt(unit, 10, 64)
	if !isNumber || err != nil || unitErr != nil || seconds < 1 ||
		count > math.MaxInt64/seconds || count < math.MinInt64/seconds {
		return typed
	}
	return json.Number(strconv.FormatInt(count*seconds, 10))
}

// parts converts the controls of an object's members into the object.
func parts(
	v *visit.Visit, row *operation.Row, f *operation.Field,
	path map[string]string, sent url.Values, faults *fault.List,
) map[string]any {
	values := map[string]any{}
	kinds := map[string]string{}
	if f.Name == row.Defined.Values {
		for _, d := range show.Defined(v, row, path) {
			kinds[d.Key] = d.Type
		}
	}
	for name := range sent {
		key, within := strings.CutPrefix(name, f.Name+".")
		if !within {
			continue
		}
		text, kind := strings.ReplaceAll(sent.Get(name), "\r\n", "\n"), sent.Get("_has."+name)
		switch {
		case kind == "yes":
			values[key] = text == "true"
		case (kind == "lines" || kind == "checks") && text != "":
			values[key] = input.SplitLines(sent[name])
		case text == "" && kind == "secret":
		case text == "" && row.Method == http.MethodPut && kinds[key] != "":
			values[key] = nil
		case text == "":
		case kind == "json":
			if err := strictjson.Check([]byte(text)); err != nil {
				faults.Add(name, fault.Format, "%s must be JSON: %v", name, err)
				continue
			}
			values[key] = json.RawMessage(text)
		case kind == "number":
			values[key] = input.Number(text)
		case kind == "datetime":
			values[key] = input.FromDatetimeLocal(text)
		case kinds[key] == "Boolean":
			values[key] = text == "true"
		default:
			values[key] = text
		}
	}
	for name := range sent { // browsers do not send boxes that are not ticked
		key, found := strings.CutPrefix(name, "_has."+f.Name+".")
		if found && sent.Get(name) == "yes" && !sent.Has(f.Name+"."+key) {
			values[key] = false
		}
	}
	return values
}

// Query returns the parameters of the operation's query in a form.
func Query(row *operation.Row, sent url.Values) url.Values {
	query := url.Values{}
	for name, values := range sent {
		if key, found := strings.CutPrefix(name, "query."); found && values[0] != "" {
			if query[key] = values; row.Param(key).Shape == operation.List { // one per line
				query[key] = input.SplitLines(values)
			}
		}
	}
	return query
}

// PathValues adds to path the parameters of the operation's path in a form. It ignores others, which could change the
// path.
func PathValues(row *operation.Row, path map[string]string, sent url.Values) {
	for _, p := range row.Params {
		if name := "path." + p.Name; p.In == operation.InPath && sent.Has(name) {
			path[p.Name] = sent.Get(name)
		}
	}
}
