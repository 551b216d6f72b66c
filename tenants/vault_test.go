package tenants_test

import (
	"bytes"
	"errors"
	"sync"
	"testing"
	"time"

	"tenantry/crypto/keyring"
	"tenantry/tenants"
	"tenantry/tenants/tenantstest"
)

func TestConcurrentFirstDataKeysAgree(t *testing.T) {
	t.Parallel()
	w := tenantstest.New(t, tenantstest.Options{})
	tenant := w.Tenant(t, "acme")
	directories := []*tenants.Directory{w.Directory}
	w.Second(t, tenantstest.Options{})
	directories = append(directories, w.Directory)
	var mu sync.Mutex
	var all [][]byte
	var wg sync.WaitGroup
	for i := range 16 {
		wg.Go(func() {
			keys, err := directories[i%2].DataKeys(t.Context(), tenant, "fields")
			if err != nil {
				t.Error(err)
				return
			}
			mu.Lock()
			defer mu.Unlock()
			all = append(all, keys.Current().Bytes())
		})
	}
	wg.Wait()
	for _, key := range all {
		if !bytes.Equal(key, all[0]) {
			t.Fatal("two callers have different data keys")
		}
	}
}

func TestDataKeysDifferByOrganizationAndPurpose(t *testing.T) {
	t.Parallel()
	w := tenantstest.New(t, tenantstest.Options{})
	a, b := w.Tenant(t, "a"), w.Tenant(t, "b")
	seen := map[string]bool{}
	for _, tenant := range []*tenants.Tenant{a, b} {
		for _, purpose := range []string{"fields", "shares"} {
			keys, err := w.Directory.DataKeys(t.Context(), tenant, purpose)
			if err != nil {
				t.Fatal(err)
			}
			seen[string(keys.Current().Bytes())] = true
		}
	}
	if len(seen) != 4 {
		t.Errorf("%d different keys, want 4", len(seen))
	}
}

func TestKeyringRotation(t *testing.T) {
	t.Parallel()
	w := tenantstest.New(t, tenantstest.Options{})
	tenant := w.Tenant(t, "acme")
	untouched := w.Tenant(t, "beta")
	before, err := w.Directory.DataKeys(t.Context(), tenant, "fields")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := w.Directory.DataKeys(t.Context(), untouched, "fields"); err != nil {
		t.Fatal(err)
	}
	if _, err := w.Keyring.Rotate(); err != nil {
		t.Fatal(err)
	}
	n, err := w.Directory.Rewrap(t.Context())
	if err != nil || n != 2 {
		t.Fatalf("rewrapped %d, %v; want 2", n, err)
	}
	if n, err := w.Directory.Rewrap(t.Context()); err != nil || n != 0 {
		t.Errorf("rewrapping again: %d, %v", n, err)
	}
	if err := w.Keyring.Retire(1); err != nil {
		t.Fatal(err)
	}
	w.Second(t, tenantstest.Options{})
	after, err := w.Directory.DataKeys(t.Context(), tenant, "fields") // a tenant resolved before the rotation
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(before.Current().Bytes(), after.Current().Bytes()) {
		t.Error("the data key changed")
	}
}

// TestRotationByAnotherProcess covers a process whose keyring predates a rotation: concurrent callers read what is
// wrapped under the new version, and it wraps nothing under a version that was retired meanwhile.
func TestRotationByAnotherProcess(t *testing.T) {
	t.Parallel()
	w := tenantstest.New(t, tenantstest.Options{})
	here, ring := w.Directory, w.Keyring
	acme, beta := w.Tenant(t, "acme"), w.Tenant(t, "beta")
	before, err := here.DataKeys(t.Context(), acme, "fields")
	if err != nil {
		t.Fatal(err)
	}
	open := func() *keyring.Keyring {
		t.Helper()
		k, err := keyring.Open(w.KeyringFile)
		if err != nil {
			t.Fatal(err)
		}
		return k
	}
	other, late := open(), open()
	w.Keyring = other
	w.Second(t, tenantstest.Options{})
	there := w.Directory
	rotate := func() {
		t.Helper()
		if _, err := other.Rotate(); err != nil {
			t.Fatal(err)
		}
		if n, err := there.Rewrap(t.Context()); err != nil || n == 0 {
			t.Fatalf("rewrapped %d, %v", n, err)
		}
		w.Clock.Advance(time.Minute)
	}
	for range 2 { // the second follows at once
		rotate()
		var asking sync.WaitGroup
		for range 16 {
			asking.Go(func() {
				after, err := here.DataKeys(t.Context(), acme, "fields")
				if err != nil || !bytes.Equal(before.Current().Bytes(), after.Current().Bytes()) {
					t.Errorf("after a rotation elsewhere: %v", err)
				}
			})
		}
		asking.Wait()
	}
	rotate()
	for version := 1; version <= 3; version++ {
		if err := other.Retire(version); err != nil {
			t.Fatal(err)
		}
	}
	if v := ring.PrimaryVersion(); v == other.PrimaryVersion() {
		t.Fatalf("the keyring knows version %d already", v)
	}
	first, err := here.DataKeys(t.Context(), beta, "fields")
	if err != nil {
		t.Fatal(err)
	}
	if same, err := there.DataKeys(t.Context(), beta, "fields"); err != nil || !bytes.Equal(first.Current().Bytes(), same.Current().Bytes()) {
		t.Errorf("a first data key created by a process that had missed the rotation: %v", err)
	}
	rotate()
	if err := other.Retire(4); err != nil {
		t.Fatal(err)
	}
	next, err := here.NextDataKey(t.Context(), beta, "fields")
	if err != nil {
		t.Fatal(err)
	}
	w.Clock.Advance(time.Minute)
	if same, err := there.DataKeys(t.Context(), beta, "fields"); err != nil || !bytes.Equal(next.Current().Bytes(), same.Current().Bytes()) {
		t.Errorf("a further data key: %v", err)
	}
	rotate()
	if n, err := here.Rewrap(t.Context()); err != nil || n != 0 { // all is under the newest version
		t.Errorf("Rewrap by a process that had missed the rotation = %d, %v; want 0, nil", n, err)
	}
	w.Keyring = late // read before all rotations
	w.Second(t, tenantstest.Options{})
}

func TestRetiredKeyFails(t *testing.T) {
	t.Parallel()
	w := tenantstest.New(t, tenantstest.Options{})
	tenant := w.Tenant(t, "acme")
	if _, err := w.Directory.DataKeys(t.Context(), tenant, "fields"); err != nil {
		t.Fatal(err)
	}
	if _, err := w.Keyring.Rotate(); err != nil {
		t.Fatal(err)
	}
	if err := w.Keyring.Retire(1); err != nil {
		t.Fatal(err)
	}
	w.Clock.Advance(time.Minute)
	if _, err := w.Directory.DataKeys(t.Context(), tenant, "fields"); !errors.Is(err, keyring.ErrUnknownVersion) {
		t.Errorf("a minute after its key was retired: %v", err)
	}
}

func TestNextDataKeyKeepsTheFormer(t *testing.T) {
	t.Parallel()
	w := tenantstest.New(t, tenantstest.Options{})
	tenant := w.Tenant(t, "acme")
	first, err := w.Directory.DataKeys(t.Context(), tenant, "fields")
	if err != nil {
		t.Fatal(err)
	}
	next, err := w.Directory.NextDataKey(t.Context(), tenant, "fields")
	if err != nil {
		t.Fatal(err)
	}
	if next.Current().Version() != 2 {
		t.Errorf("current version %d, want 2", next.Current().Version())
	}
	old, ok := next.Version(1)
	if !ok || !bytes.Equal(old.Bytes(), first.Current().Bytes()) {
		t.Error("the former key is gone")
	}
	if _, ok := next.Version(3); ok {
		t.Error("there is a version 3")
	}
	again, err := w.Directory.DataKeys(t.Context(), tenant, "fields") // an old tenant gets the new keys
	if err != nil || again.Current().Version() != 2 {
		t.Errorf("afterwards: %v", err)
	}
}

func TestRemovedOrganizationHasNoDataKeys(t *testing.T) {
	t.Parallel()
	w := tenantstest.New(t, tenantstest.Options{})
	tenant := w.Tenant(t, "acme")
	if _, err := w.Directory.DataKeys(t.Context(), tenant, "fields"); err != nil {
		t.Fatal(err)
	}
	if _, _, err := w.Directory.Remove(t.Context(), "acme"); err != nil {
		t.Fatal(err)
	}
	if _, err := w.Directory.DataKeys(t.Context(), tenant, "fields"); !errors.Is(err, tenants.ErrUnknownTenant) {
		t.Errorf("data keys of a removed organization: %v", err)
	}
}
