package tenants

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"tenantry/backends/store"
	"tenantry/internal/fault"
	"tenantry/internal/texts"
)

// MaxProviders is the maximum number of report providers of an organization.
const MaxProviders = 100

// MaxFrameOrigins is the maximum number of origins that may frame an organization's shared reports.
const MaxFrameOrigins = 50

const (
	maxName           = 200
	maxFolderChildren = 10_000
	changeTries       = 50
)

// AllFeatures returns the names of all features.
func AllFeatures() []string { return []string{FeatureTeams} }

// AllSettings returns the names of all settings.
func AllSettings() []string {
	return []string{SettingRequirePublicEncryptionKey, SettingSignInNamesOrganization, SettingPublicFiles}
}

// AllLimits returns the names of all limits.
func AllLimits() []string {
	return []string{LimitFolderChildren, LimitDocuments, LimitBytes, LimitFileSize, LimitFileBytes}
}

// Origin returns an origin in the form that browsers send: scheme http or https, host, and port unless it is the
// scheme's default. It returns false for any other text, such as one with a path or a wildcard.
func Origin(text string) (string, bool) {
	origin := strings.ToLower(strings.TrimSpace(text))
	u, err := url.Parse(origin)
	return origin, err == nil && (u.Scheme == "https" || u.Scheme == "http") && u.Hostname() != "" &&
		u.Scheme+"://"+u.Host == origin && strings.Trim(u.Host, "abcdefghijklmnopqrstuvwxyz0123456789.-_:[]") == ""
}

// AddInvalidOrigin notes that the text of a field is not an origin.
func AddInvalidOrigin(faults *fault.List, field, text string) {
	faults.Add(field, fault.Format, "%q is not an origin such as https://www.example.com", texts.Clip(text))
}

// ParseColor returns the parts of a color such as #1f5fbf; ok is false for any other text.
func ParseColor(text string) (red, green, blue uint8, ok bool) {
	hex, marked := strings.CutPrefix(text, "#")
	n, err := strconv.ParseUint(hex, 16, 24)
	return uint8(n >> 16), uint8(n >> 8), uint8(n), marked && err == nil && len(hex) == 6
}

// CheckOrganization notes what is wrong with the features, settings, limits, providers and origins of an organization.
func CheckOrganization(faults *fault.List, o *Organization) {
	checkKnown(faults, "features", "feature", slices.Sorted(maps.Keys(o.Features)), AllFeatures())
	checkKnown(faults, "settings", "setting", slices.Sorted(maps.Keys(o.Settings)), AllSettings())
	checkKnown(faults, "limits", "limit", slices.Sorted(maps.Keys(o.Limits)), AllLimits())
	if n, ok := o.Limits[LimitFolderChildren]; ok && (n < 1 || n > maxFolderChildren) {
		faults.Add("limits."+LimitFolderChildren, fault.Range, "the limit %s is from 1 to %d",
			LimitFolderChildren, maxFolderChildren)
	}
	for _, name := range []string{LimitDocuments, LimitBytes, LimitFileSize, LimitFileBytes} {
		if n := o.Limits[name]; n < 0 || n > MaxQuota {
			faults.Add("limits."+name, fault.Range, "the limit %s is from 1 to %d, or 0 for the configuration's", name, MaxQuota)
		}
	}
	if len(o.FrameOrigins) > MaxFrameOrigins {
		faults.Add("frame_origins", fault.Length, "at most %d origins", MaxFrameOrigins)
	}
	for _, text := range o.FrameOrigins {
		if origin, ok := Origin(text); !ok || origin != text {
			AddInvalidOrigin(faults, "frame_origins", text)
		}
	}
	if _, _, _, ok := ParseColor(o.Color); o.Color != "" && !ok {
		faults.Add("color", fault.Format, "color must be # and six hexadecimal digits, such as #1f5fbf")
	}
	if len(o.Providers) > MaxProviders {
		faults.Add("providers", fault.Length, "an organization has at most %d providers", MaxProviders)
		return
	}
	for _, name := range o.Providers {
		if !store.ValidKey(name) {
			faults.Add("providers", fault.Format, "the name of a provider has 1 to 64 of A-Z, a-z, 0-9, _ and -")
		}
	}
}

func checkKnown(faults *fault.List, field, what string, given, known []string) {
	for _, name := range given {
		if !slices.Contains(known, name) {
			faults.Add(field+"."+texts.Clip(name), fault.Unknown, "unknown %s %q; there are: %s",
				what, texts.Clip(name), strings.Join(known, ", "))
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

// Stored returns the record of an organization in any state. It opens no workspace. Errors: ErrUnknownTenant,
// store.ErrUnavailable.
func (d *Directory) Stored(ctx context.Context, slug string) (*Organization, error) {
	return d.find(ctx, store.Eq("slug", slug))
}

// withDefaults gives the organization, which may be nil, the default limits of the directory.
func (d *Directory) withDefaults(org *Organization) *Organization {
	if org != nil {
		org.defaults = d.limits
	}
	return org
}

// BySlug reads an organization that is not erased from the store, for commands. Errors: ErrUnknownTenant,
// store.ErrUnavailable.
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

// List returns organizations of every state in order of their slugs, beginning after the given slug. limit is at most
// store.MaxLimit, and 0 means that. Error: store.ErrUnavailable.
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

// Home is where the data of an organization are.
type Home struct {
	At string // backend and workspace, like default/org-1; empty: it was erased
	// Moving: it is being moved or restored. Arrived: all is copied, and the next write makes the new place its home.
	Moving, Arrived bool
}

// Homes returns the homes of all organizations by their slugs. Error: store.ErrUnavailable.
func (d *Directory) Homes(ctx context.Context) (map[string]Home, error) {
	all := map[string]Home{}
	err := d.Each(ctx, func(o *Organization) error {
		h := Home{Moving: o.Move != nil, Arrived: o.Move != nil && o.Move.Arrived}
		if o.State != Removed {
			h.At = store.Home(o.OrgID, o.Place)
		}
		all[o.Slug] = h
		return nil
	})
	return all, err
}

// Each calls visit with every organization as it is stored, also erased ones. Errors: store.ErrUnavailable, those of
// visit.
func (d *Directory) Each(ctx context.Context, visit func(*Organization) error) error {
	return d.orgs.Each(ctx, store.Filter{}, store.Live, visit)
}

// Update changes an organization's name, features, settings, limits, request limits, providers, origins and color by change,
// which may be called several times. Changes of other fields are dropped. Errors: ErrUnknownTenant; *fault.Error with
// every fault, including those that change returns; other errors of change; store.ErrConflict, store.ErrUnavailable.
func (d *Directory) Update(ctx context.Context, slug string, change func(*Organization) error) (*Tenant, error) {
	asked := time.Now()
	org, err := d.change(ctx, store.Eq("slug", slug), func(o *Organization) error {
		if o.State == Removed {
			return ErrUnknownTenant
		}
		edited := *o
		edited.Features, edited.Settings = maps.Clone(o.Features), maps.Clone(o.Settings)
		edited.Limits, edited.Lowered = maps.Clone(o.Limits), maps.Clone(o.Lowered)
		edited.Providers, edited.FrameOrigins = slices.Clone(o.Providers), slices.Clone(o.FrameOrigins)

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

		o.Name, o.Features, o.Settings = edited.Name, edited.Features, edited.Settings
		o.Limits, o.Lowered, o.RequestLimits = edited.Limits, edited.Lowered, edited.RequestLimits
		o.Providers, o.FrameOrigins, o.Color = edited.Providers, edited.FrameOrigins, edited.Color
		d.noteEdit(o)
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("update organization %q: %w", texts.Clip(slug), err)
	}
	return d.tenant(ctx, org, asked)
}

// Copied notes that an organization which was created with CopyOf has all it was to get. Errors: ErrUnknownTenant,
// store.ErrConflict, store.ErrUnavailable.
func (d *Directory) Copied(ctx context.Context, slug string) error {
	_, err := d.change(ctx, store.Eq("slug", slug), func(o *Organization) error {
		if o.State == Removed {
			return ErrUnknownTenant
		}
		o.CopyOf = ""
		return nil
	})
	if err != nil {
		return fmt.Errorf("complete organization %q: %w", texts.Clip(slug), err)
	}
	return nil
}

// Suspend makes every request to the organization fail. Its data is kept. Errors: as Update, and ErrDeleted.
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
		d.noteEdit(o)
		return nil
	})
	if err != nil {
		return fmt.Errorf("make organization %q %s: %w", texts.Clip(slug), state, err)
	}
	return nil
}

func (d *Directory) noteEdit(o *Organization) { o.Edited = max(o.EditedAt()+1, d.now().UnixMilli()) }

// BumpAccess invalidates every identity of the organization that is cached anywhere. It is called after a change of
// keys, accounts, roles or rights of users has been stored. Errors: ErrUnknownTenant, store.ErrConflict,
// store.ErrUnavailable.
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

// voidAccess gives the organization an access revision that it never had. Adding one would not do, because control data
// that an election or a restored backup has set back could repeat a revision under which something is still cached.
func (d *Directory) voidAccess(o *Organization) {
	o.AccessRev = max(o.AccessRev+1, d.now().UnixMilli())
}

// ChangeLeaving replaces the organization's list of leaving administrators by the result of change, which may be called
// several times. Errors: as BumpAccess, and those of change.
func (d *Directory) ChangeLeaving(ctx context.Context, org int64, change func([]Leaving) ([]Leaving, error)) error {
	_, err := d.change(ctx, store.Eq("org_id", org), func(o *Organization) error {
		leaving, err := change(slices.Clone(o.Leaving))
		o.Leaving = leaving
		return err
	})
	return err
}

// change alters and stores one organization, and repeats that while other writers interfere. Changes made by this
// process take turns, so only other processes can interfere.
func (d *Directory) change(
	ctx context.Context, filter store.Filter, alter func(*Organization) error,
) (*Organization, error) {
	return d.changeWith(ctx, filter, func(o *Organization, _ *store.Batch) error { return alter(o) })
}

// changeWith is change with further writes to the control workspace, which alter stages in the batch that stores the
// organization.
func (d *Directory) changeWith(
	ctx context.Context, filter store.Filter, alter func(*Organization, *store.Batch) error,
) (*Organization, error) {
	org, err := d.find(ctx, filter)
	if err != nil {
		return nil, err
	}
	number := org.OrgID // the organization that is read below may be another one
	if err := d.changing.Enter(ctx, number); err != nil {
		return nil, fmt.Errorf("%w: %w", store.ErrUnavailable, err)
	}
	defer d.changing.Leave(number)
	for range changeTries {
		if org, err = d.find(ctx, filter); err != nil {
			return nil, err
		}
		b := d.control.Batch()
		if err = alter(org, b); err != nil {
			return nil, err
		}
		if err = d.orgs.StageReplace(ctx, b, org); err == nil {
			err = b.Commit(ctx)
		}
		if err == nil {
			d.notifyChanged(org)
			return org, nil
		}
		if !errors.Is(err, store.ErrConflict) {
			// The outcome is unknown: if the change is stored, the cached organization is stale.
			d.notifyChanged(org)
			return nil, err
		}
	}
	return nil, err
}
