package transfer

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	"tenantry/backends/resource"
	"tenantry/backends/secrets"
	"tenantry/backends/store"
	"tenantry/internal/fault"
	"tenantry/tenants/people"
)

// view is what lines are checked against: the definitions of the organization and of the
// bundle together. It does not change while data lines are read.
type view struct {
	resource.Known
	vault *secrets.Vault
}

// newView returns the view of an organization that has defined nothing.
func (s *session) newView() *view {
	v := &view{vault: s.vault}
	for _, k := range s.kinds {
		if k.Definition {
			v.Cover(k.Name)
		}
	}
	v.Admit(people.RoleResource, people.AdminRole)
	return v
}

// loadView reads the organization's definitions. Deleted ones count, and define nothing: what is stored under them is
// reached by nobody, and ends with them.
func (s *session) loadView(ctx context.Context) error {
	s.view = s.newView()
	for _, k := range s.kinds {
		if !k.Definition {
			continue
		}
		defines := slices.ContainsFunc(s.kinds, func(of *kind) bool { return of.DefinedBy == k.Name })
		err := k.Records.Each(ctx, s.workspace(k.Resource), store.Filter{}, func(rec any) error {
			memory := int64(knownMemory)
			if k.Deleted(rec) {
				s.view.Note(k.Resource, rec)
			} else {
				s.view.Learn(k.Resource, rec, "")
			}
			if defines || k.Deleted(rec) {
				size, _ := k.Size(rec)
				memory += 5 * int64(size) // fields of a few letters take that
			}
			return s.define(memory)
		})
		if err != nil {
			return fmt.Errorf("reading what is defined as %s: %w", k.Name, err)
		}
	}
	return nil
}

// learn adds a good definition of the bundle, unless the organization has as many as it may. One that the bundle says is
// deleted is known all the same: an export holds its records too.
func (v *view) learn(e *entry) {
	k := e.kind
	if len(e.errs) > 0 || !k.Definition {
		return
	}
	if v.Full(k.Resource, e.rec) {
		e.errs.Add(cmp.Or(k.Key, "id"), fault.Length, "an organization has at most %d %s", k.Most, strings.ReplaceAll(k.Plural(), "_", " "))
		return
	}
	if was := v.Record(k.Name, k.Identity(e.rec)); was != nil && k.Deleted(was) {
		v.Learn(k.Resource, was, "") // what the line does not say of it
	}
	v.Learn(k.Resource, e.rec, "")
}

// settle replaces what was learned of a definition by what it will be, now that it is
// known which stored one it changes. The bundle may have its own identifier for it.
func (v *view) settle(e *entry) {
	if e.old == nil {
		return
	}
	v.Learn(e.kind.Resource, e.old, "")
	if own := e.kind.Meta(e.rec).ID; own != "" && own != e.kind.Meta(e.old).ID {
		v.Learn(e.kind.Resource, e.old, own)
	}
}
