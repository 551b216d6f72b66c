package bundle

import (
	"context"

	"tenantry/backends/record"
	"tenantry/internal/fault"
)

// refuseDependents refuses lines with references to missing records or to refused lines, until no more are found. It
// checks each reference once, and again if the line that it leads to is refused later.
func (im *importer) refuseDependents(ctx context.Context, missing map[reference]bool) error {
	var refused []int32
	look := func(e *edge) error {
		to, inside := im.lineOf[e.target][e.to]
		var errs fault.List
		switch {
		case im.bad.has(int(e.line)), im.done.has(int(e.line)): // an unchanged record refers to stored records
		case inside && im.bad.has(int(to)):
			errs.Add(e.field, "unknown", "%s names the %s of line %d, which is bad", e.field, e.target, to)
		case missing[reference{e.target, e.to.id()}] && !e.asIs:
			(&record.Checking{Errs: &errs, Absent: absent}).Missing(e.field, e.target)
		}
		if len(errs) > 0 {
			im.refuse(int(e.line), e.from.Name, errs)
			refused = append(refused, e.line)
		}
		return im.step(ctx)
	}
	last, before := map[int32]int32{}, make([]int32, len(im.edges)) // the last edge to each line, and the previous edge to the same line; both count from 1
	for i := range im.edges {
		e := &im.edges[i]
		if to, inside := im.lineOf[e.target][e.to]; inside {
			before[i], last[to] = last[to], int32(i)+1
		}
		if err := look(e); err != nil {
			return err
		}
	}
	for i := 0; i < len(refused); i++ {
		for at := last[refused[i]]; at != 0; at = before[at-1] {
			if err := look(&im.edges[at-1]); err != nil {
				return err
			}
		}
	}
	return nil
}

// step is called in loops that take long without a query. It returns an error if the import must end.
func (im *importer) step(ctx context.Context) error {
	if im.steps++; im.steps%4096 == 0 {
		return im.waitTurn(ctx)
	}
	return nil
}
