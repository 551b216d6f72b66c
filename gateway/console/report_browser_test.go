package console_test

import (
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"testing"

	"tenantry/gateway/control"
	"tenantry/gateway/gatewaytest"
)

// TestBrowserReportPictures shows every visual in both themes, on a wide and a narrow screen.
func TestBrowserReportPictures(t *testing.T) {
	t.Parallel()
	b := launch(t)
	_, acme := start(t)
	fillReports(t, acme)
	all := map[string]string{
		"table": tableID, "bar": barID, "line": lineID, "area": areaID, "pie": pieID, "heat": heatID, "ages": agesID, "parts": partsID, "names": citiesID, "total": totalID,
	}
	for _, screen := range []size{{"desktop", 1280, 800, false}, {"phone", 360, 780, true}} {
		for _, theme := range []string{"light", "dark"} {
			p := b.tab(screen)
			p.theme(theme)
			for _, name := range slices.Sorted(maps.Keys(all)) {
				p.visit(address(t, acme, reportPath(all[name])))
				fits(p)
				accessible(p)
				p.whole(screen, "chart-"+name+"-"+screen.name+"-"+theme)
				if want := map[bool]string{true: "0", false: "1"}[slices.Contains([]string{"table", "total"}, name)]; p.value(`[...document.querySelectorAll("svg[role=img]")].filter(s => s.getBoundingClientRect().width > 0).length`) != want {
					t.Errorf("%s: not %s picture is seen", name, want)
				}
				if bad := p.value(outside); bad != "" {
					t.Errorf("%s, %s: texts outside of their picture: %s", name, screen.name, bad)
				}
			}
			p.visit(address(t, acme, reportPath(tableID)+"?params[age]=old&params[since]=2024-02-03"))
			fits(p)
			accessible(p)
			p.whole(screen, "chart-wrong-"+screen.name+"-"+theme)
			// A time that is typed without scripts is in the address.
			p.visit(address(t, acme, reportPath(looseID)+"?params[day]=2024-05-17T12:00:05%2B02:00"))
			p.do("Emulation.setScriptExecutionDisabled", map[string]any{"value": true}, nil)
			p.put("utc[day]", "2024-05-18T10:00:05")
			p.click("main form button")
			p.arrives("/shared/reports/", "UTC")
			p.do("Emulation.setScriptExecutionDisabled", map[string]any{"value": false}, nil)
			if got := p.value(`new URLSearchParams(location.search).get("params[day]") + document.querySelector("[name='utc[day]']").value`); got != "2024-05-18T10:00:05Z2024-05-18T10:00:05" {
				t.Errorf("the moment is %s", got)
			}
			if p.value(`document.querySelector("form").scrollWidth > document.querySelector("form").clientWidth`) == "true" {
				t.Error("a control is wider than its form")
			}
			fits(p)
			accessible(p)
			p.whole(screen, "chart-moment-"+screen.name+"-"+theme)
		}
	}
	b.quiet("status of 422")
}

// outside lists the texts that extend beyond their chart.
const outside = `[...document.querySelectorAll("svg[role=img]")].flatMap(s => { const r = s.getBoundingClientRect(); return r.width == 0 ? [] :
	[...s.querySelectorAll("text")].filter(t => t.ownerSVGElement == s).filter(t => { const q = t.getBoundingClientRect(); return q.left < r.left - 2 || q.right > r.right + 2 || q.top < r.top - 2 || q.bottom > r.bottom + 2 }).map(t => t.textContent) }).join(" | ")`

// whole stores a screenshot of the whole page.
func (p *tab) whole(s size, name string) {
	p.t.Helper()
	height, err := strconv.Atoi(p.value("document.documentElement.scrollHeight"))
	if err != nil {
		p.t.Fatal(err)
	}
	screen := func(height int) {
		p.do("Emulation.setDeviceMetricsOverride", map[string]any{"width": s.width, "height": height, "deviceScaleFactor": 1, "mobile": s.phone}, nil)
	}
	screen(min(height, 1600))
	p.picture(name)
	screen(s.height)
}

// TestBrowserReportOfExtremes shows a thousand rows and long names in many scripts, also in print.
func TestBrowserReportOfExtremes(t *testing.T) {
	t.Parallel()
	b := launch(t)
	_, acme := start(t)
	all := fillExtremes(t, acme)
	screens := map[string]size{"desktop": {"desktop", 1280, 800, false}, "phone": {"phone", 360, 780, true}, "print": {"print", 718, 1000, false}}
	for _, name := range slices.Sorted(maps.Keys(screens)) {
		screen := screens[name]
		p := b.tab(screen)
		media := ""
		if name == "print" {
			media = "print"
		}
		p.do("Emulation.setEmulatedMedia", map[string]any{"media": media, "features": []map[string]string{{"name": "prefers-color-scheme", "value": map[bool]string{true: "dark", false: "light"}[media == "print"]}}}, nil)
		for _, visual := range slices.Sorted(maps.Keys(all)) {
			p.visit(address(t, acme, reportPath(all[visual])))
			fits(p)
			accessible(p)
			p.whole(screen, "extreme-"+visual+"-"+name)
			if bad := p.value(outside); bad != "" {
				t.Errorf("%s, %s: texts outside of their picture: %s", visual, name, bad)
			}
			if got := p.value("getComputedStyle(document.querySelector('main')).color + getComputedStyle(document.body).backgroundColor"); media == "print" && got != "rgb(0, 0, 0)rgb(255, 255, 255)" {
				t.Errorf("printed in %s", got)
			}
		}
	}
	b.quiet()
}

// TestBrowserReportInAFrame checks that pages of origins that the organization lists can show a report in a frame, and
// that others cannot.
func TestBrowserReportInAFrame(t *testing.T) {
	t.Parallel()
	b := launch(t)
	_, acme := start(t)
	fillReports(t, acme)
	_, cookie := acme.Person(t, "ada@example.com", func(n *control.NewUser) { n.Roles = []string{"admin"} })
	site := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/html")
		_, _ = fmt.Fprintf(w, `<!doctype html><iframe src=%q width="700" height="600"></iframe>`, address(t, acme, reportPath(barID)))
	}))
	defer site.Close()
	listed := site.URL
	a := acme.Do(t, http.MethodPut, "/api/organization", gatewaytest.Cookie(cookie), gatewaytest.JSON(m{"frame_origins": []string{listed}}))
	if a.Code != http.StatusOK {
		t.Fatalf("%d %s", a.Code, a.Body)
	}
	p := b.tab(screens()[0])
	refused := func() bool {
		b.mu.Lock()
		defer b.mu.Unlock()
		return strings.Contains(strings.Join(b.complaints, " "), "frame-ancestors")
	}
	if p.visit(listed); refused() {
		t.Error("an origin that is listed is refused")
	}
	p.picture("framed-listed")
	if p.visit(strings.Replace(listed, "127.0.0.1", "localhost", 1)); !refused() {
		t.Error("another origin is not refused")
	}
	p.picture("framed-other")
	b.quiet("frame-ancestors", "favicon.ico")
}

// TestBrowserChartsShowAllRows checks that running or building a report shows the chart that its readers see, whichever
// page of rows the table has, and says whether there are more rows.
func TestBrowserChartsShowAllRows(t *testing.T) {
	t.Parallel()
	b := launch(t)
	_, acme, cookie := rich(t, nil)
	keeper := person{t, acme, cookie}
	var lines []string
	for i := range 130 {
		lines = append(lines, fmt.Sprintf(`{"kind":"contact","email":"c%d@example.com","city":"City %d","country":"%c%c"}`, i, i%70, 'A'+i%7, 'A'+i%5))
	}
	acme.Import(t, lines...)
	const pictures = `JSON.stringify([...document.querySelectorAll("figure.picture")].map((f) => f.outerHTML))`
	for _, screen := range []size{{"desktop", 1280, 800, false}, {"narrow", 360, 780, true}} {
		p := b.signedIn(screen, acme)
		for _, visual := range []string{"pie", "bar", "line"} {
			query := m{"group_by": []m{{"field": "city"}}, "measures": []m{{"op": "count"}}}
			made := keeper.api(http.MethodPost, "/api/custom-reports", m{"title": "Cities", "secure": false, "class": "Contacts", "visual": visual, "query": query})
			report, shared := "/custom-reports/"+made.Field("id").(string), "/shared/reports/"+made.Field("pid").(string)
			p.visit(address(t, acme, shared))
			want := p.value(pictures)
			for _, query := range []string{"", "?per_page=2", "?page=2", "?page=3&per_page=20", "?per_page=1000"} {
				p.visit(address(t, acme, report+"/run"+query))
				if got := p.value(pictures); got != want || len(got) < 1000 {
					t.Errorf("%s%s draws %.600s\nwhile readers see %.600s", visual, query, got, want)
				}
				fits(p)
				accessible(p)
			}
			p.whole(screen, "run-"+visual+"-"+screen.name)
			p.visit(address(t, acme, report+"/run?page=2&per_page=20"))
			if got := p.value(`document.querySelectorAll("tbody tr").length + document.querySelector(".foot").innerText.trim()`); !strings.HasPrefix(got, "20") || !strings.Contains(got, "page 2 of") {
				t.Errorf("the second page: %s", got)
			}
			p.visit(address(t, acme, report))
			p.wait(`document.querySelector("#live table")`)
			if got := p.value(pictures); got != want {
				t.Errorf("the preview of %s draws %.600s\nwhile readers see %.600s", visual, got, want)
			}
			if got := p.value(`document.querySelector("#live .note[role=status]").textContent`); !strings.Contains(got, "The table has the first 50 of them.") {
				t.Errorf("the preview says %q", got)
			}
			p.whole(screen, "preview-"+visual+"-"+screen.name)
			query["limit"] = 60
			keeper.api(http.MethodPut, "/api"+report, m{"query": query})
			for _, path := range []string{shared, report + "/run?page=2", report} {
				p.visit(address(t, acme, path))
				p.wait(`document.querySelector("figure.picture .note")?.textContent === "The chart shows the first 60 rows of more."`)
			}
		}
		list := keeper.api(http.MethodPost, "/api/custom-reports", m{"title": "Each", "class": "Contacts", "visual": "table", "query": m{"fields": []string{"city"}, "limit": 70}})
		p.visit(address(t, acme, "/custom-reports/"+list.Field("id").(string)+"/run?page=2"))
		p.wait(`document.querySelector(".foot .note").textContent.match(/^70 entries, page 2 of 2. There are more: these are the first 70 of \d+ rows.$/) && document.querySelectorAll("tbody tr").length === 20`)
		p.whole(screen, "run-cut-"+screen.name)
	}
	b.quiet()
}
