package mongo

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"tenantry/backends/driver"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
)

const (
	// maxCommand bounds the documents of one command.
	maxCommand = 1000
	// maxRaces bounds the retries of an upsert that conflicts with a concurrent one.
	maxRaces = 8
)

// change is a write whose document is encoded.
type change struct {
	id  string   // the stored _id
	rev int64    // the expected revision; for a Put, the new one
	doc bson.Raw // nil for Delete and Hold
}

// step is the work of one command: a single write, or a run of inserts, puts or holds.
type step struct {
	k        *kind
	op       driver.WriteOp
	position int // index in the batch of the first change
	changes  []change
}

// Write applies the writes in order, each run of inserts, puts or holds in one command. If the server refuses a write,
// the writes before it are undone in reverse order, so that a refused batch leaves nothing behind, apart from documents
// that puts have replaced. If the outcome of a command is unknown, after an outage or a deadline, the writes before it
// may remain. Other callers can see a batch that is applied in part.
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
		// A cancellation takes effect between two commands only, because within one it would leave the outcome unknown.
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
				return fmt.Errorf("%w: a batch was refused, and its earlier writes could not be undone",
					driver.ErrUnavailable)
			}
			return err
		}
	}
	return nil
}

// uncanceled returns a context that keeps the values and the deadline of ctx, but not its cancellation.
func uncanceled(ctx context.Context) (context.Context, context.CancelFunc) {
	free := context.WithoutCancel(ctx)
	if d, ok := ctx.Deadline(); ok {
		return context.WithDeadline(free, d)
	}
	return free, func() {}
}

// isRefusal reports whether the error means that the write was not applied.
func isRefusal(err error) bool {
	if server, is := errors.AsType[mongo.ServerError](err); is {
		return locked(err) || !server.HasErrorLabel("NetworkError") && !transient(server) &&
			!hasCode(server, codeMaxTimeExpired)
	}
	return err != nil && isOurs(err)
}

// steps encodes the writes and groups them into commands.
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

// at returns the filter for one document of the workspace, at the revision rev if that is given.
func (w *workspace) at(id string, rev ...int64) bson.D {
	f := bson.D{
		{Key: "org_id", Value: bson.D{{Key: "$eq", Value: w.name}}},
		{Key: "_id", Value: bson.D{{Key: "$eq", Value: id}}},
	}
	if len(rev) > 0 {
		f = append(f, bson.E{Key: "rev", Value: bson.D{{Key: "$eq", Value: rev[0]}}})
	}
	return f
}

// attempt is a batch that is being applied, with the functions that undo the part already applied.
type attempt struct {
	w     *workspace
	ctx   context.Context
	alone bool // the batch has a single write, so there is nothing to undo
	undos []func(context.Context) error
}

func (b *attempt) onUndo(undo func(context.Context) error) {
	if !b.alone {
		b.undos = append(b.undos, undo)
	}
}

// undo reverts the applied writes, except where another writer has changed a document since, and reports whether it
// succeeded. It keeps to the caller's deadline, because the organization may live on another backend afterwards.
func (b *attempt) undo() bool {
	ctx, cancel := uncanceled(b.ctx)
	defer cancel()
	for i := len(b.undos) - 1; i >= 0; i-- {
		if err := b.w.engine.call(ctx, "undo a refused batch", b.undos[i]); err != nil {
			b.w.engine.opts.Log.Error("the writes before a refused one could not be undone and remain",
				"workspace", b.w.name, "commands", i+1, "error", err)
			return false
		}
	}
	return true
}

// apply applies a step. After an error the step has the changes that remain to be applied.
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

// placed sets the position of a duplicate in the batch.
func (s *step) placed(err error) error {
	if d, is := err.(*driver.DuplicateError); is { //nolint:errorlint // made here
		d.Position += s.position
	}
	return err
}

// advance removes the first n changes from the step, because they are stored, and registers their undo.
func (b *attempt) advance(s *step, n int) {
	if n == 0 {
		return
	}
	ids := make([]string, n)
	for i, c := range s.changes[:n] {
		ids[i] = c.id
	}
	b.onUndo(b.deletion(s.k, 1, ids...))
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
		if _, _, is := duplicateKey(err); !is {
			return err
		}
		// The library has sent the command again, and may have met documents that its first try stored.
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

// insertAll sends the changes in one command and returns how many are stored. An error is about the next one.
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

// deletion returns a function that undoes inserts of documents that are still at the revision.
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

// put replaces or inserts documents. Two concurrent upserts of one id may both try to insert it; the second is retried.
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
					b.onUndo(b.deletion(s.k, rest[i].rev, rest[i].id))
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
		if sent.Load() > 1 { // the library has retried: the first try may have applied the change
			if own, err := b.own(ctx, s.k, s.changes); err != nil || own > 0 {
				return err
			}
		}
		return s.conflict()
	}
	before, err := s.k.coll.FindOneAndReplace(ctx, b.w.at(c.id, c.rev), c.doc,
		options.FindOneAndReplace().SetReturnDocument(options.Before)).Raw()
	if errors.Is(err, mongo.ErrNoDocuments) {
		return s.conflict()
	}
	if err == nil {
		b.onUndo(func(ctx context.Context) error {
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
		b.onUndo(func(ctx context.Context) error {
			_, err := s.k.coll.InsertOne(ctx, before)
			return err
		})
	}
	return err
}

// hold returns a *driver.ConflictError unless all documents are at the expected revisions.
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
// No value is returned twice: $max never lowers the counter, and each $inc is an atomic change that returns its own
// result. Calls of others between the two commands only raise the counter further.
func (w *workspace) Counter(ctx context.Context, name string, add, atLeast int64) (int64, error) {
	counters := w.space.db.Collection(counterCollection)
	at := w.at(w.name + "/" + name)
	var value int64
	err := w.call(ctx, "raise a counter", func(ctx context.Context) error {
		if atLeast > 0 {
			raise := bson.D{{Key: "$max", Value: bson.D{{Key: "value", Value: atLeast}}}}
			err := retryUpsert(func() error {
				_, err := counters.UpdateOne(ctx, at, raise, options.UpdateOne().SetUpsert(true))
				return err
			})
			if err != nil {
				return err
			}
		}
		increase := bson.D{{Key: "$inc", Value: bson.D{{Key: "value", Value: add}}}}
		return retryUpsert(func() error {
			after, err := counters.FindOneAndUpdate(ctx, at, increase,
				options.FindOneAndUpdate().SetUpsert(true).SetReturnDocument(options.After)).Raw()
			if err != nil {
				return err
			}
			var ok bool
			if value, ok = after.Lookup("value").AsInt64OK(); !ok {
				return fault{errors.New("the stored counter is not a number")}
			}
			return nil
		})
	})
	return value, err
}

// Counters implements driver.Counting.
func (w *workspace) Counters(ctx context.Context) (map[string]int64, error) {
	all := map[string]int64{}
	err := w.call(ctx, "list counters", func(ctx context.Context) error {
		clear(all)
		cursor, err := w.space.db.Collection(counterCollection).Find(ctx, of(w.name))
		if err != nil {
			return err
		}
		defer func() { _ = cursor.Close(ctx) }()
		for cursor.Next(ctx) {
			id, _ := cursor.Current.Lookup("_id").StringValueOK()
			name, ours := strings.CutPrefix(id, w.name+"/")
			if value, ok := cursor.Current.Lookup("value").AsInt64OK(); ours && ok {
				all[name] = value
			}
		}
		return cursor.Err()
	})
	return all, err
}

// retryUpsert repeats an upsert that lost a race for the same new document. Some servers report that with an answer
// without a document.
func retryUpsert(upsert func() error) error {
	for race := 0; ; race++ {
		err := upsert()
		none := errors.Is(err, mongo.ErrNoDocuments)
		switch {
		case !none && !mongo.IsDuplicateKeyError(err):
			return err
		case race == maxRaces && none:
			return fault{errors.New("MongoDB returned no document from an upsert")}
		case race == maxRaces:
			return err
		}
	}
}
