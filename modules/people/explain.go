package people

import (
	"context"
	"errors"
	"net/http"
	"strings"

	"tenantry/internal/fault"
	"tenantry/internal/texts"
	"tenantry/operation"
	"tenantry/tenants"
)

// Explanation says whether an operation admits a key or a person.
type Explanation struct {
	Operation string               `json:"operation" doc:"Name of the operation."`
	Subject   string               `json:"subject" doc:"The caller: key:<id> or user:<number>."`
	Allowed   bool                 `json:"allowed" doc:"Whether the call would be admitted."`
	Reasons   []string             `json:"reasons" doc:"Why not, in words; empty if it would be."`
	Held      []tenants.Permission `json:"permissions" doc:"The permissions that the key or the person holds."`
	ByRecord  bool                 `json:"depends_on_record" doc:"Whether the operation also decides by the record, so that a call may be refused nevertheless."`
}

type explainInput struct {
	Operation string `json:"operation" rule:"required max=200" doc:"Name of the operation, such as folders.get." ask:"What they would do" example:"folders.get"`
	Subject   string `json:"subject" rule:"required max=200" doc:"The caller as in the audit log: key:<id> or user:<number>." ask:"Who" example:"user:7"`
}

func (m *Module) explain() operation.Row {
	return operation.Typed(operation.Row{
		Name: "authz.explain", Method: http.MethodGet, Path: "/api/authz/explain",
		Policy: operation.Policy{
			Credentials: operation.Key | operation.Session, Kinds: operation.ServerKeys,
			Rule: operation.Needs(tenants.ManageKeys),
		},
		Response: operation.Response{
			Message: "Explanation found",
			Example: Explanation{
				Operation: "folders.get", Subject: "user:7", Allowed: true, Reasons: []string{},
				Held: []tenants.Permission{tenants.ManageFiles},
			},
			Failures: []operation.Failure{
				{Code: http.StatusNotFound, Message: "Key not found", When: "no such key in this organization"},
				{Code: http.StatusNotFound, Message: "User not found", When: "no such user in this organization"},
				{
					Code: http.StatusUnprocessableEntity, Message: "Validation failed: operation is required",
					When: "there is no such operation, or the subject is malformed",
				},
			},
		},
		Docs: operation.Docs{
			Tag: "Keys", Summary: "Explain what a key or a user may call",
			Ask:         "Shows whether a key or a person may call an operation, and why.",
			Description: "Makes the same checks as a call: whether the credential is valid, whether the operation takes it, and which permissions it needs.",
		},
	}, m.runExplain)
}

func (m *Module) runExplain(ctx context.Context, c *operation.Call, in explainInput) (Explanation, error) {
	var faults fault.List
	op := m.rows[in.Operation]
	if op == nil {
		faults.Add("operation", fault.Unknown, "there is no operation %q", texts.Clip(in.Operation))
	}
	kind, id, _ := strings.Cut(in.Subject, ":")
	uid, numbered := number(id)
	if kind != "key" && (kind != "user" || !numbered) {
		faults.Add("subject", fault.Format, "subject must have the form key:665f1c2ab4d3e2f1a0b9c8d7 or user:7")
	}
	if err := faults.Err(); err != nil {
		return Explanation{}, err
	}
	out := Explanation{
		Operation: op.Name, Subject: in.Subject, Reasons: []string{}, Held: []tenants.Permission{},
		ByRecord: op.Rule.LooksAtRecords(),
	}
	who, err := m.caller(ctx, c, kind, id, uid)
	if errors.Is(err, tenants.ErrDenied) {
		out.Reasons = append(out.Reasons, err.Error())
		return out, nil
	}
	if err != nil {
		return Explanation{}, err
	}
	out.Held = orEmpty(who.Permissions)
	origin := "" // a valid one
	if len(who.Origins) > 0 {
		origin = who.Origins[0]
	}
	for _, refused := range []error{op.Admits(who, origin), op.Rule.Check(who, c.Tenant)} {
		if problem := (*operation.Problem)(nil); errors.As(refused, &problem) {
			reason := problem.Reason
			if reason == "" {
				reason = problem.Message
			}
			out.Reasons = append(out.Reasons, reason)
		}
	}
	out.Allowed = len(out.Reasons) == 0
	return out, nil
}

// caller returns the principal of a subject. Errors: tenants.ErrDenied, with the reason, if the subject could not call
// at all; a *Problem.
func (m *Module) caller(
	ctx context.Context, c *operation.Call, kind, id string, uid int64,
) (*tenants.Principal, error) {
	if kind == "key" {
		who, err := m.Keys.Principal(ctx, c.Tenant, id)
		return who, operation.OrMissing(err, "Key not found")
	}
	if !mayRead(c.Principal, uid) { // otherwise every caller could learn who exists and what they may do
		return nil, operation.Forbidden("The caller lacks view_users, which is needed to ask about users")
	}
	u, err := m.People.FindUser(ctx, c.Tenant, uid)
	if err != nil {
		return nil, operation.OrMissing(err, "User not found")
	}
	return m.People.PrincipalOf(ctx, c.Tenant, u)
}
