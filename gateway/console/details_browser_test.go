package console_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"
)

// both returns the screens that pages are checked on.
func both() []size { return []size{{"desktop", 1280, 800, false}, {"narrow", 360, 780, true}} }

// TestBrowserPageDetails checks details of several pages on both screens.
func TestBrowserPageDetails(t *testing.T) {
	t.Parallel()
	b := launch(t)
	_, acme, cookie := rich(t, nil)
	var looks []func(*tab, size)
	for _, tells := range []func(*testing.T, person) func(*tab, size){
		pagesBeyondTheLast, noticesAreSigned, missingPagesKeepTheNavigation, numbersAreFigures, fileTimesAreTimes,
		columnsFollowTheirTypes, auditFiltersByTitle, readersSeeTitlesAndNames,
	} {
		looks = append(looks, tells(t, person{t, acme, cookie}))
	}
	for _, screen := range both() {
		p := b.signedIn(screen, acme)
		for _, look := range looks {
			look(p, screen)
		}
	}
	b.quiet("status of 404", "status of 422")
}

// pagesBeyondTheLast checks that a page past the end of a list or report says so and links to the last page, and that a
// pager with many pages has an ellipsis.
func pagesBeyondTheLast(t *testing.T, keeper person) func(*tab, size) {
	t.Helper()
	acme := keeper.o
	var lines []string
	for i := range 650 {
		lines = append(lines, fmt.Sprintf(`{"kind":"contact","email":"c%d@example.com","city":"City %d"}`, i, i))
	}
	acme.Import(t, lines...)
	made := keeper.api(http.MethodPost, "/api/custom-reports", m{"title": "Each", "secure": false, "class": "Contacts", "query": m{"fields": []string{"city"}, "limit": 650}})
	return func(p *tab, screen size) {
		p.visit(address(t, acme, "/contacts?page=99"))
		p.wait(`document.querySelector(".empty").innerText.includes("the list is shorter") && !document.body.innerText.includes("nothing here yet")`)
		fits(p)
		accessible(p)
		p.picture("beyond-" + screen.name)
		p.click(".empty a")
		p.arrives("/contacts", "Previous page")
		p.wait(`document.querySelector("tbody tr") && !document.querySelector("[rel=next]")`)
		p.visit(address(t, acme, "/custom-reports/"+made.Field("id").(string)+"/run?page=99"))
		p.wait(`document.querySelector(".foot").innerText.includes("Page 99 is past the last page, 13")`)
		p.visit(address(t, acme, "/shared/reports/"+made.Field("pid").(string)))
		p.wait(`document.querySelector(".pages").innerText.replace(/\s+/g, " ").trim() === "1 2 … 7"`)
		p.picture("pager-" + screen.name)
	}
}

// noticesAreSigned checks that an address without a valid signature shows no notice.
func noticesAreSigned(t *testing.T, keeper person) func(*tab, size) {
	t.Helper()
	acme := keeper.o
	return func(p *tab, screen size) {
		for _, path := range []string{"/keys?_done=keys.delete", "/contacts?_done=contacts.delete&_undo=66a000000000000000000001", "/keys?_done=keys.delete&_told=" + fmt.Sprint(time.Now().Unix()) + "-00"} {
			p.visit(address(t, acme, path))
			if got := p.value(`document.querySelector(".done")?.innerText ?? ""`); got != "" {
				t.Errorf("%s says %q", path, got)
			}
		}
		p.picture("done-not-" + screen.name)
		p.visit(address(t, acme, "/do/folders.create"))
		p.put("name", "Of "+screen.name)
		p.click("main .form button")
		p.arrives("/files/folders/", "Folder created.")
		p.picture("done-" + screen.name)
		p.value(`window.before = true; location.assign(location.href.replace("folders.create", "folders.delete"))`)
		p.arrives("/files/folders/", "Of "+screen.name)
		if got := p.value(`document.querySelector(".done")?.innerText ?? ""`); got != "" {
			t.Errorf("an address that was changed says %q", got)
		}
	}
}

// missingPagesKeepTheNavigation checks that people who are signed in see the navigation on a missing page.
func missingPagesKeepTheNavigation(t *testing.T, keeper person) func(*tab, size) {
	t.Helper()
	acme := keeper.o
	return func(p *tab, screen size) {
		for _, path := range []string{"/none", "/contacts/none", "/do/none", "/contacts/x/y/z", "/.git/config"} {
			p.visit(address(t, acme, path))
			p.wait(`document.querySelector("h1").textContent === "There is no such page" && document.querySelector("nav.side a[href='/contacts']")`)
		}
		accessible(p)
		p.picture("missing-" + screen.name)
	}
}

// numbersAreFigures checks that a report with the visual number shows the same figures when it is run, built and
// shared.
func numbersAreFigures(t *testing.T, keeper person) func(*tab, size) {
	t.Helper()
	acme := keeper.o
	made := keeper.api(http.MethodPost, "/api/custom-reports", m{"title": "How many", "secure": false, "class": "Contacts", "visual": "number", "query": m{"measures": []m{{"op": "count"}}}})
	const figures = `JSON.stringify([...document.querySelectorAll(".figures figure")].map((f) => f.outerHTML))`
	return func(p *tab, screen size) {
		p.visit(address(t, acme, "/shared/reports/"+made.Field("pid").(string)))
		want := p.value(figures)
		p.visit(address(t, acme, "/custom-reports/"+made.Field("id").(string)+"/run"))
		if got := p.value(figures); got != want || got == "[]" || p.value(`String(document.querySelector("main table"))`) != "null" {
			t.Errorf("the run shows %s, want %s as on the shared page", got, want)
		}
		p.picture("number-run-" + screen.name)
		accessible(p)
		fits(p)
		p.visit(address(t, acme, "/custom-reports/"+made.Field("id").(string)))
		p.wait(`document.querySelector("#live .figures")`)
		if got := p.value(figures); got != want {
			t.Errorf("the preview shows %s, want %s as on the shared page", got, want)
		}
		p.whole(screen, "number-built-"+screen.name)
	}
}

// fileTimesAreTimes checks that the times of files are shown as times.
func fileTimesAreTimes(t *testing.T, keeper person) func(*tab, size) {
	t.Helper()
	file := keeper.api(http.MethodGet, "/api/files?per_page=1", nil).Field("results").([]any)[0].(map[string]any)["id"].(string)
	return func(p *tab, screen size) {
		p.visit(address(t, keeper.o, "/files/"+file))
		p.wait(`document.querySelector(".facts time")?.textContent.match(/^\d{4}-\d\d-\d\d \d\d:\d\d$/)`)
		p.picture("file-times-" + screen.name)
	}
}

// columnsFollowTheirTypes checks that numbers are formatted and aligned by the type of their column, whichever values
// the page has, and that the list of contacts begins with a column that names them.
func columnsFollowTheirTypes(t *testing.T, keeper person) func(*tab, size) {
	t.Helper()
	acme := keeper.o
	keeper.api(http.MethodPost, "/api/custom/objects", m{"name": "lot", "label": "Lot", "label_plural": "Lots", "schema": m{
		"name": m{"title": "Name", "type": "Text"}, "price": m{"title": "Net price", "type": "Number"}, "sold": m{"title": "Was sold", "type": "Boolean"}, "size": m{"title": "Size", "type": "Number"}}})
	for _, values := range []m{{"name": "a", "price": 1234567.25, "sold": true}, {"name": "b", "price": -12500, "sold": false}, {"name": "c", "sold": true}} {
		keeper.api(http.MethodPost, "/api/custom/objects/lot/records", m{"values": values})
	}
	const lots = "/custom/objects/lot/records"
	for _, contact := range []m{{"phone": "+49 30 1", "country": "ZZ", "city": "A"}, {"phone": "+49 30 2", "country": "ZZ"}} {
		keeper.api(http.MethodPost, "/api/contacts", contact)
	}
	return func(p *tab, screen size) {
		p.visit(address(t, acme, lots+"?sort=name"))
		if got := p.value(`document.querySelector("tbody").innerText`); !strings.Contains(got, "1,234,567.25") || !strings.Contains(got, "-12,500") {
			t.Errorf("the list shows %s", got)
		}
		right := func(title string) string {
			return p.value(`(() => { const at = [...document.querySelectorAll("thead th")].findIndex((h) => h.innerText.trim() === ` + quoted(title) + `);
				return [...document.querySelectorAll("tr")].map((r) => getComputedStyle(r.cells[at]).textAlign).join(" ") })()`)
		}
		for _, title := range []string{"Net price", "Size"} { // of which no record has one
			if got := right(title); strings.Trim(got, "right ") != "" || got == "" {
				t.Errorf("%s is aligned %s", title, got)
			}
		}
		accessible(p)
		p.picture("list-numbers-" + screen.name)
		for value, want := range map[string]string{"Yes": "2 entries", "no": "1 entry", "true": "2 entries"} {
			p.visit(address(t, acme, lots+"?_field=sold&_value="+value))
			p.arrives("/records", want)
		}
		p.wait(`document.querySelector(".filters").innerText.match(/Was sold is (Yes|No)/)`)
		p.visit(address(t, acme, lots+"?_field=price&_op=exists&_value=No"))
		p.arrives("/records", "1 entry")
		p.picture("list-yes-" + screen.name)
		p.visit(address(t, acme, "/contacts?filters[country]=ZZ"))
		if got := p.value(`[...document.querySelectorAll("tbody td:first-child")].map((c) => c.innerText).sort().join("|")`); got != "+49 30 1|+49 30 2" {
			t.Errorf("the first column has %s, want the telephone numbers", got)
		}
		p.picture("contacts-without-email-" + screen.name)
	}
}

// auditFiltersByTitle checks that filters of the audit accept the titles that the list shows, and that the list shows
// who signed in.
func auditFiltersByTitle(t *testing.T, keeper person) func(*tab, size) {
	t.Helper()
	acme := keeper.o
	return func(p *tab, screen size) {
		p.visit(address(t, acme, "/audit"))
		p.wait(`[...document.querySelectorAll("tbody tr")].some((r) => r.cells[0].innerText === "Sign in" && r.cells[1].innerText === "Root")`)
		p.picture("audit-" + screen.name)
		for field, value := range map[string]string{"operation": "Sign in", "subject": "Root", "outcome": "OK"} {
			p.visit(address(t, acme, "/audit?_field="+field+"&_value="+strings.ReplaceAll(value, " ", "+")))
			p.wait(`document.querySelectorAll("tbody tr").length > 0 && !document.querySelector(".error") && document.querySelector(".filters").innerText.includes(` + quoted(value) + `)`)
		}
		p.visit(address(t, acme, "/audit"))
		p.value(`document.querySelector(".tool").open = true`)
		for i, cell := range []string{"operation", "subject", "outcome"} { // each word that the list shows
			word := p.value(fmt.Sprintf(`[...document.querySelectorAll("tbody tr")].at(-1).cells[%d].innerText`, map[int]int{0: 0, 1: 1, 2: 3}[i]))
			if cell != "operation" && p.value(`[...document.querySelectorAll("#filter-words option")].some((o) => o.value === `+quoted(word)+`)`) != "true" {
				t.Errorf("%s is not offered for %s", word, cell)
			}
		}
		p.picture("audit-filter-" + screen.name)
	}
}

// readersSeeTitlesAndNames checks that people who may not change a record see the titles of its fields.
func readersSeeTitlesAndNames(t *testing.T, keeper person) func(*tab, size) {
	t.Helper()
	acme := keeper.o
	keeper.api(http.MethodPost, "/api/custom/objects", m{"name": "plot", "label": "Plot", "label_plural": "Plots", "schema": m{"p1": m{"title": "Net price", "type": "Number"}, "s": m{"title": "Was sold", "type": "Boolean"}}})
	id := keeper.api(http.MethodPost, "/api/custom/objects/plot/records", m{"values": m{"p1": 12500, "s": true}}).Field("id").(string)
	keeper.api(http.MethodDelete, "/api/custom/objects/plot/records/"+id, nil)
	return func(p *tab, screen size) { // nobody changes what lies in the trash
		p.visit(address(t, acme, "/custom/objects/plot/records/"+id+"?deleted=true"))
		if got := p.value(`document.querySelector(".facts").innerText.replace(/\s+/g, " ")`); !strings.Contains(got, "Net price 12,500") || !strings.Contains(got, "Was sold Yes") {
			t.Errorf("the page shows %s", got)
		}
		accessible(p)
		p.picture("read-only-" + screen.name)
	}
}
