package show

import (
	"cmp"
	"slices"
	"strconv"
	"strings"
	"sync"

	"tenantry/gateway/console/layout"
	"tenantry/gateway/console/site"
	"tenantry/gateway/console/visit"
	"tenantry/internal/strictjson"
	"tenantry/operation"
	"tenantry/tenants"
)

// Referred returns the names of the records of a resource, as far as the person may see them, of many but the first.
func Referred(v *visit.Visit, resource string) visit.RecordNames {
	known, ok := v.Names[resource]
	if !ok {
		lacked := v.Unanswered // without the names the page is whole
		options, all := RecordOptions(v, resource)
		v.Unanswered, known = lacked, visit.RecordNames{Names: make(map[string]string, len(options)), All: all || options == nil}
		for _, o := range options {
			known.Names[o.Value] = o.Title
		}
		if v.Names == nil {
			v.Names = map[string]visit.RecordNames{}
		}
		v.Names[resource] = known
	}
	return known
}

// NameByKey returns the name of a record, empty where the person may not see it, or there is none.
func NameByKey(v *visit.Visit, resource, key string) string {
	known := Referred(v, resource)
	name, found := known.Names[key]
	if list := v.Site.ListOf(resource); !found && !known.All && v.May(list.Each.Shows) {
		lacked := v.Unanswered
		if a, err := v.Read(list.Each.Shows, map[string]string{list.Each.Key(): key}, ""); err == nil && a.OK() {
			name = Clip(Name(a.Data, ""))
		}
		v.Unanswered, known.Names[key] = lacked, name
	}
	return name
}

// OperationTitle returns what people call what was done: the summary of the operation, the words of a command.
func OperationTitle(v *visit.Visit, name string) string {
	if row := cmp.Or(v.Site.Rows[name], v.Own[name]); row != nil {
		return row.Summary
	}
	return "Command: " + strings.ReplaceAll(name, ".", " ")
}

// SubjectName returns the name of whoever did something, where the field says that as user:7, and of what was done.
func SubjectName(v *visit.Visit, field, text string) string {
	switch {
	case field == "operation" && text != "":
		return OperationTitle(v, text)
	case !slices.Contains([]string{"subject", "by", "issued_by"}, field):
		return text
	case text == (&tenants.Principal{}).Subject():
		return nobodyKnown
	case text == "command":
		return "a command"
	}
	return cmp.Or(WhoIs(v, text), text)
}

// RecordOptions returns the records that a field can refer to, and whether these are all.
func RecordOptions(v *visit.Visit, resource string) (options []layout.Option, all bool) {
	list := v.Site.ListOf(resource)
	if list == nil || list.Each == nil || strings.Contains(list.Path, "{") {
		return nil, false
	}
	data, ok := v.Named(list.Shows.Name, "per_page="+strconv.Itoa(MostOptions))
	if !ok {
		return nil, false
	}
	for _, record := range data.Get("results").Items {
		options = append(options, layout.Option{Value: Key(list.Each, record), Title: Clip(Name(record, ""))})
	}
	count, err := strconv.Atoi(data.Get("count").Text)
	return options, err == nil && count <= MostOptions
}

// namingField returns the key of the field by which people know a record that has no name besides: one that is called
// so, else the first text, one that every record has if there is any. Empty: there is no text.
func namingField(defined []DefinedField) (key string) {
	best := -1
	for _, f := range defined {
		rank := 0
		switch {
		case f.Kind != "Text":
			continue
		case slices.Contains(naming(), f.Key) || strings.HasSuffix(f.Key, "_name"):
			rank = 2
		case f.Required:
			rank = 1
		}
		if rank > best {
			best, key = rank, f.Key
		}
	}
	return key
}

// NameOf returns what people call a record, where it has no name of its own by a field that the organization defined.
func NameOf(v *visit.Visit, row *operation.Row, path map[string]string, record strictjson.Value, otherwise string) string {
	return NamesOf(v, row, path)(record, otherwise)
}

// NamesOf is nameOf for many records of a list. What is defined is read once, where it is needed.
func NamesOf(v *visit.Visit, row *operation.Row, path map[string]string) func(record strictjson.Value, otherwise string) string {
	field := sync.OnceValue(func() string { return namingField(Defined(v, row, path)) })
	return func(record strictjson.Value, otherwise string) string {
		if values := row.Defined.Values; values != "" && Name(Without(record, "id", "external_id"), "") == "" {
			if name := record.Get(values).Get(field()); name.Is == strictjson.Text && name.Text != "" {
				return name.Text
			}
		}
		return Name(record, otherwise)
	}
}

// MostOptions is how many records a choice offers.
const MostOptions = 200

// Key returns what names the record in the path of its page.
func Key(each *site.Page, record strictjson.Value) string {
	key := each.Key()
	if value := record.Get(key); value.Is == strictjson.Text || value.Is == strictjson.Number {
		return value.Text
	}
	return record.Get("id").Text
}

// leads returns the address of the record that a field refers to, and its resource.
func leads(v *visit.Visit, p *site.Page, name string, value strictjson.Value) (address, ref string) {
	if value.Is != strictjson.Text && value.Is != strictjson.Number || value.Text == "" {
		return "", ""
	}
	if name == "user_id" && WhoIs(v, "user:"+value.Text) != "" {
		ref = "user"
	}
	if f := p.Field(name); ref == "" {
		if ref = v.Site.Declared(p, name).Rule.Ref; f != nil && f.Shape != operation.List && f.Ref != "" {
			ref = f.Ref
		}
	}
	list := v.Site.ListOf(ref)
	if list == nil || list.Each == nil || strings.Contains(list.Path, "{") || !v.May(list.Each.Shows) {
		return "", ""
	}
	return list.Each.Address(map[string]string{list.Each.Key(): value.Text}), ref
}

// Trail leads back to where a page belongs.
func Trail(v *visit.Visit, p *site.Page, path map[string]string) (links []site.Link) {
	for i := 2; i < len(p.Segments); i++ {
		above := strings.Join(p.Segments[:i], "/")
		for _, other := range v.Site.Pages {
			if other.Path == above && v.May(other.Shows) {
				title := other.Title()
				if key := other.Key(); key != "" {
					title = Clip(path[key])
					if a, err := v.Read(other.Shows, path, ""); err == nil && a.OK() {
						title = Clip(NameOf(v, other.Shows, path, a.Data, title))
					}
				}
				links = append(links, site.Link{Title: title, Address: other.Address(path)})
			}
		}
	}
	return links
}

// Doer returns the subject of a record of the audit: who signed in was nobody before.
func Doer(record strictjson.Value) string {
	who := record.Get("subject").Text
	if in := record.Get("facts").Get("user").Text; who == (&tenants.Principal{}).Subject() && in != "" && record.Get("outcome").Text == "ok" {
		return "user:" + in
	}
	return who
}

// SubjectKind is a resource of those who do something. before goes before their names, where who makes them names them
// as they like.
type SubjectKind struct{ Resource, Before string }

// Subjects are the kinds of those who do something, by how the audit calls them.
func Subjects() map[string]SubjectKind {
	return map[string]SubjectKind{"user": {"user", ""}, "key": {"key", "Key "}}
}

// WhoIs returns the name of a subject, empty where the person may not see it, or there is none.
func WhoIs(v *visit.Visit, subject string) string {
	kind, id, _ := strings.Cut(subject, ":")
	s, known := Subjects()[kind]
	if !known || id == "" {
		return ""
	}
	if name := NameByKey(v, s.Resource, id); name != "" {
		return s.Before + name
	}
	return ""
}

// RecordAbove returns the record that the page is below of.
func RecordAbove(v *visit.Visit, p *site.Page, path map[string]string) (record strictjson.Value) {
	for _, above := range v.Site.Pages {
		for _, below := range above.Below {
			if below != p || above.List || !strings.HasPrefix(p.Path, above.Path+"/") || !v.May(above.Shows) {
				continue
			}
			if a, err := v.Read(above.Shows, path, ""); err == nil && a.OK() {
				record = a.Data
			}
		}
	}
	return record
}

// naming are the fields by which people know a record, the best first.
func naming() []string {
	return []string{"title", "label", "name", "filename", "email", "operation", "key", "id"}
}

// lastNaming are those by which they know one that has none of the others.
func lastNaming() []string { return []string{"phone", "external_id"} }

// Name returns what people call a record.
func Name(record strictjson.Value, otherwise string) string {
	if first, last := record.Get("first_name").Text, record.Get("last_name").Text; first+last != "" {
		return strings.TrimSpace(first + " " + last)
	}
	for _, name := range slices.Concat(naming()[:len(naming())-1], lastNaming(), []string{"id"}) {
		if value := record.Get(name); value.Is == strictjson.Text && value.Text != "" || value.Is == strictjson.Number && name == "id" {
			return value.Text
		}
	}
	return otherwise
}
