package record

import (
	"net/url"
	"strings"

	"tenantry/gateway/console/show"
	"tenantry/gateway/console/site"
	"tenantry/gateway/console/visit"
	"tenantry/internal/strictjson"
)

// describeImport completes the page of an import. After a check, it links to the form that imports the file; after an
// import, to the records.
func describeImport(v *visit.Visit, view *View, data strictjson.Value) {
	as := data.Get("as").Text
	if data.Get("dry_run").Is == strictjson.True {
		inConditional(view.Facts)
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
	address := "/do/" + show.Imports + "?" + q.Encode()
	view.Links = append(view.Links, site.Link{Title: "Import the file now", Address: address})
}

// inConditional changes the names of counts, from "Created" to "Would be created".
func inConditional(facts []show.Pair) {
	for i := range facts {
		switch name := facts[i].Name; name {
		case "Created", "Changed", "Updated", "Deleted", "Restored":
			facts[i].Name = "Would be " + strings.ToLower(name)
		}
		inConditional(facts[i].Value.Pairs)
	}
}
