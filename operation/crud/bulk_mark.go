package crud

import (
	"context"
	"encoding/json"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"unicode"

	"tenantry/backends/record"
	"tenantry/backends/store"
	"tenantry/internal/fault"
	"tenantry/internal/strictjson"
	"tenantry/operation"
)

// BulkMarked is the result of deleting or restoring many records.
type BulkMarked struct {
	Done    int          `json:"done" doc:"Number of records deleted or restored."`
	Failed  int          `json:"failed" doc:"Number of records refused, which are unchanged."`
	Results []BulkResult `json:"results" doc:"The result of each record, in the order in which they were sent."`
}

func (b BulkMarked) nothing() bool { return b.Done == 0 }

// bulkMark returns the row that deletes or restores many records.
func (s *handlers) bulkMark(deleted bool) operation.Row {
	action, verb, past := "restore", "Restore", " restored"
	if deleted {
		action, verb, past = "delete", "Delete", " deleted"
	}
	row := s.row("bulk_"+action, http.MethodPost, s.Path+"/bulk/"+action, s.Things+past)
	row.Summary, row.Weight, row.BodyLimit = verb+" many "+strings.ToLower(s.Things), operation.Heavy, 64<<10
	row.Verb = "Bulk " + action
	row.Description = "Takes the identifiers of up to " + strconv.Itoa(maxBulk) + " records; each has a result of its own. " + nothingDone
	if deleted {
		row.Description = "The records leave every list and count, and can be restored. " + row.Description
	}
	row.Body = []operation.Field{{
		Name: "ids", Shape: operation.List, Required: true, Type: []string{}, Elements: maxBulk, Ref: s.of.Name, Description: "The identifiers.",
		Example: json.RawMessage(`["` + exampleID + `"]`),
	}}
	gone := BulkResult{
		Index: 1, Errors: []operation.FieldError{{Field: "id", Code: fault.Unknown, Message: s.missing()}},
	}
	row.Failures = append(row.Failures,
		operation.Refuses(http.StatusUnprocessableEntity, "there are no identifiers, or too many", "ids", fault.Length, manyIDs),
		s.undone(BulkMarked{Failed: 1, Results: []BulkResult{{Errors: gone.Errors}}}))
	row.Data, row.Example = BulkMarked{}, BulkMarked{Done: 1, Failed: 1, Results: []BulkResult{{ID: exampleID}, gone}}
	row.Joins, row.MakesRoom = true, deleted
	row.Handler = func(ctx context.Context, c *operation.Call) (operation.Result, error) {
		return s.runBulk(ctx, c, func(ctx context.Context, c *operation.Call, n int) (operation.Result, error) {
			return s.attemptMark(ctx, c, n, deleted)
		})
	}
	return row
}

// manyIDs is the message for a list with no or too many identifiers.
const manyIDs = "ids must be a list of 1 to 1000 identifiers"

// attemptMark is attempt n at deleting or restoring many records.
func (s *handlers) attemptMark(ctx context.Context, c *operation.Call, n int, deleted bool) (operation.Result, error) {
	ids, errs := c.Body.Value("ids").Items, append(fault.List{}, c.Unknown...)
	if len(ids) == 0 || len(ids) > maxBulk {
		errs.Add("ids", fault.Length, "%s", manyIDs)
	}
	if i := slices.IndexFunc(ids, func(id strictjson.Value) bool {
		return id.Is != strictjson.Text || strings.ContainsFunc(id.Text, unicode.IsControl)
	}); i >= 0 && len(errs) == 0 {
		errs.Add("ids", fault.Format, "ids[%d] is not an identifier", i)
	}
	if err := errs.Err(); err != nil {
		return operation.Result{}, err
	}
	within, err := s.withinDefinition(ctx, c, new(record.Known))
	if err != nil {
		return operation.Result{}, err
	}
	entries, probes := make([]*entry, len(ids)), make([]any, len(ids))
	for i, id := range ids {
		entries[i], probes[i] = &entry{}, s.of.Bare()
		if !store.ValidID(id.Text) {
			entries[i].errs.Add("id", fault.Unknown, "%s", s.missing())
			continue
		}
		s.of.Meta(probes[i]).ID = id.Text
	}
	b := s.newBulk(c, n, entries, within, stateOf(!deleted))
	b.finish = func(ctx context.Context, c *operation.Call, need *store.Preconditions, e *entry) error {
		if err := e.errs.Err(); err != nil {
			return err
		}
		return s.mark(ctx, c, need, e.rec, deleted)
	}
	b.answer = func(context.Context) (operation.Result, error) {
		all := bulkResult(s.of, entries, b.refused)
		note(c, map[string]int{"done": all.Updated, "failed": all.Failed})
		return operation.Result{Data: BulkMarked{all.Updated, all.Failed, all.Results}}, nil
	}
	return b.run(ctx, probes, func(part []*entry, _ int) error {
		for _, e := range part {
			if e.rec == nil {
				e.rec = s.of.Bare() // a placeholder for a refused record
			}
			e.was = s.of.Clone(e.rec)
		}
		return nil
	})
}
