package tenants_test

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"tenantry/backends/store"
	"tenantry/internal/fault"
	"tenantry/tenants"
	"tenantry/tenants/tenantstest"
)

// list returns organizations to be made, by their slugs.
func list(slugs ...string) (all []tenants.NewOrganization) {
	for _, slug := range slugs {
		all = append(all, tenants.NewOrganization{Slug: slug, Name: slug})
	}
	return all
}

// verdict says in a word what became of an organization.
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

// whole fails unless each organization that there is has a place that is its own, and nothing lies
// anywhere that is nobody's.
func whole(t *testing.T, w *tenantstest.World, want int) {
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
			t.Errorf("%s does not have what it was given alone", all[i].Slug)
		}
	}
	if len(byNumber) != len(all) {
		t.Errorf("%d numbers for %d organizations", len(byNumber), len(all))
	}
	if strays, err := w.Directory.Strays(t.Context(), store.DefaultBackend, byNumber); err != nil || len(strays) != 0 {
		t.Errorf("left behind: %+v, %v", strays, err)
	}
}

// TestCreateAll: each of a batch has its own verdict, as it would have alone.
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
		t.Errorf("before: %s, want %s", got, want)
	}
	made := w.Directory.CreateAll(t.Context(), batch...)
	if got, want := verdicts(made), "made wrong taken wrong taken wrong made made"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
	if !w.Fresh(t, "one").Org.Features[tenants.FeatureTeams] || w.Fresh(t, "three").Org.Features[tenants.FeatureTeams] {
		t.Error("the organizations are not what was asked for")
	}
	if got := verdicts(w.Directory.CreateAll(t.Context(), list("one", "four")...)); got != "taken made" {
		t.Errorf("again: %s", got)
	}
	if got := verdicts(w.Directory.CreateAll(t.Context())); got != "" {
		t.Errorf("of none: %s", got)
	}
	whole(t, w, 5)
}

// TestCreateAll_Races: of several who want the same slugs at the same moment, one gets each.
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
			t.Errorf("s%d was made %d times", i, n)
		}
	}
	whole(t, w, slugs)
}

// TestCreateAll_LostAnswer: what is stored although the store said that it failed is there, and told.
func TestCreateAll_LostAnswer(t *testing.T) {
	t.Parallel()
	w := tenantstest.New(t, tenantstest.Options{})
	w.Engine.LoseAnswer("organizations")
	if got := verdicts(w.Directory.CreateAll(t.Context(), list("one", "two", "three")...)); got != "made made made" {
		t.Errorf("stored without an answer: %s", got)
	}
	w.Engine.SetDown(true)
	if got := verdicts(w.Directory.CreateAll(t.Context(), list("four", "five")...)); got != "unavailable unavailable" {
		t.Errorf("of a store that is away: %s", got)
	}
	for _, err := range w.Directory.Refusals(t.Context(), list("one", "six")...) {
		if verdict(err) != "unavailable" {
			t.Errorf("asked of a store that is away: %v", err)
		}
	}
	w.Engine.SetDown(false)
	whole(t, w, 3)
}

// TestNewOrganizationsSkipUsedNumbers creates organizations whose next numbers have documents of others.
func TestNewOrganizationsSkipUsedNumbers(t *testing.T) {
	t.Parallel()
	w := tenantstest.New(t, tenantstest.Options{Local: true})
	for _, slug := range []string{"alpha", "beta", "gamma"} {
		keep(t, w, w.Tenant(t, slug), "hers")
	}
	other, d, _, _ := strangers(t, w)
	made := d.CreateAll(t.Context(), list("delta", "epsilon", "zeta", "eta")...)
	if got := verdicts(made); got != "made made made made" {
		t.Fatalf(`got %v, want "made made made made"`, got)
	}
	for _, c := range made {
		if n := things(t, other, c.Tenant); n != 0 || c.Tenant.Org.OrgID <= 3 {
			t.Errorf("%s is organization %d and counts %d", c.Tenant.Org.Slug, c.Tenant.Org.OrgID, n)
		}
	}
	for _, slug := range []string{"alpha", "beta", "gamma"} {
		if n := things(t, w, w.Fresh(t, slug)); n != 1 {
			t.Errorf("%s has %d", slug, n)
		}
	}
}
