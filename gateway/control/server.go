package control

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net/http"
	"net/url"
	"reflect"
	"strings"
	"sync"
	"time"

	"tenantry/crypto/keyring"
	"tenantry/gateway/backup"
	"tenantry/internal/rate"
	"tenantry/internal/texts"
	"tenantry/modules/audit"
	"tenantry/modules/imports/bundle"
	"tenantry/operation"
	"tenantry/tenants"
	"tenantry/tenants/identity"
	"tenantry/tenants/keys"
)

// Backend has the parts that commands work on. All fields but Log and Now are required.
type Backend struct {
	Directory *tenants.Directory
	People    *identity.Service
	Keys      *keys.Service
	Keyring   *keyring.Keyring
	Transfer  *bundle.Service
	Limits    func() rate.Set // the default limits
	Audit     *audit.Log
	Seals     *audit.Seals
	Heads     *audit.Heads
	// KeepDeleted returns how long a deleted organization can be restored; 0: until a command erases it.
	KeepDeleted func() time.Duration
	// BaseURL returns the address of an organization, for links.
	BaseURL func(slug string) string
	// TempDir is the folder for the input of imports. It is made when it is missing. Reserve is how many bytes of its disk
	// they leave free.
	TempDir string
	Reserve int64
	// BackUp writes a backup to a place, with the bytes of files or without.
	BackUp func(ctx context.Context, place string, o backup.Options, files bool) (*backup.Manifest, error)
	// RestoreOrganization makes an organization what it was in a backup.
	RestoreOrganization func(context.Context, OrganizationRestore, func(Progress)) (*OrganizationRestored, error)
	// KeyringPath is the path of the keyring.
	KeyringPath string
	// FileBytes returns how many bytes of files an organization has stored.
	FileBytes func(context.Context, *tenants.Tenant) (int64, error)
	// Examine checks everything the gateway depends on.
	Examine func(context.Context) []Finding
	// ExamineEach examines the organizations after a slug, for a few seconds.
	ExamineEach func(ctx context.Context, after string) Examined
	Log         *slog.Logger     // nil: nothing is logged
	Now         func() time.Time // nil: time.Now
}

// Server runs commands. It does not authenticate callers, so only the operator may be able to reach it.
type Server struct {
	Backend
	commands map[string]*Command
}

// NewServer returns a Server.
func NewServer(b Backend) *Server {
	if b.Log == nil {
		b.Log = slog.New(slog.DiscardHandler)
	}
	if b.Now == nil {
		b.Now = time.Now
	}
	s := &Server{Backend: b, commands: map[string]*Command{}}
	for _, g := range s.Groups() {
		for i := range g.Commands {
			g.Commands[i].own = g.Own
			s.commands[g.Commands[i].Name] = &g.Commands[i]
		}
	}
	return s
}

// Groups returns all commands. Those of the zero Server describe commands, and cannot run.
func (s *Server) Groups() []Group {
	return []Group{
		s.organizations(), s.users(), s.roles(), s.teams(), s.accounts(), s.keys(), s.keyring(), s.ungrouped(),
		{Own: true, Commands: []Command{s.backupCommand()}},
	}
}

// Answer is the answer to a command.
type Answer struct {
	Data  json.RawMessage `json:"data,omitempty"`
	Notes []string        `json:"notes,omitempty"` // for the operator
}

// run runs a command. in is its request, a JSON object. Error: *Error, possibly together with an answer.
func (s *Server) run(ctx context.Context, name string, in []byte, streams Streams) (*Answer, error) {
	cmd, known := s.commands[name]
	if !known {
		return nil, fail(CodeUnknown, "the server does not know the command %s", name)
	}
	c := &call{Streams: streams, command: cmd}
	row := cmd.bind(s, c)
	c.Call = operatorCall(&row)
	result, err := operation.Run(ctx, c.Call, operation.Input{
		Body: func(context.Context) (operation.Body, error) { return operation.ParseBody(in) },
	})
	err = s.record(ctx, c, err)
	answer := &Answer{Notes: c.notes}
	v := reflect.ValueOf(result.Data)
	if err == nil || (v.Kind() == reflect.Pointer || v.Kind() == reflect.Slice) && !v.IsNil() {
		raw, encodeErr := encode(result.Data)
		answer.Data, err = raw, errors.Join(err, encodeErr)
	}
	if err != nil {
		e := errorOf(err)
		attrs := []any{"command", name, "code", e.Code}
		if e.Code == CodeUnavailable { // other messages are for the operator, and may hold personal data
			attrs = append(attrs, "error", e.Message)
		}
		s.Log.InfoContext(ctx, "a command failed", attrs...)
		return answer, e
	}
	s.Log.InfoContext(ctx, "a command was carried out", "command", name)
	return answer, nil
}

// operatorCall returns a call by the operator. Its tenant is empty; see Server.setTenant.
func operatorCall(row *operation.Row) *operation.Call {
	c := operation.NewCall(row, func(string) string { return "" })
	c.Principal, c.Tenant = &tenants.Principal{Kind: tenants.Operator}, new(tenants.Tenant)
	return c
}

// setTenant sets the Tenant of the call to the current state of the organization.
func (s *Server) setTenant(ctx context.Context, c *call, slug string) error {
	if strings.TrimSpace(slug) == "" {
		return fail(CodeInvalid, "name an organization")
	}
	t, err := s.Directory.BySlug(ctx, slug)
	if err != nil {
		return withMessage(err, CodeNotFound, noOrganization, slug)
	}
	c.Tenant = t
	return nil
}

// record writes the audit record of a command to the log of its organization. Commands on whole organizations, or on
// none, are recorded in the log of the installation too, with the name of the operator; so are their failures, once the
// command has noted a fact.
//
// If the record cannot be written, the change stays. The error then says both, unless the answer cannot be obtained
// again: it is given with a note instead.
func (s *Server) record(ctx context.Context, c *call, err error) error {
	cmd := c.command
	done := cmd.Audit == operation.AuditAlways && err == nil
	noted := (cmd.Audit == operation.AuditNoted || cmd.own && err != nil) && c.AuditNote != nil
	if !done && !noted {
		return err
	}
	rec := audit.Record{Operation: cmd.Name, Subject: c.Principal.Subject(), Outcome: audit.OK, Facts: c.AuditNote}
	if err != nil {
		rec.Outcome = audit.Failed
	}
	var auditErr error
	if c.Tenant.Workspace() != nil {
		auditErr = s.Audit.Write(ctx, c.Tenant.Workspace(), rec)
	}
	if cmd.own || c.Tenant.Workspace() == nil {
		facts := map[string]string{"organization": c.Tenant.Org.Slug, "operator": texts.Clip(c.Operator)}
		maps.Copy(facts, c.AuditNote)
		maps.DeleteFunc(facts, func(_, fact string) bool { return fact == "" })
		rec.Facts = facts
		auditErr = errors.Join(auditErr, s.Audit.Write(ctx, s.Directory.Own().Workspace(), rec))
	}
	if auditErr == nil {
		return err
	}
	s.Log.ErrorContext(ctx, "a command could not be written to the audit log",
		"operation", cmd.Name, "org", c.Tenant.Org.Slug, "facts", rec.Facts, "error", auditErr)
	auditErr = fmt.Errorf("%s was done, but could not be written to the audit log: %w", cmd.Name, auditErr)
	if cmd.Once && err == nil {
		c.addNote("Note: " + auditErr.Error())
		return nil
	}
	return errors.Join(err, auditErr)
}

func encode(v any) ([]byte, error) {
	var text bytes.Buffer
	enc := json.NewEncoder(&text)
	enc.SetEscapeHTML(false)
	err := enc.Encode(v)
	return text.Bytes(), err
}

const (
	maxRequest = 1 << 20
	// inputHeader carries the request of a command whose body is its Input; operatorHeader the name of the operator.
	inputHeader    = "Tenantry-Request"
	operatorHeader = "Tenantry-Operator"
	// MaxHeaderBytes bounds the headers of a command: escaping triples a request that inputHeader carries.
	MaxHeaderBytes = 3*maxRequest + 16<<10
	// heartbeat is the interval of empty events, which tell a client that the command is still running.
	heartbeat = 10 * time.Second
)

// event is one line of an answer. The last line has an Answer, an Error, or both.
type event struct {
	Progress *Progress `json:"progress,omitempty"`
	Output   int       `json:"output,omitempty"` // number of output bytes that follow the line
	Answer   *Answer   `json:"answer,omitempty"`
	Error    *Error    `json:"error,omitempty"`
}

// eventWriter writes an answer. Safe for concurrent use.
type eventWriter struct {
	mu sync.Mutex
	w  http.ResponseWriter
}

func (e *eventWriter) send(v event, output []byte) error {
	line, err := encode(v)
	if err != nil {
		return err
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.w.Header().Set("Content-Type", "application/x-ndjson")
	if _, err := e.w.Write(append(line, output...)); err != nil {
		return err
	}
	return http.NewResponseController(e.w).Flush()
}

// Write sends output.
func (e *eventWriter) Write(p []byte) (int, error) { return len(p), e.send(event{Output: len(p)}, p) }

// sendHeartbeats sends empty events until done, once all input has been read.
func (e *eventWriter) sendHeartbeats(read, done <-chan struct{}) {
	select {
	case <-read:
	case <-done:
		return
	}
	t := time.NewTicker(heartbeat)
	defer t.Stop()
	for {
		select {
		case <-t.C:
			_ = e.send(event{}, nil) // if the client has gone, the context of the command ends
		case <-done:
			return
		}
	}
}

// ServeHTTP runs a command: POST /v1/org/show with a JSON object, for example. The answer is a line for each event.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	out := &eventWriter{w: w}
	answer, err := s.serve(out, r)
	last := event{Answer: answer}
	if err != nil {
		last.Error = errorOf(err)
	}
	_ = out.send(last, nil) // the client may have gone
}

func (s *Server) serve(out *eventWriter, r *http.Request) (*Answer, error) {
	name, known := strings.CutPrefix(r.URL.Path, operation.ControlPath)
	if !known || r.Method != http.MethodPost {
		return nil, fail(CodeUnknown, "the server does not know the command %s %s", r.Method, r.URL.Path)
	}
	streams := Streams{Output: out, Progress: func(p Progress) {
		_ = out.send(event{Progress: &p}, nil) // if the client has gone, the context ends
	}}
	read, done := make(chan struct{}), make(chan struct{})
	streams.Operator, _ = url.QueryUnescape(r.Header.Get(operatorHeader)) // malformed: the operator is unknown
	in, err := url.QueryUnescape(r.Header.Get(inputHeader))
	if in != "" || err != nil {
		streams.Input = &endReader{r.Body, sync.OnceFunc(func() { close(read) })}
	} else {
		close(read)
		var raw []byte
		raw, err = io.ReadAll(http.MaxBytesReader(out.w, r.Body, maxRequest))
		in = string(raw)
	}
	if err != nil {
		return nil, fail(CodeInvalid, "the request cannot be read: %v", err)
	}
	var beats sync.WaitGroup
	defer beats.Wait() // even if the command panics: nothing may write after the answer
	defer close(done)
	beats.Go(func() { out.sendHeartbeats(read, done) })
	return s.run(r.Context(), strings.ReplaceAll(name, "/", "."), []byte(in), streams)
}

// endReader calls ended at the end of the input, or at an error.
type endReader struct {
	io.Reader
	ended func()
}

func (w *endReader) Read(p []byte) (int, error) {
	n, err := w.Reader.Read(p)
	if err != nil {
		w.ended()
	}
	return n, err
}
