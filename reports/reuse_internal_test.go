package reports

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"tenantry/operation"
)

func rowsOf(text string) found { return found{data: &Data{Rows: [][]any{{text}}}} }

// TestReuseOutlivesItsFirstReader: who has gone fails nobody else; where all have gone, the
// run is stopped, and the next reader begins another.
func TestReuseOutlivesItsFirstReader(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		u := newReuse(time.Second, time.Now)
		let := make(chan struct{})
		ask := func(ctx context.Context) (found, error) {
			select {
			case <-let:
				return rowsOf("x"), nil
			case <-ctx.Done():
				return found{}, ctx.Err()
			}
		}
		first, leave := context.WithCancel(t.Context())
		var group sync.WaitGroup
		group.Go(func() { _, _ = u.do(first, runKey{}, ask) })
		synctest.Wait()
		group.Go(func() {
			f, err := u.do(t.Context(), runKey{}, func(context.Context) (found, error) {
				t.Error("the second reader ran as well")
				return found{}, nil
			})
			if err != nil || f.data == nil {
				t.Errorf("the second reader was told %v", err)
			}
		})
		synctest.Wait()
		leave()
		synctest.Wait()
		close(let)
		group.Wait()

		let = make(chan struct{})
		alone, goAway := context.WithCancel(t.Context())
		group.Go(func() {
			if _, err := u.do(alone, runKey{1}, ask); !errors.Is(err, context.Canceled) {
				t.Errorf("nobody waits, and the run ends with %v", err)
			}
		})
		synctest.Wait()
		goAway()
		group.Wait()
		close(let)
		if _, err := u.do(t.Context(), runKey{1}, ask); err != nil {
			t.Errorf("the next reader is told %v", err)
		}
	})
}

// TestReuseTellsNobodyOfAnothersRoom: whose run finds no room refuses nobody else.
func TestReuseTellsNobodyOfAnothersRoom(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		u := newReuse(time.Second, time.Now)
		let := make(chan struct{})
		var group sync.WaitGroup
		group.Go(func() {
			if _, err := u.do(t.Context(), runKey{}, func(context.Context) (found, error) {
				<-let
				return found{}, fmt.Errorf("rows: %w", operation.TooManyRequests(time.Second))
			}); err == nil {
				t.Error("the first reader was not told")
			}
		})
		synctest.Wait()
		for range 2 {
			group.Go(func() {
				if f, err := u.do(t.Context(), runKey{}, func(context.Context) (found, error) { return rowsOf("x"), nil }); err != nil || f.data == nil {
					t.Errorf("another reader was told %v", err)
				}
			})
		}
		synctest.Wait()
		close(let)
		group.Wait()
	})
}

func TestReuseContainsAPanic(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		u := newReuse(time.Second, time.Now)
		let := make(chan struct{})
		var group sync.WaitGroup
		group.Go(func() {
			defer func() {
				if recover() == nil {
					t.Error("the first reader was not told")
				}
			}()
			_, _ = u.do(t.Context(), runKey{}, func(context.Context) (found, error) {
				<-let
				panic("a fault")
			})
		})
		synctest.Wait()
		group.Go(func() {
			if _, err := u.do(t.Context(), runKey{}, nil); !errors.Is(err, errRunBroke) {
				t.Errorf("the second reader was told %v", err)
			}
		})
		synctest.Wait()
		close(let)
		group.Wait()
		if f, err := u.do(t.Context(), runKey{}, func(context.Context) (found, error) { return rowsOf("x"), nil }); err != nil || f.data == nil {
			t.Errorf("afterwards: %v", err)
		}
	})
}

// TestReuseIsBounded: in number, in bytes, and in time without anybody asking.
func TestReuseIsBounded(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		u := newReuse(time.Second, time.Now)
		put := func(i int, text string) {
			key := runKey{byte(i), byte(i >> 8), byte(len(text) >> 16)}
			if _, err := u.do(t.Context(), key, func(context.Context) (found, error) { return rowsOf(text), nil }); err != nil {
				t.Fatal(err)
			}
			u.mu.Lock() // timers drop what had its moment
			defer u.mu.Unlock()
			if len(u.kept) > maxKept || u.bytes > maxKeptBytes || len(u.runs) != len(u.kept) {
				t.Fatalf("%d results of %d bytes are kept, %d known", len(u.kept), u.bytes, len(u.runs))
			}
		}
		for i := range 2 * maxKept {
			put(i, "x")
		}
		u.mu.Lock()
		if len(u.kept) != maxKept {
			t.Errorf("%d small results are kept", len(u.kept))
		}
		u.mu.Unlock()
		for i := range 20 {
			put(i, strings.Repeat("x", 3<<20))
		}
		u.mu.Lock()
		if u.bytes < maxKeptBytes/2 {
			t.Errorf("%d bytes are kept", u.bytes)
		}
		u.mu.Unlock()
		put(0, strings.Repeat("x", maxResult))
		u.mu.Lock()
		for _, r := range u.kept {
			if r.size > maxResult {
				t.Errorf("a result of %d bytes is kept", r.size)
			}
		}
		u.mu.Unlock()
		time.Sleep(time.Second)
		synctest.Wait()
		u.mu.Lock()
		defer u.mu.Unlock()
		if len(u.kept)+len(u.runs)+u.bytes != 0 {
			t.Errorf("after its moment %d results of %d bytes are kept", len(u.kept), u.bytes)
		}
	})
}
