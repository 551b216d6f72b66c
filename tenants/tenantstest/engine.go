package tenantstest

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"

	"tenantry/backends/driver"
)

// Engine wraps another engine, counts its reads, and fails on demand.
type Engine struct {
	driver.Engine
	Reads atomic.Int64
	down  atomic.Bool
	lose  atomic.Pointer[loss]
	mu    sync.Mutex
	read  func(collection string)
}

// SetDown makes every call fail like that of an unreachable engine, or ends that.
func (e *Engine) SetDown(down bool) { e.down.Store(down) }

// loss is the answer that LoseAnswer loses.
type loss struct {
	collection string
	documents  int
}

// LoseAnswer makes the next write of at least that many documents, the first to the collection, fail although it is carried
// out.
func (e *Engine) LoseAnswer(collection string, documents int) {
	e.lose.Store(&loss{collection, documents})
}

// AfterRead registers fn to be called after every read, before its result is returned. Nil removes it.
func (e *Engine) AfterRead(fn func(collection string)) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.read = fn
}

func (e *Engine) check() error {
	if e.down.Load() {
		return fmt.Errorf("%w: switched off", driver.ErrUnavailable)
	}
	return nil
}

func (e *Engine) wasRead(c *driver.Collection) {
	e.mu.Lock()
	fn := e.read
	e.mu.Unlock()
	if fn != nil {
		fn(c.Name)
	}
}

// Open opens a workspace.
func (e *Engine) Open(ctx context.Context, o driver.Opening) (driver.Workspace, error) {
	if err := e.check(); err != nil {
		return nil, err
	}
	w, err := e.Engine.Open(ctx, o)
	return &workspace{w, e}, err
}

type workspace struct {
	driver.Workspace
	engine *Engine
}

func (w *workspace) Find(ctx context.Context, q driver.Query) ([]driver.Document, error) {
	w.engine.Reads.Add(1)
	if err := w.engine.check(); err != nil {
		return nil, err
	}
	docs, err := w.Workspace.Find(ctx, q)
	w.engine.wasRead(q.Collection)
	return docs, err
}

func (w *workspace) Count(ctx context.Context, c *driver.Collection, where driver.Predicate) (int64, error) {
	w.engine.Reads.Add(1)
	if err := w.engine.check(); err != nil {
		return 0, err
	}
	return w.Workspace.Count(ctx, c, where)
}

func (w *workspace) Write(ctx context.Context, writes []driver.Write) error {
	if err := w.engine.check(); err != nil {
		return err
	}
	err := w.Workspace.Write(ctx, writes)
	lost := w.engine.lose.Load()
	if err == nil && lost != nil && len(writes) >= lost.documents && writes[0].Collection.Name == lost.collection &&
		w.engine.lose.CompareAndSwap(lost, nil) {
		err = fmt.Errorf("%w: the answer is lost", driver.ErrUnavailable)
	}
	return err
}

func (w *workspace) Counter(ctx context.Context, name string, add, atLeast int64) (int64, error) {
	if err := w.engine.check(); err != nil {
		return 0, err
	}
	return w.Workspace.Counter(ctx, name, add, atLeast)
}
