package mongo

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"tenantry/backends/driver"

	"go.mongodb.org/mongo-driver/v2/bson"
)

// TestShareOfConnections: the calls of one workspace never take more than half of the connections, so those of another
// workspace proceed. A call whose context ends while it waits is not sent.
func TestShareOfConnections(t *testing.T) {
	t.Parallel()
	answer := make(chan struct{})
	f := fake(t, &fakeServer{answer: func(name string, _ bson.Raw) bson.D {
		if name == "aggregate" {
			<-answer
		}
		return bson.D{{Key: "ok", Value: 1.0}, {Key: "cursor", Value: bson.D{{Key: "id", Value: int64(0)}, {Key: "ns", Value: "d.things"}, {Key: "firstBatch", Value: bson.A{}}}}}
	}}, nil).member("rs0")
	e, w, _ := onFake(t, f)
	c := things()
	neighbour := *w
	neighbour.name, neighbour.lease = "org-2", newLease()
	var asking sync.WaitGroup
	defer asking.Wait()
	release := sync.OnceFunc(func() { close(answer) })
	defer release()
	half := e.opts.MaxPool / 2
	count := func(ctx context.Context, w *workspace) error {
		_, err := w.Count(ctx, c, driver.Predicate{})
		return err
	}
	for range half {
		asking.Go(func() {
			if err := count(t.Context(), w); err != nil {
				t.Errorf("a call within the share: %v", err)
			}
		})
	}
	until := func(n int) {
		t.Helper()
		for began := time.Now(); f.took("aggregate") < n; time.Sleep(time.Millisecond) {
			if time.Since(began) > time.Minute {
				t.Fatalf("%d calls were sent within a minute, want %d", f.took("aggregate"), n)
			}
		}
	}
	until(half)
	if err := count(within(t, 20*time.Millisecond), w); !errors.Is(err, context.DeadlineExceeded) || f.took("aggregate") != half {
		t.Errorf("a call beyond the share: %v, %d were sent; want %v, %d",
			err, f.took("aggregate"), context.DeadlineExceeded, half)
	}
	asking.Go(func() {
		if err := count(t.Context(), &neighbour); err != nil {
			t.Errorf("a call of another workspace: %v", err)
		}
	})
	until(half + 1)
	release()
	asking.Wait()
	if err := count(t.Context(), w); err != nil {
		t.Errorf("a call after the others have ended: %v", err)
	}
}
