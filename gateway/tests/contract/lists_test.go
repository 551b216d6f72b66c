package contract

import (
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"tenantry/config"
	"tenantry/gateway"
	"tenantry/gateway/control"
	"tenantry/gateway/gatewaytest"
	"tenantry/gateway/tests/fixture"
	"tenantry/tenants"
)

// TestListsOfPeopleKeysAndFiles checks the filters and orders of files, people, users and keys.
func TestListsOfPeopleKeysAndFiles(t *testing.T) {
	t.Parallel()
	began := time.Date(2031, 5, 1, 12, 0, 0, 0, time.UTC)
	var later atomic.Int64 // seconds
	g := gatewaytest.Start(t, func(_ *config.Config, o *gateway.Options) {
		o.Now = func() time.Time { return began.Add(time.Duration(later.Load()) * time.Second) }
	})
	acme := g.Org(t, "acme")
	_, ada := acme.Person(t, "ada@example.com", func(u *control.NewUser) { u.Name, u.Roles = "Ada", []string{"admin"} })
	as := gatewaytest.Cookie(ada)
	do := func(method, path, body string) *gatewaytest.Answer {
		t.Helper()
		later.Add(1)
		with := []gatewaytest.Request{as}
		if body != "" {
			with = append(with, fixture.JSONText(body))
		}
		a := acme.Do(t, method, path, with...)
		if a.Code != http.StatusOK {
			t.Fatalf("%s %s: got %d %s, want %v", method, path, a.Code, a.Body, http.StatusOK)
		}
		return a
	}
	// listed reads a list to its end, two records at a time, and compares one field with the expected values.
	listed := func(path, field, want string) {
		t.Helper()
		var got []string
		for after, more := "", true; more; {
			a := do(http.MethodGet, path+"per_page=2&after="+after, "")
			for _, rec := range a.Field("results").([]any) {
				got = append(got, fmt.Sprint(rec.(map[string]any)[field]))
			}
			after = a.Field("next").(string)
			more = after != ""
		}
		if strings.Join(got, " ") != want {
			t.Errorf("%s: %v, want %s", path, got, want)
		}
	}
	for _, name := range []string{"walnut.pdf", "elm.pdf", "oak.pdf", "elm.pdf"} {
		do(http.MethodPost, "/api/files", `{"filename": "`+name+`", "mimetype": "application/pdf"}`)
	}
	listed("/api/files?sort=filename&", "filename", "elm.pdf elm.pdf oak.pdf walnut.pdf")
	listed("/api/files?sort=-filename&filters[filename][ne]=oak.pdf&", "filename", "walnut.pdf elm.pdf elm.pdf")

	do(http.MethodPost, "/api/roles", `{"name": "writer"}`)
	do(http.MethodPost, "/api/roles", `{"name": "editor"}`)
	bob := do(http.MethodPost, "/api/users", `{"name": "Zoe", "email": "bob@example.com", "roles": ["editor", "writer"]}`).Field("id")
	do(http.MethodPost, "/api/users", `{"name": "Mia", "email": "noa@example.com", "roles": ["writer"]}`)
	do(http.MethodPost, fmt.Sprintf("/api/users/%v/deactivate", bob), "")
	listed("/api/users?sort=name&", "name", "Ada Mia Zoe")
	listed("/api/users?sort=-name&", "name", "Zoe Mia Ada")
	listed("/api/users?sort=email&", "name", "Ada Zoe Mia")
	listed("/api/users?sort=-created_at&", "name", "Mia Zoe Ada")
	listed("/api/users?sort=email&filters[roles]=writer&", "name", "Zoe Mia")
	listed("/api/users?filters[roles][nin]=admin&filters[active]=true&", "name", "Mia")
	listed("/api/users?sort=name&filters[active]=false&", "name", "Zoe")
	listed("/api/roles?sort=-created_at&", "name", "admin editor writer")
	for after, want := "", []string{"admin", "editor", "writer"}; len(want) > 0; want = want[1:] {
		a := do(http.MethodGet, "/api/roles?sort=name&per_page=1&after="+after, "")
		if after, _ = a.Field("next").(string); !strings.Contains(a.Text(), `"results":[{"name":"`+want[0]+`"`) || (after == "") != (len(want) == 1) {
			t.Errorf("one at a time, %s: %s", want[0], a.Text())
		}
	}
	listed("/api/roles?filters[name]=editor&", "name", "editor")
	for page, want := range []string{"admin", "editor", "writer"} {
		for size, shown := range map[int]string{1: want, 2: map[int]string{0: "admin,editor", 1: "writer"}[page], 5: map[int]string{0: "admin,editor,writer"}[page]} {
			a := do(http.MethodGet, fmt.Sprintf("/api/roles?sort=name&per_page=%d&page=%d", size, page+1), "")
			var names []string
			for _, rec := range a.Field("results").([]any) {
				role := rec.(map[string]any)
				names = append(names, fmt.Sprint(role["name"]))
				if role["built_in"] != (role["name"] == "admin") {
					t.Errorf("built_in = %v, want it for admin only", role)
				}
			}
			if got := strings.Join(names, ","); got != shown || fmt.Sprint(a.Field("count")) != "3" || fmt.Sprint(a.Field("pages")) != fmt.Sprint((3+size-1)/size) {
				t.Errorf("page %d of %d: got %s, want %s, the count 3 and the number of pages: %s",
					page+1, size, got, shown, a.Text())
			}
		}
	}

	for _, name := range []string{"West", "East", "North"} {
		do(http.MethodPost, "/api/teams", `{"name": "`+name+`"}`)
	}
	listed("/api/teams?sort=-created_at&", "name", "North East West")
	listed("/api/teams?sort=created_at&filters[created_at][gt]="+began.Format(time.RFC3339)+"&", "name", "West East North")

	account := func(name, more string) string {
		t.Helper()
		return do(http.MethodPost, "/api/service-accounts", `{"name": "`+name+`"`+more+`}`).Field("id").(string)
	}
	web, sync := account("web", ""), account("sync", "")
	account("idle", `, "active": false`)
	listed("/api/service-accounts?sort=-created_at&", "name", "idle sync web")
	listed("/api/service-accounts?filters[active]=true&", "name", "web sync")

	key := func(name, kind, account, more string) string {
		t.Helper()
		return do(http.MethodPost, "/api/keys", `{"name": "`+name+`", "kind": "`+kind+`", "account": "`+account+`"`+more+`}`).Field("id").(string)
	}
	key("page", "browser", web, `, "origins": ["https://www.example.com"]`)
	key("short", "server_read", web, `, "expires_in": 60`)
	key("long", "server_full", sync, `, "expires_in": 86400`)
	gone := key("gone", "server_full", sync, `, "expires_in": 60`)
	do(http.MethodDelete, "/api/keys/"+gone, "")
	listed("/api/keys?sort=-created_at&", "name", "gone long short page")
	listed("/api/keys?sort=name&kind=server_full&", "name", "gone long")
	listed("/api/keys?sort=name&state=active&", "name", "long page short")
	later.Add(60)
	for state, want := range map[string]string{"active": "long page", "expired": "short", "revoked": "gone"} {
		listed("/api/keys?sort=name&state="+state+"&", "name", want)
		for _, rec := range do(http.MethodGet, "/api/keys?state="+state, "").Field("results").([]any) {
			if is := rec.(map[string]any)["state"]; is != state {
				t.Errorf("among %[1]s keys: state = %[2]v, want %[1]s", state, is)
			}
		}
	}
	listed("/api/keys?state=active&kind=browser&", "name", "page")
	for _, query := range []string{"state=gone", "kind=root", "state=", "sort=state"} {
		if a := acme.Do(t, http.MethodGet, "/api/keys?"+query, as); a.Code != http.StatusUnprocessableEntity {
			t.Errorf("%s: got %d %s, want %v", query, a.Code, a.Body, http.StatusUnprocessableEntity)
		}
	}
	if a := acme.Get(t, acme.Key(t, tenants.ManageFiles), "/api/files?sort=type"); a.Code != http.StatusUnprocessableEntity {
		t.Errorf("an order without an index: got %d %s, want 422", a.Code, a.Body)
	}
}
