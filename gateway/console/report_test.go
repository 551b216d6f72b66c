package console_test

import (
	"encoding/json"
	"fmt"
	"html"
	"maps"
	"net/http"
	"net/url"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"tenantry/gateway/control"
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
	lineID   = "65f00000000000000000a007"
	areaID   = "65f00000000000000000a008"
	pieID    = "65f00000000000000000a009"
	heatID   = "65f00000000000000000a00a"
	agesID   = "65f00000000000000000a00b"
	partsID  = "65f00000000000000000a00c"
	citiesID = "65f00000000000000000a00d"
	totalID  = "65f00000000000000000a00e"
	looseID  = "65f00000000000000000a00f"
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

// fillReports stores contacts and reports with every visual.
func fillReports(t testing.TB, o *gatewaytest.Org) {
	t.Helper()
	lines := []string{
		line(t, m{"kind": "contact_field", "key": "age", "title": "Age", "type": "Number"}),
		line(t, m{"kind": "contact_field", "key": "notes", "title": "Notes", "type": "LongText"}),
		line(t, m{"kind": "contact_field", "key": "member", "title": "Member", "type": "Boolean"}),
		line(t, m{"kind": "contact_field", "key": "joined", "title": "Joined", "type": "Date"}),
		line(t, m{"kind": "contact_field", "key": "ridden", "title": "Kilometres", "type": "Number"}),
	}
	countries := []string{"DE", "DE", "DE", "FR", "FR", "IT", "ES", "PT", "SE", "DK", "DE", "FR"}
	for i := range 60 {
		lines = append(lines, line(t, m{
			"kind": "contact", "email": fmt.Sprintf("person%d@example.com", i), "first_name": fmt.Sprintf("Person %d", i), "last_name": "Example",
			"country": countries[i%len(countries)], "city": []string{"Köln", "Lyon", "Torino"}[i%3], "status": "active",
			"fields": m{"age": 18 + i%50, "notes": strings.Repeat("a note of some length ", i%7), "member": i%2 == 0,
				"joined": joined(i), "ridden": 137 * (i % 17) * (i%5 + 1)},
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
		"desc": "Everybody " + hostile, "child_reports": []string{barID, numberID, looseID},
		"input": m{"country": m{"rule": "editable", "value": "", "label": "Country " + hostile}, "age": m{"rule": "editable", "value": "20", "label": "Not younger than", "type": "number"},
			"member": m{"rule": "editable", "value": "", "label": "Member", "type": "boolean"}, "since": m{"rule": "editable", "value": "2020-01-31", "label": "Since", "type": "date"}},
		"query": m{"filter": m{"country": m{"input": "country"}, "age": m{"gte": m{"input": "age"}}, "member": m{"input": "member"}, "created_at": m{"gte": m{"input": "since"}}},
			"fields": []string{"first_name", "country", "city", "age", "member", "created_at"}, "sort": []string{"-age"}, "limit": 50},
	})
	report(barID, "Riders by country", "bar", m{"desc": "How many people ride where.", "query": m{"group_by": []m{{"field": "country"}}, "measures": count, "sort": []string{"-count"}}})
	report(numberID, "Riders", "number", m{"query": m{"measures": count}})
	report(secureID, "Riders of a country", "table", m{
		"secure": true, "exportable": true, "desc": "Who shares it fixes the country.",
		"input": m{"country": m{"rule": "locked", "value": "DE", "label": "Country"}, "age": m{"rule": "editable", "value": "20", "label": "Not younger than", "type": "number"}},
		"query": m{"filter": m{"country": m{"input": "country"}, "age": m{"gte": m{"input": "age"}}}, "fields": []string{"first_name", "city", "age"}},
	})
	report(emptyID, "Nobody", "table", m{"query": m{"filter": m{"country": "ZZ"}, "fields": []string{"first_name"}}})
	report(wideID, "Everything about riders", "table", m{"query": m{
		"fields": []string{"first_name", "last_name", "email", "country", "city", "status", "age", "member", "notes", "created_at", "updated_at"}, "sort": []string{"email"}, "limit": 60,
	}})
	report(looseID, "Of an age", "table", m{
		"input": m{"age": m{"rule": "editable", "value": "", "label": "Age"}, "country": m{"rule": "editable", "value": "", "label": "Country", "choices": []string{"DE", "FR"}}, "day": m{"rule": "editable", "value": "", "label": "Day", "type": "datetime"}},
		"query": m{"filter": m{"age": m{"input": "age"}, "country": m{"input": "country"}, "created_at": m{"gte": m{"input": "day"}}}, "fields": []string{"first_name"}},
	})
	byMonth := m{"field": "joined", "by": "month"}
	report(lineID, "People and kilometres by month", "line", m{"query": m{"group_by": []m{byMonth}, "measures": []m{{"op": "count"}, {"op": "avg", "field": "age"}, {"op": "max", "field": "age"}}, "sort": []string{"joined"}}})
	report(areaID, "Countries by month", "area", m{"query": m{"group_by": []m{byMonth, {"field": "country"}}, "measures": count}})
	report(pieID, "Shares of countries", "pie", m{"query": m{"group_by": []m{{"field": "country"}}, "measures": count}, "child_reports": []string{barID, lineID, areaID}})
	report(heatID, "Months and cities", "heat", m{"query": m{"group_by": []m{{"field": "city"}, byMonth}, "measures": []m{{"op": "sum", "field": "ridden"}}}})
	report(agesID, "Ages", "bar", m{"query": m{"group_by": []m{{"field": "age"}}, "measures": count, "sort": []string{"age"}}})
	report(partsID, "Joined by quarter and city", "bar", m{"query": m{"group_by": []m{{"field": "joined", "by": "quarter"}, {"field": "city"}}, "measures": []m{{"op": "sum", "field": "ridden"}}}})
	report(citiesID, "First names", "bar", m{"query": m{"group_by": []m{{"field": "first_name"}}, "measures": []m{{"op": "sum", "field": "ridden"}}, "sort": []string{"-sum_ridden"}}})
	report(totalID, "All in all", "number", m{"query": m{"measures": []m{{"op": "count"}, {"op": "sum", "field": "ridden"}, {"op": "avg", "field": "age"}}}})
	o.Import(t, lines...)
}

// joined returns a day in 2023 or 2024, none of them in the summer between, and sometimes nil.
func joined(i int) any {
	day := time.Date(2023, 1, 10, 0, 0, 0, 0, time.UTC).AddDate(0, i%5, i*3%40)
	if i%2 == 1 {
		day = day.AddDate(0, 11, 0)
	}
	if i%13 == 12 {
		return nil
	}
	return day.Format(time.DateOnly)
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
	checkPage(t, acme.Page(t, reportPath(tableID)+"?params[age]=200"), 200, "Nothing matches.", "Try other values above", "0 rows.")
	checkPage(t, acme.Page(t, reportPath(tableID)+"?params[age]=old&params[since]=2024-02-03"), 422, "Nothing is shown", "Must be a number.", `value="old" aria-invalid="true"`, `value="2024-02-03"`, "Country "+hostile)
	checkPage(t, acme.Page(t, reportPath(looseID)+"?params[age]=old&params[day]=2024-05-17"), 422, "One of the values does not fit the report", `role="alert"`, `value="old"`, `value="2024-05-17"`)
	checkPage(t, acme.Page(t, reportPath(looseID)+"?params[age]=20&params[day]=someday"), 422, "Must be a date", `value="someday" placeholder="2024-05-17T10:00:00Z" aria-invalid="true"`, `value="20"`)
	// Controls of times are datetime-local in UTC, and the address has the times of RFC 3339.
	checkPage(t, acme.Page(t, reportPath(looseID)), 200, "Day (UTC)</label>", `name="utc[day]" type="datetime-local" value=""`)
	for said, is := range map[string]string{"2024-05-17T10:00": "2024-05-17T10:00:00Z", "2024-05-17T10:00:05.25": "2024-05-17T10:00:05.25Z", "": "", "someday": "someday"} {
		a := acme.Page(t, reportPath(looseID)+"?params[age]=20&params[day]=before&utc[day]="+said)
		want := reportPath(looseID) + "?" + url.Values{"params[age]": {"20"}, "params[day]": {is}}.Encode()
		if a.Code != http.StatusSeeOther || a.Header.Get("Location") != want {
			t.Errorf("%q: %d %q", said, a.Code, a.Header.Get("Location"))
			continue
		}
		if page := acme.Page(t, a.Header.Get("Location")); said == "someday" {
			checkPage(t, page, 422, "Must be a date", `name="params[day]" type="text" value="someday"`)
		} else {
			checkPage(t, page, 200, `name="utc[day]" type="datetime-local" value="`+said+`"`)
		}
	}
	checkPage(t, acme.Page(t, reportPath(looseID)+"?params[day]=2024-05-17T12:00:00%2B02:00"), 200, `value="2024-05-17T10:00"`)
	checkPage(t, acme.Page(t, reportPath(looseID)+"?utc[day]=2024-05-17T10:00&utc[day]=2024-05-18T10:00"), 400, "The address is not valid")
	checkPage(t, acme.Page(t, reportPath(looseID)+"?params[country]=FR"), 200, `<option value="FR" selected>FR</option>`, `<option value="DE">DE</option>`, "15 rows.")
	checkPage(t, acme.Page(t, reportPath(looseID)+"?params[country]=IT"), 422, "Must be one of the choices", `<option value="IT" selected>IT</option>`)
	checkPage(t, acme.Page(t, reportPath(tableID)+"?params[age]=old&params[other]=1"), 422, "cannot be shown with these values")
	checkPage(t, acme.Page(t, reportPath(tableID)+"?params[other]=1"), 422, "cannot be shown with these values")
	checkPage(t, acme.Page(t, reportPath(tableID)+"?params[country]="+url.QueryEscape(hostile)), 200, "Nothing matches.")
	checkPage(t, acme.Page(t, reportPath(tableID)+"?provider=elsewhere"), 422, "provider")
	for _, query := range []string{"?a;b", "?%zz", "?params[age=1"} {
		checkPage(t, acme.Page(t, reportPath(tableID)+query), 400, "The address is not valid")
	}

	bars := acme.Page(t, reportPath(barID))
	checkPage(t, bars, 200, "Riders by country", "DE", "8 rows.")
	if text := bars.Text(); strings.Count(text, `<rect class="s1"`) != 2*8 || strings.Count(text, ` role="img" `) != 2 || !strings.Contains(text, "most 20 (\u2068DE\u2069), least 1 (\u2068XX\u2069)") {
		t.Errorf("bars:\n%s", text)
	}
	number := acme.Page(t, reportPath(numberID))
	checkPage(t, number, 200, "Riders")
	if !regexp.MustCompile(`<p class="figure">61</p><figcaption>[^<]+</figcaption>`).MatchString(number.Text()) {
		t.Errorf("number:\n%s", number.Body)
	}
	empty := acme.Page(t, reportPath(emptyID))
	checkPage(t, empty, 200, "Nothing matches.")
	if strings.Contains(empty.Text(), "Other values") {
		t.Error("the page says to try other values, but has none")
	}

	for id, parts := range map[string][]string{
		pieID:  {"Pie chart of \u2068Count\u2069 by \u2068Country\u2069", "20 (33%)", "3 others", "11 (18%)", `aria-current="page">Shares of countries</a>`},
		lineID: {"Line chart of", "1 gap without values", "none</td>", "1 row without Joined (month) is only in the table", `class="line s3"`, "Mar 2024"},
		areaID: {"Area chart of", "Count for each Country", `class="area full s1"`}, heatID: {"Heat table of", `class="cell h7"`, `class="cell none"`},
		agesID: {"Bar chart of", ">90</text>"}, totalID: {">182,621</p><figcaption>Sum of Kilometres<", ">61</p>"},
	} {
		page := acme.Page(t, reportPath(id))
		checkPage(t, page, 200, parts...)
		if len(page.Body) > 100<<10 {
			t.Errorf("%s: %d bytes", id, len(page.Body))
		}
	}
	german := acme.Page(t, reportPath(lineID), gatewaytest.Header("Accept-Language", "de-DE,de;q=0.9,en;q=0.1"))
	checkPage(t, german, 200, "38,3333", "März 2024")
	if german.Header.Get("Vary") != "Accept-Language" {
		t.Errorf("Vary = %q, want Accept-Language", german.Header.Get("Vary"))
	}
	checkPage(t, acme.Page(t, reportPath(totalID), gatewaytest.Header("Accept-Language", "de")), 200, ">182.621</p>")
	checkPage(t, acme.Page(t, reportPath(barID)+"?page=7"), 200, "8 rows.")

	child := acme.Page(t, reportPath(tableID)+"/"+barID)
	checkPage(t, child, 200, "Riders by country", `aria-current="page">Riders by country</a>`)
	for _, link := range regexp.MustCompile(`<a href="([^"]+)"`).FindAllStringSubmatch(table.Text()+child.Text(), -1) {
		if a := acme.Page(t, html.UnescapeString(link[1])); a.Code != 200 {
			t.Errorf("the link to %s answers %d", link[1], a.Code)
		}
	}
	checkPage(t, acme.Page(t, reportPath(barID)+"/"+tableID), 404, "There is no such report")

	// Tabs keep the values that the reader chose and that their reports take.
	for chosen, want := range map[string]map[string]string{
		"?params[country]=DE&params[age]=30&params[member]=true&params[since]=2020-01-31": { // the last is so anyway
			tableID: "params[age]=30 params[country]=DE params[member]=true", barID: "", looseID: "params[age]=30 params[country]=DE",
		},
		"?params[country]=IT": {tableID: "params[country]=IT", barID: "", looseID: ""}, // none of its choices
		"?params[age]=old":    {tableID: "", looseID: "params[age]=old"},               // which is refused where a number is asked for
	} {
		page := acme.Page(t, reportPath(tableID)+chosen).Text()
		for id, values := range want {
			path := reportPath(tableID)
			if id != tableID {
				path += "/" + id
			}
			link := regexp.MustCompile(`<a href="` + path + `(\?[^"]*)?"`).FindStringSubmatch(page)
			if len(link) == 0 {
				t.Errorf("%s leads nowhere to %s", chosen, id)
				continue
			}
			kept, err := url.QueryUnescape(html.UnescapeString(strings.TrimPrefix(link[1], "?")))
			if kept = strings.ReplaceAll(kept, "&", " "); err != nil || kept != values {
				t.Errorf("%s leads to %s with %q, want %q", chosen, id, kept, values)
			}
		}
	}
}

// TestTabsRevealNothingOfSecureReports checks that only visitors with a token see the inputs of secure reports.
func TestTabsRevealNothingOfSecureReports(t *testing.T) {
	t.Parallel()
	_, acme := start(t)
	fillReports(t, acme)
	const open, closed = "5f1b1c1d1e1f101112131415", "5f1b1c1d1e1f101112131416"
	report := func(id string, secure bool, more m) string {
		all := m{"kind": "custom_report", "id": id, "pid": pid(id), "title": "Cities", "class": "Contacts", "visual": "table", "secure": secure, "shareable": true,
			"query": m{"filter": m{"city": m{"input": "city"}}, "fields": []string{"first_name"}}}
		maps.Copy(all, more)
		return line(t, all)
	}
	acme.Import(t,
		report(open, false, m{"child_reports": []string{closed}, "input": m{"city": m{"rule": "editable", "value": ""}}}),
		report(closed, true, m{"input": m{"city": m{"rule": "editable", "value": "", "choices": []string{"Lyon", "Torino"}}}}))
	for _, city := range []string{"Lyon", "Bonn"} {
		page := acme.Page(t, reportPath(open)+"?params[city]="+city)
		checkPage(t, page, 200, `<a href="`+reportPath(open)+"/"+closed+`">`)
	}
}

// TestSecureReportPageKeepsItsToken checks that the token opens the page, is sent with its form, and is not logged.
func TestSecureReportPageKeepsItsToken(t *testing.T) {
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
	checkPage(t, acme.Page(t, path+"&params[country]=DE"), 422, "cannot be shown with these values", ">Show the report without them</a>")
	checkPage(t, acme.Page(t, path+"&provider=store"), 422)
	acme.Get(t, "", "/api/reports/shared/"+pid(secureID)+"?data=1&token="+token)
	if log := g.Log.String(); strings.Contains(log, token) || strings.Contains(log, token[len(token)-20:]) || strings.Contains(log, pid(secureID)) {
		t.Error("the log holds the token or the public identifier")
	}
}

// TestSharedReportAsAFile exports the rows of a shared report. Only people who may read it can, and only if it is
// exportable.
func TestSharedReportAsAFile(t *testing.T) {
	t.Parallel()
	g, acme := start(t)
	fillReports(t, acme)
	acme.Import(t, line(t, m{"kind": "contact", "email": "formula@example.com", "first_name": "=1+1", "country": "FR", "city": "Lyon", "fields": m{"age": 65}}))
	token, _ := share(t, acme, "FR")
	page := acme.Page(t, reportPath(secureID)+"?token="+token+"&params[age]=64")
	checkPage(t, page, 200, "All rows as a file")
	var files []string
	for _, link := range regexp.MustCompile(`<a href="([^"]+)" download>`).FindAllStringSubmatch(page.Text(), -1) {
		files = append(files, html.UnescapeString(link[1]))
	}
	if len(files) != 2 {
		t.Fatalf("%q", files)
	}
	shown := strings.Count(page.Text(), "<tr>") - 1
	for i, begins := range []string{"first_name,city,age\n", `{"age":`} {
		a := acme.Page(t, files[i])
		text := a.Text()
		if a.Code != 200 || !strings.HasPrefix(text, begins) || strings.Count(text, "\n") != shown+1-i || !strings.HasPrefix(a.Header.Get("Content-Disposition"), `attachment; filename="Riders of a country.`) || a.Header.Get("Cache-Control") != "no-store" || a.Header.Get("X-Robots-Tag") != "noindex" {
			t.Errorf("%s: %d %v %q", files[i], a.Code, a.Header, text)
		}
		if quoted := strings.Contains(text, "'=1+1,"); quoted != (i == 0) {
			t.Errorf("a text that a spreadsheet takes for a formula: %q", text)
		}
		for path, code := range map[string]int{strings.Replace(files[i], token, token[:20], 1): 403, strings.Replace(files[i], "64", "old", 1): 422, files[i] + "&params[country]=DE": 422, strings.Replace(files[i], "/export", "/"+barID+"/export", 1): 404} {
			refused := acme.Page(t, path)
			if refused.Code != code || !strings.Contains(refused.Text(), `"status":"failed"`) {
				t.Errorf("%s: %d %s", path, refused.Code, refused.Text())
			}
		}
	}
	checkPage(t, acme.Page(t, reportPath(secureID)+"?token="+token+"&params[age]=old"), 422)
	if text := acme.Page(t, reportPath(barID)).Text(); strings.Contains(text, "as a file") {
		t.Error("a report that is not exportable has files")
	}
	for path, code := range map[string]int{pid(barID): 422, "none": 404} {
		if a := acme.Page(t, "/api/reports/shared/"+path+"/export"); a.Code != code || !strings.Contains(a.Text(), `"status":"failed"`) {
			t.Errorf("%s: %d %s", path, a.Code, a.Text())
		}
	}
	if strings.Contains(g.Log.String(), token) {
		t.Error("the log holds the token")
	}
	narrowed := acme.Page(t, reportPath(tableID)+"?teams[]="+barID)
	checkPage(t, narrowed, 200, `<input type="hidden" name="teams[]" value="`+barID+`">`)
}

// TestSharedReportsInFrames checks that only origins that the organization lists may show a report in a frame.
func TestSharedReportsInFrames(t *testing.T) {
	t.Parallel()
	_, acme := start(t)
	fillReports(t, acme)
	_, cookie := acme.Person(t, "ada@example.com", func(n *control.NewUser) { n.Roles = []string{"admin"} })
	ancestors := func(path string) string {
		return regexp.MustCompile(`frame-ancestors (.*)$`).FindStringSubmatch(acme.Page(t, path).Header.Get("Content-Security-Policy"))[1]
	}
	if got := ancestors(reportPath(barID)); got != "'none'" {
		t.Errorf("without origins: %s", got)
	}
	a := acme.Do(t, http.MethodPut, "/api/organization", gatewaytest.Cookie(cookie), gatewaytest.JSON(m{"frame_origins": []string{"https://www.example.com", "http://localhost:3000"}}))
	if got := ancestors(reportPath(barID)); a.Code != 200 || got != "https://www.example.com http://localhost:3000" {
		t.Errorf("%d, %s", a.Code, got)
	}
	for _, path := range []string{"/", "/sign-in", reportPath("none"), reportPath(secureID)} {
		if got := ancestors(path); got != "'none'" {
			t.Errorf("%s: %s", path, got)
		}
	}
}

// TestTokenGivenTwice checks that a query with two tokens is refused.
func TestTokenGivenTwice(t *testing.T) {
	t.Parallel()
	_, acme := start(t)
	fillReports(t, acme)
	token, _ := share(t, acme, "FR")
	for _, query := range []string{"?token=" + token + "&token=x", "?token=x&token=" + token, "?token[]=" + token, "?token[a]=x&token=" + token, "?provider=a&provider=a&token=" + token} {
		checkPage(t, acme.Page(t, reportPath(secureID)+query), 400, "The address is not valid")
	}
}

// fillExtremes stores a thousand contacts with long names in many scripts, and a report of them for every visual. It
// returns the identifiers of the reports by visual.
func fillExtremes(t testing.TB, o *gatewaytest.Org) map[string]string {
	t.Helper()
	lines := []string{
		line(t, m{"kind": "contact_field", "key": "seen", "title": "Seen " + strings.Repeat("שלום ", 30), "type": "Date"}),
		line(t, m{"kind": "contact_field", "key": "score", "title": strings.Repeat("Score ", 33), "type": "Number"}),
	}
	scripts := []string{"Donaudampfschifffahrt", "שלום עולם ", "مرحبا بالعالم ", "日本語の名前", "𝔘𝔫𝔦𝔠𝔬𝔡𝔢", "👩‍👩‍👧‍👦", "z\u0301\u0302\u0303", hostile, "a b ", "ไทย"}
	for i := range 1000 {
		long := []rune(strconv.Itoa(i%40) + " " + strings.Repeat(scripts[i%len(scripts)], 100))
		name := strings.TrimSpace(string(long[:100]))
		fields := m{"seen": time.Date(2021, 1, 1, 0, 0, 0, 0, time.UTC).AddDate(0, 0, i*i%1500).Format(time.DateOnly), "score": float64(i%97)*12345.678 - 300_000}
		lines = append(lines, line(t, m{"kind": "contact", "email": fmt.Sprintf("x%d@example.com", i), "first_name": name, "city": name, "status": "active", "fields": fields}))
	}
	ids := map[string]string{}
	for i, visual := range []string{"table", "number", "bar", "line", "area", "pie", "heat"} {
		ids[visual] = fmt.Sprintf("65f0000000000000000b%04d", i)
		groups := []m{{"field": "city"}}
		switch visual {
		case "line":
			groups = []m{{"field": "seen", "by": "day"}}
		case "area", "heat":
			groups = []m{{"field": "seen", "by": "month"}, {"field": "city"}}
		}
		query := m{"group_by": groups, "measures": []m{{"op": "count"}, {"op": "sum", "field": "score"}, {"op": "max", "field": "score"}}}
		switch visual {
		case "table", "number":
			query = m{"fields": []string{"first_name", "city", "seen", "score", "created_at"}}
		case "area", "heat", "pie":
			query["measures"] = []m{{"op": "count"}}
		}
		lines = append(lines, line(t, m{
			"kind": "custom_report", "id": ids[visual], "pid": pid(ids[visual]), "title": strings.Repeat("كل شيء عن الجميع ", 11), "class": "Contacts", "visual": visual,
			"secure": false, "shareable": true, "query": query, "child_reports": []string{},
		}))
	}
	o.Import(t, lines...)
	return ids
}

// TestReportPagesStaySmall bounds the pages of reports with a thousand rows of long names.
func TestReportPagesStaySmall(t *testing.T) {
	t.Parallel()
	_, acme := start(t)
	all := fillExtremes(t, acme)
	for page, parts := range map[string][]string{"": {"Rows 1 to 100. 1,000 rows.", `href="?page=10"`}, "?page=10&provider=store": {"Rows 901 to 1,000.", `aria-current="page">10<`, `href="?page=9&provider=store"`}, "?page=-3": {"Rows 1 to 100."}, "?page=x": {"Rows 1 to 100."}} {
		checkPage(t, acme.Page(t, reportPath(all["table"])+page), 200, parts...)
	}
	for visual, id := range all {
		page := acme.Page(t, reportPath(id))
		checkPage(t, page, 200)
		bare := regexp.MustCompile(`(?s)<table>.*</table>`).ReplaceAllString(page.Text(), "")
		if len(bare) > 100<<10 {
			t.Errorf("%s: %d bytes besides the table, want at most %d", visual, len(bare), 100<<10)
		}
	}
}
