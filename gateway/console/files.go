package console

import (
	"slices"

	"tenantry/operation"
)

type mediaType struct{ end, media string }

// mediaTypes are those of files, each by an end of their names.
func mediaTypes() []mediaType {
	return []mediaType{{".csv", "text/csv"}, {".tsv", "text/tab-separated-values"}, {".json", "application/json"}, {".ndjson", operation.NDJSON}, {".jsonl", operation.NDJSON}}
}

// extensions returns the ends of the names of files that the operation takes.
func extensions(row *operation.Row) (ends []string) {
	for _, m := range mediaTypes() {
		if slices.Contains(row.Upload, m.media) {
			ends = append(ends, m.end)
		}
	}
	return ends
}
