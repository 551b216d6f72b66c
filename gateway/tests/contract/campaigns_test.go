package contract

import (
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"testing"

	"tenantry/config"
	"tenantry/gateway"
	"tenantry/gateway/control"
	"tenantry/gateway/gatewaytest"
	"tenantry/gateway/tests/fixture"
	"tenantry/tenants"
)

func counted(n int) string { return fixture.EnvelopeOK("success", fmt.Sprintf(`{"count":%d}`, n)) }

func campaignWorld(t *testing.T) *gatewaytest.Org {
	t.Helper()
	acme := gatewaytest.Start(t).Org(t, "acme", "teams")
	contact := func(id int, email, country, status string, more string) string {
		return fmt.Sprintf(`{"kind":"contact","id":%q,"email":%q,"country":%q,"status":%q%s}`, fixture.DocID(id), email, country, status, more)
	}
	acme.Import(t, append(fixture.TeamLines(),
		`{"kind":"contact_field","key":"age","title":"Age","type":"Number"}`,
		`{"kind":"contact_field","key":"vip","title":"VIP","type":"Boolean"}`,
		`{"kind":"contact_field","key":"born","title":"Born","type":"Date"}`,
		`{"kind":"contact_field","key":"passport","title":"Passport","type":"Encrypted"}`,
		contact(1, "ada@example.com", "DE", "active", `,"tags":["x","y"],"fields":{"age":30,"vip":true,"born":"1990-05-01","passport":"P1"}`),
		contact(2, "bob@example.com", "DE", "inactive", `,"tags":["y"],"fields":{"age":40,"vip":false}`),
		contact(3, "cyd@sample.org", "FR", "active", `,"fields":{"age":50}`),
		contact(4, "dan@sample.org", "ES", "active", `,"teams":["`+fixture.TeamA+`"]`),
		contact(5, "eve@sample.org", "ES", "inactive", `,"teams":["`+fixture.TeamB+`"],"fields":{"age":60}`),
		`{"kind":"campaign","id":"`+fixture.DocID(1)+`","name":"Germany","filter":{"country":"DE"}}`,
		`{"kind":"campaign","id":"`+fixture.DocID(2)+`","name":"Everybody"}`,
		`{"kind":"campaign","id":"`+fixture.DocID(3)+`","name":"Of B","filter":{"country":"ES"},"teams":["`+fixture.TeamB+`"]}`)...)
	return acme
}

func TestContract_CampaignCount(t *testing.T) {
	t.Parallel()
	acme := campaignWorld(t)
	path := "/api/campaigns/count"
	own := path + "/" + fixture.DocID(1)
	undefined := envelopeFailed("undefined error")
	with := []gatewaytest.Request{gatewaytest.WithKey(acme.Key(t))} // any valid token will do
	read := acme.KeyWith(t, func(k *control.NewKey) { k.Kind = "server_read" }).Token
	rows := []exactRow{
		{name: "without a campaign", path: path, with: with, body: counted(5)},
		{name: "the campaign's own filter", path: own, with: with, body: counted(2)},
		{name: "a campaign without a filter", path: path + "/" + fixture.DocID(2), with: with, body: counted(5)},
		{name: "replaced", path: own + "?filters[country]=FR", with: with, body: counted(1)},
		{name: "replaced by another field", path: own + "?filters[status]=active", with: with, body: counted(3)},
		{name: "filter without a campaign", path: path + "?filters[country]=ES", with: with, body: counted(2)},
		{name: "absent", path: path + "/" + fixture.AbsentID, with: with, body: undefined},
		{name: "malformed", path: path + "/nothing", with: with, body: undefined},
		{name: "absent, with a filter", path: path + "/" + fixture.AbsentID + "?filters[country]=DE", with: with, body: undefined},
		{name: "absent, falsy filter", path: path + "/" + fixture.AbsentID + "?filters=", with: with, body: undefined},
		{name: "a campaign of another team", path: path + "/" + fixture.DocID(3) + "?teams[]=" + fixture.TeamA, with: with, body: undefined},
		{name: "scope", path: path + "?teams[]=" + fixture.TeamA, with: with, body: counted(4)},
		{name: "scope and filter", path: path + "?filters[country]=ES&teams[]=" + fixture.TeamA, with: with, body: counted(1)},
		{name: "falsy stays in scope", path: own + "?filters=&teams[]=" + fixture.TeamA, with: with, body: counted(4)},
		{name: "a reading key", path: own, with: []gatewaytest.Request{gatewaytest.WithKey(read)}, body: counted(2)},
		{name: "no key", path: own, code: 403, body: fixture.DeniedBody},
	}
	for _, falsy := range []string{"", "0", "false", "null", "[]", "{}"} {
		rows = append(rows,
			exactRow{name: "falsy " + falsy, path: own + "?filters=" + url.QueryEscape(falsy), with: with, body: counted(5)},
			exactRow{name: "falsy without a campaign " + falsy, path: path + "?filters=" + url.QueryEscape(falsy), with: with, body: counted(5)})
	}
	checkRows(t, acme, rows)
	for _, text := range []string{"1", "true", "False", "NULL", "00", "0.0", "[0]", "{ }", "none", "x", "undefined", " "} {
		a := acme.Do(t, http.MethodGet, own+"?filters="+url.QueryEscape(text), with...)
		if a.Code < 400 || a.Status != "failed" {
			t.Errorf("filters=%s is no filter and not falsy: got %d %s, want a code of at least 400 and the status failed",
				text, a.Code, a.Text())
		}
	}
	limited := acme.KeyWith(t, func(k *control.NewKey) { k.Teams = []string{fixture.TeamB} }).Token
	for query, want := range map[string]int{"": 4, "?filters=": 4, "?filters[country]=ES": 1, "?teams[]=" + fixture.TeamA: 3, "?teams[]=nonsense": 4, "?filters[or][0][country]=ES&filters[or][1][status]=active": 3} {
		fixture.WantBody(t, acme.Get(t, limited, path+query), http.StatusOK, counted(want))
	}
}

func TestContract_CampaignFilters(t *testing.T) {
	t.Parallel()
	acme := campaignWorld(t)
	key := acme.Key(t)
	for query, want := range map[string]int{
		"filters[country]=DE":                                                          2,
		"filters[country][eq]=DE":                                                      2,
		"filters[country]=de":                                                          0,
		"filters[country][ne]=DE":                                                      3,
		"filters[age][gt]=40":                                                          2,
		"filters[age][gte]=40":                                                         3,
		"filters[age][lt]=40":                                                          1,
		"filters[age][lte]=40":                                                         2,
		"filters[age][gt]=30&filters[age][lt]=60":                                      2,
		"filters[age]=30.0":                                                            1,
		"filters[country][in]=DE&filters[country][in]=FR":                              3,
		"filters[country][in][]=DE&filters[country][in][]=FR":                          3,
		"filters[country][]=DE&filters[country][]=FR":                                  3,
		"filters[country]=DE&filters[country]=FR":                                      3,
		"filters[country][]=DE":                                                        2,
		"filters[country][nin][]=DE&filters[country][nin][]=FR":                        2,
		"filters[email][contains]=@sample.":                                            3,
		"filters[email][starts_with]=ada":                                              1,
		"filters[email][contains]=@SAMPLE.":                                            3,
		"filters[email][contains_exact]=@SAMPLE.":                                      0,
		"filters[email][starts_with]=ADA":                                              1,
		"filters[email][starts_with_exact]=ADA":                                        0,
		"filters[id][starts_with]=%24":                                                 0,
		"filters[email][contains]=%25":                                                 0,
		"filters[email][starts_with]=_da":                                              0,
		"filters[age][exists]=true":                                                    4,
		"filters[age][exists]=false":                                                   1,
		"filters[vip]=true":                                                            1,
		"filters[born][lt]=2000-01-01":                                                 1,
		"filters[country]=DE&filters[status]=active":                                   1,
		"filters[or][0][country]=DE&filters[or][1][country]=FR":                        3,
		"filters[or][0][country]=DE&filters[or][0][status]=active":                     1,
		"filters[or][0][country]=DE&filters[or][1][age][gt]=50":                        3,
		"filters[status]=active&filters[or][0][country]=DE&filters[or][1][country]=FR": 2,
		"filters%5Bcountry%5D=DE":                                                      2,
	} {
		t.Run(query, func(t *testing.T) {
			fixture.WantBody(t, acme.Get(t, key, "/api/campaigns/count?"+query), http.StatusOK, counted(want))
		})
	}
	many := func(n int) string {
		parts := make([]string, n)
		for i := range parts {
			parts[i] = "filters[or][" + strconv.Itoa(i) + "][country]=C" + strconv.Itoa(i)
		}
		return strings.Join(parts, "&")
	}
	fixture.WantBody(t, acme.Get(t, key, "/api/campaigns/count?"+many(50)), http.StatusOK, counted(0))
	for query, named := range map[string]string{
		"filters[colour]=red":            "colour",
		"filters[Country]=DE":            "Country",
		"filters[country][like]=D":       "like",
		"filters[country][EQ]=D":         "EQ",
		"filters[email][$regex]=.*":      "$regex",
		"filters=&filters[country]=DE":   "filters",
		"filters[$where]=1":              "$where",
		"filters[__proto__]=1":           "__proto__",
		"filters[a.b]=1":                 "a.b",
		"filters[passport]=P1":           "passport",
		"filters[passport][exists]=true": "passport",
		"filters[PASSPORT]=P1":           "PASSPORT",
		"filters[or][0][passport]=P1":    "passport",
		"filters[age]=old":               "age",
		"filters[age][gt]=":              "age",
		"filters[vip]=perhaps":           "vip",
		"filters[age][exists]=perhaps":   "age",
		"filters[born][gt]=yesterday":    "born",
		many(51):                         "50",
	} {
		for _, path := range []string{"/api/campaigns/count", "/api/campaigns/count/" + fixture.DocID(1)} {
			a := acme.Get(t, key, path+"?"+query)
			if fixture.WantFailure(t, a, http.StatusUnprocessableEntity); !strings.Contains(a.Message, named) {
				t.Errorf("%.80s: the message %q does not name %s, want it there", query, a.Message, named)
			}
		}
	}
	for _, query := range []string{"filters[country=DE", "filters[country]]=DE", "filters[country]=%zz", "filters[country]=DE;x=1"} {
		fixture.WantFailure(t, acme.Get(t, key, "/api/campaigns/count?"+query), http.StatusBadRequest)
	}
}

// TestContract_FiltersOnDates checks that a Date means the start of its day and a DateTime a point in time, and that
// both compare correctly with days and times, on engines that compare texts.
func TestContract_FiltersOnDates(t *testing.T) {
	t.Parallel()
	for name, option := range map[string]gatewaytest.Option{"default": func(*config.Config, *gateway.Options) {}, "memory": onMemory} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			acme := gatewaytest.Start(t, option).Org(t, "acme")
			lines := []string{
				`{"kind":"contact_field","key":"day","title":"Day","type":"Date"}`,
				`{"kind":"contact_field","key":"at","title":"At","type":"DateTime"}`,
			}
			for i, fields := range []string{
				`{"day":"2024-05-16","at":"2024-05-16T23:59:59.999Z"}`,
				`{"day":"2024-05-17","at":"2024-05-17T00:00:00Z"}`,
				`{"day":"2024-05-18","at":"2024-05-17T00:00:00.001Z"}`,
				`{"at":"2024-05-18T00:00:00Z"}`,
				`{}`,
			} {
				lines = append(lines, fmt.Sprintf(`{"kind":"contact","id":%q,"email":"%c@example.com","fields":%s}`, fixture.DocID(i+1), 'a'+i, fields))
			}
			acme.Import(t, lines...)
			key := acme.Key(t, tenants.Contacts)
			const ops = "eq ne in nin gt gte lt lte"
			for _, tc := range []struct{ value, day, at string }{
				{"2024-05-17", "b acde b acde c bc a ab", "bc ade bc ade cd bcd a ab"},
				{"2024-05-17T00:00:00Z", "b acde b acde c bc a ab", "b acde b acde cd bcd a ab"},
				{"2024-05-17T02:00:00%2B02:00", "b acde b acde c bc a ab", "b acde b acde cd bcd a ab"},
				{"2024-05-17T00:00:00.001Z", "- abcde - abcde c c ab ab", "c abde c abde d cd ab abc"},
			} {
				for field, wants := range map[string]string{"day": tc.day, "at": tc.at} {
					for i, want := range strings.Fields(wants) {
						wantContacts(t, acme, key, "filters["+field+"]["+strings.Fields(ops)[i]+"]="+tc.value, strings.Trim(want, "-"))
					}
				}
			}
			for _, field := range []string{"day", "at"} {
				both := "filters[" + field + "][%s]=2024-05-16&filters[" + field + "][%[1]s]=2024-05-17T00:00:00Z"
				wantContacts(t, acme, key, fmt.Sprintf(both, "in"), "ab")
				wantContacts(t, acme, key, fmt.Sprintf(both, "nin"), "cde")
			}
		})
	}
}

// wantContacts checks which contacts a filter finds, by the first letters of their addresses, and their number.
func wantContacts(t *testing.T, acme *gatewaytest.Org, key, filter, want string) {
	t.Helper()
	fixture.WantBody(t, acme.Get(t, key, "/api/campaigns/count?"+filter), http.StatusOK, counted(len(want)))
	a := acme.Get(t, key, "/api/contacts?sort=email&"+filter)
	got := ""
	for _, rec := range a.Field("results").([]any) {
		got += rec.(map[string]any)["email"].(string)[:1]
	}
	if a.Code != http.StatusOK || got != want {
		t.Errorf("%s: %d %q, want %q", filter, a.Code, got, want)
	}
}
