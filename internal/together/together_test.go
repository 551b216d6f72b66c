package together_test

import (
	"strings"
	"sync"
	"testing"

	"tenantry/internal/together"
)

// TestAllAtTheSameTime: each function waits for all others to have begun.
func TestAllAtTheSameTime(t *testing.T) {
	t.Parallel()
	for n := range 5 {
		var begun sync.WaitGroup
		begun.Add(n)
		fns := make([]func(), n)
		done := make([]bool, n)
		for i := range fns {
			fns[i] = func() {
				begun.Done()
				begun.Wait()
				done[i] = true
			}
		}
		together.Do(fns...)
		for i, ok := range done {
			if !ok {
				t.Errorf("%d of %d has not ended", i, n)
			}
		}
	}
}

func TestPanicsReachTheCaller(t *testing.T) {
	t.Parallel()
	for broken := range 3 {
		var ended [3]bool
		fns := make([]func(), len(ended))
		for i := range fns {
			fns[i] = func() {
				defer func() { ended[i] = true }()
				if i == broken {
					panic("a fault")
				}
			}
		}
		func() {
			defer func() {
				text, _ := recover().(string)
				if !strings.HasPrefix(text, "a fault") {
					t.Errorf("function %d: recovered %q", broken, text)
				}
			}()
			together.Do(fns...)
		}()
		if ended != [3]bool{true, true, true} {
			t.Errorf("function %d: ended %v", broken, ended)
		}
	}
}
