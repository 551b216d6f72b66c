package records

import (
	"context"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"tenantry/backends/store"
	"tenantry/config"
	"tenantry/gateway"
	"tenantry/gateway/control"
	"tenantry/gateway/gatewaytest"
	"tenantry/gateway/tests/fixture"
	"tenantry/tenants"
)

// TestSettled_RepetitionsAreRefused: a change that was stored with its answer, and then restored because a record of
// another team came to depend on what it was, is refused when it is repeated with the same Idempotency-Key, too.
func TestSettled_RepetitionsAreRefused(t *testing.T) {
	t.Parallel()
	id := fixture.DocID(0xa0)
	setup := append(fixture.TeamLines(),
		`{"kind":"contact_field","key":"plan","title":"Plan","type":"Text"}`,
		`{"kind":"form_collection","id":"`+id+`","name":"ask","label":"Ask","label_plural":"Asks","schema":{"kind":{"title":"Kind","type":"Text"}}}`,
		fixture.FolderLine(0xa0, "F", "null", ""))
	ofB := func(more string) string { return `{` + more + `,"teams":["` + fixture.TeamB + `"]}` }
	for name, tt := range map[string]struct {
		during       string // the store call that finds nothing that depends on the record
		path, body   string // of the change
		where, other string // of what others store then
		get, want    string // of the record
	}{
		"field": {
			"find contacts", "/api/contacts/fields/plan?force=true", `{"type":"Number"}`,
			"/api/contacts", ofB(`"email":"b@example.com","fields":{"plan":"gold"}`), "/api/contacts/fields/plan", `"type":"Text"`,
		},
		"folder": {
			"find files", fixture.FoldersPath + "/" + id, `{"name":"Other"}`,
			fixture.FilesPath, ofB(`"filename":"f","mimetype":"text/plain","folder_id":"` + id + `"`), fixture.FoldersPath + "/" + id, `"name":"F"`,
		},
		"form": {
			"find custom_reports", fixture.FormsPath + id, `{"schema":{}}`,
			"/api/custom-reports", ofB(`"title":"R","class":"Submissions","source":"` + id + `","query":{"fields":["kind"]}`), "/api/form/collections/" + id, `"kind":`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			gate := fixture.NewStoreGate()
			acme := gatewaytest.Start(t, gate.Option).Org(t, "acme", tenants.FeatureTeams)
			acme.Import(t, setup...)
			all := fixture.WithToken(acme, acme.Key(t, tenants.AllPermissions()...))
			limited := acme.KeyWith(t, func(k *control.NewKey) {
				k.Permissions, k.Teams = fixture.PermissionNames(tenants.AllPermissions()), []string{fixture.TeamA}
			}).Token
			change := func() *gatewaytest.Answer {
				return acme.Do(t, http.MethodPut, tt.path, gatewaytest.WithKey(limited), fixture.IdempotencyKey("once"), fixture.JSONText(tt.body))
			}

			first := gate.During(t, tt.during, 0, change, func() { all.Want(t, 200, http.MethodPost, tt.where, tt.other) })
			again := change()
			if first.Code != http.StatusForbidden || again.Code != http.StatusForbidden {
				t.Errorf("the change answered %d %s, its repetition %d %s; want 403 of both", first.Code, first.Body, again.Code, again.Body)
			}
			if got := all.Want(t, 200, http.MethodGet, tt.get, ""); !strings.Contains(got.Text(), tt.want) {
				t.Errorf("the record is %s, want %s as before", got.Body, tt.want)
			}
		})
	}
}

// TestSettled_HangingUpEndsNoCheck: a caller who hangs up once a field was encrypted does not keep the gateway from
// finding the value that somebody gave the field in clear meanwhile, and from restoring the field.
func TestSettled_HangingUpEndsNoCheck(t *testing.T) {
	t.Parallel()
	var observe atomic.Pointer[func(store.Call)]
	acme := gatewaytest.Start(t, func(_ *config.Config, o *gateway.Options) {
		o.Observe = func(c store.Call) {
			if f := observe.Load(); f != nil {
				(*f)(c)
			}
		}
	}).Org(t, "acme")
	ask := fixture.WithToken(acme, acme.Key(t, tenants.AllPermissions()...))
	ask.Want(t, 200, http.MethodPost, "/api/contacts/fields", `{"key":"secret","title":"Secret","type":"Text"}`)

	ctx, hangUp := context.WithCancel(t.Context())
	defer hangUp()
	settled := make(chan struct{})
	var writes atomic.Int64
	stored := func(c store.Call) {
		if c.Operation != "write" || c.Collection != "" && c.Collection != "contact_fields" { // "": with its audit record
			return
		}
		if writes.Add(1) == 1 { // the change
			hangUp()
			time.Sleep(200 * time.Millisecond) // until the gateway knows
			return
		}
		observe.Store(nil) // the restoration
		close(settled)
	}
	checked := func(c store.Call) {
		if c.Operation == "find" && c.Collection == "contacts" { // no contact has a value
			observe.Store(nil)
			ask.Want(t, 200, http.MethodPost, "/api/contacts", `{"fields":{"secret":"canary"}}`)
			observe.Store(&stored)
		}
	}
	observe.Store(&checked)
	r, err := http.NewRequestWithContext(ctx, http.MethodPut, acme.URL("/api/contacts/fields/secret"), strings.NewReader(`{"type":"Encrypted"}`))
	if err != nil {
		t.Fatal(err)
	}
	r.Host = acme.Host
	r.Header.Set("X-Service-Token", ask.Token)
	r.Header.Set("Content-Type", "application/json")
	if resp, err := http.DefaultClient.Do(r); err == nil {
		resp.Body.Close()
		t.Fatalf("the call answered %s, want it to be cut", resp.Status)
	}
	select {
	case <-settled:
	case <-t.Context().Done():
	}

	if got := ask.Want(t, 200, http.MethodGet, "/api/contacts/fields/secret", ""); got.Field("type") != "Text" {
		t.Errorf("the field is %s, want it to be of type Text as before: a contact has a value in clear", got.Body)
	}
}
