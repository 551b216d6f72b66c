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
	"tenantry/internal/rate"
	"tenantry/internal/texts"
	"tenantry/modules/audit"
	"tenantry/modules/imports/bundle"
	"tenantry/operation"
	"tenantry/tenants"
	"tenantry/tenants/identity"
	"tenantry/tenants/keys"
)

// Backend is what the commands work on. All fields but Log and Now are needed.
type Backend struct {
	Directory *tenants.Directory
	People    *identity.Service
	Keys      *keys.Service
	Keyring   *keyring.Keyring
	Transfer  *bundle.Service
	Limits    rate.Set // that hold by default
	Audit     *audit.Log
	Seals     *audit.Seals
	// KeepDeleted is how long a deleted organization can be undeleted; 0: until it is erased by command.
	KeepDeleted time.Duration
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

// Server carries out commands. Whoever reaches it may do everything, so it must stand where only
// the operator can.
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

// Groups returns all commands. Those of the zero Server tell what there is, and carry out nothing.
func (s *Server) Groups() []Group {
	return []Group{
		s.organizations(), s.users(), s.roles(), s.teams(), s.accounts(), s.keys(), s.keyring(), s.others(),
	}
}

// Answer is the answer to a command.
type Answer struct {
	Data  json.RawMessage `json:"data,omitempty"`
	Notes []string        `json:"notes,omitempty"` // for whoever gave the command
}

// run carries out a command, whose input is a JSON object. Errors: *Error; an answer may come with one.
func (s *Server) run(ctx context.Context, name string, in []byte, streams Streams) (*Answer, error) {
	cmd, known := s.commands[name]
	if !known {
		return nil, fail(CodeUnknown, "the server does not know the command %s", name)
	}
	c := &call{Streams: streams, command: cmd}
	row := cmd.bind(s, c)
	c.Call = operated(&row)
	result, err := operation.Run(ctx, c.Call, operation.Input{Body: func(context.Context) (operation.Body, error) { return operation.ParseBody(in) }})
	err = s.record(ctx, c, err)
	answer := &Answer{Notes: c.notes}
	if v := reflect.ValueOf(result.Data); err == nil || (v.Kind() == reflect.Pointer || v.Kind() == reflect.Slice) && !v.IsNil() {
		raw, encodeErr := encode(result.Data)
		answer.Data, err = raw, errors.Join(err, encodeErr)
	}
	if err != nil {
		e := errorOf(err)
		said := []any{"command", name, "code", e.Code}
		if e.Code == CodeUnavailable { // others concern whoever gave the command
			said = append(said, "error", e.Message)
		}
		s.Log.InfoContext(ctx, "a command failed", said...)
		return answer, e
	}
	s.Log.InfoContext(ctx, "a command was carried out", "command", name)
	return answer, nil
}

// operated returns a call by the operator, of no organization yet.
func operated(row *operation.Row) *operation.Call {
	c := operation.NewCall(row, func(string) string { return "" })
	c.Principal, c.Tenant = &tenants.Principal{Kind: tenants.Operator}, new(tenants.Tenant)
	return c
}

// enter makes the organization of that slug, as it is now, the call's.
func (s *Server) enter(ctx context.Context, c *call, slug string) error {
	if strings.TrimSpace(slug) == "" {
		return fail(CodeInvalid, "name an organization")
	}
	t, err := s.Directory.BySlug(ctx, slug)
	if err != nil {
		return reworded(err, CodeNotFound, noOrganization, slug)
	}
	c.Tenant = t
	return nil
}

// record writes what a command did to the organization's audit log. What concerns organizations as a whole, or none of
// them, goes to the installation's too, with the operator's name, also where it failed after it had noted something.
// What was done stays done where the record cannot be written, so the error says both; an answer that cannot be had
// again must not give way to it.
func (s *Server) record(ctx context.Context, c *call, err error) error {
	cmd := c.command
	done, noted := cmd.Audit == operation.AuditAlways && err == nil, (cmd.Audit == operation.AuditNoted || cmd.own && err != nil) && c.AuditNote != nil
	if !done && !noted {
		return err
	}
	rec := audit.Record{Operation: cmd.Name, Subject: c.Principal.Subject(), Outcome: audit.OK, Facts: c.AuditNote}
	if err != nil {
		rec.Outcome = audit.Failed
	}
	var unrecorded error
	if c.Tenant.Workspace() != nil {
		unrecorded = s.Audit.Write(ctx, c.Tenant.Workspace(), rec)
	}
	if cmd.own || c.Tenant.Workspace() == nil {
		facts := map[string]string{"organization": c.Tenant.Org.Slug, "operator": texts.Clip(c.Operator)}
		maps.Copy(facts, c.AuditNote)
		maps.DeleteFunc(facts, func(_, fact string) bool { return fact == "" })
		rec.Facts = facts
		unrecorded = errors.Join(unrecorded, s.Audit.Write(ctx, s.Directory.Own().Workspace(), rec))
	}
	if unrecorded == nil {
		return err
	}
	s.Log.ErrorContext(ctx, "a command could not be written to the audit log", "operation", cmd.Name, "org", c.Tenant.Org.Slug, "facts", rec.Facts, "error", unrecorded)
	unrecorded = fmt.Errorf("%s was done, but could not be written to the audit log: %w", cmd.Name, unrecorded)
	if cmd.Once && err == nil {
		c.say("Note: " + unrecorded.Error())
		return nil
	}
	return errors.Join(err, unrecorded)
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
	// inputHeader carries the request of a command whose body is what it reads besides, operatorHeader who gives it.
	inputHeader    = "Tenantry-Request"
	operatorHeader = "Tenantry-Operator"
	// MaxHeaderBytes is how much the headers of a command may have: a request in one is escaped, to three times its
	// bytes.
	MaxHeaderBytes = 3*maxRequest + 16<<10
	// heartbeat keeps a client waiting for a command that has nothing to tell.
	heartbeat = 10 * time.Second
)

// event is one line of an answer. The last one has the answer, the error, or both.
type event struct {
	Progress *Progress `json:"progress,omitempty"`
	Output   int       `json:"output,omitempty"` // bytes of it that follow the line
	Answer   *Answer   `json:"answer,omitempty"`
	Error    *Error    `json:"error,omitempty"`
}

// events writes an answer. Safe for concurrent use.
type events struct {
	mu sync.Mutex
	w  http.ResponseWriter
}

func (e *events) send(v event, output []byte) error {
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
func (e *events) Write(p []byte) (int, error) { return len(p), e.send(event{Output: len(p)}, p) }

// beat sends an empty event from time to time, once nothing more is to be read, until done.
func (e *events) beat(read, done <-chan struct{}) {
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
			_ = e.send(event{}, nil) // where the client is gone, the command learns it
		case <-done:
			return
		}
	}
}

// ServeHTTP takes a command: POST /v1/org/show for one, with a JSON object. The answer is lines of events.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	out := &events{w: w}
	answer, err := s.serve(out, r)
	last := event{Answer: answer}
	if err != nil {
		last.Error = errorOf(err)
	}
	_ = out.send(last, nil) // a command that was stopped cannot be told
}

func (s *Server) serve(out *events, r *http.Request) (*Answer, error) {
	name, known := strings.CutPrefix(r.URL.Path, operation.ControlPath)
	if !known || r.Method != http.MethodPost {
		return nil, fail(CodeUnknown, "the server does not know the command %s %s", r.Method, r.URL.Path)
	}
	streams := Streams{Output: out, Progress: func(p Progress) { _ = out.send(event{Progress: &p}, nil) }} // a client that is gone ends the context
	read, done := make(chan struct{}), make(chan struct{})
	streams.Operator, _ = url.QueryUnescape(r.Header.Get(operatorHeader)) // of a client that sends something else, nobody is known
	in, err := url.QueryUnescape(r.Header.Get(inputHeader))
	if in != "" || err != nil {
		streams.Input = &watched{r.Body, sync.OnceFunc(func() { close(read) })}
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
	defer beats.Wait() // also where the command panics: nothing may write to what is answered
	defer close(done)
	beats.Go(func() { out.beat(read, done) })
	return s.run(r.Context(), strings.ReplaceAll(name, "/", "."), []byte(in), streams)
}

// watched tells that the end was read.
type watched struct {
	io.Reader
	ended func()
}

func (w *watched) Read(p []byte) (int, error) {
	n, err := w.Reader.Read(p)
	if err != nil {
		w.ended()
	}
	return n, err
}
