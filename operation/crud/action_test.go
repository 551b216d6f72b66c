package crud_test

import (
	"context"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"tenantry/operation"
	"tenantry/operation/crud"
)

// TestRows_Action: an action replaces what its row says by what it sets, adds to the lists of the row and changes no
// other row; Each changes all.
func TestRows_Action(t *testing.T) {
	t.Parallel()
	plain := rowsByName(newNotes())
	n := newNotes()
	n.Each.Kinds = operation.ServerFull
	n.Create = crud.Action{
		Lead:     "Notes are short.",
		Policy:   operation.Policy{Timeout: time.Minute},
		Request:  operation.Request{Params: []operation.Param{{Name: "dry", In: operation.InQuery, Shape: operation.Boolean}}},
		Response: operation.Response{Failures: []operation.Failure{{Code: http.StatusTeapot}}},
		Docs:     operation.Docs{Summary: "Write a note"},
		Around: func(next operation.Handler) operation.Handler {
			return func(ctx context.Context, c *operation.Call) (operation.Result, error) {
				c.Note("around", "yes")
				return next(ctx, c)
			}
		},
	}
	n.Update.Lead = "Only the text."
	n.Restore = crud.Absent()
	rows := rowsByName(n)

	created, before := rows["notes.create"], plain["notes.create"]
	if created.Summary != "Write a note" || created.Timeout != time.Minute || created.Message != before.Message {
		t.Errorf("the row of create has summary %q, timeout %v and message %q, want those of the action, and the row's own message %q",
			created.Summary, created.Timeout, created.Message, before.Message)
	}
	if got, want := len(created.Params), len(before.Params)+1; got != want || created.Params[got-1].Name != "dry" {
		t.Errorf("the row of create has %d parameters, want its %d and dry", got, want-1)
	}
	if got, want := len(created.Failures), len(before.Failures)+1; got != want {
		t.Errorf("the row of create has %d failures, want %d", got, want)
	}
	if got, want := rows["notes.update"].Description, "Only the text. "+plain["notes.update"].Description; got != want {
		t.Errorf("the row of update says %q, want %q", got, want)
	}
	if _, ok := rows["notes.restore"]; ok {
		t.Error("there is a row of restore, want none")
	}
	for name, row := range rows {
		if row.Kinds != operation.ServerFull {
			t.Errorf("%s takes keys of kinds %v, want those of Each", name, row.Kinds)
		}
		if own := strings.HasSuffix(name, ".create"); slices.ContainsFunc(row.Failures, func(f operation.Failure) bool { return f.Code == http.StatusTeapot }) != own {
			t.Errorf("%s documents the failure of create: %v, want %v", name, !own, own)
		}
	}
}

func rowsByName(n notes) map[string]operation.Row {
	rows := map[string]operation.Row{}
	for _, row := range n.Operations() {
		rows[row.Name] = row
	}
	return rows
}
