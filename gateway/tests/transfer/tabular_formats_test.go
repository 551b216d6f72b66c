package transfer

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"tenantry/modules/imports/tabular"
)

// TestRows_AddressBooks: columns as address books call them are the fields of contacts, and lists are read as they
// write them.
func TestRows_AddressBooks(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for name, c := range map[string]struct{ file, want string }{
		"google":    {"Given Name,Family Name,E-mail 1 - Value,Phone 1 - Value,Labels\nAda,Lovelace,ada@example.com,+49 228 1,* myContacts ::: press\n", `"email":"ada@example.com","first_name":"Ada","last_name":"Lovelace","phone":"+49 228 1","tags":["myContacts","press"]`},
		"mailchimp": {"Email Address,First Name,Last Name,Tags\nada@example.com,Ada,Lovelace,\"a,b\"\n", `"email":"ada@example.com","first_name":"Ada","last_name":"Lovelace","tags":["a","b"]`},
		"outlook":   {"E-mail Address,Business Phone,Business City,Categories\nada@example.com,0228 1,Bonn,a;b\n", `"email":"ada@example.com","phone":"0228 1","city":"Bonn","tags":["a","b"]`},
	} {
		org := w.org(name)
		o := tabular.Options{As: "contacts", Format: tabular.CSV}
		w.mustRows(org, c.file, o)
		before := w.dump(org, false)
		if w.mustRows(org, c.file, o); !strings.Contains(before, c.want) || w.dump(org, false) != before || len(lines(before, "contact_field")) > 0 {
			t.Errorf("%s: got %s, want containing %q and w.dump(org, false) = %v", name, before, c.want, before)
		}
	}
}

// TestRows_Formats reads values as the map says that they are written, and a dry run shows what they would become.
func TestRows_Formats(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	acme := w.org("acme")
	o := tabular.Options{As: "records:sale", Format: tabular.CSV, DryRun: true, Map: map[string][]string{
		"Datum": {"day:dd.mm.yyyy"}, "Preis": {"*:1.234,56"}, "Nr": {"*:text"}, "Art": {"kinds:list"}, "*": {"*"},
	}}
	file := "Datum;Preis;Nr;Art;Ort\n31.12.2024;1.012,50;7;a,b;Bonn\n1.2.2024;-3;8;c;Ulm\n"
	dry := w.mustRows(acme, file, o)
	if got, want := fmt.Sprint(dry.Columns[0].Shown, dry.Columns[1].Shown, dry.Columns[3].Shown), `[2024-12-31 2024-02-01] [1012.5 -3] [["a","b"] ["c"]]`; got != want {
		t.Errorf("%s, want %s", got, want)
	}
	o.DryRun = false
	w.mustRows(acme, file, o)
	if out := w.dump(acme, false); !strings.Contains(out, `"values":{"day":"2024-12-31","kinds":["a","b"],"nr":"7","ort":"Bonn","preis":1012.5}`) {
		t.Errorf("got %v, want containing %q",
			out, `"values":{"day":"2024-12-31","kinds":["a","b"],"nr":"7","ort":"Bonn","preis":1012.5}`)
	}
	for _, row := range []string{"12/31/2024;1;;;", "31.12.2024;1,012.50;;;", "31.2.2024;1;;;", "1.1.2024;1.01;;;", "1.1.2024;x;;;"} {
		if r, err := w.rows(acme, "Datum;Preis;Nr;Art;Ort\n"+row+"\n", o); err == nil || r.Failed != 1 {
			t.Errorf("%s: got %v %+v, want an error and r.Failed = 1", row, err, r)
		}
	}
	o.Map["Ort"] = []string{"ort:nonsense"}
	if _, err := w.rows(acme, file, o); !errors.Is(err, tabular.ErrOptions) {
		t.Error(err)
	}
}

// TestRows_ShowsLittle: a dry run shows neither secrets nor more than a few bytes of what the first rows would become.
func TestRows_ShowsLittle(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	acme := w.org("acme")
	w.mustLoad(acme, `{"kind":"contact_field","key":"pin","title":"PIN","type":"Encrypted"}`+"\n")
	header, row := "email,PIN", "a@example.com,4321"
	for i := range 300 {
		header, row = header+fmt.Sprintf(",c%d", i), row+","+strings.Repeat("x", 1000)
	}
	dry := w.mustRows(acme, header+"\n"+row+"\n", tabular.Options{As: "contacts", Format: tabular.CSV, DryRun: true})
	all, size := fmt.Sprint(dry.Columns), 0
	for _, c := range dry.Columns {
		for _, cell := range c.Shown {
			size += len(cell)
		}
	}
	if strings.Contains(all, "4321") || size > 8<<10 || !strings.Contains(all, "a@example.com") {
		t.Errorf("%d bytes: %.500s", size, all)
	}
}
