package blobs

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"syscall"
	"testing"
)

func TestTranslate(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct{ err, want error }{
		"full disk":      {&os.PathError{Op: "write", Path: "/f", Err: syscall.ENOSPC}, ErrFull},
		"full quota":     {&os.LinkError{Op: "rename", Old: "/f", New: "/g", Err: syscall.EDQUOT}, ErrFull},
		"read-only disk": {&os.PathError{Op: "open", Path: "/f", Err: syscall.EROFS}, ErrUnavailable},
		"input/output":   {&os.PathError{Op: "read", Path: "/f", Err: syscall.EIO}, ErrUnavailable},
		"missing folder": {&os.PathError{Op: "open", Path: "/f", Err: fs.ErrNotExist}, ErrUnavailable},
		"absent":         {ErrNotFound, ErrNotFound},
		"cancelled":      {context.Canceled, context.Canceled},
		"late":           {context.DeadlineExceeded, context.DeadlineExceeded},
		"nothing":        {nil, nil},
	} {
		got := translate("store", "a/b", test.err)
		if !errors.Is(got, test.want) || !errors.Is(got, test.err) {
			t.Errorf("%s: got %v, want %v with its cause", name, got, test.want)
		}
		for _, other := range []error{ErrFull, ErrUnavailable, ErrNotFound} {
			if !errors.Is(test.want, other) && errors.Is(got, other) {
				t.Errorf("%s: got %v, want no %v", name, got, other)
			}
		}
	}
}
