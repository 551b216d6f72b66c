package input

import (
	"slices"

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
