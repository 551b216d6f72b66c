// Package files serves folders and files. The bytes of a file live at the file host; what
// is kept here is its record.
package files

import (
	"context"
	"net/http"
	"slices"

	"tenantry/backends/store"
	"tenantry/operation"
	"tenantry/tenants"
)

// ContactNames finds how contacts are called.
type ContactNames interface {
	// Names returns the names of those of the contacts that the workspace shows, by id.
	Names(ctx context.Context, ws *store.Workspace, ids []string) (map[string]string, error)
}

// UserNames finds how users are called.
type UserNames interface {
	// Names returns the names of those of the users that the organization has, by id.
	Names(ctx context.Context, t *tenants.Tenant, ids []int64) (map[int64]string, error)
}

// Deps are what the module asks of others.
type Deps struct {
	// CDNBase returns the address under which the file host serves an organization's files.
	CDNBase  func(t *tenants.Tenant) string
	Contacts ContactNames
	Users    UserNames
}

// Module serves folders and files. It is immutable and safe for concurrent use.
type Module struct {
	Kinds
	deps Deps
}

// New returns the module.
func New(deps Deps) *Module { return &Module{NewKinds(), deps} }

const (
	folderMissing = "Folder not found"
	fileMissing   = "File not found"
	tag           = "Files"
)

// Operations returns the module's rows.
func (m *Module) Operations() []operation.Row {
	return slices.Concat([]operation.Row{m.getFolder(), m.treeRow()}, m.fileRows(), m.folderRows())
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
				{Code: http.StatusNotFound, Message: folderMissing, When: "no such folder in this organization, scope, state and parent"},
				{Code: http.StatusUnprocessableEntity, Message: "Validation failed: page must be a whole number from 1 to 1000000000", When: "a parameter has an unacceptable value"},
			},
		},
		Target: operation.Target{Revised: true},
		Docs: operation.Docs{
			Tag:     tag,
			Summary: "Get a folder",
			Description: "Answers one folder with the files and folders directly in it, ordered by name, then identifier. " +
				"The counts are the totals in the caller's scope, also where the lists are cut. A child folder comes without its own children. " +
				"With deleted=true the folder and its child folders are soft-deleted ones; the files are live in any case, because a deleted file leaves every read.",
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
				{Code: http.StatusOK, Message: fileMissing, When: "no such file in this organization and scope"},
			},
		},
		Target: operation.Target{Revised: true},
		Docs: operation.Docs{
			Tag:         tag,
			Summary:     "Delete a file",
			Description: "The record leaves every read and count, and can be restored until it is purged.",
		},
	}, m.removeFile)
}
