package console_test

import (
	"encoding/csv"
	"html"
	"maps"
	"mime"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"testing"

	"tenantry/gateway/gatewaytest"
)

// TestBrowserFileNames checks that each file that a page offers is saved under the name in its answer, and has the
// columns that were chosen for the list.
func TestBrowserFileNames(t *testing.T) {
	t.Parallel()
	b := launch(t)
	_, acme, cookie := rich(t, nil)
	keeper := person{t, acme, cookie}
	offered := map[string]string{} // a page that offers each file
	report := func(title string, exportable bool) string {
		made := keeper.api(http.MethodPost, "/api/custom-reports", m{"title": title, "class": "Contacts", "exportable": exportable, "query": m{"fields": []string{"email", "city"}}})
		return "/custom-reports/" + made.Field("id").(string)
	}
	see := func(path string, page *gatewaytest.Answer) {
		for _, found := range regexp.MustCompile(`<a href="([^"]*)" download>`).FindAllStringSubmatch(page.Text(), -1) {
			offered[html.UnescapeString(found[1])] = path
		}
	}
	for _, title := range []string{`Städte, 50 % "billiger"; alle`, "Cities of 2026", "\\a'b*"} {
		path := report(title, true)
		see(path, keeper.open(path))
	}
	if page := keeper.open(report("Kept", false)); strings.Contains(page.Text(), " download>") {
		t.Error("a report that cannot be exported offers a file")
	}
	keeper.crawl(see)
	if len(offered) < 8 {
		t.Errorf("the pages offer %d files, want at least 8: %v", len(offered), offered)
	}
	p := b.signedIn(screens()[0], acme)
	seen := map[string]bool{}
	for _, file := range slices.Sorted(maps.Keys(offered)) {
		if strings.Contains(file, "?") && seen[strings.Split(file, "?")[0]+" "+file[len(file)-3:]] {
			continue
		}
		seen[strings.Split(file, "?")[0]+" "+file[len(file)-3:]] = true
		a := acme.Do(t, http.MethodGet, file, gatewaytest.Cookie(cookie))
		_, params, err := mime.ParseMediaType(a.Header.Get("Content-Disposition"))
		if err != nil || params["filename"] == "" {
			t.Errorf("%s: %v %d", file, err, a.Code)
			continue
		}
		p.visit(address(t, acme, offered[file]))
		p.click("main a[download][href='" + file + "']")
		p.wait(`document.querySelector("main a[download] + output")?.textContent.includes(" lines, ") && !document.querySelector("main a[aria-busy]")`)
		if got, want := p.value(`document.querySelector("main a[download] + output").textContent`), strings.NewReplacer("/", "_", "\\", "_").Replace(params["filename"]); !strings.HasPrefix(got, params["filename"]+": ") && !strings.HasPrefix(got, want+": ") {
			t.Errorf("%s is saved as %q, not %q", file, got, params["filename"])
		}
	}
	p.picture("file-named")
	for _, list := range []string{"/contacts?_columns=email&_columns=city&_columns=plan", "/custom/objects/bike/records?_columns=model&_columns=price&_columns=created_at"} {
		page := keeper.open(list)
		link := regexp.MustCompile(`<a href="([^"]*format=csv[^"]*)" download>`).FindStringSubmatch(page.Text())
		if link == nil {
			t.Errorf("%s offers no CSV", list)
			continue
		}
		a := acme.Do(t, http.MethodGet, html.UnescapeString(link[1]), gatewaytest.Cookie(cookie))
		rows, err := csv.NewReader(strings.NewReader(a.Text())).ReadAll()
		shown := regexp.MustCompile(`<th scope="col"`).FindAllString(page.Text(), -1)
		if err != nil || len(rows) < 2 || len(rows[0]) != len(shown) {
			t.Errorf("%s shows %d columns, its file has %v", list, len(shown), rows[0])
		}
	}
	b.quiet()
}
