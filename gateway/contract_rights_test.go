package gateway_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"

	"tenantry/gateway/control"
	"tenantry/gateway/gatewaytest"
	"tenantry/operation"
	"tenantry/tenants"
)

// actingAs asks as somebody for one organization.
type actingAs struct {
	*gatewaytest.Org
	as gatewaytest.Request
}

func (m actingAs) do(t *testing.T, method, path, body string, code int, contains string) *gatewaytest.Answer {
	t.Helper()
	change := []gatewaytest.Request{m.as}
	if body != "" {
		change = append(change, jsonText(body))
	}
	a := m.Do(t, method, path, change...)
	if a.Code != code || !strings.Contains(a.Text(), contains) {
		t.Fatalf("%s %s %s: %d %s\nwant %d with %q", method, path, body, a.Code, a.Text(), code, contains)
	}
	return a
}

func (m actingAs) make(t *testing.T, path, body string) string {
	t.Helper()
	a := m.do(t, http.MethodPost, path, body, 200, `"status":"ok"`)
	if n, ok := a.Field("id").(json.Number); ok {
		return n.String()
	}
	id, _ := a.Field("id").(string)
	return id
}

// TestNobodyGivesWhatTheyLack: no caller makes, changes or hands out a role, an account, a person or a key
// that holds more than they do, or sees more teams.
func TestNobodyGivesWhatTheyLack(t *testing.T) {
	t.Parallel()
	acme := gatewaytest.Start(t).Org(t, "acme", "teams")
	root := actingAs{acme, gatewaytest.WithKey(acme.Key(t, tenants.AllPermissions()...))}
	_, cookie := acme.Person(t, "ada@example.com", func(u *control.NewUser) { u.Roles = []string{"admin"} })
	admin := actingAs{acme, gatewaytest.Cookie(cookie)}
	team, other := root.make(t, "/api/teams", `{"name":"Red"}`), root.make(t, "/api/teams", `{"name":"Blue"}`)
	root.make(t, "/api/roles", `{"name":"editor","permissions":["manage_forms"]}`)
	root.make(t, "/api/roles", `{"name":"keeper","permissions":["manage_users","view_users"]}`)
	root.make(t, "/api/roles", `{"name":"helper","permissions":["manage_users"]}`)
	strong := root.make(t, "/api/service-accounts", `{"name":"strong","permissions":["manage_forms","manage_keys"]}`)
	weak := root.make(t, "/api/service-accounts", `{"name":"weak","permissions":["manage_keys","manage_users"]}`)
	seer := root.make(t, "/api/service-accounts", fmt.Sprintf(`{"name":"seer","permissions":["manage_users","manage_keys"],"teams":[%q]}`, team))
	editor := root.make(t, "/api/users", `{"name":"Ed","email":"ed@example.com","roles":["editor"]}`)
	boss := admin.make(t, "/api/users", `{"name":"Bo","email":"bo@example.com","roles":["admin"]}`)
	key := func(m actingAs, account, more string) actingAs {
		a := m.do(t, http.MethodPost, "/api/keys", fmt.Sprintf(`{"name":"k","kind":"server_full","account":%q%s}`, account, more), 200, `"token"`)
		token, _ := a.Field("token").(string)
		return actingAs{acme, gatewaytest.WithKey(token)}
	}
	keeper, limited := key(root, weak, ""), key(root, seer, "")
	weakKey := root.make(t, "/api/keys", fmt.Sprintf(`{"name":"w","kind":"server_full","account":%q}`, weak))
	strongKey := root.make(t, "/api/keys", fmt.Sprintf(`{"name":"s","kind":"server_full","account":%q}`, strong))

	lacks := "the caller lacks manage_forms, and nobody gives what they lack"
	holds := "The caller lacks manage_forms, which the record holds"
	for _, tt := range []struct {
		as                 actingAs
		method, path, body string
		code               int
		says               string
	}{
		{keeper, "POST", "/api/roles", `{"name":"mine","permissions":["manage_forms","manage_users"]}`, 422, lacks},
		{keeper, "PUT", "/api/roles/keeper", `{"permissions":["manage_forms"]}`, 403, "view_users"},
		{keeper, "PUT", "/api/roles/editor", `{"permissions":[]}`, 403, holds},
		{keeper, "PUT", "/api/roles/editor", `{"name":"admin"}`, 422, `"field":"name"`},
		{keeper, "POST", "/api/roles", `{"name":"admin"}`, 409, "duplicate"},
		{admin, "DELETE", "/api/roles/editor", "", 422, "held by user"},
		{admin, "POST", "/api/roles", `{"name":"admin"}`, 409, "duplicate"},
		{admin, "PUT", "/api/roles/admin", `{"permissions":[]}`, 422, "the role admin is built in"},
		{admin, "DELETE", "/api/roles/admin", "", 422, "the role admin is built in"},
		{keeper, "PUT", "/api/roles/admin", `{"label":"Boss"}`, 422, "the role admin is built in"},
		{keeper, "GET", "/api/roles/admin", "", 200, `"built_in":true`},
		{root, "POST", "/api/service-accounts", `{"name":"strong"}`, 409, "name is already in use"},
		{keeper, "POST", "/api/service-accounts", `{"name":"x","permissions":["manage_forms"]}`, 422, lacks},
		{keeper, "PUT", "/api/service-accounts/" + weak, `{"permissions":["manage_users","manage_forms"]}`, 422, lacks},
		{keeper, "PUT", "/api/service-accounts/" + strong, `{"name":"y"}`, 403, holds},
		{keeper, "DELETE", "/api/service-accounts/" + strong, "", 403, holds},
		{keeper, "POST", "/api/users", `{"name":"X","email":"x@example.com","roles":["editor"]}`, 422, lacks},
		{root, "POST", "/api/users", `{"name":"X","email":"x@example.com","roles":["admin"]}`, 422, "only an administrator gives the role admin"},
		{keeper, "PUT", "/api/users/" + editor, `{"email":"mine@example.com"}`, 403, holds},
		{root, "PUT", "/api/users/" + boss, `{"email":"mine@example.com"}`, 403, "Only an administrator"},
		{root, "POST", "/api/users/" + boss + "/invite", "", 403, "Only an administrator"},
		{root, "POST", "/api/users/" + boss + "/deactivate", "", 403, "Only an administrator"},
		{root, "PUT", "/api/users/" + editor, `{"roles":["editor","admin"]}`, 422, "only an administrator"},
		{keeper, "POST", "/api/users/" + editor + "/invite", "", 403, holds},
		{keeper, "POST", "/api/users/" + editor + "/deactivate", "", 403, holds},
		{keeper, "POST", "/api/users/" + editor + "/reactivate", "", 403, holds},
		{keeper, "POST", "/api/keys", fmt.Sprintf(`{"name":"x","kind":"server_full","account":%q}`, strong), 422, lacks},
		{keeper, "POST", "/api/keys", fmt.Sprintf(`{"name":"x","kind":"server_full","account":%q,"permissions":["manage_forms"]}`, weak), 422, "lacks manage_forms"},
		{keeper, "POST", "/api/keys/" + strongKey + "/rotate", `{}`, 422, lacks},
		{keeper, "DELETE", "/api/keys/" + strongKey, "", 403, holds},
		{limited, "DELETE", "/api/keys/" + weakKey, "", 403, "The caller lacks teams"},
		{limited, "POST", "/api/service-accounts", `{"name":"x"}`, 422, `"field":"teams"`},
		{limited, "POST", "/api/service-accounts", fmt.Sprintf(`{"name":"x","teams":[%q]}`, other), 422, `"field":"teams"`},
		{limited, "PUT", "/api/service-accounts/" + seer, `{"teams":null}`, 422, `"field":"teams"`},
		{limited, "PUT", "/api/service-accounts/" + weak, `{"name":"z"}`, 403, "The caller lacks teams"},
		{limited, "PUT", "/api/roles/helper", `{"permissions":["manage_users","manage_keys"]}`, 403, "The caller lacks teams"}, // an unlimited person may hold it
		{limited, "DELETE", "/api/roles/helper", "", 403, "The caller lacks teams"},
		{limited, "PUT", "/api/teams/" + other, `{"name":"Mine"}`, 403, "The caller lacks teams"},
		{limited, "POST", "/api/keys", fmt.Sprintf(`{"name":"x","kind":"server_full","account":%q}`, weak), 422, `"field":"teams"`},
	} {
		tt.as.do(t, tt.method, tt.path, tt.body, tt.code, tt.says)
	}
	// What is within one's own is given.
	keeper.make(t, "/api/roles", `{"name":"mine","permissions":["manage_users"]}`)
	own := keeper.make(t, "/api/users", `{"name":"Own","email":"own@example.com","roles":["mine"]}`)
	keeper.do(t, http.MethodPost, "/api/users/"+own+"/invite", "", 200, "/welcome#inv_")
	keeper.do(t, http.MethodPost, "/api/users/"+own+"/deactivate", "", 200, `"active":false`)
	limited.make(t, "/api/service-accounts", fmt.Sprintf(`{"name":"x","teams":[%q]}`, team))
	keeper.do(t, http.MethodDelete, "/api/keys/"+weakKey, "", 200, "Key revoked")
	limited.make(t, "/api/roles", `{"name":"theirs","permissions":["manage_users"]}`)
	limited.do(t, http.MethodPut, "/api/teams/"+team, `{"name":"Crimson"}`, 200, "Crimson")
	// The last administrator stays one.
	admin.do(t, http.MethodPost, "/api/users/"+boss+"/deactivate", "", 200, "User deactivated")
	me := admin.do(t, http.MethodGet, "/api/me", "", 200, "ada@example.com").Field("id").(json.Number).String()
	admin.do(t, http.MethodPut, "/api/users/"+me, `{"roles":[]}`, 422, "last active administrator")
	admin.do(t, http.MethodPost, "/api/users/"+me+"/deactivate", "", 422, "last active administrator")
	admin.do(t, http.MethodPut, "/api/me", `{"name":"Ada","roles":[]}`, 422, `"field":"roles"`)
	admin.do(t, http.MethodPut, "/api/me", `{"name":"Countess"}`, 200, "Countess")
	root.do(t, http.MethodGet, "/api/me", "", 403, "Token is either expired")
}

// TestKeysMakeNoStrongerKeys: a key that ends, or is used from somewhere alone, makes none that does more.
func TestKeysMakeNoStrongerKeys(t *testing.T) {
	t.Parallel()
	acme := gatewaytest.Start(t).Org(t, "acme")
	root := actingAs{acme, gatewaytest.WithKey(acme.Key(t, tenants.AllPermissions()...))}
	account := root.make(t, "/api/service-accounts", `{"name":"crm","permissions":["manage_keys"]}`)
	body := func(more string) string {
		return fmt.Sprintf(`{"name":"k","kind":"server_full","account":%q%s}`, account, more)
	}
	a := root.do(t, http.MethodPost, "/api/keys", body(`,"allowed_ips":["127.0.0.0/8","::1"],"expires_in":3600`), 200, "Key created")
	token, _ := a.Field("token").(string)
	id, _ := a.Field("id").(string)
	own := actingAs{acme, gatewaytest.WithKey(token)}
	own.do(t, http.MethodPost, "/api/keys", body(""), 422, `"field":"expires_in"`)
	own.do(t, http.MethodPost, "/api/keys", body(`,"expires_in":3000`), 422, `"field":"allowed_ips"`)
	own.do(t, http.MethodPost, "/api/keys", body(`,"expires_in":3000,"allowed_ips":["126.0.0.0/7"]`), 422, `"field":"allowed_ips"`)
	own.do(t, http.MethodPost, "/api/keys", body(`,"expires_in":3000,"allowed_ips":["127.1.0.0/16"]`), 200, "until ")
	own.do(t, http.MethodPost, "/api/keys/"+id+"/rotate", `{}`, 422, "none that it asks for may outlast it")
	own.do(t, http.MethodPost, "/api/keys", body(`,"expires_in":1,"allowed_ips":["x"],"origins":["https://a.example"],"permissions":["fly"]`), 422, `"field":"origins"`)

	// What is narrowed makes nothing that grows with the account.
	team := root.make(t, "/api/teams", `{"name":"Red"}`)
	narrowed := bearer(acme, root.do(t, http.MethodPost, "/api/keys", body(`,"permissions":["manage_keys"]`), 200, "token"))
	narrowed.do(t, http.MethodPost, "/api/keys", body(""), 422, "the key that asks is narrowed to manage_keys")
	narrowed.do(t, http.MethodPost, "/api/keys", body(`,"permissions":["manage_keys"]`), 200, "token")
	root.do(t, http.MethodPut, "/api/service-accounts/"+account, fmt.Sprintf(`{"teams":[%q]}`, team), 200, "")
	within := bearer(acme, root.do(t, http.MethodPost, "/api/keys", body(fmt.Sprintf(`,"teams":[%q]`, team)), 200, "token"))
	within.do(t, http.MethodPost, "/api/keys", body(""), 422, "the key that asks is narrowed to the teams "+team)
	within.do(t, http.MethodPost, "/api/keys", body(fmt.Sprintf(`,"teams":[%q]`, team)), 200, "token")

	// A rotation keeps the identifier; both texts go on for the overlap, and end together when it is revoked.
	next := root.do(t, http.MethodPost, "/api/keys/"+id+"/rotate", `{"overlap":60}`, 200, "old_token_until")
	if next.Field("id") != id || next.Field("token") == token {
		t.Errorf("rotated to %s", next.Text())
	}
	second, _ := next.Field("token").(string)
	for _, m := range []actingAs{own, {acme, gatewaytest.WithKey(second)}} {
		m.do(t, http.MethodGet, "/api/keys/"+id, "", 200, `"state":"active"`)
	}
	explain := "/api/authz/explain?operation="
	root.do(t, http.MethodGet, explain+"keys.list&subject=key:"+id, "", 200, `"allowed":true,"reasons":[]`)
	root.do(t, http.MethodGet, explain+"contacts.reveal&subject=key:"+id, "", 200, `"allowed":false,"reasons":["Lacking necessary permission contacts"]`)
	root.do(t, http.MethodGet, explain+"me.get&subject=key:"+id, "", 200, "does not take keys of kind server_full")
	root.do(t, http.MethodDelete, "/api/keys/"+id, "", 200, `"state":"revoked"`)
	root.do(t, http.MethodGet, explain+"keys.list&subject=key:"+id, "", 200, "revoked key")
	for _, m := range []actingAs{own, {acme, gatewaytest.WithKey(second)}} {
		m.do(t, http.MethodGet, "/api/keys/"+id, "", 403, "Token is either expired")
	}
	root.do(t, http.MethodGet, explain+"keys.list&subject=key:000000000000000000000000", "", 404, "Key not found")
	root.do(t, http.MethodGet, explain+"keys.list&subject=user:424242", "", 404, "User not found")
	// Who may not read people hears nothing of them here either.
	keys := root.make(t, "/api/service-accounts", `{"name":"keys alone","permissions":["manage_keys"]}`)
	alone, _ := root.do(t, http.MethodPost, "/api/keys", fmt.Sprintf(`{"name":"k","kind":"server_full","account":%q}`, keys), 200, "token").Field("token").(string)
	for _, who := range []string{root.make(t, "/api/users", `{"name":"Ed","email":"ed@example.com"}`), "424242"} {
		actingAs{acme, gatewaytest.WithKey(alone)}.do(t, http.MethodGet, explain+"keys.list&subject=user:"+who, "", 403, "The caller lacks view_users")
	}
	root.do(t, http.MethodGet, explain+"nothing.get&subject=8", "", 422, `"field":"subject"`)
	root.do(t, http.MethodGet, explain+"nothing.get&subject=user:1", "", 422, `"field":"operation"`)
	for _, nobody := range []string{"8", "team:8", "user:x", "user:", "user"} {
		root.do(t, http.MethodGet, explain+"keys.list&subject="+nobody, "", 422, `"field":"subject"`)
	}
}

// TestUsersAreListedWithoutRights: "The list endpoint does not return permissions and roles."
func TestUsersAreListedWithoutRights(t *testing.T) {
	t.Parallel()
	acme := gatewaytest.Start(t).Org(t, "acme")
	root := actingAs{acme, gatewaytest.WithKey(acme.Key(t, tenants.AllPermissions()...))}
	id := root.make(t, "/api/users", `{"name":"Ed","email":"ed@example.com","permissions":["manage_forms"]}`)
	if list := root.do(t, http.MethodGet, "/api/users", "", 200, "ed@example.com").Text(); strings.Contains(list, `"permissions"`) || strings.Contains(list, `"roles"`) {
		t.Error(list)
	}
	for _, path := range []string{"/api/users/" + id, "/api/users/" + id + "/deactivate"} {
		method := http.MethodGet
		if strings.HasSuffix(path, "deactivate") {
			method = http.MethodPost
		}
		root.do(t, method, path, "", 200, `"permissions":{"label":`)
	}
}

// TestWhatAKeyMay: what a key says it may do is what explain says of every operation, for each kind of key.
func TestWhatAKeyMay(t *testing.T) {
	t.Parallel()
	g := gatewaytest.Start(t)
	acme := g.Org(t, "acme", tenants.FeatureTeams)
	_, cookie := acme.Person(t, "root@example.com", func(u *control.NewUser) { u.Name, u.Roles = "Root", []string{"admin"} })
	root := actingAs{acme, gatewaytest.Cookie(cookie)}
	for _, kind := range []tenants.KeyKind{tenants.ServerFull, tenants.ServerRead, tenants.Browser} {
		told := func(held ...string) (may string, allowed map[string]bool) {
			id := acme.KeyWith(t, func(k *control.NewKey) {
				if k.Kind, k.Permissions = string(kind), held; kind == tenants.Browser {
					k.Origins = []string{"https://www.example.com"}
				}
			}).ID
			may, _ = root.do(t, http.MethodGet, "/api/keys/"+id, "", 200, "").Field("may").(string)
			allowed = map[string]bool{}
			for _, op := range g.App.Operations() {
				if op.Credentials&operation.Key != 0 {
					allowed[op.Name] = root.do(t, http.MethodGet, "/api/authz/explain?operation="+op.Name+"&subject=key:"+id, "", 200, "").Field("allowed") == true
				}
			}
			return may, allowed
		}
		may, bare := told()
		if strings.Contains(may, "no permission") != slices.Contains(slices.Collect(maps.Values(bare)), true) {
			t.Errorf("%s with nothing: %s, and may %v", kind, may, bare)
		}
		for _, one := range []tenants.Permission{tenants.Contacts, tenants.CreateFormSubmissions, tenants.ManageFiles, tenants.ManageUsers} {
			may, with := told(string(one))
			opens := false
			for name, allowed := range with {
				opens = opens || allowed && !bare[name]
			}
			if strings.Contains(may, string(one)) != opens {
				t.Errorf("%s with %s: %s", kind, one, may)
			}
		}
	}
}
