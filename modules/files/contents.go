package files

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"tenantry/backends/store"
	"tenantry/internal/fault"
	"tenantry/operation"
	"tenantry/operation/crud"
	"tenantry/tenants"
)

// Bounds of one call.
const (
	maxInside   = 50_000 // folders in a folder that is deleted or restored
	maxTree     = 10_000
	folderBatch = 100 // folders in one query
)

// subtree is the contents of a folder at any depth.
type subtree struct {
	m       *Module
	c       *operation.Call
	ws      *store.Workspace // unscoped, for searching; only records that the caller may see are changed
	folders []string         // maxDepth first, the folder itself last
	done    int              // records that each has changed or deleted in its last round
}

// subtree returns the folder root with all folders below it that take accepts.
func (m *Module) subtree(
	ctx context.Context, c *operation.Call, root string, take func(*Folder) bool,
) (*subtree, error) {
	in := &subtree{m: m, c: c, ws: c.Tenant.Workspace(), folders: []string{root}}
	known := map[string]bool{root: true}
	for done := 0; done < len(in.folders); {
		some := in.folders[done:min(done+folderBatch, len(in.folders))]
		done += len(some)
		err := m.Folders.In(in.ws).Each(ctx, store.In("folder_id", some...), store.Either, func(f *Folder) error {
			if len(in.folders) == maxInside {
				return operation.Refusal(
					http.StatusConflict, paramContents, fault.Length,
					"the folder contains more than 50000 folders: begin with some of those",
				)
			}
			if take(f) && !known[f.ID] {
				known[f.ID] = true
				in.folders = append(in.folders, f.ID)
			}
			return nil
		})
		if err != nil {
			return nil, err
		}
	}
	slices.Reverse(in.folders)
	return in, nil
}

// trashable is a record in a folder.
type trashable[T any] interface {
	*T
	at() (folder *string, trash *Trash)
}

// each calls do for every file and folder of the subtree that is in that state and matches besides, and stores it; if
// do is nil, it deletes them for good. The order is from the deepest folder up, so that a call that ends early leaves
// nothing below finished folders and a repetition does the rest.
func (in *subtree) each(
	ctx context.Context, state store.State, besides store.Filter, do func(folder *string, trash *Trash),
) error {
	in.done = 0
	for some := range slices.Chunk(in.folders, folderBatch) {
		lies := store.All(store.In("folder_id", some...), besides)
		if err := each(ctx, in, in.m.Files.In(in.c.Entitled()), lies, state, do); err != nil {
			return err
		}
		if err := each(ctx, in, in.m.Folders.In(in.c.Entitled()), lies, state, do); err != nil {
			return err
		}
	}
	return nil
}

func each[T any, P trashable[T]](
	ctx context.Context, in *subtree, of store.Collection[T], lies store.Filter, state store.State, do func(*string, *Trash),
) error {
	return crud.Drain(ctx, of, lies, state, func(recs []*T) error {
		in.done += len(recs)
		if do == nil {
			return of.Delete(ctx, recs...)
		}
		for _, rec := range recs {
			do(P(rec).at())
		}
		return of.Replace(ctx, recs...)
	})
}

// count returns how many records of the subtree are in that state and match besides, among those that the workspace
// shows.
func (in *subtree) count(
	ctx context.Context, ws *store.Workspace, state store.State, besides store.Filter,
) (n int64, err error) {
	for some := range slices.Chunk(in.folders, folderBatch) {
		lies := store.All(store.In("folder_id", some...), besides)
		files, err := in.m.Files.In(ws).CountIn(ctx, lies, state)
		if err != nil {
			return 0, err
		}
		folders, err := in.m.Folders.In(ws).CountIn(ctx, lies, state)
		if err != nil {
			return 0, err
		}
		n += files + folders
	}
	return n, nil
}

// requireVisible refuses a caller who does not see all of these records.
func (in *subtree) requireVisible(ctx context.Context, state store.State, besides store.Filter) error {
	if in.c.Scope.All {
		return nil
	}
	all, err := in.count(ctx, in.ws, state, besides)
	if err != nil {
		return err
	}
	shown, err := in.count(ctx, in.c.Workspace, state, besides)
	if err == nil && shown < all {
		err = fault.One("teams", fault.Forbidden, "the folder contains records of teams that the request does not "+
			"include; only callers who see all of them can do this")
	}
	return err
}

// deleteContents deletes the contents of a folder that is about to be deleted or, if state is store.Either, purged:
// contents that were deleted before can then no longer be restored. Live records in a folder that was already deleted
// were added later, and are moved to the top level.
func (m *Module) deleteContents(ctx context.Context, c *operation.Call, f *Folder, state store.State) error {
	in, err := m.subtree(ctx, c, f.ID, func(below *Folder) bool {
		if state == store.Live {
			return !below.Deleted || below.DeletedWith == f.ID // an earlier call ended before it deleted everything
		}
		return below.Deleted || !f.Deleted
	})
	if err != nil {
		return err
	}
	var errs fault.List
	if !f.Deleted && !c.Query.Bool(&errs, paramContents, false) {
		n, err := in.count(ctx, in.ws, state, store.Filter{})
		if err != nil {
			return err
		}
		if n > 0 {
			errs.Add(paramContents, fault.Forbidden, notEmpty)
		}
	}
	if err := cmp.Or(errs.Err(), in.requireVisible(ctx, state, store.Filter{})); err != nil {
		return err
	}
	if !f.Deleted {
		err := in.each(ctx, store.Live, store.Filter{}, func(_ *string, t *Trash) {
			*t = Trash{
				Deleted: true, DeletedWith: f.ID,
			}
		})
		if err != nil || state == store.Live {
			in.note()
			return err
		}
		f.Deleted = true // nothing can be added to it from now on, and a call that ends early leaves it in the trash
		if err := m.Folders.In(in.ws).Replace(ctx, f); err != nil {
			return err
		}
	}
	if err := in.each(ctx, store.Live, store.Filter{}, func(folder *string, _ *Trash) { *folder = "" }); err != nil {
		return err
	}
	err = in.each(ctx, state, store.Filter{}, nil)
	in.note()
	return err
}

// note adds to the audit record how many records were deleted with the folder.
func (in *subtree) note() {
	if in.done > 0 {
		in.c.Note("contents", strconv.Itoa(in.done))
	}
}

// restoreContents restores what was deleted together with a folder that is restored.
func (m *Module) restoreContents(ctx context.Context, c *operation.Call, f *Folder) error {
	root := cmp.Or(f.DeletedWith, f.ID)
	in, err := m.subtree(ctx, c, f.ID, func(below *Folder) bool { return !below.Deleted || below.DeletedWith == root })
	with := store.Eq("deleted_with", root)
	if err == nil {
		err = in.requireVisible(ctx, store.Deleted, with)
	}
	if err == nil {
		err = in.each(ctx, store.Deleted, with, func(_ *string, t *Trash) { *t = Trash{} })
	}
	f.clearLive()
	return err
}

func (m *Module) treeRow() operation.Row {
	return operation.Typed(operation.Row{
		Name: "folders.tree", Method: http.MethodGet, Path: "/api/files/folders/tree",
		Policy: operation.Policy{
			Credentials: operation.Key | operation.Session, Kinds: operation.ServerKeys,
			Rule: operation.Needs(tenants.ManageFiles), Weight: operation.Heavy,
		},
		Request: operation.Request{Teams: true},
		Response: operation.Response{
			Message: "Folders found", Example: Tree{Count: 1, Results: []Branch{{childExample(), []Branch{}}}},
			Failures: []operation.Failure{{
				Code: http.StatusUnprocessableEntity, Message: "Validation failed: " + tooMany,
				When: "there are more than 10000 folders",
			}},
		},
		Target: operation.Target{Resource: m.Folders.Name},
		Docs: operation.Docs{
			Aside: true, Tag: tag,
			Summary: "Get the tree of folders", Title: "Tree of folders",
			Description: "Answers all folders in the caller's scope as a tree, at most 10000 of them and at most 100 levels.",
		},
	}, m.tree)
}

const tooMany = "there are more than 10000 folders; list them instead, with filters[folder_id] for the contents of one"

func (m *Module) tree(ctx context.Context, c *operation.Call, _ struct{}) (Tree, error) {
	folders := m.Folders.In(c.Workspace)
	found, err := folders.FindPart(ctx, store.Query{
		Sort: []store.Order{store.Asc("id")}, Limit: maxTree, Bytes: operation.PageBytes,
	})
	if err != nil {
		return Tree{}, err
	}
	count := int64(len(found.Records))
	if found.Cut || count == maxTree {
		if count, err = folders.Count(ctx, store.Filter{}); err != nil {
			return Tree{}, err
		}
	}
	switch {
	case count > maxTree:
		return Tree{}, fault.One("folder_id", fault.Length, tooMany)
	case found.Cut:
		c.Header.Set("X-Warning", fmt.Sprintf("the tree ends early, after %d folders, because they are large; list them "+
			"instead, with filters[folder_id] for the contents of one", len(found.Records)))
	}
	in := map[string][]*Folder{}
	known := map[string]bool{}
	for i := range found.Records {
		f := &found.Records[i]
		known[f.ID] = true
		in[f.FolderID] = append(in[f.FolderID], f)
	}
	for id := range in {
		if id != "" && !known[id] { // its folder is hidden from the caller, or left out
			in[""] = append(in[""], in[id]...)
		}
	}
	return Tree{Count: int(count), Results: branches(c, in, "", maxDepth)}, nil
}

// branches returns the branches in a folder with their contents.
func branches(c *operation.Call, in map[string][]*Folder, id string, depth int) []Branch {
	if depth == 0 {
		return []Branch{}
	}
	slices.SortFunc(in[id], func(a, b *Folder) int { return cmp.Or(strings.Compare(a.Name, b.Name), strings.Compare(a.ID, b.ID)) })
	out := make([]Branch, len(in[id]))
	for i, f := range in[id] {
		out[i] = Branch{childFolder(c, f), branches(c, in, f.ID, depth-1)}
	}
	return out
}
