package crud

import (
	"context"
	"slices"

	"tenantry/backends/record"
	"tenantry/backends/store"
	"tenantry/internal/fault"
	"tenantry/operation"
)

// logged reports whether the event log tells of the records, which are documents of the organization then, and all rows
// of the resource are made. A row that answers one of the records must be Logged.
func (s *handlers) logged() bool {
	return !s.of.Control && !s.of.Single && !s.of.Records.Spec().Uncounted && !s.alone
}

// Logged returns the Logged of a row of the module's own that answers one record by its identifier.
func Logged(of *record.Resource) *operation.Logged {
	return &operation.Logged{Resource: of.Name, See: (&handlers{of: of}).see}
}

// see says which events the caller sees.
func (s *handlers) see(ctx context.Context, c *operation.Call, changes []store.Event) ([]store.Seen, error) {
	var ids []string
	for i := range changes {
		if !changes[i].Gone && !slices.Contains(ids, changes[i].Record) {
			ids = append(ids, changes[i].Record)
		}
	}
	ws := c.Workspace
	there, err := ws.Revisions(ctx, s.of.Records.Spec(), ids)
	if err != nil {
		return nil, err
	}
	within, err := s.definitionsSeen(ctx, c, changes)
	seen := make([]store.Seen, len(changes))
	for i := range changes {
		change := &changes[i]
		_, shown := there[change.Record]
		switch {
		case within != nil && !within[change.Of]:
		case shown, change.Gone && ws.Covers(change.Teams):
			seen[i] = store.Shown
		case change.Moved && ws.Covers(change.Were):
			seen[i] = store.Lost
		}
	}
	return seen, err
}

// definitionsSeen returns the definitions of the changed records that the caller sees; nil if the path names none.
func (s *handlers) definitionsSeen(
	ctx context.Context, c *operation.Call, changes []store.Event,
) (map[string]bool, error) {
	if s.parent == "" {
		return nil, nil
	}
	var names []string
	for i := range changes {
		if of := changes[i].Of; of != "" && !slices.Contains(names, of) {
			names = append(names, of)
		}
	}
	by := s.of.Definer()
	found, err := by.Records.Find(ctx, c.Workspace, store.Query{
		Filter: store.In(by.Stored(by.KeyField().Name), names...), Shared: true,
	})
	seen := make(map[string]bool, len(found))
	for _, rec := range found {
		seen[by.Identity(rec)] = true
	}
	return seen, err
}

// changesInput is the input of lists whose records have a event log.
type changesInput struct {
	ChangedAfter string `json:"changed_after" rule:"max=40" doc:"Instead of page and sort: what has changed since an answer with this next, or since the event with this id; /api/events has the first. Results are the records of the list that were created, changed or restored, as they are now; gone are the identifiers of those that were deleted, or are not in the list any more. per_page counts changes. Go on with next while more is true."`
}

// changed answers what has changed since a cursor.
func (s *handlers) changed(ctx context.Context, c *operation.Call, in listInput) (any, error) {
	var errs fault.List
	for name, sent := range map[string]bool{
		"page": in.Page != 1, "after": in.After != "", "sort": in.Sort != "" && in.Sort != s.Sort, "deleted": in.Deleted,
	} {
		if sent {
			errs.Add(name, fault.Duplicate, "%s and changed_after exclude each other", name)
		}
	}
	where, _, err := s.where(ctx, c, in.selection, &errs)
	if err == nil {
		err = errs.Err()
	}
	if err != nil {
		return nil, err
	}
	q := store.EventsQuery{
		Kinds: []string{s.of.Name}, Limit: in.Limit(),
		See: func(ctx context.Context, _ string, changes []store.Event) ([]store.Seen, error) {
			return s.see(ctx, c, changes)
		},
	}
	if s.parent != "" {
		q.Of = c.Path(s.parent)
	}
	part, err := c.Events(ctx, "changed_after", in.ChangedAfter, q)
	if err != nil {
		return nil, err
	}
	found, gone, n, err := s.present(ctx, c, part.Events.Events, where)
	if err != nil {
		return nil, err
	}
	if n < len(part.Events.Events) { // the records of the others do not fit
		part.UpTo, part.More = part.Events.Events[n-1].Position(), true
	}
	results, err := s.results(ctx, c, found)
	next := part.Next()
	return operation.Part[any]{
		Next: &next, More: &part.More, Gone: &gone, Count: int64(len(results)), Results: results,
	}, err
}

// present returns the records of the first n changes that are in the list now, in the order of their last change, and
// the identifiers of the others. n is less than all if the records would be too large together.
func (s *handlers) present(
	ctx context.Context, c *operation.Call, changes []store.Event, where store.Filter,
) (found []any, gone []string, n int, err error) {
	for n = len(changes); ; n = max(1, n/2) {
		var ids []string
		for i := n - 1; i >= 0; i-- {
			if !slices.Contains(ids, changes[i].Record) {
				ids = append(ids, changes[i].Record)
			}
		}
		slices.Reverse(ids)
		gone = []string{}
		if len(ids) == 0 {
			return nil, gone, n, nil
		}
		part, err := s.of.Collection.FindPart(ctx, s.workspace(c), store.Query{
			Filter: store.All(where, store.In("id", ids...)), Limit: len(ids), Bytes: operation.PageBytes,
		})
		if err != nil {
			return nil, nil, 0, err
		}
		if part.Cut && n > 1 {
			continue
		}
		at := make(map[string]any, len(part.Records))
		for _, rec := range part.Records {
			at[s.of.Meta(rec).ID] = rec
		}
		for _, id := range ids {
			if rec := at[id]; rec != nil {
				found = append(found, rec)
			} else {
				gone = append(gone, id)
			}
		}
		return found, gone, n, nil
	}
}
