package backup

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"tenantry/config"
	"tenantry/gateway"
	"tenantry/gateway/control"
	"tenantry/gateway/gatewaytest"
	"tenantry/gateway/tests/fixture"
)

// backupFinding returns what doctor finds about backups.
func backupFinding(t *testing.T, g *gatewaytest.Gateway) (found control.Finding) {
	t.Helper()
	for _, f := range fixture.Findings(t, g, control.Examination{Quick: true}) {
		if f.What == "backups" {
			found = f
		}
	}
	return found
}

// TestDoctor_ForeignPlace: a gateway whose settings name the place of another installation has no backup, although there
// are some in it, and doctor says what to do, with a log of changes and without.
func TestDoctor_ForeignPlace(t *testing.T) {
	t.Parallel()
	first := newSite(t)
	mark := filepath.Join(first.backups, "installation", first.backUp(t, nil).Installation)
	for what, option := range map[string]gatewaytest.Option{
		"without a log": func(c *config.Config, _ *gateway.Options) {
			c.Backup = config.Backup{To: first.backups, At: []string{"03:00"}}
		},
		"with a log": logging(first.backups),
	} {
		g := gatewaytest.Start(t, fixture.InFolder(t.TempDir()), option)
		own, err := control.Call[control.Installation](t.Context(), g.Commands, "init", struct{}{})
		if err != nil {
			t.Fatal(err)
		}
		f := backupFinding(t, g)
		if f.Verdict != control.Wrong || !strings.Contains(f.Says, "another installation") || !strings.Contains(f.Advice, "set backup.to") {
			t.Errorf("%s: got %+v, want the other installation, and another place advised", what, f)
		}
		// A gateway that cannot log its last changes does not end well.
		marked := filepath.Join(filepath.Dir(mark), own.Identity)
		if err := os.Rename(mark, marked); err != nil {
			t.Fatal(err)
		}
		g.Stop(t)
		if err := os.Rename(marked, mark); err != nil {
			t.Fatal(err)
		}
	}
}
