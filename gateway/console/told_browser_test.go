package console_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"tenantry/gateway/gatewaytest"
)

// both are the screens that pages are looked at on.
func both() []size { return []size{{"desktop", 1280, 800, false}, {"narrow", 360, 780, true}} }

// TestBrowserPagesBeyondTheLast say so and lead to the last, of lists and of reports; a pager says that it leaves pages out.
func TestBrowserPagesBeyondTheLast(t *testing.T) {
	t.Parallel()
	b := launch(t)
	_, acme, cookie := rich(t, nil)
	keeper := person{t, acme, cookie}
	var lines []string
	for i := range 650 {
		lines = append(lines, fmt.Sprintf(`{"kind":"contact","email":"c%d@example.com","city":"City %d"}`, i, i))
	}
	acme.Import(t, lines...)
	made := keeper.api(http.MethodPost, "/api/custom-reports", m{"title": "Each", "secure": false, "class": "Contacts", "query": m{"fields": []string{"city"}, "limit": 650}})
	for _, screen := range both() {
		p := b.signedIn(screen, acme)
		p.visit(address(t, acme, "/contacts?page=99"))
		p.wait(`document.querySelector(".empty").innerText.includes("the list ends before it") && !document.body.innerText.includes("nothing here yet")`)
		fits(p)
		accessible(p)
		p.picture("beyond-" + screen.name)
		p.click(".empty a")
		p.arrives("/contacts", "Previous page")
		p.wait(`document.querySelector("tbody tr") && !document.querySelector("[rel=next]")`)
		p.visit(address(t, acme, "/custom-reports/"+made.Field("id").(string)+"/run?page=99"))
		p.wait(`document.querySelector(".foot").innerText.includes("page 99 is beyond the last, which is 13")`)
		p.visit(address(t, acme, "/shared/reports/"+made.Field("pid").(string)))
		p.wait(`document.querySelector(".pages").innerText.replace(/\s+/g, " ").trim() === "1 2 … 7"`)
		p.picture("pager-" + screen.name)
	}
	b.quiet("status of 422")
}

// TestBrowserOnlyWhatWasDoneIsTold: an address alone says nothing of what was done, and one that did says it no more later.
func TestBrowserOnlyWhatWasDoneIsTold(t *testing.T) {
	t.Parallel()
	b := launch(t)
	_, acme, _ := rich(t, nil)
	for _, screen := range both() {
		p := b.signedIn(screen, acme)
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
	b.quiet()
}

// TestBrowserMissingPagesKeepTheNavigation for who is signed in.
func TestBrowserMissingPagesKeepTheNavigation(t *testing.T) {
	t.Parallel()
	b := launch(t)
	_, acme, _ := rich(t, nil)
	for _, screen := range both() {
		p := b.signedIn(screen, acme)
		for _, path := range []string{"/none", "/contacts/none", "/do/none", "/contacts/x/y/z", "/.git/config"} {
			p.visit(address(t, acme, path))
			p.wait(`document.querySelector("h1").textContent === "There is no such page" && document.querySelector("nav.side a[href='/contacts']")`)
		}
		accessible(p)
		p.picture("missing-" + screen.name)
	}
	b.quiet("status of 404")
}

// TestBrowserNumbersAreFigures where a report that is a number is run and built, as on its shared page.
func TestBrowserNumbersAreFigures(t *testing.T) {
	t.Parallel()
	b := launch(t)
	_, acme, cookie := rich(t, nil)
	keeper := person{t, acme, cookie}
	made := keeper.api(http.MethodPost, "/api/custom-reports", m{"title": "How many", "secure": false, "class": "Contacts", "visual": "number", "query": m{"measures": []m{{"op": "count"}}}})
	const figures = `JSON.stringify([...document.querySelectorAll(".figures figure")].map((f) => f.outerHTML))`
	for _, screen := range both() {
		p := b.signedIn(screen, acme)
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
	b.quiet()
}

// TestBrowserTimesAreTimes: no page shows the seconds or milliseconds of a moment.
func TestBrowserTimesAreTimes(t *testing.T) {
	t.Parallel()
	b := launch(t)
	_, acme, cookie := rich(t, nil)
	var file string
	keeper := person{t, acme, cookie}
	keeper.crawl(func(path string, page *gatewaytest.Answer) {
		if strings.HasPrefix(path, "/files/") && !strings.HasPrefix(path, "/files/folders") && len(path) == len("/files/66f000000000000000000001") {
			file = path
		}
		for _, part := range strings.Split(page.Text(), "<time ")[1:] {
			text, _, _ := strings.Cut(part[strings.IndexByte(part, '>')+1:], "<")
			if len(text) < 10 || !strings.Contains(text, "-") && !strings.Contains(text, ":") {
				t.Errorf("%s shows the time %q", path, text)
			}
		}
	})
	for _, screen := range both() {
		p := b.signedIn(screen, acme)
		p.visit(address(t, acme, file))
		p.wait(`document.querySelector(".facts time")?.textContent.match(/^\d{4}-\d\d-\d\d \d\d:\d\d$/)`)
		p.whole(screen, "file-times-"+screen.name)
	}
	b.quiet()
}
