package middleware

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// TestPace: at most half of the processors work on streams of one organization at a time. Others wait until one rests
// or ends, but not for ever, and other organizations do not wait.
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
			t.Errorf("concurrent streams = %d, want %d", peak.Load(), most)
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
			t.Errorf("a stream of another organization, or with an ended context, waited %s, want 0", took)
		}
		one.begin()
		if took := time.Since(began); took != pacePatience || one.has {
			t.Errorf("a stream without a slot waited %s, want %s", took, pacePatience)
		}
		one.leave()
		if made, _ := all.Use(); made != most+1 {
			t.Error("a stream without a slot gave one back")
		}
	})
}

// TestPace_RestsTogether: if several goroutines of a stream rest, the last one to resume takes the slot again.
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
		t.Error("the stream has a slot while one goroutine rests")
	}
	if second(); !p.has || made() != 1 {
		t.Error("the stream has no slot after all goroutines resumed")
	}
	if p.leave(); made() != 0 {
		t.Error("the slot was not given back")
	}
}
