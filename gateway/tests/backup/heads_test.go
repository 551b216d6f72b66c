package backup

import (
	"fmt"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"tenantry/gateway/control"
	"tenantry/gateway/gatewaytest"
	"tenantry/gateway/tests/fixture"
	"tenantry/modules/audit"
)

// headOf returns the head of a log, with all records of before; org is "" for the log of the installation.
func headOf(t *testing.T, g *gatewaytest.Gateway, clock *fixture.Clock, org string) control.AuditHead {
	t.Helper()
	clock.Advance(time.Minute)
	head, err := control.Call[control.AuditHead](t.Context(), g.Commands, "audit.head", control.Log{Org: org})
	if err != nil || head.Head == "" {
		t.Fatalf("got %+v %v, want a head", head, err)
	}
	return head
}

// against compares a log with an earlier head.
func against(t *testing.T, g *gatewaytest.Gateway, org string, head control.AuditHead) error {
	t.Helper()
	_, err := control.Call[audit.Comparison](t.Context(), g.Commands, "audit.compare", control.HeadToCompare{
		Log: control.Log{Org: org}, Against: head.Head,
	})
	return err
}

// says reports whether an error has all of some words.
func says(err error, words ...string) bool {
	return err != nil && !slices.ContainsFunc(words, func(w string) bool { return !strings.Contains(err.Error(), w) })
}

// logFindings returns what doctor finds about audit logs, one finding a line with its verdict.
func logFindings(t *testing.T, g *gatewaytest.Gateway) string {
	t.Helper()
	var found strings.Builder
	for _, f := range fixture.Findings(t, g, control.Examination{}) {
		if strings.HasPrefix(f.What, "audit log") {
			fmt.Fprintf(&found, "%s: %s: %s\n", f.Verdict, f.What, f.Says)
		}
	}
	return found.String()
}

// TestHeads_Restored: the logs of a restored backup have the key of their heads and continue every head from before the
// backup, and none from after it, which is said whether they are shorter now or have grown since.
func TestHeads_Restored(t *testing.T) {
	t.Parallel()
	for name, isolation := range isolations(t) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			clock := new(fixture.Clock)
			s := newSite(t, isolation, clock.Option)
			acme, key := s.organization(t, "acme")
			logs := []string{"acme", ""}
			before, after := map[string]control.AuditHead{}, map[string]control.AuditHead{}
			for _, log := range logs {
				before[log] = headOf(t, s.Gateway, clock, log)
			}
			if _, err := control.Call[control.Rotation](t.Context(), s.Commands, "keyring.rotate", struct{}{}); err != nil {
				t.Fatal(err)
			}
			if _, err := control.Call[control.Retired](t.Context(), s.Commands, "keyring.retire", control.Version{Version: 1}); err != nil {
				t.Fatal(err)
			}
			for _, log := range logs {
				now := headOf(t, s.Gateway, clock, log)
				if !slices.Equal(now.Keys, before[log].Keys) {
					t.Errorf("log %q: got the keys %v with another keyring, want %v", log, now.Keys, before[log].Keys)
				}
				before[log] = now
			}
			m := s.backUp(t, nil)
			fixture.As(acme, gatewaytest.WithKey(key)).Create(t, "/api/contacts", `{"first_name":"Lost"}`)
			for _, log := range logs {
				after[log] = headOf(t, s.Gateway, clock, log)
				if after[log].Size != before[log].Size+1 {
					t.Fatalf("log %q: got a head of %d records, want %d", log, after[log].Size, before[log].Size+1)
				}
			}

			restored := s.mustRestore(t, m.Name)
			of := at(restored, acme)
			for _, log := range logs {
				if err := against(t, restored, log, before[log]); err != nil {
					t.Errorf("log %q, against the head of before the backup: %v", log, err)
				}
				if err := against(t, restored, log, after[log]); !says(err, "those after record", "are gone", "a backup was restored", "org.restore") {
					t.Errorf("log %q, against a head of after the backup: got %v, want that records are gone", log, err)
				}
			}
			extension := "/api/audit/extension?head=" + url.QueryEscape(after["acme"].Head)
			if a := of.Get(t, key, extension); a.Field("what") != "shrunk" {
				t.Errorf("got %s, want that the log shrank", a.Body)
			}
			for range 3 {
				fixture.As(of, gatewaytest.WithKey(key)).Create(t, "/api/contacts", `{"first_name":"New"}`)
				note(t, restored)
			}
			for _, log := range logs {
				now := headOf(t, restored, clock, log)
				if now.Size <= after[log].Size || !slices.Equal(now.Keys, before[log].Keys) {
					t.Errorf("log %q: got %+v, want more than %d records, signed by the key of before", log, now, after[log].Size)
				}
				if err := against(t, restored, log, before[log]); err != nil {
					t.Errorf("log %q, grown, against the head of before the backup: %v", log, err)
				}
				if err := against(t, restored, log, after[log]); !says(err, "records are not those of the earlier head", "a backup was restored") {
					t.Errorf("log %q, grown, against a head of after the backup: got %v, want that records are others", log, err)
				}
			}
			if a := of.Get(t, key, extension); a.Field("what") != "forked" {
				t.Errorf("got %s, want that the log forked", a.Body)
			}
			own, err := control.Call[[]control.AuditRecord](t.Context(), restored.Commands, "audit", map[string]any{"limit": 100})
			if !slices.ContainsFunc(own, func(r control.AuditRecord) bool {
				return r.Operation == "restore" && r.Subject == "command" && r.Facts["backup"] == m.Name && r.Facts["operator"] == "root" && r.Facts["from"] == s.backups
			}) {
				t.Errorf("got %+v %v, want a record of the restoration", own, err)
			}
			if found := logFindings(t, restored); !strings.HasPrefix(found, "ok: audit log: ") || strings.Count(found, "\n") != 1 {
				t.Errorf("doctor: got %q, want one good finding", found)
			}
		})
	}
}

// note makes a record in the log of an installation.
func note(t *testing.T, g *gatewaytest.Gateway) {
	t.Helper()
	in := control.BackupRequest{To: t.TempDir(), WithoutFiles: true}
	if _, err := g.Commands.Do(t.Context(), "backup", in, control.Streams{Progress: func(control.Progress) {}}); err != nil {
		t.Fatal(err)
	}
}

// TestHeads_OrganizationRestored: the log of an organization that is restored in place goes on, with a record of that. A
// new organization of the backup has a log of its own.
func TestHeads_OrganizationRestored(t *testing.T) {
	t.Parallel()
	clock := new(fixture.Clock)
	s := newSite(t, gatewaytest.Embedded, clock.Option, quickly)
	acme, key := s.organization(t, "acme")
	m := s.backUp(t, nil)
	fixture.As(acme, gatewaytest.WithKey(key)).Create(t, "/api/contacts", `{"first_name":"Added"}`)
	kept := headOf(t, s.Gateway, clock, "acme")
	for _, in := range []control.OrganizationRestore{
		{Slug: "acme", From: s.backups, Yes: true}, {Slug: "acme", From: s.backups, As: "acme-then"},
	} {
		if _, err := control.Call[*control.OrganizationRestored](t.Context(), s.Commands, "org.restore", in); err != nil {
			t.Fatal(err)
		}
	}
	now := headOf(t, s.Gateway, clock, "acme")
	if err := against(t, s.Gateway, "acme", kept); err != nil || now.Size != kept.Size+1 {
		t.Errorf("got %+v %v, want %d records and the restoration", now, err, kept.Size)
	}
	for _, log := range []string{"acme", "acme-then"} {
		found, err := control.Call[[]control.AuditRecord](t.Context(), s.Commands, "audit", control.LogPage{Log: control.Log{Org: log}, Limit: 100})
		if err != nil || len(found) == 0 || found[0].Operation != "org.restore" || found[0].Facts["backup"] != m.Name {
			t.Errorf("%s: got %+v %v, want the restoration last", log, found, err)
		}
	}
	then := headOf(t, s.Gateway, clock, "acme-then")
	if err := against(t, s.Gateway, "acme-then", kept); !says(err, "not a head of this log") || then.Size >= kept.Size {
		t.Errorf("got %+v %v, want a log of its own", then, err)
	}
}

// TestHeads_OlderControlData: if the key of a head is gone, because older control data were put back beside newer
// databases of organizations, doctor says so, and a command makes the tree anew.
func TestHeads_OlderControlData(t *testing.T) {
	t.Parallel()
	clock := new(fixture.Clock)
	s := newSite(t, gatewaytest.OwnFiles, clock.Option)
	acme, key := s.organization(t, "acme")
	headOf(t, s.Gateway, clock, "acme")
	start := func() {
		t.Helper()
		s.Gateway = gatewaytest.Start(t, append([]gatewaytest.Option{fixture.InFolder(s.data)}, s.options...)...)
		acme = at(s.Gateway, acme)
	}
	s.Stop(t)
	file := filepath.Join(s.data, "db", "control.db")
	older, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	start()
	for range 2 { // a head has the signatures of two keys
		if _, err := control.Call[control.HeadKeys](t.Context(), s.Commands, "audit.rotate", struct{}{}); err != nil {
			t.Fatal(err)
		}
	}
	kept := headOf(t, s.Gateway, clock, "acme")
	s.Stop(t)
	if err := os.WriteFile(file, older, 0o600); err != nil {
		t.Fatal(err)
	}
	start()
	if found := logFindings(t, s.Gateway); !strings.Contains(found, "wrong: audit log of organization acme: the stored head: it is not a head") {
		t.Errorf("doctor: got %q, want that the head of acme is foreign", found)
	}
	if a := acme.Get(t, key, "/api/contacts"); a.Code != http.StatusOK {
		t.Errorf("got %d %s, want the organization served nevertheless", a.Code, a.Body)
	}
	in := control.TreeRestart{Log: control.Log{Org: "acme"}, Reason: "older control data"}
	if _, err := control.Call[control.AuditHead](t.Context(), s.Commands, "audit.restart", in); err != nil {
		t.Fatal(err)
	}
	if found := logFindings(t, s.Gateway); strings.Contains(found, "wrong") {
		t.Errorf("doctor, after a restart: got %q, want nothing wrong", found)
	}
	if err := against(t, s.Gateway, "acme", kept); !says(err, "not a head of this log") {
		t.Errorf("got %v, want that no key here verifies the head", err)
	}
}
