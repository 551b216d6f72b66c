package tenants

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"tenantry/backends/store"
)

// Stray is a workspace on a backend that no organization uses.
type Stray struct {
	store.Resident
	// Of is the organization that it belongs to, or that its deletion left it behind; nil: there is none.
	Of *Organization
	// Mine: its owner is an organization of this installation.
	Mine bool
}

// Strays returns the workspaces on a backend that none of the organizations, which must be all
// there are, by number, has there or is about to have. Nothing is changed. Error: store.ErrUnavailable.
func (d *Directory) Strays(ctx context.Context, backend string, all map[int64]*Organization) ([]Stray, error) {
	found, err := d.store.Residents(ctx, backend, func(org int64) bool { return all[org].Uses(backend) })
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

// Uses reports whether the organization has documents there, an old copy, or a copy that is being made.
func (o *Organization) Uses(backend string) bool {
	if o == nil || o.State == Removed {
		return false
	}
	return o.Home() == backend || o.Former == backend || o.Move != nil && o.Move.To == backend
}

// marked returns the identity that the workspaces of the organizations name, empty where none
// does: control data restored from before there were identities know none, the documents do.
// That they name the organization too, whose identifier nobody else has, proves that they are
// its own.
func (d *Directory) marked(ctx context.Context) (string, error) {
	var unread error
	for after := ""; ; {
		page, err := d.List(ctx, after, 0)
		if err != nil || len(page) == 0 {
			return "", errors.Join(err, unread)
		}
		for i := range page {
			o := &page[i]
			if after = o.Slug; o.State == Removed || !d.store.HasBackend(o.Backend) {
				continue
			}
			owner, err := d.store.OwnerOf(ctx, o.OrgID, o.Backend)
			if identity, is := strings.CutSuffix(owner, "/"+o.ID); is && len(identity) == 2*identitySize {
				return identity, nil
			}
			if err == nil || unread != nil {
				continue
			}
			// What is wrong with one organization hurts that alone; a backend that does not answer may know better.
			if down := d.store.Check(ctx, o.Backend); down != nil {
				unread = fmt.Errorf("the organizations there may say which, and cannot be read: %w", down)
			}
			d.log.WarnContext(ctx, "an organization does not tell which installation it belongs to", "organization", o.Slug, "error", err)
		}
	}
}
