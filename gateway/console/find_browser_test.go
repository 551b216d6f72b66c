package console_test

import (
	"html"
	"regexp"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"tenantry/config"
	"tenantry/gateway"
)

// fast advances the clock of the gateway with each reading.
func fast(_ *config.Config, o *gateway.Options) {
	now := time.Now()
	var looks atomic.Int64
	o.Now = func() time.Time { return now.Add(time.Duration(looks.Add(1)) * 50 * time.Millisecond) }
}

// TestBrowserFindSaysWhatIsPending checks, with scripts and without, that the page does not report an empty result
// before every list has been searched.
func TestBrowserFindSaysWhatIsPending(t *testing.T) {
	t.Parallel()
	b := launch(t)
	_, acme, cookie := rich(t, nil, fast)
	keeper := person{t, acme, cookie}
	const nothing, pending = "Nothing has these words.", "Search the others"
	first := keeper.open("/find?q=nobodyhasit")
	checkPage(t, first, 200, pending, "without a match", "Not searched yet: ")
	parts := 0
	for page := first; ; parts++ { // follow the links, without scripts
		next := regexp.MustCompile(`<a href="([^"]*)" data-next>`).FindStringSubmatch(page.Text())
		if next == nil {
			checkPage(t, page, 200, "Nothing more has these words.", "Results from the lists before")
			break
		}
		if strings.Contains(page.Text(), "Nothing") {
			t.Error("the page reports an empty result before the end")
		}
		page = keeper.open(html.UnescapeString(next[1]))
	}
	if parts < 2 {
		t.Errorf("got %d parts, want at least 2", parts)
	}
	for _, screen := range []size{{"desktop", 1280, 800, false}, {"narrow", 360, 780, true}} {
		p := b.signedIn(screen, acme)
		p.visit(address(t, acme, "/find?q=nobodyhasit"))
		p.wait(`document.querySelector("#pending").innerText.trim() === ` + quoted(nothing))
		accessible(p)
		p.picture("find-nothing-" + screen.name)
		p.visit(address(t, acme, "/find?q=Alster"))
		p.wait(`document.querySelector("#found")?.innerText.includes("Alster") && !document.querySelector("#pending").innerText.trim()`)
		if got := p.value(`document.querySelectorAll("#found section").length`); got == "0" || got != p.value(`new Set([...document.querySelectorAll("#found h2")].map((h) => h.textContent)).size`) {
			t.Errorf("%s lists are shown, some more than once", got)
		}
		p.picture("find-some-" + screen.name)
		p.do("Emulation.setScriptExecutionDisabled", map[string]any{"value": true}, nil)
		p.do("Page.navigate", map[string]any{"url": address(t, acme, "/find?q=nobodyhasit")}, nil)
		p.wait(`document.querySelector("[data-next]") && document.readyState === "complete"`)
		fits(p)
		p.picture("find-pending-" + screen.name)
	}
	b.quiet()
}
