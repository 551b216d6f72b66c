package site

import (
	"net/http"
	"testing"

	"tenantry/operation"
)

// TestActionsMakePages checks that the action of a row, and not its name, decides what a page offers.
func TestActionsMakePages(t *testing.T) {
	t.Parallel()
	row := func(name, method, path string, action operation.Action) operation.Row {
		return operation.Row{Name: name, Method: method, Path: path, Policy: operation.Policy{Credentials: operation.Session}, Target: operation.Target{Resource: "shelf", Action: action}}
	}
	s := New([]operation.Row{
		row("shelves.all", http.MethodGet, "/api/shelves", operation.ListAction),
		row("shelves.one", http.MethodGet, "/api/shelves/{id}", operation.OtherAction),
		row("shelves.build", http.MethodPost, "/api/shelves", operation.CreateAction),
		row("shelves.bring_back", http.MethodPost, "/api/shelves/{id}/back", operation.RestoreAction),
		row("shelves.create", http.MethodPost, "/api/shelves/create", operation.BulkAction),
	})
	list, _ := s.Find("/shelves")
	if list == nil || !list.List || list.Create == nil || list.Create.Name != "shelves.build" || len(list.Actions) != 0 {
		t.Fatalf("Find(/shelves) = %+v, want a list with Create = shelves.build and no actions", list)
	}
	one, path := s.Find("/shelves/7")
	if one == nil || one != list.Record || path["id"] != "7" {
		t.Fatalf("Find(/shelves/7) = %+v, %v, want the Record page of the list and id = 7", one, path)
	}
	if restore := one.Action(operation.RestoreAction); restore == nil || restore.Name != "shelves.bring_back" {
		t.Errorf("Action(RestoreAction) = %+v, want shelves.bring_back", restore)
	}
	if purge := one.Action(operation.PurgeAction); purge != nil {
		t.Errorf("Action(PurgeAction) = %+v, want nil", purge)
	}
}
