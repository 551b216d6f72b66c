// Package durable makes what was written to a disk survive a loss of power.
package durable

import (
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"syscall"
)

// SyncDir makes the entries of a folder durable, after files were made, renamed or removed in it. Where folders cannot
// be synced, it does nothing.
func SyncDir(dir string) error {
	if runtime.GOOS == "windows" { // it has no such call
		return nil
	}
	d, err := os.Open(filepath.Clean(dir))
	if err != nil {
		return err
	}
	err = d.Sync()
	if errors.Is(err, syscall.EINVAL) || errors.Is(err, errors.ErrUnsupported) { // of network file systems
		err = nil
	}
	return errors.Join(err, d.Close())
}

// Rename renames a file or a folder, replacing a file that has the new name, and makes that durable. What it contains
// must have been synced.
func Rename(from, to string) error {
	if err := os.Rename(from, to); err != nil {
		return err
	}
	return SyncDir(filepath.Dir(to))
}

// WriteFile writes a new file that only this user can read, and syncs it. Its folder is not synced.
func WriteFile(path string, content []byte) error {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(content)
	if err == nil {
		err = f.Sync()
	}
	return errors.Join(err, f.Close())
}
