package crud

import (
	"context"
	"errors"
	"net/http"
	"strings"

	"tenantry/backends/store"
	"tenantry/internal/fault"
	"tenantry/internal/strictjson"
	"tenantry/operation"
)

func (s *handlers) create() operation.Row {
	row := s.row("create", http.MethodPost, s.Path, s.Thing+" created")
	row.Summary, row.Verb = "Create "+s.thing(), "Create"
	row.Upload = s.Create.Upload // set before the fields are declared, because the fields of an upload are in the query
	s.declareBody(&row, false)
	return typedRow(s, row, func(ctx context.Context, c *operation.Call, _ struct{}) (result operation.Result, err error) {
		for range tries {
			if result, err = s.add(ctx, c); s.Keeper != nil || !errors.Is(err, store.ErrConflict) {
				break
			}
		}
		return result, s.problem(err)
	})
}

// add stores the record of the body. Errors: store.ErrConflict if a precondition has changed.
func (s *handlers) add(ctx context.Context, c *operation.Call) (operation.Result, error) {
	rec, b := s.of.New(), s.workspace(c).Batch()
	if s.Keeper != nil {
		return s.addKept(ctx, c, b, rec)
	}
	if err := s.stageNew(ctx, c, b, rec, s.sent(c)); err != nil {
		b.Discard()
		return operation.Result{}, err
	}
	result, err := c.Commit(ctx, b, s.answer(c, rec))
	return result, s.of.Taken(ctx, s.workspace(c), rec, err)
}

// addKept has the Keeper store the record of the body.
func (s *handlers) addKept(ctx context.Context, c *operation.Call, b *store.Batch, rec any) (operation.Result, error) {
	if err := s.take(ctx, c, &b.Preconditions, rec, nil, s.sent(c)); err != nil {
		return operation.Result{}, err
	}
	if err := s.room(ctx, c); err != nil {
		return operation.Result{}, err
	}
	rec, err := s.Keeper.insert(ctx, c, rec)
	if err != nil {
		return operation.Result{}, err
	}
	return s.answer(c, rec)(ctx)
}

// stageNew reads a body into a new record, checks and completes it, and stages it in the batch.
func (s *handlers) stageNew(
	ctx context.Context, c *operation.Call, b *store.Batch, rec any, body strictjson.Value,
) error {
	s.of.Meta(rec).ID = c.Workspace.NewID() // secrets are sealed for the identifier
	if err := s.take(ctx, c, &b.Preconditions, rec, nil, body); err != nil {
		return err
	}
	if err := s.room(ctx, c); err != nil {
		return err
	}
	s.of.Fill(rec)
	if err := s.of.Number(ctx, c.Workspace, []any{rec}); err != nil {
		return err
	}
	if err := s.stage(ctx, c, b, rec, nil); err != nil {
		return err
	}
	return s.of.Collection.StageInsert(s.workspace(c), b, rec)
}

// stage calls the hook of that name, if there is one.
func (s *handlers) stage(ctx context.Context, c *operation.Call, b *store.Batch, rec, was any) error {
	if s.Stage == nil {
		return nil
	}
	return s.Stage(ctx, c, b, rec, was)
}

// room refuses a record if the organization has reached the limit of the resource. Two concurrent calls may both pass.
func (s *handlers) room(ctx context.Context, c *operation.Call) error {
	if s.of.Most == 0 {
		return nil
	}
	n, err := s.of.Collection.CountIn(ctx, s.workspace(c), store.Filter{}, store.Either)
	if err == nil && n >= int64(s.of.Most) {
		err = fault.One("id", fault.Length, "there are already %d %s, which is the limit", n, strings.ToLower(s.Things))
	}
	return err
}
