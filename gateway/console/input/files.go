package input

import (
	"slices"
	"strings"

	"tenantry/operation"
)

// MediaType is the media type of files with an extension.
type MediaType struct{ Extension, Media string }

// MediaTypes returns the media types of files that operations take.
func MediaTypes() []MediaType {
	return []MediaType{
		{".csv", "text/csv"},
		{".tsv", "text/tab-separated-values"},
		{".json", "application/json"},
		{".ndjson", operation.NDJSON},
		{".jsonl", operation.NDJSON},
		{".zip", "application/zip"},
	}
}

// Extensions returns the extensions of the files that the operation takes.
func Extensions(row *operation.Row) (extensions []string) {
	for _, m := range MediaTypes() {
		if slices.Contains(row.Upload, m.Media) {
			extensions = append(extensions, m.Extension)
		}
	}
	return extensions
}

// Accepted returns the files that the operation takes, as the attribute accept of a control has them; empty: none.
func Accepted(row *operation.Row) string {
	if TakesAny(row) {
		return operation.AnyMedia
	}
	return strings.Join(Extensions(row), ",")
}

// TakesAny reports whether the operation takes files of every type.
func TakesAny(row *operation.Row) bool { return slices.Contains(row.Upload, operation.AnyMedia) }

// TakesSeveral reports whether the operation takes several files in a form.
func TakesSeveral(row *operation.Row) bool {
	return slices.Contains(row.Upload, operation.FormMedia) && !row.OnRecord
}

// FromFile reports whether a parameter of an upload says what the file itself does: its name and its media type.
func FromFile(row *operation.Row, name string) bool {
	return TakesAny(row) && (name == "filename" || name == "mimetype")
}
