package files

import (
	"log/slog"
	"strings"
	"testing"
	"time"

	"tenantry/backends/blobs"
	"tenantry/backends/enginetest"
	"tenantry/backends/store"
	"tenantry/modules/files/contents"
	"tenantry/operation/schematest"
)

// TestExamine_WithoutBlobs checks that records of which nothing says where their bytes are count as damaged, and so does a
// stored size that is not that of the bytes.
func TestExamine_WithoutBlobs(t *testing.T) {
	t.Parallel()
	bucket, err := blobs.Folder(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	keeper := contents.New(contents.Options{Bucket: bucket, Now: time.Now, Log: slog.New(slog.DiscardHandler)})
	m := New(Deps{Contents: keeper})
	bench := schematest.Open(t, enginetest.Open(t), m)
	hash := strings.Repeat("ab", 20)
	insert := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	for _, kept := range keeper.Kept() {
		if kind, is := kept.(*store.Kind[contents.Storage]); is {
			insert(kind.In(bench.Base()).Insert(t.Context(), &contents.Storage{Meta: store.Meta{ID: "000000000000000000000001"}, Files: 1, Bytes: 7}))
		}
	}
	insert(m.Files.In(bench.Base()).Insert(t.Context(), &File{PID: "a", Filename: "elsewhere.txt", Mimetype: "text/plain", Hash: "abc"}))
	insert(m.Files.In(bench.Base()).Insert(t.Context(), &File{PID: "b", Filename: "lost.txt", Mimetype: "text/plain", Hash: hash, Checksum: "00"}))
	insert(m.Versions.In(bench.Base()).Insert(t.Context(), &Version{FileID: "0000000000000000000000f1", Filename: "old.txt", Hash: hash, Checksum: "00"}))
	d, err := m.Examine(t.Context(), bench.Tenant)
	if err != nil || len(d.Files) != 2 || d.MoreFiles != 0 || !strings.Contains(d.Files[0], `"lost.txt"`) || !strings.Contains(d.Files[1], `"old.txt" (version `) {
		t.Errorf("got %+v, %v, want the file and the version without bytes", d, err)
	}
	if d.Lost != -7 {
		t.Errorf("got %d bytes, want -7 of which the storage knows nothing", d.Lost)
	}
	for i := range 2 * maxDamage {
		insert(m.Files.In(bench.Base()).Insert(t.Context(), &File{PID: string(rune('c' + i)), Filename: "more.txt", Mimetype: "text/plain", Hash: hash, Checksum: "00"}))
	}
	if d, err := m.Examine(t.Context(), bench.Tenant); err != nil || len(d.Files) != maxDamage || d.MoreFiles != maxDamage+2 {
		t.Errorf("many: got %d and %d more, %v, want %d and %d", len(d.Files), d.MoreFiles, err, maxDamage, maxDamage+2)
	}
}
