package input

import (
	"cmp"
	"net/url"
	"strconv"
	"strings"
	"unicode"

	"tenantry/gateway/console/show"
	"tenantry/gateway/console/site"
	"tenantry/internal/fault"
	"tenantry/internal/strictjson"
)

// blankFields is how many blank rows a schema has.
const blankFields = 3

// SchemaRow is the row of a field in the form of a schema.
type SchemaRow struct {
	Number, Key, Title, Type string
	Required, Locked         bool
	Files                    FileMembers
	Others                   string // the members that the row has no control for, as JSON; empty if there are none
	Error                    string
	Focus                    bool // it is the first with an error
}

// FileMembers are the members that only fields of the type File have, as texts.
type FileMembers struct{ Accept, MaxSize, MaxFiles, Folder string }

// IsSet reports whether the definition has one of them.
func (m FileMembers) IsSet() bool { return m != FileMembers{} }

// fileMembers returns the members of a definition.
func fileMembers(definition strictjson.Value) (m FileMembers) {
	var accepted []string
	for _, one := range definition.Get("accept").Items {
		accepted = append(accepted, one.Text)
	}
	return FileMembers{
		Accept: strings.Join(accepted, ", "), MaxSize: definition.Get("max_size").Text,
		MaxFiles: definition.Get("max_files").Text, Folder: definition.Get("folder_id").Text,
	}
}

// put adds the members to a definition.
func (m FileMembers) put(definition map[string]any) {
	if accepted := strings.FieldsFunc(m.Accept, func(r rune) bool { return r == ',' || unicode.IsSpace(r) }); len(accepted) > 0 {
		list := make([]any, len(accepted))
		for i := range accepted {
			list[i] = accepted[i]
		}
		definition["accept"] = list
	}
	for name, text := range map[string]string{"max_size": m.MaxSize, "max_files": m.MaxFiles} {
		if text = strings.TrimSpace(text); text != "" {
			definition[name] = Number(text)
		}
	}
	if folder := strings.TrimSpace(m.Folder); folder != "" {
		definition["folder_id"] = folder
	}
}

// ID returns the id of the row's first cell.
func (r SchemaRow) ID() string { return "schema-" + r.Number }

// key returns the key of the field. Without one, it is made from the title.
func (r *SchemaRow) key() string { return cmp.Or(r.Key, site.KeyFrom(r.Title)) }

// SchemaRows returns the rows that were sent, or else a row for each defined field and some blank ones.
func SchemaRows(now strictjson.Value, sent url.Values) (rows []SchemaRow) {
	if sent != nil {
		for i := range maxSchema {
			n := "schema." + strconv.Itoa(i)
			if !sent.Has(n + ".key") {
				break
			}
			rows = append(rows, SchemaRow{
				Number: strconv.Itoa(i),
				Key:    sent.Get(n + ".key"), Title: sent.Get(n + ".title"), Type: sent.Get(n + ".type"),
				Required: sent.Get(n+".required") != "", Locked: sent.Get(n+".locked") != "", Others: sent.Get(n + ".others"),
				Files: FileMembers{sent.Get(n + ".accept"), sent.Get(n + ".max_size"), sent.Get(n + ".max_files"), sent.Get(n + ".folder_id")},
			})
		}
		if sent.Get("_more") == "schema" {
			rows = append(rows, SchemaRow{Number: strconv.Itoa(len(rows)), Type: "Text"})
		}
		return rows
	}
	for _, m := range now.Members {
		rows = append(rows, SchemaRow{
			Key: m.Name, Title: m.Value.Get("title").Text, Type: m.Value.Get("type").Text,
			Required: m.Value.Get("required").Is == strictjson.True,
			Locked:   m.Value.Get("locked").Is == strictjson.True,
			Files:    fileMembers(m.Value),
			Others:   others(m.Value),
		})
	}
	for range blankFields {
		rows = append(rows, SchemaRow{Type: "Text"})
	}
	for i := range rows {
		rows[i].Number = strconv.Itoa(i)
	}
	return rows
}

// withoutControls returns a definition without the members that a row has controls for.
func withoutControls(definition strictjson.Value) strictjson.Value {
	return show.Without(definition, "title", "type", "required", "locked", "accept", "max_size", "max_files", "folder_id")
}

// others returns the members of a definition that a row has no control for, as JSON; empty if there are none.
func others(definition strictjson.Value) string {
	left := withoutControls(definition)
	if len(left.Members) == 0 {
		return ""
	}
	return string(left.Raw())
}

// SchemaOf converts the rows of a form into a schema. It ignores rows without a key and a title.
func SchemaOf(sent url.Values, faults *fault.List) map[string]any {
	fields := map[string]any{}
	for _, r := range SchemaRows(strictjson.Value{}, sent) {
		if r.Key == "" && r.Title == "" {
			continue
		}
		r.Key = r.key()
		if _, duplicate := fields[r.Key]; duplicate {
			faults.Add("schema."+r.Key, fault.Duplicate, "two fields have the key %q", r.Key)
		}
		var p strictjson.Parser
		kept, err := p.Parse(cmp.Or(r.Others, "{}"))
		if err != nil || kept.Is != strictjson.Object || len(withoutControls(kept).Members) < len(kept.Members) {
			faults.Add("schema."+r.Key, fault.Format, "the field %q was sent with invalid members; load the page again", r.Key)
		}
		f := kept.Table()
		f["title"], f["type"] = r.Title, r.Type
		if r.Required {
			f["required"] = true
		}
		if r.Locked {
			f["locked"] = true
		}
		r.Files.put(f)
		fields[r.Key] = f
	}
	return fields
}
