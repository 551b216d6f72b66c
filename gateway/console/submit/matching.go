package submit

import (
	"net/http"
	"net/url"
	"strconv"

	"tenantry/gateway/console/ask"
	"tenantry/gateway/console/layout"
	"tenantry/gateway/console/record"
	"tenantry/gateway/console/show"
	"tenantry/gateway/console/visit"
	"tenantry/internal/strictjson"
	"tenantry/operation"
)

// shownMatches is how many of the contacts who match are shown.
const shownMatches = 5

// previewMatches shows how many contacts match the filter of a campaign that was typed. People who may see contacts see
// some of them.
func previewMatches(v *visit.Visit, row *operation.Row, path map[string]string, sent url.Values, body map[string]any) {
	q := ask.Call{Query: ""}
	asked := url.Values{}
	addFilter(asked, "filters", show.Parse(body["filter"]))
	list, count := v.Site.ListOf("contact"), v.Site.Rows["campaigns.count"]
	switch {
	case list != nil && v.May(list.Shows):
		asked.Set("per_page", strconv.Itoa(shownMatches))
		q.Row = list.Shows
	case v.May(count):
		alone := *count
		alone.Path, q.Row = count.Aliases[0], &alone
	default:
		v.NotFound()
		return
	}
	q.Query = asked.Encode()
	a, err := v.Client.Ask(v.R.Context(), v.R, q)
	if err == nil && (a.Code == http.StatusUnprocessableEntity || a.Code == http.StatusBadRequest) {
		faults := a.Faults()
		for i := range faults {
			faults[i].Field = "filter"
		}
		showAgain(v, a.Code, row, path, sent, faults, "")
		return
	}
	if v.Refused(a, err) {
		return
	}
	n, _ := strconv.Atoi(a.Data.Get("count").Text)
	t := record.Preview{Note: v.FormatInt(n) + " contacts match."}
	if n == 1 {
		t.Note = "1 contact matches."
	}
	if records := a.Data.Get("results").Items; len(records) > 0 {
		t.Table = &show.Table{}
		columns, _ := show.Columns(v, list, nil, records, nil, nil)
		for _, c := range columns {
			t.Table.Columns = append(t.Table.Columns, layout.Cell{Title: c.Title})
		}
		for _, r := range records {
			var cells []show.Value
			for _, c := range columns {
				cell := show.CellOf(v, list, c, r)
				cell.Text = show.Clip(cell.Text)
				cells = append(cells, cell)
			}
			t.Table.Rows = append(t.Table.Rows, cells)
		}
	}
	renderPreview(v, q, row, path, sent, &t)
}

// addFilter adds a filter to a query in the notation with brackets.
func addFilter(q url.Values, name string, value strictjson.Value) {
	switch value.Is {
	case strictjson.Object:
		for _, m := range value.Members {
			addFilter(q, name+"["+m.Name+"]", m.Value)
		}
	case strictjson.Array:
		for i, item := range value.Items {
			if item.Is == strictjson.Object {
				addFilter(q, name+"["+strconv.Itoa(i)+"]", item)
			} else {
				addFilter(q, name+"[]", item)
			}
		}
	case strictjson.True, strictjson.False:
		q.Add(name, strconv.FormatBool(value.Is == strictjson.True))
	case strictjson.Text, strictjson.Number:
		q.Add(name, value.Text)
	}
}
