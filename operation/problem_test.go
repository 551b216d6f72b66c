package operation_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"tenantry/backends/store"
	"tenantry/internal/fault"
	"tenantry/operation"
	"tenantry/tenants"
)

const unavailableMessage = "The service is temporarily unavailable, please retry later"

// TestProblemOf holds the one mapping from errors to answers: HTTP code and envelope, byte for byte.
func TestProblemOf(t *testing.T) {
	t.Parallel()
	denied := `{"status":"failed","message":"` + operation.DeniedMessage + `","data":[]}`
	unavailable := `{"status":"failed","message":"` + unavailableMessage + `","data":[]}`
	internal := `{"status":"failed","message":"Internal error","data":[]}`
	var faults fault.List
	faults.Add("slug", fault.Format, "slug has a space")
	faults.Add("name", fault.Required, "name is required")
	wrap := func(err error) error { return fmt.Errorf("reading: %w", err) }

	tests := []struct {
		name string
		err  error
		code int
		want string
	}{
		{"denied credential", tenants.ErrDenied, 403, denied},
		{"denied credential, wrapped", wrap(wrap(tenants.ErrDenied)), 403, denied},
		{"unknown organization looks the same", wrap(tenants.ErrUnknownTenant), 403, denied},
		{"denied with a reason", operation.Denied("revoked"), 403, denied},
		{"credential cannot be checked", wrap(tenants.ErrUnavailable), 503, unavailable},
		{"store is down", wrap(store.ErrUnavailable), 503, unavailable},
		{"deadline", wrap(context.DeadlineExceeded), 503, unavailable},
		{"caller has gone", context.Canceled, 503, unavailable},
		{"a store that is down while a key was looked up is no denial", fmt.Errorf("%w: %w", tenants.ErrUnavailable, store.ErrUnavailable), 503, unavailable},
		{"missing record", wrap(store.ErrNotFound), 404, `{"status":"failed","message":"Record not found","data":[]}`},
		{"changed meanwhile", wrap(store.ErrConflict), 409, `{"status":"failed","message":"The record was changed meanwhile, please retry","data":[]}`},
		{
			"duplicate", wrap(&store.DuplicateError{Kind: "custom_objects", Fields: []string{"name", "label"}}), 409,
			`{"status":"failed","message":"Validation failed: name is already in use; label is already in use","data":{"errors":[` +
				`{"field":"name","code":"duplicate","message":"name is already in use"},{"field":"label","code":"duplicate","message":"label is already in use"}]}}`,
		},
		{
			"invalid input", wrap(faults.Err()), 422,
			`{"status":"failed","message":"Validation failed: slug has a space; name is required","data":{"errors":[` +
				`{"field":"slug","code":"format","message":"slug has a space"},{"field":"name","code":"required","message":"name is required"}]}}`,
		},
		{"invalid input that names no fault", &fault.Error{}, 500, internal},
		{"question that no caller may cause", wrap(store.ErrQuery), 500, internal},
		{"anything else", errors.New("SELECT secret FROM users"), 500, internal},
		{"a problem, wrapped", wrap(operation.NotFound("Folder not found")), 404, `{"status":"failed","message":"Folder not found","data":[]}`},
		{"a problem wins over its cause", &operation.Problem{Code: 200, Message: "x", Err: store.ErrUnavailable}, 200, `{"status":"failed","message":"x","data":[]}`},
		{"joined", errors.Join(errors.New("a"), store.ErrUnavailable), 503, unavailable},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			p := operation.ProblemOf(test.err)
			if got := envelope(t, p); p.Code != test.code || got != test.want {
				t.Errorf("got %d %s\nwant %d %s", p.Code, got, test.code, test.want)
			}
			if retry := p.RetryAfter > 0; retry != (test.code == http.StatusServiceUnavailable) {
				t.Errorf("RetryAfter is %s with code %d", p.RetryAfter, p.Code)
			}
		})
	}
}

// TestProblems holds every way to make a problem.
func TestProblems(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name string
		err  error
		code int
		want string
	}{
		{"Denied", operation.Denied("the reason"), 403, `{"status":"failed","message":"Token is either expired or does not have the correct permissions","data":[]}`},
		{"MissingPermission", operation.MissingPermission("contacts"), 403, `{"status":"failed","message":"Lacking necessary permission contacts","data":{"permission":"contacts"}}`},
		{"AdminRequired", operation.AdminRequired("Manage Compliance"), 403, `{"status":"failed","message":"Manage Compliance","data":{"permission":"Manage Compliance"}}`},
		{"Forbidden", operation.Forbidden("Permission Denied"), 403, `{"status":"failed","message":"Permission Denied","data":[]}`},
		{"NotFound", operation.NotFound("Unable to locate user."), 404, `{"status":"failed","message":"Unable to locate user.","data":[]}`},
		{"Failed", operation.Failed("File not found", nil), 200, `{"status":"failed","message":"File not found","data":[]}`},
		{"Failed with data", operation.Failed("No", map[string]any{}), 200, `{"status":"failed","message":"No","data":{}}`},
		{"BadRequest", operation.BadRequest("at byte %d", 7), 400, `{"status":"failed","message":"at byte 7","data":[]}`},
		{"Unavailable", operation.Unavailable(errors.New("dial tcp 10.0.0.1")), 503, `{"status":"failed","message":"` + unavailableMessage + `","data":[]}`},
		{"Internal", operation.Internal(errors.New("nil map")), 500, `{"status":"failed","message":"Internal error","data":[]}`},
		{
			"Invalid", fault.One("page", "range", "page must be at least %d", 1), 422,
			`{"status":"failed","message":"Validation failed: page must be at least 1","data":{"errors":[{"field":"page","code":"range","message":"page must be at least 1"}]}}`,
		},
		{
			"Duplicate", operation.Duplicate("email"), 409,
			`{"status":"failed","message":"Validation failed: email is already in use","data":{"errors":[{"field":"email","code":"duplicate","message":"email is already in use"}]}}`,
		},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			p := operation.ProblemOf(test.err)
			if got := envelope(t, p); p.Code != test.code || got != test.want {
				t.Errorf("got %d %s\nwant %d %s", p.Code, got, test.code, test.want)
			}
		})
	}
}

func envelope(t *testing.T, p *operation.Problem) string {
	t.Helper()
	raw, err := json.Marshal(p.Envelope())
	if err != nil {
		t.Fatal(err)
	}
	return string(raw)
}

func TestProblemKeepsReasonAndCauseForTheLog(t *testing.T) {
	t.Parallel()
	cause := errors.New("connection refused")
	if p := operation.Unavailable(cause); !errors.Is(p, cause) || p.RetryAfter < time.Second {
		t.Errorf("Unavailable: cause lost or no delay: %v %s", p.Err, p.RetryAfter)
	}
	if p := operation.Internal(cause); !errors.Is(p, cause) {
		t.Error("Internal lost its cause")
	}
	p := operation.Denied("key of another organization")
	if !strings.Contains(p.Error(), "another organization") || strings.Contains(p.Message, "another") {
		t.Errorf("the reason is for the log alone: %q, %q", p.Error(), p.Message)
	}
	if got := operation.NotFound("Folder not found").Error(); got != "Folder not found" {
		t.Errorf("Error() = %q", got)
	}
}

func TestErrors(t *testing.T) {
	t.Parallel()
	var none fault.List
	if err := none.Err(); err != nil {
		t.Fatalf("no fault, yet %v", err)
	}
	var many fault.List
	for i := range 1000 {
		many.Add(fmt.Sprintf("f%d", i), "required", "f%d is required", i)
	}
	if len(many) != 100 {
		t.Errorf("%d faults are kept, not 100", len(many))
	}
	p := operation.ProblemOf(many.Err())
	if p.Code != 422 || !strings.HasPrefix(p.Message, "Validation failed: f0 is required; f1 is required; ") || !strings.HasSuffix(p.Message, "f99 is required") {
		t.Errorf(`got %d %.80s, want 422 and beginning with "Validation failed: f0 is required; f1 is required; " and ending in "f99 is required"`,
			p.Code, p.Message)
	}
	var literal fault.List
	literal.Add("x", "format", "%s is no %s", "100%", "date")
	if literal[0].Message != "100% is no date" {
		t.Errorf("message %q", literal[0].Message)
	}
}
