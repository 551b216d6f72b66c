package keyring_test

import (
	"encoding/base64"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"

	"tenantry/crypto/keyring"
)

func create(t testing.TB) (*keyring.Keyring, string) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "keyring.json")
	kr, err := keyring.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	return kr, path
}

func mustWrap(t *testing.T, kr *keyring.Keyring, key, aad string) string {
	t.Helper()
	wrapped, err := kr.Wrap([]byte(key), []byte(aad))
	if err != nil {
		t.Fatal(err)
	}
	return wrapped
}

func TestCreateThenOpen(t *testing.T) {
	t.Parallel()
	kr, path := create(t)
	wrapped := mustWrap(t, kr, "data key", "aad")
	if !strings.HasPrefix(wrapped, "kek.v1.1.") {
		t.Fatalf("the wrapped value %q does not name version 1", wrapped)
	}
	again, err := keyring.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	got, err := again.Unwrap(wrapped, []byte("aad"))
	if err != nil || string(got) != "data key" {
		t.Fatalf("got %q, %v", got, err)
	}
	if runtime.GOOS != "windows" {
		info, err := os.Stat(path)
		if err != nil || info.Mode().Perm() != 0o600 {
			t.Fatalf("mode %v, %v", info.Mode(), err)
		}
	}
	before, _ := os.ReadFile(path)
	if _, err := keyring.Create(path); !errors.Is(err, fs.ErrExist) {
		t.Fatalf("second Create: %v", err)
	}
	if after, _ := os.ReadFile(path); string(before) != string(after) {
		t.Fatal("a refused Create changed the file")
	}
	entries, _ := filepath.Glob(filepath.Join(filepath.Dir(path), "*.new-*"))
	if len(entries) != 0 {
		t.Fatalf("left behind: %v", entries)
	}
	if _, err := keyring.Open(filepath.Dir(path)); err == nil || !strings.Contains(err.Error(), "is not a regular file") {
		t.Fatalf("a folder: %v", err)
	}
	if _, err := keyring.Open(path + ".none"); !errors.Is(err, fs.ErrNotExist) {
		t.Fatalf("missing file: %v", err)
	}
}

func TestCreateRace(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "keyring.json")
	var made [8]*keyring.Keyring
	var wg sync.WaitGroup
	for i := range made {
		wg.Go(func() {
			kr, err := keyring.Create(path)
			if err == nil {
				made[i] = kr
			} else if !errors.Is(err, fs.ErrExist) {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	winners := 0
	for _, kr := range made {
		if kr == nil {
			continue
		}
		winners++
		onDisk, err := keyring.Open(path)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := onDisk.Unwrap(mustWrap(t, kr, "k", ""), nil); err != nil {
			t.Fatalf("the winner's key is not the one on disk: %v", err)
		}
	}
	if winners != 1 {
		t.Fatalf("%d of %d creations succeeded, want 1", winners, len(made))
	}
}

func TestOpenRefusesReadableFiles(t *testing.T) {
	t.Parallel()
	if runtime.GOOS == "windows" {
		t.Skip("mode bits mean nothing here")
	}
	tests := []struct {
		mode               fs.FileMode
		owned, groupMayUse bool
	}{
		{0o600, true, true}, {0o400, true, true}, {0o640, false, true}, {0o440, false, true},
		{0o604, false, false}, {0o644, false, false}, {0o660, false, false}, {0o620, false, false}, {0o601, false, false},
	}
	for _, tt := range tests {
		t.Run(tt.mode.String(), func(t *testing.T) {
			t.Parallel()
			_, path := create(t)
			if err := os.Chmod(path, tt.mode); err != nil {
				t.Fatal(err)
			}
			check := func(name string, open func(string) (*keyring.Keyring, error), want bool) {
				_, err := open(path)
				if (err == nil) != want {
					t.Errorf("%s with mode %v: %v", name, tt.mode, err)
				}
				if err != nil && !strings.Contains(err.Error(), "chmod") {
					t.Errorf("%s: the error does not say how to mend it: %v", name, err)
				}
			}
			check("Open", keyring.Open, tt.owned)
			check("OpenReadOnly", keyring.OpenReadOnly, tt.groupMayUse)
		})
	}
}

func TestRotationAndRetirement(t *testing.T) {
	t.Parallel()
	kr, path := create(t)
	old := mustWrap(t, kr, "k", "a")
	version, err := kr.Rotate()
	if err != nil || version != 2 || kr.PrimaryVersion() != 2 {
		t.Fatalf("rotated to %d, primary %d, %v", version, kr.PrimaryVersion(), err)
	}
	fresh := mustWrap(t, kr, "k", "a")
	if v, err := keyring.WrappedVersion(fresh); err != nil || v != 2 {
		t.Fatalf("a new value has version %d, %v", v, err)
	}
	if _, err := kr.Unwrap(old, []byte("a")); err != nil {
		t.Fatalf("the old value after rotation: %v", err)
	}
	if err := kr.Retire(2); !errors.Is(err, keyring.ErrPrimary) {
		t.Fatalf("retire the primary: %v", err)
	}
	if err := kr.Retire(9); !errors.Is(err, keyring.ErrUnknownVersion) {
		t.Fatalf("retire a missing key: %v", err)
	}
	if err := kr.Retire(1); err != nil {
		t.Fatal(err)
	}
	reopened, err := keyring.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	for name, k := range map[string]*keyring.Keyring{"same": kr, "reopened": reopened} {
		if _, err := k.Unwrap(old, []byte("a")); !errors.Is(err, keyring.ErrUnknownVersion) {
			t.Errorf("%s: the old value after retirement: %v", name, err)
		}
		if _, err := k.Unwrap(fresh, []byte("a")); err != nil {
			t.Errorf("%s: the new value: %v", name, err)
		}
	}
	states := make([]string, 0, 2)
	for _, info := range kr.List() {
		states = append(states, fmt.Sprint(info.Version, info.State, info.Created.IsZero()))
	}
	if got := strings.Join(states, ";"); got != "1retiredfalse;2primaryfalse" && got != "1 retired false;2 primary false" {
		t.Errorf("listed %s", got)
	}
}

func TestRotationWhileInUse(t *testing.T) {
	t.Parallel()
	kr, _ := create(t)
	done := make(chan struct{})
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for {
				select {
				case <-done:
					return
				default:
				}
				wrapped, err := kr.Wrap([]byte("k"), nil)
				if err == nil {
					_, err = kr.Unwrap(wrapped, nil)
				}
				if err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	for range 10 {
		if _, err := kr.Rotate(); err != nil {
			t.Error(err)
		}
	}
	close(done)
	wg.Wait()
}

// Two processes with the same file: neither loses the other's key.
func TestRotateKeepsForeignChanges(t *testing.T) {
	t.Parallel()
	a, path := create(t)
	b, err := keyring.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := a.Rotate(); err != nil {
		t.Fatal(err)
	}
	byA := mustWrap(t, a, "k", "")
	if _, err := b.Unwrap(byA, nil); !errors.Is(err, keyring.ErrUnknownVersion) {
		t.Fatalf("before the reload: %v", err)
	}
	if err := b.Reload(); err != nil {
		t.Fatal(err)
	}
	if _, err := b.Unwrap(byA, nil); err != nil {
		t.Fatalf("after the reload: %v", err)
	}
	if _, err := a.Rotate(); err != nil {
		t.Fatal(err)
	}
	if v, err := b.Rotate(); err != nil || v != 4 {
		t.Fatalf("b rotated to %d, %v", v, err)
	}
}

func TestUnwrapRefusesAlteredValues(t *testing.T) {
	t.Parallel()
	kr, _ := create(t)
	if _, err := kr.Rotate(); err != nil {
		t.Fatal(err)
	}
	good := mustWrap(t, kr, "data key", "aad")
	body := strings.TrimPrefix(good, "kek.v1.2.")
	tests := map[string]struct {
		text string
		want error
	}{
		"empty": {"", keyring.ErrCorrupt}, "prefix only": {"kek.v1.", keyring.ErrCorrupt},
		"no body": {"kek.v1.2", keyring.ErrCorrupt}, "empty body": {"kek.v1.2.", keyring.ErrCorrupt},
		"version zero": {"kek.v1.0." + body, keyring.ErrCorrupt}, "leading zero": {"kek.v1.02." + body, keyring.ErrCorrupt},
		"signed": {"kek.v1.+2." + body, keyring.ErrCorrupt}, "negative": {"kek.v1.-2." + body, keyring.ErrCorrupt},
		"no prefix": {"2." + body, keyring.ErrCorrupt}, "letter in the version": {"kek.v1.2x." + body, keyring.ErrCorrupt},
		"huge version":     {"kek.v1.99999999999999999999." + body, keyring.ErrCorrupt},
		"other key":        {"kek.v1.1." + body, keyring.ErrCorrupt},
		"missing key":      {"kek.v1.3." + body, keyring.ErrUnknownVersion},
		"truncated":        {good[:len(good)-4], keyring.ErrCorrupt},
		"line end":         {good + "\n", keyring.ErrCorrupt},
		"padding":          {good + "=", keyring.ErrCorrupt},
		"another segment":  {good + ".AAAA", keyring.ErrCorrupt},
		"another format":   {"kek.v2.2." + body, keyring.ErrCorrupt},
		"oversized":        {"kek.v1.2." + strings.Repeat("A", 1<<20), keyring.ErrCorrupt},
		"standard base64+": {"kek.v1.2.+" + body[1:], keyring.ErrCorrupt},
	}
	for name, tt := range tests {
		if _, err := kr.Unwrap(tt.text, []byte("aad")); !errors.Is(err, tt.want) {
			t.Errorf("%s: got %v, want %v", name, err, tt.want)
		}
	}
	if _, err := kr.Unwrap(good, []byte("aae")); !errors.Is(err, keyring.ErrCorrupt) {
		t.Errorf("another aad: %v", err)
	}
	raw, err := base64.RawURLEncoding.DecodeString(body)
	if err != nil {
		t.Fatal(err)
	}
	for i := range raw {
		raw[i] ^= 1
		if _, err := kr.Unwrap("kek.v1.2."+base64.RawURLEncoding.EncodeToString(raw), []byte("aad")); !errors.Is(err, keyring.ErrCorrupt) {
			t.Errorf("bit flipped in byte %d: %v", i, err)
		}
		raw[i] ^= 1
	}
	if v, err := keyring.WrappedVersion(tests["oversized"].text); !errors.Is(err, keyring.ErrCorrupt) {
		t.Errorf("version of an oversized value: %d, %v", v, err)
	}
	for size, want := range map[int]bool{0: false, 1: true, 4096: true, 4097: false} {
		if _, err := kr.Wrap(make([]byte, size), nil); (err == nil) != want {
			t.Errorf("a data key of %d bytes: %v", size, err)
		}
	}
}

func TestParse(t *testing.T) {
	t.Parallel()
	kr, path := create(t)
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	good := string(data)
	parsed, err := keyring.Parse(good)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := parsed.Unwrap(mustWrap(t, kr, "k", ""), nil); err != nil {
		t.Fatal(err)
	}
	if _, err := parsed.Rotate(); !errors.Is(err, keyring.ErrReadOnly) {
		t.Errorf("rotate: %v", err)
	}
	_, keyText, _ := strings.Cut(good, `"key": "`)
	keyText, _, _ = strings.Cut(keyText, `"`)
	replace := func(old, new string) string {
		if !strings.Contains(good, old) {
			t.Fatalf("the file does not contain %q", old)
		}
		return strings.Replace(good, old, new, 1)
	}
	entry := good[strings.Index(good, "{\n      \"version\""):strings.Index(good, "\n  ]")]
	bad := map[string]string{
		"empty": "", "not JSON": keyText, "truncated": good[:len(good)-5], "trailing": good + "x",
		"second value": good + good, "null": "null", "array": "[]",
		"format": replace(`"format": 1`, `"format": 2`), "primary": replace(`"primary": 1`, `"primary": 7`),
		"state": replace(`"state": "primary"`, `"state": "active"`), "odd state": replace(`"primary",`, `"on",`),
		"version": replace(`"version": 1`, `"version": 0`), "short key": replace(keyText, keyText[:40]),
		"zero key":   replace(keyText, base64.StdEncoding.EncodeToString(make([]byte, 32))),
		"number key": replace(`"`+keyText+`"`, "12345"), "unknown field": replace(`"format"`, `"fromat": 1, "format"`),
		"twice": replace(entry, entry+","+entry), "no keys": `{"format":1,"primary":1,"keys":[]}`,
		"huge":        good + strings.Repeat(" ", 1<<20),
		"no primary":  strings.Replace(replace(`"primary": 1`, `"primary": 7`), `"state": "primary"`, `"state": "active"`, 1),
		"all zero":    strings.Replace(replace(`"primary": 1`, `"primary": 0`), `"version": 1`, `"version": 0`, 1),
		"ten digits":  strings.Replace(replace(`"primary": 1`, `"primary": 1000000000`), `"version": 1`, `"version": 1000000000`, 1),
		"after a key": replace(keyText, keyText+"x"), "too many keys": manyKeys(keyText, 1001),
	}
	for name, text := range bad {
		_, err := keyring.Parse(text)
		if err == nil {
			t.Errorf("%s: accepted", name)
		} else if strings.Contains(err.Error(), keyText[:8]) {
			t.Errorf("%s: the error quotes the key: %v", name, err)
		}
	}
}

// manyKeys returns a file of so many keys, of which the last is the primary.
func manyKeys(keyText string, n int) string {
	var keys strings.Builder
	for version := 1; version < n; version++ {
		fmt.Fprintf(&keys, `{"version":%d,"created":"2026-01-01T00:00:00Z","state":"active","key":%q},`, version, keyText)
	}
	return fmt.Sprintf(`{"format":1,"primary":%[1]d,"keys":[%[2]s{"version":%[1]d,"created":"2026-01-01T00:00:00Z","state":"primary","key":%[3]q}]}`, n, keys.String(), keyText)
}

func TestAFullKeyringIsNotRotated(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "keyring.json")
	if err := os.WriteFile(path, []byte(manyKeys(base64.StdEncoding.EncodeToString([]byte(strings.Repeat("k", 32))), 1000)), 0o600); err != nil {
		t.Fatal(err)
	}
	kr, err := keyring.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	if version, err := kr.Rotate(); err == nil || kr.PrimaryVersion() != 1000 {
		t.Errorf("rotated to %d, primary %d", version, kr.PrimaryVersion())
	}
	if _, err := keyring.Open(path); err != nil {
		t.Errorf("afterwards: %v", err)
	}
}

func TestKeysAreNotPrinted(t *testing.T) {
	t.Parallel()
	kr, path := create(t)
	data, _ := os.ReadFile(path)
	_, keyText, _ := strings.Cut(string(data), `"key": "`)
	material, err := base64.StdEncoding.DecodeString(keyText[:44])
	if err != nil {
		t.Fatal(err)
	}
	dk, wrapped, err := keyring.NewDataKey(kr, 7, "fields")
	if err != nil || wrapped == "" {
		t.Fatal(err)
	}
	type holder struct {
		kr *keyring.Keyring
		dk keyring.DataKey
	}
	for _, bytes := range [][]byte{material, dk.Bytes()} {
		forms := []string{
			string(bytes[:8]), fmt.Sprintf("%x", bytes[:8]), fmt.Sprintf("%X", bytes[:8]),
			strings.Trim(fmt.Sprintf("%d", bytes[:8]), "[]"), base64.StdEncoding.EncodeToString(bytes[:9]), strings.TrimSuffix(strings.TrimPrefix(fmt.Sprintf("%#v", bytes[:4]), "[]byte{"), "}"),
		}
		for _, value := range []any{kr, dk, &dk, holder{kr, dk}, &holder{kr, dk}, []holder{{kr, dk}}, kr.List()} {
			for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q", "%x", "%X", "%d", "%p"} {
				got := fmt.Sprintf(verb, value)
				for _, form := range forms {
					if strings.Contains(got, form) {
						t.Errorf("%s of %T shows key bytes: %s", verb, value, got)
					}
				}
			}
		}
	}
}

func FuzzUnwrap(f *testing.F) {
	kr, _ := create(f)
	good, err := kr.Wrap([]byte("k"), []byte("a"))
	if err != nil {
		f.Fatal(err)
	}
	f.Add(good)
	f.Add("kek.v1.1.")
	f.Fuzz(func(t *testing.T, text string) {
		if _, err := kr.Unwrap(text, []byte("a")); err == nil && text != good {
			t.Fatalf("%q was accepted", text)
		}
	})
}

func FuzzParse(f *testing.F) {
	f.Add(`{"format":1,"primary":1,"keys":[{"version":1,"created":"2026-01-01T00:00:00Z","state":"primary","key":"AQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQE="}]}`)
	f.Fuzz(func(t *testing.T, text string) {
		kr, err := keyring.Parse(text)
		if err != nil {
			return
		}
		wrapped, err := kr.Wrap([]byte("k"), nil)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := kr.Unwrap(wrapped, nil); err != nil {
			t.Fatal(err)
		}
	})
}
