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
	prepareTries       = 100
	// prepareWidth is how many workspaces are prepared at a time. Workspaces in one shared file then share syncs. If
	// each has a file of its own, more than the number of processors gains nothing.
	prepareWidth = 32
)

// NewOrganization describes an organization for Create. Slug and Name are required.
type NewOrganization struct {
	Slug      string
	Name      string
	Features  map[string]bool
	Settings  map[string]bool
	Limits    map[string]int64
	Providers []string
	// Backend is where the documents will be; empty: DirectoryOptions.NewBackend.
	Backend string
	// CopyOf is that of Organization.
	CopyOf string
}

// Creation is the result for one NewOrganization: Tenant is the organization, or nil if Err says why it was not
// created.
type Creation struct {
	Tenant *Tenant
	Err    error // one of those of Create

	org *Organization
}

// Create stores a new, active organization. Errors: *fault.Error with every fault, *store.DuplicateError if the slug is
// or was in use, store.ErrUnavailable.
func (d *Directory) Create(ctx context.Context, o NewOrganization) (*Tenant, error) {
	created := d.CreateAll(ctx, o)
	return created[0].Tenant, created[0].Err
}

// CreateAll stores new, active organizations, at most store.MaxLimit, with few writes to the control workspace. It
// returns the result for each, in order. An organization that is refused does not affect the others.
func (d *Directory) CreateAll(ctx context.Context, list ...NewOrganization) []Creation {
	// Validating first saves numbers. Its error is ignored, because the unique index decides which slugs are taken.
	all, _ := d.validateAll(ctx, list)
	// Workspaces come first, because an organization stored without one would never be available.
	d.creating.RLock()
	d.prepareAll(ctx, accepted(all))
	asked := time.Now()
	creations := d.insert(ctx, accepted(all))
	d.creating.RUnlock()
	_ = together.Each(prepareWidth, len(creations), func(i int) error {
		d.notifyChanged(creations[i].org)
		creations[i].Tenant, creations[i].Err = d.tenant(ctx, creations[i].org, asked)
		return nil
	})
	return all
}

// Still calls do while this process creates no organization, and returns its error. It waits for those that are being
// created. Others wait for do, so it must be short.
func (d *Directory) Still(ctx context.Context, do func() error) error {
	d.creating.Lock()
	defer d.creating.Unlock()
	if err := ctx.Err(); err != nil {
		return err
	}
	return do()
}

// Refusals returns, for each organization, the error with which CreateAll would refuse it now, or nil. It stores
// nothing.
func (d *Directory) Refusals(ctx context.Context, list ...NewOrganization) []error {
	all, err := d.validateAll(ctx, list)
	errs := make([]error, len(all))
	for i := range all {
		errs[i] = cmp.Or(all[i].Err, err)
	}
	return errs
}

// accepted returns the creations without an error.
func accepted(all []Creation) (creations []*Creation) {
	for i := range all {
		if all[i].Err == nil {
			creations = append(creations, &all[i])
		}
	}
	return creations
}

// validateAll builds the organizations, and refuses those that are invalid or whose slug is taken. The error is that of
// looking up the slugs.
func (d *Directory) validateAll(ctx context.Context, list []NewOrganization) ([]Creation, error) {
	all := make([]Creation, len(list))
	for i := range list {
		all[i].org, all[i].Err = d.newOrganization(&list[i])
	}
	creations := accepted(all)
	found, err := d.bySlug(ctx, creations)
	for i := range creations {
		if found[creations[i].org.Slug] != nil {
			taken := &store.DuplicateError{Kind: "organizations", Fields: []string{"slug"}}
			creations[i].Err = fmt.Errorf("create an organization: %w", taken)
		}
	}
	return all, err
}

// bySlug returns the stored organizations that have the slugs of creations, by slug.
func (d *Directory) bySlug(ctx context.Context, creations []*Creation) (map[string]*Organization, error) {
	if len(creations) == 0 {
		return nil, nil
	}
	slugs := make([]string, len(creations))
	for i, b := range creations {
		slugs[i] = b.org.Slug
	}
	orgs, err := d.orgs.Find(ctx, store.Query{Filter: store.In("slug", slugs...)})
	found := make(map[string]*Organization, len(orgs))
	for i := range orgs {
		found[orgs[i].Slug] = &orgs[i]
	}
	return found, err
}

// newOrganization builds the record of a new organization. Error: one that wraps *fault.Error.
func (d *Directory) newOrganization(o *NewOrganization) (*Organization, error) {
	org := &Organization{
		Slug: o.Slug, Name: texts.Trim(o.Name), State: Active, AccessRev: 1, Providers: slices.Clone(o.Providers),
		Features: maps.Clone(o.Features), Settings: maps.Clone(o.Settings), Limits: maps.Clone(o.Limits),
		Place: cmp.Or(o.Backend, d.newBackend), CopyOf: o.CopyOf,
	}
	var faults fault.List
	if !d.store.HasBackend(org.Place) {
		faults.Add("backend", fault.Unknown, "there is no backend %q; the configuration names %s",
			texts.Clip(org.Place), strings.Join(d.store.Backends(), ", "))
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

// prepareAll gives new organizations their numbers and workspaces.
func (d *Directory) prepareAll(ctx context.Context, creations []*Creation) {
	n := int64(len(creations))
	if n == 0 {
		return
	}
	last, err := d.control.Counter(ctx, organizationsCount, n, 0)
	_ = together.Each(prepareWidth, len(creations), func(i int) error {
		b := creations[i]
		if b.Err = err; err == nil {
			b.org.OrgID = last - n + 1 + int64(i)
			b.Err = d.prepare(ctx, b.org)
		}
		if b.Err != nil {
			b.Err = fmt.Errorf("create organization %s: %w", b.org.Slug, b.Err)
		}
		return nil
	})
}

// prepare creates the workspace of a new organization, and takes the next number if a foreign workspace has its number.
// After control data were restored from a backup, numbers are given out again that workspaces on the backends still
// have. Those workspaces are left alone.
func (d *Directory) prepare(ctx context.Context, org *Organization) error {
	for try := 1; ; try++ {
		err := d.store.Prepare(ctx, org.OrgID, d.owner(org), org.Place)
		if !errors.Is(err, store.ErrForeign) {
			return err
		}
		d.log.WarnContext(ctx,
			"the number of a new organization belongs to a workspace without an organization; using the next number",
			"organization", org.Slug, "number", org.OrgID, "error", err)
		if try == prepareTries {
			return fmt.Errorf("%w (after %d numbers; repeat this to continue with the next ones)", err, prepareTries)
		}
		if org.OrgID, err = d.control.Counter(ctx, organizationsCount, 1, 0); err != nil {
			return err
		}
	}
}

// insert stores organizations that have workspaces, and returns those that are stored. A batch with a slug that is
// taken stores nothing, so insert removes that organization and tries again.
func (d *Directory) insert(ctx context.Context, creations []*Creation) []*Creation {
	for len(creations) > 0 {
		orgs := make([]*Organization, len(creations))
		for i, b := range creations {
			orgs[i] = b.org
		}
		err := d.orgs.Insert(ctx, orgs...)
		if err == nil {
			return creations
		}
		taken, refused := errors.AsType[*store.DuplicateError](err)
		if !refused || taken.Position < 0 || taken.Position >= len(creations) {
			return d.findStored(ctx, creations, err)
		}
		b := creations[taken.Position]
		err = errors.Join(err, d.store.RemoveFrom(ctx, b.org.OrgID, d.owner(b.org), b.org.Place))
		b.Err = fmt.Errorf("create organization %s: %w", b.org.Slug, err)
		creations = slices.Delete(creations, taken.Position, taken.Position+1)
	}
	return nil
}

// findStored returns the organizations of a failed batch that are stored nevertheless: an engine may have stored a
// part, or all of it without its answer arriving. A single organization counts as failed without a look-up.
func (d *Directory) findStored(ctx context.Context, creations []*Creation, failure error) (stored []*Creation) {
	var found map[string]*Organization
	if len(creations) > 1 {
		found, _ = d.bySlug(ctx, creations) // after an error, the failure stands
	}
	for _, b := range creations {
		if org := found[b.org.Slug]; org != nil && org.ID == b.org.ID {
			b.org, stored = org, append(stored, b)
		} else {
			b.Err = fmt.Errorf("create organization %s: %w", b.org.Slug, failure)
		}
	}
	return stored
}
