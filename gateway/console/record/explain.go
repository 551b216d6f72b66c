package record

import (
	"cmp"
	"net/url"
	"slices"

	"tenantry/gateway/console/input"
	"tenantry/gateway/console/layout"
	"tenantry/gateway/console/show"
	"tenantry/gateway/console/site"
	"tenantry/gateway/console/visit"
	"tenantry/operation"
)

// explains is the operation that tells who may call what.
const explains = "authz.explain"

// choose makes a question of it a choice among the operations, or the people and keys, that there are. It stays a text
// where what was asked is none of them.
func choose(v *visit.Visit, c *input.Control) {
	var options []layout.Option
	switch c.Name {
	case "operation":
		for i := range v.Site.All {
			if row := &v.Site.All[i]; row.Credentials&(operation.Key|operation.Session) != 0 {
				options = append(options, layout.Option{Value: row.Name, Title: row.Tag + ": " + row.Summary})
			}
		}
	case "subject":
		show.ActorName(v, c.Value) // which may be none of the first
		for kind, s := range show.Subjects() {
			for id, name := range show.NamesByKey(v, s.Resource).Names {
				options = append(options, layout.Option{Value: kind + ":" + id, Title: s.Before + cmp.Or(name, id)})
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
func elsewhere(v *visit.Visit, p *site.Page, path map[string]string) (links []site.Link) {
	id := path[p.Key()]
	if kind := map[string]string{"/keys/{id}": "key", "/users/{id}": "user"}[p.Path]; kind != "" && v.May(v.Site.Rows[explains]) {
		links = append(links, site.Link{Title: "What it may call", Address: "/authz/explain?" + url.Values{"subject": {kind + ":" + id}}.Encode()})
	}
	if p.Path == "/files/folders/{id}" && v.May(v.Site.Rows["files.list"]) {
		links = append(links, site.Link{Title: "Files", Address: "/files?" + url.Values{"filters[folder_id]": {id}}.Encode()})
	}
	return links
}
