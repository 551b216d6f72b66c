package console

import (
	"cmp"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"tenantry/backends/record/schema"
	"tenantry/internal/fault"
	"tenantry/internal/strictjson"
	"tenantry/operation"
)

// schemaRow is one field that an organization defines.
type schemaRow struct {
	Number, Key, Title, Type string
	Required, Locked         bool
	Error                    string
	Focus                    bool // it is the first that is wrong
}

// ownTypes says which fields of a definition have types of the organization's own, and what that means; "": none has.
func (s *site) ownTypes(p *page, definition strictjson.Value) string {
	if !slices.ContainsFunc(s.all, func(row operation.Row) bool { return row.Defined.By != "" && row.Defined.By == p.shows.Resource }) {
		return ""
	}
	var named []string
	for _, m := range append(definition.Get("schema").Members, strictjson.Member{Value: definition}) { // some are of one field
		if t := m.Value.Get("type"); t.Is == strictjson.Text && !slices.Contains(schema.KnownTypes(), t.Text) {
			named = append(named, m.Value.Get("title").Text+" ("+t.Text+")")
		}
	}
	if len(named) == 0 {
		return ""
	}
	return "Values of types of your own are taken as they are: they are not checked, summed or compared as numbers. Here that is " + clip(strings.Join(named, ", ")) + "."
}

// ID is the id of the row's first cell.
func (r schemaRow) ID() string { return "schema-" + r.Number }

// key returns the key of the field, which follows from its title where none is typed.
func (r *schemaRow) key() string { return cmp.Or(r.Key, keyFrom(r.Title)) }

// schemaRows returns the fields that are defined, or were typed, and room for some more.
func schemaRows(now strictjson.Value, sent url.Values) (rows []schemaRow) {
	if sent != nil {
		for i := range maxSchema {
			n := "schema." + strconv.Itoa(i)
			if !sent.Has(n + ".key") {
				break
			}
			rows = append(rows, schemaRow{Number: strconv.Itoa(i), Key: sent.Get(n + ".key"), Title: sent.Get(n + ".title"), Type: sent.Get(n + ".type"), Required: sent.Get(n+".required") != "", Locked: sent.Get(n+".locked") != ""})
		}
		if sent.Get("_more") == "schema" {
			rows = append(rows, schemaRow{Number: strconv.Itoa(len(rows)), Type: "Text"})
		}
		return rows
	}
	for _, m := range now.Members {
		rows = append(rows, schemaRow{Key: m.Name, Title: m.Value.Get("title").Text, Type: m.Value.Get("type").Text, Required: m.Value.Get("required").Is == strictjson.True, Locked: m.Value.Get("locked").Is == strictjson.True})
	}
	for range blankFields {
		rows = append(rows, schemaRow{Type: "Text"})
	}
	for i := range rows {
		rows[i].Number = strconv.Itoa(i)
	}
	return rows
}

// schemaOf reads the fields that were typed; a row without a key and a title is none.
func schemaOf(sent url.Values, faults *fault.List) map[string]any {
	fields := map[string]any{}
	for _, r := range schemaRows(strictjson.Value{}, sent) {
		if r.Key == "" && r.Title == "" {
			continue
		}
		r.Key = r.key()
		if _, twice := fields[r.Key]; twice {
			faults.Add("schema."+r.Key, fault.Duplicate, "two fields have the key %q", r.Key)
		}
		f := map[string]any{"title": r.Title, "type": r.Type}
		if r.Required {
			f["required"] = true
		}
		if r.Locked {
			f["locked"] = true
		}
		fields[r.Key] = f
	}
	return fields
}

// keyFrom makes a key of a title: Size in cm is size_in_cm.
func keyFrom(title string) string {
	words := strings.FieldsFunc(strings.ToLower(title), func(r rune) bool { return (r < 'a' || r > 'z') && (r < '0' || r > '9') })
	return strings.Join(words, "_")
}
