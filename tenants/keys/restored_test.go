package keys_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"tenantry/tenants"
	"tenantry/tenants/keys"
	"tenantry/tenants/redistest"
	"tenantry/tenants/tenantstest"
)

// replica is what one of several processes has of its own.
type replica struct {
	directory *tenants.Directory
	keys      *keys.Service
}

func (r replica) accepts(t *testing.T, token string) bool {
	t.Helper()
	tenant, err := r.directory.Resolve(t.Context(), "acme.localhost")
	if err != nil {
		t.Fatal(err)
	}
	_, err = r.keys.Authenticate(t.Context(), tenant, token, somewhere)
	if err != nil && !errors.Is(err, tenants.ErrDenied) {
		t.Fatal(err)
	}
	return err == nil
}

// TestKilledRedisNeverRevivesAKey kills a Redis server with snapshots around revocations and restores its data from
// before them: no replica accepts a revoked key again.
func TestKilledRedisNeverRevivesAKey(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t, redistest.Args("--save", "1", "1"))
	w := tenantstest.New(t, tenantstest.Options{Local: true})
	w.Redis = server.Open(t)
	process := func() replica {
		w.Second(t, tenantstest.Options{})
		return replica{w.Directory, w.Keys}
	}
	first := process()
	tenant := w.Tenant(t, "acme")
	kept := issue(t, w, tenant, keys.NewKey{Name: "kept"}).Token.Reveal()
	second := process()
	var revoked []string
	broughtBack := 0
	for round := range 20 {
		issued := issue(t, w, w.Fresh(t, "acme"), keys.NewKey{})
		token := issued.Token.Reveal()
		w.Clock.Advance(time.Second) // both replicas read the organization again
		for _, r := range []replica{first, second} {
			if !r.accepts(t, token) || !r.accepts(t, kept) {
				t.Fatalf("round %d: a good key is refused", round)
			}
		}
		revoker, other := first, second
		if round%2 == 1 {
			revoker, other = second, first
		}
		// The kill comes after a snapshot that holds the key, in the middle of one, or
		// with none since the last round.
		switch round % 3 {
		case 0:
			for until := time.Now().Add(time.Minute); ; time.Sleep(10 * time.Millisecond) {
				err := w.Redis.Save(t.Context()).Err()
				if err == nil {
					break
				}
				if !strings.Contains(err.Error(), "already in progress") || time.Now().After(until) { // it makes some by itself
					t.Fatal(err)
				}
			}
		case 1:
			if err := w.Redis.BgSave(t.Context()).Err(); err != nil {
				t.Logf("round %d: %v", round, err) // one of Redis' own is under way, which serves too
			}
		}
		if round%4 == 3 { // gone before the revocation, back after it
			server.Kill()
		}
		if _, err := revoker.keys.Revoke(t.Context(), tenant, issued.Key.ID, nil); err != nil {
			t.Fatal(err)
		}
		revoked = append(revoked, token)
		if revoker.accepts(t, token) {
			t.Fatalf("round %d: accepted by the replica that revoked it", round)
		}
		server.Kill()
		server.Restart()
		redistest.Await(t, w.Redis)
		w.Clock.Advance(2 * time.Second) // others know within two seconds, and Redis is asked again
		if held := w.Entries(t, tenant, ""); len(held) > 0 {
			broughtBack++
		}
		fresh := process()
		for name, r := range map[string]replica{"the one that revoked": revoker, "the other": other, "a new process": fresh} {
			for i, token := range revoked {
				if r.accepts(t, token) {
					t.Errorf("round %d: key %d is revived at %s", round, i, name)
				}
			}
			if !r.accepts(t, kept) {
				t.Errorf("round %d: the key that nobody revoked is refused at %s", round, name)
			}
		}
		if t.Failed() {
			return
		}
	}
	if broughtBack < 10 {
		t.Errorf("Redis brought entries back %d times only: the test shows little", broughtBack)
	}
}

// TestLostAccessRevisionIsNotReused checks that control data which lose their last change, as in an election or a
// restored backup, never reuse an access revision under which something was cached.
func TestLostAccessRevisionIsNotReused(t *testing.T) {
	t.Parallel()
	w := tenantstest.New(t, tenantstest.Options{Local: true})
	first := replica{w.Directory, w.Keys}
	w.Second(t, tenantstest.Options{})
	second := replica{w.Directory, w.Keys}
	tenant := w.Tenant(t, "acme")
	issued := issue(t, w, tenant, keys.NewKey{})
	before := w.Fresh(t, "acme").Org.AccessRev
	if err := first.directory.BumpAccess(t.Context(), tenant.Org.OrgID); err != nil {
		t.Fatal(err)
	}
	w.Clock.Advance(time.Second)
	if !second.accepts(t, issued.Token.Reveal()) {
		t.Fatal("a good key is refused")
	}
	control, err := w.Store.Control(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := w.Kinds.Organizations.Organizations.In(control).Update(t.Context(), tenant.Org.Meta.ID, func(o *tenants.Organization) error {
		o.AccessRev = before
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	w.Clock.Advance(time.Second)
	if _, err := first.keys.Revoke(t.Context(), tenant, issued.Key.ID, nil); err != nil {
		t.Fatal(err)
	}
	w.Clock.Advance(time.Second)
	if second.accepts(t, issued.Token.Reveal()) {
		t.Error("a revoked key is accepted")
	}
}
