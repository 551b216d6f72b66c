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

// Explanation says whether a key or a person would be let through an operation.
type Explanation struct {
	Operation string               `json:"operation" doc:"Name of the operation."`
	Subject   string               `json:"subject" doc:"Who would call: key:<id> or user:<number>."`
	Allowed   bool                 `json:"allowed" doc:"Whether the call would be let through."`
	Reasons   []string             `json:"reasons" doc:"Why not, in words; empty where it would be."`
	Held      []tenants.Permission `json:"permissions" doc:"What the key or the person holds."`
	ByRecord  bool                 `json:"depends_on_record" doc:"Whether the operation looks at the record besides: a call may be refused all the same."`
}

type question struct {
	Operation string `json:"operation" rule:"required max=200" doc:"Name of the operation, such as folders.get." ask:"What they would do" example:"folders.get"`
	Subject   string `json:"subject" rule:"required max=200" doc:"Who would call, as the audit log has it: key:<id> or user:<number>." ask:"Who" example:"user:7"`
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
			Example: Explanation{Operation: "folders.get", Subject: "user:7", Allowed: true, Reasons: []string{}, Held: []tenants.Permission{tenants.ManageFiles}},
			Failures: []operation.Failure{
				{Code: http.StatusNotFound, Message: "Key not found", When: "no such key in this organization"},
				{Code: http.StatusNotFound, Message: "User not found", When: "no such user in this organization"},
				{Code: http.StatusUnprocessableEntity, Message: "Validation failed: operation is required", When: "there is no such operation, or the subject is none"},
			},
		},
		Docs: operation.Docs{
			Tag: "Keys", Summary: "Explain what a key or a user may call",
			Ask:         "Whether somebody may do something, and what decides that.",
			Description: "Asks what decides each call: whether the credential is good, whether the operation takes it, and the permissions it needs.",
		},
	}, m.explained)
}

func (m *Module) explained(ctx context.Context, c *operation.Call, in question) (Explanation, error) {
	var faults fault.List
	op := m.rows[in.Operation]
	if op == nil {
		faults.Add("operation", fault.Unknown, "there is no operation %q", texts.Clip(in.Operation))
	}
	kind, id, _ := strings.Cut(in.Subject, ":")
	uid, numbered := number(id)
	if kind != "key" && (kind != "user" || !numbered) {
		faults.Add("subject", fault.Format, "subject must be like key:665f1c2ab4d3e2f1a0b9c8d7 or user:7")
	}
	if err := faults.Err(); err != nil {
		return Explanation{}, err
	}
	out := Explanation{Operation: op.Name, Subject: in.Subject, Reasons: []string{}, Held: []tenants.Permission{}, ByRecord: op.Rule.LooksAtRecords()}
	who, err := m.caller(ctx, c, kind, id, uid)
	if errors.Is(err, tenants.ErrDenied) {
		out.Reasons = append(out.Reasons, err.Error())
		return out, nil
	}
	if err != nil {
		return Explanation{}, err
	}
	out.Held = orEmpty(who.Permissions)
	origin := "" // a good one
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

// caller returns the principal that a subject would be. Errors: tenants.ErrDenied with the reason where it
// could not call at all.
func (m *Module) caller(ctx context.Context, c *operation.Call, kind, id string, uid int64) (*tenants.Principal, error) {
	if kind == "key" {
		who, err := m.Keys.Principal(ctx, c.Tenant, id)
		return who, operation.OrMissing(err, "Key not found")
	}
	if !mayRead(c.Principal, uid) { // else anybody would hear who there is and what they may do
		return nil, operation.Forbidden("The caller lacks view_users, without which nobody hears of a user")
	}
	u, err := m.People.FindUser(ctx, c.Tenant, uid)
	if err != nil {
		return nil, operation.OrMissing(err, "User not found")
	}
	return m.People.PrincipalOf(ctx, c.Tenant, u)
}
