// Package control is how commands reach the data: an HTTP interface that a running server
// offers on a socket of its own user, and that a command opens within itself where no
// server runs. A command works the same either way, and what it changes holds in the
// running server at once.
package control

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"time"

	"tenantry/backends/store"
	"tenantry/crypto/keyring"
	"tenantry/gateway/audit"
	"tenantry/gateway/transfer"
	"tenantry/tenants"
	"tenantry/tenants/keys"
	"tenantry/tenants/limits"
	"tenantry/tenants/people"
)

// Backend is what the commands work on. All fields but Log and Now are needed.
type Backend struct {
	Directory *tenants.Directory
	People    *people.Service
	Keys      *keys.Service
	Keyring   *keyring.Keyring
	Transfer  *transfer.Service
	Limits    limits.Set // that hold by default
	Audit     *audit.Log
	// BaseURL returns the address of an organization, for links.
	BaseURL func(slug string) string
	// TempDir is the folder in which an import is kept while it runs. It is made where it
	// is missing.
	TempDir string
	// Examine looks at everything the gateway depends on.
	Examine func(context.Context) []Finding
	// ExamineEach opens the organizations that follow a slug, for a few seconds.
	ExamineEach func(ctx context.Context, after string) Examined
	Log         *slog.Logger     // nil: nothing is logged
	Now         func() time.Time // nil: time.Now
}

const (
	maxRequest = 1 << 20
	// subject names commands in audit logs.
	subject = "command"
)

type handler struct{ Backend }

// NewHandler returns the handler of all commands: POST /v1/<command>, JSON in and out, an
// *Error for every failure. Whoever reaches it may do everything, so it must stand where
// only the operator can.
func NewHandler(b Backend) http.Handler {
	if b.Log == nil {
		b.Log = slog.New(slog.DiscardHandler)
	}
	if b.Now == nil {
		b.Now = time.Now
	}
	h := &handler{b}
	mux := http.NewServeMux()
	on(mux, h, "org/create", h.createOrganization)
	on(mux, h, "org/list", h.listOrganizations)
	on(mux, h, "org/show", h.showOrganization)
	on(mux, h, "org/update", h.updateOrganization)
	on(mux, h, "org/suspend", h.suspendOrganization)
	on(mux, h, "org/resume", h.resumeOrganization)
	on(mux, h, "org/delete", h.deleteOrganization)
	on(mux, h, "org/limits", h.limitOrganization)
	on(mux, h, "user/create", h.createUser)
	on(mux, h, "user/list", h.listUsers)
	on(mux, h, "user/show", h.showUser)
	on(mux, h, "user/update", h.updateUser)
	on(mux, h, "user/deactivate", h.deactivateUser)
	on(mux, h, "key/create", h.createKey)
	on(mux, h, "key/list", h.listKeys)
	on(mux, h, "key/revoke", h.revokeKey)
	on(mux, h, "key/rotate", h.rotateKey)
	on(mux, h, "key/limits", h.limitKey)
	on(mux, h, "account/create", h.createAccount)
	on(mux, h, "account/show", h.showAccount)
	on(mux, h, "account/update", h.updateAccount)
	on(mux, h, "account/delete", h.deleteAccount)
	on(mux, h, "account/list", h.listAccounts)
	on(mux, h, "role/create", h.createRole)
	on(mux, h, "role/show", h.showRole)
	on(mux, h, "role/update", h.updateRole)
	on(mux, h, "role/delete", h.deleteRole)
	on(mux, h, "role/list", h.listRoles)
	on(mux, h, "team/create", h.createTeam)
	on(mux, h, "team/show", h.showTeam)
	on(mux, h, "team/update", h.updateTeam)
	on(mux, h, "team/delete", h.deleteTeam)
	on(mux, h, "team/list", h.listTeams)
	on(mux, h, "audit/list", h.listAudit)
	on(mux, h, "keyring/list", h.listKeyring)
	on(mux, h, "keyring/rotate", h.rotateKeyring)
	on(mux, h, "keyring/retire", h.retireFromKeyring)
	on(mux, h, "org/move/rollback", h.rollBackMove)
	on(mux, h, "org/move/finish", h.finishMove)
	on(mux, h, "doctor", h.diagnose)
	on(mux, h, "doctor/organizations", h.diagnoseEach)
	mux.HandleFunc("POST /v1/org/move", h.serveMove)
	mux.HandleFunc("POST /v1/import", h.serveImport)
	mux.HandleFunc("POST /v1/export", h.serveExport)
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		writeError(w, &Error{Code: CodeUnknown, Message: fmt.Sprintf("the server does not know the command %s %s", r.Method, r.URL.Path)})
	})
	return mux
}

// on registers a command whose request and answer are JSON.
func on[Req, Res any](mux *http.ServeMux, h *handler, name string, do func(context.Context, *Req) (Res, error)) {
	mux.HandleFunc("POST /v1/"+name, func(w http.ResponseWriter, r *http.Request) {
		req := new(Req)
		if err := decode(http.MaxBytesReader(w, r.Body, maxRequest), req); err != nil {
			writeError(w, &Error{Code: CodeInvalid, Message: fmt.Sprintf("command %s: the request cannot be read: %v", name, err)})
			return
		}
		res, err := do(r.Context(), req)
		if err != nil {
			e := errorOf(err)
			h.Log.InfoContext(r.Context(), "a command failed", "command", name, "code", e.Code)
			writeError(w, e)
			return
		}
		h.Log.InfoContext(r.Context(), "a command was carried out", "command", name)
		writeJSON(w, http.StatusOK, res)
	})
}

func decode(r io.Reader, into any) error {
	d := json.NewDecoder(r)
	d.DisallowUnknownFields()
	if err := d.Decode(into); err != nil {
		return err
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return errors.New("there is more after it")
	}
	return nil
}

func writeError(w http.ResponseWriter, e *Error) { writeJSON(w, e.status(), e) }

func writeJSON(w http.ResponseWriter, code int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_ = json.NewEncoder(w).Encode(v) // a command that was stopped cannot be told
}

// tenant returns the organization that a command names.
func (h *handler) tenant(ctx context.Context, slug string) (*tenants.Tenant, error) {
	if strings.TrimSpace(slug) == "" {
		return nil, &Error{Code: CodeInvalid, Message: "name an organization"}
	}
	t, err := h.Directory.BySlug(ctx, slug)
	if errors.Is(err, tenants.ErrUnknownTenant) {
		return nil, &Error{Code: CodeNotFound, Message: fmt.Sprintf("there is no organization %q; tenantry org list names those there are", slug)}
	}
	return t, err
}

// record writes to the organization's audit log what a command did. What was done stays
// done where that fails, so the error says both.
func (h *handler) record(ctx context.Context, t *tenants.Tenant, operation string, facts map[string]string) error {
	err := h.Audit.Write(ctx, t.Workspace(), audit.Record{Operation: operation, Subject: subject, Outcome: audit.OK, Facts: facts})
	if err != nil {
		h.Log.ErrorContext(ctx, "a command could not be written to the audit log", "operation", operation, "org", t.Org.Slug, "facts", facts, "error", err)
		return fmt.Errorf("%s was done, but could not be written to the audit log: %w", operation, err)
	}
	return nil
}

// noteRecord is record for commands whose result cannot be had again: it must not give
// way to an error. It returns what to add to the notes of the result.
func (h *handler) noteRecord(ctx context.Context, t *tenants.Tenant, operation string, facts map[string]string) []string {
	if err := h.record(ctx, t, operation, facts); err != nil {
		return []string{err.Error()}
	}
	return nil
}

// when turns a stored time into one that is shown.
func when(ms int64) time.Time { return time.UnixMilli(ms).UTC() }

// whenSet is when for times that may be absent.
func whenSet(ms int64) *time.Time {
	if ms == 0 {
		return nil
	}
	t := when(ms)
	return &t
}

func list[T any](given []T) []T {
	if given == nil {
		return []T{}
	}
	return given
}

func table[T any](given map[string]T) map[string]T {
	if given == nil {
		return map[string]T{}
	}
	return given
}

// pageLimit bounds a list; one more is asked for to learn whether there are others.
func pageLimit(asked int) int {
	const most = store.MaxLimit - 1
	if asked <= 0 || asked > most {
		return most
	}
	return asked
}
