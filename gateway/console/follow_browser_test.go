package console_test

import (
	"net/http"
	"testing"
)

// countStreams keeps the streams of a page in window.streams, and makes its clock one that can be set forward by
// window.later milliseconds and is looked at often.
const countStreams = `window.later = 0; const now = Date.now, every = setInterval;
	Date.now = () => now() + later; window.setInterval = (f, ms) => every(f, ms / 600); window.streams = []; const Real = EventSource;
	window.EventSource = class extends Real { constructor(...a) { super(...a); streams.push(this); } }`

// TestBrowserFollow checks that pages show what happens to their records, and that they disturb nobody who is at work.
func TestBrowserFollow(t *testing.T) {
	t.Parallel()
	b := launch(t)
	_, acme, cookie := rich(t, nil)
	root := person{t, acme, cookie}
	create := func(name string) string {
		t.Helper()
		id, _ := root.api(http.MethodPost, "/api/contacts", m{"first_name": name, "last_name": "Follows"}).Field("id").(string)
		return id
	}
	const openStreams = `streams.filter((s) => s.readyState !== EventSource.CLOSED).length`
	row := func(id string) string { return `document.querySelector("tbody a[href='/contacts/` + id + `']")` }
	for _, screen := range both() {
		p := b.signedIn(screen, acme)
		p.do("Page.addScriptToEvaluateOnNewDocument", map[string]any{"source": countStreams}, nil)

		p.visit(address(t, acme, "/contacts?sort=-created_at&filters[last_name]=Follows&_columns=first_name"))
		p.value("window.kept = true")
		first := create("First")
		p.wait(row(first))
		// The focus stays, and so does the address.
		p.value(row(first) + ".focus()")
		second := create("Second")
		p.wait(row(second) + ` && document.activeElement === ` + row(first) + ` && document.querySelector(".foot").innerText.includes("entr")`)
		p.wait(`window.kept && location.search.includes("_columns=first_name") && document.querySelectorAll("thead th").length === 1`)
		if got := p.value(openStreams); got != "1" {
			t.Errorf("the list has %s streams", got)
		}
		// A selection is not taken away.
		p.value(`getSelection().selectAllChildren(document.querySelector("tbody"))`)
		third := create("Third")
		p.wait(`document.querySelector(".changed button") && !` + row(third))
		fits(p)
		accessible(p)
		p.picture("follow-list-" + screen.name)
		p.value(`document.querySelector(".changed button").click()`)
		p.wait(row(third) + ` && !document.querySelector(".changed").firstChild && window.kept`)
		p.value(`getSelection().removeAllRanges()`)
		root.api(http.MethodDelete, "/api/contacts/"+third, nil)
		p.wait(`!` + row(third) + ` && window.kept`)
		accessible(p)
		p.picture("follow-list-after-" + screen.name)
		// The connection ends with the page, and comes back with it.
		p.value(`dispatchEvent(new PageTransitionEvent("pagehide", { persisted: true })); 1`)
		if got := p.value(openStreams); got != "0" {
			t.Errorf("%s streams stay open when the page is left", got)
		}
		away := create("Away")
		p.value(`dispatchEvent(new PageTransitionEvent("pageshow", { persisted: true })); 1`)
		p.wait(row(away) + ` && ` + openStreams + ` === 1`)

		// A page without its reader does not prolong the session.
		p.value(`later = 601000`)
		p.wait(openStreams + ` === 0`)
		alone := create("Alone")
		p.value(`dispatchEvent(new KeyboardEvent("keydown", { key: "Shift" })); 1`)
		p.wait(row(alone) + ` && ` + openStreams + ` === 1`)

		// A form that changes the record stays as it is.
		p.visit(address(t, acme, "/contacts/"+first))
		p.value("window.kept = true")
		p.put("first_name", "Typed")
		create("Other") // which is about another record
		root.api(http.MethodPut, "/api/contacts/"+first, m{"first_name": "Stored"})
		p.wait(`document.querySelector(".changed")?.innerText.startsWith("This was changed meanwhile")`)
		if got := p.value(`document.querySelector("main [name=first_name]").value`); got != "Typed" {
			t.Errorf("the form has %q, want what was typed", got)
		}
		fits(p)
		accessible(p)
		p.picture("follow-form-" + screen.name)
		p.put("first_name", p.value(`document.querySelector("main [name=first_name]").defaultValue`))
		p.click(".changed button")
		p.wait(`!window.kept && document.querySelector("main [name=first_name]")?.value === "Stored"`)

		p.visit(address(t, acme, "/"))
		p.value("window.kept = true")
		const figure = `document.querySelector(".figures a[href='/contacts'] .figure")?.textContent`
		before := p.value(figure)
		create("Counted")
		p.wait(`window.kept && ` + figure + ` !== ` + quoted(before))
		accessible(p)
		p.picture("follow-overview-" + screen.name)
		for _, id := range []string{first, second, away, alone} {
			root.api(http.MethodDelete, "/api/contacts/"+id, nil)
		}
	}
	b.quiet()
}
