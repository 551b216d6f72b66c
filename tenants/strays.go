package tenants

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"tenantry/backends/store"
)

// Stray is a workspace on a backend that no organization uses.
type Stray struct {
	store.Resident
	// Of is the organization that owns the workspace, or whose erasure left it behind; nil: there is none.
	Of *Organization
	// Mine reports whether the owner is an organization of this installation.
	Mine bool
}

// Strays returns the workspaces on a backend that no organization uses. all must hold every organization by number. It
// changes nothing. Error: store.ErrUnavailable.
func (d *Directory) Strays(ctx context.Context, backend string, all map[int64]*Organization) ([]Stray, error) {
	found, err := d.store.Residents(ctx, backend, func(org int64, place string) bool {
		return all[org].isAt(place)
	})
	if err != nil {
		return nil, err
	}
	strays := make([]Stray, 0, len(found))
	for _, r := range found {
		s := Stray{Resident: r, Mine: strings.HasPrefix(r.Owner, d.installation+"/")}
		if o := all[r.Org]; o != nil && (r.Owner == d.owner(o) || r.Owner == "" && r.Err == nil) {
			s.Of = o
		}
		strays = append(strays, s)
	}
	return strays, nil
}

// Uses reports whether the organization has its documents, an old copy or an unfinished copy on the backend.
func (o *Organization) Uses(backend string) bool {
	if o == nil || o.State == Removed {
		return false
	}
	return slices.ContainsFunc(o.uses(), func(place string) bool {
		on, _ := store.SplitPlace(place)
		return on == backend
	})
}

// isAt is Uses for a place, which is one generation on a backend.
func (o *Organization) isAt(place string) bool {
	return o != nil && o.State != Removed && slices.Contains(o.uses(), place)
}

// uses returns the places that the organization has its documents or copies of them on.
func (o *Organization) uses() []string {
	all := o.places()
	if o.Move != nil {
		all = append(all, store.BackendName(o.Move.To))
	}
	return all
}

// identityFromWorkspaces returns the installation's identity as the workspaces of the organizations name it, or "" if
// none does. Control data restored from a time before identities do not contain it, but the workspaces do. A workspace
// that also names the organization's identifier, which no other organization has, is proven to be its own.
func (d *Directory) identityFromWorkspaces(ctx context.Context) (string, error) {
	var unread error
	for after := ""; ; {
		page, err := d.List(ctx, after, 0)
		if err != nil || len(page) == 0 {
			return "", errors.Join(err, unread)
		}
		for i := range page {
			o := &page[i]
			if after = o.Slug; o.State == Removed || !d.store.HasBackend(o.Home()) {
				continue
			}
			owner, err := d.store.OwnerOf(ctx, o.OrgID, o.Place)
			if identity, is := strings.CutSuffix(owner, "/"+o.ID); is && len(identity) == 2*identitySize {
				return identity, nil
			}
			if err == nil || unread != nil {
				continue
			}
			// A damaged workspace can be skipped, but a backend that is down may hold workspaces that name the
			// identity.
			if down := d.store.Check(ctx, o.Home()); down != nil {
				unread = fmt.Errorf("the workspaces that name it cannot be read: %w", down)
			}
			d.log.WarnContext(ctx, "the workspace of an organization does not name its installation", "organization", o.Slug,
				"error", err)
		}
	}
}
