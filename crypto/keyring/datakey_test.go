package keyring_test

import (
	"bytes"
	"errors"
	"strings"
	"testing"

	"tenantry/crypto/keyring"
)

func TestDataKeyRoundTrip(t *testing.T) {
	t.Parallel()
	kr, _ := create(t)
	made, wrapped, err := keyring.NewDataKey(kr, 42, "share")
	if err != nil {
		t.Fatal(err)
	}
	opened, err := keyring.OpenDataKey(kr, 42, "share", wrapped)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(made.Bytes(), opened.Bytes()) || len(opened.Bytes()) != 32 {
		t.Fatal("the opened key is another one")
	}
	if opened.Organization() != 42 || opened.Purpose() != "share" || opened.Version() != 1 || opened.IsZero() {
		t.Fatalf("opened %v", opened)
	}
	opened.Bytes()[0] ^= 1
	if !bytes.Equal(made.Bytes(), opened.Bytes()) {
		t.Fatal("Bytes gives out the key itself, not a copy")
	}
	other, _, err := keyring.NewDataKey(kr, 42, "share")
	if err != nil || bytes.Equal(other.Bytes(), made.Bytes()) {
		t.Fatalf("two new keys are equal, %v", err)
	}
	next, nextWrapped, err := keyring.NextDataKey(kr, made)
	if err != nil || next.Version() != 2 || bytes.Equal(next.Bytes(), made.Bytes()) {
		t.Fatalf("next: %v, %v", next, err)
	}
	if got, err := keyring.OpenDataKey(kr, 42, "share", nextWrapped); err != nil || got.Version() != 2 {
		t.Fatalf("open the next: %v, %v", got, err)
	}
	var zero keyring.DataKey
	if !zero.IsZero() || zero.Bytes() != nil || zero.AEAD() != nil {
		t.Fatal("the zero value holds something")
	}
	if _, _, err := keyring.NextDataKey(kr, zero); err == nil {
		t.Fatal("a successor of nothing was made")
	}
}

func TestMovedDataKeyIsRefused(t *testing.T) {
	t.Parallel()
	kr, _ := create(t)
	_, wrapped, err := keyring.NewDataKey(kr, 1, "fields")
	if err != nil {
		t.Fatal(err)
	}
	stranger, _ := create(t)
	tests := map[string]struct {
		kr           *keyring.Keyring
		organization int64
		purpose      string
		wrapped      string
	}{
		"organization": {kr, 2, "fields", wrapped},
		"purpose":      {kr, 1, "share", wrapped},
		"version":      {kr, 1, "fields", strings.Replace(wrapped, "data.v1.1.", "data.v1.2.", 1)},
		"inner only":   {kr, 1, "fields", strings.TrimPrefix(wrapped, "data.v1.1.")},
		"keyring":      {stranger, 1, "fields", wrapped},
		"no prefix":    {kr, 1, "fields", strings.TrimPrefix(wrapped, "data.v1.")},
		"empty":        {kr, 1, "fields", ""},
		"no version":   {kr, 1, "fields", "data.v1."},
		"bad version":  {kr, 1, "fields", "data.v1.x" + wrapped[9:]},
	}
	for name, tt := range tests {
		if _, err := keyring.OpenDataKey(tt.kr, tt.organization, tt.purpose, tt.wrapped); !errors.Is(err, keyring.ErrCorrupt) {
			t.Errorf("%s: got %v", name, err)
		}
	}
	if v, err := keyring.DataKeyWrappedBy(tests["bad version"].wrapped); !errors.Is(err, keyring.ErrCorrupt) {
		t.Errorf("a bad version is wrapped by %d, %v", v, err)
	}
}

func TestDataKeyBindingIsChecked(t *testing.T) {
	t.Parallel()
	kr, _ := create(t)
	for _, tt := range []struct {
		organization int64
		purpose      string
	}{{0, "fields"}, {-1, "fields"}, {1, ""}, {1, "Fields"}, {1, "a b"}, {1, strings.Repeat("a", 65)}, {1, "é"}} {
		if _, _, err := keyring.NewDataKey(kr, tt.organization, tt.purpose); err == nil {
			t.Errorf("organization %d, purpose %q: accepted", tt.organization, tt.purpose)
		}
	}
}

// TestDataKeySurvivesRotation checks that rotating the keyring changes the wrapping of a data key but not the key, so
// that share tokens stay valid.
func TestDataKeySurvivesRotation(t *testing.T) {
	t.Parallel()
	kr, _ := create(t)
	made, wrapped, err := keyring.NewDataKey(kr, 1, "share")
	if err != nil {
		t.Fatal(err)
	}
	if _, changed, err := keyring.RewrapDataKey(kr, 1, "share", wrapped); err != nil || changed {
		t.Fatalf("rewrapped without need: %v, %v", changed, err)
	}
	if _, err := kr.Rotate(); err != nil {
		t.Fatal(err)
	}
	again, changed, err := keyring.RewrapDataKey(kr, 1, "share", wrapped)
	if err != nil || !changed {
		t.Fatalf("not rewrapped: %v, %v", changed, err)
	}
	if v, err := keyring.DataKeyWrappedBy(again); err != nil || v != 2 {
		t.Fatalf("rewrapped by version %d, %v", v, err)
	}
	if err := kr.Retire(1); err != nil {
		t.Fatal(err)
	}
	if _, err := keyring.OpenDataKey(kr, 1, "share", wrapped); !errors.Is(err, keyring.ErrUnknownVersion) {
		t.Fatalf("the old wrapping after retirement: %v", err)
	}
	opened, err := keyring.OpenDataKey(kr, 1, "share", again)
	if err != nil || !bytes.Equal(opened.Bytes(), made.Bytes()) || opened.Version() != made.Version() {
		t.Fatalf("after rotation: %v, %v", opened, err)
	}
}
