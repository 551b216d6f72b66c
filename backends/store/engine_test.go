package store_test

import (
	"context"
	"sync"

	"tenantry/backends/driver"
)

// recorder is an engine that records the last query and aggregation.
type recorder struct {
	driver.Engine
	mu          sync.Mutex
	query       driver.Query
	aggregation driver.Aggregation
}

type recordingWorkspace struct {
	driver.Workspace
	r *recorder
}

func (r *recorder) Open(ctx context.Context, o driver.Opening) (driver.Workspace, error) {
	w, err := r.Engine.Open(ctx, o)
	return recordingWorkspace{w, r}, err
}

func (r *recorder) lastQuery() driver.Query {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.query
}

func (r *recorder) lastAggregation() driver.Aggregation {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.aggregation
}

func (w recordingWorkspace) Find(ctx context.Context, q driver.Query) ([]driver.Document, error) {
	w.r.mu.Lock()
	w.r.query = q
	w.r.mu.Unlock()
	return w.Workspace.Find(ctx, q)
}

func (w recordingWorkspace) Aggregate(ctx context.Context, a driver.Aggregation) ([][]any, error) {
	w.r.mu.Lock()
	w.r.aggregation = a
	w.r.mu.Unlock()
	return w.Workspace.Aggregate(ctx, a)
}

// failing is an engine whose workspaces return err from every call.
type failing struct{ err error }

func (f failing) Open(context.Context, driver.Opening) (driver.Workspace, error) {
	return f, nil
}
func (f failing) Remove(context.Context, string, string) error { return f.err }
func (f failing) Check(context.Context) error                  { return f.err }
func (f failing) Close() error                                 { return nil }
func (f failing) Residents(context.Context) ([]string, error)  { return nil, f.err }
func (f failing) Resident(context.Context, string) (driver.Resident, error) {
	return driver.Resident{}, f.err
}

func (f failing) Find(context.Context, driver.Query) ([]driver.Document, error) { return nil, f.err }
func (f failing) Count(context.Context, *driver.Collection, driver.Predicate) (int64, error) {
	return 0, f.err
}
func (f failing) Aggregate(context.Context, driver.Aggregation) ([][]any, error) { return nil, f.err }
func (f failing) Write(context.Context, []driver.Write) error                    { return f.err }
func (f failing) Counter(context.Context, string, int64, int64) (int64, error)   { return 0, f.err }

// gated is an engine that calls after once a workspace is open, before it returns it, and before when Remove is called,
// before it removes the workspace.
type gated struct {
	driver.Engine
	mu            sync.Mutex
	after, before func()
}

func (g *gated) set(after, before func()) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.after, g.before = after, before
}

func (g *gated) hooks() (after, before func()) {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.after, g.before
}

func (g *gated) Open(ctx context.Context, o driver.Opening) (driver.Workspace, error) {
	w, err := g.Engine.Open(ctx, o)
	if after, _ := g.hooks(); after != nil {
		after()
	}
	return w, err
}

func (g *gated) Remove(ctx context.Context, name, owner string) error {
	if _, before := g.hooks(); before != nil {
		before()
	}
	return g.Engine.Remove(ctx, name, owner)
}
