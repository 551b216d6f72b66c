package control

import (
	"bytes"
	"errors"
	"log/slog"
	"strings"
	"testing"

	"tenantry/gateway/audit"
	"tenantry/tenants"
	"tenantry/tenants/tenantstest"
)

// unrecorded returns a Client of commands that work on w and whose audit log cannot be
// written, because the store of w does not know it, and what they log.
func unrecorded(t *testing.T, w *tenantstest.World) (*Client, *bytes.Buffer) {
	t.Helper()
	log, err := audit.New()
	if err != nil {
		t.Fatal(err)
	}
	var logged bytes.Buffer
	h := NewHandler(Backend{
		Directory: w.Directory, People: w.People, Keys: w.Keys, Keyring: w.Keyring, Audit: log,
		BaseURL: func(slug string) string { return "http://" + slug + ".localhost" },
		Log:     slog.New(slog.NewTextHandler(&logged, nil)),
	})
	return client(t, h.ServeHTTP), &logged
}

// TestResultOutlivesTheAuditLog: what is told only once is told where the audit log
// cannot be written, with a note.
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
			t.Errorf("%s: the log does not tell of it: %s", operation, logged)
		}
	}
	key, err := c.CreateKey(t.Context(), NewKey{Org: "acme", Name: "crm", Kind: string(tenants.ServerFull), Permissions: []string{string(tenants.Contacts)}})
	if err != nil || key.Key.Token == "" {
		t.Fatalf("key/create: %+v, %v", key, err)
	}
	warned("key.create", key.Notes)
	next, err := c.RotateKey(t.Context(), KeyRef{Org: "acme", ID: key.Key.ID})
	if err != nil || next.Token == "" {
		t.Fatalf("key/rotate: %+v, %v", next, err)
	}
	warned("key.rotate", next.Notes)
	user, err := c.CreateUser(t.Context(), NewUser{Org: "acme", Name: "Ada", Email: "ada@example.com"})
	if err != nil || user.Link == "" {
		t.Fatalf("user/create: %+v, %v", user, err)
	}
	warned("user.create", user.Notes)
	if user, err = c.UpdateUser(t.Context(), UserChange{UserRef: UserRef{"acme", "1"}, Invite: true}); err != nil || user.Link == "" {
		t.Fatalf("user/update: %+v, %v", user, err)
	}
	warned("user.update", user.Notes)

	// What can be asked for again is an error, which says that it was done.
	_, err = c.RevokeKey(t.Context(), KeyRef{Org: "acme", ID: next.ID})
	var e *Error
	if !errors.As(err, &e) {
		t.Fatalf("key/revoke: %v", err)
	}
	warned("key.revoke", []string{e.Message})
	for _, secret := range []string{key.Key.Token, next.Token, user.Link} {
		if strings.Contains(logged.String(), secret) {
			t.Error("the log holds a secret")
		}
	}
}

func TestKeyringCommandsAreLogged(t *testing.T) {
	t.Parallel()
	w := tenantstest.New(t, tenantstest.Options{})
	c, logged := unrecorded(t, w)
	if _, err := c.RotateKeyring(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := c.RetireFromKeyring(t.Context(), 1); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"the keyring was rotated\" primary=2", "a version of the keyring was retired\" version=1"} {
		if !strings.Contains(logged.String(), want) {
			t.Errorf("the log lacks %q: %s", want, logged)
		}
	}
}
