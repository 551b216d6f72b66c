package tenants_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"tenantry/backends/store"
	"tenantry/internal/fault"
	"tenantry/tenants"
	"tenantry/tenants/tenantstest"
)

// list returns new organizations with those slugs.
func list(slugs ...string) (all []tenants.NewOrganization) {
	for _, slug := range slugs {
		all = append(all, tenants.NewOrganization{Slug: slug, Name: slug})
	}
	return all
}

// verdict classifies the result of creating an organization.
func verdict(err error) string {
	var taken *store.DuplicateError
	var invalid *fault.Error
	switch {
	case err == nil:
		return "made"
	case errors.As(err, &taken):
		return "taken"
	case errors.As(err, &invalid):
		return "wrong"
	case errors.Is(err, store.ErrUnavailable):
		return "unavailable"
	}
	return err.Error()
}

func verdicts(made []tenants.Creation) string {
	words := make([]string, len(made))
	for i, c := range made {
		if words[i] = verdict(c.Err); (c.Tenant == nil) == (c.Err == nil) {
			words[i] += ", and has both or neither"
		}
	}
	return strings.Join(words, " ")
}

// checkComplete checks that there are want organizations, each with a workspace and a number of its own, and no stray
// workspaces.
func checkComplete(t *testing.T, w *tenantstest.World, want int) {
	t.Helper()
	all, err := w.Directory.List(t.Context(), "", 0)
	if err != nil || len(all) != want {
		t.Errorf("%d organizations, want %d: %v", len(all), want, err)
	}
	byNumber := map[int64]*tenants.Organization{}
	for i := range all {
		byNumber[all[i].OrgID] = &all[i]
		tenant := w.Fresh(t, all[i].Slug)
		if keep(t, w, tenant, "own"); things(t, w, tenant) != 1 {
			t.Errorf("%s does not have exactly the one record stored in it", all[i].Slug)
		}
	}
	if len(byNumber) != len(all) {
		t.Errorf("%d numbers for %d organizations", len(byNumber), len(all))
	}
	if strays, err := w.Directory.Strays(t.Context(), store.DefaultBackend, byNumber); err != nil || len(strays) != 0 {
		t.Errorf("stray workspaces: %+v, %v; want none", strays, err)
	}
}

// TestCreateAll checks that each organization of a batch gets the result that it would get alone.
func TestCreateAll(t *testing.T) {
	t.Parallel()
	w := tenantstest.New(t, tenantstest.Options{})
	w.Tenant(t, "there")
	batch := list("one", "Bad!", "there", "two", "one", "admin", "three", "two")
	batch[0].Features = map[string]bool{tenants.FeatureTeams: true}
	batch[3].Backend = "nowhere"
	var refused []string
	for _, err := range w.Directory.Refusals(t.Context(), batch...) {
		refused = append(refused, verdict(err))
	}
	if got, want := strings.Join(refused, " "), "made wrong taken wrong made wrong made made"; got != want {
		t.Errorf("Refusals gave %s, want %s", got, want)
	}
	made := w.Directory.CreateAll(t.Context(), batch...)
	if got, want := verdicts(made), "made wrong taken wrong taken wrong made made"; got != want {
		t.Errorf("CreateAll gave %s, want %s", got, want)
	}
	if !w.Fresh(t, "one").Org.Features[tenants.FeatureTeams] || w.Fresh(t, "three").Org.Features[tenants.FeatureTeams] {
		t.Error("the organizations do not have the features that were given")
	}
	if got := verdicts(w.Directory.CreateAll(t.Context(), list("one", "four")...)); got != "taken made" {
		t.Errorf("a second CreateAll gave %s, want taken made", got)
	}
	if got := verdicts(w.Directory.CreateAll(t.Context())); got != "" {
		t.Errorf("CreateAll without organizations gave %q, want none", got)
	}
	checkComplete(t, w, 5)
}

// TestCreateAll_Races checks that of concurrent calls with the same slugs, one creates each.
func TestCreateAll_Races(t *testing.T) {
	t.Parallel()
	w := tenantstest.New(t, tenantstest.Options{})
	const slugs = 12
	var got [slugs]atomic.Int64
	var racing sync.WaitGroup
	for racer := range 3 {
		racing.Go(func() {
			var mine []string
			for i := range slugs {
				mine = append(mine, fmt.Sprintf("s%d", (i*5+racer*7)%slugs))
			}
			for i, c := range w.Directory.CreateAll(t.Context(), list(mine...)...) {
				var n int
				if _, err := fmt.Sscanf(mine[i], "s%d", &n); err != nil {
					t.Error(err)
				}
				switch verdict(c.Err) {
				case "made":
					got[n].Add(1)
				case "taken":
				default:
					t.Errorf("%s: %v", mine[i], c.Err)
				}
			}
		})
	}
	racing.Wait()
	for i := range got {
		if n := got[i].Load(); n != 1 {
			t.Errorf("s%d was created %d times, want once", i, n)
		}
	}
	checkComplete(t, w, slugs)
}

// TestCreateAll_LostAnswer checks that organizations which are stored although the store reported a failure count as
// created.
func TestCreateAll_LostAnswer(t *testing.T) {
	t.Parallel()
	w := tenantstest.New(t, tenantstest.Options{})
	w.Engine.LoseAnswer("organizations", 2)
	if got := verdicts(w.Directory.CreateAll(t.Context(), list("one", "two", "three")...)); got != "made made made" {
		t.Errorf("after a lost answer CreateAll gave %s, want made made made", got)
	}
	w.Engine.SetDown(true)
	if got := verdicts(w.Directory.CreateAll(t.Context(), list("four", "five")...)); got != "unavailable unavailable" {
		t.Errorf("while the store is down CreateAll gave %s, want unavailable unavailable", got)
	}
	for _, err := range w.Directory.Refusals(t.Context(), list("one", "six")...) {
		if verdict(err) != "unavailable" {
			t.Errorf("while the store is down Refusals gave %v, want unavailable", err)
		}
	}
	w.Engine.SetDown(false)
	checkComplete(t, w, 3)
}

// TestNewOrganizationsSkipUsedNumbers creates organizations whose next numbers have workspaces of another installation.
func TestNewOrganizationsSkipUsedNumbers(t *testing.T) {
	t.Parallel()
	w := tenantstest.New(t, tenantstest.Options{Local: true})
	for _, slug := range []string{"alpha", "beta", "gamma"} {
		keep(t, w, w.Tenant(t, slug), "hers")
	}
	other, d, _, _ := secondInstallation(t, w)
	made := d.CreateAll(t.Context(), list("delta", "epsilon", "zeta", "eta")...)
	if got := verdicts(made); got != "made made made made" {
		t.Fatalf(`got %v, want "made made made made"`, got)
	}
	for _, c := range made {
		if n := things(t, other, c.Tenant); n != 0 || c.Tenant.Org.OrgID <= 3 {
			t.Errorf("%s has number %d and %d records, want a number above 3 and none", c.Tenant.Org.Slug, c.Tenant.Org.OrgID, n)
		}
	}
	for _, slug := range []string{"alpha", "beta", "gamma"} {
		if n := things(t, w, w.Fresh(t, slug)); n != 1 {
			t.Errorf("%s has %d records, want 1", slug, n)
		}
	}
}

// TestStill: no organization appears while nothing may be created, and one that was asked for meanwhile appears afterwards.
func TestStill(t *testing.T) {
	t.Parallel()
	w := tenantstest.New(t, tenantstest.Options{})
	created := make(chan error, 1)
	err := w.Directory.Still(t.Context(), func() error {
		go func() {
			_, err := w.Directory.Create(t.Context(), list("late")[0])
			created <- err
		}()
		select {
		case err := <-created:
			t.Errorf("an organization was created meanwhile: %v", err)
			created <- err
		case <-time.After(100 * time.Millisecond): // in which it would be
		}
		return nil
	})
	if err := errors.Join(err, <-created); err != nil {
		t.Error(err)
	}
	checkComplete(t, w, 1)
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if err := w.Directory.Still(ended, func() error { return errors.New("called") }); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v, want the error of the context", err)
	}
}
