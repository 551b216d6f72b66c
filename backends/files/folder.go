package files

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"strings"

	"tenantry/backends/store"
	"tenantry/gateway/api"
	"tenantry/tenants"
)

const (
	defaultPerPage = 50
	maxPage        = 1_000_000_000 // times the largest page, still far from overflow
	topLevel       = "null"        // value of folder_id
)

// listing says which children are asked for.
type listing struct {
	basic   bool
	paged   bool
	page    int64
	perPage int64 // page size, or the cap of a plain array
	state   store.State
}

func (m *Module) readFolder(ctx context.Context, c *api.Call) (api.Result, error) {
	ask, err := parseListing(c)
	if err != nil {
		return api.Result{}, err
	}
	folder, err := m.folder(ctx, c, ask.state)
	if err != nil {
		return api.Result{}, err
	}
	answer := FolderAnswer{
		ID: folder.ID, Name: folder.Name, FolderID: orNull(folder.FolderID), OrgID: c.Workspace.Org(), UserID: folder.UserID,
		Teams: teamsOf(c.Tenant, folder.Teams), Editable: true, Deletable: true,
		CreatedAt: timestamp(folder.CreatedAt), UpdatedAt: timestamp(folder.UpdatedAt),
	}
	files, filesCount, err := children(ctx, m.kinds.Files.In(c.Workspace), folder.ID, "filename", store.Live, ask)
	if err != nil {
		return api.Result{}, err
	}
	folders, foldersCount, err := children(ctx, m.kinds.Folders.In(c.Workspace), folder.ID, "name", ask.state, ask)
	if err != nil {
		return api.Result{}, err
	}
	answer.FilesCount, answer.FoldersCount = filesCount, foldersCount
	if ask.basic {
		return api.Result{Data: answer}, nil
	}
	shown, err := m.fileAnswers(ctx, c, folder.Name, files)
	if err != nil {
		return api.Result{}, err
	}
	answer.Files = childList(shown, filesCount, ask)
	answer.Folders = childList(childFolders(c, folders), foldersCount, ask)
	return api.Result{Data: answer}, nil
}

func parseListing(c *api.Call) (listing, error) {
	var errs api.Errors
	q := c.Query
	ask := listing{paged: q.Has("page")}
	switch q.Text("schema") {
	case "full":
	case "basic":
		ask.basic = true
	default:
		if q.Has("schema") {
			errs.Add("schema", "format", "schema must be full or basic")
		}
	}
	if q.Bool(&errs, "deleted", false) {
		ask.state = store.Deleted
	}
	most := min(c.Tenant.Org.Limit(tenants.LimitFolderChildren, tenants.DefaultFolderChildren), store.MaxLimit)
	ask.page = q.Int(&errs, "page", 1, maxPage, 1)
	perPage := q.Int(&errs, "per_page", 1, 1<<62, defaultPerPage)
	ask.perPage = most
	if ask.paged {
		ask.perPage = min(perPage, most)
	}
	return ask, errs.Problem()
}

// folder returns the folder of the path, if it also lies where folder_id says.
func (m *Module) folder(ctx context.Context, c *api.Call, state store.State) (*Folder, error) {
	missing := api.NotFound(folderMissing)
	id := c.Path("id")
	if !store.ValidID(id) {
		return nil, missing
	}
	folder, err := m.kinds.Folders.In(c.Workspace).First(ctx, store.Query{Filter: store.Eq("id", id), State: state})
	if errors.Is(err, store.ErrNotFound) {
		return nil, missing
	}
	if err != nil {
		return nil, err
	}
	if c.Query.Has("folder_id") {
		parent := c.Query.Text("folder_id")
		atTop := parent == topLevel && folder.FolderID == ""
		if !atTop && (parent == "" || parent != folder.FolderID) {
			return nil, missing
		}
	}
	return folder, nil
}

// children returns the records asked for and how many there are in all.
func children[T any](ctx context.Context, in store.Collection[T], folder, by string, state store.State, ask listing) ([]T, int64, error) {
	inside := store.Eq("folder_id", folder)
	if ask.basic {
		count, err := in.CountIn(ctx, inside, state)
		return nil, count, err
	}
	offset := int64(0)
	if ask.paged {
		offset = (ask.page - 1) * ask.perPage
	}
	found, err := in.Find(ctx, store.Query{
		Filter: inside, Sort: []store.Order{store.Asc(by)}, Limit: int(ask.perPage), Offset: int(offset), State: state,
	})
	if err != nil {
		return nil, 0, err
	}
	if n := int64(len(found)); n < ask.perPage && (n > 0 || offset == 0) {
		return found, offset + n, nil // the end is in sight: no need to count
	}
	count, err := in.CountIn(ctx, inside, state)
	return found, count, err
}

func childList[T any](shown []T, count int64, ask listing) *Children[T] {
	if !ask.paged {
		return &Children[T]{all: shown}
	}
	return &Children[T]{page: &Page[T]{
		Page: ask.page, Pages: (count + ask.perPage - 1) / ask.perPage, Count: count, Results: shown,
	}}
}

func childFolders(c *api.Call, folders []Folder) []ChildFolder {
	shown := make([]ChildFolder, len(folders))
	for i := range folders {
		f := &folders[i]
		shown[i] = ChildFolder{
			ID: f.ID, Name: f.Name, FolderID: orNull(f.FolderID), OrgID: c.Workspace.Org(), UserID: f.UserID,
			Teams: teamsOf(c.Tenant, f.Teams), Editable: true, Deletable: true,
			CreatedAt: timestamp(f.CreatedAt), UpdatedAt: timestamp(f.UpdatedAt),
		}
	}
	return shown
}

// fileAnswers computes what is not stored, with one look-up for all contacts and one for
// all users.
func (m *Module) fileAnswers(ctx context.Context, c *api.Call, folderName string, files []File) ([]FileAnswer, error) {
	contacts, users, err := m.names(ctx, c, files)
	if err != nil {
		return nil, err
	}
	base := ""
	if len(files) > 0 {
		base = strings.TrimRight(m.deps.CDNBase(c.Tenant), "/")
	}
	org := strconv.FormatInt(c.Workspace.Org(), 10)
	shown := make([]FileAnswer, len(files))
	for i := range files {
		f := &files[i]
		shown[i] = FileAnswer{
			ID: f.ID, PID: f.PID, OrgID: org, UserID: f.UserID, Filename: f.Filename, Mimetype: f.Mimetype,
			ContactID: f.ContactID, ContactName: contacts[f.ContactID], UserName: users[f.UserID],
			FolderID: f.FolderID, FolderName: &folderName, Type: f.Type, Teams: teamsOf(c.Tenant, f.Teams),
			CreatedAt: f.CreatedAt / 1000, UpdatedAt: f.UpdatedAt / 1000,
		}
		if ValidHash(f.Hash) { // anything else could lead out of the organization's folder
			shown[i].URL = base + "/" + f.Hash
		}
	}
	return shown, nil
}

func (m *Module) names(ctx context.Context, c *api.Call, files []File) (contacts map[string]string, users map[int64]string, err error) {
	var contactIDs []string
	var userIDs []int64
	for i := range files {
		if id := files[i].ContactID; id != "" {
			contactIDs = append(contactIDs, id)
		}
		if id := files[i].UserID; id != 0 {
			userIDs = append(userIDs, id)
		}
	}
	if len(contactIDs) > 0 {
		slices.Sort(contactIDs)
		if contacts, err = m.deps.Contacts.ContactNames(ctx, c.Workspace, slices.Compact(contactIDs)); err != nil {
			return nil, nil, err
		}
	}
	if len(userIDs) > 0 {
		slices.Sort(userIDs)
		if users, err = m.deps.Users.UserNames(ctx, c.Tenant, slices.Compact(userIDs)); err != nil {
			return nil, nil, err
		}
	}
	return contacts, users, nil
}

func orNull(id string) *string {
	if id == "" {
		return nil
	}
	return &id
}

// teamsOf returns what an answer says about teams: nothing without the feature.
func teamsOf(t *tenants.Tenant, teams []string) *[]string {
	if !t.Org.Feature(tenants.FeatureTeams) {
		return nil
	}
	if teams == nil {
		teams = []string{}
	}
	return &teams
}
