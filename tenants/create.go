package tenants

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"tenantry/backends/store"
	"tenantry/internal/fault"
	"tenantry/internal/texts"
	"tenantry/internal/together"
)

const (
	organizationsCount = "organizations"
	settleTries        = 100
	// settling is how many workspaces are prepared at a time: the more, the more of them share a sync where they
	// share a file; with a file each, more than there are processors gain nothing.
	settling = 32
)

// NewOrganization is what Create needs. Slug and Name are required.
type NewOrganization struct {
	Slug      string
	Name      string
	Features  map[string]bool
	Settings  map[string]bool
	Limits    map[string]int64
	Providers []string
	// Backend is where the documents will be; empty: the directory's NewBackend.
	Backend string
}

// Creation is what became of a NewOrganization: Tenant is the organization, nil where Err says why not.
type Creation struct {
	Tenant *Tenant
	Err    error // as those of Create

	org *Organization
}

// Create stores a new, active organization. Errors: *fault.Error with every fault,
// *store.DuplicateError where the slug is or was somebody's, store.ErrUnavailable.
func (d *Directory) Create(ctx context.Context, o NewOrganization) (*Tenant, error) {
	made := d.CreateAll(ctx, o)
	return made[0].Tenant, made[0].Err
}

// CreateAll stores new, active organizations, at most store.MaxLimit, with few writes to the control workspace,
// and returns what became of each, in their order: what is refused of one hinders none of the others.
func (d *Directory) CreateAll(ctx context.Context, list ...NewOrganization) []Creation {
	all, _ := d.examined(ctx, list) // before numbers are spent; the index decides
	// The places first: an organization without one would be unavailable for ever.
	d.settleAll(ctx, standing(all))
	asked := time.Now()
	births := d.insert(ctx, standing(all))
	_ = together.Each(settling, len(births), func(i int) error {
		d.changed(births[i].org)
		births[i].Tenant, births[i].Err = d.tenant(ctx, births[i].org, asked)
		return nil
	})
	return all
}

// Refusals returns for each organization the error with which CreateAll would refuse it now, nil where it would
// not. Nothing is stored.
func (d *Directory) Refusals(ctx context.Context, list ...NewOrganization) []error {
	all, err := d.examined(ctx, list)
	errs := make([]error, len(all))
	for i := range all {
		errs[i] = cmp.Or(all[i].Err, err)
	}
	return errs
}

// standing returns those that nothing was found against.
func standing(all []Creation) (births []*Creation) {
	for i := range all {
		if all[i].Err == nil {
			births = append(births, &all[i])
		}
	}
	return births
}

// examined begins organizations, and refuses those that are wrong or whose slug is taken. The error is that of
// looking for the slugs.
func (d *Directory) examined(ctx context.Context, list []NewOrganization) ([]Creation, error) {
	all := make([]Creation, len(list))
	for i := range list {
		all[i].org, all[i].Err = d.begin(&list[i])
	}
	births := standing(all)
	found, err := d.bySlug(ctx, births)
	for i := range births {
		if found[births[i].org.Slug] != nil {
			births[i].Err = fmt.Errorf("create an organization: %w", &store.DuplicateError{Kind: "organizations", Fields: []string{"slug"}})
		}
	}
	return all, err
}

// bySlug returns the organizations that are stored under the slugs of others.
func (d *Directory) bySlug(ctx context.Context, births []*Creation) (map[string]*Organization, error) {
	if len(births) == 0 {
		return nil, nil
	}
	slugs := make([]string, len(births))
	for i, b := range births {
		slugs[i] = b.org.Slug
	}
	orgs, err := d.orgs.Find(ctx, store.Query{Filter: store.In("slug", slugs...)})
	found := make(map[string]*Organization, len(orgs))
	for i := range orgs {
		found[orgs[i].Slug] = &orgs[i]
	}
	return found, err
}

// begin returns the organization that is to be. Error: *fault.Error in it.
func (d *Directory) begin(o *NewOrganization) (*Organization, error) {
	org := &Organization{
		Slug: o.Slug, Name: texts.Trim(o.Name), State: Active, AccessRev: 1, Providers: slices.Clone(o.Providers),
		Features: maps.Clone(o.Features), Settings: maps.Clone(o.Settings), Limits: maps.Clone(o.Limits),
		Backend: cmp.Or(o.Backend, d.newBackend),
	}
	var faults fault.List
	if !d.store.HasBackend(org.Backend) {
		faults.Add("backend", fault.Unknown, "there is no backend %q; the configuration names %s", texts.Clip(org.Backend), strings.Join(d.store.Backends(), ", "))
	}
	checkSlug(&faults, org.Slug)
	checkName(&faults, "name", org.Name, maxName)
	CheckOrganization(&faults, org)
	if err := faults.Err(); err != nil {
		return nil, fmt.Errorf("create an organization: %w", err)
	}
	org.ID = d.store.NewID()
	return org, nil
}

// settleAll gives new organizations numbers and workspaces.
func (d *Directory) settleAll(ctx context.Context, births []*Creation) {
	n := int64(len(births))
	if n == 0 {
		return
	}
	last, err := d.control.Counter(ctx, organizationsCount, n, 0)
	_ = together.Each(settling, len(births), func(i int) error {
		b := births[i]
		if b.Err = err; err == nil {
			b.org.OrgID = last - n + 1 + int64(i)
			b.Err = d.settle(ctx, b.org)
		}
		if b.Err != nil {
			b.Err = fmt.Errorf("create organization %s: %w", b.org.Slug, b.Err)
		}
		return nil
	})
}

// settle gives a new organization a workspace, and another number where there is something under its own. Control data
// restored from a backup give numbers again under which documents lie that nobody knows any more: those are left alone.
func (d *Directory) settle(ctx context.Context, org *Organization) error {
	for try := 1; ; try++ {
		err := d.store.Prepare(ctx, org.OrgID, d.owner(org), org.Backend)
		if !errors.Is(err, store.ErrForeign) {
			return err
		}
		d.log.WarnContext(ctx, "a workspace that no organization has lies under the number of a new one, which takes the next", "organization", org.Slug, "number", org.OrgID, "error", err)
		if try == settleTries {
			return fmt.Errorf("%w (after %d numbers; the next try goes on from there)", err, settleTries)
		}
		if org.OrgID, err = d.control.Counter(ctx, organizationsCount, 1, 0); err != nil {
			return err
		}
	}
}

// insert stores organizations that have their places, and returns those that are stored then. Of a batch that is
// refused because one slug is taken nothing remains, so it is tried without that one.
func (d *Directory) insert(ctx context.Context, births []*Creation) []*Creation {
	for len(births) > 0 {
		orgs := make([]*Organization, len(births))
		for i, b := range births {
			orgs[i] = b.org
		}
		err := d.orgs.Insert(ctx, orgs...)
		if err == nil {
			return births
		}
		taken, refused := errors.AsType[*store.DuplicateError](err)
		if !refused || taken.Position < 0 || taken.Position >= len(births) {
			return d.stored(ctx, births, err)
		}
		b := births[taken.Position]
		err = errors.Join(err, d.store.RemoveFrom(ctx, b.org.OrgID, d.owner(b.org), b.org.Backend))
		b.Err = fmt.Errorf("create organization %s: %w", b.org.Slug, err)
		births = slices.Delete(births, taken.Position, taken.Position+1)
	}
	return nil
}

// stored returns those of a batch that are there although it failed: an engine may have kept a part, or have
// stored it all and lost the answer. Who makes one alone is told of the failure at once.
func (d *Directory) stored(ctx context.Context, births []*Creation, failure error) (there []*Creation) {
	var found map[string]*Organization
	if len(births) > 1 {
		found, _ = d.bySlug(ctx, births) // where nobody can tell, the failure stands
	}
	for _, b := range births {
		if org := found[b.org.Slug]; org != nil && org.ID == b.org.ID {
			b.org, there = org, append(there, b)
		} else {
			b.Err = fmt.Errorf("create organization %s: %w", b.org.Slug, failure)
		}
	}
	return there
}
