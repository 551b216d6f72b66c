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

// NamesByKey returns the names of the records of a resource that the person may see, at most MaxOptions of them.
func NamesByKey(v *visit.Visit, resource string) visit.RecordNames {
	known, ok := v.Names[resource]
	if !ok {
		unanswered := v.Unanswered // a page is complete without the names
		options, all := RecordOptions(v, resource)
		v.Unanswered, known = unanswered, visit.RecordNames{Names: make(map[string]string, len(options)), All: all || options == nil}
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

// NameByKey returns the name of a record, or "" if it does not exist or the person may not see it.
func NameByKey(v *visit.Visit, resource, key string) string {
	known := NamesByKey(v, resource)
	name, found := known.Names[key]
	if list := v.Site.ListOf(resource); !found && !known.All && v.May(list.Record.Shows) {
		unanswered := v.Unanswered
		if a, err := v.Read(list.Record.Shows, map[string]string{list.Record.Key(): key}, ""); err == nil && a.OK() {
			name = Clip(Name(a.Data, ""))
		}
		v.Unanswered, known.Names[key] = unanswered, name
	}
	return name
}

// OperationTitle returns the title of what was done: the summary of an operation, or the words of a command.
func OperationTitle(v *visit.Visit, name string) string {
	if row := cmp.Or(v.Site.Rows[name], v.SignInRows[name]); row != nil {
		return row.Summary
	}
	return "Command: " + strings.ReplaceAll(name, ".", " ")
}

// SubjectName returns a readable form of a field of the audit: the name for a subject such as user:7, the title for an
// operation, and text for other fields.
func SubjectName(v *visit.Visit, field, text string) string {
	switch {
	case field == "operation" && text != "":
		return OperationTitle(v, text)
	case !slices.Contains([]string{"subject", "by", "issued_by"}, field):
		return text
	case text == (&tenants.Principal{}).Subject():
		return anonymousTitle
	case text == "command":
		return "a command"
	}
	return cmp.Or(ActorName(v, text), text)
}

// RecordOptions returns the first MaxOptions records of a resource as options, and whether these are all.
func RecordOptions(v *visit.Visit, resource string) (options []layout.Option, all bool) {
	list := v.Site.ListOf(resource)
	if list == nil || list.Record == nil || strings.Contains(list.Path, "{") {
		return nil, false
	}
	data, ok := v.ReadNamed(list.Shows.Name, "per_page="+strconv.Itoa(MaxOptions))
	if !ok {
		return nil, false
	}
	for _, record := range data.Get("results").Items {
		options = append(options, layout.Option{Value: Key(list.Record, record), Title: Clip(Name(record, ""))})
	}
	count, err := strconv.Atoi(data.Get("count").Text)
	return options, err == nil && count <= MaxOptions
}

// namingField returns the key of the defined field that names a record without a declared name: a text with the key of
// a name, else the first text that is required, else the first text; "" if no field is a text.
func namingField(defined []DefinedField) (key string) {
	best := -1
	for _, f := range defined {
		rank := 0
		switch {
		case f.Type != "Text":
			continue
		case slices.Contains(nameFields(), f.Key) || strings.HasSuffix(f.Key, "_name"):
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

// NameOf returns the name of a record, from a declared field or else from a defined one; otherwise if it has none.
func NameOf(
	v *visit.Visit, row *operation.Row, path map[string]string, record strictjson.Value, otherwise string,
) string {
	return NamesOf(v, row, path)(record, otherwise)
}

// NamesOf returns NameOf for the records of a list. It reads the definitions at most once, when a record needs them.
func NamesOf(
	v *visit.Visit, row *operation.Row, path map[string]string,
) func(record strictjson.Value, otherwise string) string {
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

// MaxOptions bounds the records that a choice offers.
const MaxOptions = 200

// Key returns the key of a record in the path of its page.
func Key(page *site.Page, record strictjson.Value) string {
	key := page.Key()
	if value := record.Get(key); value.Is == strictjson.Text || value.Is == strictjson.Number {
		return value.Text
	}
	return record.Get("id").Text
}

// referenceLink returns the address of the record that a field refers to, and its resource; "" if the field is not a
// reference or the person may not see the record's page.
func referenceLink(
	v *visit.Visit, p *site.Page, name string, value strictjson.Value,
) (address, ref string) {
	if value.Is != strictjson.Text && value.Is != strictjson.Number || value.Text == "" {
		return "", ""
	}
	if name == "user_id" && ActorName(v, "user:"+value.Text) != "" {
		ref = "user"
	}
	if f := p.Field(name); ref == "" {
		if ref = v.Site.Declared(p, name).Rule.Ref; f != nil && f.Shape != operation.List && f.Ref != "" {
			ref = f.Ref
		}
	}
	list := v.Site.ListOf(ref)
	if list == nil || list.Record == nil || strings.Contains(list.Path, "{") || !v.May(list.Record.Shows) {
		return "", ""
	}
	return list.Record.Address(map[string]string{list.Record.Key(): value.Text}), ref
}

// Trail returns the breadcrumbs of a page: links to the pages above it.
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

// Actor returns the subject of an audit record. The subject of a successful sign-in is anonymous, so Actor returns the
// user who signed in.
func Actor(record strictjson.Value) string {
	subject, user := record.Get("subject").Text, record.Get("facts").Get("user").Text
	if subject == (&tenants.Principal{}).Subject() && user != "" && record.Get("outcome").Text == "ok" {
		return "user:" + user
	}
	return subject
}

// SubjectKind is a kind of subject: its resource, and a prefix for the names of subjects that people name freely.
type SubjectKind struct{ Resource, Before string }

// Subjects returns the kinds of subjects by their prefix in audit records.
func Subjects() map[string]SubjectKind {
	return map[string]SubjectKind{"user": {"user", ""}, "key": {"key", "Key "}}
}

// ActorName returns the name of a subject such as user:7, or "" if it does not exist or the person may not see it.
func ActorName(v *visit.Visit, subject string) string {
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

// ParentRecord returns the record that a subpage is about, or null.
func ParentRecord(v *visit.Visit, p *site.Page, path map[string]string) (record strictjson.Value) {
	for _, above := range v.Site.Pages {
		for _, below := range above.Subpages {
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

// nameFields returns the fields that name a record, the best first.
func nameFields() []string {
	return []string{"title", "label", "name", "filename", "email", "operation", "key", "id"}
}

// fallbackNameFields returns the fields that name a record that has none of nameFields except the id.
func fallbackNameFields() []string { return []string{"phone", "external_id"} }

// Name returns the name of a record from its declared fields; otherwise if it has none.
func Name(record strictjson.Value, otherwise string) string {
	if first, last := record.Get("first_name").Text, record.Get("last_name").Text; first+last != "" {
		return strings.TrimSpace(first + " " + last)
	}
	for _, name := range slices.Concat(nameFields()[:len(nameFields())-1], fallbackNameFields(), []string{"id"}) {
		value := record.Get(name)
		if value.Is == strictjson.Text && value.Text != "" || value.Is == strictjson.Number && name == "id" {
			return value.Text
		}
	}
	return otherwise
}
