package gateway

import (
	"errors"
	"os"
	"testing"
)

// TestBegunInstallation: what a process that was killed while it made an installation has left goes on to be one, where
// one is to be made.
func TestBegunInstallation(t *testing.T) {
	t.Parallel()
	s := openServices(t)
	workspace, err := s.store.Control(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	records := s.kinds.organizations.Installations.In(workspace)
	proof, err := records.Get(t.Context(), "000000000000000000000001")
	if err == nil {
		err = records.Delete(t.Context(), proof)
	}
	if err != nil {
		t.Fatal(err)
	}
	for _, keyring := range []bool{true, false} { // as it was killed after or before it made one
		if !keyring {
			if err := os.Remove(s.cfg.KeyringPath()); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := s.openKeyring(t.Context(), false); !errors.Is(err, ErrNoInstallation) {
			t.Errorf("keyring %t, not to be made: %v", keyring, err)
		}
		if _, err := s.openKeyring(t.Context(), true); err != nil {
			t.Errorf("keyring %t: %v", keyring, err)
		}
	}
}
