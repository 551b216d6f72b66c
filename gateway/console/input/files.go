package input

import (
	"slices"

	"tenantry/operation"
)

// MediaType is the media type of files whose names end so.
type MediaType struct{ End, Media string }

// MediaTypes are those of files, each by an end of their names.
func MediaTypes() []MediaType {
	return []MediaType{{".csv", "text/csv"}, {".tsv", "text/tab-separated-values"}, {".json", "application/json"}, {".ndjson", operation.NDJSON}, {".jsonl", operation.NDJSON}}
}

// Extensions returns the ends of the names of files that the operation takes.
func Extensions(row *operation.Row) (ends []string) {
	for _, m := range MediaTypes() {
		if slices.Contains(row.Upload, m.Media) {
			ends = append(ends, m.End)
		}
	}
	return ends
}
