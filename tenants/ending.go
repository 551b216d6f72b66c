package tenants

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"tenantry/backends/store"
	"tenantry/internal/texts"
)

// Ending is how an organization ends: it is deleted, can be brought back for some time, and is erased. Times are Unix
// milliseconds.
type Ending struct {
	Deleted int64 `json:"deleted"`
	Due     int64 `json:"due,omitempty"` // when it is to be erased; 0: when somebody says so
	Was     State `json:"was"`           // before it was deleted

	Began     int64 `json:"began,omitempty"`     // when erasing began
	Erased    int64 `json:"erased,omitempty"`    // when all of it was done
	Documents int64 `json:"documents,omitempty"` // that it had then; below 0: they could not be counted
	Bytes     int64 `json:"bytes,omitempty"`     // that those took
	People    int64 `json:"people,omitempty"`    // records of people, roles, teams, service accounts and keys
	DataKeys  int64 `json:"data_keys,omitempty"` // without which what was encrypted opens nowhere, in backups neither
	// Places are the backends where its documents were, and Overwritten those whose files have nothing of it left, nor
	// their logs. The control data are one of them.
	Places      []string `json:"places,omitempty"`
	Overwritten []string `json:"overwritten,omitempty"`
}

// ControlPlace stands for the control data among places.
const ControlPlace = "control data"

// IsDue reports whether the organization is to be erased, or that is to be finished.
func (o *Organization) IsDue(now time.Time) bool {
	e := o.Ending
	switch {
	case e == nil:
		return false
	case o.State == Removed:
		return e.Erased == 0
	}
	return o.State == Deleted && e.Due != 0 && e.Due <= now.UnixMilli()
}

// IsRemoved reports whether the organization is erased, or about to be, as the store has it now; false where that
// cannot be told.
func (d *Directory) IsRemoved(ctx context.Context, org int64) bool {
	o, err := d.find(ctx, store.Eq("org_id", org))
	return err == nil && o.State == Removed
}

// Delete makes the organization answer nobody, until it is undeleted or erased, which is due once it has been kept so
// long; with 0 it is never due. One that is deleted already stays as it is. Errors: as Update.
func (d *Directory) Delete(ctx context.Context, slug string, keep time.Duration) error {
	_, err := d.change(ctx, store.Eq("slug", slug), func(o *Organization) error {
		switch o.State {
		case Removed:
			return ErrUnknownTenant
		case Deleted:
			return errUnchanged
		}
		now := d.now()
		o.State, o.Ending = Deleted, &Ending{Deleted: now.UnixMilli(), Was: o.State}
		if keep > 0 {
			o.Ending.Due = now.Add(keep).UnixMilli()
		}
		d.voidAccess(o)
		return nil
	})
	if err != nil && !errors.Is(err, errUnchanged) {
		return fmt.Errorf("delete organization %q: %w", texts.Clip(slug), err)
	}
	return nil
}

// Undelete makes the organization what it was before it was deleted. Errors: ErrUnknownTenant, also of one that is
// erased, or half erased; ErrNotDeleted; store.ErrConflict, store.ErrUnavailable.
func (d *Directory) Undelete(ctx context.Context, slug string) error {
	_, err := d.change(ctx, store.Eq("slug", slug), func(o *Organization) error {
		switch o.State {
		case Deleted:
			o.State, o.Ending = o.Ending.Was, nil
			return nil
		case Removed:
			return ErrUnknownTenant
		}
		return ErrNotDeleted
	})
	if err != nil {
		return fmt.Errorf("undelete organization %q: %w", texts.Clip(slug), err)
	}
	return nil
}

// Ended returns an organization that is deleted or erased, as the store has it. Its Ending is nil where a version that
// wrote nothing down erased it. Errors: ErrUnknownTenant, ErrNotDeleted, store.ErrUnavailable.
func (d *Directory) Ended(ctx context.Context, slug string) (*Organization, error) {
	org, err := d.find(ctx, store.Eq("slug", slug))
	if err == nil && org.State != Deleted && org.State != Removed {
		err = ErrNotDeleted
	}
	if err != nil {
		return nil, fmt.Errorf("organization %q: %w", texts.Clip(slug), err)
	}
	return org, nil
}

// Remove erases the organization's documents, people and keys for good, whether it was deleted before or not. It
// returns what is left of it, and whether this call finished that. The slug stays taken. It may be repeated, where it
// failed midway or something came back. Errors: ErrUnknownTenant; store.ErrUnavailable, also where something else reads
// the files, so that their logs cannot be emptied.
func (d *Directory) Remove(ctx context.Context, slug string) (org *Organization, finished bool, err error) {
	return d.remove(ctx, slug, func(*Organization) error { return nil })
}

// RemoveDue is Remove of an organization that is due: somebody may undelete one meanwhile. Error besides:
// ErrNotDeleted.
func (d *Directory) RemoveDue(ctx context.Context, slug string) (org *Organization, finished bool, err error) {
	return d.remove(ctx, slug, func(o *Organization) error {
		if !o.IsDue(d.now()) {
			return ErrNotDeleted
		}
		return nil
	})
}

func (d *Directory) remove(ctx context.Context, slug string, may func(*Organization) error) (_ *Organization, finished bool, _ error) {
	org, err := d.beginRemoval(ctx, slug, may)
	if err != nil {
		return nil, false, fmt.Errorf("erase organization %q: %w", texts.Clip(slug), err)
	}
	d.vault.drop(org.OrgID)
	if err := d.removePeople(ctx, org); err != nil {
		return nil, false, fmt.Errorf("erase the people and keys of organization %q: %w; repeat the command", slug, err)
	}
	if err := d.removeDocuments(ctx, org); err != nil {
		return nil, false, fmt.Errorf("erase the documents of organization %q: %w; repeat the command", slug, err)
	}
	overwritten, err := d.overwritten(ctx, org)
	if err != nil {
		return nil, false, fmt.Errorf("organization %q is erased, but the write-ahead logs of its files could not be emptied: %w; repeat the command", slug, err)
	}
	org, err = d.change(ctx, store.Eq("slug", slug), func(o *Organization) error {
		finished = o.Ending != nil && o.Ending.Erased == 0
		if finished { // else what came back is gone again, which changes nothing of when it was erased
			o.Ending.Erased, o.Ending.Overwritten = d.now().UnixMilli(), overwritten
		}
		return nil
	})
	return org, finished && err == nil, err
}

// beginRemoval takes from the organization what leads to its data, and writes down what that is.
func (d *Directory) beginRemoval(ctx context.Context, slug string, may func(*Organization) error) (*Organization, error) {
	org, err := d.find(ctx, store.Eq("slug", slug))
	if err != nil {
		return nil, err
	}
	used, counted := store.Usage{}, false
	if org.State != Removed {
		if t, err := d.tenant(ctx, org, time.Now()); err == nil { // damaged data are erased uncounted
			used, err = t.Workspace().Used(ctx)
			counted = err == nil
		}
	}
	return d.change(ctx, store.Eq("slug", slug), func(o *Organization) error {
		if err := may(o); err != nil {
			return err
		}
		if o.Move != nil {
			o.Former, o.Move = o.Move.To, nil
		}
		for _, backend := range o.places() {
			if !d.store.HasBackend(backend) {
				return fmt.Errorf("its documents are on backend %s, which is not configured; nothing was erased", backend)
			}
		}
		if o.Ending == nil && o.State != Removed { // else it was by a version that wrote nothing down
			o.Ending = &Ending{Deleted: d.now().UnixMilli(), Was: o.State}
		}
		if e := o.Ending; e != nil {
			if e.Places = o.places(); e.Began == 0 {
				e.Began, e.Documents, e.Bytes = d.now().UnixMilli(), used.Documents, used.Bytes
				if !counted {
					e.Documents = -1
				}
			}
			for _, wrapped := range o.DataKeys {
				e.DataKeys += int64(len(wrapped))
			}
		}
		d.voidAccess(o)
		// Without its data keys what was encrypted with them cannot be read any more, in backups too. Nobody needs what
		// it was called, either.
		*o = Organization{
			Meta: o.Meta, OrgID: o.OrgID, Slug: o.Slug, State: Removed, AccessRev: o.AccessRev, Backend: o.Backend, Former: o.Former, Ending: o.Ending,
			defaults: o.defaults,
		}
		return nil
	})
}

// places returns the backends where it has documents.
func (o *Organization) places() []string {
	if o.Former == "" {
		return []string{o.Home()}
	}
	return []string{o.Home(), store.BackendName(o.Former)}
}

func (d *Directory) removePeople(ctx context.Context, org *Organization) error {
	d.hooks.Lock()
	hooks := slices.Clone(d.onRemove)
	d.hooks.Unlock()
	people, removed := d.control.Partition(org.OrgID), int64(0)
	var failed error
	for _, ending := range hooks {
		for _, purger := range ending(people) {
			n, err := purger.Purge(ctx)
			removed += n
			failed = errors.Join(failed, err)
		}
	}
	if removed == 0 {
		return failed
	}
	_, err := d.change(context.WithoutCancel(ctx), store.Eq("org_id", org.OrgID), func(o *Organization) error {
		if o.Ending != nil {
			o.Ending.People += removed
		}
		return nil
	})
	return errors.Join(failed, err)
}

func (d *Directory) removeDocuments(ctx context.Context, org *Organization) error {
	if org.Former != "" || d.store.Remote(org.Backend) { // who copies there, or writes from another machine, may not know yet
		if err := pause(ctx, d.store.Leases().Settled); err != nil {
			return err
		}
	}
	err := d.store.Remove(ctx, org.OrgID, d.owner(org), org.places()...)
	if errors.Is(err, store.ErrForeign) { // so there was nothing of this organization
		d.log.WarnContext(ctx, "found other data where an erased organization's documents should be; left untouched", "organization", org.Slug, "error", err)
		err = nil
	}
	return err
}

// overwritten empties the logs of the files where the organization was, and returns the places that have files.
func (d *Directory) overwritten(ctx context.Context, org *Organization) (places []string, err error) {
	for _, backend := range org.places() {
		done, err := d.store.Settle(ctx, org.OrgID, backend)
		if err != nil {
			return nil, err
		}
		if done && (org.Ending == nil || org.Ending.Documents >= 0) { // else there may have been a file that is only away
			places = append(places, backend)
		}
	}
	done, err := d.store.SettleControl(ctx)
	if done {
		places = append(places, ControlPlace)
	}
	return places, err
}
