package contract

import (
	"context"
	"log/slog"
	"os"
	"testing"

	"tenantry/backends/memtest"
	"tenantry/backends/mongo/mongotest"
	"tenantry/backends/store"
	"tenantry/config"
	"tenantry/gateway"
	"tenantry/internal/goldentest"
)

// TestAnotherEngine adds an engine with one line, stores everything on it, and gets the same answers.
func TestAnotherEngine(t *testing.T) {
	t.Parallel()
	if os.Getenv(goldentest.Variable) != "" {
		t.Skip("TestGolden writes the answers")
	}
	if os.Getenv(mongotest.Variable) != "" {
		t.Skip("this engine is the same where there are servers besides")
	}
	holdGolden(t, onMemory)
}

// onMemory stores everything on the engine in memory.
func onMemory(c *config.Config, o *gateway.Options) {
	c.Engines["memory"], o.Engines = config.Engine{}, map[string]gateway.OpenEngine{"memory": inMemory}
	c.Backends = map[string]config.Backend{config.DefaultBackend: {Engine: "memory"}}
	c.Store, c.Control = config.DefaultBackend, config.DefaultBackend
}

func inMemory(context.Context, *config.Config, string, *slog.Logger) (store.Engine, error) {
	return memtest.New(), nil
}
