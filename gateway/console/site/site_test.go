package site

import (
	"net/http"
	"slices"
	"testing"

	"tenantry/operation"
)

// TestActionsMakePages checks that what a row declares, and not its name or summary, decides what a page offers and in
// which words.
func TestActionsMakePages(t *testing.T) {
	t.Parallel()
	row := func(name, method, path string, action operation.Action) operation.Row {
		return operation.Row{Name: name, Method: method, Path: path, Policy: operation.Policy{Credentials: operation.Session}, Target: operation.Target{Resource: "shelf", Action: action}}
	}
	rows := []operation.Row{
		row("shelves.all", http.MethodGet, "/api/shelves", operation.ListAction),
		row("shelves.one", http.MethodGet, "/api/shelves/{id}", operation.OtherAction),
		row("shelves.build", http.MethodPost, "/api/shelves", operation.CreateAction),
		row("shelves.bring_back", http.MethodPost, "/api/shelves/{id}/back", operation.RestoreAction),
		row("shelves.create", http.MethodPost, "/api/shelves/create", operation.BulkAction),
		row("shelves.labels", http.MethodGet, "/api/shelves/{id}/labels", operation.OtherAction),
		row("shelves.update", http.MethodPost, "/api/shelves/{id}/label", operation.OtherAction),
		row("shelves.delete", http.MethodPost, "/api/shelves/{id}/tag", operation.OtherAction),
	}
	rows[0].Summary, rows[0].Docs.Title = "List all shelves", "Shelving"
	rows[1].Summary = "Get a shelf"
	rows[2].Summary, rows[2].Verb = "Build a shelf", "Build"
	rows[6].Summary, rows[7].Summary, rows[7].Page = "Delete a label", "Revoke a tag", "shelves.labels"
	s := New(rows)
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
	if got, want := []string{list.Title(), one.Title()}, []string{"Shelving", "Get a shelf"}; !slices.Equal(got, want) {
		t.Errorf("the titles of the pages = %q, want %q", got, want)
	}
	texts, want := []string{Verb(&rows[2]), Verb(&rows[6])}, []string{"Build", "Delete a label"}
	if !slices.Equal(texts, want) {
		t.Errorf("the texts of the buttons = %q, want %q", texts, want)
	}
	for p, want := range map[*Page][]string{
		s.PageOf("shelves.labels"): {"shelves.delete"},
		one:                        {"shelves.bring_back", "shelves.update"},
	} {
		var names []string
		for _, row := range p.Actions {
			names = append(names, row.Name)
		}
		if !slices.Equal(names, want) {
			t.Errorf("the actions of %s = %q, want %q", p.Path, names, want)
		}
	}
}
