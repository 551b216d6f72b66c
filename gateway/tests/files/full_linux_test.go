package files

import (
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"tenantry/config"
	"tenantry/gateway"
	"tenantry/gateway/gatewaytest"
	"tenantry/gateway/tests/fixture"
)

// mount mounts a file system of 4 MB in memory. It skips the test if this process may not.
func mount(t *testing.T, at string) {
	t.Helper()
	if err := os.MkdirAll(at, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Mount("tmpfs", at, "tmpfs", 0, "size=4m,mode=0700"); err != nil {
		t.Skipf("mounting a small file system: %v", err)
	}
	t.Cleanup(func() {
		if err := syscall.Unmount(at, syscall.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
}

// TestFull: a full disk refuses uploads with 507 and leaves nothing behind; everything else works.
func TestFull(t *testing.T) {
	t.Parallel()
	for _, full := range []string{"objects", "incoming"} {
		t.Run(full, func(t *testing.T) {
			t.Parallel()
			a := open(t, func(c *config.Config, _ *gateway.Options) {
				c.Files.Reserve = 0
				if full == "objects" {
					c.Files.Folder = t.TempDir()
					mount(t, c.Files.Folder)
				}
			})
			if full == "incoming" {
				mount(t, filepath.Join(a.Config.Data, full))
			}
			first := a.upload(t, "first.bin", "", filler(1, 1<<20))
			before := a.state(t)
			big := filler(2, 5<<20)
			u := a.begin(t, len(big))
			form := newForm().file("file", "ok.txt", "", "ok").file("file", "big.bin", "", big)
			for how, answer := range map[string]*gatewaytest.Answer{
				"raw":     a.post(t, uploadPath+"?filename=a.bin", "", big),
				"form":    a.postForm(t, uploadPath, form),
				"replace": a.post(t, "/api/files/"+first.ID+"/content", "", big),
				"tus":     u.send(t, 0, big),
			} {
				if answer.Code != http.StatusInsufficientStorage || !strings.Contains(answer.Message, "no space left") {
					t.Errorf("%s: got %d %s, want 507", how, answer.Code, answer.Text())
				}
			}
			a.wantSame(t, before)
			a.wantBytes(t, first.URL, filler(1, 1<<20))
			fixture.As(a.Org, gatewaytest.WithKey(a.key)).Create(t, "/api/contacts", `{"first_name":"Ada"}`)
			a.call(t, http.MethodPut, "/api/files/"+first.ID, `{"type":"x"}`)
			a.upload(t, "small.txt", "text/plain", "still room for this")
			a.call(t, http.MethodDelete, "/api/files/"+first.ID, "")
			a.call(t, http.MethodDelete, "/api/files/"+first.ID+"/purge", "")
			a.upload(t, "again.bin", "", filler(3, 3<<20))
			a.state(t)
		})
	}
}

// TestReserve: uploads and imports leave room for the databases, and what is refused leaves nothing behind.
func TestReserve(t *testing.T) {
	t.Parallel()
	a := open(t, func(c *config.Config, _ *gateway.Options) { c.Files.Reserve = 1 << 20 }) // MiB: more than any disk here has
	before := a.state(t)
	u := a.begin(t, 2)
	_, admin := a.Person(t, "admin@example.com", fixture.WithRoles("admin"))
	for how, answer := range map[string]*gatewaytest.Answer{
		"raw":    a.post(t, uploadPath+"?filename=a.bin", "", "ab"),
		"form":   a.postForm(t, uploadPath, newForm().file("file", "ok.txt", "", "ok")),
		"tus":    u.send(t, 0, "ab"),
		"import": a.Do(t, http.MethodPost, "/api/import", gatewaytest.Cookie(admin), gatewaytest.Body("application/x-ndjson", "{}")),
	} {
		if answer.Code != http.StatusInsufficientStorage || !strings.Contains(answer.Message, "no space left") {
			t.Errorf("%s: got %d %s, want 507", how, answer.Code, answer.Text())
		}
	}
	a.wantSame(t, before)
	fixture.As(a.Org, gatewaytest.WithKey(a.key)).Create(t, "/api/contacts", `{"first_name":"Ada"}`)
}
