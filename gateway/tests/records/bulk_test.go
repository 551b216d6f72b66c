package records

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"tenantry/gateway/control"
	"tenantry/gateway/gatewaytest"
	"tenantry/gateway/tests/fixture"
	"tenantry/tenants"
)

// bulks returns the paths of bulk calls, with a function that makes one record for each.
func bulks() map[string]func(n int, more string) string {
	return map[string]func(int, string) string{
		"/api/contacts": func(n int, more string) string {
			return fmt.Sprintf(`{"external_id":"x%d","fields":{"age":%d}%s}`, n, n, more)
		},
		"/api/custom/objects/tree/records": func(n int, more string) string {
			return fmt.Sprintf(`{"external_id":"x%d","values":{"age":%d}%s}`, n, n, more)
		},
	}
}

// TestBulkByIdentifier checks that a record with an identifier changes the one that has it, that a bulk without any
// success fails, and that bulks delete and restore with a result for each record.
func TestBulkByIdentifier(t *testing.T) {
	t.Parallel()
	g := gatewaytest.Start(t)
	org := g.Org(t, "acme", tenants.FeatureTeams)
	const north, south = "aaaaaaaaaaaaaaaaaaaaaaaa", "bbbbbbbbbbbbbbbbbbbbbbbb"
	o := client{Org: org}.of(t, tenants.Contacts, tenants.ManageCustomObjects)
	o.Import(t, `{"kind":"team","id":"`+north+`","name":"North"}`, `{"kind":"team","id":"`+south+`","name":"South"}`,
		`{"kind":"contact_field","key":"age","title":"Age","type":"Number"}`,
		`{"kind":"custom_object","name":"tree","label":"Tree","label_plural":"Trees","schema":{"age":{"title":"Age","type":"Number"}}}`,
		`{"kind":"custom_object","name":"bush","label":"Bush","label_plural":"Bushes","schema":{"age":{"title":"Age","type":"Number"}}}`)
	limited := client{org, o.KeyWith(t, func(k *control.NewKey) {
		k.Permissions, k.Teams = []string{string(tenants.Contacts), string(tenants.ManageCustomObjects)}, []string{north}
	}).Token}
	for path, one := range bulks() {
		t.Run(path, func(t *testing.T) {
			t.Parallel()
			call := func(c client, what, field, list, status string) string {
				t.Helper()
				a := c.Do(t, http.MethodPost, path+"/bulk"+what, gatewaytest.WithKey(c.key), fixture.JSONText(`{"`+field+`":[`+list+`]}`))
				if a.Code != http.StatusOK || a.Status != status {
					t.Errorf("%s %s: got %d %s, want %v and a.Status = %v", what, list, a.Code, a.Text(), http.StatusOK, status)
				}
				if results, _ := a.Field("results").([]any); len(results) == 0 {
					t.Errorf("%s %s: no results in %s, want at least 1", what, list, a.Text())
				}
				return a.Text()
			}
			bulk := func(c client, list, status string) string { t.Helper(); return call(c, "", "records", list, status) }
			says := func(got string, words ...string) {
				t.Helper()
				for _, word := range words {
					if !strings.Contains(got, word) {
						t.Errorf("got %s\nwant it with %s", got, word)
					}
				}
			}
			ids := make([]string, 5)
			for n := range ids {
				more := ""
				if n == 4 && path == "/api/contacts" {
					more = `,"teams":["` + south + `"]`
				}
				ids[n] = o.do(t, http.MethodPost, path, one(n, more), 200)["id"].(string)
			}
			says(bulk(o, `{"id":"`+ids[0]+`","external_id":"new"},{"id":"`+fixture.DocID(9)+`"},{"id":"`+ids[1]+`","external_id":"x2"},{"id":7},{"external_id":"x3"},{"id":"`+ids[3]+`"}`, "ok"),
				`"created":0,"updated":2,"failed":4`, `{"index":0,"id":"`+ids[0]+`"}`, ` not found"`, "external_id is already in use", "id must be an identifier", "that another one of the list names, too")
			if got := fmt.Sprint(o.do(t, http.MethodGet, path+"/"+ids[0], "", 200)); !strings.Contains(got, "external_id:new") || !strings.Contains(got, "age:0") {
				t.Errorf("changed by its identifier: got %s, want external_id new and age 0", got)
			}
			says(bulk(o, `{"id":"`+fixture.DocID(9)+`"},{"id":null},{"nope":1}`, "failed"), `"created":0,"updated":0,"failed":3`, "every one of them was refused")
			if path == "/api/contacts" {
				says(bulk(limited, `{"id":"`+ids[4]+`"}`, "failed"), ` not found"`)
				says(call(limited, "/delete", "ids", `"`+ids[4]+`"`, "failed"), ` not found"`)
			}
			if path != "/api/contacts" { // what another object has is not theirs
				other := o.do(t, http.MethodPost, "/api/custom/objects/bush/records", one(8, ""), 200)["id"].(string)
				says(bulk(o, `{"id":"`+other+`"}`, "failed"), ` not found"`)
				says(call(o, "/delete", "ids", `"`+other+`"`, "failed"), ` not found"`)
			}

			says(call(o, "/restore", "ids", `"`+ids[0]+`"`, "failed"), `"done":0,"failed":1`)
			says(call(o, "/delete", "ids", `"`+ids[0]+`","`+ids[1]+`","`+ids[0]+`","`+fixture.DocID(9)+`","x"`, "ok"), `"done":2,"failed":3`, `{"index":1,"id":"`+ids[1]+`"}`, "earlier record")
			if got := o.names(t, path+"?sort=external_id", "external_id"); strings.Contains(got, "new") || !strings.Contains(got, "x2 x3 x4") {
				t.Errorf("left: got %s, want x2 x3 x4", got)
			}
			says(call(o, "/delete", "ids", `"`+ids[0]+`"`, "failed"), `"done":0`)
			says(bulk(o, `{"id":"`+ids[1]+`"}`, "ok"), `"updated":1`) // as by another value that tells it
			says(call(o, "/restore", "ids", `"`+ids[0]+`","`+ids[1]+`"`, "ok"), `"done":1,"failed":1`)
			if got := o.names(t, path+"?sort=external_id", "external_id"); !strings.HasPrefix(got, "new x1 x2 x3 x4") {
				t.Errorf("after all: got %s, want it beginning with %q", got, "new x1 x2 x3 x4")
			}
			for _, body := range []string{`{}`, `{"ids":[]}`, `{"ids":{}}`, `{"ids":["x\ny"]}`, `{"ids":[5]}`, `{"ids":["` + ids[0] + `"],"purge":true}`} {
				o.do(t, http.MethodPost, path+"/bulk/delete", body, 422)
			}
		})
	}
}

// TestBulkDeletesOnce checks that a repeated bulk deletion gives the first answer and does nothing more.
func TestBulkDeletesOnce(t *testing.T) {
	t.Parallel()
	acme := gatewaytest.Start(t).Org(t, "acme")
	acme.Import(t, `{"kind":"contact","id":"`+fixture.DocID(1)+`","external_id":"a"}`)
	secret := acme.Key(t, tenants.Contacts, tenants.ViewAudit)
	key := gatewaytest.WithKey(secret)
	for range 2 {
		a := acme.Do(t, http.MethodPost, "/api/contacts/bulk/delete", key, fixture.IdempotencyKey("one"), fixture.JSONText(`{"ids":["`+fixture.DocID(1)+`"]}`))
		if a.Code != http.StatusOK || !strings.Contains(a.Text(), `"done":1,"failed":0`) {
			t.Errorf(`got %d %s, want %v and containing "\"done\":1,\"failed\":0"`, a.Code, a.Text(), http.StatusOK)
		}
	}
	if log := acme.Get(t, secret, "/api/audit").Text(); strings.Count(log, "contacts.bulk_delete") != 2 || strings.Count(log, `"replayed":"true"`) != 1 || !strings.Contains(log, `"done":"1"`) {
		t.Errorf(`got %v, want strings.Count(log, "contacts.bulk_delete") = 2 and containing "\"done\":\"1\""`, log)
	}
}
