//go:build !unix

package keyring

import "io/fs"

// checkPermissions accepts every mode: access lists govern here, and the mode
// bits say nothing about them.
func checkPermissions(string, fs.FileMode, access) error { return nil }

// syncDir does nothing: a folder cannot be synced here.
func syncDir(string) error { return nil }
