package imports

import (
	"context"
	"io"
	"net/http"
	"time"

	"tenantry/crypto/sealing"
	"tenantry/internal/fault"
	"tenantry/modules/imports/bundle"
	"tenantry/operation"
)

// exportOperation returns the row that writes an organization as a bundle.
func (s *Service) exportOperation() operation.Row {
	return operation.Row{
		Name: "exports.get", Method: http.MethodGet, Path: "/api/export",
		Policy: operation.Policy{
			Credentials: operation.Session, Rule: admins(), Audit: operation.AuditAlways,
			Weight: operation.Heavy, Timeout: time.Hour,
		},
		Request: operation.Request{
			Params: []operation.Param{{
				Name: "public_key", In: operation.InQuery, Shape: operation.Text,
				Description: "The public half of a transfer key, as written by tenantry keyring transfer-key.",
			}, {
				Name: "files", In: operation.InQuery, Shape: operation.Boolean,
				Description: "Answers a zip archive of the bundle and the bytes of its files.",
			}},
		},
		Response: operation.Response{
			Streams: []string{ndjson, zipType}, Message: "Export found",
			Data:    map[string]any{},
			Example: map[string]any{"kind": "contact", "id": "665f1c2ab4d3e2f1a0b9c8d7", "email": "ada@example.com"},
			Failures: []operation.Failure{{
				Code: http.StatusUnprocessableEntity, Message: "Validation failed: public_key is not a transfer key",
				When: "the key cannot be read",
			}},
		},
		Docs: operation.Docs{
			Tag: tag, Summary: "Export the organization as a bundle",
			Description: "Answers the lines of a bundle, definitions first. Encrypted values can only be opened in this " +
				"organization, unless they are sealed to the transfer key in public_key. " +
				"With files=true it answers a zip archive: bundle.ndjson, and files/HASH for the bytes of each file that are kept here. " +
				"If bytes are missing, the answer breaks off, and the archive cannot be opened. " +
				"Keys, sessions, share links, passwords and the audit log are never part of it. If the connection breaks off, lines are missing.",
		},
		Handler: s.export,
	}
}

func (s *Service) export(_ context.Context, c *operation.Call) (operation.Result, error) {
	var o bundle.ExportOptions
	if c.Query.Has("public_key") {
		key, err := sealing.ParseTransferPublicKey(c.Query.Text("public_key"))
		if err != nil {
			return operation.Result{}, fault.One("public_key", fault.Format, "public_key is not a transfer key")
		}
		o.SealTo = key
		c.Note("secrets_sealed_to", key.KeyID())
	}
	var errs fault.List
	o.Files = c.Query.Bool(&errs, "files", false)
	if err := errs.Err(); err != nil {
		return operation.Result{}, err
	}
	suffix, media := ".ndjson", ndjson
	if o.Files {
		suffix, media = ".zip", zipType
		c.Note("files", "true")
	}
	c.Header.Set("Content-Disposition", `attachment; filename="`+c.Tenant.Org.Slug+suffix+`"`)
	return operation.Result{Media: media, Stream: func(ctx context.Context, w io.Writer) error {
		report, err := s.Transfer().Export(ctx, c.Tenant, w, o)
		s.Log.InfoContext(ctx, "an export ended", "organization", c.Tenant.Org.Slug, "lines", report.Lines, "ok", err == nil)
		return err
	}}, nil
}
