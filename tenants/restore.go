package tenants

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"tenantry/backends/store"
	"tenantry/crypto/keyring"
	"tenantry/internal/texts"
)

// A restoration copies the documents of a backup into a new generation of the organization's workspace, beside the one
// in use, and then moves the organization there as move.go does. So readers see the former documents or the restored
// ones, and after an interruption the organization is what it was, or restored. What goes on while the rest is set
// back (the audit log, what is known of bytes of files) is copied from the workspace in use, with the changes of the
// meantime.
//
// An erased organization has no workspace and no people. Its documents are copied first, and one batch of the control
// workspace brings back people, keys, data keys and the organization itself.

// Restoration describes how an organization is restored.
type Restoration struct {
	// From is the organization in an opened backup of this installation.
	From *Tenant
	// Continue are the kinds of documents that stay as they are now. They come from the backup if the organization was
	// erased, except for Passing.
	Continue []string
	Passing  []string
	// AlterDocument, if set, returns the body that a document is restored with.
	AlterDocument func(kind, id string, body []byte) ([]byte, error)
	// Parts are the kinds of people, roles, keys and so on that become those of the backup. Of Kept, records that are
	// missing now return, and the others stay. Alter, if set, returns a record as it is to be stored, or nil to leave it
	// out; now is nil if there is none now.
	Parts []string
	Kept  []string
	Alter func(kind string, then, now []byte) ([]byte, error)
	// Counters are those of people to be raised to the numbers of the backup.
	Counters []string
	// Before, if set, is called before writes are held, possibly several times; now is the organization as it is. Check
	// is called while they are held.
	Before func(ctx context.Context, now *Tenant) error
	Check  func(ctx context.Context, now *Tenant) error
	// Progress may be nil.
	Progress func(MoveProgress)
}

// ErrOtherOrganization: the number of the organization in the backup belongs to another one now.
var ErrOtherOrganization = errors.New("the backup has another organization of that name or number than there is now; " +
	"restore it under another slug (--as)")

// Restore makes an organization what it was in a backup, and returns the sums of the documents that were copied from
// it. While it is copied, requests are served; at the end writes wait for a moment. After an interruption the same
// call goes on, and RollBackMove undoes it. Errors: as Move, and ErrOtherOrganization; those of the functions in r.
func (d *Directory) Restore(ctx context.Context, slug string, r Restoration) (*MoveReport, error) {
	if r.Progress == nil {
		r.Progress = func(MoveProgress) {}
	}
	m, err := d.beginRestore(ctx, slug, &r)
	if err != nil {
		return nil, fmt.Errorf("restore organization %q: %w", texts.Clip(slug), err)
	}
	report, err := m.run(ctx)
	if err == nil {
		report.Sums = m.filled
		r.Progress(MoveProgress{Step: "removing the former documents"})
		if late := d.FinishMove(ctx, slug); late != nil {
			d.log.WarnContext(ctx, "an organization is restored, but its former documents could not be removed",
				"organization", slug, "error", late)
		}
		r.Progress(MoveProgress{Step: "done"})
	}
	if err != nil {
		return nil, fmt.Errorf("restore organization %s: %w", slug, err)
	}
	return report, nil
}

// beginRestore records the start of a restoration, or takes over one that was interrupted, and returns its mover.
func (d *Directory) beginRestore(ctx context.Context, slug string, r *Restoration) (*mover, error) {
	org, err := d.find(ctx, store.Eq("slug", slug))
	if err == nil && org.Move != nil && org.Move.Arrived { // the mover stopped before the switch
		if err = d.release(ctx, org.OrgID, func(*Organization) bool { return true }); err == nil {
			org, err = d.find(ctx, store.Eq("slug", slug))
		}
	}
	if err == nil && org.Move == nil && org.leftByRestore() { // the last restoration was interrupted behind the switch
		if err = d.FinishMove(ctx, slug); err == nil {
			org, err = d.find(ctx, store.Eq("slug", slug))
		}
	}
	if err == nil {
		err = restorable(org, r)
	}
	if err == nil && org.Move == nil {
		err = d.store.Prepare(ctx, org.OrgID, d.owner(org), store.PlaceName(org.Home(), org.Restores+1))
	}
	if err != nil {
		return nil, err
	}
	id := newClaimID()
	org, err = d.change(ctx, store.Eq("slug", slug), func(o *Organization) error {
		if err := restorable(o, r); err != nil {
			return err
		}
		d.beginGeneration(o, id)
		return nil
	})
	if err != nil {
		return nil, err
	}
	m := d.newMover(org, id)
	m.restoration, m.progress = r, r.Progress
	if m.copier, err = d.store.NewMover(ctx, org.OrgID, m.owner, m.from, m.to); err != nil {
		return nil, err
	}
	m.copier.Guard = m.guard
	m.copier.Only(r.Continue...)
	m.fill, err = d.store.NewFiller(ctx, org.OrgID, m.owner, m.to, r.documents(org))
	if err == nil {
		m.fill.Guard = m.guard
	}
	return m, err
}

func (r *Restoration) documents(o *Organization) store.Restoring {
	return store.Restoring{
		Then: r.From.Workspace(), Without: r.Continue, Number: o.Restores, Alter: r.AlterDocument,
	}
}

// beginGeneration records that a new generation of the organization's documents is made by the call of that claim.
func (d *Directory) beginGeneration(o *Organization, id string) {
	if o.Move == nil {
		o.Restores++
		o.Move = &Move{To: store.PlaceName(o.Home(), o.Restores), Began: d.now().UnixMilli(), Restores: true}
	}
	o.Move.Phase, o.Move.Mover = store.Copying, id
}

// leftByRestore reports whether the former documents are on the backend of the present ones.
func (o *Organization) leftByRestore() bool {
	backend, _ := store.SplitPlace(o.Former)
	return o.Former != "" && backend == o.Home()
}

// restorable returns an error if the organization cannot be restored in place.
func restorable(o *Organization, r *Restoration) error {
	switch {
	case o.State == Removed:
		return ErrUnknownTenant
	case o.ID != r.From.Org.ID || o.OrgID != r.From.Org.OrgID:
		return ErrOtherOrganization
	case o.Move != nil && o.Move.Arrived:
		return errArrived
	case o.Move != nil && !o.Move.Restores:
		return fmt.Errorf("%w to %s; complete that, or roll it back first (tenantry org move)", ErrMoving, o.Move.To)
	case o.Former != "" || o.Finisher != "":
		return fmt.Errorf("%w: an old copy is still on %s; remove it first (tenantry org move --finish)", ErrMoving, o.Former)
	}
	return nil
}

// fillFrom makes a new place the same as a backup, and goes on after a backend was slow or unavailable for a moment.
func (c *claim) fillFrom(ctx context.Context, fill *store.Mover) ([]store.Sum, error) {
	for try := 1; ; try++ {
		sums, err := fill.Fill(ctx)
		if !isSlow(ctx, err) || try == copyTries {
			return sums, err
		}
		if err := sleep(ctx, c.d.store.Leases().Settled); err != nil {
			return nil, err
		}
	}
}

// atArrival stages what a restoration changes in the control workspace when the documents have arrived.
func (m *mover) atArrival(ctx context.Context, b *store.Batch, o *Organization) error {
	r := m.restoration
	if r == nil {
		return nil
	}
	if err := r.stage(ctx, b, m.d.control.Partition(o.OrgID), o.Restores); err != nil {
		return err
	}
	o.RestoredAt = m.d.now().UnixMilli()
	// What is due, and webhooks, are looked for among the documents of the backup.
	o.DueAt, o.DueSince = o.RestoredAt, o.RestoredAt
	o.Sends, o.SendsSince = sendsWebhooks, o.RestoredAt
	m.d.voidAccess(o)
	return nil
}

// stage stages the records of people and keys.
func (r *Restoration) stage(ctx context.Context, b *store.Batch, people *store.Workspace, number int64) error {
	from := store.Restoring{Then: r.From.People(), Number: number}
	if err := people.StageParts(ctx, b, from, false, r.Parts, r.Alter); err != nil {
		return err
	}
	return people.StageParts(ctx, b, from, true, r.Kept, func(_ string, then, now []byte) ([]byte, error) {
		if now != nil {
			return nil, nil
		}
		return then, nil
	})
}

// beforeHold prepares the switch of a restoration.
func (m *mover) beforeHold(ctx context.Context) error {
	if m.restoration == nil || m.restoration.Before == nil {
		return nil
	}
	m.beginStep("copying the bytes of files")
	return m.withTenant(ctx, m.restoration.Before)
}

// whileHeld checks the restoration while writes are held.
func (m *mover) whileHeld(ctx context.Context) error {
	if m.restoration == nil || m.restoration.Check == nil {
		return nil
	}
	return m.withTenant(ctx, m.restoration.Check)
}

// withTenant calls a function with the organization as it is now.
func (m *mover) withTenant(ctx context.Context, do func(context.Context, *Tenant) error) error {
	asked := time.Now()
	org, err := m.d.find(ctx, store.Eq("org_id", m.org))
	if err != nil {
		return err
	}
	t, err := m.d.tenant(ctx, org, asked)
	if err != nil {
		return err
	}
	return do(ctx, t)
}

// Revive brings back an organization that was erased, or of which the control data have no record, as it was in a
// backup. The bytes of its files are restored by Before. Nothing of it is served until all is there. After an
// interruption the same call goes on, and Remove erases what there is. Errors: keyring.ErrRetired,
// ErrOtherOrganization, ErrMoving if another call took over; store.ErrForeign, store.ErrUnavailable, those of the
// functions in r.
func (d *Directory) Revive(ctx context.Context, slug string, r Restoration) (*MoveReport, error) {
	if r.Progress == nil {
		r.Progress = func(MoveProgress) {}
	}
	report, err := d.revive(ctx, slug, &r)
	if err != nil {
		return nil, fmt.Errorf("restore organization %q: %w", texts.Clip(slug), err)
	}
	return report, nil
}

func (d *Directory) revive(ctx context.Context, slug string, r *Restoration) (*MoveReport, error) {
	keys, err := d.rewrapped(r.From.Org.OrgID, r.From.Org.DataKeys)
	if err != nil {
		return nil, err
	}
	id := newClaimID()
	org, err := d.beginRevival(ctx, slug, r, id)
	if err != nil {
		return nil, err
	}
	valid := func(o *Organization) bool { return o.Move != nil && o.Move.Mover == id }
	c := &claim{d: d, org: org.OrgID, owner: d.owner(org), valid: valid, removed: true}
	r.Progress(MoveProgress{Step: "copying"})
	fill, err := d.store.NewFiller(ctx, org.OrgID, c.owner, org.Move.To, store.Restoring{
		Then: r.From.Workspace(), Without: r.Passing, Number: org.Restores,
	})
	if err != nil {
		return nil, err
	}
	fill.Guard = c.guard
	fill.Progress = func(kind string, compared, copied int64) {
		r.Progress(MoveProgress{Step: "copying", Kind: kind, Compared: compared, Copied: copied})
	}
	report := &MoveReport{From: "the backup", To: org.Move.To}
	if report.Sums, err = c.fillFrom(ctx, fill); err != nil {
		return nil, err
	}
	if r.Before != nil {
		r.Progress(MoveProgress{Step: "copying the bytes of files"})
		if err := r.Before(ctx, r.From); err != nil {
			return nil, err
		}
	}
	people := d.control.Partition(org.OrgID)
	for _, name := range r.Counters {
		n, err := r.From.People().Counter(ctx, name, 0, 0)
		if err == nil {
			_, err = people.Counter(ctx, name, 0, n)
		}
		if err != nil {
			return nil, err
		}
	}
	_, err = d.changeWith(ctx, store.Eq("org_id", org.OrgID), func(o *Organization, b *store.Batch) error {
		if err := c.check(o); err != nil {
			return err
		}
		was := r.From.Org
		was.Meta, was.OrgID, was.Slug, was.DataKeys = o.Meta.Bare(), o.OrgID, o.Slug, keys
		was.Restores, was.AccessRev, was.defaults = o.Restores, max(o.AccessRev, was.AccessRev), o.defaults
		was.Former, was.Finisher, was.Move, was.Ending, was.Leaving, was.EventLog = "", "", nil, nil, nil, nil
		was.RestoredAt = d.now().UnixMilli()
		was.DueAt, was.DueSince = was.RestoredAt, was.RestoredAt
		was.Place = o.Move.To
		if r.From.Org.Ending != nil { // it was deleted, but not erased yet
			was.State = r.From.Org.Ending.Was
		}
		*o = was
		d.voidAccess(o)
		return r.stage(ctx, b, people, o.Restores)
	})
	r.Progress(MoveProgress{Step: "done"})
	return report, err
}

// rewrapped returns wrapped data keys of an organization under the keyring's present primary. Errors:
// keyring.ErrRetired, keyring.ErrUnknownVersion.
func (d *Directory) rewrapped(org int64, keys map[string][]string) (map[string][]string, error) {
	if err := d.reloadKeyring(); err != nil {
		return nil, err
	}
	all := map[string][]string{}
	for _, purpose := range slices.Sorted(maps.Keys(keys)) {
		for _, text := range keys[purpose] {
			again, _, err := keyring.RewrapDataKey(d.keyring, org, purpose, text)
			if err != nil {
				return nil, err
			}
			all[purpose] = append(all[purpose], again)
		}
	}
	return all, nil
}

// beginRevival records that an erased organization is being restored, with a record for it if there is none. Until it
// is complete, the organization counts as erased.
func (d *Directory) beginRevival(ctx context.Context, slug string, r *Restoration, id string) (*Organization, error) {
	org, err := d.find(ctx, store.Eq("slug", slug))
	if errors.Is(err, ErrUnknownTenant) {
		org, err = d.insertRemoved(ctx, r)
	}
	if err != nil {
		return nil, err
	}
	revivable := func(o *Organization) error {
		switch {
		case o.State != Removed:
			return fmt.Errorf("%w: it is there again", ErrMoving)
		case o.ID != r.From.Org.ID || o.OrgID != r.From.Org.OrgID:
			return ErrOtherOrganization
		case o.Ending != nil && o.Ending.Erased == 0:
			return errors.New("it is being erased; complete that first: tenantry org delete " + o.Slug + " --yes --now")
		case !d.store.HasBackend(o.Home()):
			o.Place = d.newBackend
		}
		return nil
	}
	if err := revivable(org); err != nil {
		return nil, err
	}
	if org.Move == nil {
		if err := d.store.Prepare(ctx, org.OrgID, d.owner(org), store.PlaceName(org.Home(), org.Restores+1)); err != nil {
			return nil, err
		}
	}
	return d.change(ctx, store.Eq("slug", slug), func(o *Organization) error {
		if err := revivable(o); err != nil {
			return err
		}
		o.Former, o.Finisher = "", "" // erased
		d.beginGeneration(o, id)
		return nil
	})
}

// insertRemoved stores the record of an organization that the control data do not have, as an erased one.
func (d *Directory) insertRemoved(ctx context.Context, r *Restoration) (*Organization, error) {
	was := &r.From.Org
	if _, err := d.control.Counter(ctx, organizationsCount, 0, was.OrgID); err != nil {
		return nil, err
	}
	org := &Organization{
		Meta: store.Meta{ID: was.ID}, OrgID: was.OrgID, Slug: was.Slug, State: Removed, AccessRev: max(was.AccessRev, 1),
		Place: was.Home(),
	}
	if !d.store.HasBackend(org.Place) {
		org.Place = d.newBackend
	}
	err := d.orgs.Insert(ctx, org)
	if dup, is := errors.AsType[*store.DuplicateError](err); is {
		return nil, fmt.Errorf("%w (%s)", ErrOtherOrganization, strings.Join(dup.Fields, ", "))
	}
	return d.withDefaults(org), err
}

// Compare calls visit with every document in which an organization differs from a backup. Errors: store.ErrUnavailable,
// those of visit.
func (d *Directory) Compare(ctx context.Context, now *Tenant, r Restoration, visit func(store.Difference) error) error {
	return d.store.Compare(ctx, now.Workspace(), r.documents(&now.Org), visit)
}
