package usage

import (
	"context"
	"net/http"
	"net/url"
	"strings"
	"time"

	"tenantry/backends/store"
	"tenantry/internal/fault"
	"tenantry/internal/request"
	"tenantry/internal/texts"
	"tenantry/operation"
	"tenantry/tenants"
)

type explainInput struct {
	Call string `json:"call" rule:"required max=8000" doc:"Path and query of a call of a list, a count or a report, percent-encoded." ask:"Address|Of a list, a count or a report, such as /api/contacts?q=ada." example:"/api/contacts?filters[plan]=gold"`
}

// Explanation describes the queries of a call to the store and how these were answered.
type Explanation struct {
	Operation string     `json:"operation" doc:"Name of the operation that was called."`
	Took      int64      `json:"took_us" doc:"Duration of the call in microseconds. Its answer was dropped."`
	Questions []Question `json:"questions" doc:"The queries to the store, in order."`
}

// Question is one query to the store.
type Question struct {
	Collection string       `json:"collection" doc:"The collection that was queried."`
	Asked      string       `json:"asked" doc:"find, count or aggregate."`
	Took       int64        `json:"took_us" doc:"Duration in microseconds. A cached count takes almost none."`
	Index      *string      `json:"index" doc:"The index that was used, id for identifiers; null if none was, or if the engine does not report it."`
	Every      *bool        `json:"reads_everything" doc:"Whether every record, or every entry of the index, was read; null if the engine does not report it."`
	Fields     []FieldIndex `json:"fields" doc:"Conditions on fields that the organization defined and that an index could support."`
}

// FieldIndex is the index on a field that the organization defined.
type FieldIndex struct {
	Field string `json:"field" doc:"Key of the field."`
	State string `json:"state" doc:"none, building, ready, or refused, because building it would have delayed writes too long or the server does not support it. An index is built when slow queries need it, or exists from the start."`
}

// Tell sets the rows of all operations. It must be called before the meter serves.
func (m *Meter) Tell(rows []operation.Row) { m.operations = rows }

func (m *Meter) explain() operation.Row {
	index, no := "by_plan", false
	return operation.Typed(operation.Row{
		Name: "store.explain", Method: http.MethodGet, Path: "/api/store/explain",
		Policy: operation.Policy{
			Credentials: operation.Key | operation.Session, Kinds: operation.ServerKeys,
			Rule: operation.Needs(tenants.ViewAudit).Unlimited(), Weight: operation.Heavy, Reads: true,
		},
		Response: operation.Response{
			Message: "Explanation found",
			Example: Explanation{
				"contacts.list", 1840,
				[]Question{{"contacts", "find", 1510, &index, &no, []FieldIndex{{"plan", "ready"}}}},
			},
			Failures: []operation.Failure{
				{
					Code:    http.StatusUnprocessableEntity,
					Message: "Validation failed: call must be the path of an operation that only reads",
					When:    "there is no such operation, it answers secrets, is audited, or streams a file",
				},
				{Code: http.StatusNotFound, Message: "Contact not found", When: "the call has this answer"},
				{
					Code: http.StatusForbidden, Message: "Lacking necessary permission contacts",
					When: "the caller may not make the call", Data: map[string]any{"permission": "contacts"},
				},
			},
		},
		Docs: operation.Docs{
			Tag: "Usage", Summary: "Explain why a list or a report is slow",
			Ask: "Shows the database queries of a page, and which indexes they use.",
			Description: "Calls an operation that only reads with the rights of the caller, drops its answer, and reports " +
				"its queries to the store and the indexes they used.",
		},
	}, m.runExplain)
}

func (m *Meter) runExplain(ctx context.Context, c *operation.Call, in explainInput) (Explanation, error) {
	path, query, _ := strings.Cut(in.Call, "?")
	op, parameters := m.reading(path)
	if op == nil {
		return Explanation{}, fault.One(
			"call", fault.Unknown, "call must be the path of an operation that only reads, which %q is not",
			texts.Clip(path),
		)
	}
	inner := operation.NewCall(op, func(name string) string { return parameters[name] })
	inner.Tenant, inner.Principal, inner.RequestID, inner.Remote, inner.BaseURL, inner.Strict = c.Tenant, c.Principal, c.RequestID, c.Remote, c.BaseURL, c.Strict
	inner.SessionToken = c.SessionToken
	watch := &store.Watch{}
	outer := request.From(ctx)
	began := time.Now()
	asking := &request.Request{ID: c.RequestID, Watch: watch}
	if outer != nil {
		asking.Room = outer.Room // the answer takes memory until it is dropped
	}
	_, err := operation.Run(request.With(ctx, asking), inner, operation.Input{Query: query})
	out := Explanation{Operation: op.Name, Took: time.Since(began).Microseconds(), Questions: []Question{}}
	for _, q := range watch.Questions() {
		if outer != nil {
			outer.Spent(q.Took)
		}
		out.Questions = append(out.Questions, questionOf(q))
	}
	return out, err
}

// reading returns the operation that a path calls, with the path's parameters; nil if there is none, or it may not be
// runExplain.
func (m *Meter) reading(path string) (op *operation.Row, parameters map[string]string) {
	segments := strings.Split(path, "/")
	var form []string
	for i := range m.operations {
		if m.operations[i].Method != http.MethodGet {
			continue
		}
		for _, template := range m.operations[i].Paths() {
			parts := strings.Split(template, "/")
			if named := matchPath(parts, segments); named != nil && (op == nil || nearer(parts, form)) {
				op, form, parameters = &m.operations[i], parts, named
			}
		}
	}
	if op == nil || op.Audit != operation.NoAudit || op.Once || op.Streams != nil || op.Content != nil || op.Credentials&(operation.Key|operation.Session) == 0 || op.Name == "store.explain" {
		return nil, nil
	}
	return op, parameters
}

// nearer reports whether the router prefers the first of two templates that match a path: fixed segments take
// precedence over parameters.
func nearer(one, other []string) bool {
	for i := range one {
		if a, b := strings.HasPrefix(one[i], "{"), strings.HasPrefix(other[i], "{"); a != b {
			return b
		}
	}
	return false
}

// matchPath returns the parameters of a path that matches the template; nil if it does not.
func matchPath(template, segments []string) map[string]string {
	if len(template) != len(segments) {
		return nil
	}
	parameters := map[string]string{}
	for i, part := range template {
		value, err := url.PathUnescape(segments[i])
		switch name, is := strings.CutPrefix(part, "{"); {
		case is && value != "" && err == nil:
			parameters[strings.TrimSuffix(name, "}")] = value
		case is || part != segments[i]:
			return nil
		}
	}
	return parameters
}

func questionOf(q store.Question) Question {
	out := Question{Collection: q.Collection, Asked: q.Operation, Took: q.Took.Microseconds(), Fields: []FieldIndex{}}
	if q.Plan == nil {
		return out
	}
	out.Every = &q.Plan.Every
	if q.Plan.Index != "" {
		out.Index = &q.Plan.Index
	}
	for _, f := range q.Plan.Fields {
		field := FieldIndex{Field: f.Index, State: string(f.State)}
		if f.State == "" {
			field.State = "none"
		}
		out.Fields = append(out.Fields, field)
	}
	return out
}
