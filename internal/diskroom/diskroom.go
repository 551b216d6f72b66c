// Package diskroom keeps what callers send from filling the disk, because the databases of all organizations need the
// same one.
package diskroom

import (
	"fmt"
	"io"
	"syscall"
)

// step is how many bytes are written between two looks at the free room.
const step = 4 << 20

// Reserve is the room that is left free on the file system of a folder. The zero value leaves none.
type Reserve struct {
	Folder string // must exist when bytes are written
	Bytes  int64
}

// Free returns how many bytes are free on the file system of a folder, and whether that is known.
func Free(folder string) (bytes int64, known bool) { return free(folder) }

// Writer returns a writer to w that fails with syscall.ENOSPC before the room is used. Each byte is counted twice,
// because what has arrived is copied to where it stays. Where the free room of a file system is unknown, it never fails
// by itself.
func (r Reserve) Writer(w io.Writer) io.Writer {
	if r.Bytes <= 0 {
		return w
	}
	return &writer{to: w, reserve: r}
}

type writer struct {
	to      io.Writer
	reserve Reserve
	written int64
	next    int64 // how many bytes are written before the next look
}

func (w *writer) Write(p []byte) (int, error) {
	if w.written >= w.next {
		if free, known := free(w.reserve.Folder); known && free-w.written < w.reserve.Bytes {
			return 0, fmt.Errorf("%d bytes are free and %d are reserved: %w", free, w.reserve.Bytes, syscall.ENOSPC)
		}
		w.next = w.written + step
	}
	n, err := w.to.Write(p)
	w.written += int64(n)
	return n, err
}
