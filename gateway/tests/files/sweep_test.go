package files

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"tenantry/gateway/tests/fixture"
)

// TestSweep: objects without a record are found, and removed when they are a day old; records without an object are found.
func TestSweep(t *testing.T) {
	t.Parallel()
	a := open(t)
	f := a.upload(t, "a.txt", "text/plain", "text")
	root := filepath.Join(a.Config.FilesDir(), fmt.Sprint(a.Tenant(t).Org.OrgID))
	orphan := "ab/ab" + strings.Repeat("0", 38) + ".0123456789ab"
	plant := func() {
		t.Helper()
		path := filepath.Join(root, orphan)
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o700), os.WriteFile(path, []byte("orphan"), 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	plant()
	damage, err := a.App.Contents().Examine(t.Context(), a.Tenant(t))
	if err != nil || damage.Orphans != 1 || len(damage.Missing) > 0 || damage.Lost != 0 {
		t.Errorf("got %+v, %v, want the orphan", damage, err)
	}
	fixture.EmptyTrash(t, a.App)
	if !slices.Contains(names(t, root), orphan) {
		t.Error("got the orphan removed at once, want it kept for a day, because an upload may be about to name it")
	}
	a.clock.Advance(25 * time.Hour)
	fixture.EmptyTrash(t, a.App)
	if s := a.state(t); len(s.Objects) != 1 {
		t.Errorf("got %+v, want one object", s)
	}
	a.wantBytes(t, a.read(t, f.ID).URL, "text")
	object := a.state(t).Objects[0]
	if err := os.Remove(filepath.Join(root, object)); err != nil {
		t.Fatal(err)
	}
	damage, err = a.App.Contents().Examine(t.Context(), a.Tenant(t))
	if err != nil || len(damage.Missing) != 1 || damage.Missing[0].Sum != f.Checksum || damage.Orphans > 0 {
		t.Errorf("got %+v, %v, want the bytes of the file missing", damage, err)
	}
	a.wantCode(t, a.read(t, f.ID).URL, 404)
}
