package audit

import (
	"context"
	"errors"
	"net/http"

	"golang.org/x/mod/sumdb/tlog"

	"tenantry/backends/store"
	"tenantry/internal/fault"
	"tenantry/internal/texts"
	"tenantry/internal/together"
	"tenantry/operation"
	"tenantry/tenants"
)

// Head is the last head of a log.
type Head struct {
	Head *string  `json:"head" doc:"The head: a signed note with the text of a C2SP checkpoint. Null until there is one."`
	Size int64    `json:"size" doc:"Number of records in the tree."`
	Root *string  `json:"root" doc:"Hash of the tree, in base64; null until there is a head."`
	At   *string  `json:"at" doc:"When it was signed; null until there is one."`
	Keys []string `json:"keys" doc:"The keys that verify heads of this log, in the format of signed notes, the newest first."`
}

// Proof shows that a record is in the tree of a head.
type Proof struct {
	Record string   `json:"record" doc:"Identifier of the record."`
	Index  int64    `json:"index" doc:"Number of its leaf, from 0."`
	Size   int64    `json:"size" doc:"Number of leaves of the tree."`
	Leaf   string   `json:"leaf" doc:"Hash of its leaf, in base64: SHA-256 of a zero byte and the line of the record in an export."`
	Hashes []string `json:"hashes" doc:"The other hashes on the way to the root, from the leaf upwards, in base64: the inclusion proof of RFC 6962."`
	Head   string   `json:"head" doc:"The head whose root they lead to."`
}

// Extension says whether the log continues one of its earlier heads.
type Extension struct {
	Extends bool     `json:"extends" doc:"Whether the log still has every record that it had then, in the same order."`
	What    string   `json:"what" doc:"How it differs; empty if it does not. shrunk: records at its end are gone; forked: some of the records of then were changed, removed or replaced." example:"shrunk"`
	Earlier int64    `json:"earlier" doc:"Number of records that the earlier head has."`
	Size    int64    `json:"size" doc:"Number of records that the last head has."`
	Last    *string  `json:"last" doc:"Identifier of the record at the end of the tree; null: it is empty. If the log shrank, those that followed it are gone."`
	LastAt  *string  `json:"last_at" doc:"When that record was made, if the log shrank."`
	Hashes  []string `json:"hashes" doc:"The consistency proof of RFC 6962 between the two, in base64."`
	Head    *string  `json:"head" doc:"The last head; null: there is none."`
}

const (
	recordMissing = "Audit Record not found"
	notCovered    = "The record is not in the tree yet; records enter it within a minute"
	wasChanged    = "The record is not what it was when it entered the tree"
)

func exampleHead() string {
	return "tenantry/9f1c2b3a4d5e6f708192a3b4c5d6e7f8/7\n4210\nIuN5pqfOcVvy5fmTrrwDkmaLpZQ0DV3eYzvpnKa4nFQ=\n\n" +
		"— tenantry/9f1c2b3a4d5e6f708192a3b4c5d6e7f8/7 " +
		"WtRjHqGv0TnU5b1mYkq1Z3J6d8cV2sXo9LrNfPeQhBwKaDgMiSuEtOyRxCzIl4p7AvWjFbGnHkUo0T5d2e8q3r6s1w==\n"
}

// Operations returns the rows.
func (h *Heads) Operations() []operation.Row {
	policy := operation.Policy{
		Credentials: operation.Key, Kinds: operation.ServerKeys, // programs keep heads, and pages would show hashes
		Rule: operation.Needs(tenants.ViewAudit).Unlimited(), Reads: true,
	}
	head, root, at := exampleHead(), "IuN5pqfOcVvy5fmTrrwDkmaLpZQ0DV3eYzvpnKa4nFQ=", "2026-11-22T10:00:00.000Z"
	last := "665f1c2ab4d3e2f1a0b9c8e1"
	return []operation.Row{
		operation.Typed(operation.Row{
			Name: "audit.head", Method: http.MethodGet, Path: "/api/audit/head", Policy: policy,
			Response: operation.Response{
				Message: "Audit Head found",
				Example: Head{Head: &head, Size: 4210, Root: &root, At: &at, Keys: []string{
					"tenantry/9f1c2b3a4d5e6f708192a3b4c5d6e7f8/7+5ad4631e+ATYxZmQ3ZjQ4MmE1YzE3ZTkwMWI0ZDYzODJmYTc5YmU",
				}},
			},
			Docs: operation.Docs{
				Tag: "Audit", Summary: "Get the head of the audit log",
				Description: "Answers the last head: the number of records in the log and the root of the Merkle tree over " +
					"them, signed by the installation. Keep heads outside the installation: the log must continue each of them. " +
					"A head follows within a minute of a record.",
			},
		}, func(ctx context.Context, c *operation.Call, _ struct{}) (Head, error) { return h.Head(ctx, c.Tenant) }),
		operation.Typed(operation.Row{
			Name: "audit.proof", Method: http.MethodGet, Path: "/api/audit/{id}/proof", Policy: policy,
			Response: operation.Response{
				Message: "Audit Proof found",
				Example: Proof{
					Record: last, Index: 4100, Size: 4210, Leaf: root, Hashes: []string{root}, Head: head,
				},
				Failures: []operation.Failure{
					{Code: http.StatusNotFound, Message: recordMissing, When: "there is no such record"},
					{Code: http.StatusConflict, Message: notCovered, When: "the record was written less than a minute ago, or past the gateway"},
					{Code: http.StatusConflict, Message: wasChanged, When: "the record or the tree was changed in the database"},
				},
			},
			Docs: operation.Docs{
				Tag: "Audit", Summary: "Prove that a record is in the audit log",
				Description: "Answers a proof that the record is in the tree of the last head, of less than 2 KB. It can be checked without this API.",
			},
		}, func(ctx context.Context, c *operation.Call, in proofInput) (Proof, error) {
			return h.Prove(ctx, c.Tenant, in.ID)
		}),
		operation.Typed(operation.Row{
			Name: "audit.extension", Method: http.MethodGet, Path: "/api/audit/extension", Policy: policy,
			Response: operation.Response{
				Message: "Audit Log compared",
				Example: Extension{
					Extends: true, Earlier: 4100, Size: 4210, Last: &last, Hashes: []string{root}, Head: &head,
				},
			},
			Docs: operation.Docs{
				Tag: "Audit", Summary: "Compare the audit log with an earlier head",
				Description: "Says whether the log still has every record that it had when an earlier head was signed, in the same order.",
			},
		}, func(ctx context.Context, c *operation.Call, in extensionInput) (Extension, error) {
			return h.Extends(ctx, c.Tenant, in.Head)
		}),
	}
}

type proofInput struct {
	ID string `json:"id" doc:"Identifier of the record." example:"665f1c2ab4d3e2f1a0b9c8e1"`
}

type extensionInput struct {
	Head string `json:"head" rule:"required max=2000" doc:"An earlier head, as it was answered, with its line breaks." example:"tenantry/9f1c2b3a4d5e6f708192a3b4c5d6e7f8/7"`
}

// Head returns the last head of a log. Errors: store.ErrUnavailable, those of the installation's data keys.
func (h *Heads) Head(ctx context.Context, t *tenants.Tenant) (Head, error) {
	keys, err := h.keysOf(ctx, t)
	if err != nil {
		return Head{}, err
	}
	out := Head{Keys: make([]string, len(keys))}
	for i, key := range keys {
		out.Keys[i] = key.public
	}
	last, err := h.last(ctx, t, keys)
	if err != nil || last.Text == "" {
		return out, err
	}
	root, at := last.tree.Hash.String(), texts.Time(last.UpdatedAt)
	out.Head, out.Size, out.Root, out.At = &last.Text, last.tree.N, &root, &at
	return out, nil
}

// Prove returns a proof that the record is in the tree of the last head. Errors: *operation.Problem if there is no such
// record, or no proof; store.ErrUnavailable, those of the installation's data keys.
func (h *Heads) Prove(ctx context.Context, t *tenants.Tenant, id string) (Proof, error) {
	keys, err := h.keysOf(ctx, t)
	if err != nil {
		return Proof{}, err
	}
	var rec *Record
	var last *signedHead
	err = together.Do(t.Workspace().Remote(), func() (err error) {
		rec, err = h.log.kind.In(t.Workspace()).Get(ctx, id)
		return operation.OrMissing(err, recordMissing)
	}, func() (err error) {
		last, err = h.last(ctx, t, keys)
		return err
	})
	if err != nil {
		return Proof{}, err
	}
	stored := h.log.tree.open(t.Workspace())
	index, err := stored.find(ctx, rec)
	if err != nil {
		return Proof{}, err
	}
	if index < 0 || index >= last.tree.N {
		return Proof{}, &operation.Problem{Code: http.StatusConflict, Message: notCovered}
	}
	hash, err := rec.leafHash()
	if err != nil {
		return Proof{}, err
	}
	proof, err := tlog.ProveRecord(last.tree.N, index, stored.reader(ctx))
	if err == nil {
		err = tlog.CheckRecord(proof, last.tree.N, last.tree.Hash, index, hash)
	}
	if errors.Is(err, store.ErrUnavailable) {
		return Proof{}, err
	}
	if err != nil {
		return Proof{}, &operation.Problem{Code: http.StatusConflict, Message: wasChanged, Err: err}
	}
	return Proof{
		Record: rec.ID, Index: index, Size: last.tree.N, Leaf: hash.String(), Hashes: base64s(proof), Head: last.Text,
	}, nil
}

// base64s returns hashes as text.
func base64s(all []tlog.Hash) []string {
	out := make([]string, len(all))
	for i, hash := range all {
		out[i] = hash.String()
	}
	return out
}

// Extends compares the log with an earlier head. Errors: a fault of head if this installation did not sign it for this
// log; store.ErrUnavailable, those of the installation's data keys.
func (h *Heads) Extends(ctx context.Context, t *tenants.Tenant, head string) (Extension, error) {
	out := Extension{Hashes: []string{}}
	keys, err := h.keysOf(ctx, t)
	if err != nil {
		return out, err
	}
	earlier, _, err := openHead(head, h.origin(t), keys)
	if err != nil {
		return out, fault.One("head", "format", "head must be a head that this installation signed for this log")
	}
	last, err := h.last(ctx, t, keys)
	if err != nil {
		return out, err
	}
	out.Earlier, out.Size = earlier.N, last.tree.N
	stored := h.log.tree.open(t.Workspace())
	if last.tree.N > 0 {
		out.Head = &last.Text
		if out.Last, err = stored.lastRecord(ctx, last.tree.N); err != nil {
			return out, err
		}
	}
	if last.tree.N < earlier.N {
		out.What = "shrunk"
		return out, h.tellTime(ctx, t, &out)
	}
	now, proof, err := stored.extends(ctx, last.tree.N, earlier)
	switch {
	case errors.Is(err, errTree), errors.Is(err, errForked), err == nil && now.Hash != last.tree.Hash:
		out.What = "forked"
	case err != nil:
		return out, err
	default:
		out.Extends, out.Hashes = true, base64s(proof)
	}
	return out, nil
}

// lastRecord returns the identifier of the record at the end of a tree of that size; nil: its leaf is not stored.
func (s *tiles) lastRecord(ctx context.Context, size int64) (*string, error) {
	at := tlog.Tile{H: tileHeight, N: (size - 1) / tileWidth, W: 1}
	if err := s.load(ctx, []tlog.Tile{at}); err != nil {
		return nil, err
	}
	i := int((size - 1) % tileWidth)
	if tile := s.leaves[at.N]; i < len(tile.Records) {
		return &tile.Records[i], nil
	}
	return nil, nil
}

// tellTime sets when the last record was made, if it is still there.
func (h *Heads) tellTime(ctx context.Context, t *tenants.Tenant, out *Extension) error {
	if out.Last == nil {
		return nil
	}
	rec, err := h.log.kind.In(t.Workspace()).Get(ctx, *out.Last)
	if errors.Is(err, store.ErrNotFound) {
		return nil
	}
	if err != nil {
		return err
	}
	made := texts.Time(rec.CreatedAt)
	out.LastAt = &made
	return nil
}
