package control

import (
	"context"
	"time"
)

// AuditRecord is an entry of an organization's audit log.
type AuditRecord struct {
	At        time.Time         `json:"at"`
	Operation string            `json:"operation"`
	Subject   string            `json:"subject"`
	Account   string            `json:"account,omitempty"` // the service account of a key
	Address   string            `json:"address,omitempty"` // where the caller was; none of a command
	Outcome   string            `json:"outcome"`           // ok, failed or denied
	Code      int               `json:"code,omitempty"`
	RequestID string            `json:"request_id,omitempty"`
	Facts     map[string]string `json:"facts"`
}

// ListAudit returns entries of the audit log, the latest first.
func (c *Client) ListAudit(ctx context.Context, r Page) (List[AuditRecord], error) {
	return call[List[AuditRecord]](ctx, c, "audit/list", r)
}

func (h *handler) listAudit(ctx context.Context, r *Page) (List[AuditRecord], error) {
	t, err := h.tenant(ctx, r.Org)
	if err != nil {
		return List[AuditRecord]{}, err
	}
	limit := pageLimit(r.Limit)
	found, err := h.Audit.Recent(ctx, t.Workspace(), limit+1, r.Offset)
	if err != nil {
		return List[AuditRecord]{}, err
	}
	out := List[AuditRecord]{Items: []AuditRecord{}, More: len(found) > limit}
	for _, rec := range found[:min(limit, len(found))] {
		out.Items = append(out.Items, AuditRecord{
			At: when(rec.CreatedAt), Operation: rec.Operation, Subject: rec.Subject, Account: rec.Account, Address: rec.Remote, Outcome: rec.Outcome, Code: rec.Code,
			RequestID: rec.RequestID, Facts: table(rec.Facts),
		})
	}
	return out, nil
}
