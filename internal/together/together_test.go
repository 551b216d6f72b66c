package together_test

import (
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"

	"tenantry/internal/together"
)

// TestAllAtOnce uses functions that each wait until all have begun.
func TestAllAtOnce(t *testing.T) {
	t.Parallel()
	for n := range 5 {
		var begun sync.WaitGroup
		begun.Add(n)
		fns := make([]func() error, n)
		done := make([]bool, n)
		for i := range fns {
			fns[i] = func() error {
				begun.Done()
				begun.Wait()
				done[i] = true
				return nil
			}
		}
		if err := together.Do(true, fns...); err != nil || slices.Contains(done, false) {
			t.Errorf("%d functions: got %v, ended = %v, want no error and all ended", n, err, done)
		}
	}
}

func TestTheFirstErrorInOrder(t *testing.T) {
	t.Parallel()
	for _, atOnce := range []bool{true, false} {
		for first := range 4 {
			var called [4]bool
			fns := make([]func() error, len(called))
			errs := make([]error, len(called))
			for i := range fns {
				if i >= first {
					errs[i] = fmt.Errorf("error %d", i)
				}
				fns[i] = func() error {
					called[i] = true
					return errs[i]
				}
			}
			if err := together.Do(atOnce, fns...); !errors.Is(err, errs[first]) {
				t.Errorf("Do(%t) = %v, want %v", atOnce, err, errs[first])
			}
			for i, was := range called {
				if was != (atOnce || i <= first) {
					t.Errorf("Do(%t), error in %d: function %d called = %t, want %t", atOnce, first, i, was, !was)
				}
			}
		}
	}
}

func TestPanicsReachTheCaller(t *testing.T) {
	t.Parallel()
	for broken := range 3 {
		var ended [3]bool
		fns := make([]func() error, len(ended))
		for i := range fns {
			fns[i] = func() error {
				defer func() { ended[i] = true }()
				if i == broken {
					panic("a fault")
				}
				return nil
			}
		}
		func() {
			defer func() {
				text, _ := recover().(string)
				if !strings.HasPrefix(text, "a fault") {
					t.Errorf("function %d: recovered %q, want the panic a fault", broken, text)
				}
			}()
			t.Errorf("function %d: Do = %v, want a panic", broken, together.Do(true, fns...))
		}()
		if ended != [3]bool{true, true, true} {
			t.Errorf("function %d: ended = %v, want all", broken, ended)
		}
	}
}

func TestEach(t *testing.T) {
	t.Parallel()
	for _, width := range []int{1, 3, 8} {
		var mu sync.Mutex
		var seen []int
		busy, most := 0, 0
		err := together.Each(width, 7, func(i int) error {
			mu.Lock()
			seen = append(seen, i)
			busy++
			most = max(most, busy)
			mu.Unlock()
			runtime.Gosched()
			mu.Lock()
			defer mu.Unlock()
			busy--
			return nil
		})
		slices.Sort(seen)
		if err != nil || !slices.Equal(seen, []int{0, 1, 2, 3, 4, 5, 6}) || most > width {
			t.Errorf("Each(%d) = %v, called with %v, %d concurrently, want no error, 0 to 6, at most %d", width, err, seen, most, width)
		}
	}
	broken := errors.New("broken")
	called := 0
	if err := together.Each(1, 5, func(i int) error {
		called++
		return map[int]error{2: broken}[i]
	}); !errors.Is(err, broken) || called != 3 {
		t.Errorf("Each = %v after %d calls, want %v after 3", err, called, broken)
	}
	if err := together.Each(4, 0, func(int) error { return broken }); err != nil {
		t.Errorf("Each of nothing = %v, want nil", err)
	}
}
