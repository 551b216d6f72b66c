package files

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"tenantry/backends/store"
	"tenantry/internal/fault"
	"tenantry/operation"
	"tenantry/operation/crud"
	"tenantry/tenants"
)

// Bounds of what one call looks at.
const (
	maxInside = 50_000 // folders in the one that is deleted
	maxTree   = 10_000
	atOnce    = 100 // folders whose contents are asked for
)

// inside is what lies in a folder at any depth.
type inside struct {
	m       *Module
	c       *operation.Call
	ws      *store.Workspace // all of it, whoever sees it; what is changed is what the caller may see
	folders []string         // the deepest first, the folder itself last
}

// inside finds the folders in a folder that take says to go into.
func (m *Module) inside(ctx context.Context, c *operation.Call, root string, take func(*Folder) bool) (*inside, error) {
	in := &inside{m: m, c: c, ws: c.Tenant.Workspace(), folders: []string{root}}
	known := map[string]bool{root: true}
	for done := 0; done < len(in.folders); {
		some := in.folders[done:min(done+atOnce, len(in.folders))]
		done += len(some)
		err := m.Folders.In(in.ws).Each(ctx, store.In("folder_id", some...), store.Either, func(f *Folder) error {
			if len(in.folders) == maxInside {
				return operation.Refusal(http.StatusConflict, contents, fault.Length, "more than 50000 folders lie in the folder: begin with some of those")
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

// placed is a record that lies in a folder.
type placed[T any] interface {
	*T
	at() (folder *string, trash *Trash)
}

// each does something to every file and folder inside that is in that state and matches besides; where do is
// nil, it ends them. Whoever ends early has left nothing below what is done, and does the rest when it
// comes again.
func (in *inside) each(ctx context.Context, state store.State, besides store.Filter, do func(folder *string, trash *Trash)) error {
	for some := range slices.Chunk(in.folders, atOnce) {
		lies := store.All(store.In("folder_id", some...), besides)
		if err := each(ctx, in.m.Files.In(in.c.Entitled()), lies, state, do); err != nil {
			return err
		}
		if err := each(ctx, in.m.Folders.In(in.c.Entitled()), lies, state, do); err != nil {
			return err
		}
	}
	return nil
}

func each[T any, P placed[T]](ctx context.Context, of store.Collection[T], lies store.Filter, state store.State, do func(*string, *Trash)) error {
	return crud.Drain(ctx, of, lies, state, func(recs []*T) error {
		if do == nil {
			return of.Delete(ctx, recs...)
		}
		for _, rec := range recs {
			do(P(rec).at())
		}
		return of.Replace(ctx, recs...)
	})
}

// count returns how many records there are inside in that state, of those that match besides and that the
// workspace shows.
func (in *inside) count(ctx context.Context, ws *store.Workspace, state store.State, besides store.Filter) (n int64, err error) {
	for some := range slices.Chunk(in.folders, atOnce) {
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

// seen refuses a caller to whom not all of that is shown.
func (in *inside) seen(ctx context.Context, state store.State, besides store.Filter) error {
	if in.c.Scope.All {
		return nil
	}
	all, err := in.count(ctx, in.ws, state, besides)
	if err != nil {
		return err
	}
	shown, err := in.count(ctx, in.c.Workspace, state, besides)
	if err == nil && shown < all {
		err = fault.One("teams", fault.Forbidden, "something in the folder is of other teams than those the request is limited to; who sees all of it can do this")
	}
	return err
}

// empty deletes what lies in a folder that is about to be deleted, or, of either state, purged: what was
// deleted from it before can be restored no more then. What is live in one that was deleted has come there
// since, and stays, at top level.
func (m *Module) empty(ctx context.Context, c *operation.Call, f *Folder, state store.State) error {
	in, err := m.inside(ctx, c, f.ID, func(below *Folder) bool {
		if state == store.Live {
			return !below.Deleted || below.DeletedWith == f.ID // it was not done with all of it
		}
		return below.Deleted || !f.Deleted
	})
	if err != nil {
		return err
	}
	var errs fault.List
	if !f.Deleted && !c.Query.Bool(&errs, contents, false) {
		n, err := in.count(ctx, in.ws, state, store.Filter{})
		if err != nil {
			return err
		}
		if n > 0 {
			errs.Add(contents, fault.Forbidden, notEmpty)
		}
	}
	if err := cmp.Or(errs.Err(), in.seen(ctx, state, store.Filter{})); err != nil {
		return err
	}
	if !f.Deleted {
		err := in.each(ctx, store.Live, store.Filter{}, func(_ *string, t *Trash) { *t = Trash{Deleted: true, DeletedWith: f.ID} })
		if err != nil || state == store.Live {
			return err
		}
		f.Deleted = true // nothing is put into it meanwhile, and who ends early has it in the trash
		if err := m.Folders.In(in.ws).Replace(ctx, f); err != nil {
			return err
		}
	}
	if err := in.each(ctx, store.Live, store.Filter{}, func(folder *string, _ *Trash) { *folder = "" }); err != nil {
		return err
	}
	return in.each(ctx, state, store.Filter{}, nil)
}

// fill brings back what was deleted together with a folder that is restored.
func (m *Module) fill(ctx context.Context, c *operation.Call, f *Folder) error {
	root := cmp.Or(f.DeletedWith, f.ID)
	in, err := m.inside(ctx, c, f.ID, func(below *Folder) bool { return !below.Deleted || below.DeletedWith == root })
	with := store.Eq("deleted_with", root)
	if err == nil {
		err = in.seen(ctx, store.Deleted, with)
	}
	if err == nil {
		err = in.each(ctx, store.Deleted, with, func(_ *string, t *Trash) { *t = Trash{} })
	}
	f.live()
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
			Failures: []operation.Failure{{Code: http.StatusUnprocessableEntity, Message: "Validation failed: " + tooMany, When: "there are more than 10000 folders"}},
		},
		Target: operation.Target{Resource: m.Folders.Name},
		Docs: operation.Docs{
			Aside: true, Tag: tag,
			Summary:     "Get the tree of folders",
			Description: "Answers all folders in the caller's scope, each in the one in which it lies, at most 10000 of them and 100 in one another.",
		},
	}, m.tree)
}

const tooMany = "there are more than 10000 folders; list them, with filters[folder_id] those in one"

func (m *Module) tree(ctx context.Context, c *operation.Call, _ struct{}) (Tree, error) {
	folders := m.Folders.In(c.Workspace)
	found, err := folders.FindPart(ctx, store.Query{Sort: []store.Order{store.Asc("id")}, Limit: maxTree, Bytes: operation.PageBytes})
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
		c.Header.Set("X-Warning", fmt.Sprintf("the tree ends early, after %d folders, because they are large; list them, with filters[folder_id] those in one", len(found.Records)))
	}
	in := map[string][]*Folder{}
	known := map[string]bool{}
	for i := range found.Records {
		f := &found.Records[i]
		known[f.ID] = true
		in[f.FolderID] = append(in[f.FolderID], f)
	}
	for id := range in {
		if id != "" && !known[id] { // not the caller's to see, or left out
			in[""] = append(in[""], in[id]...)
		}
	}
	return Tree{Count: int(count), Results: grow(c, in, "", deepest)}, nil
}

// grow returns the branches in a folder, and what lies in them.
func grow(c *operation.Call, in map[string][]*Folder, id string, depth int) []Branch {
	if depth == 0 {
		return []Branch{}
	}
	slices.SortFunc(in[id], func(a, b *Folder) int { return cmp.Or(strings.Compare(a.Name, b.Name), strings.Compare(a.ID, b.ID)) })
	out := make([]Branch, len(in[id]))
	for i, f := range in[id] {
		out[i] = Branch{childFolder(c, f), grow(c, in, f.ID, depth-1)}
	}
	return out
}
