package operations

import (
	"errors"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"tenantry/gateway/gatewaytest"
	"tenantry/gateway/tests/fixture"
	"tenantry/tenants"
)

// TestDoctorComparesFiles checks what doctor says of each way in which records of files and their bytes can differ.
func TestDoctorComparesFiles(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		harm func(t *testing.T, w *shelf)
		want []string // each in a finding; none: there is no finding
	}{
		"nothing": {harm: func(*testing.T, *shelf) {}},
		"a content is missing": {
			harm: func(t *testing.T, w *shelf) { must(t, os.Remove(w.second)) },
			want: []string{"wrong: acme: bytes are missing or have another size, of files and versions (1)", `"a.txt"`},
		},
		"a content is cut": {
			harm: func(t *testing.T, w *shelf) {
				must(t, errors.Join(os.Chmod(w.second, 0o600), os.Truncate(w.second, 1)))
			},
			want: []string{"wrong: acme: bytes are missing or have another size, of files and versions (1)"},
		},
		"a version is missing": {
			harm: func(t *testing.T, w *shelf) { must(t, os.Remove(w.first)) },
			want: []string{"wrong: acme: bytes are missing or have another size, of files and versions (1)", "(version "},
		},
		"a content in the trash is missing": {
			harm: func(t *testing.T, w *shelf) { must(t, os.Remove(w.trashed)) },
			want: []string{"wrong: acme: bytes are missing or have another size, of files and versions (1)", `"t.txt"`},
		},
		"an object of nobody": {
			harm: func(t *testing.T, w *shelf) { w.stray(t, 0) },
			want: []string{"warning: acme: objects that no file uses: 1 of 5 bytes\n"},
		},
		"an old object of nobody": {
			harm: func(t *testing.T, w *shelf) { w.stray(t, -4*fixture.Day) },
			want: []string{"warning: acme: objects that no file uses: 1 of 5 bytes, 1 for more than three days"},
		},
		"an object of nobody, swept": {
			harm: func(t *testing.T, w *shelf) {
				w.stray(t, -25*time.Hour)
				fixture.EmptyTrash(t, w.org.App)
			},
		},
		"an upload under way": {
			harm: func(t *testing.T, w *shelf) {
				path := filepath.Join(w.folder, "parts", "0123456789abcdef01234567", "00")
				must(t, errors.Join(os.MkdirAll(filepath.Dir(path), 0o700), os.WriteFile(path, []byte("part"), 0o600)))
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newShelf(t)
			c.harm(t, w)
			found := fixture.FileFindings(t, w.org.Gateway)
			if len(c.want) == 0 && found != "" {
				t.Errorf("got %s, want nothing", found)
			}
			for _, want := range c.want {
				if !strings.Contains(found, want) {
					t.Errorf("got %s, want %q", found, want)
				}
			}
			if n := strings.Count(found, "wrong: "); n > 1 {
				t.Errorf("got %s, want one finding", found)
			}
		})
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// shelf is an organization with a file that has a version, and one in the trash.
type shelf struct {
	org                    *gatewaytest.Org
	folder                 string // of its objects
	first, second, trashed string // the objects of the version, of the file and of the one in the trash
}

func newShelf(t *testing.T) *shelf {
	t.Helper()
	org := gatewaytest.Start(t).Org(t, "acme")
	w := &shelf{org: org, folder: filepath.Join(org.Config.Data, "files", strconv.FormatInt(org.Tenant(t).Org.OrgID, 10))}
	key := gatewaytest.WithKey(org.Key(t, tenants.ManageFiles))
	known := map[string]bool{}
	store := func(path, content string) (id, object string) {
		t.Helper()
		a := org.Do(t, http.MethodPost, path, key, gatewaytest.Body("text/plain", content))
		if a.Code != http.StatusOK {
			t.Fatalf("%s: got %d %s", path, a.Code, a.Body)
		}
		if all, _ := a.Field("results").([]any); len(all) == 1 {
			id, _ = all[0].(map[string]any)["id"].(string)
		}
		found, err := filepath.Glob(filepath.Join(w.folder, "*", "*"))
		must(t, err)
		for _, name := range found {
			if !known[name] {
				known[name], object = true, name
			}
		}
		return id, object
	}
	var id, gone string
	id, w.first = store("/api/files/upload?filename=a.txt", "first")
	_, w.second = store("/api/files/"+id+"/content", "second")
	gone, w.trashed = store("/api/files/upload?filename=t.txt", "in the trash")
	if a := org.Do(t, http.MethodDelete, "/api/files/"+gone, key); a.Status != "ok" {
		t.Fatalf("delete: got %s", a.Body)
	}
	return w
}

// stray stores an object that nothing names, with that age.
func (w *shelf) stray(t *testing.T, age time.Duration) {
	t.Helper()
	path := filepath.Join(w.folder, "ab", strings.Repeat("ab", 20)+".0123456789ab")
	at := time.Now().Add(age)
	must(t, errors.Join(os.MkdirAll(filepath.Dir(path), 0o700), os.WriteFile(path, []byte("stray"), 0o600), os.Chtimes(path, at, at)))
}
