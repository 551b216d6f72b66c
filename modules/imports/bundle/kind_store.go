package bundle

import (
	"cmp"
	"context"
	"maps"
	"slices"

	"tenantry/backends/record/field"
	"tenantry/backends/store"
	"tenantry/internal/fault"
)

// insert stores new records: all or none.
func (k *kind) insert(ctx context.Context, s *session, batch []*entry) error {
	if err := s.confirmAccess(ctx); err != nil {
		return err
	}
	if k.Rights { // definitions are stored one batch after another, so this is not concurrent
		s.rightsChanged = true
	}
	recs := make([]any, len(batch))
	for i, e := range batch {
		if e.id == "" {
			e.id = s.workspace(k.Resource).NewID()
		}
		k.Meta(e.rec).ID = e.id
		if len(e.secrets) > 0 {
			if _, err := s.vault.Put(ctx, k.place(e.id), k.Secrets(e.rec), e.secrets); err != nil {
				return err
			}
		}
		k.Fill(e.rec)
		recs[i] = e.rec
	}
	if err := k.Number(ctx, s.workspace(k.Resource), recs); err != nil {
		return err
	}
	if hasBytes(batch) {
		return s.storeBytes(ctx, batch, k.unchanged(s, batch), func(_ context.Context, b *store.Batch) error {
			return k.Collection.StageInsert(s.workspace(k.Resource), b, recs...)
		})
	}
	return k.Records.Insert(ctx, s.workspace(k.Resource), requiring(k.unchanged(s, batch)), recs)
}

// portion returns the first of the new records, as many as one write should store.
func (k *kind) portion(s *session, batch []*entry) []*entry {
	batch = fitting(batch)
	recs := make([]any, len(batch))
	for i, e := range batch {
		recs[i] = e.rec
	}
	return batch[:k.Records.Portion(s.workspace(k.Resource), recs)]
}

// unchanged returns the preconditions that the definitions that the batch was checked against are unchanged.
func (k *kind) unchanged(s *session, batch []*entry) []store.Precondition {
	if k.Definer() != nil {
		names := map[string]bool{}
		for _, e := range batch {
			k.AddDefinitions(names, e.rec, maps.Keys(*k.Values(e.rec)), maps.Keys(e.secrets))
		}
		return s.view.Unchanged(s.workspace(k.Resource), k.Resource, names)
	}
	return nil
}

func requiring(unchanged []store.Precondition) (need store.Preconditions) {
	need.Require(unchanged...)
	return need
}

// replace stores one changed record.
func (k *kind) replace(ctx context.Context, s *session, e *entry) error {
	if err := s.confirmAccess(ctx); err != nil {
		return err
	}
	if k.Rights {
		s.rightsChanged = true
	}
	write := func() error {
		need := k.unchanged(s, []*entry{e})
		if e.bytes != nil {
			return s.storeBytes(ctx, []*entry{e}, need, func(ctx context.Context, b *store.Batch) error {
				return k.Collection.StageReplace(ctx, s.workspace(k.Resource), b, e.old)
			})
		}
		return k.Records.Replace(ctx, s.workspace(k.Resource), requiring(need), e.old, func(rec any) {
			k.apply(rec, e, func(*field.Field) bool { return false })
		})
	}
	switch {
	case k.guard != nil:
		return k.guard(ctx, s, e.old, write)
	case s.mirror == nil && slices.ContainsFunc(s.kinds, func(of *kind) bool { return of.DefinedBy == k.Name }):
		return k.redefine(ctx, s, e.old, write)
	}
	return write()
}

// redefine changes a definition, and undoes the change if records were stored meanwhile whose values it would leave in
// clear or sealed. No such records can be stored afterwards.
func (k *kind) redefine(ctx context.Context, s *session, def any, write func() error) error {
	found, err := k.known(ctx, s, k.Meta(def).ID)
	if err == nil {
		err = write()
	}
	if err != nil || len(found) == 0 {
		return err
	}
	_, before := k.Defines(found[0])
	var errs fault.List
	if err = k.resealed(ctx, s, def, before, &errs); err == nil {
		err = errs.Err()
	}
	if err == nil {
		return nil
	}
	k.Meta(found[0]).Rev = k.Meta(def).Rev
	return cmp.Or(k.Records.Replace(ctx, s.workspace(k.Resource), store.Preconditions{}, found[0], nil), err)
}
