package files

import "tenantry/backends/store"

// Folder holds files and other folders.
type Folder struct {
	store.Meta
	Name     string   `json:"name"`
	FolderID string   `json:"folder_id,omitempty"` // parent; empty at top level
	UserID   int64    `json:"user_id"`
	Teams    []string `json:"teams,omitempty"`
	Deleted  bool     `json:"deleted"`
}

// File is the record of an uploaded file; its bytes live at the file host under Hash.
type File struct {
	store.Meta
	PID       string   `json:"pid"`
	Filename  string   `json:"filename"`
	Mimetype  string   `json:"mimetype"`
	Hash      string   `json:"hash,omitempty"`
	FolderID  string   `json:"folder_id,omitempty"`
	ContactID string   `json:"contact_id,omitempty"`
	UserID    int64    `json:"user_id"`
	Type      string   `json:"type,omitempty"`
	Teams     []string `json:"teams,omitempty"`
	Deleted   bool     `json:"deleted"`
}

// Kinds are the records of this module.
type Kinds struct {
	Folders *store.Kind[Folder]
	Files   *store.Kind[File]
}

// NewKinds declares the records. An error is a fault of the program.
func NewKinds() (Kinds, error) {
	folders, err := store.Define[Folder](store.Spec{
		Name: "folders", Fields: []string{"name", "folder_id", "user_id"}, Teams: true, SoftDelete: true,
		Indexes: []store.Index{{Fields: []string{"folder_id", "deleted", "name", "teams"}}},
		Access:  []store.Access{{Where: []string{"folder_id", "deleted"}, Sort: []string{"name"}}},
	})
	if err != nil {
		return Kinds{}, err
	}
	files, err := store.Define[File](store.Spec{
		Name: "files", Fields: []string{"pid", "filename", "mimetype", "folder_id", "contact_id", "user_id", "type"}, Teams: true, SoftDelete: true,
		Indexes: []store.Index{
			{Fields: []string{"pid"}, Unique: true},
			{Fields: []string{"folder_id", "deleted", "filename", "teams"}},
			{Fields: []string{"contact_id"}},
			{Fields: []string{"deleted", "mimetype"}},
			{Fields: []string{"deleted", "created_at"}},
		},
		Access: []store.Access{
			{Where: []string{"folder_id", "deleted"}, Sort: []string{"filename"}},
			{Where: []string{"contact_id"}},
			{Where: []string{"deleted", "mimetype"}},
			{Where: []string{"deleted", "created_at"}},
		},
	})
	return Kinds{folders, files}, err
}

// Specs returns the declarations, for the store.
func (k Kinds) Specs() []*store.Spec { return []*store.Spec{k.Folders.Spec(), k.Files.Spec()} }

// ValidHash reports whether text can name bytes at the file host: 1 to 128 letters, digits,
// "_" and "-".
func ValidHash(text string) bool {
	if text == "" || len(text) > 128 {
		return false
	}
	for i := range len(text) {
		c := text[i]
		if (c < 'a' || c > 'z') && (c < 'A' || c > 'Z') && (c < '0' || c > '9') && c != '_' && c != '-' {
			return false
		}
	}
	return true
}
