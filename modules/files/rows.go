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

// folderRows returns the rows of folders, except the read of one, which belongs to the contract.
func (m *Module) folderRows() []operation.Row {
	return crud.Rows(m.Folders.Resource, crud.Options{
		Path: "/api/files/folders", Things: "Folders", Tag: tag, Search: []string{"name"},
		Read: operation.Needs(tenants.ManageFiles), Write: operation.Needs(tenants.ManageFiles), Before: crud.Before(m.beforeFolder),
		Example: FolderDetails{ChildFolder: childExample()},
		Show: crud.ShowEach(func(c *operation.Call, f *Folder) FolderDetails {
			return FolderDetails{childFolder(c, f), f.Public}
		}),
		Get:    crud.Absent(),
		Update: crud.Action{Lead: "Changing folder_id moves the folder, but not into itself or a folder inside it."},
		Delete: crud.Action{
			Lead:   "A folder that is not empty is deleted only with contents=true, together with its contents.",
			Policy: operation.Policy{Timeout: crud.ClearTimeout},
			Request: operation.Request{Params: []operation.Param{{
				Name: paramContents, In: operation.InQuery, Shape: operation.Boolean, Default: "false", Example: "true",
				Description: "Also deletes, or purges, the contents of the folder, at any depth.", Ask: operation.Ask{Label: "With everything in it"},
			}}},
			Response: operation.Response{Failures: []operation.Failure{operation.Refuses(
				http.StatusUnprocessableEntity, "the folder has files or folders in it, and contents is not true", paramContents, fault.Forbidden, notEmpty,
			)}},
			Around: m.sweepAfterDelete,
		},
		Restore: crud.Action{
			Lead: "Contents that were deleted together with the folder are restored with it, and nothing else. If its " +
				"parent is deleted, the folder is moved to the top level.",
			Policy: operation.Policy{Timeout: crud.ClearTimeout},
		},
	})
}

// fileRows returns the rows of files. The delete belongs to the contract.
func (m *Module) fileRows() []operation.Row {
	o := m.fileOptions()
	rows := crud.Rows(m.Files.Resource, o)
	return slices.Insert(
		rows, slices.IndexFunc(rows, func(row operation.Row) bool { return row.Action == operation.RestoreAction }),
		m.deleteFile(),
	)
}

// fileOptions says how the records of files are served.
func (m *Module) fileOptions() crud.Options {
	changed := operation.Response{Data: FileRecord{}, Example: FileRecord{FileDetails: detailed(fileExample())}}
	written := crud.Action{
		Request: operation.Request{Body: []operation.Field{{
			Name: "url", Shape: operation.Text, Nullable: true, Bounds: operation.Bounds{MaxLength: maxURL}, Example: "9f86d081884c7d65",
			Description: "Where the file host serves the bytes: the address as in answers, or the last part of its path. Only " +
				"that part is stored. If it is that of a file that the caller may see, the record has the same bytes; " +
				"an upload stores new ones.",
			Ask: operation.Ask{
				Label: "Address", Hint: "The address at which the contents of the file are served.",
			},
		}}},
		Response: changed,
	}
	written.Failures = []operation.Failure{{
		Code: http.StatusUnprocessableEntity, Message: "Validation failed: " + foreign,
		When: "url is not an address of the organization's file host",
	}}
	rewritten := written
	rewritten.Around = m.dropVersionsAfter
	return crud.Options{
		Path: "/api/files", Things: "Files", Tag: tag, Search: []string{"filename"},
		Read: operation.Needs(tenants.ManageFiles), Write: operation.Needs(tenants.ManageFiles),
		Check: crud.Check(m.address), Before: crud.Before(m.beforeFile), Stage: crud.Stage(m.keepVersion),
		Show: crud.Show(m.showFiles), Example: detailed(fileExample()),
		Create: written, Update: rewritten, Delete: crud.Absent(),
		Purge: &crud.Action{
			Lead: "Bytes that no other file has are removed with it.", Response: changed, Around: m.dropAfterPurge,
		},
		Restore: crud.Action{
			Lead: "If the folder of the file is deleted, the file is restored without a folder.", Response: changed,
		},
	}
}

const (
	maxURL        = 2000
	paramContents = "contents"
	notEmpty      = "the folder is not empty; contents=true also deletes its contents"
	foreign       = "url must be an address below that of the organization's files, or its last part: " +
		"1 to 128 of A-Z, a-z, 0-9, _ and -"
)

// showFiles makes the answers of files. Names of users and folders are shown only by reads, but a folder also decides
// whether the address of bytes is public.
func (m *Module) showFiles(ctx context.Context, c *operation.Call, all []*File) ([]any, error) {
	files := make([]File, len(all))
	for i, f := range all {
		files[i] = *f
	}
	named, reads := m.names(c, files), c.Operation.Method == http.MethodGet
	if !reads {
		named.userIDs = nil
	}
	named.folders, named.in = map[string]string{}, map[string]*Folder{"": nil}
	for i := range files {
		id := files[i].FolderID
		if id != "" && (reads || files[i].Stored()) && !slices.Contains(named.folderIDs, id) {
			named.folderIDs = append(named.folderIDs, id)
		}
	}
	if err := together.Do(c.Workspace.Remote(), named.pending(ctx)...); err != nil {
		return nil, err
	}
	answers, err := m.fileAnswers(ctx, c, files, named)
	if err != nil {
		return nil, err
	}
	out := make([]any, len(all))
	for i, shown := range answers {
		if out[i] = detailed(shown); !reads {
			out[i] = FileRecord{FileDetails: detailed(shown)}
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
		rec.clearLive()
		return m.detach(ctx, c, need, &rec.FolderID)
	}
	return m.shareBytes(ctx, c, need, rec)
}

// address stores the last part of the path at which the file host serves the bytes.
func (m *Module) address(_ context.Context, c *operation.Call, rec, was *File, errs *fault.List) error {
	if !c.Body.Has("url") {
		return nil
	}
	var given File
	if c.Body.Value("url").Is != strictjson.Null {
		text, ok := c.Body.Text(errs, "url")
		text, _, _ = strings.Cut(text, "?") // the signature
		given.Hash = strings.TrimPrefix(text, m.cdnBase(c)+"/")
		if ok && given.Hash != "" && !ValidHash(given.Hash) {
			errs.Add("url", fault.Format, foreign)
		}
	}
	if was != nil && given.Hash == was.Hash {
		given = *was
	}
	rec.setBytes(given)
	return nil
}

// shareBytes gives a file with a new hash the bytes of that hash if the caller can read them already. A hash alone
// gives no right to any.
func (m *Module) shareBytes(ctx context.Context, c *operation.Call, need *store.Preconditions, rec *File) error {
	if rec.Hash == "" || rec.Stored() || !c.Body.Has("url") {
		return nil
	}
	in := m.Files.In(c.Entitled())
	found := errors.New("found")
	err := in.Each(ctx, store.Eq("hash", rec.Hash), store.Live, func(other *File) error {
		if !other.Stored() { // it names the hash only
			return nil
		}
		need.Require(in.Unchanged(other)) // otherwise its bytes could be removed before this file has them
		rec.setBytes(*other)
		return found
	})
	if errors.Is(err, found) {
		err = nil
	}
	return err
}

// setBytes gives the file the bytes of another one.
func (f *File) setBytes(of File) {
	f.Hash, f.Size, f.Detected, f.Checksum = of.Hash, of.Size, of.Detected, of.Checksum
}

// detach clears the folder of a restored record if the folder is deleted or gone.
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

func (m *Module) beforeFolder(
	ctx context.Context, c *operation.Call, need *store.Preconditions, rec, was *Folder,
) error {
	switch {
	case rec == nil:
		return m.deleteContents(ctx, c, was, store.Either)
	case was == nil:
		rec.UserID = c.Principal.UserID
	case rec.Deleted:
		return m.deleteContents(ctx, c, was, store.Live)
	case was.Deleted:
		if err := m.restoreContents(ctx, c, rec); err != nil {
			return err
		}
		return m.detach(ctx, c, need, &rec.FolderID)
	case rec.FolderID == was.FolderID:
		return nil
	}
	return m.checkMove(ctx, c, need, rec)
}

// maxDepth bounds the levels of folders.
const maxDepth = 100

// checkMove refuses a folder that would contain itself or exceed maxDepth.
func (m *Module) checkMove(ctx context.Context, c *operation.Call, need *store.Preconditions, f *Folder) error {
	parent := f.FolderID
	below := 0
	if f.ID != "" {
		var err error
		if below, err = m.height(ctx, c, f.ID); err != nil {
			return err
		}
	}
	in := m.Folders.In(c.Tenant.Workspace())
	for range maxDepth - below {
		switch parent {
		case "":
			return nil
		case f.ID:
			return fault.One("folder_id", fault.Forbidden, "folder_id must not be the folder itself or a folder inside it")
		}
		above, err := in.First(ctx, store.Query{Filter: store.Eq("id", parent), State: store.Either})
		if errors.Is(err, store.ErrNotFound) {
			return nil
		}
		if err != nil {
			return err
		}
		need.Require(in.Unchanged(above)) // another call may be moving it into this folder
		parent = above.FolderID
	}
	return fault.One("folder_id", fault.Length, "folders may have at most %d levels", maxDepth)
}

// height returns the levels of folders below a folder, deleted or not, at most maxDepth.
func (m *Module) height(ctx context.Context, c *operation.Call, id string) (int, error) {
	for height, level := 0, []string{id}; ; height++ {
		var next []string
		for some := range slices.Chunk(level, folderBatch) {
			err := m.Folders.In(c.Tenant.Workspace()).Each(ctx, store.In("folder_id", some...), store.Either, func(f *Folder) error {
				next = append(next, f.ID)
				return nil
			})
			if err != nil {
				return 0, err
			}
		}
		if len(next) == 0 || height == maxDepth {
			return height, nil
		}
		level = next
	}
}

// sweepAfterDelete looks for records that were added to a folder while it was being deleted, and deletes them too or,
// without contents, moves them to the top level. Nothing can be added later.
func (m *Module) sweepAfterDelete(remove operation.Handler) operation.Handler {
	return func(ctx context.Context, c *operation.Call) (operation.Result, error) {
		result, err := remove(ctx, c)
		if err != nil {
			return result, err
		}
		id := c.Path("id")
		with := c.Query.Bool(new(fault.List), paramContents, false)
		in, err := m.subtree(ctx, c, id, func(below *Folder) bool { return with && (!below.Deleted || below.DeletedWith == id) })
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
