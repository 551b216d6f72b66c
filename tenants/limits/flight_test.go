package limits

import (
	"context"
	"math/rand/v2"
	"net/netip"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

func fill(t *testing.T, f *Flight, l Load) (entered int, full string) {
	t.Helper()
	gone, cancel := context.WithCancel(t.Context())
	cancel() // nobody waits
	for ; entered < 1000; entered++ {
		if full = f.Enter(gone, l); full != "" {
			break
		}
	}
	return entered, full
}

// TestFlightIsBoundedForEach lets each party take all the room it gets, in turn.
func TestFlightIsBoundedForEach(t *testing.T) {
	t.Parallel()
	f := NewFlight(256)
	stranger := func(org int64, n byte) Load {
		return Load{Organization: org, Public: true, Address: netip.AddrFrom4([4]byte{10, 0, 0, n}), Weight: 1}
	}
	stream := func(org int64, n byte) Load {
		l := stranger(org, n)
		l.Stream, l.Weight = true, 4
		return l
	}
	for _, step := range []struct {
		load Load
		want int
		full string
	}{
		{stream(1, 6), 2, "address in flight"}, {stream(1, 7), 2, "address in flight"}, {stream(1, 8), 0, "anonymous streams in flight"},
		{stranger(1, 1), 8, "address in flight"}, {stranger(1, 2), 8, "anonymous in flight"}, {stranger(1, 3), 0, "anonymous in flight"},
		{Load{Organization: 1, Weight: 4}, 8, "organization in flight"},
		{Load{Organization: 2, Weight: 100}, 1, "organization in flight"}, // alone it may weigh what it does
		{Load{Organization: 3, Weight: 1}, 28, InFlight},                  // the last quarter is for those who have little
		{Load{Organization: 4, Weight: 1}, 4, InFlight},
		{Load{Organization: 5, Weight: 1}, 4, InFlight},
	} {
		if n, full := fill(t, f, step.load); n != step.want || full != step.full {
			t.Errorf("%+v: %d entered, %q; want %d, %q", step.load, n, full, step.want, step.full)
		}
	}
	if f.Used() > f.size {
		t.Errorf("%d of %d are used", f.Used(), f.size)
	}
}

// TestFlightWaits checks that waiting loads get the room that becomes free, beginning with the organization that uses
// the least.
func TestFlightWaits(t *testing.T) {
	t.Parallel()
	f := NewFlight(64) // 48 for those who have some already
	one := func(org int64) Load { return Load{Organization: org, Weight: 1} }
	for _, l := range []Load{{Organization: 1, Weight: 40}, {Organization: 2, Weight: 4}, one(3), one(4), one(4), one(4)} {
		if full := f.Enter(t.Context(), l); full != "" {
			t.Fatalf(`got %+v: %s, want full = ""`, l, full)
		}
	}
	entered := make(chan int64, 2)
	for i, org := range []int64{2, 3} {
		go func() {
			if full := f.Enter(t.Context(), one(org)); full == "" {
				entered <- org
			}
		}()
		for { // until it waits
			f.line.Lock()
			n := len(f.line.Waiting())
			f.line.Unlock()
			if n == i+1 {
				break
			}
			time.Sleep(time.Millisecond)
		}
	}
	f.Leave(one(4))
	if org := <-entered; org != 3 {
		t.Errorf("the organization that has four already, %d, was first", org)
	}
	f.Leave(one(4))
	if org := <-entered; org != 2 {
		t.Errorf("organization %d was let in twice", org)
	}
	for _, l := range []Load{{Organization: 1, Weight: 40}, {Organization: 2, Weight: 5}, {Organization: 3, Weight: 2}, one(4)} {
		f.Leave(l)
	}
	if f.Used() != 0 || len(f.inUse)+len(f.queued)+len(f.line.Waiting()) != 0 {
		t.Errorf("at the end: %d used, %v, %v, %d wait", f.Used(), f.inUse, f.queued, len(f.line.Waiting()))
	}
}

// TestFlightNeverExceeds has many loads enter, leave, wait and give up.
func TestFlightNeverExceeds(t *testing.T) {
	t.Parallel()
	f := NewFlight(40)
	var now, entered atomic.Int64
	var wg sync.WaitGroup
	for range 60 {
		wg.Go(func() {
			for range 200 {
				l := Load{Organization: rand.Int64N(6), Weight: 1 + rand.Int64N(4), Public: rand.IntN(2) == 0, Address: netip.AddrFrom4([4]byte{10, 0, 0, byte(rand.IntN(9))})}
				ctx, cancel := context.WithTimeout(t.Context(), time.Duration(rand.IntN(3))*time.Millisecond)
				full := f.Enter(ctx, l)
				cancel()
				if full != "" {
					continue
				}
				entered.Add(1)
				if n := now.Add(l.Weight); n > 40 {
					t.Errorf("%d are in flight", n)
				}
				time.Sleep(time.Duration(rand.IntN(100)) * time.Microsecond)
				now.Add(-l.Weight)
				f.Leave(l)
			}
		})
	}
	wg.Wait()
	if f.Used() != 0 || len(f.inUse)+len(f.queued)+len(f.line.Waiting()) != 0 || entered.Load() < 100 {
		t.Errorf("%d entered; at the end: %d used, %v, %v, %d wait", entered.Load(), f.Used(), f.inUse, f.queued,
			len(f.line.Waiting()))
	}
}

// TestOneAddressCannotFillTheQueue holds that waiting calls are bounded by address as running calls are.
func TestOneAddressCannotFillTheQueue(t *testing.T) {
	t.Parallel()
	f := NewFlight(256)
	at := func(n byte) Load {
		return Load{Organization: 1, Public: true, Address: netip.AddrFrom4([4]byte{10, 0, 0, n}), Weight: 1}
	}
	for _, step := range []struct {
		load Load
		want int
	}{{at(1), 32}, {at(2), 32}, {at(3), 0}, {Load{Organization: 1, Weight: 1}, 64}, {Load{Organization: 2, Weight: 1}, 128}} {
		n := 0
		for ; n < 1000 && f.canWait(&step.load); n++ {
			f.countWaiting(&step.load, 1)
		}
		if n != step.want {
			t.Errorf("%+v: %d may wait, want %d", step.load, n, step.want)
		}
	}
}

func BenchmarkFlight(b *testing.B) {
	f := NewFlight(256)
	l := Load{Organization: 7, Weight: 1}
	b.ReportAllocs()
	for b.Loop() {
		f.Enter(b.Context(), l)
		f.Leave(l)
	}
}
