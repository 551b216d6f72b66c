package diskroom

import (
	"bytes"
	"errors"
	"io"
	"math"
	"syscall"
	"testing"
)

func TestReserve(t *testing.T) {
	t.Parallel()
	folder := t.TempDir()
	room, known := free(folder)
	if !known {
		t.Skip("the free room is unknown on this system")
	}
	for _, tt := range []struct {
		name    string
		reserve int64
		bytes   int
		full    bool
	}{
		{"none", 0, 3 * step, false},
		{"a little", 1, 3 * step, room < 7*step},
		{"more than there is", math.MaxInt64, 1, true},
		{"nearly all", room - 3*step, 40 * step, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			var got bytes.Buffer
			_, err := io.Copy(Reserve{Folder: folder, Bytes: tt.reserve}.Writer(onlyWriter{&got}), io.LimitReader(zeros{}, int64(tt.bytes)))
			if errors.Is(err, syscall.ENOSPC) != tt.full || !tt.full && (err != nil || got.Len() != tt.bytes) {
				t.Errorf("wrote %d of %d bytes: %v; want full: %v", got.Len(), tt.bytes, err, tt.full)
			}
			if tt.full && got.Len() >= tt.bytes {
				t.Error("all bytes were written")
			}
		})
	}
}

type onlyWriter struct{ io.Writer }

type zeros struct{}

func (zeros) Read(p []byte) (int, error) { clear(p); return len(p), nil }
