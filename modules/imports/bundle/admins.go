package bundle

import (
	"cmp"
	"context"
	"slices"

	"tenantry/backends/store"
	"tenantry/tenants/identity"
)

// checkAdmins refuses lines that remove administrators if the file would leave no active one. It orders the lines that
// remove administrators behind those that create or appoint them.
func (im *importer) checkAdmins(ctx context.Context) error {
	users, is := im.named[kindUser], func(rec any) bool { return rec.(*identity.User).ActiveAdmin() }
	changes, kept, takes := map[string]*entry{}, false, im.mirror != nil // changes of existing users, by identifier
	for _, e := range im.definitions {
		switch {
		case e.kind != users || im.bad.has(e.line):
		case e.change == create:
			kept = kept || is(e.rec)
		case e.change == update:
			changes[users.Meta(e.old).ID] = e
			takes = takes || !is(e.old)
		}
	}
	if !takes {
		return nil
	}
	leaving, leaves := map[*entry]int{}, false
	err := users.Records.Each(ctx, im.workspace(users.Resource), store.Filter{}, func(rec any) error {
		switch e := changes[users.Meta(rec).ID]; {
		case e == nil && is(rec) && im.mirror != nil && !im.mirror.marked(users.Name, users.Meta(rec).ID):
			leaves = true
		case e == nil && is(rec), e != nil && is(e.old):
			kept = true
		case is(rec):
			leaving[e] = 1
		}
		return nil
	})
	if err != nil {
		return err
	}
	if leaves && !kept {
		return ErrNoAdministrator
	}
	for _, e := range im.definitions {
		if leaving[e] > 0 && !kept {
			im.refuse(e.line, kindUser, identity.LastAdmin(e.old.(*identity.User).UID))
		}
	}
	slices.SortStableFunc(im.definitions, func(a, b *entry) int {
		return cmp.Or(
			cmp.Compare(slices.Index(im.kinds, a.kind), slices.Index(im.kinds, b.kind)),
			cmp.Compare(leaving[a], leaving[b]),
		)
	})
	return nil
}
