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

// TestShareOfConnections: one workspace's questions never have more than half of the connections, a neighbour's get
// theirs, and one whose caller has gone while it waits is never sent.
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
				t.Errorf("one of the share: %v", err)
			}
		})
	}
	until := func(n int) {
		t.Helper()
		for began := time.Now(); f.took("aggregate") < n; time.Sleep(time.Millisecond) {
			if time.Since(began) > time.Minute {
				t.Fatalf("%d of %d were sent", f.took("aggregate"), n)
			}
		}
	}
	until(half)
	if err := count(within(t, 20*time.Millisecond), w); !errors.Is(err, context.DeadlineExceeded) || f.took("aggregate") != half {
		t.Errorf("one more: %v, %d were sent", err, f.took("aggregate"))
	}
	asking.Go(func() {
		if err := count(t.Context(), &neighbour); err != nil {
			t.Errorf("a neighbour: %v", err)
		}
	})
	until(half + 1)
	release()
	asking.Wait()
	if err := count(t.Context(), w); err != nil {
		t.Errorf("with the others gone: %v", err)
	}
}
