package files

import (
	"tenantry/internal/texts"
)

// FolderAnswer is a folder as callers see it.
type FolderAnswer struct {
	ID           string          `json:"id" doc:"Identifier of the folder."`
	Name         string          `json:"name" doc:"Name of the folder."`
	FolderID     *string         `json:"folder_id" doc:"Identifier of the parent; null at top level."`
	OrgID        int64           `json:"org_id" doc:"Organization that owns the folder."`
	UserID       int64           `json:"user_id" doc:"User who created the folder."`
	Teams        *[]string       `json:"teams,omitempty" doc:"Teams that see the folder, all where empty. Left out without the teams feature."`
	Files        *FileChildren   `json:"files,omitempty" doc:"Files directly in the folder. Left out with schema=basic."`
	FilesCount   int64           `json:"files_count" doc:"All files directly in the folder, in the caller's scope."`
	Folders      *FolderChildren `json:"folders,omitempty" doc:"Folders directly in the folder. Left out with schema=basic."`
	FoldersCount int64           `json:"folders_count" doc:"All folders directly in the folder, in the caller's scope."`
	Editable     bool            `json:"editable" doc:"Always true."`
	Deletable    bool            `json:"deletable" doc:"Always true."`
	CreatedAt    string          `json:"created_at" doc:"RFC 3339, UTC, milliseconds."`
	UpdatedAt    string          `json:"updated_at" doc:"RFC 3339, UTC, milliseconds."`
	Public       bool            `json:"public,omitempty" doc:"Everybody may read the files directly in the folder that have no teams. Left out if not."`
}

// ChildFolder is a folder inside another, without its own children.
type ChildFolder struct {
	ID        string    `json:"id" doc:"Identifier of the folder."`
	Name      string    `json:"name" doc:"Name of the folder."`
	FolderID  *string   `json:"folder_id" doc:"Identifier of the parent."`
	OrgID     int64     `json:"org_id" doc:"Organization that owns the folder."`
	UserID    int64     `json:"user_id" doc:"User who created the folder."`
	Teams     *[]string `json:"teams,omitempty" doc:"Teams that see the folder, all where empty. Left out without the teams feature."`
	Editable  bool      `json:"editable" doc:"Always true."`
	Deletable bool      `json:"deletable" doc:"Always true."`
	CreatedAt string    `json:"created_at" doc:"RFC 3339, UTC, milliseconds."`
	UpdatedAt string    `json:"updated_at" doc:"RFC 3339, UTC, milliseconds."`
	Public    bool      `json:"public,omitempty" doc:"Everybody may read the files directly in the folder that have no teams. Left out if not."`
}

// FileAnswer is a file as callers see it.
type FileAnswer struct {
	ID          string    `json:"id" doc:"Identifier of the file."`
	PID         string    `json:"pid" doc:"Public identifier."`
	OrgID       string    `json:"org_id" doc:"Organization that owns the file."`
	UserID      int64     `json:"user_id" doc:"User who uploaded the file."`
	URL         string    `json:"url" doc:"Address at which the bytes can be read for a time, or always if they are public; empty if there are none yet."`
	Filename    string    `json:"filename" doc:"Name of the file."`
	Mimetype    string    `json:"mimetype" doc:"MIME type."`
	ContactID   string    `json:"contact_id" doc:"Linked contact; empty if there is none."`
	ContactName string    `json:"contact_name" doc:"Name of the linked contact; empty if there is none."`
	UserName    string    `json:"user_name" doc:"Name of the uploader; empty if there is none."`
	FolderID    string    `json:"folder_id" doc:"Folder that holds the file."`
	FolderName  *string   `json:"folder_name" doc:"Name of that folder; null if the file is in none."`
	Type        string    `json:"type" doc:"Type of the file."`
	Teams       *[]string `json:"teams,omitempty" doc:"Teams that see the file, all where empty. Left out without the teams feature."`
	CreatedAt   int64     `json:"created_at" doc:"Unix seconds."`
	UpdatedAt   int64     `json:"updated_at" doc:"Unix seconds."`
	Size        *int64    `json:"size,omitempty" doc:"Size in bytes. Left out if the bytes are not stored here."`
	Detected    string    `json:"detected,omitempty" doc:"MIME type that the bytes show. Left out if they are not stored here."`
	Checksum    string    `json:"checksum,omitempty" doc:"SHA-256 of the bytes, hexadecimal. Left out if they are not stored here."`
	Thumbnail   string    `json:"thumbnail,omitempty" doc:"Address of a small picture. Left out if there is none."`
}

// FileDetails is a file in the answer to any operation but those of the contract.
type FileDetails struct {
	FileAnswer
	Size      *int64 `json:"size" doc:"Size in bytes; null if the bytes are not stored here."`
	Detected  string `json:"detected" doc:"MIME type that the bytes show; empty if they are not stored here."`
	Checksum  string `json:"checksum" doc:"SHA-256 of the bytes, hexadecimal; empty if they are not stored here."`
	Thumbnail string `json:"thumbnail" doc:"Address of a small picture; empty if there is none."`
}

func detailed(f FileAnswer) FileDetails {
	return FileDetails{f, f.Size, f.Detected, f.Checksum, f.Thumbnail}
}

// FileRecord is a file in the answer to a change.
type FileRecord struct {
	FileDetails
	UserName   *string `json:"user_name,omitempty" doc:"Left out: lists and reads have it."`
	FolderName *string `json:"folder_name,omitempty" doc:"Left out: lists and reads have it."`
}

// FolderDetails is a folder in the answer to any operation but that of the contract.
type FolderDetails struct {
	ChildFolder
	Public bool `json:"public" doc:"Everybody may read the files directly in the folder that have no teams."`
}

// Branch is a folder in the tree of all folders.
type Branch struct {
	ChildFolder
	Folders []Branch `json:"folders" doc:"Folders directly in it, by name."`
}

// Tree is the tree of all folders.
type Tree struct {
	Count   int      `json:"count" doc:"Number of all folders."`
	Results []Branch `json:"results" doc:"Folders at top level, or in a folder that the caller does not see, by name."`
}

// Removed identifies a deleted file.
type Removed struct {
	ID string `json:"id" doc:"Identifier of the deleted file."`
}

const (
	exampleFolder = "665f1c2ab4d3e2f1a0b9c8d7"
	exampleFile   = "665f1c2ab4d3e2f1a0b9c8e1"
	exampleSum    = "2cf24dba5fb0a30e26e83b2ac5b9e29e1b161e5c1fa7425e73043362938b9824"

	exampleCreated, exampleUpdated = 1717509162000, 1717595562000
)

func fileExample() FileAnswer {
	name, none := "Contracts", []string{}
	return FileAnswer{
		ID: exampleFile, PID: "q7Zt0b1kY3m9", OrgID: "1", UserID: 7, URL: "https://files.example.com/9f86d081884c7d65",
		Filename: "lease.pdf", Mimetype: "application/pdf", ContactID: "665f1c2ab4d3e2f1a0b9c8f3", ContactName: "Ada Lovelace",
		UserName: "Grace Hopper", FolderID: exampleFolder, FolderName: &name, Type: "document", Teams: &none,
		CreatedAt: exampleCreated / 1000, UpdatedAt: exampleUpdated / 1000,
	}
}

func childExample() ChildFolder {
	parent, none := "665f1c2ab4d3e2f1a0b9c8d0", []string{}
	return ChildFolder{
		ID: exampleFolder, Name: "Contracts", FolderID: &parent, OrgID: 1, UserID: 7, Teams: &none,
		Editable: true, Deletable: true, CreatedAt: texts.Time(exampleCreated), UpdatedAt: texts.Time(exampleUpdated),
	}
}

func folderExample() FolderAnswer {
	child := childExample()
	return FolderAnswer{
		ID: child.ID, Name: child.Name, FolderID: child.FolderID, OrgID: child.OrgID, UserID: child.UserID, Teams: child.Teams,
		Files: &FileChildren{all: []FileAnswer{fileExample()}}, FilesCount: 1, Folders: &FolderChildren{all: []ChildFolder{}},
		Editable: true, Deletable: true, CreatedAt: child.CreatedAt, UpdatedAt: child.UpdatedAt,
	}
}
