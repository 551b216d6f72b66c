// Package imports imports and exports organizations over HTTP. An uploaded file is first stored on disk and then
// imported in the background: an import is a record that shows its progress, and the result of each bad line, on every
// replica.
package imports

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"mime"
	"net/http"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	"tenantry/backends/record"
	"tenantry/backends/store"
	"tenantry/crypto/sealing"
	"tenantry/internal/background"
	"tenantry/internal/fault"
	"tenantry/modules/imports/bundle"
	"tenantry/modules/imports/tabular"
	"tenantry/operation"
	"tenantry/operation/crud"
	"tenantry/tenants"
)

// Import is one import. Its report is complete once the import has ended.
type Import struct {
	store.Meta
	As        string        `json:"as,omitempty" rule:"max=200" use:"once" doc:"What rows are imported as: contacts, records:NAME, submissions:FORM, or any other kind of a bundle in the plural. Empty: the lines are a bundle." ask:"What the rows become|Leave this empty for a bundle, such as an export.|rows" example:"contacts"`
	Format    string        `json:"format,omitempty" rule:"enum=csv|json" use:"once" doc:"The format of rows. Default: csv for the content type text/csv, otherwise json, where rows are an array or follow one another. Not for a bundle." ask:"Format|Taken from the name of the file if empty."`
	Key       string        `json:"key,omitempty" rule:"max=64" use:"once" doc:"The field that identifies the existing record that a row changes." ask:"Identified by|The field that identifies the existing record that a row changes, such as email." example:"email"`
	DryRun    bool          `json:"dry_run" use:"once" doc:"Only checks the file and reports what would be done." ask:"Only check|Reports what would be done, and stores nothing."`
	Partial   bool          `json:"partial" use:"once" doc:"Stores the good lines even if others are bad." ask:"Store the good lines|Even if others are bad."`
	Encoding  string        `json:"encoding,omitempty" rule:"max=40" use:"once" doc:"Encoding of the file, for example windows-1252, or guess to detect it. A byte order mark takes precedence over it, and it over the charset of the content type. Default: UTF-8." ask:"Encoding|For example windows-1252 or utf-16le, or guess to detect it. UTF-8 if empty." example:"windows-1252"`
	Delimiter string        `json:"delimiter,omitempty" rule:"max=9" use:"once" doc:"Delimiter of CSV: comma, semicolon, tab, pipe or another character. Default: as in a first line such as sep=;, otherwise detected from the first rows." ask:"Delimiter|comma, semicolon, tab, pipe or another character. Detected if empty." example:"semicolon"`
	Map       []string      `json:"map,omitempty" rule:"max=1000 each=300" use:"once" doc:"Which fields columns become, each COLUMN=FIELD; COLUMN= leaves one out, COLUMN=* matches it by name, *=* all others, which are left out without it. A format after the field says how values are written: COLUMN=FIELD:dd.mm.yyyy, or text, yyyy-mm-dd, dd/mm/yyyy, mm/dd/yyyy, number, 1,234.56, 1.234,56, list. Without map, columns are matched by name." ask:"Column mapping|COLUMN=FIELD or COLUMN=FIELD:FORMAT, for example Datum=birthday:dd.mm.yyyy. COLUMN= skips a column; *=* matches all others by name." example:"[\"Mail=email\",\"*=*\"]"`
	State     string        `json:"state" rule:"enum=running|done|refused|failed|interrupted" use:"computed filter" doc:"done: everything was stored or, with partial, all good lines. refused: nothing was stored, because lines or the file are bad. failed: it ended early. interrupted: the server that ran it stopped. Sending the same file again continues." example:"done"`
	By        string        `json:"by" use:"computed" doc:"Who started it: user:<id>." example:"user:7"`
	Size      int64         `json:"size" use:"computed" doc:"Size of the file in bytes." example:"52814"`
	Step      string        `json:"step" rule:"enum=reading|waiting|checking|storing" use:"computed" doc:"The current step; waiting: until other imports have ended." example:"storing"`
	Bytes     int64         `json:"bytes" use:"computed" doc:"Bytes that the step has processed." example:"52814"`
	Place     int           `json:"place" use:"computed" doc:"Number of imports ahead of it while it is waiting."`
	Message   string        `json:"message" use:"computed" doc:"Why it ended early or stored nothing."`
	Only      string        `json:"only,omitempty" use:"local"` // the same value in all running imports: its index is unique, so only one can run
	Report    bundle.Report `json:"report" use:"computed" doc:"Numbers of lines by kind, and the problems of the first bad lines." example:"{\"lines\":120,\"created\":118,\"unchanged\":0,\"updated\":2,\"failed\":0,\"kinds\":{\"contact\":{\"lines\":120,\"created\":118,\"unchanged\":0,\"updated\":2,\"failed\":0}},\"problems\":[]}"`
}

// The states of an import.
const (
	running     = "running"
	done        = "done"
	refused     = "refused"
	failed      = "failed"
	interrupted = "interrupted"

	waiting = "waiting" // a step
)

// Options are the dependencies of a Service. All are required.
type Options struct {
	Transfer func() *bundle.Service // called only once all kinds are known
	// Audit records what an import has changed, on behalf of the subject who started it.
	Audit      func(ctx context.Context, ws *store.Workspace, subject string, facts map[string]string) error
	Log        *slog.Logger
	Background *background.Work
	Now        func() time.Time
	Dir        string // for uploaded files while they are imported
	Reserve    int64  // bytes of the disk of Dir that they leave free
}

// Service runs imports until Options.Background is closed. An import that is interrupted continues when the same file
// is sent again. Safe for concurrent use.
type Service struct {
	Options
	kind  *record.Of[Import]
	turns turns
}

// New returns a Service.
func New(o Options) *Service {
	s := &Service{Options: o}
	s.kind = record.Must(record.Options[Import]{
		Traits: record.Traits{Name: "import"},
		Spec: store.Spec{
			Name: "imports", Uncounted: true, Fields: []string{"only"},
			Indexes: []store.Index{
				{Fields: []string{"created_at"}}, {Fields: []string{"state", "created_at"}},
				{Fields: []string{"only"}, Unique: true},
			},
			Access: []store.Access{
				{Sort: []string{"created_at"}}, {Where: []string{"state"}, Sort: []string{"created_at"}},
				{Where: []string{"only"}},
			},
		},
	})
	return s
}

const (
	heartbeatEvery = 2 * time.Second  // between two saves of the progress
	staleAfter     = time.Minute      // without progress, after which an import counts as interrupted
	maxUpload      = 1 << 30          // bytes
	maxImports     = 100              // of an organization; older ones are deleted
	noteTime       = 10 * time.Second // for saving how it ended
)

// Kept returns what is stored. It is not part of exports, because it is the history of this organization.
func (s *Service) Kept() []record.Kept { return []record.Kept{s.kind.Kind} }

// Operations returns the rows.
func (s *Service) Operations() []operation.Row {
	show := crud.As[any](s.kind.Resource)
	all := crud.Rows(s.kind.Resource, crud.Options{
		Path: "/api/import", Name: "imports", Things: "Imports", Tag: tag, Read: admins(), Write: admins(),
		List: crud.Action{Around: s.withoutStale}, Create: createAction(), Update: crud.Absent(), Delete: crud.Absent(),
		Keeper: crud.Keep(crud.Keeper[Import]{Insert: s.begin}),
		Show: crud.ShowEach(func(c *operation.Call, i *Import) any {
			shown := *i
			if s.Now().UnixMilli()-i.UpdatedAt > staleAfter.Milliseconds() {
				interrupt(&shown)
			}
			return show(&shown, c.Tenant)
		}),
	})
	return append(all, s.exportOperation())
}

// createAction describes the row that takes a file.
func createAction() crud.Action {
	return crud.Action{
		Policy: operation.Policy{Timeout: time.Hour}, // of a whole upload
		Request: operation.Request{
			Upload: []string{ndjson, csvType, "application/json", tsvType, zipType},
			UploadExamples: []string{
				`{"kind":"contact","external_id":"crm-1815","email":"ada@example.com","first_name":"Ada"}` + "\n",
				"external_id,email,first_name\ncrm-1815,ada@example.com,Ada\n",
				`[{"external_id":"crm-1815","email":"ada@example.com","first_name":"Ada"}]`,
				"external_id\temail\tfirst_name\ncrm-1815\tada@example.com\tAda\n",
				// An archive is no text. What begins like one is read as one, and anything else as lines, whatever its
				// type.
				`{"kind":"contact","external_id":"crm-1815","email":"ada@example.com","first_name":"Ada"}` + "\n",
			},
			UploadLimit: maxUpload,
			Params: []operation.Param{{
				Name: transferKey, In: operation.InHeader, Shape: operation.Text, Secret: true,
				Description: "The private half of the transfer key that the secrets of a bundle were sealed to. It is used during the import and not stored.",
			}},
		},
		Docs: operation.Docs{
			Description: "Takes the lines of a bundle, an archive of one with the bytes of its files or, with as, the rows of a CSV file or a JSON array, and begins to import them once all have arrived. " +
				"Unless partial is set, nothing is stored if a line is bad. Importing the same file again changes nothing. " +
				"The answer is the import, which shows its progress. An organization has one import at a time; the last hundred are kept.",
		},
		Response: operation.Response{Failures: []operation.Failure{
			{
				Code: http.StatusConflict, Message: busyMessage,
				When: "the organization has an import that has not ended",
			},
			{Code: http.StatusInsufficientStorage, Message: operation.NoSpaceMessage, When: "the server has no space left for the file"},
		}},
	}
}

// withoutStale makes a list show a stale import as interrupted. If that cannot be stored now, the next list does it.
func (s *Service) withoutStale(list operation.Handler) operation.Handler {
	return func(ctx context.Context, c *operation.Call) (operation.Result, error) {
		_ = s.interruptStale(ctx, s.kind.In(c.Tenant.Workspace()), false)
		return list(ctx, c)
	}
}

func admins() operation.Rule { return operation.AdminOnly("Manage Organization") }

const (
	tag         = "Bundles"
	transferKey = "x-transfer-key"
	ndjson      = "application/x-ndjson"
	zipType     = "application/zip"
	csvType     = "text/csv"
	tsvType     = "text/tab-separated-values"

	busyMessage  = "Another import of the organization is running"
	interruption = "The server stopped; send the same file again to continue"
)

// begin stores the uploaded file and starts the import.
func (s *Service) begin(ctx context.Context, c *operation.Call, job *Import) (_ *Import, err error) {
	var secrets *sealing.PrivateKey
	if text, err := c.RequestHeader(transferKey); err != nil {
		return nil, err
	} else if text != "" {
		if secrets, err = sealing.ParseTransferKey(text); err != nil {
			return nil, fault.One(transferKey, fault.Format, "%s: %v", transferKey, err)
		}
	}
	sent, err := c.RequestHeader("Content-Type")
	if err != nil {
		return nil, err
	}
	media, params, _ := mime.ParseMediaType(sent) // the pipeline has checked it
	isCSV := media == csvType || media == tsvType
	if job.As != "" && job.Encoding == "" {
		job.Encoding = params["charset"]
	}
	if media == tsvType && job.As != "" && job.Delimiter == "" {
		job.Delimiter = "tab"
	}
	switch {
	case job.As != "" && job.Format == "" && isCSV:
		job.Format = tabular.CSV
	case job.As != "" && job.Format == "":
		job.Format = tabular.JSON
	case job.As == "" && (isCSV || job.Format != "" || job.Key != "" || job.Encoding != "" || job.Delimiter != "" || job.Map != nil):
		return nil, fault.One("as", fault.Required, "as is required for rows, for example contacts")
	}
	if job.As != "" {
		if _, _, err := tabular.Find(s.Transfer().Importable(), job.As); err != nil {
			return nil, fault.One("as", fault.Unknown, "as: %v", err)
		}
		if err := tabular.CheckEncoding(job.Encoding); err != nil {
			return nil, fault.One("encoding", fault.Unknown, "encoding: %v", err)
		}
		if err := tabular.CheckDelimiter(job.Delimiter); err != nil {
			return nil, fault.One("delimiter", fault.Unknown, "delimiter: %v", err)
		}
		if _, err := columnMap(job.Map); err != nil {
			return nil, err
		}
	}
	if err := os.MkdirAll(s.Dir, 0o700); err != nil {
		return nil, fmt.Errorf("create the folder for imports: %w", err)
	}
	job.State, job.By, job.Step = running, c.Principal.Subject(), bundle.PhaseReading
	job.Report = bundle.Report{Kinds: map[string]bundle.Counts{}, Problems: []bundle.LineProblem{}}
	u := &importJob{Service: s, of: c.Tenant, all: s.kind.In(c.Tenant.Workspace()), job: job}
	if err := u.reserve(ctx); err != nil {
		return nil, err
	}
	src, remove, err := bundle.Spool(ctx, uploadReader{ctx, u, c.Upload}, s.Dir, s.Reserve)
	if err == nil {
		u.access, err = c.Lasting(ctx)
	}
	if err == nil {
		err = u.change(ctx, func(i *Import) { i.Size, i.Bytes = src.Size, 0 })
	}
	shown := *u.job
	if err == nil && s.Background.Go("an import", func(ctx context.Context) { u.run(ctx, src, secrets, remove) }) {
		return &shown, nil
	}
	if src.Open != nil {
		err = errors.Join(err, remove())
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), noteTime)
	defer cancel()
	left, gone := u.all.Get(ctx, job.ID) // the current state, because a list may have marked it as interrupted
	if gone == nil && left.Only != "" {
		gone = u.all.Delete(ctx, left)
	}
	if gone != nil {
		s.Log.WarnContext(
			ctx, "record of an import that did not arrive could not be deleted", "organization", c.Tenant.Org.Slug,
			"import", job.ID, "error", gone,
		)
	}
	return nil, cmp.Or(err, store.ErrUnavailable)
}

// columnMap returns the columns and their fields, as tabular.Options takes them; nil if none are given.
func columnMap(given []string) (map[string][]string, error) {
	if len(given) == 0 {
		return nil, nil
	}
	to := make(map[string][]string, len(given))
	for _, one := range given {
		at := strings.LastIndexByte(one, '=')
		if at < 1 {
			return nil, fault.One("map", fault.Format, "map: each value must be COLUMN=FIELD")
		}
		to[one[:at]] = append(to[one[:at]], one[at+1:])
	}
	return to, nil
}

// uploadReader saves the progress of an import while its file arrives.
type uploadReader struct {
	ctx context.Context //nolint:containedctx // that of the request, whose body it is
	u   *importJob
	io.Reader
}

func (a uploadReader) Read(p []byte) (int, error) {
	n, err := a.Reader.Read(p)
	return n, cmp.Or(a.u.progress(a.ctx, bundle.Progress{
		Phase: bundle.PhaseReading, Bytes: a.u.at.Bytes + int64(n),
	}), err)
}

// importJob is a running import.
type importJob struct {
	*Service
	of     *tenants.Tenant
	all    store.Collection[Import]
	access *operation.Access // of the caller who started it; set once its file has arrived
	job    *Import           // as last stored
	mu     sync.Mutex        // guards the fields below, which the import and its heartbeat use
	at     bundle.Progress
	noted  time.Time

	arrived time.Time // when its file had arrived; zero: not yet
	ticket  *ticket   // nil until then
}

// reserve stores the record of an import, unless another import of the organization is running.
func (u *importJob) reserve(ctx context.Context) error {
	u.job.Only, u.noted = running, u.Now()
	err := u.prune(ctx)
	for range 2 {
		if err == nil {
			err = u.all.Insert(ctx, u.job)
		}
		if dup := new(store.DuplicateError); !errors.As(err, &dup) {
			return err
		}
		err = u.interruptStale(ctx, u.all, true)
	}
	return cmp.Or[error](err, errBusy)
}

// interruptStale marks the running import as interrupted if it is stale. With taken, that import can no longer
// continue. It returns errBusy if the import is not stale.
func (s *Service) interruptStale(ctx context.Context, all store.Collection[Import], taken bool) error {
	other, err := all.First(ctx, store.Query{Filter: store.Eq("only", running)})
	if err == nil && (taken || other.State == running) {
		_, err = all.Update(ctx, other.ID, func(i *Import) error {
			if i.Only != "" && i.State == running && s.Now().UnixMilli()-i.UpdatedAt <= staleAfter.Milliseconds() {
				return errBusy
			}
			if taken {
				i.Only = ""
			}
			interrupt(i)
			return nil
		})
	}
	if errors.Is(err, store.ErrNotFound) {
		return nil
	}
	return err
}

var errBusy = &operation.Problem{Code: http.StatusConflict, Message: busyMessage}

// interrupt marks a running import as interrupted.
func interrupt(i *Import) {
	if i.State == running {
		i.State, i.Message, i.Place = interrupted, interruption, 0
	}
}

// prune deletes the oldest imports.
func (u *importJob) prune(ctx context.Context) error {
	old, err := u.all.Find(ctx, store.Query{
		Sort: store.NewestFirst(), Offset: maxImports - 1, Limit: maxImports,
	})
	for i := range old {
		err = errors.Join(err, u.all.Delete(ctx, &old[i]))
	}
	return err
}

// run imports the file and saves how it ends.
func (u *importJob) run(ctx context.Context, src bundle.Source, secrets *sealing.PrivateKey, remove func() error) {
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	ctx, unwatch := u.access.Watch(ctx, nil) // also while it is waiting or reading
	defer unwatch()
	u.arrived, u.ticket = u.Now(), u.turns.ticket(u.of.Org.OrgID, src.Size)
	quiet := u.heartbeat(ctx, stop)
	report, job := u.job.Report, u.job
	err := background.Try(func() error {
		defer u.ticket.leave()
		if err := u.ticket.begin(ctx, func() { u.markWaiting(ctx, stop) }); err != nil {
			return err
		}
		if err := u.access.Confirm(ctx); err != nil {
			return err
		}
		u.markBegun()
		o := tabular.Options{
			As: job.As, Format: job.Format, Key: job.Key, Encoding: job.Encoding, Delimiter: job.Delimiter, OpenWith: secrets, DryRun: job.DryRun, Partial: job.Partial, Bounded: true,
			Allowed: u.access.Confirm, Turn: func(ctx context.Context) error { return u.turn(ctx, stop) },
		}
		var err error
		if o.Map, err = columnMap(job.Map); err != nil {
			return err
		}
		o.Progress = func(p bundle.Progress) {
			if err := u.progress(ctx, p); err != nil {
				stop(err)
			}
		}
		told, err := tabular.Load(ctx, u.Transfer(), u.of, src, o)
		if told.Kinds != nil { // otherwise Load has not begun
			report = told
		}
		return err
	})
	quiet()
	state, message := done, ""
	var bad *bundle.RefusedError
	var noRoom *bundle.NoRoomError
	var cut *bundle.InterruptedError
	var full *store.QuotaError
	if ctx.Err() != nil && errors.Is(context.Cause(ctx), operation.ErrEnded) {
		err = context.Cause(ctx)
	}
	switch {
	case errors.Is(err, operation.ErrEnded):
		state, message = failed, endedMessage(err)
	case errors.Is(context.Cause(ctx), errLate):
		state, message = failed, lateMessage(context.Cause(ctx), report)
	case ctx.Err() != nil:
		state, message = interrupted, interruption
	case errors.As(err, &bad):
		state, message = refused, fmt.Sprintf("Nothing was stored: %d of %d lines are bad", bad.Failed, bad.Lines)
	case errors.Is(err, tabular.ErrOptions), errors.Is(err, bundle.ErrTooMany), errors.Is(err, bundle.ErrArchive):
		state, message = refused, err.Error()
	case errors.Is(err, bundle.ErrRestored):
		state, message = failed, "The organization was restored from a backup meanwhile, and may lack some of the records; send the same file again"
	case errors.As(err, &noRoom):
		state, message = refused, "Nothing was stored: "+strings.TrimPrefix(err.Error(), "nothing was imported: ")
	case errors.As(err, &full) && errors.As(err, &cut):
		state, message = failed, fmt.Sprintf("%s. %d of %d lines are stored; send the same file again to continue", operation.Full(full).Message, cut.Stored, cut.Lines)
	case err != nil:
		state, message = failed, "The import failed; send the same file again to continue"
		u.Log.WarnContext(ctx, "import failed", "organization", u.of.Org.Slug, "import", job.ID, "error", err)
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), noteTime)
	defer cancel()
	if err := remove(); err != nil {
		u.Log.WarnContext(ctx, "copy of an import could not be deleted", "error", err)
	}
	u.record(ctx, report)
	if err := u.change(ctx, func(i *Import) {
		i.Only, i.State, i.Message, i.Report, i.Step, i.Bytes, i.Place = "", state, message, report, u.at.Phase, u.at.Bytes, 0
	}); err != nil {
		u.Log.WarnContext(
			ctx, "end of an import could not be saved", "organization", u.of.Org.Slug, "import", job.ID, "error", err,
		)
	}
	u.Log.InfoContext(
		ctx, "import ended", "organization", u.of.Org.Slug, "import", job.ID, "lines", report.Lines, "failed",
		report.Failed, "state", state,
	)
}

// endedMessage says why an import ended whose caller lost the right to import.
func endedMessage(err error) string {
	why := "The person who started it may no longer import"
	switch {
	case errors.Is(err, tenants.ErrUnknownTenant):
		why = "The organization was suspended"
	case errors.Is(err, tenants.ErrDenied):
		why = "The session that started it was ended, or the account was deactivated"
	}
	return why + "; the lines stored until then stay. Send the same file again to continue"
}

// record adds to the audit log what an import has changed.
func (u *importJob) record(ctx context.Context, report bundle.Report) {
	if u.job.DryRun || report.Created+report.Updated == 0 {
		return
	}
	facts := map[string]string{
		"import": u.job.ID, "created": strconv.Itoa(report.Created), "updated": strconv.Itoa(report.Updated),
		"failed": strconv.Itoa(report.Failed),
	}
	if err := u.Audit(ctx, u.of.Workspace(), u.job.By, facts); err != nil {
		u.Log.ErrorContext(
			ctx, "import could not be recorded in the audit log", "organization", u.of.Org.Slug, "import", u.job.ID,
			"error", err,
		)
	}
}
