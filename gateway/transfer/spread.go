package transfer

import (
	"container/heap"
	"context"

	"tenantry/backends/resource"
	"tenantry/internal/fault"
)

// spread refuses the lines whose references lead to what is missing, or to lines that are refused, until there are
// no more. A line is refused for the reference by which passes over all of them, one after another, would find it first.
func (im *importer) spread(ctx context.Context, missing map[string]map[key]bool) error {
	var todo agenda
	for i := range im.edges {
		e := &im.edges[i]
		to, inside := im.lineOf[e.target][e.to]
		if inside && im.bad.has(int(to)) || missing[e.target][e.to] && !e.asIs {
			todo = append(todo, look{edge: int32(i)})
		}
		if err := im.step(ctx); err != nil {
			return err
		}
	}
	if len(todo) == 0 {
		return nil
	}
	last, before := map[int32]int32{}, make([]int32, len(im.edges)) // the last edge to a line, and the one before each, both from 1
	for i := range im.edges {
		e := &im.edges[i]
		if to, inside := im.lineOf[e.target][e.to]; inside {
			before[i], last[to] = last[to], int32(i)+1
		}
		if err := im.step(ctx); err != nil {
			return err
		}
	}
	for len(todo) > 0 {
		t := heap.Pop(&todo).(look)
		e := &im.edges[t.edge]
		if err := im.step(ctx); err != nil {
			return err
		}
		if im.bad.has(int(e.line)) || im.done.has(int(e.line)) { // what is stored as the line says refers to what is stored
			continue
		}
		var errs fault.List
		if to, inside := im.lineOf[e.target][e.to]; inside {
			errs.Add(e.field, "unknown", "%s names the %s of line %d, which cannot be taken", e.field, e.target, to)
		} else {
			(&resource.Checking{Errs: &errs, Absent: absent}).Missing(e.field, e.target)
		}
		im.refuse(int(e.line), e.from.Name, errs)
		for i := last[e.line]; i != 0; i = before[i-1] {
			next := look{t.pass, i - 1}
			if next.edge <= t.edge { // this pass is beyond it
				next.pass++
			}
			heap.Push(&todo, next)
		}
	}
	return nil
}

// look is when an edge is looked at.
type look struct{ pass, edge int32 }

// agenda is a heap.
type agenda []look

func (a agenda) Len() int { return len(a) }

func (a agenda) Less(i, j int) bool {
	return a[i].pass < a[j].pass || a[i].pass == a[j].pass && a[i].edge < a[j].edge
}

func (a agenda) Swap(i, j int) { a[i], a[j] = a[j], a[i] }

func (a *agenda) Push(x any) { *a = append(*a, x.(look)) }

func (a *agenda) Pop() any {
	last := len(*a) - 1
	x := (*a)[last]
	*a = (*a)[:last]
	return x
}

// step is called again and again in what takes long without a look at the store: it says when that is to end.
func (im *importer) step(ctx context.Context) error {
	if im.steps++; im.steps%4096 == 0 {
		return ctx.Err()
	}
	return nil
}
