package records

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"tenantry/gateway/control"
	"tenantry/gateway/gatewaytest"
	"tenantry/tenants"
)

// client calls an organization's operations with one key.
type client struct {
	*gatewaytest.Org
	key string
}

// do calls with a body, if given, checks the code, and returns the data with the message.
func (o client) do(t *testing.T, method, path, body string, code int) map[string]any {
	t.Helper()
	return orchard(o).do(t, method, path, body, code)
}

// names returns the values of that field in a list.
func (o client) names(t *testing.T, path, field string) string {
	t.Helper()
	var names []string
	for _, one := range o.do(t, http.MethodGet, path, "", 200)["results"].([]any) {
		names = append(names, fmt.Sprint(one.(map[string]any)[field]))
	}
	return strings.Join(names, " ")
}

func (o client) of(t *testing.T, permissions ...tenants.Permission) client {
	t.Helper()
	return client{o.Org, o.Key(t, permissions...)}
}

// TestCampaigns checks that a campaign's filter is checked before it is stored, and can be previewed.
func TestCampaigns(t *testing.T) {
	t.Parallel()
	g := gatewaytest.Start(t)
	o := client{Org: g.Org(t, "acme", tenants.FeatureTeams)}.of(t, tenants.ManageCampaigns)
	const north, south = "aaaaaaaaaaaaaaaaaaaaaaaa", "bbbbbbbbbbbbbbbbbbbbbbbb"
	o.Import(t, `{"kind":"team","id":"`+north+`","name":"North"}`, `{"kind":"team","id":"`+south+`","name":"South"}`,
		`{"kind":"contact_field","key":"age","title":"Age","type":"Number"}`, `{"kind":"contact_field","key":"ssn","title":"SSN","type":"Encrypted"}`,
		`{"kind":"contact","email":"a@example.com","country":"DE","fields":{"age":31,"ssn":"hidden one"}}`,
		`{"kind":"contact","email":"b@example.com","country":"DE","fields":{"age":29}}`,
		`{"kind":"contact","email":"c@example.com","country":"DE","fields":{"age":40},"teams":["`+south+`"]}`,
		`{"kind":"contact","email":"d@example.com","country":"DE","fields":{"age":50},"deleted":true}`)
	for body, says := range map[string]string{
		`{"filter":{"ssn":"x"}}`:                      "name is required",
		`{"name":"x","filter":{"ssn":"x"}}`:           "filter.ssn",
		`{"name":"x","filter":{"nobody":1}}`:          "filter.nobody",
		`{"name":"x","filter":{"age":"old"}}`:         "filter.age must be a number",
		`{"name":"x","filter":{"age":{"near":1}}}`:    "filter.age.near",
		`{"name":"x","filter":[1]}`:                   "filter must be a JSON object",
		`{"name":"x","filter":{"age":{"input":"a"}}}`: "input",
	} {
		if got := o.do(t, http.MethodPost, "/api/campaigns", body, 422); !strings.Contains(got["message"].(string), says) {
			t.Errorf("%s: %s, want %s", body, got["message"], says)
		}
	}
	made := o.do(t, http.MethodPost, "/api/campaigns", `{"name":"Elders","filter":{"age":{"gt":30}}}`, 200)
	path := "/api/campaigns/" + made["id"].(string)
	if made["message"] != "Campaign created" || fmt.Sprint(made["filter"]) != "map[age:map[gt:30]]" {
		t.Errorf("created: got %v, want the message and the filter", made)
	}
	if got := o.names(t, path+"/preview?sort=email", "email"); got != "a@example.com c@example.com" {
		t.Errorf("addressed: got %s, want %q", got, "a@example.com c@example.com")
	}
	a := o.Do(t, http.MethodGet, path+"/preview", gatewaytest.WithKey(o.key))
	if strings.Contains(a.Text(), "hidden") || strings.Contains(a.Text(), "ssn") {
		t.Errorf("the preview shows a secret: got %s, want it without hidden and without ssn", a.Text())
	}
	if got := o.names(t, path+"/preview?per_page=1&page=2&sort=email&filters[country]=DE", "email"); got != "c@example.com" {
		t.Errorf("the second page: got %s, want c@example.com", got)
	}
	limited := client{o.Org, o.KeyWith(t, func(k *control.NewKey) {
		k.Permissions, k.Teams = []string{string(tenants.ManageCampaigns)}, []string{north}
	}).Token}
	if got := limited.names(t, path+"/preview", "email"); got != "a@example.com" {
		t.Errorf("addressed, as seen by another team: got %s, want a@example.com", got)
	}
	for _, c := range []struct{ what, key string }{{"another permission", o.Key(t, tenants.Contacts)}, {"a reading key", o.KeyWith(t, func(k *control.NewKey) {
		k.Kind, k.Permissions = string(tenants.ServerRead), []string{string(tenants.ManageCampaigns)}
	}).Token}} {
		if a := o.Do(t, http.MethodGet, path+"/preview", gatewaytest.WithKey(c.key)); a.Code != 403 {
			t.Errorf("%s: got %d %s, want 403", c.what, a.Code, a.Body)
		}
	}
	o.do(t, http.MethodPut, path, `{"filter":null}`, 200)
	if got := o.names(t, path+"/preview", "country"); got != "DE DE DE" {
		t.Errorf("without a filter: got %s, want %q", got, "DE DE DE")
	}
	o.do(t, http.MethodDelete, path, "", 200)
	o.do(t, http.MethodGet, path+"/preview?deleted=true", "", 400) // who was deleted is addressed by none
	o.do(t, http.MethodGet, path+"/preview", "", 404)
	if got := o.do(t, http.MethodGet, "/api/campaigns/count/"+made["id"].(string), "", 200); got["message"] != "undefined error" {
		t.Errorf("a deleted campaign counts: got %v, want message %q", got, "undefined error")
	}
	o.do(t, http.MethodPost, path+"/restore", "", 200)
	o.do(t, http.MethodGet, path+"/preview", "", 200)
}
