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

// explainOperation is the name of the operation that explains who may call an operation.
const explainOperation = "authz.explain"

// subjectChoice makes a parameter of that operation a choice among the operations, or the people and keys. It stays a
// text if its value is not among them.
func subjectChoice(v *visit.Visit, c *input.Control) {
	var options []layout.Option
	switch c.Name {
	case "operation":
		for i := range v.Site.All {
			if row := &v.Site.All[i]; row.Credentials&(operation.Key|operation.Session) != 0 {
				options = append(options, layout.Option{Value: row.Name, Title: row.Tag + ": " + row.Summary})
			}
		}
	case "subject":
		show.ActorName(v, c.Value) // adds it to the names if it is not among the first
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

// relatedLinks returns links to pages about the record that are not its subpages.
func relatedLinks(v *visit.Visit, p *site.Page, path map[string]string) (links []site.Link) {
	id := path[p.Key()]
	kind := map[string]string{"/keys/{id}": "key", "/users/{id}": "user"}[p.Path]
	if kind != "" && v.May(v.Site.Rows[explainOperation]) {
		query := url.Values{"subject": {kind + ":" + id}}
		links = append(links, site.Link{Title: "What it may call", Address: "/authz/explain?" + query.Encode()})
	}
	if p.Path == "/files/folders/{id}" && v.May(v.Site.Rows["files.list"]) {
		query := url.Values{"filters[folder_id]": {id}}
		links = append(links, site.Link{Title: "Files", Address: "/files?" + query.Encode()})
	}
	return links
}
