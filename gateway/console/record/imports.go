package record

import (
	"net/url"
	"strings"

	"tenantry/gateway/console/show"
	"tenantry/gateway/console/site"
	"tenantry/gateway/console/visit"
	"tenantry/internal/strictjson"
)

// imported says of a file that was only checked what would be done with it, and leads on: to importing it, or to what
// became of it.
func imported(v *visit.Visit, view *View, data strictjson.Value) {
	as := data.Get("as").Text
	if data.Get("dry_run").Is == strictjson.True { // however it ended
		would(view.Facts)
	}
	if data.Get("state").Text != "done" {
		return
	}
	if data.Get("dry_run").Is != strictjson.True {
		kind, of, _ := strings.Cut(as, ":")
		for _, p := range v.Site.Pages {
			if p.List && p.Shows.Resource+"s" == kind && v.May(p.Shows) {
				path := map[string]string{}
				for _, s := range p.Segments {
					if strings.HasPrefix(s, "{") {
						path[strings.Trim(s, "{}")] = of
					}
				}
				view.Links = append(view.Links, site.Link{Title: p.Title(), Address: p.Address(path)})
			}
		}
		return
	}
	view.Note = "The file was checked, and nothing was stored."
	q := url.Values{}
	for _, name := range []string{"as", "format", "key", "encoding", "delimiter"} {
		if value := data.Get(name).Text; value != "" {
			q.Set("query."+name, value)
		}
	}
	for _, column := range data.Get("map").Items {
		q.Add("query.map", column.Text)
	}
	view.Links = append(view.Links, site.Link{Title: "Import the file now", Address: "/do/" + show.Imports + "?" + q.Encode()})
}

// would says of what is counted that it would be done.
func would(facts []show.Pair) {
	for i := range facts {
		if name := facts[i].Name; name == "Created" || name == "Changed" || name == "Updated" || name == "Deleted" || name == "Restored" {
			facts[i].Name = "Would be " + strings.ToLower(name)
		}
		would(facts[i].Value.Pairs)
	}
}
