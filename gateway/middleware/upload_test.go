package middleware_test

import (
	"context"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"

	"tenantry/operation"
	"tenantry/tenants/limits"
)

// TestUpload_Room: an upload gives back the room for the work while it arrives, and is bounded by organization.
func TestUpload_Room(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.Work, w.Uploads = limits.NewFlight(256), limits.NewFlight(8) // two of them for an organization
	op := row(func(o *operation.Row) {
		o.Method, o.Upload, o.UploadLimit = http.MethodPost, []string{operation.AnyMedia}, 100
		o.Handler = func(_ context.Context, c *operation.Call) (operation.Result, error) {
			_, err := io.Copy(io.Discard, c.Upload)
			return operation.Result{}, err
		}
	})
	depth := 0
	var codes []int
	var body func(*http.Request)
	body = func(r *http.Request) {
		r.Body, r.ContentLength = io.NopCloser(io.MultiReader(readerFunc(func([]byte) (int, error) {
			if used := w.Work.Used(); used != 0 {
				t.Errorf("%d in flight while a file arrives, want 0", used)
			}
			if depth++; depth < 3 { // another beside it
				codes = append(codes, w.serve(t, op, body).Code)
			}
			return 0, io.EOF
		}), strings.NewReader("ab"))), -1
	}
	first := w.serve(t, op, body)
	if first.Code != http.StatusOK || !slices.Equal(codes, []int{429, 200}) || w.Uploads.Used() != 0 {
		t.Errorf("got %d, beside it %d, and %d places are left, want 200, and 429 of the third", first.Code, codes, w.Uploads.Used())
	}
}

type readerFunc func(p []byte) (int, error)

func (f readerFunc) Read(p []byte) (int, error) { return f(p) }
