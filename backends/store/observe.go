package store

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"tenantry/backends/driver"
	"tenantry/internal/request"
)

// Call describes a completed call of an engine.
type Call struct {
	Backend    string
	Operation  string // find, count, aggregate, write, counter, used, recount
	Collection string // empty if the call is of several collections or of none
	Took       time.Duration
	Err        error
	Rows       int // rows that a write changes, see driver.Write.Rows
}

// Watch records the questions that a request asks the store, with their query plans. It is set as Watch of a
// request.Request. Safe for concurrent use.
type Watch struct {
	mu  sync.Mutex
	all []Question
}

// Question is a question that an engine was asked.
type Question struct {
	Collection string
	Operation  string // find, count, aggregate
	Took       time.Duration
	Plan       *driver.Plan // nil if the engine has no plans
}

// Questions returns the recorded questions, in the order in which they were asked.
func (w *Watch) Questions() []Question {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.all)
}

// watch adds a question with its plan to the Watch of the request, if there is one.
func (o *observed) watch(ctx context.Context, operation string, q driver.Query, began time.Time) {
	r := request.From(ctx)
	if r == nil || r.Watch == nil {
		return
	}
	w, ok := r.Watch.(*Watch)
	if !ok {
		return
	}
	asked := Question{Collection: q.Collection.Name, Operation: operation, Took: time.Since(began)}
	if e, ok := o.Workspace.(driver.Explainer); ok {
		if plan, err := e.Explain(ctx, q); err == nil {
			asked.Plan = &plan
		}
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.all = append(w.all, asked)
}

// observed is a driver's workspace whose calls are measured and reported to Options.Observe.
type observed struct {
	driver.Workspace
	store *Store
	at    place
}

// done measures a call that has ended, and reports it.
func (o *observed) done(
	ctx context.Context, operation string, c *driver.Collection, began time.Time, rows int, err error,
) {
	took := time.Since(began)
	if err != nil {
		o.store.damageAt(o.at, err)
	}
	if r := request.From(ctx); r != nil {
		r.Spent(took)
	}
	if o.store.observe != nil {
		name := ""
		if c != nil {
			name = c.Name
		}
		o.store.observe(ctx, Call{o.at.backend, operation, name, took, err, rows})
	}
}

func (o *observed) Find(ctx context.Context, q driver.Query) ([]driver.Document, error) {
	began := time.Now()
	resume := request.Rest(ctx) // the engine has its own queue
	docs, err := o.Workspace.Find(ctx, q)
	resume()
	failed := err
	if errors.Is(err, errBudget) {
		failed = nil
	}
	o.done(ctx, "find", q.Collection, began, 0, failed)
	o.watch(ctx, "find", q, began)
	return docs, err
}

func (o *observed) Count(ctx context.Context, c *driver.Collection, where driver.Predicate) (int64, error) {
	began := time.Now()
	resume := request.Rest(ctx)
	n, err := o.Workspace.Count(ctx, c, where)
	resume()
	o.done(ctx, "count", c, began, 0, err)
	o.watch(ctx, "count", driver.Query{Collection: c, Where: where}, began)
	return n, err
}

func (o *observed) Aggregate(ctx context.Context, a driver.Aggregation) ([][]any, error) {
	began := time.Now()
	resume := request.Rest(ctx)
	rows, err := o.Workspace.Aggregate(ctx, a)
	resume()
	o.done(ctx, "aggregate", a.Collection, began, 0, err)
	o.watch(ctx, "aggregate", driver.Query{Collection: a.Collection, Where: a.Where}, began)
	return rows, err
}

func (o *observed) Write(ctx context.Context, writes []driver.Write) error {
	return o.write(ctx, writes, o.Workspace.Write)
}

// WriteWithin implements driver.Meter. If the engine does not implement it, the quota is ignored.
func (o *observed) WriteWithin(ctx context.Context, writes []driver.Write, q driver.Quota) error {
	m, ok := o.Workspace.(driver.Meter)
	if !ok {
		return o.Write(ctx, writes)
	}
	return o.write(ctx, writes, func(ctx context.Context, writes []driver.Write) error {
		return m.WriteWithin(ctx, writes, q)
	})
}

func (o *observed) write(
	ctx context.Context, writes []driver.Write, write func(context.Context, []driver.Write) error,
) error {
	began := time.Now()
	err := o.store.checkWritable(o.at)
	if err == nil {
		err = write(ctx, writes)
	}
	var c *driver.Collection
	rows := 0
	for i := range writes {
		rows += writes[i].Rows()
	}
	if len(writes) == 1 {
		c = writes[0].Collection
	}
	o.done(ctx, "write", c, began, rows, err)
	return err
}

// Part implements driver.Parted. If the engine does not implement it, the part is the whole workspace.
func (o *observed) Part(party string) driver.Workspace {
	p, ok := o.Workspace.(driver.Parted)
	if !ok {
		return o
	}
	part := *o
	part.Workspace = p.Part(party)
	return &part
}

// Used implements driver.Meter.
func (o *observed) Used(ctx context.Context) (driver.Usage, error) {
	return o.measure(ctx, "used", driver.Meter.Used)
}

// Recount implements driver.Meter.
func (o *observed) Recount(ctx context.Context) (driver.Usage, error) {
	return o.measure(ctx, "recount", driver.Meter.Recount)
}

func (o *observed) measure(
	ctx context.Context, operation string, measure func(driver.Meter, context.Context) (driver.Usage, error),
) (driver.Usage, error) {
	m, ok := o.Workspace.(driver.Meter)
	if !ok {
		return driver.Usage{}, nil
	}
	began := time.Now()
	used, err := measure(m, ctx)
	o.done(ctx, operation, nil, began, 0, err)
	return used, err
}

func (o *observed) Counter(ctx context.Context, name string, add, atLeast int64) (int64, error) {
	began := time.Now()
	if err := o.store.checkWritable(o.at); err != nil {
		return 0, err
	}
	n, err := o.Workspace.Counter(ctx, name, add, atLeast)
	o.done(ctx, "counter", nil, began, 1, err)
	return n, err
}
