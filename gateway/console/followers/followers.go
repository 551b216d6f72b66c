// Package followers makes the page that tells who follows what: by kind of record, the webhooks and the e-mail alerts of
// forms to which events are sent.
package followers

import (
	"cmp"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"tenantry/gateway/console/layout"
	"tenantry/gateway/console/show"
	"tenantry/gateway/console/site"
	"tenantry/gateway/console/visit"
	"tenantry/internal/strictjson"
)

// Path is the address of the page; the part of a kind is named by the kind.
const Path = "/followers"

// Operations whose answers the page shows.
const (
	webhooks   = "webhooks.list"
	deliveries = "webhooks.deliveries"
	forms      = "forms.list"
)

const (
	anyKind      = "any"          // stands for all kinds
	alerted      = "submission"   // the kind of which alerts of forms tell
	mostForms    = 200            // that are looked through for alerts
	mostAsked    = 25             // webhooks whose deliveries are asked for
	mostLately   = "20"           // deliveries among which the last one that was accepted is looked for
	tested       = "webhook.test" // the kind of events that somebody sent to try a webhook
	everything   = "all"
	notDelivered = "Not lately"
)

type view struct {
	visit.Chrome
	Kinds  []kindView
	Nobody []string // titles of the kinds that nobody follows
	Note   string
}

// kindView is a kind with those who follow it.
type kindView struct {
	Kind, Title string
	Table       show.Table
}

// follower is a webhook, or the alerts of a form.
type follower struct {
	name, href, what, state string
	last                    show.Value
}

// May reports whether the visitor may open the page.
func May(v *visit.Visit) bool { return v.May(v.Site.Rows[webhooks]) }

// Page answers with the page, to those who may list webhooks. It tells of alerts only those who may manage forms.
func Page(v *visit.Visit) {
	row := v.Site.Rows[webhooks]
	if row == nil {
		v.NotFound()
		return
	}
	list, alerting := v.Site.PageOf(webhooks), v.Site.PageOf(forms)
	followed := []*site.Page{list}
	if alerting != nil {
		followed = append(followed, alerting)
	}
	follows := v.Follow(followed...)
	a, err := v.Open(row, nil, "per_page=100")
	if v.Refused(a, err) {
		return
	}
	all := map[string][]follower{}
	kinds := loggedKinds(v)
	for i, hook := range a.Data.Get("results").Items {
		one := follower{
			name: show.Clip(hook.Get("name").Text), href: list.Record.Address(map[string]string{list.Record.Key(): hook.Get("id").Text}),
			state: site.Label(hook.Get("state").Text),
		}
		if i < mostAsked {
			one.last = lastDelivery(v, hook.Get("id").Text)
		}
		add(all, kinds, hook.Get("kinds").Items, one)
	}
	page := view{Chrome: v.Chrome("Who follows what")}
	page.Follows = follows
	page.Trail = []site.Link{{Title: list.Title(), Address: list.Address(nil)}}
	if alerting != nil {
		page.Note = addAlerts(v, alerting, all)
	}
	if len(all[anyKind]) > 0 {
		page.Kinds = append(page.Kinds, kindView{anyKind, "Everything", tableOf("Everything", all[anyKind])})
	}
	for _, kind := range kinds {
		title := titleOf(v, kind)
		if len(all[kind]) == 0 {
			page.Nobody = append(page.Nobody, title)
			continue
		}
		page.Kinds = append(page.Kinds, kindView{kind, title, tableOf(title, all[kind])})
	}
	v.Show(http.StatusOK, "followers", page)
}

// loggedKinds returns the kinds of which the event log tells the visitor, in the order of their titles.
func loggedKinds(v *visit.Visit) (kinds []string) {
	for i := range v.Site.All {
		if row := &v.Site.All[i]; row.Logged != nil && v.May(row) && !slices.Contains(kinds, row.Logged.Resource) {
			kinds = append(kinds, row.Logged.Resource)
		}
	}
	slices.SortFunc(kinds, func(a, b string) int { return cmp.Compare(titleOf(v, a), titleOf(v, b)) })
	return kinds
}

func titleOf(v *visit.Visit, kind string) string {
	if list := v.Site.ListOf(kind); list != nil && !strings.Contains(list.Path, "{") {
		return list.Title()
	}
	return site.Label(kind + "s")
}

// add adds a webhook to the kinds that it names, or to anyKind if it names none.
func add(all map[string][]follower, kinds []string, named []strictjson.Value, one follower) {
	if len(named) == 0 {
		one.what = "all that its account may read"
		all[anyKind] = append(all[anyKind], one)
	}
	what := map[string][]string{}
	for _, name := range named {
		kind, happened, _ := strings.Cut(name.Text, ".")
		if happened == "" || happened == "*" {
			happened = everything
		}
		what[kind] = append(what[kind], happened)
	}
	for _, kind := range kinds {
		if one.what = strings.Join(what[kind], ", "); one.what != "" {
			all[kind] = append(all[kind], one)
		}
	}
}

// lastDelivery returns when a webhook last accepted an event; it is empty if that cannot be told.
func lastDelivery(v *visit.Visit, hook string) show.Value {
	row := v.Site.Rows[deliveries]
	if !v.May(row) {
		return show.Value{}
	}
	a, err := v.Read(row, map[string]string{"id": hook}, "per_page="+mostLately)
	if err != nil || !a.OK() {
		return show.Value{}
	}
	for _, d := range a.Data.Get("results").Items {
		if d.Get("state").Text == "delivered" && d.Get("event").Get("kind").Text != tested {
			return show.Present(d.Get("last_at"), 0)
		}
	}
	return show.Value{Text: notDelivered, Class: "none"}
}

// addAlerts adds the forms that send alerts. It returns a note about what the page does not tell.
func addAlerts(v *visit.Visit, list *site.Page, all map[string][]follower) (note string) {
	if !v.May(list.Record.Update) { // the list shows alerts to nobody else
		return "People who may manage forms see their e-mail alerts here, too."
	}
	data, ok := v.ReadNamed(forms, url.Values{"per_page": {strconv.Itoa(mostForms)}}.Encode())
	if !ok {
		return ""
	}
	for _, form := range data.Get("results").Items {
		alerts := form.Get("email_alerts")
		if alerts.Get("enabled").Is != strictjson.True || len(alerts.Get("recipients").Items) == 0 {
			continue
		}
		one := follower{
			name: "E-mail alerts: " + show.Clip(form.Get("label").Text), what: "created", state: "Active",
			href: list.Record.Address(map[string]string{list.Record.Key(): form.Get("id").Text}),
		}
		if mails := v.Site.ListOf("mail"); mails != nil && v.May(mails.Shows) {
			one.last = show.Value{Text: "See the mails", Href: mails.Address(nil) + "?filters%5Btopic%5D=form_alert"}
		}
		all[alerted] = append(all[alerted], one)
	}
	if show.Count(data, "count") > mostForms {
		note = "Of the forms, " + v.FormatInt(mostForms) + " were looked through for e-mail alerts."
	}
	return note
}

func tableOf(title string, followers []follower) (t show.Table) {
	t.Title = "Who follows: " + title
	for _, title := range []string{"Follower", "Events", "State", "Last delivered (UTC)"} {
		t.Columns = append(t.Columns, layout.Cell{Title: title})
	}
	for _, one := range followers {
		t.Rows = append(t.Rows, []show.Value{{Text: one.name, Href: one.href}, {Text: one.what}, {Text: one.state}, one.last})
	}
	return t
}
