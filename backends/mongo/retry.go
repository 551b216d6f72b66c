package mongo

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync/atomic"
	"time"

	"tenantry/backends/driver"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/event"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
)

const (
	// A command that lost a lock to another one is sent again after about firstPause, then twice as
	// long, and for the last time after lastPause: within half a second in all.
	firstPause = 8 * time.Millisecond
	lastPause  = 256 * time.Millisecond
)

// locked reports whether the server gave the command up for a lock that others hold, and did none
// of it.
func locked(err error) bool {
	var server mongo.ServerError
	return errors.As(err, &server) && slices.ContainsFunc([]int{24, 46, 112}, server.HasErrorCode)
}

// patiently runs do again while others hold its locks.
func patiently(ctx context.Context, do func(context.Context) error) error {
	for pause := firstPause; ; pause *= 2 {
		err := do(ctx)
		if !locked(err) || pause > lastPause {
			return err
		}
		select {
		case <-time.After(pause/2 + rand.N(pause)): //nolint:gosec // it spreads writers, and hides nothing
		case <-ctx.Done():
			return err
		}
	}
}

// triesKey is the context's key of a counter of the commands that a call of the library sends.
type triesKey struct{}

// counting returns a context whose commands are counted: more than one says that the library has
// repeated a write whose answer was lost.
func counting(ctx context.Context) (context.Context, *atomic.Int32) {
	sent := new(atomic.Int32)
	return context.WithValue(ctx, triesKey{}, sent), sent
}

// countTries returns a monitor that counts for counting, and tells also of everything.
func countTries(also *event.CommandMonitor) *event.CommandMonitor {
	m := &event.CommandMonitor{}
	if also != nil {
		*m = *also
	}
	told := m.Started
	m.Started = func(ctx context.Context, e *event.CommandStartedEvent) {
		if sent, ok := ctx.Value(triesKey{}).(*atomic.Int32); ok {
			sent.Add(1)
		}
		if told != nil {
			told(ctx, e)
		}
	}
	return m
}

// own returns how many of the first changes are stored exactly as they were sent: those are the
// writes of an earlier try, whose answer was lost.
func (b *attempt) own(ctx context.Context, k *kind, changes []change) (int, error) {
	ids := make(bson.A, len(changes))
	for i, c := range changes {
		ids[i] = c.id
	}
	cursor, err := k.coll.Find(ctx, bson.D{
		{Key: "org_id", Value: bson.D{{Key: "$eq", Value: b.w.name}}}, {Key: "_id", Value: bson.D{{Key: "$in", Value: ids}}},
	}, options.Find().SetBatchSize(batch(len(ids))))
	if err != nil {
		return 0, err
	}
	defer func() { _ = cursor.Close(ctx) }()
	there := make(map[string][]byte, len(changes))
	for cursor.Next(ctx) {
		if id, ok := cursor.Current.Lookup("_id").StringValueOK(); ok {
			there[id] = bytes.Clone(cursor.Current)
		}
	}
	if err := cursor.Err(); err != nil {
		return 0, err
	}
	for i, c := range changes {
		if !bytes.Equal(c.doc, there[c.id]) {
			return i, nil
		}
	}
	return len(changes), nil
}

// repeated tells whether the server refused a write for a unique value, at which place of the
// command, and the fields of the index where it names them.
func repeated(err error) (at int, fields []string, is bool) {
	var (
		raw     bson.Raw
		bulk    mongo.BulkWriteException
		write   mongo.WriteException
		command mongo.CommandError
	)
	switch {
	case errors.As(err, &bulk) && len(bulk.WriteErrors) > 0:
		first := bulk.WriteErrors[0]
		raw, at, is = first.Raw, first.Index, first.HasErrorCode(codeDuplicate)
	case errors.As(err, &write) && len(write.WriteErrors) > 0:
		first := write.WriteErrors[0]
		raw, is = first.Raw, first.HasErrorCode(codeDuplicate)
	case errors.As(err, &command):
		raw, is = command.Raw, command.HasErrorCode(codeDuplicate)
	}
	if pattern, ok := raw.Lookup("keyPattern").DocumentOK(); ok && is {
		elements, err := pattern.Elements()
		for _, e := range elements {
			fields = append(fields, e.Key())
		}
		if err != nil {
			fields = nil
		}
	}
	return at, fields, is
}

// duplicate returns the error for a write that repeats a unique value, with its place among the
// changes, or err where that is another one. Servers that name the index do so by its fields; others
// are asked which value is there already.
func (b *attempt) duplicate(ctx context.Context, s *step, changes []change, err error) error {
	at, fields, is := repeated(err)
	if !is || at < 0 || at >= len(changes) {
		return err
	}
	d := &driver.DuplicateError{Collection: s.k.name, Position: at}
	if d.Index = s.k.broken(fields); d.Index != "" {
		return d
	}
	switch index, err := b.w.taken(ctx, s.k, changes[at]); {
	case err != nil:
		return err
	case index != "":
		d.Index = index
		return d
	}
	return fault{fmt.Errorf("%w: MongoDB refused a write to %s since it repeats a unique value, which is gone by now", driver.ErrUnavailable, s.k.name)}
}

// broken returns the declared name of the unique index over these fields, "" for none.
func (k *kind) broken(fields []string) string {
	if len(fields) == 1 && fields[0] == "_id" {
		return "id"
	}
	for _, d := range k.indexes {
		if d.unique && slices.EqualFunc(d.keys, fields, func(key bson.E, name string) bool {
			return key.Key == name
		}) {
			return d.declared
		}
	}
	return ""
}

// taken returns the declared name of a unique index, or "id", by which another document has the
// values of the change already; "" where none has.
func (w *workspace) taken(ctx context.Context, k *kind, c change) (string, error) {
	there := func(filter bson.D) (bool, error) {
		err := k.coll.FindOne(ctx, filter, options.FindOne().SetProjection(bson.D{{Key: "_id", Value: int32(1)}})).Err()
		if errors.Is(err, mongo.ErrNoDocuments) {
			return false, nil
		}
		return err == nil, err
	}
	for _, d := range k.uniques() {
		now := bson.D{}
		for _, key := range d.keys {
			v := c.doc.Lookup(key.Key)
			if v.Type == 0 || v.Type == bson.TypeNull {
				now = nil // the document is not in the index
				break
			}
			now = append(now, bson.E{Key: key.Key, Value: bson.D{{Key: "$eq", Value: v}}})
		}
		if now == nil {
			continue
		}
		if found, err := there(append(now, bson.E{Key: fieldID, Value: bson.D{{Key: "$ne", Value: c.id}}})); err != nil || found {
			return d.declared, err
		}
	}
	if found, err := there(w.at(c.id)); err != nil || !found {
		return "", err
	}
	return "id", nil
}
