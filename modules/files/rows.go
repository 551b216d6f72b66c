package files

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"strings"

	"tenantry/backends/store"
	"tenantry/internal/fault"
	"tenantry/internal/strictjson"
	"tenantry/internal/together"
	"tenantry/operation"
	"tenantry/operation/crud"
	"tenantry/tenants"
)

// folderRows are those beside the contract's, which reads a folder.
func (m *Module) folderRows() []operation.Row {
	return crud.Rows(m.Folders.Resource, crud.Options{
		Path: "/api/files/folders", Things: "Folders", Tag: tag, Search: []string{"name"},
		Read: operation.Needs(tenants.ManageFiles), Write: operation.Needs(tenants.ManageFiles), Before: crud.Before(m.beforeFolder), Example: childExample(),
		Show: crud.Show(func(_ context.Context, c *operation.Call, all []*Folder) ([]any, error) {
			out := make([]any, len(all))
			for i, f := range all {
				out[i] = childFolder(c, f)
			}
			return out, nil
		}),
		Get:    crud.Absent(),
		Update: crud.Action{Lead: "A folder is moved by folder_id; not into itself, or what lies in it."},
		Delete: crud.Action{
			Lead:   "A folder that has anything in it is deleted with contents=true alone, and all of that with it.",
			Policy: operation.Policy{Timeout: crud.ClearTimeout},
			Request: operation.Request{Params: []operation.Param{{
				Name: contents, In: operation.InQuery, Shape: operation.Boolean, Default: "false", Example: "true",
				Description: "Also deletes, or purges, what lies in the folder, at any depth.", Ask: operation.Ask{Label: "With everything in it"},
			}}},
			Response: operation.Response{Failures: []operation.Failure{operation.Refuses(
				http.StatusUnprocessableEntity, "the folder has files or folders in it, and contents is not true", contents, fault.Forbidden, notEmpty,
			)}},
			Around: m.deleting,
		},
		Restore: crud.Action{
			Lead:   "What was deleted with the folder comes back with it, and nothing else. Where the folder lay in one that is deleted, it is at top level then.",
			Policy: operation.Policy{Timeout: crud.ClearTimeout},
		},
	})
}

// fileRows are those beside the contract's, which deletes a file.
func (m *Module) fileRows() []operation.Row {
	changed := operation.Response{Data: FileRecord{}, Example: FileRecord{FileAnswer: fileExample()}}
	written := crud.Action{
		Request: operation.Request{Body: []operation.Field{{
			Name: "url", Shape: operation.Text, Nullable: true, Bounds: operation.Bounds{MaxLength: maxURL}, Example: "9f86d081884c7d65",
			Description: "Where the file host serves the bytes: the address as answers have it, or what stands last in it. Tenantry keeps the latter.",
			Ask:         operation.Ask{Label: "Address", Hint: "Where the contents of the file are served."},
		}}},
		Response: changed,
	}
	written.Failures = []operation.Failure{{Code: http.StatusUnprocessableEntity, Message: "Validation failed: " + foreign, When: "url is no address of the organization's file host"}}
	rows := crud.Rows(m.Files.Resource, crud.Options{
		Path: "/api/files", Things: "Files", Tag: tag, Search: []string{"filename"},
		Read: operation.Needs(tenants.ManageFiles), Write: operation.Needs(tenants.ManageFiles),
		Also: crud.Also(m.address), Before: crud.Before(m.beforeFile), Show: crud.Show(m.showFiles), Example: fileExample(),
		Create: written, Update: written, Delete: crud.Absent(), Purge: &crud.Action{Response: changed},
		Restore: crud.Action{Lead: "A file that lay in a folder which is deleted is in none then.", Response: changed},
	})
	return slices.Insert(rows, slices.IndexFunc(rows, func(row operation.Row) bool { return row.Action == operation.RestoreAction }), m.deleteFile())
}

const (
	maxURL   = 2000
	contents = "contents"
	notEmpty = "the folder has something in it; contents=true deletes that too"
	foreign  = "url must be an address below that of the organization's files, or its last part: 1 to 128 letters, digits, _ and -"
)

// showFiles names what contracts name: users and folders only where files are read.
func (m *Module) showFiles(ctx context.Context, c *operation.Call, all []*File) ([]any, error) {
	files := make([]File, len(all))
	for i, f := range all {
		files[i] = *f
	}
	named, reads := m.names(c, files), c.Operation.Method == http.MethodGet
	if !reads {
		named.userIDs = nil
	} else {
		named.folders = map[string]string{}
		for i := range files {
			if id := files[i].FolderID; id != "" && !slices.Contains(named.folderIDs, id) {
				named.folderIDs = append(named.folderIDs, id)
			}
		}
	}
	if err := together.Do(c.Workspace.Remote(), named.rest(ctx)...); err != nil {
		return nil, err
	}
	out := make([]any, len(all))
	for i, shown := range m.fileAnswers(c, files, named) {
		if out[i] = shown; !reads {
			out[i] = FileRecord{FileAnswer: shown}
		}
	}
	return out, nil
}

func (m *Module) beforeFile(ctx context.Context, c *operation.Call, need *store.Preconditions, rec, was *File) error {
	switch {
	case rec == nil:
		return nil
	case was == nil:
		rec.UserID = c.Principal.UserID
	case was.Deleted && !rec.Deleted:
		rec.live()
		return m.detach(ctx, c, need, &rec.FolderID)
	}
	return nil
}

// address keeps the last part of where the file host serves the bytes.
func (m *Module) address(_ context.Context, c *operation.Call, rec, _ *File, errs *fault.List) error {
	if !c.Body.Has("url") {
		return nil
	}
	rec.Hash = ""
	if c.Body.Value("url").Is != strictjson.Null {
		text, ok := c.Body.Text(errs, "url")
		rec.Hash = strings.TrimPrefix(text, m.base(c)+"/")
		if ok && rec.Hash != "" && !ValidHash(rec.Hash) {
			errs.Add("url", fault.Format, foreign)
		}
	}
	return nil
}

// detach clears the folder of a restored record where that is deleted or gone.
func (m *Module) detach(ctx context.Context, c *operation.Call, need *store.Preconditions, folder *string) error {
	if *folder == "" {
		return nil
	}
	in := m.Folders.In(c.Tenant.Workspace())
	there, err := in.Get(ctx, *folder)
	switch {
	case err == nil:
		need.Require(in.Unchanged(there))
	case errors.Is(err, store.ErrNotFound):
		*folder, err = "", nil
	}
	return err
}

func (m *Module) beforeFolder(ctx context.Context, c *operation.Call, need *store.Preconditions, rec, was *Folder) error {
	switch {
	case rec == nil:
		return m.empty(ctx, c, was, store.Either)
	case was == nil:
		rec.UserID = c.Principal.UserID
	case rec.Deleted:
		return m.empty(ctx, c, was, store.Live)
	case was.Deleted:
		if err := m.fill(ctx, c, rec); err != nil {
			return err
		}
		return m.detach(ctx, c, need, &rec.FolderID)
	case rec.FolderID == was.FolderID:
		return nil
	}
	return m.fits(ctx, c, need, rec)
}

// deepest bounds how many folders lie in one another.
const deepest = 100

// fits refuses a folder that would lie within itself, or too deep.
func (m *Module) fits(ctx context.Context, c *operation.Call, need *store.Preconditions, f *Folder) error {
	parent := f.FolderID
	below := 0
	if f.ID != "" {
		var err error
		if below, err = m.height(ctx, c, f.ID); err != nil {
			return err
		}
	}
	in := m.Folders.In(c.Tenant.Workspace())
	for range deepest - below {
		switch parent {
		case "":
			return nil
		case f.ID:
			return fault.One("folder_id", fault.Forbidden, "folder_id must not be the folder itself, or one that lies in it")
		}
		above, err := in.First(ctx, store.Query{Filter: store.Eq("id", parent), State: store.Either})
		if errors.Is(err, store.ErrNotFound) {
			return nil
		}
		if err != nil {
			return err
		}
		need.Require(in.Unchanged(above)) // it may be about to be moved into this one
		parent = above.FolderID
	}
	return fault.One("folder_id", fault.Length, "at most %d folders lie in one another", deepest)
}

// height returns how many folders lie in one another in a folder, deleted or not; deepest where there are more.
func (m *Module) height(ctx context.Context, c *operation.Call, id string) (int, error) {
	for height, level := 0, []string{id}; ; height++ {
		var next []string
		for some := range slices.Chunk(level, atOnce) {
			err := m.Folders.In(c.Tenant.Workspace()).Each(ctx, store.In("folder_id", some...), store.Either, func(f *Folder) error {
				next = append(next, f.ID)
				return nil
			})
			if err != nil {
				return 0, err
			}
		}
		if len(next) == 0 || height == deepest {
			return height, nil
		}
		level = next
	}
}

// deleting looks again once a folder has been deleted: what came into it meanwhile, while it was there, goes with it,
// or, where it was to be empty, to top level. Nothing comes after that.
func (m *Module) deleting(remove operation.Handler) operation.Handler {
	return func(ctx context.Context, c *operation.Call) (operation.Result, error) {
		result, err := remove(ctx, c)
		if err != nil {
			return result, err
		}
		id := c.Path("id")
		with := c.Query.Bool(new(fault.List), contents, false)
		in, err := m.inside(ctx, c, id, func(below *Folder) bool { return with && (!below.Deleted || below.DeletedWith == id) })
		if err == nil {
			err = in.each(ctx, store.Live, store.Filter{}, func(folder *string, trash *Trash) {
				if with {
					*trash = Trash{Deleted: true, DeletedWith: id}
				} else {
					*folder = ""
				}
			})
		}
		return result, err
	}
}
