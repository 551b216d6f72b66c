package audit

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"maps"
	"net/http"
	"slices"
	"time"

	"tenantry/backends/record"
	"tenantry/backends/store"
	"tenantry/crypto/fields"
	"tenantry/internal/texts"
	"tenantry/operation"
	"tenantry/tenants"
	"tenantry/tenants/secrets"
)

// Seals make it known where somebody changed, added or removed what the audit log has, by a way other than the gateway:
// who writes to the database and has not the keyring cannot make a seal that opens. Records are sealed some time after
// they were written, in one go for many, so that no call waits for it. Safe for concurrent use, by several replicas.
type Seals struct {
	log  *Log
	keys secrets.Keys
	now  func() time.Time
	most int // records that a call compares
}

// seal is of the records that were made in [From, Until). Seals follow each other without a gap.
type seal struct {
	store.Meta
	Number  int64  `json:"number"` // of the first 1
	From    int64  `json:"from"`   // Unix ms
	Until   int64  `json:"until"`  // Unix ms
	Records int    `json:"records"`
	Before  string `json:"before"` // SHA-256 of the Mark of the one before
	Mark    string `json:"mark"`   // SHA-256 of all of it and of the records, encrypted for this seal alone
}

const (
	sealed = "audit_seals"
	// sealGrace is more than a record needs to be stored once it has its time, and more than the clocks of replicas
	// differ.
	sealGrace   = 15 * time.Minute
	sealRecords = 10_000 // after which another seal begins
	perPage     = 1000
	perCall     = 50_000          // records, after which a call tells where to go on
	callTime    = 4 * time.Second // and so it does after this
	mostFaults  = 100
)

// newSeals declares the record.
func newSeals() *store.Kind[seal] {
	return store.Must[seal](store.Spec{
		Name: sealed, Aside: true, Fields: []string{"number"},
		Indexes: []store.Index{{Fields: []string{"number"}, Unique: true}},
		Access:  []store.Access{{Where: []string{"number"}, Sort: []string{"number"}}, {Sort: []string{"number"}}},
	})
}

// NewSeals returns what seals the logs with keys of whose they are: of an organization, or of the installation.
func NewSeals(log *Log, keys secrets.Keys, now func() time.Time) *Seals {
	return &Seals{log: log, keys: keys, now: now, most: perCall}
}

// Kept returns what is stored. It does not travel: its keys are this organization's, here.
func (s *Seals) Kept() []record.Kept { return []record.Kept{s} }

// Spec returns the declaration, for the store.
func (s *Seals) Spec() *store.Spec { return s.log.seals.Spec() }

// Seal seals what was recorded and is not sealed yet, till ctx ends. Errors: store.ErrUnavailable, store.ErrConflict,
// those of the organization's data keys, that of ctx.
func (s *Seals) Seal(ctx context.Context, t *tenants.Tenant) error {
	in := s.log.seals.In(t.Workspace())
	last, err := in.First(ctx, store.Query{Sort: []store.Order{store.Desc("number")}})
	if errors.Is(err, store.ErrNotFound) {
		last, err = &seal{}, nil
	}
	until := s.now().Add(-sealGrace).UnixMilli()
	for err == nil {
		next := &seal{Number: last.Number + 1, From: last.Until, Until: until, Before: following(last)}
		next.ID = t.Workspace().NewID()
		sum := hashed(next)
		if next.Records, next.Until, err = s.read(ctx, t.Workspace(), next, sealRecords, sum); err != nil || next.Records == 0 {
			return err
		}
		if next.Until <= next.From { // a record that was changed says another time than it is found by
			return fmt.Errorf("seal the audit log: seal %d cannot advance past %s; a record there has been changed", next.Number, texts.Time(next.From))
		}
		if next.Mark, err = s.vault(t).Seal(ctx, place(next), "mark", closed(sum, next)); err != nil {
			return fmt.Errorf("sealing the audit log: %w", err)
		}
		err = in.Insert(ctx, next)
		last = next
	}
	if dup := new(store.DuplicateError); errors.As(err, &dup) { // another replica is at it
		return store.ErrConflict
	}
	return err
}

func (s *Seals) vault(t *tenants.Tenant) *secrets.Vault {
	return &secrets.Vault{Keys: s.keys, Tenant: t}
}

func place(of *seal) secrets.Place { return secrets.Place{Collection: sealed, Record: of.ID} }

// following returns what the seal after that one has as Before.
func following(last *seal) string {
	if last.Number == 0 {
		return ""
	}
	sum := sha256.Sum256([]byte(last.Mark))
	return hex.EncodeToString(sum[:])
}

// read puts the records of a seal's time into sum, in their order, and returns how many there are. Where there are more
// than most, it ends between two that differ in their time, and returns the later one.
func (s *Seals) read(ctx context.Context, ws *store.Workspace, of *seal, most int, sum hash.Hash) (n int, until int64, err error) {
	in, last := s.log.kind.In(ws), Record{Meta: store.Meta{CreatedAt: of.From}}
	for same := 0; ; {
		page, err := in.Find(ctx, store.Query{
			Filter: store.Where(store.F("created_at"), store.OpGte, last.CreatedAt), Sort: []store.Order{store.Asc("created_at"), store.Asc("id")},
			Limit: perPage, Offset: same, LeaveOut: true,
		})
		if err != nil || len(page) == 0 { // a page that is short may lack some that cannot be read
			return n, of.Until, err
		}
		before := n
		for i := range page {
			rec := &page[i]
			switch later := rec.CreatedAt > last.CreatedAt; {
			case rec.CreatedAt >= of.Until:
				return n, of.Until, nil
			case !later && rec.ID <= last.ID: // one that cannot be read has moved it here
				continue
			case later && n >= most:
				return n, rec.CreatedAt, nil
			case later:
				same = 0
			}
			same++
			n++
			rec.write(sum)
			last = *rec
		}
		if n == before {
			return n, of.Until, nil
		}
	}
}

// hashed begins the sum over a seal and its records.
func hashed(of *seal) hash.Hash {
	sum := sha256.New()
	words(sum, "tenantry audit seal 1", of.Before)
	numbers(sum, of.Number, of.From)
	return sum
}

// closed ends it. How far the seal goes is known once its records are.
func closed(sum hash.Hash, of *seal) string {
	numbers(sum, of.Until, int64(of.Records))
	return hex.EncodeToString(sum.Sum(nil))
}

// write puts everything that a record says into sum. What is put in, and in which order, is part of the seals that
// there are: what records say besides in future comes at the end, and where they say it.
func (r *Record) write(sum hash.Hash) {
	words(sum, r.ID, r.Operation, r.Subject, r.Account, r.Remote, r.Outcome, r.RequestID)
	numbers(sum, r.CreatedAt, int64(r.Code), int64(len(r.Records)), int64(len(r.Facts)))
	words(sum, r.Records...)
	for _, name := range slices.Sorted(maps.Keys(r.Facts)) {
		words(sum, name, r.Facts[name])
	}
}

func numbers(sum hash.Hash, all ...int64) {
	var b [8]byte
	for _, n := range all {
		binary.BigEndian.PutUint64(b[:], uint64(n))
		sum.Write(b[:])
	}
}

func words(sum hash.Hash, all ...string) {
	for _, w := range all {
		numbers(sum, int64(len(w)))
		sum.Write([]byte(w))
	}
}

type asked struct {
	After int64 `json:"after" rule:"min=0" default:"0" doc:"Number of the seal after which to begin: next of the answer before." example:"0"`
}

// Verification says whether the audit log is what it was when it was sealed.
type Verification struct {
	Intact   bool    `json:"intact" doc:"Whether nothing differs in what was compared."`
	Records  int     `json:"records" doc:"How many records were compared with their seals."`
	From     *string `json:"from" doc:"When the first of the seals that were compared begins; null where there was none, or it begins with the log."`
	Until    *string `json:"until" doc:"When the last of them ends; null where there was none."`
	Faults   []Fault `json:"faults" doc:"What differs, at most 100."`
	Unsealed int64   `json:"unsealed" doc:"How many records are not sealed yet: those of the last hour or so. Counted with the last seal."`
	Next     *int64  `json:"next" doc:"What to give as after, to go on; null: all seals were compared."`
}

// Add makes it the verification of the seals that followed too.
func (v *Verification) Add(next Verification) {
	v.Intact, v.Records, v.Faults = len(v.Faults)+len(next.Faults) == 0, v.Records+next.Records, append(v.Faults, next.Faults...)
	if v.From == nil && v.Until == nil {
		v.From = next.From
	}
	if next.Until != nil {
		v.Until = next.Until
	}
	v.Unsealed, v.Next = next.Unsealed, next.Next
	v.Faults = v.Faults[:min(len(v.Faults), mostFaults)]
}

// Fault is a seal with which the log does not agree.
type Fault struct {
	Seal   int64  `json:"seal" doc:"Its number."`
	From   string `json:"from" doc:"When it begins."`
	Until  string `json:"until" doc:"When it ends."`
	Sealed int    `json:"sealed" doc:"How many records it was made over."`
	Found  int    `json:"found" doc:"How many there are."`
	What   string `json:"what" doc:"removed or added: there are fewer or more records than were sealed; changed: as many, but not the same; seal: it was not made by this gateway for this place, or follows another than it did; missing: seals before it are gone."`
}

// Operations returns the row.
func (s *Seals) Operations() []operation.Row {
	until, from := "2026-11-22T10:00:00.000Z", "2026-11-01T10:00:00.000Z"
	return []operation.Row{operation.Typed(operation.Row{
		Name: "audit.verify", Method: http.MethodGet, Path: "/api/audit/verification",
		Policy: operation.Policy{
			Credentials: operation.Key | operation.Session, Kinds: operation.ServerKeys,
			Rule: operation.Needs(tenants.ViewAudit).Unlimited(), Weight: operation.Heavy, Reads: true,
		},
		Response: operation.Response{
			Message: "Audit Log verified",
			Example: Verification{Intact: true, Records: 4210, From: &from, Until: &until, Faults: []Fault{}, Unsealed: 12},
		},
		Docs: operation.Docs{
			Tag: "Audit", Summary: "Verify the audit log",
			Ask: "Whether somebody has changed, added or removed records of the audit log.",
			Description: "Compares the audit log with its seals. About once an hour the records that are older than a quarter of an hour are sealed with a key of the organization, " +
				"so that it shows where somebody has changed, added or removed some in the database. Compares some 50,000 records, and says where to go on.",
		},
	}, s.verify)}
}

func (s *Seals) verify(ctx context.Context, c *operation.Call, from asked) (Verification, error) {
	return s.Verify(ctx, c.Tenant, from.After)
}

// Verify compares the log with its seals, from the one that follows the number, for as many records and as long as a
// call may take. Error: store.ErrUnavailable.
func (s *Seals) Verify(ctx context.Context, t *tenants.Tenant, after int64) (Verification, error) {
	ws, began := t.Workspace(), time.Now()
	in, out := s.log.seals.In(ws), Verification{Faults: []Fault{}}
	last := &seal{}
	if after > 0 {
		found, err := in.First(ctx, store.Query{Filter: store.Eq("number", after)})
		if err == nil {
			last = found
		} else if last.Number = after - 1; !errors.Is(err, store.ErrNotFound) { // it is the one that is missing
			return out, err
		}
	}
	for {
		page, err := in.Find(ctx, store.Query{Filter: store.Where(store.F("number"), store.OpGt, last.Number), Sort: []store.Order{store.Asc("number")}, Limit: perPage, LeaveOut: true})
		if err != nil {
			return out, err
		}
		for i := range page {
			one := &page[i]
			what, found, err := s.compare(ctx, t, ws, last, one)
			if err != nil {
				return out, err
			}
			if what != "" && len(out.Faults) < mostFaults {
				out.Faults = append(out.Faults, Fault{one.Number, texts.Time(one.From), texts.Time(one.Until), one.Records, found, what})
			}
			if one.From > 0 && out.From == nil && out.Until == nil {
				text := texts.Time(one.From)
				out.From = &text
			}
			text := texts.Time(one.Until)
			out.Until, out.Records, last = &text, out.Records+found, one
			if out.Records >= s.most || time.Since(began) > callTime {
				out.Next = &one.Number
				break
			}
		}
		if out.Next != nil || len(page) < perPage {
			break
		}
	}
	out.Intact = len(out.Faults) == 0
	if out.Next != nil {
		return out, nil
	}
	var err error
	out.Unsealed, err = s.log.kind.In(ws).Count(ctx, store.Where(store.F("created_at"), store.OpGte, last.Until))
	return out, err
}

// compare returns what differs, "" where nothing does, and how many records were found.
func (s *Seals) compare(ctx context.Context, t *tenants.Tenant, ws *store.Workspace, last, one *seal) (what string, found int, err error) {
	sum := hashed(one)
	found, _, err = s.read(ctx, ws, one, one.Records+perPage, sum) // of those that were added some are enough
	if err != nil {
		return "", found, err
	}
	mark, err := s.vault(t).Open(ctx, place(one), "mark", one.Mark)
	switch {
	case err != nil && !errors.Is(err, fields.ErrCorrupt):
		return "", found, err
	case one.Number != last.Number+1:
		return "missing", found, nil
	case err != nil, one.From != last.Until, one.Before != following(last):
		return "seal", found, nil
	case found < one.Records:
		return "removed", found, nil
	case found > one.Records:
		return "added", found, nil
	case closed(sum, one) != mark.Reveal():
		return "changed", found, nil
	}
	return "", found, nil
}
