package control

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"strconv"
	"sync"
	"time"

	"tenantry/crypto/sealing"
	"tenantry/crypto/secret"
	"tenantry/gateway/audit"
	"tenantry/gateway/transfer"
	"tenantry/tenants"
)

const (
	// heartbeat keeps a client waiting for an import that has nothing to tell.
	heartbeat = 10 * time.Second
	// The trailers of an export. One that has neither was cut off.
	reportTrailer = "Tenantry-Report"
	errorTrailer  = "Tenantry-Error"
)

// event is one line of the answer to an import. The last one holds the report, the
// error, or both.
type event struct {
	Progress *transfer.Progress `json:"progress,omitempty"`
	Bad      []byte             `json:"bad,omitempty"` // of the file of bad lines
	Report   *transfer.Report   `json:"report,omitempty"`
	Error    *Error             `json:"error,omitempty"`
}

// events writes the answer to a command that takes long. Safe for concurrent use.
type events struct {
	mu  sync.Mutex
	enc *json.Encoder
	w   *http.ResponseController
}

func (e *events) send(v any) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if err := e.enc.Encode(v); err != nil {
		return err
	}
	return e.w.Flush()
}

// Write makes events of bad lines.
func (e *events) Write(p []byte) (int, error) {
	if err := e.send(event{Bad: p}); err != nil {
		return 0, err
	}
	return len(p), nil
}

// beat sends an empty event from time to time until the function it returns is called.
func (e *events) beat() (stop func()) {
	done, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		t := time.NewTicker(heartbeat)
		defer t.Stop()
		for {
			select {
			case <-t.C:
				_ = e.send(event{}) // where the client is gone, the command learns it
			case <-done:
				return
			}
		}
	}()
	return func() {
		close(done)
		<-ended
	}
}

// ImportRequest says what an import does with its input.
type ImportRequest struct {
	Org     string
	DryRun  bool
	Partial bool
	// Secrets is the private half of the key to which an export sealed encrypted values; ""
	// where there is none.
	Secrets secret.String
	// Rows, where set, says that the input is rows of a file and not a bundle.
	Rows *Rows
}

// secretsHeader carries ImportRequest.Secrets: it belongs in no address, which logs show.
const secretsHeader = "Tenantry-Secrets"

// Rows says how rows of a file are read.
type Rows struct {
	// As is what a row becomes: "contacts", or "records:" and the name of a custom object.
	As string `json:"as"`
	// Format is transfer.CSV or transfer.JSON.
	Format string `json:"format"`
	// Map gives fields by column. Empty: columns are matched by name. Missing fields are
	// made.
	Map map[string][]string `json:"map,omitempty"`
	// Key is the field by which a row is a stored record; empty: see transfer.RowOptions.
	Key string `json:"key,omitempty"`
}

func (r ImportRequest) query() (url.Values, error) {
	q := url.Values{"org": {r.Org}, "dry_run": {strconv.FormatBool(r.DryRun)}, "partial": {strconv.FormatBool(r.Partial)}}
	if r.Rows != nil {
		raw, err := json.Marshal(r.Rows)
		if err != nil {
			return nil, err
		}
		q.Set("rows", string(raw))
	}
	return q, nil
}

func importRequest(q url.Values) (r ImportRequest, err error) {
	r.Org = q.Get("org")
	var errs [3]error
	r.DryRun, errs[0] = strconv.ParseBool(q.Get("dry_run"))
	r.Partial, errs[1] = strconv.ParseBool(q.Get("partial"))
	if raw := q.Get("rows"); raw != "" {
		r.Rows = &Rows{}
		errs[2] = json.Unmarshal([]byte(raw), r.Rows)
	}
	return r, errors.Join(errs[:]...)
}

func (h *handler) serveImport(w http.ResponseWriter, r *http.Request) {
	ctx := r.Context()
	req, err := importRequest(r.URL.Query())
	if err != nil {
		writeError(w, &Error{Code: CodeInvalid, Message: fmt.Sprintf("command import: the request cannot be read: %v", err)})
		return
	}
	var openWith *sealing.PrivateKey
	if text := r.Header.Get(secretsHeader); text != "" {
		if openWith, err = sealing.ParseTransferKey(text); err != nil {
			writeError(w, &Error{Code: CodeInvalid, Message: err.Error()})
			return
		}
	}
	t, err := h.tenant(ctx, req.Org)
	if err != nil {
		writeError(w, errorOf(err))
		return
	}
	if err := os.MkdirAll(h.TempDir, 0o700); err != nil {
		writeError(w, errorOf(fmt.Errorf("the folder for imports: %w", err)))
		return
	}
	src, remove, err := transfer.Spool(ctx, r.Body, h.TempDir)
	if err != nil {
		writeError(w, errorOf(err))
		return
	}
	defer func() {
		if err := remove(); err != nil {
			h.Log.WarnContext(ctx, "the copy of an import was left behind", "error", err)
		}
	}()
	w.Header().Set("Content-Type", "application/x-ndjson")
	out := &events{enc: json.NewEncoder(w), w: http.NewResponseController(w)}
	if err := out.send(event{}); err != nil {
		return // the client is gone
	}
	stop := out.beat()
	report, err := h.runImport(ctx, t, req, openWith, src, out)
	stop()
	last := event{Report: &report}
	if err != nil {
		last.Error = importError(err)
	}
	h.Log.InfoContext(ctx, "an import ended", "organization", req.Org, "lines", report.Lines, "failed", report.Failed, "ok", err == nil)
	_ = out.send(last) // a client that is gone cannot be told
}

func (h *handler) runImport(ctx context.Context, t *tenants.Tenant, req ImportRequest, openWith *sealing.PrivateKey, src transfer.Source, out *events) (transfer.Report, error) {
	options := transfer.ImportOptions{
		DryRun: req.DryRun, Partial: req.Partial, OpenWith: openWith,
		Progress: func(p transfer.Progress) { _ = out.send(event{Progress: &p}) }, // a client that is gone ends ctx
	}
	if req.Partial && !req.DryRun {
		options.Bad = out
	}
	var report transfer.Report
	var err error
	if req.Rows != nil {
		report, err = h.Transfer.ImportRows(ctx, t, src, transfer.RowOptions{
			As: req.Rows.As, Format: req.Rows.Format, Map: req.Rows.Map, Key: req.Rows.Key,
			DryRun: options.DryRun, Partial: options.Partial, Bad: options.Bad, Progress: options.Progress,
		})
	} else {
		report, err = h.Transfer.Import(ctx, t, src, options)
	}
	if req.DryRun || report.Created+report.Updated == 0 {
		return report, err
	}
	rec := audit.Record{Operation: "import", Subject: subject, Outcome: audit.OK, Facts: map[string]string{
		"created": strconv.Itoa(report.Created), "updated": strconv.Itoa(report.Updated), "failed": strconv.Itoa(report.Failed),
	}}
	if err != nil {
		rec.Outcome = audit.Failed
	}
	if e := h.Audit.Write(ctx, t.Workspace(), rec); e != nil {
		err = errors.Join(err, fmt.Errorf("the import could not be written to the audit log: %w", e))
	}
	return report, err
}

// importError is errorOf with the errors of imports.
func importError(err error) *Error {
	e := errorOf(err)
	var refused *transfer.RefusedError
	if errors.As(err, &refused) || errors.Is(err, transfer.ErrRowOptions) {
		e.Code = CodeInvalid
	}
	return e
}

// ExportRequest says what an export holds.
type ExportRequest struct {
	Org           string `json:"org"`
	RevealSecrets bool   `json:"reveal_secrets,omitempty"`
	// Secrets is the public half of a transfer key, to which encrypted values are sealed.
	Secrets string `json:"secrets,omitempty"`
}

func (h *handler) serveExport(w http.ResponseWriter, r *http.Request) {
	ctx := r.Context()
	var req ExportRequest
	if err := decode(http.MaxBytesReader(w, r.Body, maxRequest), &req); err != nil {
		writeError(w, &Error{Code: CodeInvalid, Message: fmt.Sprintf("command export: the request cannot be read: %v", err)})
		return
	}
	t, err := h.tenant(ctx, req.Org)
	if err != nil {
		writeError(w, errorOf(err))
		return
	}
	facts := map[string]string{"reveal_secrets": strconv.FormatBool(req.RevealSecrets)}
	options := transfer.ExportOptions{RevealSecrets: req.RevealSecrets}
	if req.Secrets != "" {
		if options.SealTo, err = sealing.ParseTransferPublicKey(req.Secrets); err == nil && req.RevealSecrets {
			err = errors.New("encrypted values are written in clear or sealed to a key, not both")
		}
		if err != nil {
			writeError(w, &Error{Code: CodeInvalid, Message: err.Error()})
			return
		}
		facts["secrets_sealed_to"] = options.SealTo.KeyID()
	}
	err = h.Audit.Write(ctx, t.Workspace(), audit.Record{Operation: "export", Subject: subject, Outcome: audit.OK, Facts: facts})
	if err != nil { // what is not recorded is not told
		writeError(w, errorOf(fmt.Errorf("nothing was exported, because the audit log cannot be written: %w", err)))
		return
	}
	w.Header().Set("Content-Type", "application/x-ndjson")
	w.Header().Add("Trailer", reportTrailer)
	w.Header().Add("Trailer", errorTrailer)
	buffered := bufio.NewWriterSize(w, 64<<10)
	report, err := h.Transfer.Export(ctx, t, buffered, options)
	if err == nil {
		err = buffered.Flush()
	}
	h.Log.InfoContext(ctx, "an export ended", "organization", req.Org, "lines", report.Lines, "reveal_secrets", req.RevealSecrets, "ok", err == nil)
	name, value := reportTrailer, any(report)
	if err != nil {
		name, value = errorTrailer, errorOf(err)
	}
	raw, err := json.Marshal(value)
	if err != nil {
		return // no trailer: the client knows that the end is missing
	}
	w.Header().Set(name, url.QueryEscape(string(raw))) // names may hold what headers must not
}

// ImportFeedback is told what happens while an import runs.
type ImportFeedback struct {
	// Sent is called with the number of bytes sent so far.
	Sent func(int64)
	// Progress is called with how far the server has come.
	Progress func(transfer.Progress)
	// Bad receives the lines that could not be taken, where the import is partial.
	Bad io.Writer
}

// importSilence is how long nothing may come from the server before it counts as gone.
const importSilence = 6 * heartbeat

// Import sends the input to be imported. The report is nil where the import did not
// begin. Errors: *Error.
func (c *Client) Import(ctx context.Context, r ImportRequest, input io.Reader, f ImportFeedback) (*transfer.Report, error) {
	q, err := r.query()
	if err != nil {
		return nil, fmt.Errorf("command import: %w", err)
	}
	header := http.Header{}
	if !r.Secrets.IsZero() {
		header.Set(secretsHeader, r.Secrets.Reveal())
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	silence := time.AfterFunc(importSilence, func() {
		cancel(fmt.Errorf("nothing came from the server for %s", importSilence))
	})
	silence.Stop()
	defer silence.Stop()
	body := &sender{r: input, sent: f.Sent, ended: func() { silence.Reset(importSilence) }}
	resp, err := c.post(ctx, "import", q, header, body)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	dec := json.NewDecoder(resp.Body)
	for {
		var e event
		if err := dec.Decode(&e); err != nil {
			what := "the server went away before the import ended"
			if cause := context.Cause(ctx); cause != nil {
				what, err = "the import was stopped", cause
			}
			return nil, fmt.Errorf("%s; import the same file again to go on: %w", what, err)
		}
		silence.Reset(importSilence)
		if e.Progress != nil && f.Progress != nil {
			f.Progress(*e.Progress)
		}
		if len(e.Bad) > 0 && f.Bad != nil {
			if _, err := f.Bad.Write(e.Bad); err != nil {
				return nil, fmt.Errorf("writing the bad lines: %w", err)
			}
		}
		switch {
		case e.Error != nil:
			return e.Report, e.Error
		case e.Report != nil:
			return e.Report, nil
		}
	}
}

// sender counts what is sent and notes the end of the input.
type sender struct {
	r     io.Reader
	sent  func(int64)
	ended func()
	n     int64
}

func (s *sender) Read(p []byte) (int, error) {
	n, err := s.r.Read(p)
	s.n += int64(n)
	if s.sent != nil {
		s.sent(s.n)
	}
	if err != nil {
		s.ended()
	}
	return n, err
}

// Export writes an organization's bundle. What was written is not whole where it returns
// an error.
func (c *Client) Export(ctx context.Context, r ExportRequest, w io.Writer) (*transfer.ExportReport, error) {
	body, err := json.Marshal(r)
	if err != nil {
		return nil, fmt.Errorf("command export: %w", err)
	}
	resp, err := c.post(ctx, "export", nil, nil, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	if _, err := io.Copy(w, resp.Body); err != nil {
		return nil, fmt.Errorf("the export is not complete: %w", err)
	}
	if text := resp.Trailer.Get(errorTrailer); text != "" {
		failure := &Error{}
		if err := readTrailer(text, failure); err != nil {
			return nil, fmt.Errorf("the export is not complete: %w", err)
		}
		return nil, failure
	}
	report := &transfer.ExportReport{}
	if err := readTrailer(resp.Trailer.Get(reportTrailer), report); err != nil {
		return nil, fmt.Errorf("the export is not complete: its end is missing: %w", err)
	}
	return report, nil
}

func readTrailer(text string, into any) error {
	raw, err := url.QueryUnescape(text)
	if err != nil {
		return err
	}
	return json.Unmarshal([]byte(raw), into)
}
