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
		all := newPaces()
		of := func(ctx context.Context, org int64) *pace { return &pace{ctx: ctx, paces: all, org: org} }
		const streams, steps = 16, 20
		one, most := of(t.Context(), 1), all.Share
		var now, peak atomic.Int64
		var made sync.WaitGroup
		for range streams {
			made.Go(func() {
				p := of(t.Context(), 1)
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
			of(t.Context(), 1).begin()
		}
		began := time.Now()
		ended, end := context.WithCancel(t.Context())
		end()
		of(t.Context(), 2).begin()
		of(ended, 1).begin()
		if took := time.Since(began); took != 0 {
			t.Errorf("another organization, and who has gone, waited %s", took)
		}
		one.begin()
		if took := time.Since(began); took != pacePatience || one.has {
			t.Errorf("it waited %s", took)
		}
		one.leave()
		if made, _ := all.Use(); made != most+1 {
			t.Error("who went on without it gave it back")
		}
	})
}

// TestPace_RestsTogether: of several who work for one stream the last that waited takes it again.
func TestPace_RestsTogether(t *testing.T) {
	t.Parallel()
	all := newPaces()
	p := &pace{ctx: t.Context(), paces: all, org: 1}
	made := func() int {
		n, _ := all.Use()
		return n
	}
	p.begin()
	first, second := p.Rest(), p.Rest()
	if first(); p.has || made() != 0 {
		t.Error("it works while one of them rests")
	}
	if second(); !p.has || made() != 1 {
		t.Error("it does not work again")
	}
	if p.leave(); made() != 0 {
		t.Error("it works for ever")
	}
}
