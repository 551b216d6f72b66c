package operation_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"os"
	"strings"
	"testing"

	"tenantry/operation"
	"tenantry/tenants"
)

// TestLimitUpload: the bound on an upload is the lowest that was set. A declared length beyond it is refused at once, and
// by a read even if the handler goes on; nothing is read then.
func TestLimitUpload(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name     string
		limits   []int64
		declared int64
		sent     int
		refused  string // by LimitUpload and by reading
		read     int
	}{
		{"of the row", nil, -1, 20, "", 20},
		{"beyond the row", nil, -1, 21, "The file is larger than 20 bytes", 20},
		{"higher", []int64{30}, -1, 21, "The file is larger than 20 bytes", 20},
		{"lower", []int64{10}, -1, 10, "", 10},
		{"lower, exceeded", []int64{10, 15}, -1, 11, "The file is larger than 10 bytes, a limit", 10},
		{"lower, declared", []int64{10}, 10, 10, "", 10},
		{"lower, exceeded as declared", []int64{10}, 11, 11, "The file is larger than 10 bytes, a limit", 0},
		{"negative", []int64{-1}, 1, 1, "The file is larger than 0 bytes, a limit", 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			op := goodRow()
			takesFile(&op)
			op.UploadLimit = 20
			op.Handler = func(_ context.Context, c *operation.Call) (operation.Result, error) {
				var early error
				for _, n := range tt.limits {
					early = errors.Join(early, c.LimitUpload(n, "a limit"))
				}
				if c.UploadSize != tt.declared || (early != nil) != (tt.declared > 0 && tt.read == 0) {
					t.Errorf("got the declared length %d and %v before reading, want %d", c.UploadSize, early, tt.declared)
				}
				got, err := io.ReadAll(c.Upload)
				if len(got) != tt.read {
					t.Errorf("got %d bytes, want %d", len(got), tt.read)
				}
				return operation.Result{}, err
			}
			c := operation.NewCall(&op, func(string) string { return "" })
			c.Tenant, c.Principal = &tenants.Tenant{}, &tenants.Principal{Kind: tenants.ServiceAccount, KeyKind: tenants.ServerFull}
			_, err := operation.Run(t.Context(), c, operation.Input{
				Header: http.Header{}, UploadSize: tt.declared,
				Upload: func() (io.Reader, error) { return strings.NewReader(strings.Repeat("x", tt.sent)), nil },
			})
			var p *operation.Problem
			if tt.refused == "" && err != nil || tt.refused != "" && (!errors.As(err, &p) || p.Code != http.StatusRequestEntityTooLarge || p.Message != tt.refused) {
				t.Errorf("got %v, want %q", err, tt.refused)
			}
		})
	}
}

// over is a content over a file.
type over struct{ io.ReadSeekCloser }

func (o over) File() *os.File {
	f, _ := o.ReadSeekCloser.(*os.File)
	return f
}

// TestContent_File: a content is a file if it says so.
func TestContent_File(t *testing.T) {
	t.Parallel()
	f, err := os.Open(os.DevNull)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = f.Close() }() // nothing was written
	for name, tt := range map[string]struct {
		from io.ReadSeekCloser
		want *os.File
	}{"a file": {f, f}, "over a file": {over{f}, f}, "hidden": {struct{ io.ReadSeekCloser }{f}, nil}} {
		if got := (&operation.Content{ReadSeekCloser: tt.from}).File(); got != tt.want {
			t.Errorf("%s: got %v, want %v", name, got, tt.want)
		}
	}
}
