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

// Ending records how an organization ends: it is deleted, can be undeleted for some time, and is erased. Times are Unix
// milliseconds.
type Ending struct {
	Deleted int64 `json:"deleted"`
	Due     int64 `json:"due,omitempty"` // when it is to be erased; 0: only on request
	Was     State `json:"was"`           // state before the deletion

	Began     int64 `json:"began,omitempty"`     // when erasing began
	Erased    int64 `json:"erased,omitempty"`    // when erasing was complete
	Documents int64 `json:"documents,omitempty"` // number of documents when erasing began; below 0: not counted
	Bytes     int64 `json:"bytes,omitempty"`     // size of these documents
	People    int64 `json:"people,omitempty"`    // erased records of people, roles, teams, service accounts and keys
	// DataKeys is the number of erased data keys. Values encrypted with them, also in backups, are unreadable.
	DataKeys int64 `json:"data_keys,omitempty"`
	// Places are the backends that held its documents. Overwritten are the places, ControlPlace among them, whose files
	// and write-ahead logs contain nothing of it any more.
	Places      []string `json:"places,omitempty"`
	Overwritten []string `json:"overwritten,omitempty"`
}

// ControlPlace stands for the control data in Ending.Overwritten.
const ControlPlace = "control data"

// IsDue reports whether the organization is to be erased now, or erasing it has begun and is not complete.
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

// IsRemoved reports whether the store has the organization as erased or being erased. It returns false if the store
// fails.
func (d *Directory) IsRemoved(ctx context.Context, org int64) bool {
	o, err := d.find(ctx, store.Eq("org_id", org))
	return err == nil && o.State == Removed
}

// Delete makes every request to the organization fail until it is undeleted or erased. Erasing is due after the
// duration keep, or never if keep is 0. An organization that is deleted already is left as it is. Errors: as Update.
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

// Undelete gives the organization the state that it had before it was deleted. Errors: ErrUnknownTenant, also if it is
// erased or being erased; ErrNotDeleted; store.ErrConflict, store.ErrUnavailable.
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

// Ended reads an organization that is deleted or erased from the store. Its Ending is nil if an earlier version, which
// kept no record of endings, erased it. Errors: ErrUnknownTenant, ErrNotDeleted, store.ErrUnavailable.
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

// Remove erases the organization's documents, people and keys for good, whether or not it was deleted before. It
// returns the record that remains, and whether this call completed the erasure. The slug stays taken. The call may be
// repeated, after a failure or after data came back. Errors: ErrUnknownTenant; store.ErrUnavailable, also if another
// reader of the files keeps their logs from being emptied.
func (d *Directory) Remove(ctx context.Context, slug string) (org *Organization, finished bool, err error) {
	return d.remove(ctx, slug, func(*Organization) error { return nil })
}

// RemoveDue is Remove for an organization that is due. Further error: ErrNotDeleted if it is not due, such as after it
// was undeleted.
func (d *Directory) RemoveDue(ctx context.Context, slug string) (org *Organization, finished bool, err error) {
	return d.remove(ctx, slug, func(o *Organization) error {
		if !o.IsDue(d.now()) {
			return ErrNotDeleted
		}
		return nil
	})
}

func (d *Directory) remove(
	ctx context.Context, slug string, check func(*Organization) error,
) (_ *Organization, finished bool, _ error) {
	org, err := d.beginRemoval(ctx, slug, check)
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
	d.hooks.Lock()
	erase := slices.Clone(d.onErase)
	d.hooks.Unlock()
	for _, fn := range erase { // after the documents, so that nothing can be added
		if err := fn(ctx, org.OrgID); err != nil {
			return nil, false, fmt.Errorf("erase the files of organization %q: %w; repeat the command", slug, err)
		}
	}
	overwritten, err := d.truncateLogs(ctx, org)
	if err != nil {
		return nil, false, fmt.Errorf("organization %q is erased, but the write-ahead logs of its files "+
			"could not be emptied: %w; repeat the command", slug, err)
	}
	org, err = d.change(ctx, store.Eq("slug", slug), func(o *Organization) error {
		finished = o.Ending != nil && o.Ending.Erased == 0
		if finished { // otherwise this call erased data that had come back, and the recorded time stays
			o.Ending.Erased, o.Ending.Overwritten = d.now().UnixMilli(), overwritten
		}
		return nil
	})
	return org, finished && err == nil, err
}

// beginRemoval removes from the organization's record everything that leads to its data, and records in Ending what
// that was.
func (d *Directory) beginRemoval(
	ctx context.Context, slug string, check func(*Organization) error,
) (*Organization, error) {
	org, err := d.find(ctx, store.Eq("slug", slug))
	if err != nil {
		return nil, err
	}
	used, counted := store.Usage{}, false
	if org.State != Removed {
		// Documents that cannot be read are erased without being counted.
		if t, err := d.tenant(ctx, org, time.Now()); err == nil {
			used, err = t.Workspace().Used(ctx)
			counted = err == nil
		}
	}
	return d.change(ctx, store.Eq("slug", slug), func(o *Organization) error {
		if err := check(o); err != nil {
			return err
		}
		if o.Move != nil {
			o.Former, o.Move = o.Move.To, nil
		}
		for _, place := range o.places() {
			if backend, _ := store.SplitPlace(place); !d.store.HasBackend(backend) {
				return fmt.Errorf("its documents are on backend %s, which is not configured; nothing was erased", backend)
			}
		}
		if o.Ending == nil && o.State != Removed { // an earlier version erased without an Ending
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
		// Dropping the data keys makes what was encrypted with them unreadable, also in copies without the control
		// data. The name is not needed any more either.
		*o = Organization{
			Meta: o.Meta.Bare(), OrgID: o.OrgID, Slug: o.Slug, State: Removed, AccessRev: o.AccessRev,
			Place: o.Place, Former: o.Former, Ending: o.Ending, defaults: o.defaults,
		}
		return nil
	})
}

// places returns the places that hold documents of the organization.
func (o *Organization) places() []string {
	if o.Former == "" {
		return []string{store.BackendName(o.Place)}
	}
	return []string{store.BackendName(o.Place), store.BackendName(o.Former)}
}

// removePeople purges the organization's partition of the control workspace and adds the number of records to Ending.
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
	// A mover that copies there, or a replica on another machine, may still write until its lease ends.
	if org.Former != "" || d.store.Remote(org.Home()) {
		if err := sleep(ctx, d.store.Leases().Settled); err != nil {
			return err
		}
	}
	err := d.store.Remove(ctx, org.OrgID, d.owner(org), org.places()...)
	if errors.Is(err, store.ErrForeign) { // the workspace belongs to another owner, so this organization has none
		d.log.WarnContext(ctx, "found other data where an erased organization's documents should be; left untouched",
			"organization", org.Slug, "error", err)
		err = nil
	}
	return err
}

// truncateLogs empties the write-ahead logs of the files that held the organization, and returns the places that have
// files.
func (d *Directory) truncateLogs(ctx context.Context, org *Organization) (places []string, err error) {
	for _, backend := range org.places() {
		done, err := d.store.Settle(ctx, org.OrgID, backend)
		if err != nil {
			return nil, err
		}
		// Documents that could not be counted may be in a file that is missing only for now.
		if done && (org.Ending == nil || org.Ending.Documents >= 0) {
			places = append(places, backend)
		}
	}
	done, err := d.store.SettleControl(ctx)
	if done {
		places = append(places, ControlPlace)
	}
	return places, err
}
