package operations

import (
	"errors"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"tenantry/config"
	"tenantry/gateway"
	"tenantry/gateway/gatewaytest"
	"tenantry/tenants"
)

// TestFilesElsewhere checks that an installation that has stored files does not start, and stores nothing, where their
// folder is another one or missing, and starts again where it is back.
func TestFilesElsewhere(t *testing.T) {
	t.Parallel()
	data, folder := t.TempDir(), filepath.Join(t.TempDir(), "files")
	with := func(c *config.Config, _ *gateway.Options) { c.Data, c.Files.Folder = data, folder }
	g := gatewaytest.Start(t, with)
	acme := g.Org(t, "acme")
	key := gatewaytest.WithKey(acme.Key(t, tenants.ManageFiles))
	upload := func(org *gatewaytest.Org) *gatewaytest.Answer {
		return org.Do(t, http.MethodPost, "/api/files/upload?filename=a.txt", key, gatewaytest.Body("text/plain", "hello"))
	}
	if a := upload(acme); a.Code != http.StatusOK {
		t.Fatalf("upload: got %d %s, want 200", a.Code, a.Body)
	}
	g.Stop(t)

	aside := folder + ".aside"
	if err := os.Rename(folder, aside); err != nil {
		t.Fatal(err)
	}
	start := func() error {
		cfg := g.Config
		app, err := gateway.New(t.Context(), cfg, gateway.Options{})
		if err == nil {
			_ = app.Close()
		}
		return err
	}
	err := start()
	if !errors.Is(err, gateway.ErrNoFiles) || !strings.Contains(err.Error(), folder) || !strings.Contains(err.Error(), "installation/") {
		t.Errorf("without the folder: got %v, want ErrNoFiles that names the folder and the mark", err)
	}
	if err := os.RemoveAll(folder); err != nil { // the start has made an empty one
		t.Fatal(err)
	}
	if err := os.Rename(aside, folder); err != nil {
		t.Fatal(err)
	}
	if err := start(); err != nil {
		t.Errorf("with the folder back: got %v, want no error", err)
	}
}
