package console

import (
	"net/url"
	"strconv"
	"strings"

	"tenantry/internal/strictjson"
)

// imports is the operation that takes a file.
const imports = "imports.create"

// choose sets the value of a control, also one that its options lack.
func (c *control) choose(value string) {
	if c.Value = value; c.Kind == "choice" {
		c.Options = chosen(c.Options, value)
	}
}

// importable returns what the rows of a file can become: records that have fields which the organization defines.
func (v *visit) importable() (kinds []choiceView) {
	for _, p := range v.site.pages {
		if !p.list || p.shows.Defined.Values == "" || !v.may(p.create) {
			continue
		}
		as, by := p.shows.Resource+"s", v.site.listOf(p.shows.Defined.By)
		if !strings.Contains(p.path, "{") {
			kinds = append(kinds, choiceView{Value: as, Title: p.title()})
			continue
		}
		if by == nil || by.each == nil {
			continue
		}
		data, _ := v.named(by.shows.Name, "per_page="+strconv.Itoa(mostOptions))
		for _, of := range data.Get("results").Items {
			kinds = append(kinds, choiceView{Value: as + ":" + keyOf(by.each, of), Title: p.title() + ": " + clip(nameOf(of, ""))})
		}
	}
	return kinds
}

// imported says of a file that was only checked what would be done with it, and leads on: to importing it, or to what became of it.
func (v *visit) imported(view *recordView, data strictjson.Value) {
	as := data.Get("as").Text
	if data.Get("dry_run").Is == strictjson.True { // however it ended
		would(view.Facts)
	}
	if data.Get("state").Text != "done" {
		return
	}
	if data.Get("dry_run").Is != strictjson.True {
		kind, of, _ := strings.Cut(as, ":")
		for _, p := range v.site.pages {
			if p.list && p.shows.Resource+"s" == kind && v.may(p.shows) {
				path := map[string]string{}
				for _, s := range p.segments {
					if strings.HasPrefix(s, "{") {
						path[strings.Trim(s, "{}")] = of
					}
				}
				view.Links = append(view.Links, linkView{Title: p.title(), Address: p.address(path)})
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
	view.Links = append(view.Links, linkView{Title: "Import the file now", Address: "/do/" + imports + "?" + q.Encode()})
}

// would says of what is counted that it would be done.
func would(facts []pair) {
	for i := range facts {
		if name := facts[i].Name; name == "Created" || name == "Changed" || name == "Updated" || name == "Deleted" || name == "Restored" {
			facts[i].Name = "Would be " + strings.ToLower(name)
		}
		would(facts[i].Value.Pairs)
	}
}
