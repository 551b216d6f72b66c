package control

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"

	"tenantry/modules/audit"
	"tenantry/modules/imports/bundle"
	"tenantry/tenants"
	"tenantry/tenants/tenantstest"
)

// unrecorded returns a Client of commands on w, and their log. The audit log cannot be written, because the store of w
// does not have its kind.
func unrecorded(t *testing.T, w *tenantstest.World) (*Client, *bytes.Buffer) {
	t.Helper()
	log := audit.New()
	var logged bytes.Buffer
	h := NewServer(Backend{
		Directory: w.Directory, People: w.People, Keys: w.Keys, Keyring: w.Keyring, Audit: log,
		BaseURL: func(slug string) string { return "http://" + slug + ".localhost" },
		TempDir: t.TempDir(), Log: slog.New(slog.NewTextHandler(&logged, nil)),
	})
	return InProcess(h), &logged
}

// TestResultOutlivesTheAuditLog: an answer that is given only once is given with a note if the audit log cannot be
// written.
func TestResultOutlivesTheAuditLog(t *testing.T) {
	t.Parallel()
	w := tenantstest.New(t, tenantstest.Options{})
	w.Tenant(t, "acme")
	c, logged := unrecorded(t, w)
	warned := func(operation string, notes []string) {
		t.Helper()
		const want = " was done, but could not be written to the audit log"
		if len(notes) != 1 || !strings.Contains(notes[0], operation+want) {
			t.Errorf("%s: notes %q", operation, notes)
		}
		if !strings.Contains(logged.String(), "operation="+operation) {
			t.Errorf("%s: the log does not mention the operation: %s", operation, logged)
		}
	}
	give := func(name string, in, out any) []string {
		t.Helper()
		answer, err := c.Do(t.Context(), name, in, Streams{})
		if err == nil {
			err = json.Unmarshal(answer.Data, out)
		}
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		return answer.Notes
	}
	var key, next IssuedKey
	notes := give("key.create", NewKey{Org: "acme", Name: "crm", Kind: string(tenants.ServerFull), Permissions: []string{string(tenants.Contacts)}}, &key)
	warned("key.create", notes)
	warned("key.rotate", give("key.rotate", KeyRef{Org: "acme", ID: key.ID}, &next))
	var made, user User
	const link = "The first person to open the link"
	invited := func(notes []string) []string {
		t.Helper()
		if len(notes) != 2 || !strings.HasPrefix(notes[0], link) {
			t.Fatalf("notes %q", notes)
		}
		return notes[1:]
	}
	warned("user.create", invited(give("user.create", NewUser{Org: "acme", UserFields: UserFields{Name: "Ada", Email: "ada@example.com"}}, &made)))
	warned("user.update", invited(give("user.update", UserChange{UserRef: UserRef{"acme", "1"}, Invite: true}, &user)))
	for _, once := range []string{key.Token, next.Token, made.Link, user.Link} {
		if once == "" {
			t.Error("a key or link that is shown only once is missing")
		}
	}

	answer, err := c.Do(t.Context(), "org.create.from", Creations{}, Streams{Input: strings.NewReader(`{"slug":"other","name":"Other"}`)})
	var report bundle.Report
	if err == nil || answer == nil || json.Unmarshal(answer.Data, &report) != nil || report.Created != 1 || report.Failed != 0 || len(report.Problems) != 1 {
		t.Fatalf("org.create.from: %+v, %v", answer, err)
	}
	warned("org.create", []string{report.Problems[0].Errors[0].Message})

	// An answer that can be obtained again is replaced by an error, which says that the change was made.
	_, err = Call[Key](t.Context(), c, "key.revoke", KeyRef{Org: "acme", ID: next.ID})
	var e *Error
	if !errors.As(err, &e) {
		t.Fatalf("key/revoke: %v", err)
	}
	warned("key.revoke", []string{e.Message})
	for _, secret := range []string{key.Token, next.Token, user.Link} {
		if strings.Contains(logged.String(), secret) {
			t.Error("the log holds a secret")
		}
	}
}

// TestOutagesOfCommandsAreLogged: the log has the message of an outage, but not that of a mistake of the operator.
func TestOutagesOfCommandsAreLogged(t *testing.T) {
	t.Parallel()
	w := tenantstest.New(t, tenantstest.Options{})
	w.Tenant(t, "acme")
	c, logged := unrecorded(t, w)
	late, cancel := context.WithDeadline(t.Context(), time.Unix(0, 0))
	defer cancel()
	_, down := c.Do(late, "export", ExportRequest{Org: "acme"}, Streams{})
	_, unknown := c.Do(t.Context(), "export", ExportRequest{Org: "nobody"}, Streams{})
	if down == nil || unknown == nil || !strings.Contains(logged.String(), "command=export code=unavailable error=") || strings.Contains(logged.String(), "nobody") {
		t.Errorf(`got %v, %v: %s, want down other than nil and unknown other than nil and containing "command=export code=unavailable error=" and nothing containing "nobody"`,
			down, unknown, logged)
	}
}

func TestKeyringCommandsAreLogged(t *testing.T) {
	t.Parallel()
	w := tenantstest.New(t, tenantstest.Options{})
	c, logged := unrecorded(t, w)
	unwritten := func(name string, err error) {
		t.Helper()
		if err == nil || !strings.HasPrefix(err.Error(), name+" was done, but could not be written to the audit log") {
			t.Errorf("%s: got %v, want an error and beginning with %q",
				name, err, name+" was done, but could not be written to the audit log")
		}
	}
	_, err := Call[Rotation](t.Context(), c, "keyring.rotate", struct{}{})
	unwritten("keyring.rotate", err)
	_, err = Call[Retired](t.Context(), c, "keyring.retire", Version{1})
	unwritten("keyring.retire", err)
	for _, want := range []string{"the keyring was rotated\" primary=2", "a version of the keyring was retired\" version=1"} {
		if !strings.Contains(logged.String(), want) {
			t.Errorf("the log lacks %q: %s", want, logged)
		}
	}
}
