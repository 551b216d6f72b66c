package bundle

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	"tenantry/backends/record"
	"tenantry/backends/store"
	"tenantry/internal/fault"
	"tenantry/internal/request"
	"tenantry/tenants/identity"
	"tenantry/tenants/secrets"
)

// view is what lines are checked against: the definitions of the organization and of the
// bundle together. It does not change while data lines are read.
type view struct {
	record.Known
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
	v.Admit(identity.RoleResource, identity.AdminRole)
	return v
}

// loadView reads the organization's definitions. Deleted ones count, and define nothing: what is stored under them is
// reached by nobody, and ends with them.
func (s *session) loadView(ctx context.Context) error {
	s.view = s.newView()
	if s.mirror != nil { // what no line defines goes
		return nil
	}
	return s.eachDefined(ctx, func(k *kind, rec any, memory int64) error {
		if k.Deleted(rec) {
			s.view.Note(k.Resource, rec)
		} else {
			s.view.Learn(k.Resource, rec, "")
		}
		return s.define(memory)
	})
}

// eachDefined visits the organization's definitions, with the memory that each takes once it is known.
func (s *session) eachDefined(ctx context.Context, visit func(k *kind, rec any, memory int64) error) error {
	for _, k := range s.kinds {
		if !k.Definition {
			continue
		}
		defines := slices.ContainsFunc(s.kinds, func(of *kind) bool { return of.DefinedBy == k.Name })
		err := k.Records.Each(ctx, s.workspace(k.Resource), store.Filter{}, func(rec any) error {
			memory := int64(knownMemory)
			if defines || k.Deleted(rec) {
				size, _ := k.Size(rec)
				memory += 5 * int64(size) // fields of a few letters take that
			}
			return visit(k, rec, memory)
		})
		if err != nil {
			return fmt.Errorf("reading what is defined as %s: %w", k.Name, err)
		}
	}
	return nil
}

// definedCopies is how often less a byte of what is defined is held than one of an answer, whose room is for the copies
// made of it.
const definedCopies = 4

// holdDefined finds room for what an export for a request will know of definitions, before its first line. Errors:
// *fault.Error where that is more than an import for a request would take; that there is no room.
func (s *session) holdDefined(ctx context.Context) error {
	r := request.From(ctx)
	if r == nil || r.Room == nil {
		return nil
	}
	size := int64(0)
	err := s.eachDefined(ctx, func(_ *kind, _ any, memory int64) error {
		if size += memory; size > s.mostDefined {
			return fault.One("definitions", fault.Length, "what the organization has defined takes more than %d MiB while it is exported: the operator exports it by command", s.mostDefined>>20)
		}
		return nil
	})
	if err != nil || size <= store.UnweighedBytes {
		return err
	}
	return r.Room.Hold(ctx, size/definedCopies)
}

// learn adds a good definition of the bundle, unless the organization has as many as it may. One that the bundle says
// is deleted is known all the same: an export holds its records too.
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
