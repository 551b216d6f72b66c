// Package bundles carries organizations in and out over HTTP. What is sent is put into a file first and then
// imported while the caller does something else: an import is a record, which tells how far it has come
// and what became of each bad line, whichever replica is asked.
package bundles

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"strconv"
	"sync"
	"time"

	"tenantry/backends/api"
	"tenantry/backends/crud"
	"tenantry/backends/resource"
	"tenantry/backends/store"
	"tenantry/crypto/sealing"
	"tenantry/gateway/audit"
	"tenantry/gateway/rows"
	"tenantry/gateway/transfer"
	"tenantry/internal/fault"
	"tenantry/tenants"
)

// Import is one import. Its report is there once it has ended.
type Import struct {
	store.Meta
	As      string          `json:"as,omitempty" rule:"max=200" use:"once" doc:"What rows become: contacts, records:NAME, submissions:FORM, or any other kind of a bundle in the plural. Empty: the lines are a bundle." example:"contacts"`
	Format  string          `json:"format,omitempty" rule:"enum=csv|json" use:"once" doc:"The format of rows; csv where it is not given."`
	Key     string          `json:"key,omitempty" rule:"max=64" use:"once" doc:"The field by which a row is a stored record, which it changes then." example:"email"`
	DryRun  bool            `json:"dry_run" use:"once" doc:"Only checks, and tells what would be done."`
	Partial bool            `json:"partial" use:"once" doc:"Stores the good lines where others are bad."`
	State   string          `json:"state" rule:"enum=running|done|refused|failed|interrupted" use:"computed filter" doc:"done: everything was stored, or with partial what could be. refused: nothing was, because lines are bad. failed: it ended early. interrupted: so did the server that carried it out. Sending the same file again goes on." example:"done"`
	By      string          `json:"by" use:"computed" doc:"Who began it: user:<id>." example:"user:7"`
	Size    int64           `json:"size" use:"computed" doc:"Bytes that were sent." example:"52814"`
	Step    string          `json:"step" use:"computed" doc:"reading, checking or storing." example:"storing"`
	Bytes   int64           `json:"bytes" use:"computed" doc:"How many of the bytes the step is through with." example:"52814"`
	Message string          `json:"message" use:"computed" doc:"Why it ended early, or stored nothing."`
	Report  transfer.Report `json:"report" use:"computed" doc:"Numbers of lines by kind, and what is wrong with the first bad ones."`
}

// The states of an import.
const (
	running     = "running"
	done        = "done"
	refused     = "refused"
	failed      = "failed"
	interrupted = "interrupted"
)

// Options are what a Service needs. All are required.
type Options struct {
	Transfer func() *transfer.Service // set once what is kept is known
	Audit    *audit.Log
	Log      *slog.Logger
	Now      func() time.Time
	Dir      string // where what is sent is kept meanwhile
}

// Service carries imports out. Close ends it. Safe for concurrent use.
type Service struct {
	Options
	kind    *resource.Of[Import]
	running sync.WaitGroup
	ctx     context.Context // ends with the service
	stop    context.CancelFunc
	slots   chan struct{}

	mu   sync.Mutex
	busy map[int64]bool // organizations with an import in this process
}

// New returns a Service.
func New(o Options) *Service {
	s := &Service{Options: o, busy: map[int64]bool{}, slots: make(chan struct{}, atOnce)}
	s.ctx, s.stop = context.WithCancel(context.Background())
	s.kind = resource.Must(resource.Options[Import]{
		Traits: resource.Traits{Name: "import"},
		Spec: store.Spec{
			Name:    "imports",
			Indexes: []store.Index{{Fields: []string{"created_at"}}, {Fields: []string{"state", "created_at"}}},
			Access:  []store.Access{{Sort: []string{"created_at"}}, {Where: []string{"state"}, Sort: []string{"created_at"}}},
		},
	})
	return s
}

const (
	atOnce    = 2                // in one process; others wait for their turn
	beat      = 2 * time.Second  // between two notes of how far it has come
	silence   = time.Minute      // after which nobody carries it out any more
	maxUpload = 1 << 30          // bytes
	kept      = 100              // imports of an organization; older ones are forgotten
	noteTime  = 10 * time.Second // for noting how it ended
)

// Kept returns what is stored. It does not travel: it tells of this organization's past.
func (s *Service) Kept() []resource.Kept { return []resource.Kept{s.kind.Kind} }

// Close ends what is under way, as far as ctx allows: sending the same file again goes on with it.
func (s *Service) Close(ctx context.Context) {
	s.stop()
	ended := make(chan struct{})
	go func() { s.running.Wait(); close(ended) }()
	select {
	case <-ended:
	case <-ctx.Done():
	}
}

// Operations returns the rows.
func (s *Service) Operations() []api.Operation {
	all := crud.Rows(s.kind, crud.Options[Import]{
		Path: "/api/import", Name: "imports", Things: "Imports", Tag: tag, Read: admins(), Write: admins(), Without: []string{"update", "delete"},
		Upload: []string{ndjson, "text/csv", "application/json"}, UploadLimit: maxUpload, UploadTime: time.Hour,
		Keeper: &crud.Keeper[Import]{Insert: s.begin},
		Refresh: func(i *Import) {
			if i.State == running && s.Now().UnixMilli()-i.UpdatedAt > silence.Milliseconds() {
				i.State, i.Message = interrupted, interruption
			}
		},
	})
	for i := range all {
		if all[i].Method == http.MethodPost {
			all[i].Description = "Takes the lines of a bundle, or with as the rows of a CSV file or a JSON array, and begins to import them once they have all arrived. " +
				"Nothing is stored unless every line can be, save with partial. Importing the same file again changes nothing. " +
				"The answer names the import, which tells how far it has come. An organization has one import at a time; the last hundred are remembered."
			all[i].Params = append(all[i].Params, api.Param{
				Name: transferKey, In: api.InHeader, Shape: api.Text, Secret: true,
				Description: "The private half of the transfer key to whose public half the secrets of a bundle were sealed. It is used while they are stored, and kept nowhere.",
			})
			all[i].Failures = append(all[i].Failures, api.Failure{Code: http.StatusConflict, Message: busyMessage, When: "the organization has an import that has not ended"})
		}
	}
	return append(all, s.exportOperation())
}

func admins() api.Rule { return api.AdminOnly("Manage Organization") }

const (
	tag         = "Bundles"
	transferKey = "x-transfer-key"
	ndjson      = "application/x-ndjson"

	busyMessage  = "Another import of the organization is under way"
	interruption = "The server ended; send the same file again to go on"
)

// begin takes the file and begins the import.
func (s *Service) begin(ctx context.Context, c *api.Call, job *Import) (_ *Import, err error) {
	org := c.Tenant.Org.OrgID
	if !s.reserve(org) {
		return nil, busy()
	}
	begun := false
	defer func() {
		if !begun {
			s.release(org)
		}
	}()
	all := s.kind.In(c.Tenant.Workspace())
	alive := store.All(store.Eq("state", running), store.Where(store.F("updated_at"), store.OpGt, s.Now().Add(-silence).UnixMilli()))
	if n, err := all.Count(ctx, alive); err != nil || n > 0 {
		if err == nil {
			err = busy() // of another replica
		}
		return nil, err
	}
	var secrets *sealing.PrivateKey
	if text, err := c.RequestHeader(transferKey); err != nil {
		return nil, err
	} else if text != "" {
		if secrets, err = sealing.ParseTransferKey(text); err != nil {
			return nil, fault.One(transferKey, fault.Format, "%s: %v", transferKey, err)
		}
	}
	if err := os.MkdirAll(s.Dir, 0o700); err != nil {
		return nil, fmt.Errorf("the folder for imports: %w", err)
	}
	src, remove, err := transfer.Spool(ctx, c.Upload, s.Dir)
	if err != nil {
		return nil, err
	}
	job.State, job.By, job.Size, job.Step, job.Format = running, c.Principal.Subject(), src.Size, transfer.PhaseReading, cmp.Or(job.Format, rows.CSV)
	job.Report = transfer.Report{Kinds: map[string]transfer.Counts{}, Problems: []transfer.LineProblem{}}
	if err = s.forget(ctx, all); err == nil {
		err = all.Insert(ctx, job)
	}
	if err != nil {
		return nil, errors.Join(err, remove())
	}
	shown := *job
	begun = true
	s.running.Go(func() {
		s.carryOut(c.Tenant, job, src, secrets, func() {
			if err := remove(); err != nil {
				s.Log.Warn("the copy of an import was left behind", "error", err)
			}
			s.release(org)
		})
	})
	return &shown, nil
}

func busy() error { return &api.Problem{Code: http.StatusConflict, Message: busyMessage} }

func (s *Service) reserve(org int64) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.busy[org] || s.ctx.Err() != nil {
		return false
	}
	s.busy[org] = true
	return true
}

func (s *Service) release(org int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.busy, org)
}

// forget keeps the list short.
func (s *Service) forget(ctx context.Context, all store.Collection[Import]) error {
	old, err := all.Find(ctx, store.Query{Sort: []store.Order{store.Desc("created_at")}, Offset: kept - 1, Limit: kept})
	for i := range old {
		err = errors.Join(err, all.Delete(ctx, &old[i]))
	}
	return err
}

// carryOut imports what was sent and notes how it ends, after end: whoever reads that it has ended may
// begin another.
func (s *Service) carryOut(t *tenants.Tenant, job *Import, src transfer.Source, secrets *sealing.PrivateKey, end func()) {
	var at transfer.Progress
	noted := s.Now()
	note := func(p transfer.Progress) {
		if at = p; s.Now().Sub(noted) >= beat {
			noted = s.Now()
			s.note(s.ctx, t, job.ID, func(i *Import) { i.Step, i.Bytes = p.Phase, p.Bytes })
		}
	}
	var report transfer.Report
	err := s.turn(func() { s.note(s.ctx, t, job.ID, func(*Import) {}) })
	if err == nil {
		report, err = rows.Load(s.ctx, s.Transfer(), t, src, rows.Options{As: job.As, Format: job.Format, Key: job.Key, OpenWith: secrets, DryRun: job.DryRun, Partial: job.Partial, Bounded: true, Progress: note})
		<-s.slots
	}
	if report.Kinds == nil { // it came to none
		report = job.Report
	}
	state, message := done, ""
	var bad *transfer.RefusedError
	switch {
	case s.ctx.Err() != nil:
		state, message = interrupted, interruption
	case errors.As(err, &bad):
		state, message = refused, fmt.Sprintf("Nothing was stored: %d of %d lines cannot be taken", bad.Failed, bad.Lines)
	case errors.Is(err, rows.ErrOptions):
		state, message = refused, err.Error()
	case err != nil:
		state, message = failed, "It could not be carried through; send the same file again to go on"
		s.Log.Warn("an import failed", "organization", t.Org.Slug, "import", job.ID, "error", err)
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(s.ctx), noteTime)
	defer cancel()
	s.record(ctx, t, job, report)
	end()
	s.note(ctx, t, job.ID, func(i *Import) {
		i.State, i.Message, i.Report, i.Step, i.Bytes = state, message, report, at.Phase, at.Bytes
	})
	s.Log.Info("an import ended", "organization", t.Org.Slug, "import", job.ID, "lines", report.Lines, "failed", report.Failed, "state", state)
}

// record writes into the audit log what an import has changed.
func (s *Service) record(ctx context.Context, t *tenants.Tenant, job *Import, report transfer.Report) {
	if job.DryRun || report.Created+report.Updated == 0 {
		return
	}
	facts := map[string]string{"import": job.ID, "created": strconv.Itoa(report.Created), "updated": strconv.Itoa(report.Updated), "failed": strconv.Itoa(report.Failed)}
	if err := s.Audit.Write(ctx, t.Workspace(), audit.Record{Operation: "import", Subject: job.By, Outcome: audit.OK, Facts: facts}); err != nil {
		s.Log.Error("an import could not be recorded in the audit log", "organization", t.Org.Slug, "import", job.ID, "error", err)
	}
}

// turn waits until few enough others are carried out, and says meanwhile that it goes on. An error says
// that the service ends.
func (s *Service) turn(alive func()) error {
	tick := time.NewTicker(silence / 4)
	defer tick.Stop()
	for {
		select {
		case s.slots <- struct{}{}:
			return nil
		case <-tick.C:
			alive()
		case <-s.ctx.Done():
			return s.ctx.Err()
		}
	}
}

// note changes the record. Where that fails the next note is as good.
func (s *Service) note(ctx context.Context, t *tenants.Tenant, id string, change func(*Import)) {
	ctx, cancel := context.WithTimeout(ctx, noteTime)
	defer cancel()
	if _, err := s.kind.In(t.Workspace()).Update(ctx, id, func(i *Import) error { change(i); return nil }); err != nil && s.ctx.Err() == nil {
		s.Log.Warn("how far an import is could not be noted", "organization", t.Org.Slug, "import", id, "error", err)
	}
}
