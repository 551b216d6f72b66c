package reports

import (
	"context"
	"fmt"
	"net/http"
	"time"

	"tenantry/internal/fault"
	"tenantry/internal/texts"
	"tenantry/operation"
	"tenantry/tenants"
)

// Share is a new share token.
type Share struct {
	ID        string `json:"id" doc:"The token's identifier, for lists and revoking"`
	Token     string `json:"token" doc:"The token; it is shown only this once"`
	URL       string `json:"url" doc:"The shared report page with the token"`
	ExpiresAt string `json:"expires_at" doc:"RFC 3339, UTC, milliseconds"`
}

// maintained returns the report that the path names if the caller may see everything that it and its children show. what
// completes the refusal: "shared", "changed".
func (m *Module) maintained(ctx context.Context, c *operation.Call, what string) (*Report, error) {
	r, err := m.byID(ctx, c)
	if err != nil {
		return nil, err
	}
	entitled, err := m.entitled(ctx, c.Tenant, c.Principal, r)
	if err == nil && !entitled[0] {
		err = showsMore(what)
	}
	return r, err
}

// showsMore refuses a caller who is limited to teams because a report shows more than these.
func showsMore(what string) error { return fault.One("teams", fault.Forbidden, moreThanTeams, what) }

// shareable returns the report that the path names, if the caller may share it.
func (m *Module) shareable(ctx context.Context, c *operation.Call) (*Report, error) {
	r, err := m.maintained(ctx, c, "shared")
	if err == nil && !r.CanShare() {
		err = fault.One("shareable", fault.Forbidden, notShareable)
	}
	return r, err
}

// revocable returns the report that the path names, if the caller may revoke its share tokens.
func (m *Module) revocable(ctx context.Context, c *operation.Call) (*Report, error) {
	return m.maintained(ctx, c, "changed")
}

type shareInput struct {
	Params    map[string]any `json:"params" doc:"Values of locked inputs of the report or its children, by name: strings, numbers, true or false." ask:"Fixed values|A link shows the report with these.|locked" example:"{\"region\":\"EMEA\"}"`
	ExpiresIn int64          `json:"expires_in" rule:"min=1 max=31536000" default:"3600" doc:"Lifetime in seconds, from 1 to 31536000; default 3600." ask:"Lasts||span" example:"3600"`
}

func (m *Module) share(ctx context.Context, c *operation.Call, r *Report, in shareInput) (*Share, error) {
	token, id, ends, err := m.Issue(ctx, c.Tenant, r, c.Principal.Subject(), in.Params, time.Duration(in.ExpiresIn)*time.Second)
	if err != nil {
		return nil, err
	}
	c.Undo = func(ctx context.Context) error { return m.RevokeToken(ctx, c.Tenant, r, id) }
	c.Header.Set("Cache-Control", "no-store")
	c.Note("report", r.ID)
	c.Note("token_id", id)
	return &Share{
		ID: id, Token: token, URL: shareURL(c.BaseURL, r.PID) + "?token=" + token,
		ExpiresAt: ends.Format(texts.TimeLayout),
	}, nil
}

// IssuedShare is a valid share token in lists.
type IssuedShare struct {
	ID        string `json:"id" doc:"The token's identifier"`
	CreatedAt string `json:"created_at" doc:"RFC 3339, UTC, milliseconds"`
	ExpiresAt string `json:"expires_at" doc:"RFC 3339, UTC, milliseconds"`
	IssuedBy  string `json:"issued_by" doc:"Who issued it: user:<id> or key:<id>"`

	Params map[string]any `json:"params" doc:"The values of locked inputs; empty for a caller limited to teams if the report shows more, and for tokens of versions that did not store them"`
}

// SharePage is a page of a report's share tokens.
type SharePage operation.Part[IssuedShare]

type sharesInput struct{ operation.ByTime }

func (m *Module) listShares(
	ctx context.Context, c *operation.Call, r *Report, in sharesInput,
) (out SharePage, err error) {
	of, err := m.validFilter(ctx, c.Tenant, r)
	if err != nil {
		return out, err
	}
	q, follows, err := in.Query(c, of)
	if err != nil {
		return out, err
	}
	entitled, err := m.entitled(ctx, c.Tenant, c.Principal, r)
	if err != nil {
		return out, err
	}
	page, count, err := m.Issued.In(c.Workspace).Page(ctx, q, of)
	if err != nil {
		return out, err
	}
	found := page.Records
	shares := make([]IssuedShare, len(found))
	for i, s := range found {
		shares[i] = IssuedShare{
			ID: s.TokenID, Params: map[string]any{}, CreatedAt: texts.Time(s.CreatedAt),
			ExpiresAt: time.Unix(s.Expires, 0).UTC().Format(texts.TimeLayout), IssuedBy: s.By,
		}
		if entitled[0] && s.Params != nil {
			shares[i].Params = s.Params
		}
	}
	part, err := operation.PartOf(c, in.Following, follows, count, shares, page.Left, page.Cut, func(last int) string {
		return in.Position(&found[last].Meta)
	})
	return SharePage(part), err
}

// Revoked says which tokens are void.
type Revoked struct {
	ID      string `json:"id" doc:"Identifier of the report"`
	TokenID string `json:"token_id,omitempty" doc:"The token, if only one was revoked"`
}

func (m *Module) revokeAll(ctx context.Context, c *operation.Call, r *Report, _ struct{}) (*Revoked, error) {
	c.Note("report", r.ID)
	return &Revoked{ID: r.ID}, m.RevokeAll(ctx, c.Tenant, r.PID)
}

type revokeInput struct {
	TokenID string `json:"token_id" doc:"The token's identifier, as sharing and the list of shares answer it; it is the token's jti claim." example:"0-1N9lXo4VjYwq2bTt0cJ8sKfZgRm"`
}

func (m *Module) revokeOne(ctx context.Context, c *operation.Call, r *Report, in revokeInput) (*Revoked, error) {
	if !plainText(in.TokenID) {
		return nil, operation.NotFound("Share not found")
	}
	c.Note("report", r.ID)
	c.Note("token_id", in.TokenID)
	return &Revoked{ID: r.ID, TokenID: in.TokenID}, m.RevokeToken(ctx, c.Tenant, r, in.TokenID)
}

func (m *Module) shareOperation() operation.Row {
	return on(operation.Row{
		Name: "reports.share", Method: http.MethodPost, Path: "/api/custom-reports/{id}/share",
		Policy: operation.Policy{
			Kinds: operation.ServerFull, Rule: operation.Needs(tenants.ManageReports),
			Audit: operation.AuditAlways,
		},
		Request: operation.Request{BodyLimit: 64 << 10},
		Response: operation.Response{
			Once:    true,
			Message: "Share created",
			Example: Share{
				ID: exampleTokenID, Token: "<TOKEN>", URL: "https://acme.example.com/shared/reports/" + examplePID + "?token=<TOKEN>", ExpiresAt: "2026-03-01T10:30:00.000Z",
			},
			Failures: []operation.Failure{operation.Refuses(http.StatusUnprocessableEntity, "the input is not acceptable, "+
				"the report is not shareable, or it shows more than the caller's teams",
				"shareable", fault.Forbidden, notShareable)},
		},
		Target: operation.Target{Action: operation.ShareAction},
		Docs: operation.Docs{
			Summary: "Issue a share token", Verb: "Share", Page: "reports.list_shares",
			Description: "Issues a token that lets its holder read the shared report with the given values of locked inputs. " +
				"A locked input that is not given takes the report's own value; if the report has none, it is required.",
		},
	}, m.shareable, m.share)
}

func (m *Module) listSharesOperation() operation.Row {
	return on(operation.Row{
		Name: "reports.list_shares", Method: http.MethodGet, Path: "/api/custom-reports/{id}/shares",
		Policy: operation.Policy{Kinds: operation.ServerKeys, Rule: operation.Needs(tenants.ManageReports)},
		Response: operation.Response{
			Message: "Shares found",
			Example: SharePage(operation.OnePage(IssuedShare{
				ID: exampleTokenID, CreatedAt: "2026-03-01T09:30:00.000Z", ExpiresAt: "2026-03-01T10:30:00.000Z", IssuedBy: "user:7", Params: map[string]any{"region": "EMEA"},
			})),
			Failures: []operation.Failure{{
				Code: http.StatusUnprocessableEntity, Message: "Validation failed: sort must be created_at or -created_at", When: "a parameter has an unacceptable value",
			}},
		},
		Docs: operation.Docs{
			Summary: "List the share tokens of a report", Title: "Share tokens of a report",
			Description: "Lists the valid tokens of the report, without their text. " +
				"Tokens of versions that did not store them are missing.",
		},
	}, m.byID, m.listShares)
}

// notWhole documents the refusal of revocable.
func notWhole() operation.Failure {
	return operation.Refuses(
		http.StatusUnprocessableEntity, "the report, or a child of it, shows more than the caller's teams", "teams",
		fault.Forbidden, fmt.Sprintf(moreThanTeams, "changed"),
	)
}

func (m *Module) revokeAllOperation() operation.Row {
	return on(operation.Row{
		Name: "reports.revoke_shares", Method: http.MethodDelete, Path: "/api/custom-reports/{id}/shares",
		Policy: operation.Policy{
			Kinds: operation.ServerFull, Rule: operation.Needs(tenants.ManageReports),
			Audit: operation.AuditAlways,
		},
		Response: operation.Response{
			Message: "Share deleted", Example: Revoked{ID: exampleID},
			Failures: []operation.Failure{notWhole()},
		},
		Docs: operation.Docs{
			Summary: "Revoke all share tokens of a report", Verb: "Revoke shares",
			Description: "Voids every share token issued for the report so far, at once. Tokens issued later are valid.",
		},
	}, m.revocable, m.revokeAll)
}

func (m *Module) revokeOperation() operation.Row {
	return on(operation.Row{
		Name: "reports.revoke_share", Method: http.MethodDelete,
		Path: "/api/custom-reports/{id}/shares/{token_id}",
		Policy: operation.Policy{
			Kinds: operation.ServerFull, Rule: operation.Needs(tenants.ManageReports),
			Audit: operation.AuditAlways,
		},
		Response: operation.Response{
			Message: "Share deleted", Example: Revoked{ID: exampleID, TokenID: exampleTokenID},
			Failures: []operation.Failure{
				{
					Code: http.StatusNotFound, Message: "Share not found",
					When: "no valid or revoked token of the report has that identifier; tokens of versions that did not store them can only be revoked together",
				},
				notWhole(),
			},
		},
		Docs: operation.Docs{
			Summary: "Revoke one share token", Verb: "Revoke share",
			Description: "Voids one share token of the report at once and for good. Revoking it again changes nothing.",
		},
	}, m.revocable, m.revokeOne)
}
