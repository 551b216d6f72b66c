package files

import (
	"cmp"
	"slices"
	"strings"

	"tenantry/gateway/console/layout"
	"tenantry/gateway/console/show"
	"tenantry/gateway/console/site"
	"tenantry/gateway/console/visit"
	"tenantry/internal/deliver"
	"tenantry/internal/strictjson"
)

// View is the content of a file on its page.
type View struct {
	Kind     string // how browsers show it: picture, document, text, audio or video; empty: they do not
	Address  string // of the bytes
	Small    string // the address of the small picture, or that of the bytes
	Save     string // the address at which browsers save the bytes; empty: they are not here
	Name     string
	Size     string
	Declared string // the media type that its uploader declared
	Detected string // the one that the bytes show, if it differs
	Warning  string // how they contradict
	Checksum string
	Public   bool // everybody who has the address may read it
	Versions *show.Table
}

// NewView lays out the content of a file.
func NewView(v *visit.Visit, p *site.Page, path map[string]string, file strictjson.Value) *View {
	text := func(name string) string { return file.Get(name).Text }
	view := &View{Name: text("filename"), Declared: text("mimetype"), Checksum: text("checksum")}
	view.Versions = versions(v, p, path)
	if view.Checksum == "" || text("url") == "" {
		return view
	}
	view.Address = text("url")
	view.Small, view.Save = cmp.Or(text("thumbnail"), view.Address), saved(view.Address)
	view.Size = show.Field(v, p, "size", file.Get("size"), 0).Text
	view.Public = !strings.Contains(view.Address, "&key=")
	if detected, _, _ := strings.Cut(text("detected"), ";"); !strings.EqualFold(detected, view.Declared) {
		view.Detected = detected
	}
	if contradicts(view.Declared, view.Detected) {
		view.Warning = "The file is declared as " + view.Declared + ", but its content looks like " + view.Detected +
			". Do not open it unless you know why."
	}
	view.Kind = kindOf(deliver.Policy(view.Declared, text("detected"), ""))
	return view
}

// kindOf returns how browsers show what is served so.
func kindOf(s deliver.Served) string {
	main, _, _ := strings.Cut(s.ContentType, "/")
	switch {
	case !s.Inline:
		return ""
	case s.ContentType == "application/pdf":
		return "document"
	case main == "image":
		return "picture"
	}
	return main
}

// contradicts reports whether bytes of the detected type are hardly what was declared. Types that are made of others, as
// office documents are of ZIP and most sources are of text, do not contradict.
func contradicts(declared, detected string) bool {
	const octets = "application/octet-stream"
	main := func(media string) string { kind, _, _ := strings.Cut(media, "/"); return kind }
	media := []string{"image", "audio", "video", "font"}
	switch {
	case detected == "" || detected == octets || declared == octets:
		return false
	case detected == "text/html" || detected == "image/svg+xml": // browsers run their scripts
		return !slices.Contains([]string{"text/html", "application/xhtml+xml", "image/svg+xml"}, declared)
	case detected == "text/plain" || detected == "text/xml" || detected == "application/zip":
		return slices.Contains(media, main(declared)) && declared != "image/svg+xml" || declared == "application/pdf"
	case slices.Contains([]string{"audio", "video"}, main(declared)):
		return !slices.Contains([]string{"audio", "video", "application/ogg"}, main(detected)) && detected != "application/ogg"
	}
	return main(declared) != main(detected)
}

// versions lays out the contents that a file had before, or returns nil if it had none or the person may not see them.
func versions(v *visit.Visit, p *site.Page, path map[string]string) *show.Table {
	row := v.Site.Rows["files.versions"]
	if !v.May(row) {
		return nil
	}
	a, err := v.Read(row, path, "")
	all := a.Data.Get("results").Items
	if err != nil || !a.OK() || len(all) == 0 {
		return nil
	}
	t := &show.Table{Columns: []layout.Cell{
		{Title: "Until (UTC)"}, {Title: "Name"}, {Title: "Size", Class: "number"}, {Title: "Uploaded by"},
		{Title: "Replaced by"}, {Title: "Actions"},
	}}
	for _, one := range all {
		get := show.Value{Text: "Download", Href: saved(one.Get("url").Text)}
		t.Rows = append(t.Rows, []show.Value{
			show.Field(v, p, "replaced_at", one.Get("replaced_at"), 0), {Text: show.Clip(one.Get("filename").Text)},
			show.Field(v, p, "size", one.Get("size"), 0), who(v, one.Get("user_id")), who(v, one.Get("replaced_by")), get,
		})
	}
	return t
}

// who returns the name of a user; a key has none.
func who(v *visit.Visit, user strictjson.Value) show.Value {
	if name := show.ActorName(v, "user:"+user.Text); name != "" {
		return show.Value{Text: name}
	}
	return show.Value{Text: "–", Class: "none"}
}

// saved returns the address at which browsers save the bytes of an address.
func saved(address string) string {
	if address == "" {
		return ""
	}
	return address + "&download=true"
}
