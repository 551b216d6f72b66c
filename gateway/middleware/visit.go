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

// runForPage implements Visitor.Run. The same holds as for a request of the operation, except that the session was
// already looked up for the page.
func (x *exchange) runForPage(
	ctx context.Context, person *tenants.Principal, op *operation.Row, path map[string]string, query string,
) (operation.Result, error) {
	if op.Method != http.MethodGet || op.Audit != operation.NoAudit || op.Streams != nil || op.Content != nil {
		return operation.Result{}, fmt.Errorf("operation %s does more than read, and needs a request", op.Name)
	}
	call := operation.NewCall(op, func(name string) string { return path[name] })
	call.Tenant, call.Principal, call.BaseURL, call.Remote = x.call.Tenant, person, x.call.BaseURL, x.call.Remote
	call.SessionToken, call.Expired = x.call.SessionToken, x.call.Expired
	inner := &exchange{
		p: x.p, op: op, w: discardWriter{}, r: x.r.WithContext(ctx), started: time.Now(),
		call: call, credential: x.credential,
	}
	inner.credential.op, inner.credential.session = op, x.call.SessionToken
	if x.p.Expired != nil {
		call.Expired = x.p.Expired()
	}

	innerCtx, cancel := context.WithTimeout(inner.begin(), op.Deadline())
	defer cancel()
	defer inner.done()
	defer inner.leave()
	result, err := inner.runQuery(innerCtx, query)
	if err == nil {
		inner.code = http.StatusOK
		return result, nil
	}
	inner.failure = inner.problem(innerCtx, err)
	inner.code = inner.failure.Code
	return operation.Result{}, inner.failure
}

// runQuery runs the operation, and turns a panic into an error.
func (x *exchange) runQuery(ctx context.Context, query string) (result operation.Result, err error) {
	defer func() {
		if cause := recover(); cause != nil {
			err = fmt.Errorf("panic: %v\n%s", cause, debug.Stack())
		}
	}()
	return operation.Run(ctx, x.call, operation.Input{
		Query: query, Header: http.Header{}, Origin: x.r.Header.Get("Origin"), Count: x.count, Credential: &x.credential,
		Enter: func(ctx context.Context) (err error) {
			x.work, err = x.enter(ctx, x.p.Work, x.op.Weight)
			return err
		},
	})
}

// discardWriter is the http.ResponseWriter of runForPage, which writes no answer.
type discardWriter struct{}

// Header returns an empty header, which is dropped.
func (discardWriter) Header() http.Header { return http.Header{} }

// WriteHeader does nothing.
func (discardWriter) WriteHeader(int) {}

// Write returns an error: there is no answer to write.
func (discardWriter) Write([]byte) (int, error) {
	return 0, errors.New("the result of a query for a page is not written")
}
