package contract

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
	"tenantry/gateway/tests/fixture"
	"tenantry/operation"
	"tenantry/tenants"
)

// TestCallersCannotGrantRightsTheyLack checks that no caller can create, change or assign a role, an account, a person
// or a key with more rights or teams than its own.
func TestCallersCannotGrantRightsTheyLack(t *testing.T) {
	t.Parallel()
	acme := gatewaytest.Start(t).Org(t, "acme", "teams")
	root := fixture.As(acme, gatewaytest.WithKey(acme.Key(t, tenants.AllPermissions()...)))
	_, cookie := acme.Person(t, "ada@example.com", func(u *control.NewUser) { u.Roles = []string{"admin"} })
	admin := fixture.As(acme, gatewaytest.Cookie(cookie))
	team, other := root.Create(t, "/api/teams", `{"name":"Red"}`), root.Create(t, "/api/teams", `{"name":"Blue"}`)
	root.Create(t, "/api/roles", `{"name":"editor","permissions":["manage_forms"]}`)
	root.Create(t, "/api/roles", `{"name":"keeper","permissions":["manage_users","view_users"]}`)
	root.Create(t, "/api/roles", `{"name":"helper","permissions":["manage_users"]}`)
	strong := root.Create(t, "/api/service-accounts", `{"name":"strong","permissions":["manage_forms","manage_keys"]}`)
	weak := root.Create(t, "/api/service-accounts", `{"name":"weak","permissions":["manage_keys","manage_users"]}`)
	seer := root.Create(t, "/api/service-accounts", fmt.Sprintf(`{"name":"seer","permissions":["manage_users","manage_keys"],"teams":[%q]}`, team))
	editor := root.Create(t, "/api/users", `{"name":"Ed","email":"ed@example.com","roles":["editor"]}`)
	boss := admin.Create(t, "/api/users", `{"name":"Bo","email":"bo@example.com","roles":["admin"]}`)
	key := func(m fixture.Client, account, more string) fixture.Client {
		a := m.Want(t, http.MethodPost, "/api/keys", fmt.Sprintf(`{"name":"k","kind":"server_full","account":%q%s}`, account, more), 200, `"token"`)
		token, _ := a.Field("token").(string)
		return fixture.As(acme, gatewaytest.WithKey(token))
	}
	keeper, limited := key(root, weak, ""), key(root, seer, "")
	weakKey := root.Create(t, "/api/keys", fmt.Sprintf(`{"name":"w","kind":"server_full","account":%q}`, weak))
	strongKey := root.Create(t, "/api/keys", fmt.Sprintf(`{"name":"s","kind":"server_full","account":%q}`, strong))

	lacks := "the caller lacks manage_forms, and cannot give permissions that they lack"
	holds := "The caller lacks manage_forms, which the record holds"
	for _, tt := range []struct {
		as                 fixture.Client
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
		{root, "POST", "/api/users", `{"name":"X","email":"x@example.com","roles":["admin"]}`, 422, "only an administrator can give the role admin"},
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
		tt.as.Want(t, tt.method, tt.path, tt.body, tt.code, tt.says)
	}
	// Rights that the caller has can be given.
	keeper.Create(t, "/api/roles", `{"name":"mine","permissions":["manage_users"]}`)
	own := keeper.Create(t, "/api/users", `{"name":"Own","email":"own@example.com","roles":["mine"]}`)
	keeper.Want(t, http.MethodPost, "/api/users/"+own+"/invite", "", 200, "/welcome#inv_")
	keeper.Want(t, http.MethodPost, "/api/users/"+own+"/deactivate", "", 200, `"active":false`)
	limited.Create(t, "/api/service-accounts", fmt.Sprintf(`{"name":"x","teams":[%q]}`, team))
	keeper.Want(t, http.MethodDelete, "/api/keys/"+weakKey, "", 200, "Key revoked")
	limited.Create(t, "/api/roles", `{"name":"theirs","permissions":["manage_users"]}`)
	limited.Want(t, http.MethodPut, "/api/teams/"+team, `{"name":"Crimson"}`, 200, "Crimson")
	// The last administrator stays an administrator.
	admin.Want(t, http.MethodPost, "/api/users/"+boss+"/deactivate", "", 200, "User deactivated")
	me := admin.Want(t, http.MethodGet, "/api/me", "", 200, "ada@example.com").Field("id").(json.Number).String()
	admin.Want(t, http.MethodPut, "/api/users/"+me, `{"roles":[]}`, 422, "last active administrator")
	admin.Want(t, http.MethodPost, "/api/users/"+me+"/deactivate", "", 422, "last active administrator")
	admin.Want(t, http.MethodPut, "/api/me", `{"name":"Ada","roles":[]}`, 422, `"field":"roles"`)
	admin.Want(t, http.MethodPut, "/api/me", `{"name":"Countess"}`, 200, "Countess")
	root.Want(t, http.MethodGet, "/api/me", "", 403, "Token is either expired")
}

// TestKeysCannotCreateStrongerKeys checks that a key that expires, or is limited to networks, cannot create one with
// wider limits.
func TestKeysCannotCreateStrongerKeys(t *testing.T) {
	t.Parallel()
	acme := gatewaytest.Start(t).Org(t, "acme")
	root := fixture.As(acme, gatewaytest.WithKey(acme.Key(t, tenants.AllPermissions()...)))
	account := root.Create(t, "/api/service-accounts", `{"name":"crm","permissions":["manage_keys"]}`)
	body := func(more string) string {
		return fmt.Sprintf(`{"name":"k","kind":"server_full","account":%q%s}`, account, more)
	}
	a := root.Want(t, http.MethodPost, "/api/keys", body(`,"allowed_ips":["127.0.0.0/8","::1"],"expires_in":3600`), 200, "Key created")
	token, _ := a.Field("token").(string)
	id, _ := a.Field("id").(string)
	own := fixture.As(acme, gatewaytest.WithKey(token))
	own.Want(t, http.MethodPost, "/api/keys", body(""), 422, `"field":"expires_in"`)
	own.Want(t, http.MethodPost, "/api/keys", body(`,"expires_in":3000`), 422, `"field":"allowed_ips"`)
	own.Want(t, http.MethodPost, "/api/keys", body(`,"expires_in":3000,"allowed_ips":["126.0.0.0/7"]`), 422, `"field":"allowed_ips"`)
	own.Want(t, http.MethodPost, "/api/keys", body(`,"expires_in":3000,"allowed_ips":["127.1.0.0/16"]`), 200, "until ")
	own.Want(t, http.MethodPost, "/api/keys/"+id+"/rotate", `{}`, 422, "the other key must not expire later")
	own.Want(t, http.MethodPost, "/api/keys", body(`,"expires_in":1,"allowed_ips":["x"],"origins":["https://a.example"],"permissions":["fly"]`), 422, `"field":"origins"`)

	// A narrowed key cannot create one that gains rights with the account.
	team := root.Create(t, "/api/teams", `{"name":"Red"}`)
	narrowed := fixture.TokenClient(acme, root.Want(t, http.MethodPost, "/api/keys", body(`,"permissions":["manage_keys"]`), 200, "token"))
	narrowed.Want(t, http.MethodPost, "/api/keys", body(""), 422, "the calling key is narrowed to manage_keys")
	narrowed.Want(t, http.MethodPost, "/api/keys", body(`,"permissions":["manage_keys"]`), 200, "token")
	root.Want(t, http.MethodPut, "/api/service-accounts/"+account, fmt.Sprintf(`{"teams":[%q]}`, team), 200, "")
	within := fixture.TokenClient(acme, root.Want(t, http.MethodPost, "/api/keys", body(fmt.Sprintf(`,"teams":[%q]`, team)), 200, "token"))
	within.Want(t, http.MethodPost, "/api/keys", body(""), 422, "the calling key is narrowed to the teams "+team)
	within.Want(t, http.MethodPost, "/api/keys", body(fmt.Sprintf(`,"teams":[%q]`, team)), 200, "token")

	// A rotation keeps the identifier. Both tokens work during the overlap, and end together when the key is revoked.
	next := root.Want(t, http.MethodPost, "/api/keys/"+id+"/rotate", `{"overlap":60}`, 200, "old_token_until")
	if next.Field("id") != id || next.Field("token") == token {
		t.Errorf("rotated: got %s, want the same id and another token", next.Text())
	}
	second, _ := next.Field("token").(string)
	for _, m := range []fixture.Client{own, fixture.As(acme, gatewaytest.WithKey(second))} {
		m.Want(t, http.MethodGet, "/api/keys/"+id, "", 200, `"state":"active"`)
	}
	explain := "/api/authz/explain?operation="
	root.Want(t, http.MethodGet, explain+"keys.list&subject=key:"+id, "", 200, `"allowed":true,"reasons":[]`)
	root.Want(t, http.MethodGet, explain+"contacts.reveal&subject=key:"+id, "", 200, `"allowed":false,"reasons":["Lacking necessary permission contacts"]`)
	root.Want(t, http.MethodGet, explain+"me.get&subject=key:"+id, "", 200, "does not take keys of kind server_full")
	root.Want(t, http.MethodDelete, "/api/keys/"+id, "", 200, `"state":"revoked"`)
	root.Want(t, http.MethodGet, explain+"keys.list&subject=key:"+id, "", 200, "revoked key")
	for _, m := range []fixture.Client{own, fixture.As(acme, gatewaytest.WithKey(second))} {
		m.Want(t, http.MethodGet, "/api/keys/"+id, "", 403, "Token is either expired")
	}
	root.Want(t, http.MethodGet, explain+"keys.list&subject=key:000000000000000000000000", "", 404, "Key not found")
	root.Want(t, http.MethodGet, explain+"keys.list&subject=user:424242", "", 404, "User not found")
	// A caller who may not read people sees none of them here either.
	keys := root.Create(t, "/api/service-accounts", `{"name":"keys alone","permissions":["manage_keys"]}`)
	alone, _ := root.Want(t, http.MethodPost, "/api/keys", fmt.Sprintf(`{"name":"k","kind":"server_full","account":%q}`, keys), 200, "token").Field("token").(string)
	for _, who := range []string{root.Create(t, "/api/users", `{"name":"Ed","email":"ed@example.com"}`), "424242"} {
		fixture.As(acme, gatewaytest.WithKey(alone)).Want(t, http.MethodGet, explain+"keys.list&subject=user:"+who, "", 403, "The caller lacks view_users")
	}
	root.Want(t, http.MethodGet, explain+"nothing.get&subject=8", "", 422, `"field":"subject"`)
	root.Want(t, http.MethodGet, explain+"nothing.get&subject=user:1", "", 422, `"field":"operation"`)
	for _, nobody := range []string{"8", "team:8", "user:x", "user:", "user"} {
		root.Want(t, http.MethodGet, explain+"keys.list&subject="+nobody, "", 422, `"field":"subject"`)
	}
}

// TestUsersAreListedWithoutRights checks the sentence "The list endpoint does not return permissions and roles."
func TestUsersAreListedWithoutRights(t *testing.T) {
	t.Parallel()
	acme := gatewaytest.Start(t).Org(t, "acme")
	root := fixture.As(acme, gatewaytest.WithKey(acme.Key(t, tenants.AllPermissions()...)))
	id := root.Create(t, "/api/users", `{"name":"Ed","email":"ed@example.com","permissions":["manage_forms"]}`)
	if list := root.Want(t, http.MethodGet, "/api/users", "", 200, "ed@example.com").Text(); strings.Contains(list, `"permissions"`) || strings.Contains(list, `"roles"`) {
		t.Errorf(`got %v, want nothing containing "\"permissions\"" and nothing containing "\"roles\""`, list)
	}
	for _, path := range []string{"/api/users/" + id, "/api/users/" + id + "/deactivate"} {
		method := http.MethodGet
		if strings.HasSuffix(path, "deactivate") {
			method = http.MethodPost
		}
		root.Want(t, method, path, "", 200, `"permissions":{"label":`)
	}
}

// TestRightsOfAKeyAgreeWithExplain checks that the rights a key lists agree with the explanation of every operation,
// for each kind of key.
func TestRightsOfAKeyAgreeWithExplain(t *testing.T) {
	t.Parallel()
	g := gatewaytest.Start(t)
	acme := g.Org(t, "acme", tenants.FeatureTeams)
	_, cookie := acme.Person(t, "root@example.com", func(u *control.NewUser) { u.Name, u.Roles = "Root", []string{"admin"} })
	root := fixture.As(acme, gatewaytest.Cookie(cookie))
	for _, kind := range []tenants.KeyKind{tenants.ServerFull, tenants.ServerRead, tenants.Browser} {
		told := func(held ...string) (may string, allowed map[string]bool) {
			id := acme.KeyWith(t, func(k *control.NewKey) {
				if k.Kind, k.Permissions = string(kind), held; kind == tenants.Browser {
					k.Origins = []string{"https://www.example.com"}
				}
			}).ID
			may, _ = root.Want(t, http.MethodGet, "/api/keys/"+id, "", 200, "").Field("may").(string)
			allowed = map[string]bool{}
			for _, op := range g.App.Operations() {
				if op.Credentials&operation.Key != 0 {
					allowed[op.Name] = root.Want(t, http.MethodGet, "/api/authz/explain?operation="+op.Name+"&subject=key:"+id, "", 200, "").Field("allowed") == true
				}
			}
			return may, allowed
		}
		may, bare := told()
		if strings.Contains(may, "no permission") != slices.Contains(slices.Collect(maps.Values(bare)), true) {
			t.Errorf("%s without permissions: may = %s, want it to agree with %v", kind, may, bare)
		}
		for _, one := range []tenants.Permission{tenants.Contacts, tenants.CreateFormSubmissions, tenants.ManageFiles, tenants.ManageUsers} {
			may, with := told(string(one))
			opens := false
			for name, allowed := range with {
				opens = opens || allowed && !bare[name]
			}
			if strings.Contains(may, string(one)) != opens {
				t.Errorf("%[1]s with %[2]s: may = %[3]s, want the permission: %[4]t", kind, one, may, opens)
			}
		}
	}
}
