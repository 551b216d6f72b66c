package files

import (
	"tenantry/backends/record"
	"tenantry/backends/store"
	"tenantry/internal/fault"
	"tenantry/internal/texts"
)

// Folder holds files and other folders.
type Folder struct {
	store.Meta
	Name     string   `json:"name" rule:"required max=200 format=label" use:"filter" doc:"Name of the folder." example:"Contracts"`
	FolderID string   `json:"folder_id,omitempty" rule:"format=id ref=folder" use:"filter" doc:"Folder that holds it; null: at top level."`
	UserID   int64    `json:"user_id" rule:"ref=user" use:"computed filter" doc:"User who created the folder."`
	Public   bool     `json:"public,omitempty" doc:"Everybody who has the address may read the files directly in the folder that have no teams." ask:"Public|Everybody who has the address of a file in this folder may read it, unless the file or the folder belongs to teams."`
	Teams    []string `json:"teams,omitempty" rule:"max=1000 format=id ref=team" use:"scope"`
	Trash
}

// Trash says whether a record is deleted, and together with which folder.
type Trash struct {
	Deleted     bool   `json:"deleted" use:"scope"`
	DeletedWith string `json:"deleted_with,omitempty" rule:"format=id ref=folder" use:"computed hidden filter"`
}

// File is the record of a file; Hash names its bytes. They are kept by package contents if there is a Checksum, and
// otherwise, if anywhere, by a file host that is not part of the installation.
type File struct {
	store.Meta
	// Reports name neither PID nor Hash, which lead to the bytes of the file.
	PID       string   `json:"pid" rule:"max=200 format=line unique" use:"computed named" doc:"Public identifier."`
	Filename  string   `json:"filename" rule:"required max=255 format=label" use:"filter" doc:"Name of the file." ask:"File name" example:"lease.pdf" report:"File name"`
	Mimetype  string   `json:"mimetype" rule:"required max=200 format=media" use:"filter" doc:"MIME type." ask:"Media type|Such as application/pdf." example:"application/pdf" report:"MIME type"`
	Hash      string   `json:"hash,omitempty" rule:"max=200 format=line" use:"computed"` // callers set it by url
	FolderID  string   `json:"folder_id,omitempty" rule:"format=id ref=folder" use:"filter" doc:"Folder that holds the file; null: none." report:"Folder"`
	ContactID string   `json:"contact_id,omitempty" rule:"format=id ref=contact" use:"filter" doc:"Linked contact." report:"Contact"`
	UserID    int64    `json:"user_id" rule:"ref=user" use:"computed filter" doc:"User who uploaded the file." report:"User"`
	Size      int64    `json:"size,omitempty" use:"computed filter" doc:"Size in bytes." report:"Size"`
	Detected  string   `json:"detected,omitempty" rule:"max=200 format=line" use:"computed" doc:"MIME type that the bytes show."`
	Checksum  string   `json:"checksum,omitempty" rule:"max=64 format=line" use:"computed" doc:"SHA-256 of the bytes, hexadecimal."`
	Type      string   `json:"type,omitempty" rule:"max=200 format=line" use:"filter" doc:"Type of the file." example:"document" report:"Type"`
	Teams     []string `json:"teams,omitempty" rule:"max=1000 format=id ref=team" use:"scope"`
	Trash
}

// Version is the content that a file had until it was replaced.
type Version struct {
	store.Meta        // CreatedAt is when it was replaced
	FileID     string `json:"file_id"`
	Hash       string `json:"hash"`
	Filename   string `json:"filename"`
	Mimetype   string `json:"mimetype"`
	Size       int64  `json:"size"`
	Detected   string `json:"detected,omitempty"`
	Checksum   string `json:"checksum"`
	UserID     int64  `json:"user_id"`     // who had uploaded it
	ReplacedBy int64  `json:"replaced_by"` // who replaced it
}

// Stored reports whether package contents keeps the bytes of the file.
func (f *File) Stored() bool { return f.Checksum != "" }

// Content returns what names the bytes of the file, and what they are; the checksum is empty if they are not kept here.
func (f *File) Content() (hash string, size int64, media, checksum string) {
	return f.Hash, f.Size, f.Detected, f.Checksum
}

// SetContent sets what Content returns.
func (f *File) SetContent(hash string, size int64, media, checksum string) {
	f.Hash, f.Size, f.Detected, f.Checksum = hash, size, media, checksum
}

// at returns the parent folder and the trash state for changing them.
func (f *Folder) at() (*string, *Trash) { return &f.FolderID, &f.Trash }

func (f *File) at() (*string, *Trash) { return &f.FolderID, &f.Trash }

// clearLive clears DeletedWith of a live record.
func (t *Trash) clearLive() {
	if !t.Deleted {
		t.DeletedWith = ""
	}
}

// Kinds are the records of this module.
type Kinds struct {
	Folders *record.Of[Folder]
	Files   *record.Of[File]
	// Versions are the contents that files had before they were replaced.
	Versions *store.Kind[Version]
	// Transfers are the resumable uploads.
	Transfers *store.Kind[Transfer]
	// Attachments are files that wait for the submission of a form.
	Attachments *store.Kind[Attachment]
}

// NewKinds declares the records.
func NewKinds() Kinds {
	folders := record.Must(record.Options[Folder]{
		Traits: record.Traits{Name: "folder", Carries: true},
		Spec: store.Spec{
			Name: "folders",
			Indexes: []store.Index{
				{Fields: []string{"folder_id", "deleted", "name", "teams"}}, {Fields: []string{"deleted", "name"}},
				{Fields: []string{"deleted", "created_at"}},
			},
			Access: []store.Access{
				{
					Where: []string{"folder_id", "deleted"}, Sort: []string{"name"},
				}, {Where: []string{"deleted"}, Sort: []string{"name"}}, {Where: []string{"deleted", "created_at"}},
			},
		},
		Derive: func(f *Folder) { f.clearLive() },
	})
	files := record.Must(record.Options[File]{
		Traits: record.Traits{Name: "file"},
		Spec: store.Spec{
			Name: "files", Fields: []string{"hash"},
			Indexes: []store.Index{
				{Fields: []string{"folder_id", "deleted", "filename", "teams"}},
				{Fields: []string{"contact_id"}},
				{Fields: []string{"hash"}},
				{Fields: []string{"deleted", "filename"}},
				{Fields: []string{"deleted", "mimetype"}},
				{Fields: []string{"deleted", "created_at"}},
			},
			Access: []store.Access{
				{Where: []string{"folder_id", "deleted"}, Sort: []string{"filename"}},
				{Where: []string{"contact_id"}},
				{Where: []string{"hash"}},
				{Where: []string{"deleted"}, Sort: []string{"filename"}},
				{Where: []string{"deleted", "mimetype"}},
				{Where: []string{"deleted", "created_at"}},
			},
		},
		Derive: func(f *File) { f.clearLive() },
		Fill: func(f *File) {
			if f.PID == "" {
				f.PID = record.NewPID()
			}
		},
		Check: func(c *record.Checking, f *File) {
			if f.Hash != "" && !ValidHash(f.Hash) {
				c.Errs.Add("hash", fault.Format, "hash must be 1 to 128 of A-Z, a-z, 0-9, _ and -")
			}
		},
	})
	versions := store.Must[Version](store.Spec{
		Name: "file_versions", Fields: []string{"file_id", "hash"},
		Indexes: []store.Index{{Fields: []string{"file_id", "created_at"}}, {Fields: []string{"hash"}}},
		Access: []store.Access{
			{Where: []string{"file_id"}, Sort: []string{"created_at"}}, {Where: []string{"hash"}},
		},
	})
	return Kinds{folders, files, versions, newTransfers(), newAttachments()}
}

// Kept returns the kinds of the module.
func (k Kinds) Kept() []record.Kept {
	return []record.Kept{k.Folders, k.Files, k.Versions, k.Transfers, k.Attachments}
}

// ValidHash reports whether text can identify bytes at the file host: 1 to 128 letters, digits, "_" and "-".
func ValidHash(text string) bool { return texts.Plain(text, 128, "_-") }
