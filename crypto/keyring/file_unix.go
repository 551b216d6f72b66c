//go:build unix

package keyring

import (
	"fmt"
	"io/fs"
)

func checkPermissions(path string, mode fs.FileMode, allowed access) error {
	forbidden, wanted := fs.FileMode(0o077), "0600"
	if allowed == groupMayRead {
		forbidden, wanted = 0o037, "0440"
	}
	if mode.Perm()&forbidden != 0 {
		return fmt.Errorf("keyring %s has mode %04o, which gives others access to the keys; run: chmod %s %q",
			path, mode.Perm(), wanted, path)
	}
	return nil
}
