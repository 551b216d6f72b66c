package files

import (
	"net/http"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"tenantry/config"
	"tenantry/gateway"
	"tenantry/gateway/gatewaytest"
	"tenantry/gateway/tests/fixture"
)

// TestMountIsLost checks that nothing is acknowledged, reported as missing or removed while the mount of the folder is
// lost, and that everything is there when it is back.
func TestMountIsLost(t *testing.T) {
	t.Parallel()
	for name, lost := range map[string]func(string) error{
		"an empty folder": func(folder string) error { return os.Mkdir(folder, 0o700) },
		"no folder":       func(string) error { return nil },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			folder := filepath.Join(t.TempDir(), "files")
			a := open(t, func(c *config.Config, _ *gateway.Options) { c.Files.Folder = folder })
			old, purged := a.upload(t, "old.txt", "text/plain", "hello"), a.upload(t, "purged.txt", "text/plain", "bye")
			part, whole := a.begin(t, 2), a.begin(t, 2)
			a.call(t, http.MethodDelete, "/api/files/"+purged.ID, "")

			if err := os.Rename(folder, folder+".aside"); err != nil {
				t.Fatal(err)
			}
			if err := lost(folder); err != nil {
				t.Fatal(err)
			}
			for what, answer := range map[string]*gatewaytest.Answer{
				"new bytes":      a.post(t, uploadPath+"?filename=a.txt", "", "new"),
				"the same bytes": a.post(t, uploadPath+"?filename=a.txt", "", "hello"),
				"a part":         part.send(t, 0, "a"),
				"a whole file":   whole.send(t, 0, "ab"),
				"a read":         a.fetch(t, old.URL),
			} {
				if answer.Code != http.StatusServiceUnavailable {
					t.Errorf("%s: got %d %s, want 503", what, answer.Code, answer.Text())
				}
			}
			fixture.ReadyIn(t, a.Gateway, http.StatusOK, "degraded", map[string]string{"files": "down", "store": "ok"}, fixture.ReadyLimit)
			a.call(t, http.MethodDelete, "/api/files/"+purged.ID+"/purge", "")
			if err := filepath.WalkDir(folder, func(path string, d os.DirEntry, err error) error {
				if err == nil && !d.IsDir() {
					t.Errorf("%s was stored below the mount", path)
				}
				return nil
			}); err != nil {
				t.Error(err)
			}

			if err := os.RemoveAll(folder); err != nil {
				t.Fatal(err)
			}
			if err := os.Rename(folder+".aside", folder); err != nil {
				t.Fatal(err)
			}
			a.wantBytes(t, old.URL, "hello")
			a.wantBytes(t, a.upload(t, "same.txt", "", "hello").URL, "hello")
			a.wantBytes(t, a.upload(t, "new.txt", "", "new").URL, "new")
			if answer := part.send(t, 0, "ab"); answer.Code != http.StatusNoContent {
				t.Errorf("the part afterwards: got %d %s, want 204", answer.Code, answer.Text())
			}
		})
	}
}

// TestFirstFiles: the first files of an installation are stored although each looks for the mark that only one makes.
func TestFirstFiles(t *testing.T) {
	t.Parallel()
	for range 8 {
		a := open(t)
		var uploads sync.WaitGroup
		for i := range 16 {
			uploads.Go(func() {
				if answer := a.post(t, uploadPath+"?filename=a.txt", "", filler(i, 10)); answer.Code != http.StatusOK {
					t.Errorf("got %d %s, want 200", answer.Code, answer.Text())
				}
			})
		}
		uploads.Wait()
	}
}
