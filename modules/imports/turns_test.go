package imports

import (
	"context"
	"errors"
	"fmt"
	"os"
	"testing"

	"tenantry/internal/maintest"
)

func TestMain(m *testing.M) { os.Exit(maintest.Run(m)) }

// beginning begins an import beside the test, and returns once it has or waits; ended is told when it has its turn.
func beginning(ctx context.Context, k *ticket) (has bool, ended chan error) {
	ended, waits := make(chan error, 1), make(chan struct{})
	go func() { ended <- k.begin(ctx, func() { close(waits) }) }()
	select {
	case <-waits:
		return false, ended
	case err := <-ended:
		ended <- err
		return true, ended
	}
}

// TestImportTurns_ShortImportAmongLongOnes holds that an import of one line gets its turn among long ones, which go
// on afterwards.
func TestImportTurns_ShortImportAmongLongOnes(t *testing.T) {
	t.Parallel()
	var of turns
	var long []*ticket
	for org := range int64(maxWorking) {
		k := of.ticket(org, isLarge/4+org)
		if has, _ := beginning(t.Context(), k); !has {
			t.Fatal("a place is free, and it waits")
		}
		long = append(long, k)
	}
	short := of.ticket(100, 80)
	has, begun := beginning(t.Context(), short)
	if has || short.before() != 0 {
		t.Fatalf("more than %d are at work, or %d others wait", maxWorking, short.before())
	}
	for range pieces - 1 {
		if err := long[0].turn(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	waits := make(chan error, 1)
	go func() { waits <- long[0].turn(t.Context()) }()
	if err := <-begun; err != nil {
		t.Fatal(err)
	}
	select {
	case err := <-waits:
		t.Errorf("it goes on although its turn is over: %v", err)
	default:
	}
	short.leave()
	if err := <-waits; err != nil {
		t.Error(err)
	}
	for range 10 * pieces { // nobody waits
		if err := long[1].turn(t.Context()); err != nil {
			t.Error(err)
		}
	}
	for _, k := range long {
		k.leave()
	}
	if of.working != 0 || of.begun != 0 || len(of.line.Waiting()) != 0 {
		t.Errorf("left behind: %+v", &of)
	}
}

// TestImportTurns_RotateByOrganization holds that one organization's imports do not block another's, however many
// they are.
func TestImportTurns_RotateByOrganization(t *testing.T) {
	t.Parallel()
	var of turns
	var all []*ticket
	for range 6 { // as those of several replicas' lists could be
		k := of.ticket(1, 1)
		beginning(t.Context(), k)
		all = append(all, k)
	}
	other := of.ticket(2, 1)
	_, begun := beginning(t.Context(), other)
	if n := other.before(); n != 0 {
		t.Errorf("%d of the organization that has all places are before it", n)
	}
	if n := all[5].before(); n != 4 {
		t.Errorf("%d are before its last one, want 3 of its own and the other's", n)
	}
	all[0].leave()
	if err := <-begun; err != nil {
		t.Error(err)
	}
}

// TestImportTurns_CancelledImportLeavesTheQueue cancels imports while they wait to begin and while they wait to go
// on.
func TestImportTurns_CancelledImportLeavesTheQueue(t *testing.T) {
	t.Parallel()
	var of turns
	var working []*ticket
	for org := range int64(maxWorking) {
		k := of.ticket(org, isTiny+1)
		beginning(t.Context(), k)
		working = append(working, k)
	}
	ctx, cancel := context.WithCancel(t.Context())
	gone, last := of.ticket(100, 1), of.ticket(101, 1)
	_, left := beginning(ctx, gone)
	_, begun := beginning(t.Context(), last)
	for range pieces - 1 {
		if err := working[0].turn(ctx); err != nil {
			t.Fatal(err)
		}
	}
	cancel()
	if err := <-left; !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	gone.leave()
	if err := working[0].turn(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("it waits to go on although it was cancelled: %v", err)
	}
	working[0].leave()
	if err := <-begun; err != nil {
		t.Error(err)
	}
	last.leave()
	working[1].leave()
	if of.working != 0 || of.begun != 0 || of.large != 0 || len(of.line.Waiting()) != 0 {
		t.Errorf("left behind: %d at work, %d bytes, %d wait", of.working, of.begun, len(of.line.Waiting()))
	}
}

// TestImportTurns_BytesInProgressAreBounded holds that there is room for short files beside long ones, and that no
// file waits forever for shorter ones that came later.
func TestImportTurns_BytesInProgressAreBounded(t *testing.T) {
	t.Parallel()
	const MiB = 1 << 20
	for _, c := range []struct {
		sizes []int64
		begin string // which begin as long as none ends, and all take their turns
	}{
		{[]int64{200 * MiB, 200 * MiB, 200 * MiB, MiB, 1}, "[true true false true true]"},
		{[]int64{16 * MiB, 16 * MiB, 8 * MiB, 1}, "[true false false true]"},
		{[]int64{16 * MiB, 8 * MiB, MiB, isTiny}, "[true true false true]"},
	} {
		var of turns
		var got []bool
		for org, size := range c.sizes {
			of.working = 0 // the turns of the others are over
			has, _ := beginning(t.Context(), of.ticket(int64(org), size))
			got = append(got, has)
		}
		if fmt.Sprint(got) != c.begin {
			t.Errorf("%v: %v, want %s", c.sizes, got, c.begin)
		}
	}
}
