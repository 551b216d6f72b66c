package gateway

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"time"

	"github.com/gofrs/flock"

	"tenantry/gateway/control"
)

// Names of files in the data folder.
const (
	lockFile   = "tenantry.lock" // locked by the process that uses the folder
	holderFile = "tenantry.json" // describes that process, and how commands reach it
	socketDir  = "run"           // accessible to this user alone, even if others may read the data folder
	socketFile = "control.sock"
)

// Holder describes the process that uses a data folder.
type Holder struct {
	What    string    `json:"what"` // such as "tenantry serve"
	PID     int       `json:"pid"`
	Since   time.Time `json:"since"`
	Listen  string    `json:"listen,omitempty"`
	Control string    `json:"control,omitempty"` // path of the socket that takes commands
}

func (h Holder) String() string {
	text := fmt.Sprintf("%s (process %d, since %s", h.What, h.PID, h.Since.Format(time.RFC3339))
	if h.Listen != "" {
		text += ", listening on " + h.Listen
	}
	return text + ")"
}

// InUseError is returned when another process holds the data folder.
type InUseError struct {
	Folder string
	Holder Holder
}

func (e *InUseError) Error() string {
	if e.Holder.PID == 0 {
		return fmt.Sprintf("the data folder %s is in use by another process", e.Folder)
	}
	return fmt.Sprintf("the data folder %s is in use by %s; stop it or name another folder with --data", e.Folder, e.Holder)
}

// folderLock keeps other processes out of a data folder.
type folderLock struct {
	folder string
	lock   *flock.Flock
	holder Holder
	server *http.Server
	dir    string // temporary folder for the socket, if the path of the data folder is too long; else empty
	done   chan struct{}
}

// lockFolder locks the folder, which it makes if it is missing. holder describes this process. Error: *InUseError.
func lockFolder(folder, holder string, now time.Time) (*folderLock, error) {
	if err := os.MkdirAll(folder, 0o700); err != nil {
		return nil, fmt.Errorf("data folder: %w", err)
	}
	lock, err := tryLock(folder)
	if err != nil {
		return nil, err
	}
	l := &folderLock{folder: folder, lock: lock}
	l.holder = Holder{What: holder, PID: os.Getpid(), Since: now.UTC().Truncate(time.Second)}
	if err := l.write(); err != nil {
		return nil, errors.Join(err, l.lock.Unlock())
	}
	return l, nil
}

func tryLock(folder string) (*flock.Flock, error) {
	lock := flock.New(filepath.Join(folder, lockFile), flock.SetPermissions(0o600))
	switch locked, err := lock.TryLock(); {
	case err != nil:
		return nil, fmt.Errorf("locking the data folder %s: %w", folder, err)
	case !locked:
		other, _ := ReadHolder(folder) // the zero Holder if unknown: it is for the message alone
		return nil, &InUseError{Folder: folder, Holder: other}
	}
	return lock, nil
}

// checkUnused returns an *InUseError if a process uses the folder. It makes nothing in one that was never used.
func checkUnused(folder string) error {
	if _, err := os.Stat(filepath.Join(folder, lockFile)); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	lock, err := tryLock(folder)
	if err != nil {
		return err
	}
	return lock.Unlock()
}

// ReadHolder returns the process that last wrote that it uses the folder. It may have ended since, because only the
// lock is authoritative.
func ReadHolder(folder string) (Holder, error) {
	var h Holder
	raw, err := os.ReadFile(filepath.Join(folder, holderFile))
	if err != nil {
		return h, fmt.Errorf("reading the holder of the data folder: %w", err)
	}
	if err := json.Unmarshal(raw, &h); err != nil {
		return h, fmt.Errorf("reading the holder of the data folder: %w", err)
	}
	return h, nil
}

func (l *folderLock) write() error {
	raw, err := json.Marshal(l.holder)
	if err != nil {
		return fmt.Errorf("data folder: %w", err)
	}
	path := filepath.Join(l.folder, holderFile)
	if err := os.WriteFile(path+".new", raw, 0o600); err != nil {
		return fmt.Errorf("data folder: %w", err)
	}
	if err := os.Rename(path+".new", path); err != nil {
		return fmt.Errorf("data folder: %w", err)
	}
	return nil
}

// maxSocketPath is a length that every system accepts for the path of a Unix socket; the shortest limit is 104 bytes.
const maxSocketPath = 100

// serve accepts commands on a socket that only this user can reach, until stopCommands.
func (l *folderLock) serve(ctx context.Context, addr net.Addr, handler http.Handler) error {
	path, err := filepath.Abs(filepath.Join(l.folder, socketDir, socketFile))
	if err != nil {
		return fmt.Errorf("control socket: %w", err)
	}
	if err := privateDir(filepath.Dir(path)); err != nil {
		return fmt.Errorf("control socket: %w", err)
	}
	if len(path) > maxSocketPath {
		if l.dir, err = os.MkdirTemp("", "tenantry-"); err != nil {
			return fmt.Errorf("control socket: %w", err)
		}
		path = filepath.Join(l.dir, socketFile)
	}
	_ = os.Remove(path) // left by a killed process: its lock is released
	var lc net.ListenConfig
	listener, err := lc.Listen(ctx, "unix", path)
	if err != nil {
		return fmt.Errorf("control socket: %w", err)
	}
	if err := os.Chmod(path, 0o600); err != nil {
		return errors.Join(fmt.Errorf("control socket: %w", err), listener.Close())
	}
	l.server = &http.Server{
		Handler: handler, ReadHeaderTimeout: 5 * time.Second, IdleTimeout: time.Minute,
		MaxHeaderBytes: control.MaxHeaderBytes,
	}
	l.done = make(chan struct{})
	go func() {
		defer close(l.done)
		_ = l.server.Serve(listener) // returns when the server is closed
	}()
	l.holder.Listen, l.holder.Control = addr.String(), path
	return l.write()
}

func privateDir(path string) error {
	if err := os.MkdirAll(path, 0o700); err != nil {
		return err
	}
	return os.Chmod(path, 0o700) //nolint:gosec // a folder
}

// stopCommands closes the control socket. Running commands may finish until ctx ends; the others are cut.
func (l *folderLock) stopCommands(ctx context.Context) {
	if l.server != nil {
		if err := l.server.Shutdown(ctx); err != nil {
			_ = l.server.Close()
		}
		<-l.done
		l.server = nil
	}
}

// release unlocks the folder.
func (l *folderLock) release() error {
	if l.dir != "" {
		_ = os.RemoveAll(l.dir)
	}
	_ = os.Remove(filepath.Join(l.folder, holderFile)) // only informs; the lock is authoritative
	if err := l.lock.Unlock(); err != nil {
		return fmt.Errorf("data folder: %w", err)
	}
	return nil
}
