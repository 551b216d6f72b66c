package demo

import (
	"bufio"
	"bytes"
	"encoding/json"
	"strings"
	"testing"
	"time"
)

// TestWriteBundle: the bundle is the same every time, and has the records that the demo links to.
func TestWriteBundle(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	var first, second bytes.Buffer
	for _, w := range []*bytes.Buffer{&first, &second} {
		if err := WriteBundle(w, now); err != nil {
			t.Fatal(err)
		}
	}
	if first.String() != second.String() {
		t.Error("the data is not the same every time")
	}
	kinds, ids := map[string]int{}, map[string]bool{}
	for s := bufio.NewScanner(&first); s.Scan(); {
		var l struct {
			Kind string `json:"kind"`
			ID   any    `json:"id"`
		}
		if err := json.Unmarshal(s.Bytes(), &l); err != nil || !strings.HasPrefix(s.Text(), `{"kind":"`) {
			t.Fatalf(`%s: got %v, want no error and beginning with "{\"kind\":\""`, s.Text(), err)
		}
		kinds[l.Kind]++
		if id, ok := l.ID.(string); ok {
			if len(id) != 24 || ids[id] {
				t.Errorf("identifier %q is malformed or used twice", id)
			}
			ids[id] = true
		}
	}
	for kind, least := range map[string]int{
		"contact": 24, "contact_field": 3, "folder": 3, "file": 5, "custom_object": 1, "record": 10, "form_collection": 1,
		"submission": 10, "campaign": 1, "custom_report": 2, "user": 2, "team": 2,
	} {
		if kinds[kind] < least {
			t.Errorf("lines of kind %s = %d, want at least %d", kind, kinds[kind], least)
		}
	}
	for _, id := range []string{FolderID, ContactID, CampaignID, PlainReportID, SecureReportID} {
		if !ids[id] {
			t.Errorf("no record has the identifier %s", id)
		}
	}
}
