package keys_test

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"tenantry/backends/store"
	"tenantry/crypto/secret"
	"tenantry/internal/fault"
	"tenantry/tenants"
	"tenantry/tenants/identity"
	"tenantry/tenants/keys"
	"tenantry/tenants/tenantstest"
)

func TestAllowedAddresses(t *testing.T) {
	t.Parallel()
	w := tenantstest.New(t, tenantstest.Options{})
	tenant := w.Tenant(t, "acme")
	token := issue(t, w, tenant, keys.NewKey{AllowIPs: []string{"192.0.2.0/24", "2001:db8::/32", "::ffff:198.51.100.9"}}).Token.Reveal()
	for round, prepare := range []func(){func() {}, func() {}, func() { w.Second(t, tenantstest.Options{}) }} {
		prepare()
		for addr, want := range map[string]bool{
			"192.0.2.7": true, "::ffff:192.0.2.7": true, "2001:db8::1": true, "2001:db8::1%eth0": true, "198.51.100.9": true,
			"192.0.3.7": false, "2001:db9::1": false, "198.51.100.8": false, "": false,
		} {
			remote, _ := netip.ParseAddr(addr)
			_, err := w.Keys.Authenticate(t.Context(), w.Fresh(t, "acme"), token, remote)
			if want && err != nil || !want && !errors.Is(err, tenants.ErrDenied) {
				t.Errorf("round %d, from %q: %v", round, addr, err)
			}
		}
	}
}

// limitedAccount makes two teams, and an account that is limited to the first of them and has the permissions.
func limitedAccount(t *testing.T, permissions ...tenants.Permission) (w *tenantstest.World, tenant *tenants.Tenant, teams []string, account *identity.Account) {
	t.Helper()
	w = tenantstest.New(t, tenantstest.Options{})
	tenant = w.Tenant(t, "acme", tenants.FeatureTeams)
	for _, name := range []string{"red", "blue"} {
		team, err := w.People.CreateTeam(t.Context(), tenant, identity.Team{Name: name})
		if err != nil {
			t.Fatal(err)
		}
		teams = append(teams, team.ID)
	}
	account, err := w.People.CreateAccount(t.Context(), tenant, identity.Account{Active: true, Name: "limited", Permissions: permissions, Teams: teams[:1]})
	if err != nil {
		t.Fatal(err)
	}
	return w, tenant, teams, account
}

func TestNarrowing(t *testing.T) {
	t.Parallel()
	w, tenant, teams, limited := limitedAccount(t, tenants.Contacts, tenants.ManageForms)
	tests := []struct {
		name        string
		permissions []tenants.Permission
		teams       []string
		wantMay     []tenants.Permission
		want        store.Scope
	}{
		{"as the account", nil, nil, []tenants.Permission{tenants.Contacts, tenants.ManageForms}, store.Scope{Teams: teams[:1]}},
		{"fewer permissions", []tenants.Permission{tenants.Contacts}, nil, []tenants.Permission{tenants.Contacts}, store.Scope{Teams: teams[:1]}},
		{"more permissions", []tenants.Permission{tenants.ManageFiles}, nil, nil, store.Scope{Teams: teams[:1]}},
		{"more teams", nil, teams, []tenants.Permission{tenants.Contacts, tenants.ManageForms}, store.Scope{Teams: teams[:1]}},
		{"no common team", nil, teams[1:], []tenants.Permission{tenants.Contacts, tenants.ManageForms}, store.Scope{}},
	}
	for _, tt := range tests {
		hold := func(teams []string, permissions ...tenants.Permission) {
			if _, err := w.People.UpdateAccount(t.Context(), tenant, limited, func(a *identity.Account) error {
				a.Teams, a.Permissions = teams, permissions
				return nil
			}); err != nil {
				t.Fatal(err)
			}
		}
		hold(nil, tenants.AllPermissions()...) // it held more when the key was made
		token := issue(t, w, tenant, keys.NewKey{Name: tt.name, Account: limited.ID, Permissions: tt.permissions, Teams: tt.teams}).Token.Reveal()
		hold(teams[:1], tenants.Contacts, tenants.ManageForms)
		for _, from := range []string{"store", "process", "redis"} {
			if from == "redis" {
				w.Second(t, tenantstest.Options{})
			}
			p, err := authenticate(t, w, "acme", token)
			if err != nil {
				t.Fatal(err)
			}
			scope := p.Scope(tenant, nil)
			if scope.All || !slices.Equal(scope.Teams, tt.want.Teams) {
				t.Errorf("%s, from the %s: scope %+v, want %+v", tt.name, from, scope, tt.want)
			}
			for _, permission := range tenants.AllPermissions() {
				if p.May(permission) != slices.Contains(tt.wantMay, permission) {
					t.Errorf("%s, from the %s: may %s: %v", tt.name, from, permission, p.May(permission))
				}
			}
		}
	}
}

func TestRotate(t *testing.T) {
	t.Parallel()
	w := tenantstest.New(t, tenantstest.Options{})
	tenant := w.Tenant(t, "acme")
	old := issue(t, w, tenant, keys.NewKey{Permissions: []tenants.Permission{tenants.Contacts}})
	next, err := w.Keys.Rotate(t.Context(), tenant, old.Key.ID, time.Hour, nil)
	if err != nil {
		t.Fatal(err)
	}
	both := func(oldWant error) {
		t.Helper()
		if _, err := authenticate(t, w, "acme", old.Token.Reveal()); !errors.Is(err, oldWant) {
			t.Errorf("the old key: %v, want %v", err, oldWant)
		}
		if p, err := authenticate(t, w, "acme", next.Token.Reveal()); err != nil || !p.May(tenants.Contacts) {
			t.Errorf("the new key: %+v, %v", p, err)
		}
	}
	both(nil)
	w.Clock.Advance(time.Hour)
	both(tenants.ErrDenied)
	if next.Key.ID != old.Key.ID {
		t.Errorf("key %s became %s", old.Key.ID, next.Key.ID)
	}
	last, err := w.Keys.Rotate(t.Context(), tenant, next.Key.ID, 0, nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := authenticate(t, w, "acme", next.Token.Reveal()); !errors.Is(err, tenants.ErrDenied) {
		t.Errorf("rotated without overlap: %v", err)
	}
	if _, err := authenticate(t, w, "acme", last.Token.Reveal()); err != nil {
		t.Error(err)
	}
	if found, total, err := w.Keys.List(t.Context(), tenant, identity.Page{}); err != nil || total != 1 || len(found) != 1 {
		t.Errorf("listed %d of %d, %v", len(found), total, err)
	}
}

// TestColdLookupOfAKeyUsesIndexes checks that a look-up in the store queries the token's hash, and then those of
// replaced tokens, each by its index. SQLite would answer their disjunction by reading every key.
func TestColdLookupOfAKeyUsesIndexes(t *testing.T) {
	t.Parallel()
	w := tenantstest.New(t, tenantstest.Options{})
	tenant := w.Tenant(t, "acme")
	old := issue(t, w, tenant, keys.NewKey{})
	next, err := w.Keys.Rotate(t.Context(), tenant, old.Key.ID, time.Hour, nil)
	if err != nil {
		t.Fatal(err)
	}
	var looks atomic.Int64
	w.Engine.AfterRead(func(collection string) {
		if collection == "keys" {
			looks.Add(1)
		}
	})
	for i, token := range []string{next.Token.Reveal(), old.Token.Reveal()} {
		looks.Store(0)
		if _, err := authenticate(t, w, "acme", token); err != nil || looks.Load() != int64(i+1) {
			t.Errorf("token %d: %v, after %d questions", i, err, looks.Load())
		}
	}
}

func TestRotateKeepsTheLifetimeAsIssued(t *testing.T) {
	t.Parallel()
	w := tenantstest.New(t, tenantstest.Options{})
	tenant := w.Tenant(t, "acme")
	for name, lifetime := range map[string]time.Duration{"for ever": 0, "a month": 30 * 24 * time.Hour} {
		old := issue(t, w, tenant, keys.NewKey{Name: name, Lifetime: lifetime})
		for round := range 3 {
			next, err := w.Keys.Rotate(t.Context(), tenant, old.Key.ID, time.Hour, nil)
			if err != nil {
				t.Fatal(err)
			}
			left := time.UnixMilli(next.Key.ExpiresAt).Sub(w.Clock.Now())
			if lifetime == 0 && next.Key.ExpiresAt != 0 || lifetime != 0 && (left > lifetime || left < lifetime-time.Minute) {
				t.Errorf("%s, round %d: the successor ends at %d, in %v", name, round, next.Key.ExpiresAt, left)
			}
		}
	}
}

func TestRotateIsRefused(t *testing.T) {
	t.Parallel()
	w := tenantstest.New(t, tenantstest.Options{})
	tenant := w.Tenant(t, "acme")
	revoked, inactive := issue(t, w, tenant, keys.NewKey{Name: "revoked"}), issue(t, w, tenant, keys.NewKey{Name: "inactive"})
	if _, err := w.Keys.Revoke(t.Context(), tenant, revoked.Key.ID, nil); err != nil {
		t.Fatal(err)
	}
	if _, err := w.People.UpdateAccount(t.Context(), tenant, &inactive.Account, deactivated); err != nil {
		t.Fatal(err)
	}
	expired := issue(t, w, tenant, keys.NewKey{Name: "expired", Lifetime: time.Hour})
	w.Clock.Advance(time.Hour)
	for _, c := range []struct {
		key     *keys.Issued
		overlap time.Duration
		field   string
	}{{revoked, 0, "id"}, {expired, 0, "id"}, {inactive, 0, "account"}, {inactive, -1, "overlap"}, {inactive, keys.MaxLifetime + 1, "overlap"}} {
		_, err := w.Keys.Rotate(t.Context(), tenant, c.key.Key.ID, c.overlap, nil)
		var invalid *fault.Error
		if !errors.As(err, &invalid) || !slices.ContainsFunc(invalid.Faults, func(f fault.Fault) bool { return f.Field == c.field }) {
			t.Errorf("key %s, overlap %v: %v, want a fault of %s", c.key.Key.Name, c.overlap, err, c.field)
		}
	}
	if _, total, err := w.Keys.List(t.Context(), tenant, identity.Page{}); err != nil || total != 3 {
		t.Errorf("%d keys after refusals, %v", total, err)
	}
}

// TestTakeBackAffectsOnlyItsOwnRotation checks that a rotation is not undone if the key was rotated again meanwhile.
func TestTakeBackAffectsOnlyItsOwnRotation(t *testing.T) {
	t.Parallel()
	w := tenantstest.New(t, tenantstest.Options{})
	tenant := w.Tenant(t, "acme")
	old := issue(t, w, tenant, keys.NewKey{})
	first, err := w.Keys.Rotate(t.Context(), tenant, old.Key.ID, 0, nil)
	if err != nil {
		t.Fatal(err)
	}
	second, err := w.Keys.Rotate(t.Context(), tenant, old.Key.ID, 0, nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := first.TakeBack(t.Context()); !errors.Is(err, store.ErrConflict) {
		t.Errorf("the first is taken back: %v", err)
	}
	if _, err := authenticate(t, w, "acme", second.Token.Reveal()); err != nil {
		t.Errorf("the second: %v", err)
	}
	if _, err := authenticate(t, w, "acme", old.Token.Reveal()); !errors.Is(err, tenants.ErrDenied) {
		t.Errorf("the key before both: %v", err)
	}
}

func TestIssueNamesEveryFault(t *testing.T) {
	t.Parallel()
	w := tenantstest.New(t, tenantstest.Options{})
	tenant := w.Tenant(t, "acme")
	_, err := w.Keys.Issue(t.Context(), tenant, keys.NewKey{
		Kind: "root", Account: "nobody", Permissions: []tenants.Permission{"fly"}, Teams: []string{"x", strings.Repeat("a", 24)},
		AllowIPs: []string{"10.0.0.0/33"}, Origins: []string{"https://a.example/path"}, Lifetime: -1,
	})
	var invalid *fault.Error
	if !errors.As(err, &invalid) {
		t.Fatal(err)
	}
	var got []string
	for _, f := range invalid.Faults {
		got = append(got, f.Field)
	}
	want := []string{"account", "allow_ips", "expires", "kind", "name", "origins", "origins", "permissions", "teams"}
	if slices.Sort(got); !slices.Equal(got, want) {
		t.Errorf("faults of %v, want %v", got, want)
	}
	if _, total, err := w.People.Accounts(t.Context(), tenant, identity.Page{}); err != nil || total != 0 {
		t.Errorf("a refused key left %d accounts, %v", total, err)
	}
}

// TestBoundsOfAKey checks the largest accepted value of each field, and the smallest refused one.
func TestBoundsOfAKey(t *testing.T) {
	t.Parallel()
	w, tenant, teams, limited := limitedAccount(t, tenants.Contacts)
	page := func(n keys.NewKey) keys.NewKey {
		n.Kind = tenants.Browser
		if n.Origins == nil {
			n.Origins = []string{"https://app.example.com"}
		}
		return n
	}
	for name, tt := range map[string]struct {
		n    keys.NewKey
		want string // field and code of the fault
	}{
		"longest":                       {keys.NewKey{Lifetime: keys.MaxLifetime}, ""},
		"longer":                        {keys.NewKey{Lifetime: keys.MaxLifetime + 1}, "expires range"},
		"most work":                     {page(keys.NewKey{ProofOfWork: keys.MaxProofOfWork}), ""},
		"more work":                     {page(keys.NewKey{ProofOfWork: keys.MaxProofOfWork + 1}), "proof_of_work range"},
		"less than no work":             {page(keys.NewKey{ProofOfWork: -1}), "proof_of_work range"},
		"work of a server":              {keys.NewKey{ProofOfWork: 1}, "proof_of_work range"},
		"many addresses":                {keys.NewKey{AllowIPs: slices.Repeat([]string{"192.0.2.1"}, 100)}, ""},
		"too many addresses":            {keys.NewKey{AllowIPs: slices.Repeat([]string{"192.0.2.1"}, 101)}, "allow_ips length"},
		"mapped addresses":              {keys.NewKey{AllowIPs: []string{"::ffff:10.0.0.0/104"}}, ""},
		"more than the mapped":          {keys.NewKey{AllowIPs: []string{"::ffff:10.0.0.0/95"}}, "allow_ips format"},
		"page without origins":          {page(keys.NewKey{Origins: []string{}}), "origins required"},
		"server with origins":           {keys.NewKey{Origins: []string{"https://app.example.com"}}, "origins forbidden"},
		"many origins":                  {page(keys.NewKey{Origins: slices.Repeat([]string{"https://app.example.com"}, 100)}), ""},
		"too many origins":              {page(keys.NewKey{Origins: slices.Repeat([]string{"https://app.example.com"}, 101)}), "origins length"},
		"team of the account":           {keys.NewKey{Account: limited.ID, Teams: teams[:1]}, ""},
		"team that the account has not": {keys.NewKey{Account: limited.ID, Teams: teams}, "teams forbidden"},
		"right that the account lacks":  {keys.NewKey{Account: limited.ID, Permissions: []tenants.Permission{tenants.ManageFiles}}, "permissions forbidden"},
	} {
		if tt.n.Name = name; tt.n.Kind == "" {
			tt.n.Kind = tenants.ServerFull
		}
		_, err := w.Keys.Issue(t.Context(), tenant, tt.n)
		got := ""
		if wrong, ok := errors.AsType[*fault.Error](err); ok {
			got = wrong.Faults[0].Field + " " + wrong.Faults[0].Code
		}
		if got != tt.want || (err == nil) != (tt.want == "") {
			t.Errorf("%s: %v, want %q", name, err, tt.want)
		}
	}
}

func deactivated(a *identity.Account) error {
	a.Active = false
	return nil
}

// TestRotatedKeyPastItsOverlapIsRefusedByTheStore covers a replica that has not cached the key, and learns the end of
// the overlap from the store only.
func TestRotatedKeyPastItsOverlapIsRefusedByTheStore(t *testing.T) {
	t.Parallel()
	w := tenantstest.New(t, tenantstest.Options{})
	tenant := w.Tenant(t, "acme")
	old := issue(t, w, tenant, keys.NewKey{})
	next, err := w.Keys.Rotate(t.Context(), tenant, old.Key.ID, time.Hour, nil)
	if err != nil {
		t.Fatal(err)
	}
	w.Clock.Advance(time.Hour)
	for range 2 { // cold, then with what the first look-up left behind
		if _, err := authenticate(t, w, "acme", old.Token.Reveal()); !errors.Is(err, tenants.ErrDenied) {
			t.Errorf("the old key, first seen after its overlap: %v, want %v", err, tenants.ErrDenied)
		}
	}
	if _, err := authenticate(t, w, "acme", next.Token.Reveal()); err != nil {
		t.Errorf("the new key: %v", err)
	}
}

// TestEveryOverlapIsKept checks that a rotation within the overlap of another ends no token early, and that Rotated
// returns when each ends.
func TestEveryOverlapIsKept(t *testing.T) {
	t.Parallel()
	w := tenantstest.New(t, tenantstest.Options{})
	tenant := w.Tenant(t, "acme")
	first := issue(t, w, tenant, keys.NewKey{})
	all := []secret.String{first.Token}
	rotate := func(overlap time.Duration) (*keys.Issued, error) {
		next, err := w.Keys.Rotate(t.Context(), tenant, first.Key.ID, overlap, nil)
		if err == nil {
			all = append(all, next.Token)
		}
		return next, err
	}
	good := func(want string) {
		t.Helper()
		got := ""
		for i, token := range all {
			switch _, err := authenticate(t, w, "acme", token.Reveal()); {
			case err == nil:
				got += fmt.Sprint(i)
			case !errors.Is(err, tenants.ErrDenied):
				t.Fatal(err)
			}
		}
		if got != want {
			t.Errorf("accepted: %s, want %s", got, want)
		}
	}
	for _, overlap := range []time.Duration{3 * time.Hour, time.Hour, 2 * time.Hour} {
		if _, err := rotate(overlap); err != nil {
			t.Fatal(err)
		}
	}
	good("0123")
	last, err := rotate(0)
	if err != nil {
		t.Fatal(err)
	}
	good("0124")
	now := w.Clock.Now()
	var ends []time.Duration
	for _, o := range last.Key.Rotated(now) {
		ends = append(ends, time.UnixMilli(o.Until).Sub(now).Round(time.Minute))
	}
	if fmt.Sprint(ends) != "[2h0m0s 1h0m0s 3h0m0s]" {
		t.Errorf("they end in %v", ends)
	}
	w.Clock.Advance(time.Hour)
	good("024")
	w.Clock.Advance(2 * time.Hour)
	good("4")
	for range 8 {
		if _, err := rotate(time.Hour); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := rotate(time.Hour); err == nil || !strings.Contains(err.Error(), "the most allowed") {
		t.Errorf("a ninth overlap: %v", err)
	}
	good("456789101112")
	if _, err := w.Keys.Revoke(t.Context(), tenant, first.Key.ID, nil); err != nil {
		t.Fatal(err)
	}
	good("")
}

// TestCoversNetworks checks that a key narrowed to networks covers only keys narrowed to the same networks or parts of
// them.
func TestCoversNetworks(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		own, wanted string
		covered     bool
	}{
		{"10.1.0.0/16", "10.1.0.0/16", true},
		{"10.1.0.0/16", "10.1.2.0/24", true},
		{"10.1.0.0/16", "10.1.2.3", true},
		{"10.1.0.0/16", "10.0.0.0/8", false}, // around its own
		{"10.1.0.0/16", "10.1.0.0/15", false},
		{"10.1.0.0/16", "0.0.0.0/0", false},
		{"10.1.0.0/16", "10.2.0.0/16", false},
		{"10.1.0.0/16", "10.1.0.0/24 10.2.0.0/24", false},
		{"10.1.0.0/16 10.2.0.0/16", "10.1.0.0/24 10.2.0.0/24", true},
		{"10.1.0.0/16", "", false},
		{"", "0.0.0.0/0", true},
		{"2001:db8::/48", "2001:db8::/64", true},
		{"2001:db8::/48", "2001:db8::/32", false},
		{"10.1.0.0/16", "::ffff:10.1.0.0/112", true},
		{"10.1.0.0/16", "::ffff:10.0.0.0/104", false},
	} {
		own, wanted := keys.Key{AllowIPs: strings.Fields(c.own)}, keys.Key{AllowIPs: strings.Fields(c.wanted)}
		if err := own.Covers(&wanted); (err == nil) != c.covered {
			t.Errorf("a key of %q asks for one of %q: %v, want covered %v", c.own, c.wanted, err, c.covered)
		}
	}
}
