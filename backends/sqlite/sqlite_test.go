package sqlite_test

import (
	"context"
	"testing"
	"time"

	"tenantry/backends/driver"
	"tenantry/backends/sqlite"
	"tenantry/backends/storetest"
	"tenantry/internal/maintest"
)

func TestMain(m *testing.M) { maintest.Leakless(m) }

func TestConformance(t *testing.T) {
	t.Parallel()
	for name, shared := range map[string]bool{"own": false, "shared": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			storetest.Run(t, func(t *testing.T) driver.Engine {
				e, err := sqlite.Open(t.Context(), sqlite.Options{Dir: t.TempDir(), Shared: shared})
				if err != nil {
					t.Fatalf("Open: %v", err)
				}
				return e
			})
		})
	}
}

// TestConformanceWhileLogged: an engine that passes its changes on is like any other.
func TestConformanceWhileLogged(t *testing.T) {
	t.Parallel()
	storetest.Run(t, func(t *testing.T) driver.Engine {
		e, err := sqlite.Open(t.Context(), sqlite.Options{Dir: t.TempDir(), Shared: true})
		if err != nil {
			t.Fatalf("Open: %v", err)
		}
		err = e.LogPages(t.Context(), driver.PageLogging{
			Now: time.Now,
			Ship: func(_ context.Context, cut driver.PageCut) error {
				for _, f := range cut.Files {
					if f.Kind == driver.CutBroken {
						t.Errorf("the changes of %s have a gap", f.File)
					}
				}
				return nil
			},
			Told: func(err error) {
				if err != nil {
					t.Error(err)
				}
			},
		})
		if err != nil {
			t.Fatalf("LogPages: %v", err)
		}
		return e
	})
}
