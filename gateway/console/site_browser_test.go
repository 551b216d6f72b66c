package console_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"tenantry/gateway/control"
	"tenantry/gateway/demo"
	"tenantry/gateway/gatewaytest"
)

// axeVariable names the file axe.min.js, which checks accessibility. Without it, accessibility is not checked.
const axeVariable = "TENANTRY_TEST_AXE"

// accessible fails the test if axe-core finds that a page violates a rule of accessibility: one of the named rules, or
// any.
func accessible(p *tab, rules ...string) {
	p.t.Helper()
	file := os.Getenv(axeVariable)
	if file == "" {
		return
	}
	axe, err := os.ReadFile(file)
	if err != nil {
		p.t.Fatal(err)
	}
	p.value("window.axe ? 1 : (() => {" + string(axe) + "; return 1 })()")
	only, least := "", "10"
	if rules != nil {
		only, least = `, runOnly: ["`+strings.Join(rules, `", "`)+`"]`, "0"
	}
	found := p.value(`axe.run(document, {resultTypes: ["violations"]` + only + `}).then((r) => JSON.stringify((r.passes.length > ` + least + ` ? [] : ["axe looked at next to nothing"]).concat(r.violations.map((v) => v.id + ": " + v.help + ": " + v.nodes.slice(0, 3).map((n) => n.html + " " + (n.any[0]?.message ?? "")).join(" | ")))))`)
	var violations []string
	if err := json.Unmarshal([]byte(found), &violations); err != nil {
		p.t.Fatalf("%v: %s", err, found)
	}
	for _, v := range violations {
		p.t.Errorf("%s: %s", p.value("location.pathname+location.search"), v)
	}
}

func (p *tab) theme(name string) {
	p.t.Helper()
	p.do("Emulation.setEmulatedMedia", map[string]any{"features": []map[string]string{{"name": "prefers-color-scheme", "value": name}}}, nil)
}

// click clicks the first element that the selector finds.
func (p *tab) click(selector string) {
	p.t.Helper()
	p.wait("document.querySelector(" + quoted(selector) + ")")
	p.value("window.before = true")
	p.value("document.querySelector(" + quoted(selector) + ").click()")
}

func quoted(text string) string {
	raw, _ := json.Marshal(text)
	return string(raw)
}

// put sets the value of a field and fires an input event, as typing does.
func (p *tab) put(name, value string) {
	p.t.Helper()
	field := "document.querySelector(" + quoted(fmt.Sprintf("main [name=%q]", name)) + ")"
	p.wait(field)
	p.value("(() => { const f = " + field + "; f.value = " + quoted(value) + "; f.dispatchEvent(new Event('input', {bubbles: true})); return 1 })()")
}

// arrives waits for the page that a click leads to.
func (p *tab) arrives(path, text string) {
	p.t.Helper()
	p.wait("!window.before && document.readyState === 'complete' && location.pathname.match(" + quoted(path) + ") && document.body.innerText.includes(" + quoted(text) + ")")
}

func (b *browser) signedIn(s size, o *gatewaytest.Org) *tab {
	b.t.Helper()
	p := b.tab(s)
	b.signIn(p, o, "root@example.com")
	return p
}

func (b *browser) signIn(p *tab, o *gatewaytest.Org, email string) {
	b.t.Helper()
	p.visit(address(b.t, o, "/sign-in"))
	p.write("email", email)
	p.tabulator()
	p.write("password", gatewaytest.Password)
	p.enter()
	p.wait("location.pathname === '/' && document.readyState === 'complete'")
}

// pagesToLookAt returns the addresses of every page that the site serves, with one record of each kind. Of lists in
// several orders it has one, and of the reference the pages of one resource, because the others look the same.
func pagesToLookAt(t *testing.T, p person) []string {
	t.Helper()
	pages := unlinked()
	p.crawl(func(path string, page *gatewaytest.Answer) {
		sorted := strings.Contains(path, "sort=") && !strings.HasPrefix(path, "/contacts?sort=")
		if of, found := strings.CutPrefix(path, "/docs/"); !sorted && (!found || strings.HasPrefix(of, "campaigns.")) && strings.HasPrefix(page.Header.Get("Content-Type"), "text/html") {
			pages = append(pages, path)
		}
	})
	if len(pages) < 80 {
		t.Errorf("got %d pages, want at least 80", len(pages))
	}
	return append(pages, "/docs/contacts.list/try?_send=true&query.per_page=1", "/contacts/none", "/contacts?q=nothing", "/contacts?filters[nothing]=1", "/broken/fails", "/broken/away")
}

// stays fails the test if something on the open page has moved after it was first shown.
func (p *tab) stays() {
	p.t.Helper()
	moved := p.value(`new Promise((done) => {
		const parts = [];
		const watch = new PerformanceObserver((list) => {
			for (const e of list.getEntries()) if (!e.hadRecentInput) for (const s of e.sources) parts.push((s.node?.outerHTML ?? s.node?.textContent ?? "").slice(0, 200) + " " + JSON.stringify([s.previousRect, s.currentRect]));
		});
		watch.observe({type: "layout-shift", buffered: true});
		setTimeout(() => { watch.disconnect(); done(parts.join("\n")); }, 50);
	})`)
	if moved != "" {
		p.t.Errorf("something moves on %s: %s", p.value("location.pathname+location.search"), moved)
	}
}

// look checks the rules for all pages on the open page. In the dark theme it checks only the colours, because nothing
// else changes.
func (p *tab) look(s size, path string) {
	p.t.Helper()
	name := strings.Trim(strings.NewReplacer("/", "-", "?", "-", "=", "-", "&", "-", ":", "-").Replace(path), "-") + "-" + s.name
	fits(p)
	if wide := p.value(`[...document.querySelectorAll(".inside .scroll")].some((s) => s.scrollWidth > s.clientWidth)`); s.width >= 1280 && wide == "true" && path != "/files/folders/tree" { // whose rows have all beneath them, and which other pages show better
		p.t.Errorf("%s: a table is wider than its frame", path)
	}
	p.stays()
	accessible(p)
	if bad := p.value(`[...document.querySelectorAll("main [placeholder]")].filter((f) => {
		const label = f.labels?.[0];
		return !label || getComputedStyle(label).position === "absolute" || getComputedStyle(f, "::placeholder").color !== getComputedStyle(document.querySelector("main p, main label")).color;
	}).map((f) => f.outerHTML).join(" ")`); bad != "" { // a placeholder must be readable, and must not be the only label
		p.t.Errorf("%s: %s", path, bad)
	}
	p.picture("page-" + name + "-light")
	p.theme("dark")
	accessible(p, "color-contrast", "link-in-text-block")
	p.picture("page-" + name + "-dark")
	p.theme("light")
}

// refuses sends the forms of the open page with invalid values, one form of each operation, and checks the answers.
func (p *tab) refuses(s size, o *gatewaytest.Org, path string, sent map[string]bool) {
	p.t.Helper()
	const all = `[...document.querySelectorAll("main form.form[method=post]")].filter((f) => !f.querySelector("button.danger") && f.querySelector("input:not([type=hidden]), textarea, select"))`
	var actions []string
	if err := json.Unmarshal([]byte(p.value(`JSON.stringify(`+all+`.map((f) => f.getAttribute("action")))`)), &actions); err != nil {
		p.t.Fatal(err)
	}
	for i, action := range actions {
		if _, done := sent[action]; done {
			continue
		}
		p.visit(address(p.t, o, path))
		p.value(fmt.Sprintf(`window.before = true; (() => {
			const form = %s[%d];
			for (const c of form.querySelectorAll("input:not([type=hidden], [type=checkbox], [type=file]), textarea")) {
				if (["number", "date", "datetime-local", "email"].includes(c.type)) { c.type = "text"; c.value = "none of these"; }
				if (c.required) c.value = "";
			}
			form.noValidate = true;
			form.submit();
		})()`, all, i))
		p.wait("!window.before && document.readyState === 'complete'")
		if sent[action] = p.value("performance.getEntriesByType('navigation')[0].responseStatus") == "422"; sent[action] {
			p.linksToFaults()
			p.look(s, "refused"+action)
		}
	}
}

// linksToFaults fails the test unless the page of a refused form links to the fields with faults and focuses the first.
func (p *tab) linksToFaults() {
	p.t.Helper()
	p.wait(`document.activeElement !== document.body`)
	if bad := p.value(`(() => {
		const links = [...document.querySelectorAll("main .wrong a")], at = links.map((a) => document.querySelector(a.hash)), now = document.activeElement, seen = now.getBoundingClientRect();
		const wrong = document.querySelectorAll("main [aria-invalid], main fieldset[tabindex='-1']").length, bad = [];
		if (!document.title.startsWith("Error: ")) bad.push("the title is " + document.title);
		if (links.length !== wrong) bad.push(links.length + " links to " + wrong + " fields");
		if (at.some((field) => !field || !field.checkVisibility())) bad.push("a link leads nowhere");
		if (links.length ? now !== at[0] : !now.matches(".error, .wrong + *")) bad.push("the focus is on " + now.outerHTML.slice(0, 200));
		if (seen.bottom > innerHeight + 1 && seen.height < innerHeight || seen.bottom < 0) bad.push("the focus is out of sight");
		return bad.join(", ");
	})()`); bad != "" {
		p.t.Errorf("%s: %s", p.value("location.pathname"), bad)
	}
}

// TestBrowserRefusedFormsLinkToFaults checks that refused forms link to their faults, also far down the page and in
// parts of a form.
func TestBrowserRefusedFormsLinkToFaults(t *testing.T) {
	t.Parallel()
	b := launch(t)
	_, acme, _ := rich(t, nil)
	for _, screen := range []size{{"desktop", 1280, 800, false}, {"narrow", 360, 780, true}} {
		p := b.signedIn(screen, acme)
		sends := func(path string, values ...string) {
			t.Helper()
			p.visit(address(t, acme, path))
			for i := 0; i < len(values); i += 2 {
				p.put(values[i], values[i+1])
			}
			p.value("window.before = true; (() => { const f = document.querySelector('main form.form'); f.noValidate = true; f.querySelector('.ends button').click() })()")
			p.wait("!window.before && document.readyState === 'complete'")
			p.linksToFaults()
			accessible(p)
			fits(p)
		}
		sends("/contacts/66a000000000000000000001", "fields.last_order", "", "phone", strings.Repeat("9", 300), "email", "no address", "city", strings.Repeat("x", 2000))
		p.picture("refused-contact-" + screen.name)
		if got := p.value(`document.querySelectorAll("main .wrong a").length`); got == "0" || got == "1" {
			t.Errorf("got %s links, want several", got)
		}
		p.click("main .wrong li:last-child a")
		p.wait("document.activeElement === document.querySelector([...document.querySelectorAll('main .wrong a')].at(-1).hash)")
		sends("/do/objects.create", "name", "x", "label", "X", "label_plural", "Xs", "schema.0.title", "Size", "schema.1.title", "Size")
		p.wait("document.activeElement.name === 'schema.0.title'")
		p.picture("refused-object-" + screen.name)
		sends("/do/reports.create", "title", "X", "pid", "no / pid")
		p.picture("refused-report-" + screen.name)
		sends("/do/keys.create", "name", "X")
		p.visit(address(t, acme, "/contacts?filters[nothing]=1"))
		p.wait("document.title.startsWith('Error: ')")
		p.visit(address(t, acme, "/authz/explain?subject=nobody&operation=nothing"))
		p.linksToFaults()
		p.picture("refused-question-" + screen.name)
	}
	b.quiet("status of 422")
}

// TestBrowserMenuClosesUnseen checks that nothing moves when the script closes the menu on a narrow screen, although
// the script arrives after the page is first shown.
func TestBrowserMenuClosesUnseen(t *testing.T) {
	t.Parallel()
	b := launch(t)
	_, acme, _ := rich(t, nil)
	p := b.signedIn(size{"narrow", 360, 740, false}, acme)
	p.do("Network.enable", map[string]any{}, nil)
	p.do("Network.setCacheDisabled", map[string]any{"cacheDisabled": true}, nil)
	p.do("Network.emulateNetworkConditions", map[string]any{"offline": false, "latency": 100, "downloadThroughput": 100_000, "uploadThroughput": 100_000}, nil)
	for _, path := range []string{"/", "/contacts", "/keys"} {
		p.visit(address(t, acme, path))
		p.stays()
	}
	p.click(".menu > summary")
	p.wait("document.querySelector('.menu a[href=\"/contacts\"]').checkVisibility()")
	p.do("Emulation.setScriptExecutionDisabled", map[string]any{"value": true}, nil)
	p.visit(address(t, acme, "/keys"))
	p.wait("document.querySelector('.menu a[href=\"/contacts\"]').checkVisibility()")
}

// TestBrowserEveryPage checks each page on wide and narrow screens, in light and dark themes, also pages of refused
// forms and pages that are shown once.
func TestBrowserEveryPage(t *testing.T) {
	t.Parallel()
	_, acme, cookie := rich(t, nil, withBroken)
	clerk, _ := acme.Person(t, "clerk@example.com", func(n *control.NewUser) { n.Name, n.Permissions = "Clerk", []string{"contacts"} })
	pages := pagesToLookAt(t, person{t, acme, cookie})
	key := pages[slices.IndexFunc(pages, regexp.MustCompile(`^/keys/[0-9a-f]{24}$`).MatchString)]
	plain := acme.Do(t, http.MethodGet, "/api/custom-reports/"+demo.PlainReportID, gatewaytest.Cookie(cookie)).Field("pid").(string)
	for _, s := range []size{screens()[0], {"narrow", 360, 740, true}} {
		t.Run(s.name, func(t *testing.T) {
			t.Parallel()
			b := launch(t)
			p := b.tab(s)
			for _, path := range []string{"/sign-in", "/sign-in?next=/contacts", "/welcome", "/enter", "/none", "/shared/reports/none", "/shared/reports/" + plain} {
				p.visit(address(t, acme, path))
				p.look(s, "outer"+path)
			}
			p.visit(strings.Replace(address(t, acme, "/"), acme.Host, "127.0.0.1", 1))
			p.wait("document.body.innerText.includes('There is no organization here')")
			p.look(s, "outer-nowhere")
			p.visit(address(t, acme, "/sign-in"))
			p.value("window.before = true; document.querySelector('form').action = '/do/contacts.create'; document.querySelector('form').noValidate = true; document.querySelector('form').submit()")
			p.arrives("/do/contacts.create", "You are not signed in")
			p.look(s, "outer-signed-out")
			b.signIn(p, acme, clerk.Email)
			p.visit(address(t, acme, "/keys"))
			p.wait("document.body.innerText.includes('You may not see this')")
			p.look(s, "forbidden")
			b.signIn(p, acme, "root@example.com")
			refused := map[string]bool{}
			for _, path := range pages {
				p.visit(address(t, acme, path))
				p.look(s, path)
				p.refuses(s, acme, path, refused)
			}
			if n := len(slices.DeleteFunc(slices.Collect(maps.Values(refused)), func(is bool) bool { return !is })); n < 25 {
				t.Errorf("%d forms were refused, want at least 25: %v", n, refused)
			}
			for action, at := range map[string]string{"keys.rotate": key, "reports.share": "/custom-reports/" + demo.PlainReportID + "/shares", "contacts.disclose": "/contacts/66a000000000000000000001"} {
				p.visit(address(t, acme, at))
				p.value(`(() => { const f = document.querySelector("form[action='/do/` + action + `']"); for (const c of f.querySelectorAll("[required]")) if (!c.value) c.value = c.options ? c.options[1].value : "Because"; return 1 })()`)
				p.click("form[action='/do/" + action + "'] .ends button")
				p.arrives("/do/"+action, "This is shown once")
				p.look(s, "once-"+action)
			}
			// Wrong passwords are throttled by e-mail address, so the two screens use different ones.
			p.visit(address(t, acme, "/sign-in"))
			for range 7 {
				p.put("email", s.name+"@example.com")
				p.put("password", "not the password")
				p.click("main button")
				p.arrives("/sign-in", "Sign in")
			}
			p.wait("document.querySelector('.error').textContent.includes('try again in')")
			p.look(s, "outer-throttled")
			b.quiet("status of 404", "status of 403", "status of 422", "status of 429", "status of 500", "status of 503")
		})
	}
}

// TestBrowserStoredTextDoesNotRun checks that no stored text becomes markup in a browser, not even markup that the
// content security policy would block.
func TestBrowserStoredTextDoesNotRun(t *testing.T) {
	t.Parallel()
	b := launch(t)
	acme, cookie, _ := hostileOrg(t)
	pages := pagesToLookAt(t, person{t, acme, cookie})
	p := b.tab(screens()[0])
	b.signIn(p, acme, "eve@example.com")
	for _, path := range pages {
		p.visit(address(t, acme, path))
		if p.value("typeof window.ran === 'undefined' && document.querySelectorAll('main img, main script, main b').length === 0") != "true" {
			t.Errorf("%s has markup from a stored text", path)
		}
	}
	b.quiet("status of 404", "status of 422")
}

// TestBrowserSetsUpAnOrganization goes through the pages as an administrator who sets an organization up.
func TestBrowserSetsUpAnOrganization(t *testing.T) {
	t.Parallel()
	b := launch(t)
	_, acme, _ := rich(t, nil)
	for _, scripts := range []bool{true, false} {
		p := b.signedIn(screens()[0], acme)
		name := map[bool]string{true: "wheel", false: "frame"}[scripts]
		p.visit(address(t, acme, "/files/folders"))
		p.do("Emulation.setScriptExecutionDisabled", map[string]any{"value": !scripts}, nil)
		p.click("main a.button")
		p.arrives("/do/folders.create", "Name")
		p.put("name", "Plans of a "+name)
		p.click("main .form button")
		p.arrives("/files/folders/", "Folder created")
		if scripts { // a file is dragged into another folder, a folder into another and back to the top
			drag := func(from, to string) {
				p.visit(address(t, acme, "/files"))
				p.value(`window.before = true; (() => {
					const data = new DataTransfer(), named = (text) => [...document.querySelectorAll("[data-folder]")].find((f) => f.textContent === text);
					const folder = ` + to + `, from = ` + from + `;
					from.dispatchEvent(new DragEvent("dragstart", {dataTransfer: data, bubbles: true}));
					folder.dispatchEvent(new DragEvent("drop", {dataTransfer: data, bubbles: true, cancelable: true}));
					return 1
				})()`)
			}
			const folder, top = `named("Plans of a wheel")`, `named("All files")`
			drag(`document.querySelector("tr[data-key]")`, folder)
			p.arrives("/files/", "File updated")
			drag(folder, `named("Spring")`)
			p.arrives("/files/folders/", "Folder updated")
			if within := p.value(`document.querySelector("[name=folder_id]").selectedOptions[0].textContent`); within != "Spring" {
				t.Errorf("the folder is in %q, want Spring", within)
			}
			drag(folder, top)
			p.arrives("/files/folders/", "Folder updated")
			if within := p.value(`document.querySelector("[name=folder_id]").value`); within != "" {
				t.Errorf("the folder is in %q, want the top", within)
			}
			for _, still := range []string{folder, top, `document.querySelector("h1")`} { // into itself, the top, and a part that cannot be moved
				drag(still, folder)
				if p.value(`String(window.before && document.querySelectorAll("body > form").length)`) != "0" {
					t.Errorf("%s was moved, want it unmoved", still)
				}
			}
		}
		p.visit(address(t, acme, "/custom/objects"))
		p.click("main a.button")
		p.arrives("/do/objects.create", "Name of several")
		for field, value := range map[string]string{"name": name, "label": strings.ToUpper(name[:1]) + name[1:], "label_plural": name + "s", "schema.0.title": "Size", "schema.0.type": "Number", "schema.1.title": "Maker", "schema.2.title": "Sold on", "schema.2.type": "Date"} {
			p.put(field, value)
		}
		if scripts { // typing in the last row adds another
			p.put("schema.3.title", "Colour")
		}
		p.click("main .form button")
		p.arrives("/custom/objects/"+name, "Custom Object created")
		p.visit(address(t, acme, "/custom/objects/"+name+"/records"))
		for _, size := range []string{"66", "71"} {
			p.click("main a.button")
			p.arrives("/do/records.create", "Sold on")
			p.put("values.size", size)
			p.put("values.maker", "<b>Nabla</b>")
			p.put("values.sold_on", "2026-02-03")
			p.click("main .form button")
			p.arrives("/custom/objects/"+name+"/records/", "Record created")
			p.visit(address(t, acme, "/custom/objects/"+name+"/records"))
		}
		p.visit(address(t, acme, "/custom/objects/"+name+"/records?_field=size&_op=gt&_value=70"))
		p.arrives("/records", "1 entry")
		p.picture("records-filtered-" + name)
		p.click("main tbody a")
		p.arrives("/records/", "Maker")
		p.click(".head button.danger")
		p.arrives("/records", "Undo")
		p.click(".done button")
		p.arrives("/records/", "Record restored")
		p.visit(address(t, acme, "/do/service_accounts.create"))
		p.put("name", "shop of "+name)
		p.click(`main input[value="contacts"]`)
		p.click("main .form button")
		p.arrives("/service-accounts/", "created")
		p.visit(address(t, acme, "/do/keys.create"))
		p.put("name", "shop of "+name)
		p.put("kind", "server_full")
		p.value("(() => { const s = document.querySelector('main [name=account]'); s.value = [...s.options].find((o) => o.text === 'shop of " + name + "').value; return 1 })()")
		p.click("main .form button")
		p.arrives("/do/keys.create", "This is shown once")
		p.click("main .tabs a")
		p.arrives("/keys", "shop of "+name)
		p.visit(address(t, acme, "/keys?sort=-created_at"))
		p.click("main tbody a")
		p.arrives("/keys/", "Revoke")
		p.click(`form[action="/do/keys.delete"] button`)
		p.arrives("/keys", "revoked")
		p.picture("key-revoked-" + name)
		buildsReport(p, acme, name, scripts)
		p.visit(address(t, acme, "/do/campaigns.create"))
		p.put("name", "Those of a "+name)
		p.put("filter.0.field", "country")
		p.put("filter.0.value", "DE")
		if !scripts {
			p.click("main [name=_try]")
		}
		p.arrives("/do/campaigns.create", "contacts match.")
		p.picture("campaign-" + name)
		if scripts { // the curl command follows what is typed
			p.visit(address(t, acme, "/do/contacts.create"))
			p.value("document.querySelector('details.curl').open = true")
			p.put("first_name", "Grace")
			p.put("fields.passport_number", "X99")
			p.wait(`document.querySelector("details.curl code").textContent.includes('"first_name":"Grace"')`)
			if strings.Contains(p.value("document.querySelector('details.curl').textContent"), "X99") {
				t.Error("the curl command shows a secret")
			}
		}
		p.do("Emulation.setScriptExecutionDisabled", map[string]any{"value": false}, nil)
	}
	b.quiet()
}

// TestBrowserFiles checks a file, imports it, filters the records, and exports them with the progress shown. A person
// without the right is refused.
func TestBrowserFiles(t *testing.T) {
	t.Parallel()
	b := launch(t)
	_, acme, _ := rich(t, nil)
	clerk, _ := acme.Person(t, "clerk@example.com", func(n *control.NewUser) { n.Name, n.Permissions = "Clerk", []string{"view_form_submissions"} })
	file := filepath.Join(t.TempDir(), "people.csv")
	if err := os.WriteFile(file, []byte("email,first_name,city\nlin@example.com,Lin,Oslo\nmoe@example.com,Moe,Oslo\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	p := b.signedIn(screens()[0], acme)
	oslo := func(entries string) {
		p.visit(address(t, acme, "/contacts?filters[city]=Oslo"))
		p.arrives("/contacts", entries)
	}
	for _, scripts := range []bool{false, true} { // with scripts, a file that was checked stays chosen
		p.visit(address(t, acme, "/contacts"))
		p.click("a[href^='/do/imports.create']")
		p.arrives("/do/imports.create", "File")
		p.do("Emulation.setScriptExecutionDisabled", map[string]any{"value": !scripts}, nil)
		p.choose("main input[type=file]", file)
		p.click("main [name='query.dry_run']")
		p.picture("import-dry-run")
		p.click("main .form button")
		if !scripts {
			p.arrives("/import/", "Would be created")
			p.picture("import-ended-dry")
			p.do("Emulation.setScriptExecutionDisabled", map[string]any{"value": false}, nil)
			oslo("Nothing")
			continue
		}
		p.wait(`document.querySelector("#checked .facts")?.textContent.includes("Would be created2") && !document.querySelector("main [name='query.dry_run']").checked`)
		accessible(p)
		p.picture("import-checked")
		p.click("main .form button")
		p.arrives("/import/", "Done")
		p.picture("import-ended")
		oslo("2 entries")
	}
	p.visit(address(t, acme, "/import"))
	p.click("main a[download]")
	p.wait(`document.querySelector("main a[download] + output")?.textContent.match(/^[^:]+: \d+ lines, [\d.]+ MB\.$/)`)
	p.picture("export-ended")
	p.value(`document.querySelector("main a[download]").href = "/api/none"; document.querySelector("main a[download]").click(); 1`)
	p.wait(`document.querySelector("main a[download] + output").textContent === "No such route."`)
	p.visit(address(t, acme, "/audit"))
	p.click("a[href='/audit/verification']")
	p.arrives("/audit/verification", "Intact")
	p.picture("audit-verification")

	b.signIn(p, acme, clerk.Email)
	p.visit(address(t, acme, "/do/imports.create"))
	p.wait("document.body.innerText.includes('You may not')")
	p.picture("import-refused")
	if p.value(`String(document.querySelectorAll("a[href^='/contacts'], a[href='/import']").length)`) != "0" {
		t.Error("a person without the right has a link to the form")
	}
	b.quiet("status of 404", "status of 403")
}

// choose selects a file in a field for files.
func (p *tab) choose(selector, file string) {
	p.t.Helper()
	var root struct{ Root struct{ NodeID int } }
	p.do("DOM.getDocument", map[string]any{}, &root)
	var node struct{ NodeID int }
	p.do("DOM.querySelector", map[string]any{"nodeId": root.Root.NodeID, "selector": selector}, &node)
	p.do("DOM.setFileInputFiles", map[string]any{"files": []string{file}, "nodeId": node.NodeID}, nil)
}

// buildsReport composes a report line by line with its preview, and shares it.
func buildsReport(p *tab, acme *gatewaytest.Org, name string, scripts bool) {
	p.t.Helper()
	chosen := func(field, value, more string) { // sets a field that other parts of the form depend on
		p.put(field, value)
		if scripts {
			p.value("document.querySelector(" + quoted(fmt.Sprintf("main [name=%q]", field)) + ").dispatchEvent(new Event('change', {bubbles: true})); 1")
		} else {
			p.click(fmt.Sprintf("main [name=_more][value=%q]", more))
		}
	}
	p.visit(address(p.t, acme, "/do/reports.create"))
	if scripts { // the preview asks for required fields, and appears as soon as they are chosen
		p.wait(`document.querySelector("#live")?.innerText.includes("once you have filled in")`)
		chosen("class", "Contacts", "class")
		p.wait(`document.querySelector("#live table")`)
	}
	p.put("title", "Sizes of "+name+"s")
	chosen("class", "Records", "class")
	p.wait(`document.querySelector("main select[name=source]")`)
	chosen("source", name, "source")
	p.wait(`document.querySelector("main [name='asks.groups.0.field'] option[value=maker]")`)
	p.put("asks.show", "figures")
	p.value("document.querySelector(\"[name='asks.show']\").dispatchEvent(new Event('change', {bubbles: true})); 1")
	p.put("asks.groups.0.field", "maker")
	p.put("asks.measures.0.op", "count")
	if !scripts {
		p.click(`main [name=_more][value="asks.measures"]`)
	}
	p.wait(`document.querySelector("main [name='asks.measures.1.op']")`) // typing in the last line adds another
	p.put("asks.measures.1.op", "max")
	p.put("asks.measures.1.field", "size")
	p.put("asks.filter.0.field", "size")
	p.put("asks.filter.0.op", "gte")
	p.put("visual", "bar")
	chosen("input.0.name", "smallest", "input")
	p.wait(`document.querySelector("main [name='asks.filter.0.input'] option[value=smallest]")`)
	p.put("asks.filter.0.input", "smallest")
	p.put("input.0.type", "number")
	p.put("input.0.value", "70")
	p.put("input.0.choices", "66, 70")
	if !scripts {
		p.click("main [data-try]")
	}
	p.arrives("/do/reports.", "Nothing has been stored yet")
	p.wait(`document.querySelector("#live table")?.innerText.includes("71")`)
	fits(p)
	p.picture("builder-" + name)
	if scripts {
		accessible(p)
		p.theme("dark")
		p.whole(screens()[0], "builder-dark")
		p.theme("light")
		p.do("Emulation.setDeviceMetricsOverride", map[string]any{"width": 360, "height": 740, "deviceScaleFactor": 1, "mobile": true}, nil)
		fits(p)
		p.value("document.querySelector('details.menu').open = false; 1")
		p.whole(size{"narrow", 360, 740, true}, "builder-narrow")
		p.do("Emulation.setDeviceMetricsOverride", map[string]any{"width": screens()[0].width, "height": screens()[0].height, "deviceScaleFactor": 1, "mobile": false}, nil)
	}
	p.click("main .form button")
	p.arrives("/custom-reports/", "Custom Report created")
	p.click("main a[href$='/shares']")
	p.arrives("/shares", "Lasts")
	p.click("form[action='/do/reports.share'] button")
	p.arrives("/do/reports.share", "This is shown once")
	p.click("main .facts a")
	p.arrives("/shared/reports/", "Sizes of "+name+"s")
	p.wait(`document.querySelector("select[name='params[smallest]']").value === "70" && document.querySelector("tbody").innerText.includes("1")`)
	p.value(`document.querySelector("select").value = "66"; 1`)
	p.click("main form button")
	p.arrives("/shared/reports/", "2")
	p.picture("built-" + name)
}
