package console_test

import (
	"encoding/json"
	"fmt"
	"html"
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"testing"

	"tenantry/gateway/gatewaytest"
	"tenantry/tenants"
)

// Identifiers of the reports below.
const (
	tableID  = "65f00000000000000000a001"
	barID    = "65f00000000000000000a002"
	numberID = "65f00000000000000000a003"
	secureID = "65f00000000000000000a004"
	emptyID  = "65f00000000000000000a005"
	wideID   = "65f00000000000000000a006"
)

const hostile = `<script>alert(1)</script>"'><img src=x onerror=alert(2)>{{.}}`

func pid(name string) string { return "public-" + name + "-0123456789abcdef" }

func line(t testing.TB, fields map[string]any) string {
	t.Helper()
	raw, err := json.Marshal(fields)
	if err != nil {
		t.Fatal(err)
	}
	return string(raw)
}

type m = map[string]any

// fillReports stores contacts and one report of every look.
func fillReports(t testing.TB, o *gatewaytest.Org) {
	t.Helper()
	lines := []string{
		line(t, m{"kind": "contact_field", "key": "age", "title": "Age", "type": "Number"}),
		line(t, m{"kind": "contact_field", "key": "notes", "title": "Notes", "type": "LongText"}),
		line(t, m{"kind": "contact_field", "key": "member", "title": "Member", "type": "Boolean"}),
	}
	countries := []string{"DE", "DE", "DE", "FR", "FR", "IT", "ES", "PT", "SE", "DK", "DE", "FR"}
	for i := range 60 {
		lines = append(lines, line(t, m{
			"kind": "contact", "email": fmt.Sprintf("person%d@example.com", i), "first_name": fmt.Sprintf("Person %d", i), "last_name": "Example",
			"country": countries[i%len(countries)], "city": []string{"Köln", "Lyon", "Torino"}[i%3], "status": "active",
			"fields": m{"age": 18 + i%50, "notes": strings.Repeat("a note of some length ", i%7), "member": i%2 == 0},
		}))
	}
	lines = append(lines, line(t, m{"kind": "contact", "email": "hostile@example.com", "first_name": hostile, "country": "XX", "city": hostile, "fields": m{"age": 99}}))
	report := func(id, title, visual string, more m) {
		all := m{"kind": "custom_report", "id": id, "pid": pid(id), "title": title, "class": "Contacts", "visual": visual, "secure": false, "shareable": true}
		for k, v := range more {
			all[k] = v
		}
		lines = append(lines, line(t, all))
	}
	count := []m{{"op": "count"}}
	report(tableID, "Riders "+hostile, "table", m{
		"desc": "Everybody " + hostile, "child_reports": []string{barID, numberID},
		"input": m{"country": m{"rule": "editable", "value": "", "label": "Country " + hostile}, "age": m{"rule": "editable", "value": "20", "label": "Not younger than", "type": "number"},
			"member": m{"rule": "editable", "value": "", "label": "Member", "type": "boolean"}, "since": m{"rule": "editable", "value": "2020-01-31", "label": "Since", "type": "date"}},
		"query": m{"filter": m{"country": m{"input": "country"}, "age": m{"gte": m{"input": "age"}}, "member": m{"input": "member"}, "created_at": m{"gte": m{"input": "since"}}},
			"fields": []string{"first_name", "country", "city", "age", "member", "created_at"}, "sort": []string{"-age"}, "limit": 50},
	})
	report(barID, "Riders by country", "bar", m{"desc": "How many people ride where.", "query": m{"group_by": []m{{"field": "country"}}, "measures": count, "sort": []string{"-count"}}})
	report(numberID, "Riders", "number", m{"query": m{"measures": count}})
	report(secureID, "Riders of a country", "table", m{
		"secure": true, "desc": "Who shares it fixes the country.",
		"input": m{"country": m{"rule": "locked", "value": "DE", "label": "Country"}, "age": m{"rule": "editable", "value": "20", "label": "Not younger than", "type": "number"}},
		"query": m{"filter": m{"country": m{"input": "country"}, "age": m{"gte": m{"input": "age"}}}, "fields": []string{"first_name", "city", "age"}},
	})
	report(emptyID, "Nobody", "table", m{"query": m{"filter": m{"country": "ZZ"}, "fields": []string{"first_name"}}})
	report(wideID, "Everything about riders", "table", m{"query": m{
		"fields": []string{"first_name", "last_name", "email", "country", "city", "status", "age", "member", "notes", "created_at", "updated_at"}, "sort": []string{"email"}, "limit": 60,
	}})
	o.Import(t, lines...)
}

func reportPath(id string) string { return "/shared/reports/" + pid(id) }

// share issues a token for the secure report, which fixes the country.
func share(t testing.TB, o *gatewaytest.Org, country string) (token, link string) {
	t.Helper()
	key := o.Key(t, tenants.ManageReports)
	a := o.Do(t, http.MethodPost, "/api/custom-reports/"+secureID+"/share", gatewaytest.WithKey(key), gatewaytest.JSON(m{"params": m{"country": country}}))
	token, _ = a.Field("token").(string)
	link, _ = a.Field("url").(string)
	if a.Code != http.StatusOK || token == "" || link == "" {
		t.Fatalf("sharing: %d %s", a.Code, a.Body)
	}
	return token, link
}

func TestSharedReportPages(t *testing.T) {
	t.Parallel()
	_, acme := start(t)
	fillReports(t, acme)

	table := acme.Page(t, reportPath(tableID))
	checkPage(t, table, 200, "Riders "+hostile, "Everybody "+hostile, "Country "+hostile, "Not younger than", "Person 49", "yes", "The first 50 of ")
	if text := table.Text(); strings.Contains(text, "<img") || strings.Contains(text, "<script>alert") || strings.Contains(text, `"'><`) {
		t.Error("a stored text is markup")
	}
	for _, part := range []string{`name="params[age]" type="number" step="any" value="20"`, `<select id="control-`, `type="date" value="2020-01-31"`, `<th scope="col" class="number">Age</th>`, `Created (UTC)</th>`} {
		if !strings.Contains(table.Text(), part) {
			t.Errorf("no %s", part)
		}
	}
	checkPage(t, acme.Page(t, reportPath(tableID)+"?params[age]=67&params[country]=&params[since]=&params[member]=false"), 200, "Person 49", `value="67"`, `<option value="false" selected>`)
	checkPage(t, acme.Page(t, reportPath(tableID)+"?params[age]=200"), 200, "Nothing matches.", "Other values above", "0 rows.")
	checkPage(t, acme.Page(t, reportPath(tableID)+"?params[age]=old"), 422, "cannot be shown with these values", "must be a number")
	checkPage(t, acme.Page(t, reportPath(tableID)+"?params[other]=1"), 422, "cannot be shown with these values")
	checkPage(t, acme.Page(t, reportPath(tableID)+"?params[country]="+url.QueryEscape(hostile)), 200, "Nothing matches.")
	checkPage(t, acme.Page(t, reportPath(tableID)+"?provider=elsewhere"), 422, "provider")
	for _, query := range []string{"?a;b", "?%zz", "?params[age=1"} {
		checkPage(t, acme.Page(t, reportPath(tableID)+query), 400, "The address is not complete")
	}

	bars := acme.Page(t, reportPath(barID))
	checkPage(t, bars, 200, "Riders by country", "DE", "8 rows.")
	if !strings.Contains(bars.Text(), `<rect width="100.0"`) || strings.Count(bars.Text(), "<rect") != 8 {
		t.Errorf("bars:\n%s", bars.Body)
	}
	number := acme.Page(t, reportPath(numberID))
	checkPage(t, number, 200, "Riders")
	if !regexp.MustCompile(`<p class="figure">61</p><figcaption>[^<]+</figcaption>`).MatchString(number.Text()) {
		t.Errorf("number:\n%s", number.Body)
	}
	empty := acme.Page(t, reportPath(emptyID))
	checkPage(t, empty, 200, "Nothing matches.")
	if strings.Contains(empty.Text(), "Other values") {
		t.Error("there are no values to change")
	}

	child := acme.Page(t, reportPath(tableID)+"/"+barID)
	checkPage(t, child, 200, "Riders by country", "Back to the start")
	for _, link := range regexp.MustCompile(`<a href="([^"]+)"`).FindAllStringSubmatch(table.Text()+child.Text(), -1) {
		if a := acme.Page(t, html.UnescapeString(link[1])); a.Code != 200 {
			t.Errorf("the link to %s answers %d", link[1], a.Code)
		}
	}
	checkPage(t, acme.Page(t, reportPath(barID)+"/"+tableID), 404, "There is no such report")
}

// TestJ7_SecureReportPage: the token opens it, travels with the form, and is in no log.
func TestJ7_SecureReportPage(t *testing.T) {
	t.Parallel()
	g, acme := start(t)
	fillReports(t, acme)
	other := g.Org(t, "other")
	fillReports(t, other)
	token, link := share(t, acme, "FR")
	if want := "/shared/reports/" + pid(secureID) + "?token=" + token; !strings.HasSuffix(link, want) {
		t.Errorf("link %s", link)
	}
	path := reportPath(secureID) + "?token=" + token
	page := acme.Page(t, path)
	checkPage(t, page, 200, "Riders of a country", "Not younger than", `<input type="hidden" name="token" value="`+token+`">`)
	if strings.Contains(page.Text(), "params[country]") || strings.Contains(page.Text(), "Köln</td><td>DE") {
		t.Error("a locked input shows")
	}
	checkPage(t, acme.Page(t, path+"&params[age]=60"), 200, `value="60"`)
	denied := acme.Page(t, reportPath(secureID))
	checkPage(t, denied, 403, "This link does not open the report")
	for name, a := range map[string]*gatewaytest.Answer{
		"wrong":      acme.Page(t, reportPath(secureID)+"?token=wrong"),
		"cut":        acme.Page(t, path[:len(path)-1]),
		"two":        acme.Page(t, path+"x"),
		"of another": other.Page(t, path),
		"empty":      acme.Page(t, reportPath(secureID)+"?token="),
		"hostile":    acme.Page(t, reportPath(secureID)+"?token="+url.QueryEscape(hostile)),
	} {
		if a.Code != 403 || strings.ReplaceAll(a.Text(), "Organization other", "Organization acme") != denied.Text() {
			t.Errorf("%s: %d %s", name, a.Code, a.Body)
		}
	}
	checkPage(t, acme.Page(t, path+"&params[country]=DE"), 422, "cannot be shown with these values")
	checkPage(t, acme.Page(t, path+"&provider=store"), 422)
	acme.Get(t, "", "/api/reports/shared/"+pid(secureID)+"?data=1&token="+token)
	if log := g.Log.String(); strings.Contains(log, token) || strings.Contains(log, token[len(token)-20:]) || strings.Contains(log, pid(secureID)) {
		t.Error("the log holds the token or the public identifier")
	}
}

// TestTokenGivenTwice: which one counts must not be a guess.
func TestTokenGivenTwice(t *testing.T) {
	t.Parallel()
	_, acme := start(t)
	fillReports(t, acme)
	token, _ := share(t, acme, "FR")
	for _, query := range []string{"?token=" + token + "&token=x", "?token=x&token=" + token, "?token[]=" + token, "?token[a]=x&token=" + token, "?provider=a&provider=a&token=" + token} {
		checkPage(t, acme.Page(t, reportPath(secureID)+query), 400, "The address is not complete")
	}
}
