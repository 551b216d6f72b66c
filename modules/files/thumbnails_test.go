package files

import (
	"context"
	"log/slog"
	"strconv"
	"testing"
	"time"

	"tenantry/internal/background"
	"tenantry/tenants"
)

func isClosed(done <-chan struct{}) bool {
	select {
	case <-done:
		return true
	default:
		return false
	}
}

func await(t *testing.T, what string, is func() bool) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); !is(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("waited in vain until %s", what)
		}
	}
}

// TestPictures_Turns: an organization that has more pictures than can wait loses its own places, not those of others.
func TestPictures_Turns(t *testing.T) {
	t.Parallel()
	m := &Module{pictures: newPictures(), deps: Deps{Background: background.New(slog.New(slog.DiscardHandler))}}
	if err := m.pictures.turns.Enter(t.Context(), 0); err != nil { // one is being made all the time
		t.Fatal(err)
	}
	t.Cleanup(func() {
		m.deps.Background.Close(context.WithoutCancel(t.Context()))
	})
	of := func(org int64) *tenants.Tenant {
		return &tenants.Tenant{Org: tenants.Organization{OrgID: org}}
	}
	var many []<-chan struct{}
	for i := range maxPending + 10 {
		many = append(many, m.wantThumbnail(of(1), strconv.Itoa(i)))
	}
	refused := func() (n int) {
		for _, done := range many {
			if isClosed(done) {
				n++
			}
		}
		return n
	}
	await(t, "ten are refused", func() bool { return refused() == 10 })
	one := m.wantThumbnail(of(2), "a")
	await(t, "one more is refused", func() bool { return refused() == 11 })
	if isClosed(one) {
		t.Error("the picture of the organization with the fewest was refused")
	}
}

// TestPictures_Waiters: readers beyond maxWaiting do not hold their places while a small picture is made.
func TestPictures_Waiters(t *testing.T) {
	t.Parallel()
	p, never := newPictures(), make(chan struct{})
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	waiting := func() int {
		p.mu.Lock()
		defer p.mu.Unlock()
		return p.waiting[1]
	}
	for range maxWaiting {
		go p.wait(ctx, 1, never)
	}
	await(t, "readers wait", func() bool { return waiting() == maxWaiting })
	p.wait(ctx, 1, never)
	if waiting() != maxWaiting {
		t.Error("another reader waited")
	}
	cancel()
	await(t, "none waits", func() bool { return waiting() == 0 })
}
