package middleware_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"tenantry/gateway/middleware"
	"tenantry/internal/request"
	"tenantry/operation"
	"tenantry/tenants/limits"
)

// TestLargeAnswersReserveRoom: a request reserves what it will hold, with all copies, before records are read. While
// the answer is sent, it holds the body and its compressed copy, and afterwards nothing. Queries for a page use the
// room of the page, which is held until the page is sent.
func TestLargeAnswersReserveRoom(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.Answers = limits.NewFlight(2_400_000) // 600,000 for an organization
	hold := func(ctx context.Context, more int64) error { return request.From(ctx).Room.Hold(ctx, more) }
	send := func(ctx context.Context, do func(context.Context) (string, error)) *spy {
		r := httptest.NewRequestWithContext(ctx, http.MethodGet, "/api/things", nil)
		r.Host = "acme.localhost"
		r.Header.Set(middleware.KeyHeader, "full")
		s := &spy{ResponseRecorder: httptest.NewRecorder(), work: w.Answers}
		w.Serve(row(func(o *operation.Row) {
			o.Handler = func(ctx context.Context, _ *operation.Call) (operation.Result, error) {
				text, err := do(ctx)
				return operation.Result{Data: text}, err
			}
		}), s, r, func(string) string { return "" })
		return s
	}
	for _, size := range []int{100, 70_000} {
		var during []int64
		s := send(t.Context(), func(ctx context.Context) (string, error) {
			for _, more := range []int64{50_000, 40_000} {
				if err := hold(ctx, more); err != nil {
					return "", err
				}
				during = append(during, w.Answers.Used())
			}
			return strings.Repeat("x", size), nil
		})
		sent := map[bool]int64{true: 2 * int64(s.Body.Len())}[size > 64<<10]
		if s.Code != http.StatusOK || during[0] != 300_000 || during[1] != 540_000 || s.used != sent || w.Answers.Used() != 0 {
			t.Errorf("%d bytes: %d, %v held while it was made, %d while it was sent, want %d; %d afterwards",
				size, s.Code, during, s.used, sent, w.Answers.Used())
		}
	}
	var after context.Context
	send(t.Context(), func(ctx context.Context) (string, error) {
		after = ctx
		return "", nil
	})
	if err := hold(after, 50_000); err != nil || w.Answers.Used() != 0 {
		t.Errorf("Hold after the request: %v, %d held, want 0", err, w.Answers.Used())
	}
	page := send(t.Context(), func(ctx context.Context) (string, error) {
		part := func(ctx context.Context) (string, error) { return "", hold(ctx, 40_000) }
		within := send(ctx, part)
		if held := w.Answers.Used(); within.Code != http.StatusOK || held != 240_000 {
			t.Errorf("for a page: %d, and then %d held", within.Code, held)
		}
		within = send(ctx, part)
		if held := w.Answers.Used(); within.Code != http.StatusOK || held != 480_000 {
			t.Errorf("once more for a page: %d, and then %d held", within.Code, held)
		}
		other := send(t.Context(), part) // 120,000 are left of the share of the organization
		if other.Code != http.StatusTooManyRequests || other.Header().Get("Retry-After") == "" {
			t.Errorf("without room: %d %s", other.Code, other.Body)
		}
		return "", nil
	})
	if page.Code != http.StatusOK || w.Answers.Used() != 0 {
		t.Errorf("the page: %d, and %d held afterwards", page.Code, w.Answers.Used())
	}
}
