package reports

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"maps"
	"net/http"
	"slices"
	"sync"
	"time"

	"tenantry/backends/store"
	"tenantry/internal/request"
	"tenantry/operation"
	"tenantry/tenants"
)

// Bounds of the rows that are kept for reuse.
const (
	maxKept      = 256      // results
	maxKeptBytes = 16 << 20 // of all results, estimated
	maxResult    = MaxBytes // of one result
)

// runKey is a hash of everything that the rows of a run depend on, except for the data.
type runKey [sha256.Size]byte

func runKeyOf(t *tenants.Tenant, b *bundle, r *Report, inputs *inputValues, provider string) runKey {
	if provider == "" {
		provider = BuiltIn
	}
	type version struct {
		ID           string
		Rev, Updated int64
	}
	text, _ := json.Marshal([]any{ // cannot fail for strings, numbers and lists of these
		version{t.Org.ID, t.Org.Rev, t.Org.UpdatedAt}, version{
			b.root.ID, b.root.Rev, b.root.UpdatedAt,
		}, version{r.ID, r.Rev, r.UpdatedAt},
		b.scope.All, slices.Sorted(slices.Values(b.scope.Teams)), provider, inputs.all(),
		slices.Sorted(maps.Keys(inputs.given)), // the error for an unsuitable value depends on who has set it
	})
	return sha256.Sum256(text)
}

// reuse lets readers with the same request share one run: concurrent readers wait for it, and for a moment afterwards
// its rows are reused. Access is checked before. Failures are returned to the readers who waited, except for a lack of
// room of the first reader, and are not kept.
type reuse struct {
	moment time.Duration
	now    func() time.Time

	mu    sync.Mutex
	runs  map[runKey]*sharedRun // running or kept
	kept  []*sharedRun          // oldest first
	bytes int                   // of kept
}

type sharedRun struct {
	key     runKey
	cancel  context.CancelFunc
	readers int           // readers who wait for the run
	done    chan struct{} // closed at the end, when found and err are set
	found   found
	err     error
	ended   time.Time // zero: running
	size    int
}

func newReuse(moment time.Duration, now func() time.Time) *reuse {
	return &reuse{moment: moment, now: now, runs: map[runKey]*sharedRun{}}
}

var errRunBroke = errors.New("the run that this reader waited for was aborted")

// do returns the result of ask, or that of another reader from a moment ago, for which it then finds room of this
// reader. ask runs in the call of the first reader, and continues after that reader's cancellation while others wait;
// its context ends when the last of them has left.
func (u *reuse) do(ctx context.Context, key runKey, ask func(context.Context) (found, error)) (found, error) {
	u.mu.Lock()
	r := u.runs[key]
	if r != nil && !r.ended.IsZero() {
		if u.now().Sub(r.ended) < u.moment {
			u.mu.Unlock()
			return r.found, r.found.hold(ctx)
		}
		u.drop(r)
		r = nil
	}
	if r != nil {
		r.readers++
		u.mu.Unlock()
		select {
		case <-r.done:
			if full := (*operation.Problem)(nil); errors.As(r.err, &full) && full.Code == http.StatusTooManyRequests {
				return ask(ctx) // the first reader had no room, but this one may have
			}
			return r.found, cmp.Or(r.err, r.found.hold(ctx))
		case <-ctx.Done():
			u.leave(r)
			return found{}, ctx.Err()
		}
	}
	run, cancel := context.WithCancel(context.WithoutCancel(ctx))
	r = &sharedRun{key: key, cancel: cancel, readers: 1, done: make(chan struct{}), err: errRunBroke}
	u.runs[key] = r
	u.mu.Unlock()
	stop := context.AfterFunc(ctx, func() { u.leave(r) })
	defer func() { // also if ask panics, which the call of the first reader reports
		stop()
		cancel()
		u.end(r)
	}()
	r.found, r.err = ask(run)
	return r.found, r.err
}

// leave removes a reader from a running run. A run without readers is stopped, and the next reader begins another.
func (u *reuse) leave(r *sharedRun) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if r.readers--; r.readers == 0 && r.ended.IsZero() {
		r.cancel()
		u.drop(r)
	}
}

func (u *reuse) end(r *sharedRun) {
	u.mu.Lock()
	defer u.mu.Unlock()
	r.ended = u.now()
	close(r.done)
	if r.err == nil {
		r.size = int(r.found.size())
	}
	if r.err != nil || u.moment <= 0 || r.size > maxResult || u.runs[r.key] != r {
		u.drop(r)
		return
	}
	u.kept, u.bytes = append(u.kept, r), u.bytes+r.size
	for len(u.kept) > maxKept || u.bytes > maxKeptBytes {
		u.drop(u.kept[0])
	}
	time.AfterFunc(u.moment, func() { // rows must not stay in memory if there are no further readers
		u.mu.Lock()
		defer u.mu.Unlock()
		u.drop(r)
	})
}

// drop removes a run. The caller holds the lock.
func (u *reuse) drop(r *sharedRun) {
	if u.runs[r.key] == r {
		delete(u.runs, r.key)
	}
	if i := slices.Index(u.kept, r); i >= 0 {
		u.kept, u.bytes = slices.Delete(u.kept, i, i+1), u.bytes-r.size
	}
}

// size estimates the size of the rows in bytes.
func (f *found) size() int64 {
	n := int64(1024)
	if f.data != nil {
		for _, row := range f.data.Rows {
			n += store.RowSize(row)
		}
	}
	return n
}

// hold finds room for rows of another reader's run.
func (f *found) hold(ctx context.Context) error {
	r := request.From(ctx)
	if r == nil || r.Room == nil || f.size() <= store.UnweighedBytes {
		return nil
	}
	return r.Room.Hold(ctx, f.size()-store.UnweighedBytes)
}
