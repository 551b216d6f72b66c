package bundles

import (
	"context"
	"io"
	"net/http"
	"time"

	"tenantry/backends/api"
	"tenantry/crypto/sealing"
	"tenantry/gateway/transfer"
	"tenantry/internal/fault"
)

// exportOperation is the row that writes an organization as a bundle.
func (s *Service) exportOperation() api.Operation {
	return api.Operation{
		Name: "exports.get", Method: http.MethodGet, Path: "/api/export", Tag: tag, Summary: "Export the organization as a bundle",
		Description: "Answers the lines of a bundle, definitions first. Encrypted values open in this organization alone, unless public_key names a transfer key to which they are sealed. " +
			"Keys, sessions, share links, passwords and the audit log are never part of it. A connection that breaks off before its end says that lines are missing.",
		Credentials: api.Session, Rule: admins(), Audit: api.AuditAlways, Weight: api.Heavy, Timeout: time.Hour,
		Params:  []api.Param{{Name: "public_key", In: api.InQuery, Shape: api.Text, Description: "The public half of a transfer key, as tenantry keyring transfer-key writes it."}},
		Streams: []string{ndjson}, Message: "Export found",
		Data: map[string]any{}, Example: map[string]any{"kind": "contact", "id": "665f1c2ab4d3e2f1a0b9c8d7", "email": "ada@example.com"},
		Failures: []api.Failure{{Code: http.StatusUnprocessableEntity, Message: "Validation failed: public_key is no transfer key", When: "the key cannot be read"}},
		Handler:  s.export,
	}
}

func (s *Service) export(_ context.Context, c *api.Call) (api.Result, error) {
	var o transfer.ExportOptions
	if c.Query.Has("public_key") {
		key, err := sealing.ParseTransferPublicKey(c.Query.Text("public_key"))
		if err != nil {
			return api.Result{}, fault.One("public_key", fault.Format, "public_key is no transfer key")
		}
		o.SealTo = key
		c.Note("secrets_sealed_to", key.KeyID())
	}
	c.Header.Set("Content-Disposition", `attachment; filename="`+c.Tenant.Org.Slug+`.ndjson"`)
	return api.Result{Stream: func(ctx context.Context, w io.Writer) error {
		report, err := s.Transfer().Export(ctx, c.Tenant, w, o)
		s.Log.InfoContext(ctx, "an export ended", "organization", c.Tenant.Org.Slug, "lines", report.Lines, "ok", err == nil)
		return err
	}}, nil
}
