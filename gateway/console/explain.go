package console

import (
	"cmp"
	"net/url"
	"slices"

	"tenantry/gateway/console/layout"
	"tenantry/gateway/console/site"
	"tenantry/operation"
)

// explains is the operation that tells who may call what.
const explains = "authz.explain"

// choose makes a question of it a choice among the operations, or the people and keys, that there are. It stays a text where what was
// asked is none of them.
func (v *visit) choose(c *control) {
	var options []layout.Option
	switch c.Name {
	case "operation":
		for i := range v.site.All {
			if row := &v.site.All[i]; row.Credentials&(operation.Key|operation.Session) != 0 {
				options = append(options, layout.Option{Value: row.Name, Title: row.Tag + ": " + row.Summary})
			}
		}
	case "subject":
		v.whoIs(c.Value) // which may be none of the first
		for kind, s := range subjects() {
			for id, name := range v.referred(s.resource).names {
				options = append(options, layout.Option{Value: kind + ":" + id, Title: s.before + cmp.Or(name, id)})
			}
		}
	}
	slices.SortFunc(options, func(a, b layout.Option) int {
		return cmp.Or(cmp.Compare(a.Title, b.Title), cmp.Compare(a.Value, b.Value))
	})
	for i := range options {
		options[i].Chosen = options[i].Value == c.Value
	}
	if c.Value == "" || slices.ContainsFunc(options, func(o layout.Option) bool { return o.Chosen }) {
		c.Kind, c.Hint, c.Options = "choice", "", options
	}
}

// elsewhere returns where else something of the record is to be seen.
func (v *visit) elsewhere(p *site.Page, path map[string]string) (links []site.Link) {
	id := path[p.Key()]
	if kind := map[string]string{"/keys/{id}": "key", "/users/{id}": "user"}[p.Path]; kind != "" && v.may(v.site.Rows[explains]) {
		links = append(links, site.Link{Title: "What it may call", Address: "/authz/explain?" + url.Values{"subject": {kind + ":" + id}}.Encode()})
	}
	if p.Path == "/files/folders/{id}" && v.may(v.site.Rows["files.list"]) {
		links = append(links, site.Link{Title: "Files", Address: "/files?" + url.Values{"filters[folder_id]": {id}}.Encode()})
	}
	return links
}
