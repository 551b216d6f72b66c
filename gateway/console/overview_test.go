package console_test

import (
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"tenantry/config"
	"tenantry/gateway"
	"tenantry/gateway/control"
	"tenantry/gateway/gatewaytest"
)

// TestOverviewShowsTheFirstConcerns checks that the overview names the first records that somebody should check, counts
// the others, and shows nobody a record that its list does not show them.
func TestOverviewShowsTheFirstConcerns(t *testing.T) {
	t.Parallel()
	const day = 24 * time.Hour
	var ahead atomic.Int64
	g, acme := start(t, func(_ *config.Config, o *gateway.Options) {
		o.Now = func() time.Time { return time.Now().Add(time.Duration(ahead.Load())) }
	})
	red, blue := "67e000000000000000000001", "67e000000000000000000002"
	report := func(id int, more string) string {
		return fmt.Sprintf(`{"kind":"custom_report","id":"67c%021d","pid":"report-%016d","title":"Report %d",`+
			`"class":"Contacts","query":{"measures":[{"op":"count"}]},"visual":"number",%s}`, id, id, id, more)
	}
	acme.Import(t, `{"kind":"team","id":"`+red+`","name":"Red"}`, `{"kind":"team","id":"`+blue+`","name":"Blue"}`,
		report(1, `"secure":false`), report(2, `"secure":false,"shareable":true,"teams":["`+red+`"]`),
		report(3, `"secure":false,"shareable":false`), report(4, `"secure":true`), report(5, `"secure":false`))

	key := func(name string, lasts time.Duration) control.IssuedKey {
		return acme.KeyWith(t, func(k *control.NewKey) {
			k.Name, k.Expires, k.Permissions = name, lasts, []string{"contacts"}
		})
	}
	key("unused 1", 0)
	ends := key("ends soon", 21*day)
	key("ends later", 60*day)
	revoked := key("revoked", 0)
	command(t, g, "key.revoke", control.KeyRef{Org: "acme", ID: revoked.ID})
	used := key("used", 0)
	acme.Get(t, used.Token, "/api/contacts")
	command(t, g, "key.list", control.Page{Org: "acme"}) // stores the uses
	ahead.Add(int64(8 * day))
	person := func(name string, permissions []string, teams ...string) string {
		_, cookie := acme.Person(t, name+"@example.com", func(n *control.NewUser) {
			n.Permissions, n.Teams = permissions, teams
			if name == "root" {
				n.Roles = []string{"admin"}
			}
		})
		return acme.Page(t, "/", gatewaytest.Cookie(cookie)).Text()
	}
	const unused = "The key \u2068%s\u2069 has never been used"
	const open = "The report \u2068Report %d\u2069 is open to everybody"
	soon := "The key \u2068ends soon\u2069 expires on " + ends.ExpiresAt.UTC().Format(time.DateOnly)
	checkConcerns(t, "an administrator", person("root", nil), fmt.Sprintf(unused, "unused 1"), soon,
		fmt.Sprintf(unused, "ends later"), fmt.Sprintf(open, 1), fmt.Sprintf(open, 2), fmt.Sprintf(open, 5))
	checkConcerns(t, "a person without permissions", person("nobody", nil))
	checkConcerns(t, "a person with keys", person("keeper", []string{"manage_keys"}),
		fmt.Sprintf(unused, "unused 1"), soon, fmt.Sprintf(unused, "ends later"))
	checkConcerns(t, "a person of the blue team", person("blue", []string{"manage_reports"}, blue),
		fmt.Sprintf(open, 1), fmt.Sprintf(open, 5))

	for i := range 10 {
		key(fmt.Sprintf("unused %d", i+2), 0)
	}
	ahead.Add(int64(8 * day))
	want := []string{fmt.Sprintf(unused, "ends later"), soon, "1 more of the keys", "3 more of the custom reports"}
	for i := range 10 {
		want = append(want, fmt.Sprintf(unused, fmt.Sprintf("unused %d", i+1)))
	}
	root := gatewaytest.Cookie(acme.SignIn(t, "root@example.com"))
	checkConcerns(t, "an administrator of more keys", acme.Page(t, "/", root).Text(), want...)
}

// checkConcerns checks that an overview tells of these concerns and of no others.
func checkConcerns(t *testing.T, who, page string, want ...string) {
	t.Helper()
	_, list, _ := strings.Cut(page, "<h2>Needs attention</h2><ul>")
	list, _, _ = strings.Cut(list, "</ul>")
	if got := strings.Count(list, "<li>"); got != len(want) {
		t.Errorf("%s: %d concerns, want %d: %s", who, got, len(want), list)
	}
	for _, text := range want {
		if !strings.Contains(list, text) {
			t.Errorf("%s: the list lacks %q: %s", who, text, list)
		}
	}
}

// command runs a command of the operator.
func command(t *testing.T, g *gatewaytest.Gateway, name string, in any) {
	t.Helper()
	if _, err := control.Call[any](t.Context(), g.Commands, name, in); err != nil {
		t.Fatalf("command %s: %v", name, err)
	}
}
