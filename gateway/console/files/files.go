// Package files has the parts of pages that show files: the zone that takes new ones, the content of a file with its
// versions, and the contents of a folder.
package files

import (
	"net/url"
	"strings"

	"tenantry/gateway/console/layout"
	"tenantry/gateway/console/show"
	"tenantry/gateway/console/site"
	"tenantry/gateway/console/visit"
	"tenantry/internal/strictjson"
	"tenantry/tenants"
)

// The pages that this package has parts of.
const (
	ListPath   = "/files"
	FilePath   = "/files/{id}"
	FolderPath = "/files/folders/{id}"
)

// Zone takes files into a folder.
type Zone struct {
	Action    string // of the form that works without scripts
	Hidden    []layout.Hidden
	Resumable string // the address at which scripts begin resumable uploads
	Folder    string // the identifier of the folder; empty: none
	Most      int64  // bytes of one file
	Limit     string // the same, readable
}

// NewZone returns the zone of a page at an address, or nil if the person may not upload.
func NewZone(v *visit.Visit, folder, address string) *Zone {
	upload, begin := v.Site.Rows["files.upload"], v.Site.All
	if !v.May(upload) {
		return nil
	}
	z := &Zone{Action: "/do/" + upload.Name, Folder: folder, Most: v.Tenant.Org.Limit(tenants.LimitFileSize)}
	z.Limit = limitText(v, z.Most)
	if folder != "" {
		z.Hidden = append(z.Hidden, layout.Hidden{Name: "query.folder_id", Value: folder})
	}
	z.Hidden = append(z.Hidden, layout.Hidden{Name: "_back", Value: address})
	for i := range begin {
		if begin[i].Name == "uploads.create" && v.May(&begin[i]) {
			z.Resumable = begin[i].Path
		}
	}
	return z
}

// limitText returns a number of bytes that is not rounded, so that every file up to it is accepted.
func limitText(v *visit.Visit, bytes int64) string {
	for _, u := range []struct {
		name string
		size int64
	}{{"GiB", 1 << 30}, {"MiB", 1 << 20}, {"KiB", 1 << 10}} {
		if bytes >= u.size && bytes%u.size == 0 {
			return v.FormatInt(int(bytes/u.size)) + " " + u.name
		}
	}
	return v.FormatInt(int(bytes)) + " bytes"
}

// Permit lets the page load pictures, audio, video and frames from the file host of the organization.
func Permit(v *visit.Visit) {
	u, err := url.Parse(v.FileHost(v.Tenant))
	if err != nil || u.Host == "" {
		return // the page then shows no file
	}
	v.W.Header().Set("Content-Security-Policy", layout.FilesPolicy(u.Scheme+"://"+u.Host))
}

// Thumb returns the small picture of a file, or its icon.
func Thumb(file strictjson.Value) *show.Thumb {
	if address := file.Get("thumbnail").Text; address != "" {
		return &show.Thumb{Address: address} // its name stands beside it
	}
	return &show.Thumb{Icon: fileIcon}
}

// Icons, as SVG paths in a square of 16 by 16.
const (
	fileIcon   = "M3.5 1.5h6l3 3v10h-9zM9.5 1.5v3h3"
	folderIcon = "M1.5 3.5H6L7.5 5h7v8.5h-13z"
)

// Above returns links to a folder and those that contain it, the outermost first.
func Above(v *visit.Visit, folder string) (links []site.Link) {
	tree, ok := v.ReadNamed("folders.tree", "")
	if folder == "" || !ok {
		return nil
	}
	var within func(folders []strictjson.Value) bool
	within = func(folders []strictjson.Value) bool {
		for _, f := range folders {
			link := site.Link{Title: show.Clip(f.Get("name").Text), Address: folderAddress(f.Get("id").Text)}
			links = append(links, link)
			if f.Get("id").Text == folder || within(f.Get("folders").Items) {
				return true
			}
			links = links[:len(links)-1]
		}
		return false
	}
	within(tree.Get("results").Items)
	return links
}

func folderAddress(id string) string {
	return strings.ReplaceAll(FolderPath, "{id}", url.PathEscape(id))
}
func fileAddress(id string) string { return strings.ReplaceAll(FilePath, "{id}", url.PathEscape(id)) }

// Contents are the folders and files directly in a folder.
type Contents struct {
	*show.Table
	Count  string // how many there are
	Public string // who may read the files; empty: only people of the organization
}

// NewContents lays out the contents of a folder.
func NewContents(v *visit.Visit, p *site.Page, folder strictjson.Value) *Contents {
	c := &Contents{Table: &show.Table{Columns: []layout.Cell{
		{Title: "Name"}, {Title: "Size", Class: "number"}, {Title: "Type"}, {Title: "Changed (UTC)"},
	}}}
	none := show.Value{Text: "–", Class: "number none"}
	for _, f := range entries(folder.Get("folders")) {
		name := show.Value{
			Text: show.Clip(f.Get("name").Text), Href: folderAddress(f.Get("id").Text), Thumb: &show.Thumb{Icon: folderIcon},
		}
		c.Rows = append(c.Rows, []show.Value{name, none, {Text: "Folder"}, show.Field(v, p, "updated_at", f.Get("updated_at"), 0)})
	}
	for _, f := range entries(folder.Get("files")) {
		name := show.Value{Text: show.Clip(f.Get("filename").Text), Href: fileAddress(f.Get("id").Text), Thumb: Thumb(f)}
		size := show.Field(v, p, "size", f.Get("size"), 0)
		size.Class = strings.TrimSpace("number " + strings.TrimPrefix(size.Class, "number"))
		c.Rows = append(c.Rows, []show.Value{name, size, {Text: show.Clip(f.Get("mimetype").Text)}, show.Field(v, p, "updated_at", f.Get("updated_at"), 0)})
	}
	number := func(n int, one, more string) string {
		if n == 1 {
			return "1 " + one
		}
		return v.FormatInt(n) + " " + more
	}
	c.Count = number(show.Count(folder, "folders_count"), "folder", "folders") + " and " +
		number(show.Count(folder, "files_count"), "file", "files") + " directly in it."
	if folder.Get("public").Is == strictjson.True {
		c.Public = "This folder is public: everybody who has the address of a file directly in it may read the file, without " +
			"signing in. Files that belong to teams are not public."
		if len(folder.Get("teams").Items) > 0 {
			c.Public = "This folder is marked as public, but belongs to teams. Only people of the organization may read its files."
		}
	}
	return c
}

// entries returns the children of a folder, which are a list or one page of it.
func entries(children strictjson.Value) []strictjson.Value {
	if children.Is == strictjson.Array {
		return children.Items
	}
	return children.Get("results").Items
}

// Columns returns the columns of the list of files, unless the reader chooses others.
func Columns() []string {
	return []string{"filename", "size", "mimetype", "created_at"}
}
