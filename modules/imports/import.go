// Package imports carries organizations in and out over HTTP. What is sent is put into a file first and then
// imported while the caller does something else: an import is a record, which tells how far it has come
// and what became of each bad line, whichever replica is asked.
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

// Import is one import. Its report is there once it has ended.
type Import struct {
	store.Meta
	As        string        `json:"as,omitempty" rule:"max=200" use:"once" doc:"What rows become: contacts, records:NAME, submissions:FORM, or any other kind of a bundle in the plural. Empty: the lines are a bundle." ask:"What the rows become|Nothing is chosen for a bundle, as exports are.|rows" example:"contacts"`
	Format    string        `json:"format,omitempty" rule:"enum=csv|json" use:"once" doc:"The format of rows; that of the content type where it is not given: csv of text/csv, json of the others, where rows are an array or one after the other. None of a bundle." ask:"Format|Told by the name of the file where nothing is chosen."`
	Key       string        `json:"key,omitempty" rule:"max=64" use:"once" doc:"The field by which a row is a stored record, which it changes then." ask:"Known by|The field by which a row changes what is there already, such as email." example:"email"`
	DryRun    bool          `json:"dry_run" use:"once" doc:"Only checks, and tells what would be done." ask:"Only check|Tells what would be done, and stores nothing."`
	Partial   bool          `json:"partial" use:"once" doc:"Stores the good lines where others are bad." ask:"Take the good lines|Even where others are wrong."`
	Encoding  string        `json:"encoding,omitempty" rule:"max=40" use:"once" doc:"Encoding of the file, for example windows-1252, or guess to detect it. A byte order mark takes precedence over it, and it over the charset of the content type. Default: UTF-8." ask:"Encoding|For example windows-1252 or utf-16le, or guess to detect it. UTF-8 if empty." example:"windows-1252"`
	Delimiter string        `json:"delimiter,omitempty" rule:"max=9" use:"once" doc:"Delimiter of CSV: comma, semicolon, tab, pipe or another character. Default: what a first line such as sep=; says, else detected from the first rows." ask:"Delimiter|comma, semicolon, tab, pipe or another character. Detected if empty." example:"semicolon"`
	Map       []string      `json:"map,omitempty" rule:"max=1000 each=300" use:"once" doc:"Which fields columns become, each COLUMN=FIELD; COLUMN= leaves one out, COLUMN=* matches it by name, *=* all others, which are left out without it. A format after the field says how values are written: COLUMN=FIELD:dd.mm.yyyy, or text, yyyy-mm-dd, dd/mm/yyyy, mm/dd/yyyy, number, 1,234.56, 1.234,56, list. Columns are matched by name where it is not given." ask:"Column mapping|COLUMN=FIELD or COLUMN=FIELD:FORMAT, for example Datum=birthday:dd.mm.yyyy. COLUMN= skips a column; *=* matches all others by name." example:"[\"Mail=email\",\"*=*\"]"`
	State     string        `json:"state" rule:"enum=running|done|refused|failed|interrupted" use:"computed filter" doc:"done: everything was stored, or with partial what could be. refused: nothing was, because lines are bad, or the file is. failed: it ended early. interrupted: so did the server that carried it out. Sending the same file again goes on." example:"done"`
	By        string        `json:"by" use:"computed" doc:"Who began it: user:<id>." example:"user:7"`
	Size      int64         `json:"size" use:"computed" doc:"Bytes that were sent." example:"52814"`
	Step      string        `json:"step" rule:"enum=reading|waiting|checking|storing" use:"computed" doc:"reading, waiting until it begins, checking or storing." example:"storing"`
	Bytes     int64         `json:"bytes" use:"computed" doc:"How many of the bytes the step is through with." example:"52814"`
	Place     int           `json:"place" use:"computed" doc:"How many other imports are before it while it waits to begin."`
	Message   string        `json:"message" use:"computed" doc:"Why it ended early, or stored nothing."`
	Only      string        `json:"only,omitempty" use:"local"` // the same of all that run: the store has one of them
	Report    bundle.Report `json:"report" use:"computed" doc:"Numbers of lines by kind, and what is wrong with the first bad ones." example:"{\"lines\":120,\"created\":118,\"unchanged\":0,\"updated\":2,\"failed\":0,\"kinds\":{\"contact\":{\"lines\":120,\"created\":118,\"unchanged\":0,\"updated\":2,\"failed\":0}},\"problems\":[]}"`
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

// Options are what a Service needs. All are required.
type Options struct {
	Transfer func() *bundle.Service // set once what is kept is known
	// Audit records what an import has changed for the one who began it.
	Audit      func(ctx context.Context, ws *store.Workspace, subject string, facts map[string]string) error
	Log        *slog.Logger
	Background *background.Work
	Now        func() time.Time
	Dir        string // where what is sent is kept meanwhile
}

// Service carries imports out, until Options.Beside is closed: sending the same file again goes on with one that
// was under way. Safe for concurrent use.
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
			Name: "imports", Aside: true, Fields: []string{"only"},
			Indexes: []store.Index{{Fields: []string{"created_at"}}, {Fields: []string{"state", "created_at"}}, {Fields: []string{"only"}, Unique: true}},
			Access:  []store.Access{{Sort: []string{"created_at"}}, {Where: []string{"state"}, Sort: []string{"created_at"}}, {Where: []string{"only"}}},
		},
	})
	return s
}

const (
	beat      = 2 * time.Second  // between two notes of how far it has come
	silence   = time.Minute      // after which nobody carries it out any more
	maxUpload = 1 << 30          // bytes
	kept      = 100              // imports of an organization; older ones are forgotten
	noteTime  = 10 * time.Second // for noting how it ended
)

// Kept returns what is stored. It does not travel: it tells of this organization's past.
func (s *Service) Kept() []record.Kept { return []record.Kept{s.kind.Kind} }

// Operations returns the rows.
func (s *Service) Operations() []operation.Row {
	all := crud.Rows(s.kind.Resource, crud.Options{
		Path: "/api/import", Name: "imports", Things: "Imports", Tag: tag, Read: admins(), Write: admins(),
		List: crud.Action{Around: s.settled}, Create: creating(), Update: crud.Absent(), Delete: crud.Absent(),
		Keeper: crud.Keep(crud.Keeper[Import]{Insert: s.begin}),
		Refresh: crud.Refresh(func(i *Import) {
			if s.Now().UnixMilli()-i.UpdatedAt > silence.Milliseconds() {
				interrupt(i)
			}
		}),
	})
	return append(all, s.exportOperation())
}

// creating describes the row that takes a file.
func creating() crud.Action {
	return crud.Action{
		Policy: operation.Policy{Timeout: time.Hour}, // of a whole upload
		Request: operation.Request{
			Upload: []string{ndjson, csvType, "application/json", tsvType},
			UploadExamples: []string{
				`{"kind":"contact","external_id":"crm-1815","email":"ada@example.com","first_name":"Ada"}` + "\n",
				"external_id,email,first_name\ncrm-1815,ada@example.com,Ada\n",
				`[{"external_id":"crm-1815","email":"ada@example.com","first_name":"Ada"}]`,
				"external_id\temail\tfirst_name\ncrm-1815\tada@example.com\tAda\n",
			},
			UploadLimit: maxUpload,
			Params: []operation.Param{{
				Name: transferKey, In: operation.InHeader, Shape: operation.Text, Secret: true,
				Description: "The private half of the transfer key to whose public half the secrets of a bundle were sealed. It is used while they are stored, and kept nowhere.",
			}},
		},
		Docs: operation.Docs{
			Description: "Takes the lines of a bundle, or with as the rows of a CSV file or a JSON array, and begins to import them once they have all arrived. " +
				"Nothing is stored unless every line can be, save with partial. Importing the same file again changes nothing. " +
				"The answer names the import, which tells how far it has come. An organization has one import at a time; the last hundred are remembered.",
		},
		Response: operation.Response{Failures: []operation.Failure{
			{Code: http.StatusConflict, Message: busyMessage, When: "the organization has an import that has not ended"},
		}},
	}
}

// settled makes a list show an import that no server carries out any more as interrupted. If that cannot be stored now,
// the next list does it.
func (s *Service) settled(list operation.Handler) operation.Handler {
	return func(ctx context.Context, c *operation.Call) (operation.Result, error) {
		_ = s.settle(ctx, s.kind.In(c.Tenant.Workspace()), false)
		return list(ctx, c)
	}
}

func admins() operation.Rule { return operation.AdminOnly("Manage Organization") }

const (
	tag         = "Bundles"
	transferKey = "x-transfer-key"
	ndjson      = "application/x-ndjson"
	csvType     = "text/csv"
	tsvType     = "text/tab-separated-values"

	busyMessage  = "Another import of the organization is under way"
	interruption = "The server ended; send the same file again to go on"
)

// begin takes the file and begins the import.
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
	media, params, _ := mime.ParseMediaType(sent) // which it is one of
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
		return nil, fault.One("as", fault.Required, "as is required for rows, contacts for example")
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
		if _, err := columns(job.Map); err != nil {
			return nil, err
		}
	}
	if err := os.MkdirAll(s.Dir, 0o700); err != nil {
		return nil, fmt.Errorf("the folder for imports: %w", err)
	}
	job.State, job.By, job.Step = running, c.Principal.Subject(), bundle.PhaseReading
	job.Report = bundle.Report{Kinds: map[string]bundle.Counts{}, Problems: []bundle.LineProblem{}}
	u := &importJob{Service: s, of: c.Tenant, all: s.kind.In(c.Tenant.Workspace()), job: job}
	if err := u.take(ctx); err != nil {
		return nil, err
	}
	src, remove, err := bundle.Spool(ctx, arriving{ctx, u, c.Upload}, s.Dir)
	if err == nil {
		u.access, err = c.Lasting(ctx)
	}
	if err == nil {
		err = u.change(ctx, func(i *Import) { i.Size, i.Bytes = src.Size, 0 })
	}
	shown := *u.job
	if err == nil && s.Background.Go("an import", func(ctx context.Context) { u.carryOut(ctx, src, secrets, remove) }) {
		return &shown, nil
	}
	if src.Open != nil {
		err = errors.Join(err, remove())
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), noteTime)
	defer cancel()
	left, gone := u.all.Get(ctx, job.ID) // as it is: a list may have noted that it was quiet
	if gone == nil && left.Only != "" {
		gone = u.all.Delete(ctx, left)
	}
	if gone != nil {
		s.Log.WarnContext(ctx, "an import that did not arrive was left behind", "organization", c.Tenant.Org.Slug, "import", job.ID, "error", gone)
	}
	return nil, cmp.Or(err, store.ErrUnavailable)
}

// columns returns what columns lead to, as rows takes it; nil where nothing is said.
func columns(given []string) (map[string][]string, error) {
	if len(given) == 0 {
		return nil, nil
	}
	to := make(map[string][]string, len(given))
	for _, one := range given {
		at := strings.LastIndexByte(one, '=')
		if at < 1 {
			return nil, fault.One("map", fault.Format, "map: each is COLUMN=FIELD")
		}
		to[one[:at]] = append(to[one[:at]], one[at+1:])
	}
	return to, nil
}

// arriving notes that an import goes on while its file arrives.
type arriving struct {
	ctx context.Context //nolint:containedctx // that of the request, whose body it is
	u   *importJob
	io.Reader
}

func (a arriving) Read(p []byte) (int, error) {
	n, err := a.Reader.Read(p)
	return n, cmp.Or(a.u.note(a.ctx, bundle.Progress{Phase: bundle.PhaseReading, Bytes: a.u.at.Bytes + int64(n)}), err)
}

// importJob is an import that is under way.
type importJob struct {
	*Service
	of     *tenants.Tenant
	all    store.Collection[Import]
	access *operation.Access // of who began it, once its file has arrived
	job    *Import           // as it was stored last
	mu     sync.Mutex        // of what follows: it is noted on the way, and now and then beside that
	at     bundle.Progress
	noted  time.Time

	arrived time.Time // its file; the zero time: not yet
	ticket  *ticket   // nil until then
}

// take stores the record of an import, if the organization has no other one under way.
func (u *importJob) take(ctx context.Context) error {
	u.job.Only, u.noted = running, u.Now()
	err := u.forget(ctx)
	for range 2 {
		if err == nil {
			err = u.all.Insert(ctx, u.job)
		}
		if dup := new(store.DuplicateError); !errors.As(err, &dup) {
			return err
		}
		err = u.settle(ctx, u.all, true)
	}
	return cmp.Or[error](err, errBusy)
}

// settle notes of the import that has not ended that nobody seems to carry it out any more, and where its place is
// taken it cannot go on. errBusy says that somebody does.
func (s *Service) settle(ctx context.Context, all store.Collection[Import], taken bool) error {
	other, err := all.First(ctx, store.Query{Filter: store.Eq("only", running)})
	if err == nil && (taken || other.State == running) {
		_, err = all.Update(ctx, other.ID, func(i *Import) error {
			if i.Only != "" && i.State == running && s.Now().UnixMilli()-i.UpdatedAt <= silence.Milliseconds() {
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

// interrupt says so of an import that nobody carries out any more.
func interrupt(i *Import) {
	if i.State == running {
		i.State, i.Message, i.Place = interrupted, interruption, 0
	}
}

// forget keeps the list short.
func (u *importJob) forget(ctx context.Context) error {
	old, err := u.all.Find(ctx, store.Query{Sort: []store.Order{store.Desc("created_at")}, Offset: kept - 1, Limit: kept})
	for i := range old {
		err = errors.Join(err, u.all.Delete(ctx, &old[i]))
	}
	return err
}

// carryOut imports what was sent and notes how it ends.
func (u *importJob) carryOut(ctx context.Context, src bundle.Source, secrets *sealing.PrivateKey, remove func() error) {
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	ctx, unwatch := u.access.Watch(ctx, nil) // also while it waits and reads
	defer unwatch()
	u.arrived, u.ticket = u.Now(), u.turns.ticket(u.of.Org.OrgID, src.Size)
	quiet := u.keepTold(ctx, stop)
	report, job := u.job.Report, u.job
	err := background.Try(func() error {
		defer u.ticket.leave()
		if err := u.ticket.begin(ctx, func() { u.waits(ctx, stop) }); err != nil {
			return err
		}
		if err := u.access.Confirm(ctx); err != nil {
			return err
		}
		u.begins()
		o := tabular.Options{
			As: job.As, Format: job.Format, Key: job.Key, Encoding: job.Encoding, Delimiter: job.Delimiter, OpenWith: secrets, DryRun: job.DryRun, Partial: job.Partial, Bounded: true,
			Allowed: u.access.Confirm, Turn: func(ctx context.Context) error { return u.turn(ctx, stop) },
		}
		var err error
		if o.Map, err = columns(job.Map); err != nil {
			return err
		}
		o.Progress = func(p bundle.Progress) {
			if err := u.note(ctx, p); err != nil {
				stop(err)
			}
		}
		told, err := tabular.Load(ctx, u.Transfer(), u.of, src, o)
		if told.Kinds != nil { // else it came to none
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
		state, message = failed, whyEnded(err)
	case errors.Is(context.Cause(ctx), errLate):
		state, message = failed, lateMessage(context.Cause(ctx), report)
	case ctx.Err() != nil:
		state, message = interrupted, interruption
	case errors.As(err, &bad):
		state, message = refused, fmt.Sprintf("Nothing was stored: %d of %d lines cannot be taken", bad.Failed, bad.Lines)
	case errors.Is(err, tabular.ErrOptions), errors.Is(err, bundle.ErrTooMany):
		state, message = refused, err.Error()
	case errors.As(err, &noRoom):
		state, message = refused, "Nothing was stored: "+strings.TrimPrefix(err.Error(), "nothing was imported: ")
	case errors.As(err, &full) && errors.As(err, &cut):
		state, message = failed, fmt.Sprintf("%s. %d of %d lines are stored; send the same file again to go on", operation.Full(full).Message, cut.Stored, cut.Lines)
	case err != nil:
		state, message = failed, "It could not be carried through; send the same file again to go on"
		u.Log.WarnContext(ctx, "an import failed", "organization", u.of.Org.Slug, "import", job.ID, "error", err)
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), noteTime)
	defer cancel()
	if err := remove(); err != nil {
		u.Log.WarnContext(ctx, "the copy of an import was left behind", "error", err)
	}
	u.record(ctx, report)
	if err := u.change(ctx, func(i *Import) {
		i.Only, i.State, i.Message, i.Report, i.Step, i.Bytes, i.Place = "", state, message, report, u.at.Phase, u.at.Bytes, 0
	}); err != nil {
		u.Log.WarnContext(ctx, "how an import ended could not be noted", "organization", u.of.Org.Slug, "import", job.ID, "error", err)
	}
	u.Log.InfoContext(ctx, "an import ended", "organization", u.of.Org.Slug, "import", job.ID, "lines", report.Lines, "failed", report.Failed, "state", state)
}

// whyEnded says why an import ended whose beginner may not import any more.
func whyEnded(err error) string {
	why := "Who began it may not import any more"
	switch {
	case errors.Is(err, tenants.ErrUnknownTenant):
		why = "The organization was suspended"
	case errors.Is(err, tenants.ErrDenied):
		why = "The session in which it was begun was ended, or the account deactivated"
	}
	return why + "; what was stored until then stays. Send the same file again to go on"
}

// record writes into the audit log what an import has changed.
func (u *importJob) record(ctx context.Context, report bundle.Report) {
	if u.job.DryRun || report.Created+report.Updated == 0 {
		return
	}
	facts := map[string]string{"import": u.job.ID, "created": strconv.Itoa(report.Created), "updated": strconv.Itoa(report.Updated), "failed": strconv.Itoa(report.Failed)}
	if err := u.Audit(ctx, u.of.Workspace(), u.job.By, facts); err != nil {
		u.Log.ErrorContext(ctx, "an import could not be recorded in the audit log", "organization", u.of.Org.Slug, "import", u.job.ID, "error", err)
	}
}

// keepTold notes that the import goes on also while it waits, or tells of no progress for long, until quiet is called,
// which returns once nothing is noted any more. Where it was taken for interrupted it is stopped.
func (u *importJob) keepTold(ctx context.Context, stop func(error)) (quiet func()) {
	ctx, cancel := context.WithCancel(ctx)
	var telling sync.WaitGroup
	telling.Go(func() {
		tick := time.NewTicker(beat)
		defer tick.Stop()
		for {
			select {
			case <-tick.C:
			case <-ctx.Done():
				return
			}
			if err := u.late(); err != nil {
				stop(err)
			}
			if err := background.Try(func() error {
				u.mu.Lock()
				defer u.mu.Unlock()
				return u.tell(ctx)
			}); err != nil && ctx.Err() == nil {
				stop(err)
			}
		}
	})
	return func() { cancel(); telling.Wait() }
}

// note notes now and then how far the import has come. An error says that it was taken for interrupted meanwhile,
// and another may be under way; where nothing can be noted the next time is as good.
func (u *importJob) note(ctx context.Context, p bundle.Progress) error {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.at = p
	return u.tell(ctx)
}

// tell is note where it has come no further, for who holds the lock.
func (u *importJob) tell(ctx context.Context) error {
	if u.Now().Sub(u.noted) < beat {
		return nil
	}
	u.noted = u.Now()
	place := 0
	if u.ticket != nil {
		place = u.ticket.before()
	}
	err := u.change(ctx, func(i *Import) {
		i.State, i.Message, i.Step, i.Bytes, i.Place = running, "", u.at.Phase, u.at.Bytes, place
	})
	if err != nil && !errors.Is(err, errTaken) && ctx.Err() == nil {
		u.Log.WarnContext(ctx, "how far an import is could not be noted", "organization", u.of.Org.Slug, "import", u.job.ID, "error", err)
		err = nil
	}
	return err
}

// waits notes at once that it does not begin yet.
func (u *importJob) waits(ctx context.Context, stop func(error)) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.at, u.noted = bundle.Progress{Phase: waiting}, time.Time{}
	if err := u.tell(ctx); err != nil {
		stop(err)
	}
}

// begins notes that it does.
func (u *importJob) begins() {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.at = bundle.Progress{Phase: bundle.PhaseReading}
}

// turn returns when the import may go on, or why it is to end.
func (u *importJob) turn(ctx context.Context, stop func(error)) error {
	if err := u.late(); err != nil {
		stop(err)
		return err
	}
	return u.ticket.turn(ctx)
}

// late returns why the import is to end that takes too long.
func (u *importJob) late() error {
	took := u.Now().Sub(u.arrived)
	u.mu.Lock()
	defer u.mu.Unlock()
	switch {
	case took > maxWait && u.at.Phase == waiting:
		return errNoTurn
	case took > maxTime:
		return errLate
	}
	return nil
}

// lateMessage says to whoever sent the file why it was ended, and what of it is stored.
func lateMessage(cause error, r bundle.Report) string {
	switch stored := r.Created + r.Updated; {
	case errors.Is(cause, errNoTurn):
		return fmt.Sprintf("It could not begin for %s, for others were under way. Nothing was stored; send the same file again later", span(maxWait))
	case stored == 0 || r.DryRun:
		return fmt.Sprintf("It was ended after %s. Nothing was stored; send it in several files", span(maxTime))
	default:
		return fmt.Sprintf("It was ended after %s, and %d lines were stored; send the same file again to go on", span(maxTime), stored)
	}
}

func span(d time.Duration) string { return fmt.Sprintf("%d minutes", int(d.Minutes())) }

var errTaken = &operation.Problem{Code: http.StatusConflict, Message: "The import was quiet for too long; send the file again"}

// change changes the record of an import that is still the organization's only one.
func (u *importJob) change(ctx context.Context, change func(*Import)) error {
	ctx, cancel := context.WithTimeout(ctx, noteTime)
	defer cancel()
	job, err := u.all.Update(ctx, u.job.ID, func(i *Import) error {
		if i.Only == "" {
			return errTaken
		}
		change(i)
		return nil
	})
	if err == nil {
		u.job = job
	}
	return err
}
