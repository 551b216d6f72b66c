// Package files serves folders and files. Their bytes are kept by package contents, and read at addresses that are signed
// for a time, or public (see addresses).
package files

import (
	"context"
	"net/http"
	"slices"
	"time"

	"tenantry/backends/record"
	"tenantry/backends/store"
	"tenantry/internal/background"
	"tenantry/internal/fairqueue"
	"tenantry/modules/files/contents"
	"tenantry/operation"
	"tenantry/operation/crud"
	"tenantry/tenants"
)

// ContactNames looks up the names of contacts.
type ContactNames interface {
	// Names returns the names of the contacts that the workspace shows, by identifier.
	Names(ctx context.Context, ws *store.Workspace, ids []string) (map[string]string, error)
}

// UserNames looks up the names of users.
type UserNames interface {
	// Names returns the names of the users that the organization has, by identifier.
	Names(ctx context.Context, t *tenants.Tenant, ids []int64) (map[int64]string, error)
}

// Deps are the dependencies of the module.
type Deps struct {
	// CDNBase returns the address at which the file host serves an organization's files, BaseURL that of the organization.
	CDNBase  func(t *tenants.Tenant) string
	BaseURL  func(slug string) string
	Contents *contents.Keeper
	// LinkLife is how long an address of a file is valid at least; it may be up to twice as long.
	LinkLife   time.Duration
	Now        func() time.Time
	Background *background.Work
	Contacts   ContactNames
	Users      UserNames
}

// Module serves folders and files. It is immutable and safe for concurrent use.
type Module struct {
	Kinds
	deps      Deps
	maker     crud.Maker[File]
	pictures  *pictures
	beginning fairqueue.Queue[int64]  // the beginning of uploads, one of an organization at a time
	storing   fairqueue.Queue[string] // of the bytes of an upload, one request at a time
}

// New returns the module.
func New(deps Deps) *Module {
	m := &Module{Kinds: NewKinds(), deps: deps, pictures: newPictures()}
	m.maker = crud.NewMaker(m.Files, m.fileOptions())
	return m
}

// Kept returns the kinds of the module.
func (m *Module) Kept() []record.Kept { return append(m.Kinds.Kept(), m.deps.Contents.Kept()...) }

const (
	folderMissing = "Folder not found"
	fileMissing   = "File not found"
	tag           = "Files"
)

// Operations returns the module's rows.
func (m *Module) Operations() []operation.Row {
	return slices.Concat([]operation.Row{m.getFolder(), m.treeRow()}, m.contentRows(), m.fileRows(), m.folderRows())
}

func (m *Module) getFolder() operation.Row {
	return operation.Typed(operation.Row{
		Name: "folders.get", Method: http.MethodGet, Path: "/api/files/folders/{id}",
		Policy: operation.Policy{
			Credentials: operation.Key | operation.Session, Kinds: operation.ServerKeys,
			Rule: operation.AnyCaller(),
		},
		Request: operation.Request{
			Contract: true,
			Teams:    true,
		},
		Response: operation.Response{
			Message: "Folder found", Example: folderExample(),
			Failures: []operation.Failure{
				{
					Code: http.StatusNotFound, Message: folderMissing,
					When: "there is no such folder in this state and parent, or the caller may not see it",
				},
				{
					Code:    http.StatusUnprocessableEntity,
					Message: "Validation failed: page must be a whole number from 1 to 1000000000",
					When:    "a parameter has an unacceptable value",
				},
			},
		},
		Target: operation.Target{Revised: true, Logged: crud.Logged(m.Folders.Resource)},
		Docs: operation.Docs{
			Tag:     tag,
			Summary: "Get a folder", Title: "Folder",
			Description: "Answers one folder with the files and folders directly in it, ordered by name, then identifier. " +
				"The counts are the totals in the caller's scope, even if the lists are cut. A child folder comes without its own children. " +
				"With deleted=true the folder and its child folders are soft-deleted ones; the files are always live, because " +
				"deleted files are left out of every read.",
		},
	}, m.readFolder)
}

func (m *Module) deleteFile() operation.Row {
	return operation.Typed(operation.Row{
		Name: "files.delete", Method: http.MethodDelete, Path: "/api/files/{id}",
		Policy: operation.Policy{
			Credentials: operation.Key | operation.Session, Kinds: operation.ServerFull,
			Rule: operation.PersonsNeed(tenants.ManageFiles), Audit: operation.AuditAlways,
		},
		Request: operation.Request{
			Contract: true,
			Teams:    true,
		},
		Response: operation.Response{
			Message: "File record deleted", Example: Removed{ID: exampleFile},
			Failures: []operation.Failure{
				{
					Code: http.StatusOK, Message: fileMissing,
					When: "there is no such file, or the caller may not see it",
				},
			},
		},
		Target: operation.Target{Revised: true},
		Docs: operation.Docs{
			Tag:     tag,
			Summary: "Delete a file", Verb: "Delete",
			Description: "The record is left out of every read and count, and can be restored until it is purged.",
		},
	}, m.removeFile)
}
