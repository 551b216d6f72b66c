package mongo

import (
	"context"
	"errors"
	"fmt"

	"tenantry/backends/driver"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
)

const (
	// maxCommand is how many documents one command carries.
	maxCommand = 1000
	// maxRaces is how often an upsert is tried that another one got in the way of.
	maxRaces = 8
)

// change is a write whose document is ready to be sent.
type change struct {
	id  string   // as stored
	rev int64    // expected before, or of a Put
	doc bson.Raw // nil for Delete and Hold
}

// step is what one command does: one write, or a run of inserts, puts or holds.
type step struct {
	k        *kind
	op       driver.WriteOp
	position int
	changes  []change
}

// Write applies the writes in order, each run of inserts, puts or holds in one command. Where the server refuses one,
// those before it are undone in reverse order, so that a refused batch leaves nothing, except what puts replaced. Where
// the outcome of a command is unknown, after an outage or a deadline, the writes before it may remain. Other callers
// can see a batch half done.
func (w *workspace) Write(ctx context.Context, writes []driver.Write) error {
	steps, err := w.steps(writes)
	if err != nil {
		return err
	}
	if err := w.idle(ctx, "write"); err != nil || len(steps) == 0 {
		return err
	}
	if err := w.enter(); err != nil {
		return fmt.Errorf("write: %w", err)
	}
	defer w.lease.running.Add(-1)
	b := &attempt{w: w, ctx: ctx, alone: len(writes) == 1}
	run := ctx
	if len(steps) > 1 {
		// Between two commands the caller may go away; within one its outcome would be unknown.
		var cancel context.CancelFunc
		run, cancel = uncanceled(ctx)
		defer cancel()
	}
	for _, s := range steps {
		if err := ctx.Err(); err != nil {
			b.undo()
			return fmt.Errorf("write: %w", err)
		}
		refused := false
		err := w.engine.call(run, "write", func(ctx context.Context) error {
			err := b.apply(ctx, &s)
			refused = isRefusal(err)
			return err
		})
		if err != nil {
			if refused && !b.undo() {
				return fmt.Errorf("%w: a batch was refused, and the writes before that could not be undone", driver.ErrUnavailable)
			}
			return err
		}
	}
	return nil
}

// uncanceled returns a context with the deadline of ctx and nothing else of its end.
func uncanceled(ctx context.Context) (context.Context, context.CancelFunc) {
	free := context.WithoutCancel(ctx)
	if d, ok := ctx.Deadline(); ok {
		return context.WithDeadline(free, d)
	}
	return free, func() {}
}

// isRefusal reports whether the server answered that it did not do the write.
func isRefusal(err error) bool {
	if server, is := errors.AsType[mongo.ServerError](err); is {
		return locked(err) || !server.HasErrorLabel("NetworkError") && !passing(server) && !hasCode(server, codeMaxTimeExpired)
	}
	return err != nil && isOurs(err)
}

func (w *workspace) steps(writes []driver.Write) ([]step, error) {
	var steps []step
	for i := range writes {
		wr := &writes[i]
		k, err := w.kind(wr.Collection)
		if err != nil {
			return nil, fmt.Errorf("write %d: %w", i, err)
		}
		c, err := w.change(k, wr)
		if err != nil {
			return nil, fmt.Errorf("write %d: %w", i, err)
		}
		if n := len(steps); n > 0 && (wr.Op == driver.Insert || wr.Op == driver.Put || wr.Op == driver.Hold) {
			if last := &steps[n-1]; last.k.shape == k.shape && last.op == wr.Op && len(last.changes) < maxCommand {
				last.changes = append(last.changes, c)
				continue
			}
		}
		steps = append(steps, step{k: k, op: wr.Op, position: i, changes: []change{c}})
	}
	return steps, nil
}

func (w *workspace) change(k *kind, wr *driver.Write) (change, error) {
	c := change{id: w.name + "/" + wr.Doc.ID, rev: wr.Doc.Rev}
	if wr.Doc.ID == "" {
		return c, fmt.Errorf("a document of %s has no id", k.name)
	}
	rev := wr.Doc.Rev
	switch wr.Op {
	case driver.Delete, driver.Hold:
		return c, nil
	case driver.Insert:
		rev = 1
	case driver.Replace:
		rev++
	case driver.Put:
	default:
		return c, fmt.Errorf("unknown write %d", wr.Op)
	}
	var err error
	c.doc, err = k.document(w.name, &wr.Doc, rev)
	return c, err
}

// at is the question for one document of the workspace, at a revision where rev is given.
func (w *workspace) at(id string, rev ...int64) bson.D {
	f := bson.D{{Key: "org_id", Value: bson.D{{Key: "$eq", Value: w.name}}}, {Key: "_id", Value: bson.D{{Key: "$eq", Value: id}}}}
	if len(rev) > 0 {
		f = append(f, bson.E{Key: "rev", Value: bson.D{{Key: "$eq", Value: rev[0]}}})
	}
	return f
}

// attempt is a batch on its way, and what undoes the part of it that is done.
type attempt struct {
	w     *workspace
	ctx   context.Context
	alone bool // the batch is one write, so that there is nothing to undo
	undos []func(context.Context) error
}

func (b *attempt) later(undo func(context.Context) error) {
	if !b.alone {
		b.undos = append(b.undos, undo)
	}
}

// undo puts things back, as far as nobody else has changed them since, and reports whether nothing of it failed. It
// ends with the caller's deadline, as every change does: once that has passed, the organization may live elsewhere.
func (b *attempt) undo() bool {
	ctx, cancel := uncanceled(b.ctx)
	defer cancel()
	for i := len(b.undos) - 1; i >= 0; i-- {
		if err := b.w.engine.call(ctx, "undo a refused batch", b.undos[i]); err != nil {
			b.w.engine.opts.Log.Error("the writes before a refused one could not be undone and remain", "workspace", b.w.name, "commands", i+1, "error", err)
			return false
		}
	}
	return true
}

// apply does a step. What an error leaves of it to do stays in the step.
func (b *attempt) apply(ctx context.Context, s *step) error {
	switch s.op {
	case driver.Insert:
		return b.insert(ctx, s)
	case driver.Put:
		return b.put(ctx, s)
	case driver.Replace:
		return s.placed(b.replace(ctx, s))
	case driver.Hold:
		return b.hold(ctx, s)
	}
	return b.remove(ctx, s)
}

// placed gives a duplicate its place in the batch.
func (s *step) placed(err error) error {
	if d, is := err.(*driver.DuplicateError); is { //nolint:errorlint // made here
		d.Position += s.position
	}
	return err
}

// advance takes the first n changes off the step, which are stored.
func (b *attempt) advance(s *step, n int) {
	if n == 0 {
		return
	}
	ids := make([]string, n)
	for i, c := range s.changes[:n] {
		ids[i] = c.id
	}
	b.later(b.deletion(s.k, 1, ids...))
	s.changes, s.position = s.changes[n:], s.position+n
}

func (b *attempt) insert(ctx context.Context, s *step) error {
	for {
		run, sent := counting(ctx)
		done, err := b.insertAll(run, s)
		b.advance(s, done)
		if err == nil || sent.Load() < 2 {
			return s.placed(b.duplicate(ctx, s, s.changes, err))
		}
		if _, _, is := repeated(err); !is {
			return err
		}
		// The library has sent it again, and may have met what it had stored itself.
		own, lookErr := b.own(ctx, s.k, s.changes)
		if lookErr != nil {
			return lookErr
		}
		if b.advance(s, own); len(s.changes) == 0 {
			return nil
		}
		if own == 0 {
			return s.placed(b.duplicate(ctx, s, s.changes, err))
		}
	}
}

// insertAll sends the changes in one command. It returns how many of them are stored; an error is
// about the one that follows.
func (b *attempt) insertAll(ctx context.Context, s *step) (done int, err error) {
	if len(s.changes) == 1 {
		if _, err := s.k.coll.InsertOne(ctx, s.changes[0].doc); err != nil {
			return 0, err
		}
		return 1, nil
	}
	docs := make([]any, len(s.changes))
	for i, c := range s.changes {
		docs[i] = c.doc
	}
	_, err = s.k.coll.InsertMany(ctx, docs, options.InsertMany().SetOrdered(true))
	var bulk mongo.BulkWriteException
	switch {
	case err == nil:
		return len(docs), nil
	case errors.As(err, &bulk) && len(bulk.WriteErrors) > 0:
		if at := bulk.WriteErrors[0].Index; at > 0 && at < len(docs) {
			bulk.WriteErrors[0].Index = 0
			return at, bulk
		}
	}
	return 0, err
}

// deletion undoes inserts, unless somebody has changed the documents.
func (b *attempt) deletion(k *kind, rev int64, ids ...string) func(context.Context) error {
	return func(ctx context.Context) error {
		_, err := k.coll.DeleteMany(ctx, bson.D{
			{Key: "org_id", Value: bson.D{{Key: "$eq", Value: b.w.name}}},
			{Key: "_id", Value: bson.D{{Key: "$in", Value: ids}}},
			{Key: "rev", Value: bson.D{{Key: "$eq", Value: rev}}},
		})
		return err
	}
}

// put replaces or inserts. Two upserts of one id can both find nothing; the one that comes late is tried again.
func (b *attempt) put(ctx context.Context, s *step) error {
	rest := s.changes
	for race := 0; ; race++ {
		models := make([]mongo.WriteModel, len(rest))
		for i, c := range rest {
			models[i] = mongo.NewReplaceOneModel().SetFilter(b.w.at(c.id)).SetReplacement(c.doc).SetUpsert(true)
		}
		result, err := s.k.coll.BulkWrite(ctx, models, options.BulkWrite().SetOrdered(true))
		if result != nil {
			for i := range result.UpsertedIDs {
				if i >= 0 && i < int64(len(rest)) {
					b.later(b.deletion(s.k, rest[i].rev, rest[i].id))
				}
			}
		}
		err = b.duplicate(ctx, s, rest, err)
		d, is := err.(*driver.DuplicateError) //nolint:errorlint // made by duplicate
		if !is {
			return err
		}
		if d.Index == "id" && race < maxRaces {
			rest = rest[d.Position:]
			continue
		}
		d.Position += len(s.changes) - len(rest)
		return s.placed(d)
	}
}

func (b *attempt) replace(ctx context.Context, s *step) error {
	c := s.changes[0]
	if b.alone {
		run, sent := counting(ctx)
		r, err := s.k.coll.ReplaceOne(run, b.w.at(c.id, c.rev), c.doc)
		if err != nil || r.MatchedCount > 0 {
			return b.duplicate(ctx, s, s.changes, err)
		}
		if sent.Load() > 1 { // sent again: it may have met its own change
			if own, err := b.own(ctx, s.k, s.changes); err != nil || own > 0 {
				return err
			}
		}
		return s.conflict()
	}
	before, err := s.k.coll.FindOneAndReplace(ctx, b.w.at(c.id, c.rev), c.doc, options.FindOneAndReplace().SetReturnDocument(options.Before)).Raw()
	if errors.Is(err, mongo.ErrNoDocuments) {
		return s.conflict()
	}
	if err == nil {
		b.later(func(ctx context.Context) error {
			_, err := s.k.coll.ReplaceOne(ctx, b.w.at(c.id, c.rev+1), before)
			return err
		})
	}
	return b.duplicate(ctx, s, s.changes, err)
}

func (b *attempt) remove(ctx context.Context, s *step) error {
	c := s.changes[0]
	if b.alone {
		r, err := s.k.coll.DeleteOne(ctx, b.w.at(c.id, c.rev))
		if err == nil && r.DeletedCount == 0 {
			return s.conflict()
		}
		return err
	}
	before, err := s.k.coll.FindOneAndDelete(ctx, b.w.at(c.id, c.rev)).Raw()
	if errors.Is(err, mongo.ErrNoDocuments) {
		return s.conflict()
	}
	if err == nil {
		b.later(func(ctx context.Context) error {
			_, err := s.k.coll.InsertOne(ctx, before)
			return err
		})
	}
	return err
}

// hold refuses documents at other revisions.
func (b *attempt) hold(ctx context.Context, s *step) error {
	ids := make([]string, len(s.changes))
	for i, c := range s.changes {
		ids[i] = c.id
	}
	found, err := s.k.coll.Find(ctx, bson.D{
		{Key: "org_id", Value: bson.D{{Key: "$eq", Value: b.w.name}}}, {Key: "_id", Value: bson.D{{Key: "$in", Value: ids}}},
	}, options.Find().SetProjection(bson.D{{Key: "rev", Value: 1}}))
	if err != nil {
		return err
	}
	var there []struct {
		ID  string `bson:"_id"`
		Rev int64  `bson:"rev"`
	}
	if err := found.All(ctx, &there); err != nil {
		return err
	}
	revs := make(map[string]int64, len(there))
	for _, doc := range there {
		revs[doc.ID] = doc.Rev
	}
	for i, c := range s.changes {
		if revs[c.id] != c.rev {
			return &driver.ConflictError{Collection: s.k.name, Position: s.position + i}
		}
	}
	return nil
}

func (s *step) conflict() error {
	return &driver.ConflictError{Collection: s.k.name, Position: s.position}
}

// Counter sets the named counter to max(value, atLeast) + add and returns it.
//
// No value is given twice: the value only grows, because $max never lowers it, and each caller's $inc is one
// atomic change whose own result is returned. Steps of others between the two commands make it grow further.
func (w *workspace) Counter(ctx context.Context, name string, add, atLeast int64) (int64, error) {
	counters := w.space.db.Collection(counterCollection)
	at := w.at(w.name + "/" + name)
	var value int64
	err := w.call(ctx, "count up", func(ctx context.Context) error {
		if atLeast > 0 {
			err := again(func() error {
				_, err := counters.UpdateOne(ctx, at, bson.D{{Key: "$max", Value: bson.D{{Key: "value", Value: atLeast}}}}, options.UpdateOne().SetUpsert(true))
				return err
			})
			if err != nil {
				return err
			}
		}
		return again(func() error {
			after, err := counters.FindOneAndUpdate(ctx, at, bson.D{{Key: "$inc", Value: bson.D{{Key: "value", Value: add}}}},
				options.FindOneAndUpdate().SetUpsert(true).SetReturnDocument(options.After)).Raw()
			if err != nil {
				return err
			}
			var ok bool
			if value, ok = after.Lookup("value").AsInt64OK(); !ok {
				return fault{errors.New("the counter is no number")}
			}
			return nil
		})
	})
	return value, err
}

// again repeats an upsert that lost a race with another one for the same new document, which some servers tell by
// answering with no document.
func again(upsert func() error) error {
	for race := 0; ; race++ {
		err := upsert()
		none := errors.Is(err, mongo.ErrNoDocuments)
		switch {
		case !none && !mongo.IsDuplicateKeyError(err):
			return err
		case race == maxRaces && none:
			return fault{errors.New("MongoDB answered with no document, where it was to make one")}
		case race == maxRaces:
			return err
		}
	}
}
