package middleware

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"runtime/debug"
	"time"

	"tenantry/operation"
	"tenantry/tenants"
)

// run is Visitor.Run. What holds for a request of the operation holds here, but that the session was looked up with the
// page.
func (x *exchange) run(ctx context.Context, who *tenants.Principal, op *operation.Row, path map[string]string, query string) (operation.Result, error) {
	if op.Method != http.MethodGet || op.Audit != operation.NoAudit || op.Streams != nil {
		return operation.Result{}, fmt.Errorf("operation %s does more than read, and takes a request", op.Name)
	}
	call := operation.NewCall(op, func(name string) string { return path[name] })
	call.Tenant, call.Principal, call.BaseURL, call.Remote = x.call.Tenant, who, x.call.BaseURL, x.call.Remote
	call.SessionToken, call.Expired = x.call.SessionToken, x.call.Expired
	asked := &exchange{p: x.p, op: op, w: headerOnly{}, r: x.r.WithContext(ctx), started: time.Now(), call: call, made: x.made}
	asked.made.op, asked.made.session = op, x.call.SessionToken
	if x.p.Expired != nil {
		call.Expired = x.p.Expired()
	}
	until, cancel := context.WithTimeout(asked.begin(), op.Deadline())
	defer cancel()
	defer asked.done()
	defer asked.leave()
	result, err := asked.question(until, query)
	if err == nil {
		asked.code = http.StatusOK
		return result, nil
	}
	asked.failure = asked.problem(until, err)
	asked.code = asked.failure.Code
	return operation.Result{}, asked.failure
}

// question runs the operation, and turns a panic into an error.
func (x *exchange) question(ctx context.Context, query string) (result operation.Result, err error) {
	defer func() {
		if cause := recover(); cause != nil {
			err = fmt.Errorf("panic: %v\n%s", cause, debug.Stack())
		}
	}()
	return operation.Run(ctx, x.call, operation.Input{
		Query: query, Header: http.Header{}, Origin: x.r.Header.Get("Origin"), Count: x.count, Credential: &x.made,
		Enter: func(ctx context.Context) (err error) {
			x.work, err = x.enter(ctx, x.p.Work, x.op.Weight)
			return err
		},
	})
}

// headerOnly is the writer of a question whose result is not written.
type headerOnly struct{}

// Header returns a header that nobody reads.
func (headerOnly) Header() http.Header { return http.Header{} }

// WriteHeader does nothing.
func (headerOnly) WriteHeader(int) {}

// Write refuses the body.
func (headerOnly) Write([]byte) (int, error) {
	return 0, errors.New("the result of a question is not written")
}
