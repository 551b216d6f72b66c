package gateway

import (
	"errors"
	"os"
	"testing"
)

// TestInterruptedInstallationContinues: what a process that was killed while it made an installation has left becomes
// an installation when the next start may make one, and an error otherwise.
func TestInterruptedInstallationContinues(t *testing.T) {
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
	for _, keyring := range []bool{true, false} { // it was killed after or before it made the keyring
		if !keyring {
			if err := os.Remove(s.cfg.KeyringPath()); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := s.openKeyring(t.Context(), false); !errors.Is(err, ErrNoInstallation) {
			t.Errorf("openKeyring with keyring = %t, init = false: %v, want %v", keyring, err, ErrNoInstallation)
		}
		if _, err := s.openKeyring(t.Context(), true); err != nil {
			t.Errorf("openKeyring with keyring = %t, init = true: %v, want no error", keyring, err)
		}
	}
}
