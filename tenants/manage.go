package tenants

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strings"
	"time"

	"tenantry/backends/store"
	"tenantry/internal/fault"
	"tenantry/internal/texts"
)

// MaxProviders is how many providers an organization may have.
const MaxProviders = 100

// MaxFrameOrigins is how many origins may frame an organization's shared reports.
const MaxFrameOrigins = 50

const (
	maxName           = 200
	maxFolderChildren = 10_000
	changeTries       = 50
)

// AllFeatures returns the names of the features there are.
func AllFeatures() []string { return []string{FeatureTeams} }

// AllSettings returns the names of the settings there are.
func AllSettings() []string {
	return []string{SettingRequirePublicEncryptionKey, SettingSignInNamesOrganization}
}

// AllLimits returns the names of the limits there are.
func AllLimits() []string { return []string{LimitFolderChildren, LimitDocuments, LimitBytes} }

// Origin returns an origin in the form that browsers send: http or https, a host and, where it is not the usual one, a
// port. It reports false for any other text, such as one with a path or a wildcard.
func Origin(text string) (string, bool) {
	origin := strings.ToLower(strings.TrimSpace(text))
	u, err := url.Parse(origin)
	return origin, err == nil && (u.Scheme == "https" || u.Scheme == "http") && u.Hostname() != "" && u.Scheme+"://"+u.Host == origin &&
		strings.Trim(u.Host, "abcdefghijklmnopqrstuvwxyz0123456789.-_:[]") == ""
}

// NoOrigin notes that a text of a field is no origin.
func NoOrigin(faults *fault.List, field, text string) {
	faults.Add(field, fault.Format, "%q is no origin such as https://www.example.com", texts.Clip(text))
}

// CheckOrganization notes what is wrong with the features, settings, limits, providers and origins.
func CheckOrganization(faults *fault.List, o *Organization) {
	checkKnown(faults, "features", "feature", slices.Sorted(maps.Keys(o.Features)), AllFeatures())
	checkKnown(faults, "settings", "setting", slices.Sorted(maps.Keys(o.Settings)), AllSettings())
	checkKnown(faults, "limits", "limit", slices.Sorted(maps.Keys(o.Limits)), AllLimits())
	if n, ok := o.Limits[LimitFolderChildren]; ok && (n < 1 || n > maxFolderChildren) {
		faults.Add("limits."+LimitFolderChildren, fault.Range, "the limit %s is from 1 to %d", LimitFolderChildren, maxFolderChildren)
	}
	for _, name := range []string{LimitDocuments, LimitBytes} {
		if n := o.Limits[name]; n < 0 || n > MaxQuota {
			faults.Add("limits."+name, fault.Range, "the limit %s is from 1 to %d, or 0 for the configuration's", name, MaxQuota)
		}
	}
	if len(o.FrameOrigins) > MaxFrameOrigins {
		faults.Add("frame_origins", fault.Length, "at most %d origins", MaxFrameOrigins)
	}
	for _, text := range o.FrameOrigins {
		if origin, ok := Origin(text); !ok || origin != text {
			NoOrigin(faults, "frame_origins", text)
		}
	}
	if len(o.Providers) > MaxProviders {
		faults.Add("providers", fault.Length, "an organization has at most %d providers", MaxProviders)
		return
	}
	for _, name := range o.Providers {
		if !store.ValidKey(name) {
			faults.Add("providers", fault.Format, "the name of a provider is 1 to 64 of letters, digits, _ and -")
		}
	}
}

func checkKnown(faults *fault.List, field, what string, given, known []string) {
	for _, name := range given {
		if !slices.Contains(known, name) {
			faults.Add(field+"."+texts.Clip(name), fault.Unknown, "unknown %s %q; there are: %s", what, texts.Clip(name), strings.Join(known, ", "))
		}
	}
}

func (d *Directory) find(ctx context.Context, filter store.Filter) (*Organization, error) {
	org, err := d.orgs.First(ctx, store.Query{Filter: filter})
	if errors.Is(err, store.ErrNotFound) {
		return nil, ErrUnknownTenant
	}
	return d.withDefaults(org), err
}

// withDefaults tells the organization, which may be nil, the limits of those that have none of their own.
func (d *Directory) withDefaults(org *Organization) *Organization {
	if org != nil {
		org.defaults = d.limits
	}
	return org
}

// BySlug returns an organization that is not erased as the store has it now, for
// commands. Errors: ErrUnknownTenant, store.ErrUnavailable.
func (d *Directory) BySlug(ctx context.Context, slug string) (*Tenant, error) {
	asked := time.Now()
	org, err := d.find(ctx, store.Eq("slug", slug))
	if err != nil {
		return nil, fmt.Errorf("organization %q: %w", texts.Clip(slug), err)
	}
	if org.State == Removed { // opening its workspace would make a new one
		return nil, fmt.Errorf("organization %q was erased: %w", slug, ErrUnknownTenant)
	}
	return d.tenant(ctx, org, asked)
}

// List returns organizations of every state in order of slug, at most limit (at most
// store.MaxLimit; 0 means that), those after the slug given.
func (d *Directory) List(ctx context.Context, after string, limit int) ([]Organization, error) {
	q := store.Query{Sort: []store.Order{store.Asc("slug")}, Limit: limit}
	if after != "" {
		q.Filter = store.Where(store.F("slug"), store.OpGt, after)
	}
	found, err := d.orgs.Find(ctx, q)
	if err != nil {
		return nil, fmt.Errorf("list organizations: %w", err)
	}
	for i := range found {
		d.withDefaults(&found[i])
	}
	return found, nil
}

// Update lets change alter name, features, settings, limits of both kinds, providers and origins; what it does
// to other fields is undone. It may be called several times. Errors: ErrUnknownTenant,
// *fault.Error with every fault, those that change returns among them, what else it returns, store.ErrConflict, store.ErrUnavailable.
func (d *Directory) Update(ctx context.Context, slug string, change func(*Organization) error) (*Tenant, error) {
	asked := time.Now()
	org, err := d.change(ctx, store.Eq("slug", slug), func(o *Organization) error {
		if o.State == Removed {
			return ErrUnknownTenant
		}
		edited := *o
		edited.Features, edited.Settings, edited.Limits = maps.Clone(o.Features), maps.Clone(o.Settings), maps.Clone(o.Limits)
		edited.Lowered, edited.Providers, edited.FrameOrigins = maps.Clone(o.Lowered), slices.Clone(o.Providers), slices.Clone(o.FrameOrigins)
		var faults fault.List
		if err := change(&edited); err != nil {
			wrong, ok := errors.AsType[*fault.Error](err)
			if !ok {
				return err
			}
			faults = slices.Clone(wrong.Faults)
		}
		edited.Name = texts.Trim(edited.Name)
		checkName(&faults, "name", edited.Name, maxName)
		CheckOrganization(&faults, &edited)
		if err := faults.Err(); err != nil {
			return err
		}
		o.Name, o.Features, o.Settings, o.Limits, o.Providers = edited.Name, edited.Features, edited.Settings, edited.Limits, edited.Providers
		o.RequestLimits, o.Lowered, o.FrameOrigins = edited.RequestLimits, edited.Lowered, edited.FrameOrigins
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("update organization %q: %w", texts.Clip(slug), err)
	}
	return d.tenant(ctx, org, asked)
}

// Suspend makes the organization answer nobody. Its data stays. Errors: as Update, and ErrDeleted.
func (d *Directory) Suspend(ctx context.Context, slug string) error {
	return d.setState(ctx, slug, Suspended)
}

// Resume ends a suspension. Errors: as Suspend.
func (d *Directory) Resume(ctx context.Context, slug string) error {
	return d.setState(ctx, slug, Active)
}

func (d *Directory) setState(ctx context.Context, slug string, state State) error {
	_, err := d.change(ctx, store.Eq("slug", slug), func(o *Organization) error {
		switch o.State {
		case Removed:
			return ErrUnknownTenant
		case Deleted:
			return ErrDeleted
		}
		o.State = state
		return nil
	})
	if err != nil {
		return fmt.Errorf("make organization %q %s: %w", texts.Clip(slug), state, err)
	}
	return nil
}

// BumpAccess makes every identity of the organization that is cached anywhere void. It
// is called after every change of keys, accounts, roles and users' rights has been
// stored. Errors: ErrUnknownTenant, store.ErrConflict, store.ErrUnavailable.
func (d *Directory) BumpAccess(ctx context.Context, org int64) error {
	_, err := d.change(ctx, store.Eq("org_id", org), func(o *Organization) error {
		d.voidAccess(o)
		return nil
	})
	if err != nil {
		return fmt.Errorf("announce a change of rights in organization %d: %w", org, err)
	}
	return nil
}

// voidAccess gives the organization an access revision that it never had: not one either that the control data lost
// again, in an election or where a backup was restored, and that something is still cached under.
func (d *Directory) voidAccess(o *Organization) {
	o.AccessRev = max(o.AccessRev+1, d.now().UnixMilli())
}

// ChangeLeaving replaces the organization's list of administrators who are about to be
// none by what change makes of it; it may be called several times. Errors: as BumpAccess,
// what change returns.
func (d *Directory) ChangeLeaving(ctx context.Context, org int64, change func([]Leaving) ([]Leaving, error)) error {
	_, err := d.change(ctx, store.Eq("org_id", org), func(o *Organization) error {
		leaving, err := change(slices.Clone(o.Leaving))
		o.Leaving = leaving
		return err
	})
	return err
}

// change reads, alters and stores one organization until nobody comes between. Changes
// made here take turns, so that only those of other processes can.
func (d *Directory) change(ctx context.Context, filter store.Filter, alter func(*Organization) error) (*Organization, error) {
	org, err := d.find(ctx, filter)
	if err != nil {
		return nil, err
	}
	number := org.OrgID // what is read below may be another organization's
	if err := d.changing.Enter(ctx, number); err != nil {
		return nil, fmt.Errorf("%w: %w", store.ErrUnavailable, err)
	}
	defer d.changing.Leave(number)
	for range changeTries {
		if org, err = d.find(ctx, filter); err != nil {
			return nil, err
		}
		if err = alter(org); err != nil {
			return nil, err
		}
		if err = d.orgs.Replace(ctx, org); err == nil {
			d.changed(org)
			return org, nil
		}
		if !errors.Is(err, store.ErrConflict) {
			// It may be stored all the same: what is cached must not outlive that.
			d.changed(org)
			return nil, err
		}
	}
	return nil, err
}
