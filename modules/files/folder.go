package files

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"strings"

	"tenantry/backends/store"
	"tenantry/internal/texts"
	"tenantry/internal/together"
	"tenantry/operation"
	"tenantry/tenants"
)

// folderInput says which folder is read, and which of its children.
type folderInput struct {
	ID       string  `json:"id" doc:"Identifier of the folder." example:"665f1c2ab4d3e2f1a0b9c8d7"`
	Schema   string  `json:"schema" rule:"enum=full|basic" default:"full" doc:"basic leaves out files and folders; the counts stay."`
	Deleted  bool    `json:"deleted" default:"false" doc:"Reads a soft-deleted folder instead of a live one."`
	FolderID *string `json:"folder_id" doc:"Finds the folder only if this is its parent; null stands for the top level."`
	// Page is 0 if no page was asked for. Its maximum times the largest page is far from an overflow.
	Page    int64 `json:"page" rule:"min=1 max=1000000000" doc:"Page of the children, from 1. Each list of children becomes an object with page, pages, count and results."`
	PerPage int64 `json:"per_page" rule:"min=1 max=9223372036854775807" default:"50" doc:"Children on a page, from 1; cut to the organization's limit folder_children."`
}

// readFolder waits for a remote store at most twice: first for the folder and its children together, because the
// filter for the children needs only the folder's identifier; then for the counts of lists that are cut, and for
// names.
func (m *Module) readFolder(ctx context.Context, c *operation.Call, ask folderInput) (answer FolderAnswer, err error) {
	if !store.ValidID(ask.ID) {
		return answer, operation.NotFound(folderMissing)
	}
	most := min(c.Tenant.Org.Limit(tenants.LimitFolderChildren), store.MaxLimit)
	if ask.Page == 0 || ask.PerPage > most {
		ask.PerPage = most
	}
	state := store.Live
	if ask.Deleted {
		state = store.Deleted
	}
	var folder *Folder
	files := children[File]{in: m.Files.In(c.Workspace), folder: ask.ID, by: "filename", state: store.Live}
	folders := children[Folder]{in: m.Folders.In(c.Workspace), folder: ask.ID, by: "name", state: state}
	err = together.Do(c.Workspace.Remote(),
		func() (err error) {
			folder, err = m.folder(ctx, c, ask, state)
			return err
		},
		func() error { return files.read(ctx, ask) },
		func() error { return folders.read(ctx, ask) },
	)
	if err != nil {
		return answer, err
	}
	c.Revision = folder.Rev
	answer = FolderAnswer{
		ID: folder.ID, Name: folder.Name, FolderID: orNull(folder.FolderID), OrgID: c.Workspace.Org(), UserID: folder.UserID,
		Teams: teamsOf(c.Tenant, folder.Teams), Editable: true, Deletable: true,
		Public: folder.Public, CreatedAt: texts.Time(folder.CreatedAt), UpdatedAt: texts.Time(folder.UpdatedAt),
	}
	named := m.names(c, files.found)
	named.folders, named.in = map[string]string{folder.ID: folder.Name}, map[string]*Folder{"": nil, folder.ID: folder}
	if err := together.Do(c.Workspace.Remote(), slices.Concat(files.pending(ctx), folders.pending(ctx), named.pending(ctx))...); err != nil {
		return answer, err
	}
	answer.FilesCount, answer.FoldersCount = files.count, folders.count
	if files.cut || folders.cut {
		c.Header.Set("X-Warning", "children are left out, because they are large; ask for pages with a smaller per_page")
	}
	if ask.Schema == "full" {
		shownFiles, err := m.fileAnswers(ctx, c, files.found, named)
		if err != nil {
			return answer, err
		}
		answer.Files = childList(shownFiles, files.count, ask)
		shown := make([]ChildFolder, len(folders.found))
		for i := range folders.found {
			shown[i] = childFolder(c, &folders.found[i])
		}
		answer.Folders = childList(shown, folders.count, ask)
	}
	return answer, nil
}

// folder returns the folder if its parent is the one that folder_id names.
func (m *Module) folder(ctx context.Context, c *operation.Call, ask folderInput, state store.State) (*Folder, error) {
	folder, err := m.Folders.In(c.Workspace).First(ctx, store.Query{Filter: store.Eq("id", ask.ID), State: state})
	elsewhere := func(parent string) bool {
		atTop := parent == "null" && folder.FolderID == ""
		return !atTop && (parent == "" || parent != folder.FolderID)
	}
	if errors.Is(err, store.ErrNotFound) || err == nil && ask.FolderID != nil && elsewhere(*ask.FolderID) {
		return nil, operation.NotFound(folderMissing)
	}
	return folder, err
}

// children are the records of one kind in a folder.
type children[T any] struct {
	in     store.Collection[T]
	folder string
	by     string
	state  store.State

	found   []T
	cut     bool  // more follow than fit into a page
	count   int64 // all children
	counted bool
}

func (k *children[T]) subtree() store.Filter { return store.Eq("folder_id", k.folder) }

// read reads the requested records, and their total if that needs no query of its own.
func (k *children[T]) read(ctx context.Context, ask folderInput) (err error) {
	if ask.Schema == "basic" {
		return k.countAll(ctx)
	}
	offset := max(ask.Page-1, 0) * ask.PerPage
	q := store.Query{
		Filter: k.subtree(), Sort: []store.Order{store.Asc(k.by)}, Limit: int(ask.PerPage), Offset: int(offset),
		State: k.state, Bytes: operation.PageBytes,
	}
	if offset > 0 {
		k.counted = true
		return k.page(ctx, q)
	}
	found, err := k.in.FindPart(ctx, q)
	if errors.As(err, new(*store.UnreadableError)) {
		k.counted = true
		return k.page(ctx, q)
	}
	k.found, k.cut = found.Records, found.Cut
	if n := int64(len(k.found)); n < ask.PerPage && !k.cut {
		k.count, k.counted = n, true // the list ends here, so there is no need to count
	}
	return err
}

// page reads a page and counts all children.
func (k *children[T]) page(ctx context.Context, q store.Query) error {
	found, count, err := k.in.Page(ctx, q, q.Filter)
	k.found, k.cut, k.count = found.Records, found.Cut, count
	return err
}

func (k *children[T]) countAll(ctx context.Context) (err error) {
	k.count, err = k.in.CountIn(ctx, k.subtree(), k.state)
	k.counted = true
	return err
}

// pending returns the query that read has left open.
func (k *children[T]) pending(ctx context.Context) []func() error {
	if k.counted {
		return nil
	}
	return []func() error{func() error { return k.countAll(ctx) }}
}

func childList[T any](shown []T, count int64, ask folderInput) *Children[T] {
	if ask.Page == 0 {
		return &Children[T]{all: shown}
	}
	page := operation.Page[T]{
		Page: ask.Page, Pages: (count + ask.PerPage - 1) / ask.PerPage, Count: count, Results: shown,
	}
	return &Children[T]{page: &page}
}

func childFolder(c *operation.Call, f *Folder) ChildFolder {
	return ChildFolder{
		ID: f.ID, Name: f.Name, FolderID: orNull(f.FolderID), OrgID: c.Workspace.Org(), UserID: f.UserID,
		Teams: teamsOf(c.Tenant, f.Teams), Editable: true, Deletable: true, Public: f.Public,
		CreatedAt: texts.Time(f.CreatedAt), UpdatedAt: texts.Time(f.UpdatedAt),
	}
}

// fileAnswers returns the answers of files, with the fields that are not stored.
func (m *Module) fileAnswers(
	ctx context.Context, c *operation.Call, files []File, named *nameLookup,
) ([]FileAnswer, error) {
	at, err := m.addresses(ctx, c, files)
	if err != nil {
		return nil, err
	}
	public, err := m.arePublic(ctx, c.Tenant, files, named.in)
	if err != nil {
		return nil, err
	}
	org := strconv.FormatInt(c.Workspace.Org(), 10)
	shown := make([]FileAnswer, len(files))
	for i := range files {
		f := &files[i]
		shown[i] = FileAnswer{
			ID: f.ID, PID: f.PID, OrgID: org, UserID: f.UserID, Filename: f.Filename, Mimetype: f.Mimetype,
			ContactID: f.ContactID, ContactName: named.contacts[f.ContactID], UserName: named.users[f.UserID],
			FolderID: f.FolderID, FolderName: orNull(named.folders[f.FolderID]), Type: f.Type, Teams: teamsOf(c.Tenant, f.Teams),
			CreatedAt: f.CreatedAt / 1000, UpdatedAt: f.UpdatedAt / 1000,
		}
		if f.Stored() {
			shown[i].Size, shown[i].Detected, shown[i].Checksum = &f.Size, f.Detected, f.Checksum
		}
		shown[i].URL = at.file(f, public[i])
		if shown[i].URL != "" && hasThumbnail(f) {
			shown[i].Thumbnail = withThumbnail(shown[i].URL)
		}
	}
	return shown, nil
}

// cdnBase is the address of the organization's files, to which a hash is appended.
func (m *Module) cdnBase(c *operation.Call) string {
	return strings.TrimRight(m.deps.CDNBase(c.Tenant), "/")
}

// nameLookup looks up the names of contacts, users and folders of files.
type nameLookup struct {
	m          *Module
	call       *operation.Call
	contactIDs []string
	userIDs    []int64
	folderIDs  []string
	contacts   map[string]string
	users      map[int64]string
	folders    map[string]string
	in         map[string]*Folder // nil for ""
}

func (m *Module) names(c *operation.Call, files []File) *nameLookup {
	n := &nameLookup{m: m, call: c}
	for i := range files {
		if id := files[i].ContactID; id != "" {
			n.contactIDs = append(n.contactIDs, id)
		}
		if id := files[i].UserID; id != 0 {
			n.userIDs = append(n.userIDs, id)
		}
	}
	slices.Sort(n.contactIDs)
	slices.Sort(n.userIDs)
	n.contactIDs, n.userIDs = slices.Compact(n.contactIDs), slices.Compact(n.userIDs)
	return n
}

// pending returns one query for all contacts, one for all users and one for all folders.
func (n *nameLookup) pending(ctx context.Context) (questions []func() error) {
	if len(n.contactIDs) > 0 {
		questions = append(questions, func() (err error) {
			n.contacts, err = n.m.deps.Contacts.Names(ctx, n.call.Workspace, n.contactIDs)
			return err
		})
	}
	if len(n.userIDs) > 0 {
		questions = append(questions, func() (err error) {
			n.users, err = n.m.deps.Users.Names(ctx, n.call.Tenant, n.userIDs)
			return err
		})
	}
	if len(n.folderIDs) > 0 {
		questions = append(questions, func() error {
			found, err := n.m.Folders.In(n.call.Workspace).Find(ctx, store.Query{
				Filter: store.In("id", n.folderIDs...), State: store.Either, LeaveOut: true,
			})
			for i := range found {
				n.folders[found[i].ID], n.in[found[i].ID] = found[i].Name, &found[i]
			}
			return err
		})
	}
	return questions
}

func orNull(id string) *string {
	if id == "" {
		return nil
	}
	return &id
}

// teamsOf returns the teams in an answer; nil without the feature.
func teamsOf(t *tenants.Tenant, teams []string) *[]string {
	if !t.Org.Feature(tenants.FeatureTeams) {
		return nil
	}
	if teams == nil {
		teams = []string{}
	}
	return &teams
}
