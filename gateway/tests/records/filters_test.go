package records

import (
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"testing"

	"tenantry/gateway/gatewaytest"
	"tenantry/gateway/tests/fixture"
	"tenantry/operation"
	"tenantry/operation/filters"
	"tenantry/tenants"
)

// TestEveryDocumentedFilterAndOrder checks that each row accepts all fields that it names for filters and orders,
// with every operator that suits some value, and that others are refused by name without an internal error.
func TestEveryDocumentedFilterAndOrder(t *testing.T) {
	t.Parallel()
	w := fixture.NewWorld(t)
	p, conditions := w.A, 0
	for _, op := range w.App.Operations() {
		pages := map[bool]string{true: "&after=&per_page=1"}[slices.ContainsFunc(op.Params, func(p operation.Param) bool { return p.Name == "after" })]
		for _, param := range op.Params {
			q := w.Build(&op, op.Path, fixture.SampleFor(&op), p.Own, func(string) bool { return false })
			ask := func(query string) *gatewaytest.Answer {
				t.Helper()
				a := p.Do(t, q.Method, q.With(query), append(slices.Clone(q.Changes), p.CredentialFor(&op))...)
				if a.Code != http.StatusOK && a.Code != http.StatusUnprocessableEntity {
					t.Errorf("%s ?%s: got %d %s, want 200 or 422", op.Name, query, a.Code, a.Body)
				}
				return a
			}
			for _, name := range param.Names {
				if param.Shape != operation.Tree {
					for _, query := range []string{param.Name + "=" + name, param.Name + "=-" + name, param.Name + "=-" + name + pages} {
						if a := ask(query); a.Code != http.StatusOK {
							t.Errorf("%s ?%s: got %d %s, want 200", op.Name, query, a.Code, a.Body)
						}
					}
					continue
				}
				taken := map[string]bool{}
				for _, value := range []string{"6b", "7", "true", "2024-05-17", ""} {
					// Each operator is an alternative; those that do not suit the value are refused by name and
					// removed.
					for left := filters.Operators(); len(left) > 0; {
						written := make([]string, len(left))
						for i, operator := range left {
							written[i] = fmt.Sprintf("%s[or][%d][%s][%s]", param.Name, i, name, operator)
						}
						a := ask(strings.Join(written, "="+value+"&") + "=" + value)
						if a.Code == http.StatusOK {
							for _, operator := range left {
								taken[operator] = true
							}
							conditions += len(left)
							break
						}
						refused, before := fmt.Sprint(a.Field("errors")), len(left)
						left = slices.DeleteFunc(left, func(operator string) bool { return strings.Contains(refused, "["+name+"]["+operator+"]") })
						if len(left) == before {
							t.Fatalf("%s of %s: got %d %s, want it to name an operator", op.Name, name, a.Code, a.Body)
						}
					}
				}
				if !taken["eq"] || !taken["in"] || !taken["exists"] {
					t.Errorf("%s: %s accepts only %v, want eq, in and exists", op.Name, name, taken)
				}
			}
		}
	}
	made := p.Do(t, http.MethodGet, "/api/files/"+p.IDs[fixture.RefFile], p.CredentialFor(&operation.Row{Policy: operation.Policy{Credentials: operation.Key}})).Field("created_at")
	for query, want := range map[string]int{"[gte]=%v": 5, "[lt]=%v": 0} {
		a := p.Get(t, p.FullKey, "/api/files?filters[created_at]"+fmt.Sprintf(query, made))
		if fmt.Sprint(a.Field("count")) != strconv.Itoa(want) {
			t.Errorf("files by what they show, %[1]s of %[2]v: got %[3]d %[4]s, want the count %[5]d",
				query, made, a.Code, a.Body, want)
		}
	}
	for _, path := range []string{"/api/contacts", "/api/campaigns/count"} { // of one catalog
		if a := p.Get(t, p.FullKey, path+"?filters[id]="+p.IDs[fixture.RefContact]+"&filters[updated_at][gt]=2020-01-01"); fmt.Sprint(a.Field("count")) != "1" {
			t.Errorf(`%s: got %d %s, want fmt.Sprint(a.Field("count")) = "1"`, path, a.Code, a.Body)
		}
	}
	if conditions < 5000 {
		t.Errorf("only %d conditions, want at least 5000", conditions)
	}
}

// TestMaximumOfConditions checks a query with the maximum number of conditions, in filters, words and a long order.
func TestMaximumOfConditions(t *testing.T) {
	t.Parallel()
	acme := gatewaytest.Start(t).Org(t, "acme")
	c := fixture.WithToken(acme, acme.Key(t, tenants.Contacts, tenants.ManageCustomObjects, tenants.ManageCampaigns))
	var query, own, fields []string
	for i := range filters.MaxConditions {
		query = append(query, fmt.Sprintf("filters[or][%d][created_at][nin]=2024-01-01&filters[or][%d][created_at][nin]=2024-01-02T00:00:00Z", i, i))
		own = append(own, `{"created_at":{"nin":["2024-01-01","2024-01-02T00:00:00Z"]}}`)
	}
	for i := range 20 {
		fields = append(fields, fmt.Sprintf(`"f%d":{"title":"F","type":"Text"}`, i))
	}
	c.Want(t, 200, http.MethodPost, fixture.ObjectsPath, `{"name":"tree","label":"Tree","label_plural":"Trees","schema":{`+strings.Join(fields, ",")+`}}`)
	campaign := c.Want(t, 200, http.MethodPost, "/api/campaigns", `{"name":"All","filter":{"or":[`+strings.Join(own, ",")+`]}}`).Field("id").(string)
	for range 2 {
		c.Want(t, 200, http.MethodPost, "/api/contacts", `{"first_name":"a b c d e f"}`)
		c.Want(t, 200, http.MethodPost, fixture.TreePath+"/records", `{"values":{"f0":"a b c d"}}`)
	}
	const words = "&q=a+b+c+d+e+f&"
	for path, words := range map[string]string{
		"/api/contacts?sort=email,first_name,last_name,phone,country,city,status,created_at":                                   words,
		"/api/campaigns/" + campaign + "/preview?sort=-email,-first_name,-last_name,-phone,-country,-city,-status,-created_at": words,
		fixture.TreePath + "/records?sort=f0,f1,f2,f3,f4,f5,f6,f7":                                                             "&q=a+b+c+d&",
	} {
		path += words + strings.Join(query, "&") + "&per_page=1&after="
		next := c.Want(t, 200, http.MethodGet, path, "", `"count":2`).Field("next").(string)
		c.Want(t, 200, http.MethodGet, path+next, "", `"count":2`, `"next":""`)
	}
}

// TestFilterByShownSeconds checks that a filter with the number in an answer finds the record.
func TestFilterByShownSeconds(t *testing.T) {
	t.Parallel()
	acme := gatewaytest.Start(t).Org(t, "acme")
	c := fixture.WithToken(acme, acme.Key(t, tenants.ManageFiles))
	at := c.Want(t, 200, http.MethodPost, "/api/files", `{"filename":"a.pdf","mimetype":"application/pdf"}`).Field("created_at")
	for op, want := range map[string]int{"eq": 1, "ne": 0, "in": 1, "nin": 0, "gt": 0, "gte": 1, "lt": 0, "lte": 1} {
		c.Want(t, 200, http.MethodGet, fmt.Sprintf("/api/files?filters[created_at][%s]=%v", op, at), "", fmt.Sprintf(`"count":%d`, want))
	}
}
