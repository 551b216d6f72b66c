package console_test

import (
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"testing"

	"tenantry/gateway/gatewaytest"
)

const axeVariable = "TENANTRY_TEST_AXE" // the file axe.min.js, which looks for what keeps people out; without it nothing looks

// accessible fails the test where axe-core finds that a page keeps somebody out.
func accessible(p *tab) {
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
	found := p.value(`axe.run(document, {resultTypes: ["violations"]}).then((r) => JSON.stringify((r.passes.length > 10 ? [] : ["axe looked at next to nothing"]).concat(r.violations.map((v) => v.id + ": " + v.help + ": " + v.nodes.slice(0, 3).map((n) => n.html + " " + (n.any[0]?.message ?? "")).join(" | ")))))`)
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

// click clicks what the selector finds first, as a person does who sees it.
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

// put writes a value into a field, as a person would type it.
func (p *tab) put(name, value string) {
	p.t.Helper()
	field := "document.querySelector(" + quoted(fmt.Sprintf("main [name=%q]", name)) + ")"
	p.wait(field)
	p.value("(() => { const f = " + field + "; f.value = " + quoted(value) + "; f.dispatchEvent(new Event('input', {bubbles: true})); return 1 })()")
}

// arrives waits for a page that a click leads to.
func (p *tab) arrives(path, text string) {
	p.t.Helper()
	p.wait("!window.before && document.readyState === 'complete' && location.pathname.match(" + quoted(path) + ") && document.body.innerText.includes(" + quoted(text) + ")")
}

func (b *browser) signedIn(s size, o *gatewaytest.Org) *tab {
	b.t.Helper()
	p := b.tab(s)
	p.visit(address(b.t, o, "/sign-in"))
	p.write("email", "root@example.com")
	p.tabulator()
	p.write("password", gatewaytest.Password)
	p.enter()
	p.wait("location.pathname === '/' && document.readyState === 'complete'")
	return p
}

// TestBrowserEveryPage looks at each page on wide and narrow screens, in light and dark.
func TestBrowserEveryPage(t *testing.T) {
	t.Parallel()
	b := launch(t)
	_, acme, _ := rich(t, nil)
	pages := []string{"/", "/contacts", "/contacts/66a000000000000000000001", "/contacts/fields", "/do/contacts.create", "/custom/objects", "/custom/objects/bike", "/custom/objects/bike/records", "/form/collections/66b000000000000000000001",
		"/files", "/files/folders", "/custom-reports", "/custom-reports/66d000000000000000000001", "/custom-reports/66d000000000000000000001/run", "/campaigns/66c000000000000000000001", "/users", "/users/1", "/roles", "/keys", "/do/keys.create",
		"/organization", "/compliance/settings", "/audit", "/usage", "/import", "/me", "/find?q=a", "/docs", "/docs/contacts.list", "/docs/contacts.list/try?_send=true&query.per_page=1", "/docs/contacts.update/try", "/authz/explain", "/contacts/none", "/contacts?deleted=true"}
	for _, s := range append(screens(), size{"narrow", 360, 740, true}) {
		p := b.signedIn(s, acme)
		for _, path := range pages {
			p.theme("light")
			p.visit(address(t, acme, path))
			fits(p)
			if s.name != "narrow" {
				accessible(p)
			}
			name := strings.Trim(strings.NewReplacer("/", "-", "?", "-", "=", "-").Replace(path), "-") + "-" + s.name
			p.picture("page-" + name + "-light")
			p.theme("dark")
			if s.name == "desktop" {
				accessible(p)
			}
			p.picture("page-" + name + "-dark")
		}
	}
	b.quiet("status of 404", "status of 422")
}

// TestBrowserAdministers goes through the pages as somebody who sets an organization up.
func TestBrowserAdministers(t *testing.T) {
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
		if scripts { // a file is dragged into another folder
			p.visit(address(t, acme, "/files"))
			p.value(`window.before = true; (() => {
				const data = new DataTransfer(), row = document.querySelector("tr[data-key]"), folder = [...document.querySelectorAll("[data-folder]")].at(-1);
				row.dispatchEvent(new DragEvent("dragstart", {dataTransfer: data, bubbles: true}));
				folder.dispatchEvent(new DragEvent("drop", {dataTransfer: data, bubbles: true, cancelable: true}));
				return 1
			})()`)
			p.arrives("/files/", "File updated")
		}
		p.visit(address(t, acme, "/custom/objects"))
		p.click("main a.button")
		p.arrives("/do/objects.create", "Label")
		for field, value := range map[string]string{"name": name, "label": strings.ToUpper(name[:1]) + name[1:], "label_plural": name + "s", "schema.0.title": "Size", "schema.0.type": "Number", "schema.1.title": "Maker", "schema.2.title": "Sold on", "schema.2.type": "Date"} {
			p.put(field, value)
		}
		if scripts { // writing into the last row makes another
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
		p.do("Emulation.setScriptExecutionDisabled", map[string]any{"value": false}, nil)
	}
	b.quiet()
}

// buildsReport makes a report line by line, with what it shows beside it, and shares it.
func buildsReport(p *tab, acme *gatewaytest.Org, name string, scripts bool) {
	p.t.Helper()
	chosen := func(field, value, more string) { // on which other parts of the form depend
		p.put(field, value)
		if scripts {
			p.value("document.querySelector(" + quoted(fmt.Sprintf("main [name=%q]", field)) + ").dispatchEvent(new Event('change', {bubbles: true})); 1")
		} else {
			p.click(fmt.Sprintf("main [name=_more][value=%q]", more))
		}
	}
	p.visit(address(p.t, acme, "/do/reports.create"))
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
	p.wait(`document.querySelector("main [name='asks.measures.1.op']")`) // writing into the last line makes another
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
	p.value(`document.querySelector("form[action='/do/reports.share']").closest("details").open = true; 1`)
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
