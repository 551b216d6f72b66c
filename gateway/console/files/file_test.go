package files

import (
	"testing"

	"tenantry/internal/deliver"
)

// TestFilesThatContradictTheirType checks which declared types a page warns of, and what it shows of such files.
func TestFilesThatContradictTheirType(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		declared, detected string
		warns              bool
		kind               string
	}{
		{"image/png", "image/png", false, "picture"},
		{"image/jpg", "image/jpeg", false, "picture"},
		{"image/png", "text/html", true, ""},
		{"text/plain", "text/html", true, ""},
		{"text/html", "text/html", false, ""},
		{"image/svg+xml", "image/svg+xml", false, ""},
		{"image/png", "image/svg+xml", true, ""},
		{"image/png", "text/plain", true, ""},
		{"image/png", "application/zip", true, ""},
		{"application/pdf", "application/pdf", false, "document"},
		{"application/pdf", "text/plain", true, ""},
		{"text/plain", "text/plain", false, "text"},
		{"text/csv", "text/plain", false, ""},
		{"application/json", "text/plain", false, ""},
		{"application/vnd.openxmlformats-officedocument.wordprocessingml.document", "application/zip", false, ""},
		{"application/octet-stream", "image/png", false, ""},
		{"image/png", "application/octet-stream", false, ""},
		{"audio/mpeg", "audio/mpeg", false, "audio"},
		{"audio/mp4", "video/mp4", false, "audio"},
		{"video/ogg", "application/ogg", false, "video"},
		{"audio/mpeg", "application/pdf", true, ""},
		{"application/pdf", "image/png", true, ""},
	} {
		if got := contradicts(c.declared, c.detected); got != c.warns {
			t.Errorf("%s with the content of %s contradicts: %t, want %t", c.declared, c.detected, got, c.warns)
		}
		if got := kindOf(deliver.Policy(c.declared, c.detected, "")); got != c.kind {
			t.Errorf("%s with the content of %s is shown as %q, want %q", c.declared, c.detected, got, c.kind)
		}
	}
}
