package tenants_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"tenantry/backends/store"
	"tenantry/internal/fault"
	"tenantry/tenants"
	"tenantry/tenants/identity"
	"tenantry/tenants/tenantstest"
)

func TestUnknownSuspendedAndRemovedAreAlike(t *testing.T) {
	t.Parallel()
	w := tenantstest.New(t, tenantstest.Options{BaseDomain: "example.com"})
	w.Tenant(t, "acme")
	w.Tenant(t, "other")
	resolve := func(host string) error {
		_, err := w.Directory.Resolve(t.Context(), host)
		return err
	}
	if err := resolve("acme.example.com:8080"); err != nil {
		t.Fatal(err)
	}
	unknown := resolve("nobody.example.com")
	if !errors.Is(unknown, tenants.ErrUnknownTenant) {
		t.Fatalf("unknown slug: %v", unknown)
	}
	if err := w.Directory.Suspend(t.Context(), "acme"); err != nil {
		t.Fatal(err)
	}
	if err := resolve("acme.example.com"); err == nil || err.Error() != unknown.Error() {
		t.Errorf("suspended: %v, unknown: %v", err, unknown)
	}
	if tenant, err := w.Directory.BySlug(t.Context(), "acme"); err != nil || tenant.Org.State != tenants.Suspended {
		t.Errorf("BySlug does not find a suspended organization: %v", err)
	}
	if err := w.Directory.Resume(t.Context(), "acme"); err != nil {
		t.Fatal(err)
	}
	if err := resolve("acme.example.com"); err != nil {
		t.Errorf("resumed: %v", err)
	}
	if _, _, err := w.Directory.Remove(t.Context(), "acme"); err != nil {
		t.Fatal(err)
	}
	if err := resolve("acme.example.com"); err == nil || err.Error() != unknown.Error() {
		t.Errorf("removed: %v, unknown: %v", err, unknown)
	}
	if err := resolve("other.example.com"); err != nil {
		t.Errorf("another organization: %v", err)
	}
}

func TestSlugIsNeverReused(t *testing.T) {
	t.Parallel()
	w := tenantstest.New(t, tenantstest.Options{})
	first := w.Tenant(t, "acme")
	var dup *store.DuplicateError
	create := func() error {
		_, err := w.Directory.Create(t.Context(), tenants.NewOrganization{Slug: "acme", Name: "Again"})
		return err
	}
	if err := create(); !errors.As(err, &dup) {
		t.Errorf("a slug in use: %v", err)
	}
	u, err := w.People.CreateUser(t.Context(), first, identity.NewUser{Name: "A", Email: "a@example.com"})
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err := w.Directory.Remove(t.Context(), "acme"); err != nil {
		t.Fatal(err)
	}
	if err := create(); !errors.As(err, &dup) {
		t.Errorf("a freed slug: %v", err)
	}
	if _, err := w.People.FindUser(t.Context(), first, u.UID); !errors.Is(err, store.ErrNotFound) {
		t.Errorf("a user of a removed organization: %v", err)
	}
	if _, _, err := w.Directory.Remove(t.Context(), "acme"); err != nil {
		t.Errorf("removing again: %v", err)
	}
	if second := w.Tenant(t, "beta"); second.Org.OrgID == first.Org.OrgID {
		t.Error("a number was handed out twice")
	}
	if _, err := w.Directory.BySlug(t.Context(), "acme"); !errors.Is(err, tenants.ErrUnknownTenant) {
		t.Errorf("removed organization by slug: %v", err)
	}
}

func TestCreateNamesEveryFault(t *testing.T) {
	t.Parallel()
	w := tenantstest.New(t, tenantstest.Options{})
	_, err := w.Directory.Create(t.Context(), tenants.NewOrganization{
		Slug: "admin", Name: " ", Features: map[string]bool{"x": true}, Settings: map[string]bool{"y": true},
		Limits: map[string]int64{"z": 1, tenants.LimitFolderChildren: 10_001}, Providers: []string{"a b"},
	})
	var invalid *fault.Error
	if !errors.As(err, &invalid) {
		t.Fatal(err)
	}
	want := []string{"slug", "name", "features.x", "settings.y", "limits.z", "limits.folder_children", "providers"}
	var got []string
	for _, f := range invalid.Faults {
		got = append(got, f.Field)
	}
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("faults %v, want %v", got, want)
	}
}

// TestBoundsOfAnOrganization checks the largest accepted value of each field, and the smallest refused one.
func TestBoundsOfAnOrganization(t *testing.T) {
	t.Parallel()
	w := tenantstest.New(t, tenantstest.Options{})
	w.Tenant(t, "acme")
	origins := func(n int) (all []string) {
		for i := range n {
			all = append(all, fmt.Sprintf("https://%d.example.com", i))
		}
		return all
	}
	for name, tt := range map[string]struct {
		change func(*tenants.Organization)
		want   string // field and code of the fault
	}{
		"long name":            {func(o *tenants.Organization) { o.Name = strings.Repeat("ä", 200) }, ""},
		"longer name":          {func(o *tenants.Organization) { o.Name = strings.Repeat("ä", 201) }, "name length"},
		"name of two lines":    {func(o *tenants.Organization) { o.Name = "a\nb" }, "name format"},
		"name that is no text": {func(o *tenants.Organization) { o.Name = "a\xff" }, "name format"},
		"most documents":       {func(o *tenants.Organization) { o.Limits = map[string]int64{tenants.LimitDocuments: tenants.MaxQuota} }, ""},
		"more documents": {func(o *tenants.Organization) {
			o.Limits = map[string]int64{tenants.LimitDocuments: tenants.MaxQuota + 1}
		}, "limits.documents range"},
		"less than no bytes": {func(o *tenants.Organization) { o.Limits = map[string]int64{tenants.LimitBytes: -1} }, "limits.bytes range"},
		"many origins":       {func(o *tenants.Organization) { o.FrameOrigins = origins(tenants.MaxFrameOrigins) }, ""},
		"too many origins":   {func(o *tenants.Organization) { o.FrameOrigins = origins(tenants.MaxFrameOrigins + 1) }, "frame_origins length"},
		"many providers":     {func(o *tenants.Organization) { o.Providers = slices.Repeat([]string{"p"}, tenants.MaxProviders) }, ""},
		"too many providers": {func(o *tenants.Organization) { o.Providers = slices.Repeat([]string{"p"}, tenants.MaxProviders+1) }, "providers length"},
	} {
		_, err := w.Directory.Update(t.Context(), "acme", func(o *tenants.Organization) error { tt.change(o); return nil })
		got := ""
		if wrong, ok := errors.AsType[*fault.Error](err); ok {
			got = wrong.Faults[0].Field + " " + wrong.Faults[0].Code
		}
		if got != tt.want || (err == nil) != (tt.want == "") {
			t.Errorf("%s: %v, want %q", name, err, tt.want)
		}
	}
}

// TestRemovedOrganizationCannotBeChanged checks that an erased organization can be neither changed nor resolved.
func TestRemovedOrganizationCannotBeChanged(t *testing.T) {
	t.Parallel()
	w := tenantstest.New(t, tenantstest.Options{})
	w.Tenant(t, "acme")
	if _, _, err := w.Directory.Remove(t.Context(), "acme"); err != nil {
		t.Fatal(err)
	}
	_, err := w.Directory.Update(t.Context(), "acme", func(*tenants.Organization) error { return nil })
	for what, err := range map[string]error{
		"change": err, "suspend": w.Directory.Suspend(t.Context(), "acme"), "resume": w.Directory.Resume(t.Context(), "acme"),
	} {
		if !errors.Is(err, tenants.ErrUnknownTenant) {
			t.Errorf("%s: got %v, want the error tenants.ErrUnknownTenant", what, err)
		}
	}
	if _, err := w.Directory.Resolve(t.Context(), "acme.localhost"); !errors.Is(err, tenants.ErrUnknownTenant) {
		t.Errorf("Resolve = %v, want ErrUnknownTenant", err)
	}
}

func TestUpdateDropsChangesOfOtherFields(t *testing.T) {
	t.Parallel()
	w := tenantstest.New(t, tenantstest.Options{})
	before := w.Tenant(t, "acme")
	after, err := w.Directory.Update(t.Context(), "acme", func(o *tenants.Organization) error {
		o.Name, o.Slug, o.OrgID, o.State, o.AccessRev = "New", "other", 99, tenants.Removed, 0
		o.Limits = map[string]int64{tenants.LimitFolderChildren: 5}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	o := after.Org
	if o.Name != "New" || o.Limit(tenants.LimitFolderChildren) != 5 {
		t.Errorf("name and limit are not changed: %+v", o)
	}
	if o.Slug != "acme" || o.OrgID != before.Org.OrgID || o.State != tenants.Active || o.AccessRev != before.Org.AccessRev {
		t.Errorf("changed a field that Update must keep: %+v", o)
	}
	if got := w.Fresh(t, "acme"); got.Org.Name != "New" {
		t.Errorf("Resolve returned the old organization: %+v", got.Org)
	}
}

func TestChangeOfAnotherProcessTakesEffectWithinASecond(t *testing.T) {
	t.Parallel()
	w := tenantstest.New(t, tenantstest.Options{})
	w.Tenant(t, "acme")
	w.Fresh(t, "acme")
	mine := w.Directory
	w.Second(t, tenantstest.Options{})
	if err := w.Directory.Suspend(t.Context(), "acme"); err != nil {
		t.Fatal(err)
	}
	if _, err := mine.Resolve(t.Context(), "acme.localhost"); err != nil {
		t.Fatalf("nothing is cached: %v", err)
	}
	w.Clock.Advance(time.Second)
	if _, err := mine.Resolve(t.Context(), "acme.localhost"); !errors.Is(err, tenants.ErrUnknownTenant) {
		t.Errorf("Resolve after a second = %v, want ErrUnknownTenant", err)
	}
}

func TestForgetTakesEffectAtOnce(t *testing.T) {
	t.Parallel()
	w := tenantstest.New(t, tenantstest.Options{})
	tenant := w.Tenant(t, "acme")
	w.Fresh(t, "acme")
	mine := w.Directory
	w.Second(t, tenantstest.Options{})
	w.Directory.OnChange(mine.Forget)
	if err := w.Directory.BumpAccess(t.Context(), tenant.Org.OrgID); err != nil {
		t.Fatal(err)
	}
	got, err := mine.Resolve(t.Context(), "acme.localhost")
	if err != nil || got.Org.AccessRev <= tenant.Org.AccessRev {
		t.Errorf("Resolve does not return the announced change: %v", err)
	}
}

func TestOutageIsBridgedForTheGraceOnly(t *testing.T) {
	t.Parallel()
	w := tenantstest.New(t, tenantstest.Options{})
	w.Tenant(t, "acme")
	w.Fresh(t, "acme")
	resolve := func(slug string) error {
		_, err := w.Directory.Resolve(t.Context(), slug+".localhost")
		return err
	}
	if err := resolve("nobody"); !errors.Is(err, tenants.ErrUnknownTenant) {
		t.Fatal(err)
	}
	w.Engine.SetDown(true)
	w.Clock.Advance(5 * time.Second)
	if err := resolve("acme"); err != nil {
		t.Errorf("within the grace: %v", err)
	}
	if err := resolve("nobody"); !errors.Is(err, store.ErrUnavailable) {
		t.Errorf("an unknown slug during the outage: %v, want ErrUnavailable", err)
	}
	if err := resolve("never-asked"); !errors.Is(err, store.ErrUnavailable) || errors.Is(err, tenants.ErrUnknownTenant) {
		t.Errorf("a slug that was never resolved: %v, want ErrUnavailable", err)
	}
	w.Clock.Advance(tenants.DefaultGrace)
	if err := resolve("acme"); !errors.Is(err, store.ErrUnavailable) {
		t.Errorf("after the grace: %v", err)
	}
	w.Engine.SetDown(false)
	w.Clock.Advance(time.Second)
	for slug, want := range map[string]error{"acme": nil, "nobody": tenants.ErrUnknownTenant, "never-asked": tenants.ErrUnknownTenant} {
		if err := resolve(slug); !errors.Is(err, want) {
			t.Errorf("%s after the outage: %v", slug, err)
		}
	}
}

func TestResolveReadsOnceForMany(t *testing.T) {
	t.Parallel()
	w := tenantstest.New(t, tenantstest.Options{})
	w.Tenant(t, "acme")
	w.Engine.AfterRead(func(string) { time.Sleep(50 * time.Millisecond) })
	before := w.Engine.Reads.Load()
	var wg sync.WaitGroup
	var failures atomic.Int64
	for range 64 {
		wg.Go(func() {
			if _, err := w.Directory.Resolve(t.Context(), "acme.localhost"); err != nil {
				failures.Add(1)
			}
		})
	}
	wg.Wait()
	if n := w.Engine.Reads.Load() - before; n != 1 || failures.Load() != 0 {
		t.Errorf("%d reads and %d failures, want 1 and 0", n, failures.Load())
	}
}

func TestCanceledCallerDoesNotFailTheOthers(t *testing.T) {
	t.Parallel()
	w := tenantstest.New(t, tenantstest.Options{})
	w.Tenant(t, "acme")
	started, release := make(chan struct{}), make(chan struct{})
	var once atomic.Bool
	w.Engine.AfterRead(func(string) {
		if !once.Swap(true) {
			close(started)
			<-release
		}
	})
	ctx, cancel := context.WithCancel(t.Context())
	first := make(chan error, 1)
	go func() {
		_, err := w.Directory.Resolve(ctx, "nobody.localhost")
		first <- err
	}()
	<-started
	second := make(chan error, 1)
	go func() {
		_, err := w.Directory.Resolve(t.Context(), "nobody.localhost")
		second <- err
	}()
	cancel()
	close(release)
	for name, c := range map[string]chan error{"first": first, "second": second} {
		select {
		case err := <-c:
			if name == "second" && !errors.Is(err, tenants.ErrUnknownTenant) {
				t.Errorf("%s: %v", name, err)
			}
		case <-time.After(30 * time.Second):
			t.Fatalf("the %s caller still waits after 30 s", name)
		}
	}
}

// TestPanicDuringAReadGivesAnError checks that callers that wait for a read that panics get an error, and later ones an
// answer.
func TestPanicDuringAReadGivesAnError(t *testing.T) {
	t.Parallel()
	w := tenantstest.New(t, tenantstest.Options{})
	w.Tenant(t, "acme")
	started, release := make(chan struct{}), make(chan struct{})
	w.Engine.AfterRead(func(string) {
		close(started)
		<-release
		panic("engine")
	})
	first := make(chan any, 1)
	go func() {
		defer func() { first <- recover() }()
		_, _ = w.Directory.Resolve(t.Context(), "acme.localhost")
	}()
	<-started
	second := make(chan error, 1)
	go func() {
		tenant, err := w.Directory.Resolve(t.Context(), "acme.localhost")
		if tenant == nil && err == nil {
			err = errors.New("neither a tenant nor an error")
		}
		second <- err
	}()
	time.Sleep(50 * time.Millisecond) // lets the second caller wait for the read; a later one reads itself
	w.Engine.AfterRead(nil)
	close(release)
	if got := <-first; got != "engine" {
		t.Errorf("recovered %v", got)
	}
	if err := <-second; err != nil && !errors.Is(err, store.ErrUnavailable) {
		t.Errorf("the waiting caller got %v, want ErrUnavailable", err)
	}
	if tenant := w.Fresh(t, "acme"); tenant == nil {
		t.Error("neither a tenant nor an error after the panic")
	}
}

// TestAChangeDuringAReadIsNotLost checks that a read which began before a change does not restore the old state after
// it.
func TestAChangeDuringAReadIsNotLost(t *testing.T) {
	t.Parallel()
	w := tenantstest.New(t, tenantstest.Options{})
	tenant := w.Tenant(t, "acme")
	var changed atomic.Bool // the change itself reads too
	var bump error
	w.Engine.AfterRead(func(string) {
		if !changed.Swap(true) {
			bump = w.Directory.BumpAccess(t.Context(), tenant.Org.OrgID)
		}
	})
	w.Fresh(t, "acme")
	if bump != nil {
		t.Fatalf("got %v, want bump = nil", bump)
	}
	if got := w.Fresh(t, "acme"); got.Org.AccessRev <= tenant.Org.AccessRev {
		t.Errorf("access revision %d after the change, want above %d", got.Org.AccessRev, tenant.Org.AccessRev)
	}
}

func TestConcurrentHostsAreNeverSwapped(t *testing.T) {
	t.Parallel()
	w := tenantstest.New(t, tenantstest.Options{})
	slugs := make([]string, 8)
	for i := range slugs {
		slugs[i] = fmt.Sprintf("org%d", i)
		w.Tenant(t, slugs[i])
	}
	var wg sync.WaitGroup
	for worker := range 8 {
		wg.Go(func() {
			for i := range 1500 {
				slug := slugs[(worker+i)%len(slugs)]
				tenant, err := w.Directory.Resolve(t.Context(), slug+".localhost")
				if err != nil || tenant.Org.Slug != slug {
					t.Errorf("%s: got %v, %v, want no error and tenant.Org.Slug = %v", slug, tenant, err, slug)
					return
				}
				if i%100 == worker {
					if err := w.Directory.BumpAccess(t.Context(), tenant.Org.OrgID); err != nil {
						t.Error(err)
						return
					}
				}
			}
		})
	}
	wg.Wait()
}

func TestBumpAccessCountsEveryCall(t *testing.T) {
	t.Parallel()
	w := tenantstest.New(t, tenantstest.Options{})
	tenant := w.Tenant(t, "acme")
	other := w.Directory
	w.Second(t, tenantstest.Options{})
	var wg sync.WaitGroup
	for i := range 20 {
		d := w.Directory
		if i%2 == 0 {
			d = other
		}
		wg.Go(func() {
			if err := d.BumpAccess(t.Context(), tenant.Org.OrgID); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if got := w.Fresh(t, "acme").Org.AccessRev; got < tenant.Org.AccessRev+20 {
		t.Errorf("access revision %d, want %d at least", got, tenant.Org.AccessRev+20)
	}
}

func TestListIsOrderedAndPaged(t *testing.T) {
	t.Parallel()
	w := tenantstest.New(t, tenantstest.Options{})
	for _, slug := range []string{"c", "a", "b"} {
		w.Tenant(t, slug)
	}
	var got []string
	after := ""
	for {
		page, err := w.Directory.List(t.Context(), after, 2)
		if err != nil {
			t.Fatal(err)
		}
		if len(page) == 0 {
			break
		}
		for _, o := range page {
			got = append(got, o.Slug)
			after = o.Slug
		}
	}
	if strings.Join(got, "") != "abc" {
		t.Errorf("List returned %v, want [a b c]", got)
	}
}

func BenchmarkResolve(b *testing.B) {
	w := tenantstest.New(b, tenantstest.Options{BaseDomain: "example.com"})
	w.Tenant(b, "acme")
	ctx := b.Context()
	b.ReportAllocs()
	for b.Loop() {
		if _, err := w.Directory.Resolve(ctx, "acme.example.com:8080"); err != nil {
			b.Fatal(err)
		}
	}
}
