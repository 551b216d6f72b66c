package bundle

import (
	"context"

	"tenantry/backends/record"
	"tenantry/internal/fault"
)

// spread refuses the lines whose references lead to what is missing, or to lines that are refused, until there are
// no more. It looks at each reference once, and once more where it leads to a line that is refused after that.
func (im *importer) spread(ctx context.Context, missing map[reference]bool) error {
	var refused []int32
	look := func(e *edge) error {
		to, inside := im.lineOf[e.target][e.to]
		var errs fault.List
		switch {
		case im.bad.has(int(e.line)), im.done.has(int(e.line)): // what is stored as the line says refers to what is stored
		case inside && im.bad.has(int(to)):
			errs.Add(e.field, "unknown", "%s names the %s of line %d, which cannot be taken", e.field, e.target, to)
		case missing[reference{e.target, e.to.id()}] && !e.asIs:
			(&record.Checking{Errs: &errs, Absent: absent}).Missing(e.field, e.target)
		}
		if len(errs) > 0 {
			im.refuse(int(e.line), e.from.Name, errs)
			refused = append(refused, e.line)
		}
		return im.step(ctx)
	}
	last, before := map[int32]int32{}, make([]int32, len(im.edges)) // the last edge to a line, and the one before each, both from 1
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

// step is called again and again in what takes long without a look at the store: it says when that is to end.
func (im *importer) step(ctx context.Context) error {
	if im.steps++; im.steps%4096 == 0 {
		return im.goOn(ctx)
	}
	return nil
}
