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

// Seals reveal changes to the audit log that were not made by the gateway: without the keyring, write access to the
// database is not enough to make a valid seal. Records are sealed in batches some time after they were written, so
// that no call waits for it. Safe for concurrent use, by several replicas.
type Seals struct {
	log  *Log
	keys secrets.Keys
	now  func() time.Time
	most int // how many records a call compares
}

// seal covers the records that were made in [From, Until). Seals follow each other without a gap.
type seal struct {
	store.Meta
	Number  int64  `json:"number"` // from 1
	From    int64  `json:"from"`   // Unix ms
	Until   int64  `json:"until"`  // Unix ms
	Records int    `json:"records"`
	Before  string `json:"before"` // SHA-256 of the Mark of the seal before
	Mark    string `json:"mark"`   // SHA-256 of the other members and of the records, encrypted for this seal alone
}

const (
	sealCollection = "audit_seals"
	// sealGrace is longer than it takes to store a record after its time was set, and than the clocks of replicas differ.
	sealGrace   = 15 * time.Minute
	sealRecords = 10_000 // of one seal
	perPage     = 1000
	perCall     = 50_000          // records; a call then says where to continue
	callTime    = 4 * time.Second // the same bound as a time
	mostFaults  = 100
)

// newSeals declares the record.
func newSeals() *store.Kind[seal] {
	return store.Must[seal](store.Spec{
		Name: sealCollection, Uncounted: true, Fields: []string{"number"},
		Indexes: []store.Index{{Fields: []string{"number"}, Unique: true}},
		Access:  []store.Access{{Where: []string{"number"}, Sort: []string{"number"}}, {Sort: []string{"number"}}},
	})
}

// NewSeals returns the Seals of the logs that belong to the owner of keys: an organization or the installation.
func NewSeals(log *Log, keys secrets.Keys, now func() time.Time) *Seals {
	return &Seals{log: log, keys: keys, now: now, most: perCall}
}

// Kept returns what is stored. It is not part of exports, because the seals depend on the keys of this organization in
// this installation.
func (s *Seals) Kept() []record.Kept { return []record.Kept{s} }

// Spec returns the declaration, for the store.
func (s *Seals) Spec() *store.Spec { return s.log.seals.Spec() }

// Seal seals all records that are old enough and not sealed yet, until ctx ends. Errors: store.ErrUnavailable,
// store.ErrConflict, those of the organization's data keys, that of ctx.
func (s *Seals) Seal(ctx context.Context, t *tenants.Tenant) error {
	in := s.log.seals.In(t.Workspace())
	last, err := in.First(ctx, store.Query{Sort: []store.Order{store.Desc("number")}})
	if errors.Is(err, store.ErrNotFound) {
		last, err = &seal{}, nil
	}
	until := s.now().Add(-sealGrace).UnixMilli()
	for err == nil {
		next := &seal{Number: last.Number + 1, From: last.Until, Until: until, Before: chainHash(last)}
		next.ID = t.Workspace().NewID()
		sum := beginSum(next)
		if next.Records, next.Until, err = s.read(ctx, t.Workspace(), next, sealRecords, sum); err != nil || next.Records == 0 {
			return err
		}
		if next.Until <= next.From { // a changed record has another time than the one it was found by
			return fmt.Errorf(
				"seal the audit log: seal %d cannot advance past %s; a record there has been changed", next.Number,
				texts.Time(next.From),
			)
		}
		if next.Mark, err = s.vault(t).Seal(ctx, sealPlace(next), "mark", endSum(sum, next)); err != nil {
			return fmt.Errorf("sealing the audit log: %w", err)
		}
		err = in.Insert(ctx, next)
		last = next
	}
	if dup := new(store.DuplicateError); errors.As(err, &dup) { // another replica is sealing
		return store.ErrConflict
	}
	return err
}

func (s *Seals) vault(t *tenants.Tenant) *secrets.Vault {
	return &secrets.Vault{Keys: s.keys, Tenant: t}
}

func sealPlace(of *seal) secrets.Place {
	return secrets.Place{Collection: sealCollection, Record: of.ID}
}

// chainHash returns the Before of the seal that follows last.
func chainHash(last *seal) string {
	if last.Number == 0 {
		return ""
	}
	sum := sha256.Sum256([]byte(last.Mark))
	return hex.EncodeToString(sum[:])
}

// read adds the records of a seal's time to sum, in order, and returns how many there are. If there are more than
// most, it ends between two records with different times and returns the later time.
func (s *Seals) read(
	ctx context.Context, ws *store.Workspace, of *seal, most int, sum hash.Hash,
) (n int, until int64, err error) {
	in, last := s.log.kind.In(ws), Record{Meta: store.Meta{CreatedAt: of.From}}
	for same := 0; ; {
		page, err := in.Find(ctx, store.Query{
			Filter: store.Where(store.F("created_at"), store.OpGte, last.CreatedAt), Sort: []store.Order{
				store.Asc("created_at"), store.Asc("id"),
			},
			Limit: perPage, Offset: same, LeaveOut: true,
		})
		if err != nil || len(page) == 0 { // a short page may lack unreadable records
			return n, of.Until, err
		}
		before := n
		for i := range page {
			rec := &page[i]
			switch later := rec.CreatedAt > last.CreatedAt; {
			case rec.CreatedAt >= of.Until:
				return n, of.Until, nil
			case !later && rec.ID <= last.ID: // an unreadable record has shifted the offset
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

// beginSum begins the sum over a seal and its records.
func beginSum(of *seal) hash.Hash {
	sum := sha256.New()
	words(sum, "tenantry audit seal 1", of.Before)
	numbers(sum, of.Number, of.From)
	return sum
}

// endSum ends the sum with the end of the seal, which is known only once its records are read.
func endSum(sum hash.Hash, of *seal) string {
	numbers(sum, of.Until, int64(of.Records))
	return hex.EncodeToString(sum.Sum(nil))
}

// write adds every field of a record to sum. The fields and their order are part of existing seals: further fields
// must come at the end, and only if they are set.
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

type verifyInput struct {
	After int64 `json:"after" rule:"min=0" default:"0" doc:"Number of the seal after which to begin: next of the answer before." example:"0"`
}

// Verification says whether the audit log is still as it was sealed.
type Verification struct {
	Intact   bool    `json:"intact" doc:"Whether all compared records agree with their seals."`
	Records  int     `json:"records" doc:"Number of records compared with their seals."`
	From     *string `json:"from" doc:"When the first of the compared seals begins; null if there was none, or if it begins with the log."`
	Until    *string `json:"until" doc:"When the last of them ends; null if there was none."`
	Faults   []Fault `json:"faults" doc:"What differs, at most 100."`
	Unsealed int64   `json:"unsealed" doc:"Number of records that are not sealed yet, from about the last hour. Counted when the last seal has been compared."`
	Next     *int64  `json:"next" doc:"What to send as after to continue; null: all seals were compared."`
}

// Add appends the verification of the seals that follow.
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

// Fault is a seal that the log does not agree with.
type Fault struct {
	Seal   int64  `json:"seal" doc:"Its number."`
	From   string `json:"from" doc:"When it begins."`
	Until  string `json:"until" doc:"When it ends."`
	Sealed int    `json:"sealed" doc:"Number of records sealed."`
	Found  int    `json:"found" doc:"Number of records found."`
	What   string `json:"what" doc:"removed or added: there are fewer or more records than were sealed; changed: there are as many, but not the same; seal: the seal was not made by this gateway for this organization, or does not continue the one before it; missing: seals before it are gone."`
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
			Example: Verification{
				Intact: true, Records: 4210, From: &from, Until: &until, Faults: []Fault{}, Unsealed: 12,
			},
		},
		Docs: operation.Docs{
			Tag: "Audit", Summary: "Verify the audit log",
			Ask: "Checks whether records of the audit log were changed, added or removed in the database.",
			Description: "Compares the audit log with its seals. About once an hour, records older than 15 minutes are " +
				"sealed with a key of the organization, " +
				"which reveals records that were changed, added or removed in the database. Compares about 50,000 records and says where to continue.",
		},
	}, s.verify)}
}

func (s *Seals) verify(ctx context.Context, c *operation.Call, from verifyInput) (Verification, error) {
	return s.Verify(ctx, c.Tenant, from.After)
}

// Verify compares the log with the seals after that number, up to the records and the time of one call. Error:
// store.ErrUnavailable.
func (s *Seals) Verify(ctx context.Context, t *tenants.Tenant, after int64) (Verification, error) {
	ws, began := t.Workspace(), time.Now()
	in, out := s.log.seals.In(ws), Verification{Faults: []Fault{}}
	last := &seal{}
	if after > 0 {
		found, err := in.First(ctx, store.Query{Filter: store.Eq("number", after)})
		if err == nil {
			last = found
		} else if last.Number = after - 1; !errors.Is(err, store.ErrNotFound) { // that seal itself is missing
			return out, err
		}
	}
	for {
		page, err := in.Find(ctx, store.Query{
			Filter: store.Where(store.F("number"), store.OpGt, last.Number), Sort: []store.Order{store.Asc("number")},
			Limit: perPage, LeaveOut: true,
		})
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
				out.Faults = append(out.Faults, Fault{
					one.Number, texts.Time(one.From), texts.Time(one.Until), one.Records, found, what,
				})
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

// compare returns how the log differs from a seal, "" if it does not, and how many records were found.
func (s *Seals) compare(
	ctx context.Context, t *tenants.Tenant, ws *store.Workspace, last, one *seal,
) (what string, found int, err error) {
	sum := beginSum(one)
	found, _, err = s.read(ctx, ws, one, one.Records+perPage, sum) // counting some of the added records is enough
	if err != nil {
		return "", found, err
	}
	mark, err := s.vault(t).Open(ctx, sealPlace(one), "mark", one.Mark)
	switch {
	case err != nil && !errors.Is(err, fields.ErrCorrupt):
		return "", found, err
	case one.Number != last.Number+1:
		return "missing", found, nil
	case err != nil, one.From != last.Until, one.Before != chainHash(last):
		return "seal", found, nil
	case found < one.Records:
		return "removed", found, nil
	case found > one.Records:
		return "added", found, nil
	case endSum(sum, one) != mark.Reveal():
		return "changed", found, nil
	}
	return "", found, nil
}
