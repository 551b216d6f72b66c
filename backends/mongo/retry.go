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
	// A command that lost a lock is sent again after about firstPause, then after twice as long each time, the last time
	// after lastPause: about half a second in all.
	firstPause = 8 * time.Millisecond
	lastPause  = 256 * time.Millisecond
)

// locked reports whether the server aborted the command because others hold a lock. It applied nothing.
func locked(err error) bool {
	var server mongo.ServerError
	return errors.As(err, &server) && slices.ContainsFunc([]int{24, 46, 112}, server.HasErrorCode)
}

// retryLocked runs do, and again while others hold the locks it needs.
func retryLocked(ctx context.Context, do func(context.Context) error) error {
	for pause := firstPause; ; pause *= 2 {
		err := do(ctx)
		if !locked(err) || pause > lastPause {
			return err
		}
		select {
		case <-time.After(pause/2 + rand.N(pause)): //nolint:gosec // jitter needs no secure randomness
		case <-ctx.Done():
			return err
		}
	}
}

// triesKey is the context key of the counter of commands.
type triesKey struct{}

// counting returns a context whose commands are counted. A count above one means that the library has retried a write
// whose answer was lost.
func counting(ctx context.Context) (context.Context, *atomic.Int32) {
	sent := new(atomic.Int32)
	return context.WithValue(ctx, triesKey{}, sent), sent
}

// countTries returns a monitor that counts commands for counting, and passes all events to also.
func countTries(also *event.CommandMonitor) *event.CommandMonitor {
	m := &event.CommandMonitor{}
	if also != nil {
		*m = *also
	}
	next := m.Started
	m.Started = func(ctx context.Context, e *event.CommandStartedEvent) {
		if sent, ok := ctx.Value(triesKey{}).(*atomic.Int32); ok {
			sent.Add(1)
		}
		if next != nil {
			next(ctx, e)
		}
	}
	return m
}

// own returns how many changes, counted from the first, are stored exactly as they were sent. They are the writes of an
// earlier try whose answer was lost.
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

// duplicateKey reports whether the server refused a write because of a unique index. It returns the index of the write
// in the command, and the fields of the index if the server names them.
func duplicateKey(err error) (at int, fields []string, is bool) {
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

// duplicate turns a duplicate key error into a *driver.DuplicateError with the index among the changes, and returns
// other errors unchanged. If the server does not name the fields of the index, duplicate looks for the existing value.
func (b *attempt) duplicate(ctx context.Context, s *step, changes []change, err error) error {
	at, fields, is := duplicateKey(err)
	if !is || at < 0 || at >= len(changes) {
		return err
	}
	d := &driver.DuplicateError{Collection: s.k.name, Position: at}
	if d.Index = s.k.uniqueIndex(fields); d.Index != "" {
		return d
	}
	switch index, err := b.w.taken(ctx, s.k, changes[at]); {
	case err != nil:
		return err
	case index != "":
		d.Index = index
		return d
	}
	return fault{fmt.Errorf("%w: MongoDB refused a write to %s because of a unique value that no longer exists",
		driver.ErrUnavailable, s.k.name)}
}

// uniqueIndex returns the declared name of the unique index on these fields, "" if there is none.
func (k *kind) uniqueIndex(fields []string) string {
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

// taken returns the declared name of a unique index, or "id", in which another document already has the values of the
// change; "" if there is none.
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
				now = nil // documents without the value are not in the index
				break
			}
			now = append(now, bson.E{Key: key.Key, Value: bson.D{{Key: "$eq", Value: v}}})
		}
		if now == nil {
			continue
		}
		others := append(now, bson.E{Key: fieldID, Value: bson.D{{Key: "$ne", Value: c.id}}})
		if found, err := there(others); err != nil || found {
			return d.declared, err
		}
	}
	if found, err := there(w.at(c.id)); err != nil || !found {
		return "", err
	}
	return "id", nil
}
