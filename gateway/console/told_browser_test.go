package console_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"
)

// both are the screens that pages are looked at on.
func both() []size { return []size{{"desktop", 1280, 800, false}, {"narrow", 360, 780, true}} }

// TestBrowserTellsWhatIs: each of these pages says what a person expects of it, on both screens.
func TestBrowserTellsWhatIs(t *testing.T) {
	t.Parallel()
	b := launch(t)
	_, acme, cookie := rich(t, nil)
	var looks []func(*tab, size)
	for _, tells := range []func(*testing.T, person) func(*tab, size){
		pagesBeyondTheLast, onlyWhatWasDoneIsTold, missingPagesKeepTheNavigation, numbersAreFigures, timesAreTimes, listsSayWhatTypesSay, auditTakesItsOwnWords, readersSeeTitlesAndNames,
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

// pagesBeyondTheLast say so and lead to the last, of lists and of reports; a pager says that it leaves pages out.
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

// onlyWhatWasDoneIsTold: an address alone says nothing of what was done, and one that did says it no more later.
func onlyWhatWasDoneIsTold(t *testing.T, keeper person) func(*tab, size) {
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

// missingPagesKeepTheNavigation for who is signed in.
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

// numbersAreFigures where a report that is a number is run and built, as on its shared page.
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
			t.Errorf("it shows %s, and readers see %s", got, want)
		}
		p.picture("number-run-" + screen.name)
		accessible(p)
		fits(p)
		p.visit(address(t, acme, "/custom-reports/"+made.Field("id").(string)))
		p.wait(`document.querySelector("#live .figures")`)
		if got := p.value(figures); got != want {
			t.Errorf("the preview shows %s, and readers see %s", got, want)
		}
		p.whole(screen, "number-built-"+screen.name)
	}
}

// timesAreTimes, those of files too.
func timesAreTimes(t *testing.T, keeper person) func(*tab, size) {
	t.Helper()
	file := keeper.api(http.MethodGet, "/api/files?per_page=1", nil).Field("results").([]any)[0].(map[string]any)["id"].(string)
	return func(p *tab, screen size) {
		p.visit(address(t, keeper.o, "/files/"+file))
		p.wait(`document.querySelector(".facts time")?.textContent.match(/^\d{4}-\d\d-\d\d \d\d:\d\d$/)`)
		p.picture("file-times-" + screen.name)
	}
}

// listsSayWhatTypesSay: numbers are grouped and aligned by their type whichever values a page has, and contacts without
// an e-mail address are led by what people know them by.
func listsSayWhatTypesSay(t *testing.T, keeper person) func(*tab, size) {
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
			t.Errorf("contacts are led by %s", got)
		}
		p.picture("contacts-without-email-" + screen.name)
	}
}

// auditTakesItsOwnWords as filters, and says who signed in.
func auditTakesItsOwnWords(t *testing.T, keeper person) func(*tab, size) {
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

// readersSeeTitlesAndNames: who may not change a record sees its fields as those who may.
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
