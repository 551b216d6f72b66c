package secrets_test

import (
	"context"
	"testing"

	"tenantry/backends/store"
	"tenantry/crypto/sealing"
	"tenantry/internal/fault"
	"tenantry/tenants"
	"tenantry/tenants/secrets"
	"tenantry/tenants/tenantstest"
)

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// TestVault_TakesOnlyValuesOfThePlace checks that a value encrypted for one field of one record is accepted only there,
// in whichever form it is carried.
func TestVault_TakesOnlyValuesOfThePlace(t *testing.T) {
	t.Parallel()
	w := tenantstest.New(t, tenantstest.Options{})
	create := func(slug string) *tenants.Tenant {
		org, err := w.Directory.Create(t.Context(), tenants.NewOrganization{Slug: slug, Name: slug})
		must(t, err)
		return org
	}
	acme, other := create("acme"), create("other")
	key, err := sealing.NewPrivateKey()
	must(t, err)
	stranger, err := sealing.NewPrivateKey()
	must(t, err)
	take := func(v *secrets.Vault, at secrets.Place, field string, value any) (map[string]secrets.Value, fault.List) {
		var errs fault.List
		values := map[string]any{field: value, "plain": "p"}
		given := v.Take(t.Context(), at, "fields", values, func(name string) bool { return name != "plain" }, &errs)
		if len(values) != 1 {
			t.Errorf("secrets left in values: %v, want none", values)
		}
		return given, errs
	}

	ann := secrets.Place{Collection: "contacts", Record: "ann"}
	home := &secrets.Vault{Keys: w.Directory, Tenant: acme}
	given, errs := take(home, ann, "ssn", "AAA")
	must(t, errs.Err())
	var stored map[string]string
	if changed, err := home.Put(t.Context(), ann, &stored, given); err != nil || !changed || stored["ssn"] == "AAA" {
		t.Fatalf("stored as %v, %v", stored, err)
	}
	if plain, err := home.Open(t.Context(), ann, "ssn", stored["ssn"]); err != nil || plain.Reveal() != "AAA" {
		t.Fatal(err)
	}
	before := stored["ssn"]
	if changed, err := home.Put(t.Context(), ann, &stored, given); err != nil || changed || stored["ssn"] != before {
		t.Errorf("an equal value was encrypted again: %v", err)
	}

	kept, err := home.Show(t.Context(), ann, stored)
	must(t, err)
	carried, err := (&secrets.Vault{Keys: w.Directory, Tenant: acme, SealTo: key.Public()}).Show(t.Context(), ann, stored)
	must(t, err)
	with := func(t *tenants.Tenant, key *sealing.PrivateKey) *secrets.Vault {
		return &secrets.Vault{Keys: w.Directory, Tenant: t, OpenWith: key}
	}
	bob, thing := secrets.Place{Collection: "contacts", Record: "bob"}, secrets.Place{Collection: "records", Record: "ann"}
	for name, c := range map[string]struct {
		vault *secrets.Vault
		at    secrets.Place
		field string
		value any
		ok    bool
	}{
		"kept, its own place":             {home, ann, "ssn", kept["ssn"], true},
		"kept, another field":             {home, ann, "iban", kept["ssn"], false},
		"kept, another record":            {home, bob, "ssn", kept["ssn"], false},
		"kept, another collection":        {home, thing, "ssn", kept["ssn"], false},
		"kept, another organization":      {with(other, nil), ann, "ssn", kept["ssn"], false},
		"not sealed":                      {home, ann, "ssn", map[string]any{"enc": "AAA"}, false},
		"no text":                         {home, ann, "ssn", 5, false},
		"carried, its own place":          {with(acme, key), ann, "ssn", carried["ssn"], true},
		"carried to another organization": {with(other, key), ann, "ssn", carried["ssn"], true},
		"carried, another field":          {with(other, key), ann, "iban", carried["ssn"], false},
		"carried, another record":         {with(other, key), bob, "ssn", carried["ssn"], false},
		"carried, no key":                 {with(other, nil), ann, "ssn", carried["ssn"], false},
		"carried, another key":            {with(other, stranger), ann, "ssn", carried["ssn"], false},
	} {
		given, errs := take(c.vault, c.at, c.field, c.value)
		if _, taken := given[c.field]; taken != c.ok || (len(errs) == 0) != c.ok {
			t.Errorf("%s: taken %v, %v", name, taken, errs)
		}
		if !c.ok {
			continue
		}
		var again map[string]string
		_, err := c.vault.Put(t.Context(), c.at, &again, given)
		must(t, err)
		if plain, err := c.vault.Open(t.Context(), c.at, c.field, again[c.field]); err != nil || plain.Reveal() != "AAA" {
			t.Errorf(`%s: got %v, want no error and plain.Reveal() = "AAA"`, name, err)
		}
	}
}

// silent are keys that do not answer.
type silent struct{}

func (silent) DataKeys(context.Context, *tenants.Tenant, string) (*tenants.DataKeys, error) {
	return nil, store.ErrUnavailable
}

// TestVault_OutageIsNotARefusal checks that a value which cannot be opened during an outage is not reported as
// encrypted for another place.
func TestVault_OutageIsNotARefusal(t *testing.T) {
	t.Parallel()
	w := tenantstest.New(t, tenantstest.Options{})
	acme, err := w.Directory.Create(t.Context(), tenants.NewOrganization{Slug: "acme", Name: "acme"})
	must(t, err)
	ann := secrets.Place{Collection: "contacts", Record: "ann"}
	home := &secrets.Vault{Keys: w.Directory, Tenant: acme}
	every := func(string) bool { return true }
	var errs fault.List
	var stored map[string]string
	_, err = home.Put(t.Context(), ann, &stored, home.Take(t.Context(), ann, "fields", map[string]any{"ssn": "AAA"}, every, &errs))
	must(t, err)
	kept, err := home.Show(t.Context(), ann, stored)
	must(t, err)

	home.Keys = silent{}
	taken := home.Take(t.Context(), ann, "fields", kept, every, &errs)
	if len(taken) != 0 || len(errs) != 1 || errs[0].Code != fault.Unavailable {
		t.Errorf("keys that do not answer: %v, %+v", taken, errs)
	}
}

// TestVault_KeptForAnotherRecord covers a value encrypted for one record and stored in another, as when an import finds
// the record by another field than its ID: the value is encrypted again for the record that stores it.
func TestVault_KeptForAnotherRecord(t *testing.T) {
	t.Parallel()
	w := tenantstest.New(t, tenantstest.Options{})
	acme, err := w.Directory.Create(t.Context(), tenants.NewOrganization{Slug: "acme", Name: "acme"})
	must(t, err)
	ann, bob := secrets.Place{Collection: "contacts", Record: "ann"}, secrets.Place{Collection: "contacts", Record: "bob"}
	vault := &secrets.Vault{Keys: w.Directory, Tenant: acme}
	every := func(string) bool { return true }
	var errs fault.List
	var stored map[string]string
	_, err = vault.Put(t.Context(), ann, &stored, vault.Take(t.Context(), ann, "fields", map[string]any{"ssn": "AAA"}, every, &errs))
	must(t, err)
	kept, err := vault.Show(t.Context(), ann, stored)
	must(t, err)

	given := vault.Take(t.Context(), ann, "fields", kept, every, &errs)
	must(t, errs.Err())
	var moved map[string]string
	if changed, err := vault.Put(t.Context(), bob, &moved, given); err != nil || !changed {
		t.Fatalf("changed %v, %v", changed, err)
	}
	if plain, err := vault.Open(t.Context(), bob, "ssn", moved["ssn"]); err != nil || plain.Reveal() != "AAA" {
		t.Errorf("opened for the record it was stored with: %v", err)
	}
	if moved["ssn"] == stored["ssn"] {
		t.Error("the text kept for ann was stored with bob")
	}
}
