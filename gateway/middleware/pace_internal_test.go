package middleware

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// TestPace: streams of an organization beyond half of the processors wait until another rests or ends, those of others
// do not wait for them, and nobody waits for good.
func TestPace(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var all paces
		const streams, steps = 16, 20
		one := all.of(t.Context(), 1)
		most := cap(one.lane.busy)
		var now, peak atomic.Int64
		var made sync.WaitGroup
		for range streams {
			made.Go(func() {
				p := all.of(t.Context(), 1)
				p.begin()
				defer p.leave()
				for range steps {
					for n := now.Add(1); n > peak.Load(); {
						peak.Store(n)
					}
					time.Sleep(time.Millisecond) // it works
					now.Add(-1)
					again := p.Rest()
					time.Sleep(10 * time.Millisecond)
					again()
				}
			})
		}
		made.Wait()
		if int(peak.Load()) != most {
			t.Errorf("%d streams were made at once, want %d", peak.Load(), most)
		}
		for range most {
			all.of(t.Context(), 1).begin()
		}
		began := time.Now()
		ended, end := context.WithCancel(t.Context())
		end()
		all.of(t.Context(), 2).begin()
		all.of(ended, 1).begin()
		if took := time.Since(began); took != 0 {
			t.Errorf("another organization, and who has gone, waited %s", took)
		}
		one.begin()
		if took := time.Since(began); took != pacePatience || one.has {
			t.Errorf("it waited %s", took)
		}
		one.leave()
		if len(one.lane.busy) != most {
			t.Error("who went on without it gave it back")
		}
	})
}

// TestPace_RestsTogether: of several who work for one stream the last that waited takes it again.
func TestPace_RestsTogether(t *testing.T) {
	t.Parallel()
	var all paces
	p := all.of(t.Context(), 1)
	p.begin()
	first, second := p.Rest(), p.Rest()
	if first(); p.has || len(p.lane.busy) != 0 {
		t.Error("it works while one of them rests")
	}
	if second(); !p.has || len(p.lane.busy) != 1 {
		t.Error("it does not work again")
	}
	if p.leave(); len(p.lane.busy) != 0 {
		t.Error("it works for ever")
	}
}
