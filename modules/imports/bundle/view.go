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

// view holds the definitions that lines are checked against: those of the organization and of the bundle together. It
// does not change while data lines are read.
type view struct {
	record.Known
	vault *secrets.Vault
}

// newView returns the view of an organization without definitions.
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

// loadView reads the organization's definitions. Deleted ones count towards limits but define nothing, because their
// records cannot be reached and are removed with them.
func (s *session) loadView(ctx context.Context) error {
	s.view = s.newView()
	if s.mirror != nil { // a mirror removes definitions without a line
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

// eachDefined visits the organization's definitions, with the memory that each takes in the view.
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
				memory += 5 * int64(size) // definitions with short fields take that much
			}
			return visit(k, rec, memory)
		})
		if err != nil {
			return fmt.Errorf("read definitions of kind %s: %w", k.Name, err)
		}
	}
	return nil
}

// definedCopies relates the memory of definitions to that of an answer: room for a byte of an answer includes its
// copies, which definitions do not have.
const definedCopies = 4

// holdDefined finds room for the definitions and hashes that an export for a request holds, before its first line. Errors:
// *fault.Error if they take more than allowed; the error of Room.Hold.
func (s *session) holdDefined(ctx context.Context) error {
	r := request.From(ctx)
	if r == nil || r.Room == nil {
		return nil
	}
	size := int64(0)
	err := s.eachDefined(ctx, func(_ *kind, _ any, memory int64) error {
		if size += memory; size > s.mostDefined {
			return fault.One(
				"definitions", fault.Length,
				"the definitions of the organization take more than %d MiB during the export; ask the operator to export it by command",
				s.mostDefined>>20,
			)
		}
		return nil
	})
	for _, k := range s.kinds {
		if err == nil && k.holds() {
			var n int64
			n, err = k.Records.Count(ctx, s.workspace(k.Resource))
			size += n * hashMemory
		}
	}
	if err != nil || size <= store.UnweighedBytes {
		return err
	}
	return r.Room.Hold(ctx, size/definedCopies)
}

// learn adds a valid definition of the bundle, unless the organization has reached their limit. A definition that the
// bundle says is deleted is added, too, because an export contains its records.
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
		v.Learn(k.Resource, was, "") // for fields that the line does not give
	}
	v.Learn(k.Resource, e.rec, "")
}

// settle replaces a definition of the bundle by its final state, once the stored definition that it changes is known.
// The bundle may have another identifier for it.
func (v *view) settle(e *entry) {
	if e.old == nil {
		return
	}
	v.Learn(e.kind.Resource, e.old, "")
	if own := e.kind.Meta(e.rec).ID; own != "" && own != e.kind.Meta(e.old).ID {
		v.Learn(e.kind.Resource, e.old, own)
	}
}
