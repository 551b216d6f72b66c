package console

import (
	"cmp"
	"slices"
	"strconv"
	"strings"
	"sync"

	"tenantry/gateway/console/layout"
	"tenantry/gateway/console/site"
	"tenantry/internal/strictjson"
	"tenantry/operation"
	"tenantry/tenants"
)

// referred returns the names of the records of a resource, as far as the person may see them, of many but the first.
func (v *visit) referred(resource string) referred {
	known, ok := v.refs[resource]
	if !ok {
		lacked := v.lacked // without the names the page is whole
		options, all := v.options(resource)
		v.lacked, known = lacked, referred{make(map[string]string, len(options)), all || options == nil}
		for _, o := range options {
			known.names[o.Value] = o.Title
		}
		if v.refs == nil {
			v.refs = map[string]referred{}
		}
		v.refs[resource] = known
	}
	return known
}

// calledBy returns the name of a record, empty where the person may not see it, or there is none.
func (v *visit) calledBy(resource, key string) string {
	known := v.referred(resource)
	name, found := known.names[key]
	if list := v.site.ListOf(resource); !found && !known.all && v.may(list.Each.Shows) {
		lacked := v.lacked
		if a, err := v.read(list.Each.Shows, map[string]string{list.Each.Key(): key}, ""); err == nil && a.Ok() {
			name = clip(nameOf(a.Data, ""))
		}
		v.lacked, known.names[key] = lacked, name
	}
	return name
}

// operation returns what people call what was done: the summary of the operation, the words of a command.
func (v *visit) operation(name string) string {
	if row := cmp.Or(v.site.Rows[name], v.own[name]); row != nil {
		return row.Summary
	}
	return "Command: " + strings.ReplaceAll(name, ".", " ")
}

// subject returns the name of whoever did something, where the field says that as user:7, and of what was done.
func (v *visit) subject(field, text string) string {
	switch {
	case field == "operation" && text != "":
		return v.operation(text)
	case !slices.Contains([]string{"subject", "by", "issued_by"}, field):
		return text
	case text == (&tenants.Principal{}).Subject():
		return nobodyKnown
	case text == "command":
		return "a command"
	}
	return cmp.Or(v.whoIs(text), text)
}

// options returns the records that a field can refer to, and whether these are all.
func (v *visit) options(resource string) (options []layout.Option, all bool) {
	list := v.site.ListOf(resource)
	if list == nil || list.Each == nil || strings.Contains(list.Path, "{") {
		return nil, false
	}
	data, ok := v.named(list.Shows.Name, "per_page="+strconv.Itoa(mostOptions))
	if !ok {
		return nil, false
	}
	for _, record := range data.Get("results").Items {
		options = append(options, layout.Option{Value: keyOf(list.Each, record), Title: clip(nameOf(record, ""))})
	}
	count, err := strconv.Atoi(data.Get("count").Text)
	return options, err == nil && count <= mostOptions
}

// namingField returns the key of the field by which people know a record that has no name besides: one that is called so,
// else the first text, one that every record has if there is any. Empty: there is no text.
func namingField(defined []definedField) (key string) {
	best := -1
	for _, f := range defined {
		rank := 0
		switch {
		case f.kind != "Text":
			continue
		case slices.Contains(naming(), f.key) || strings.HasSuffix(f.key, "_name"):
			rank = 2
		case f.required:
			rank = 1
		}
		if rank > best {
			best, key = rank, f.key
		}
	}
	return key
}

// nameOf returns what people call a record, where it has no name of its own by a field that the organization defined.
func (v *visit) nameOf(row *operation.Row, path map[string]string, record strictjson.Value, otherwise string) string {
	return v.namesOf(row, path)(record, otherwise)
}

// namesOf is nameOf for many records of a list. What is defined is read once, where it is needed.
func (v *visit) namesOf(row *operation.Row, path map[string]string) func(record strictjson.Value, otherwise string) string {
	field := sync.OnceValue(func() string { return namingField(v.defined(row, path)) })
	return func(record strictjson.Value, otherwise string) string {
		if values := row.Defined.Values; values != "" && nameOf(without(record, "id", "external_id"), "") == "" {
			if name := record.Get(values).Get(field()); name.Is == strictjson.Text && name.Text != "" {
				return name.Text
			}
		}
		return nameOf(record, otherwise)
	}
}

// mostOptions is how many records a choice offers.
const mostOptions = 200

// keyOf returns what names the record in the path of its page.
func keyOf(each *site.Page, record strictjson.Value) string {
	key := each.Key()
	if value := record.Get(key); value.Is == strictjson.Text || value.Is == strictjson.Number {
		return value.Text
	}
	return record.Get("id").Text
}

// leads returns the address of the record that a field refers to, and its resource.
func (v *visit) leads(p *site.Page, name string, value strictjson.Value) (address, ref string) {
	if value.Is != strictjson.Text && value.Is != strictjson.Number || value.Text == "" {
		return "", ""
	}
	if name == "user_id" && v.whoIs("user:"+value.Text) != "" {
		ref = "user"
	}
	if f := p.Field(name); ref == "" {
		if ref = v.site.Declared(p, name).Rule.Ref; f != nil && f.Shape != operation.List && f.Ref != "" {
			ref = f.Ref
		}
	}
	list := v.site.ListOf(ref)
	if list == nil || list.Each == nil || strings.Contains(list.Path, "{") || !v.may(list.Each.Shows) {
		return "", ""
	}
	return list.Each.Address(map[string]string{list.Each.Key(): value.Text}), ref
}

// trail leads back to where a page belongs.
func (v *visit) trail(p *site.Page, path map[string]string) (links []site.Link) {
	for i := 2; i < len(p.Segments); i++ {
		above := strings.Join(p.Segments[:i], "/")
		for _, other := range v.site.Pages {
			if other.Path == above && v.may(other.Shows) {
				title := other.Title()
				if key := other.Key(); key != "" {
					title = clip(path[key])
					if a, err := v.read(other.Shows, path, ""); err == nil && a.Ok() {
						title = clip(v.nameOf(other.Shows, path, a.Data, title))
					}
				}
				links = append(links, site.Link{Title: title, Address: other.Address(path)})
			}
		}
	}
	return links
}

// doer returns the subject of a record of the audit: who signed in was nobody before.
func doer(record strictjson.Value) string {
	who := record.Get("subject").Text
	if in := record.Get("facts").Get("user").Text; who == (&tenants.Principal{}).Subject() && in != "" && record.Get("outcome").Text == "ok" {
		return "user:" + in
	}
	return who
}

// subjectKind is a resource of those who do something. before goes before their names, where who makes them names them as they like.
type subjectKind struct{ resource, before string }

// subjects are the kinds of those who do something, by how the audit calls them.
func subjects() map[string]subjectKind {
	return map[string]subjectKind{"user": {"user", ""}, "key": {"key", "Key "}}
}

// whoIs returns the name of a subject, empty where the person may not see it, or there is none.
func (v *visit) whoIs(subject string) string {
	kind, id, _ := strings.Cut(subject, ":")
	s, known := subjects()[kind]
	if !known || id == "" {
		return ""
	}
	if name := v.calledBy(s.resource, id); name != "" {
		return s.before + name
	}
	return ""
}

// recordAbove returns the record that the page is below of.
func (v *visit) recordAbove(p *site.Page, path map[string]string) (record strictjson.Value) {
	for _, above := range v.site.Pages {
		for _, below := range above.Below {
			if below != p || above.List || !strings.HasPrefix(p.Path, above.Path+"/") || !v.may(above.Shows) {
				continue
			}
			if a, err := v.read(above.Shows, path, ""); err == nil && a.Ok() {
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

// nameOf returns what people call a record.
func nameOf(record strictjson.Value, otherwise string) string {
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
