package record

import (
	"tenantry/gateway/console/files"
	"tenantry/gateway/console/site"
	"tenantry/gateway/console/visit"
	"tenantry/internal/strictjson"
)

// describeFiles completes the page of a file or a folder.
func describeFiles(v *visit.Visit, view *View, p *site.Page, path map[string]string, data strictjson.Value) {
	switch p.Path {
	case files.FilePath:
		view.File = files.NewView(v, p, path, data)
		view.laidOut = []string{"url", "thumbnail", "size", "detected", "checksum"}
	case files.FolderPath:
		view.Folder = files.NewContents(v, p, data)
		view.laidOut = []string{"files", "folders", "files_count", "folders_count", "public"}
		if !view.Deleted {
			view.Zone = files.NewZone(v, path[p.Key()], p.Address(path))
			view.TakesFiles = view.Zone != nil
		}
	default:
		return
	}
	files.Permit(v)
	view.Trail = append(view.Trail, files.Above(v, data.Get("folder_id").Text)...)
}
