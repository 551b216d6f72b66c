package transfer

import (
	"net/http"
	"net/url"
	"strings"
	"testing"

	"tenantry/gateway/gatewaytest"
	"tenantry/gateway/tests/fixture"
)

// TestImport_DelimitersEncodingsAndMaps checks that delimiters, encodings and column maps can be set over HTTP, and
// that invalid ones are named.
func TestImport_DelimitersEncodingsAndMaps(t *testing.T) {
	t.Parallel()
	acme := gatewaytest.Start(t).Org(t, "acme")
	_, ada := acme.Person(t, "ada@example.com", fixture.WithRoles("admin"))
	admin := gatewaytest.Cookie(ada)
	for name, c := range map[string]struct {
		media, query, file, want string
		code                     int
	}{
		"a charset":    {"text/csv; charset=windows-1252", "as=contacts", "Mail;Town\na1@example.com;K\xf6ln\n", `"email":"a1@example.com","city":"Köln"`, 200},
		"an encoding":  {"text/csv", "as=contacts&encoding=windows-1252", "Mail;Town\na2@example.com;K\xf6ln\n", `"email":"a2@example.com","city":"Köln"`, 200},
		"tabs":         {"text/tab-separated-values", "as=contacts", "mail\ttown, or so\na3@example.com\tBonn\n", `"email":"a3@example.com","fields":{"town_or_so":"Bonn"}`, 200},
		"a delimiter":  {"text/csv", "as=contacts&delimiter=^", "mail^town\na4@example.com^Bonn\n", `"email":"a4@example.com","city":"Bonn"`, 200},
		"a map":        {"text/csv", "as=contacts&map=" + url.QueryEscape("Born=birthday:dd.mm.yyyy") + "&map=" + url.QueryEscape("*=*"), "mail;Born\na5@example.com;31.12.2024\n", `"fields":{"birthday":"2024-12-31"}`, 200},
		"no encoding":  {"text/csv; charset=klingon", "as=contacts", "mail\n", "encoding", 422},
		"no delimiter": {"text/csv", "as=contacts&delimiter=ab", "mail\n", "delimiter", 422},
		"no map":       {"text/csv", "as=contacts&map=mail", "mail\n", "map", 422},
		"of no bundle": {"application/x-ndjson", "delimiter=tab", "{}", "as", 422},
	} {
		a := acme.Do(t, http.MethodPost, "/api/import?"+c.query, admin, gatewaytest.Body(c.media, c.file))
		if a.Code != c.code {
			t.Errorf("%s: got %d %s, want %v", name, a.Code, a.Body, c.code)
			continue
		}
		if c.code != http.StatusOK {
			if fields := fixture.FaultFields(a); len(fields) != 1 || fields[0] != c.want {
				t.Errorf("%s: got %v, want len(fields) = 1 and fields[0] = %v", name, fields, c.want)
			}
			continue
		}
		if a = fixture.AwaitImport(t, acme, admin, a.Field("id").(string)); a.Field("state") != "done" {
			t.Errorf(`%s: got %s, want a.Field("state") = "done"`, name, a.Body)
		}
		if out := acme.Do(t, http.MethodGet, "/api/export", admin).Text(); !strings.Contains(gatewaytest.Given(out), c.want) {
			t.Errorf("%s: got %s, want containing %q", name, out, c.want)
		}
	}
}
