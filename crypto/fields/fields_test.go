package fields_test

import (
	"crypto/aes"
	"crypto/cipher"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"path/filepath"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"tenantry/crypto/fields"
	"tenantry/crypto/keyring"
)

func newKey(t testing.TB, kr *keyring.Keyring, organization int64, purpose string) keyring.DataKey {
	t.Helper()
	key, _, err := keyring.NewDataKey(kr, organization, purpose)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

func newRing(t testing.TB) *keyring.Keyring {
	t.Helper()
	kr, err := keyring.Create(filepath.Join(t.TempDir(), "keyring.json"))
	if err != nil {
		t.Fatal(err)
	}
	return kr
}

var at = fields.Location{Organization: 7, Collection: "contacts", Record: "65f0c0ffee0000000000000a", Field: "ssn"}

func TestSealThenOpen(t *testing.T) {
	t.Parallel()
	key := newKey(t, newRing(t), 7, "fields")
	for name, plaintext := range map[string]string{
		"empty": "", "ascii": "078-05-1120", "unicode": "Žluťoučký 🐎", "binary": "\x00\xff\n",
		"like a sealed value": "enc.v1.1.AAAA", "longest": strings.Repeat("x", fields.MaxPlaintext),
	} {
		sealed, err := fields.Seal(key, at, plaintext)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		again, err := fields.Seal(key, at, plaintext)
		if err != nil || again == sealed {
			t.Errorf("%s: sealed twice alike, %v", name, err)
		}
		if v, err := fields.KeyVersion(sealed); err != nil || v != 1 {
			t.Errorf("%s: key version %d, %v", name, v, err)
		}
		if got, err := fields.Open(key, at, sealed); err != nil || got.Reveal() != plaintext {
			t.Errorf("%s: opened to another value, %v", name, err)
		}
	}
}

// The format is fixed here by hand: stored values must open in later versions.
func TestFormat(t *testing.T) {
	t.Parallel()
	key := newKey(t, newRing(t), 7, "fields")
	sealed, err := fields.Seal(key, at, "078-05-1120")
	if err != nil {
		t.Fatal(err)
	}
	body, ok := strings.CutPrefix(sealed, "enc.v1.1.")
	if !ok {
		t.Fatalf("sealed as %s", sealed)
	}
	raw, err := base64.RawURLEncoding.DecodeString(body)
	if err != nil {
		t.Fatal(err)
	}
	var aad []byte
	text := func(s string) {
		aad = binary.BigEndian.AppendUint64(aad, uint64(len(s)))
		aad = append(aad, s...)
	}
	text("tenantry/fields/v1")
	aad = append(aad, 0, 0, 0, 0, 0, 0, 0, 7, 0, 0, 0, 0, 0, 0, 0, 1)
	for _, s := range []string{"fields", "contacts", "65f0c0ffee0000000000000a", "ssn"} {
		text(s)
	}
	block, err := aes.NewCipher(key.Bytes())
	if err != nil {
		t.Fatal(err)
	}
	gcm, err := cipher.NewGCM(block)
	if err != nil {
		t.Fatal(err)
	}
	got, err := gcm.Open(nil, raw[:12], raw[12:], aad)
	if err != nil || string(got) != "078-05-1120" {
		t.Fatalf("opened by hand to %q, %v", got, err)
	}
}

func TestMovedCiphertextIsRefused(t *testing.T) {
	t.Parallel()
	kr := newRing(t)
	key := newKey(t, kr, 7, "fields")
	sealed, err := fields.Seal(key, at, "canary")
	if err != nil {
		t.Fatal(err)
	}
	next, _, err := keyring.NextDataKey(kr, key)
	if err != nil {
		t.Fatal(err)
	}
	with := func(change func(*fields.Location)) fields.Location {
		to := at
		change(&to)
		return to
	}
	other := with(func(l *fields.Location) { l.Organization = 8 })
	tests := map[string]struct {
		key    keyring.DataKey
		to     fields.Location
		sealed string
	}{
		"organization with its key":    {newKey(t, kr, 8, "fields"), other, sealed},
		"organization, first's key":    {key, other, sealed},
		"collection":                   {key, with(func(l *fields.Location) { l.Collection = "users" }), sealed},
		"record":                       {key, with(func(l *fields.Location) { l.Record = "65f0c0ffee0000000000000b" }), sealed},
		"field":                        {key, with(func(l *fields.Location) { l.Field = "iban" }), sealed},
		"field, case":                  {key, with(func(l *fields.Location) { l.Field = "SSN" }), sealed},
		"border between the parts":     {key, with(func(l *fields.Location) { l.Collection, l.Record = "contacts6", at.Record[1:] }), sealed},
		"key of the same organization": {newKey(t, kr, 7, "fields"), at, sealed},
		"key of another purpose":       {newKey(t, kr, 7, "share"), at, sealed},
		"next key":                     {next, at, sealed},
		"next key, version rewritten":  {next, at, strings.Replace(sealed, "enc.v1.1.", "enc.v1.2.", 1)},
		"no key":                       {keyring.DataKey{}, at, sealed},
	}
	for name, tt := range tests {
		got, err := fields.Open(tt.key, tt.to, tt.sealed)
		if err != fields.ErrCorrupt || !got.IsZero() { //nolint:errorlint // the very same error is the point
			t.Errorf("%s: got %v", name, err)
		}
	}
	if got, err := fields.Open(key, at, sealed); err != nil || got.Reveal() != "canary" {
		t.Fatalf("in its own place: %v", err)
	}
}

func TestOpenRefusesAlteredText(t *testing.T) {
	t.Parallel()
	key := newKey(t, newRing(t), 7, "fields")
	sealed, err := fields.Seal(key, at, "value")
	if err != nil {
		t.Fatal(err)
	}
	body := strings.TrimPrefix(sealed, "enc.v1.1.")
	texts := map[string]string{
		"empty": "", "plain": "value", "prefix": "enc.v1.", "no body": "enc.v1.1.", "short": "enc.v1.1." + body[:30],
		"leading zero": "enc.v1.01." + body, "sign": "enc.v1.+1." + body, "zero": "enc.v1.0." + body,
		"huge version": "enc.v1.99999999999999999999." + body, "upper case": "ENC.v1.1." + body,
		"line end": sealed + "\n", "line end inside": sealed[:20] + "\n" + sealed[20:], "blank": sealed + " ",
		"padding": sealed + "=", "segment": sealed + ".AAAA", "before": " " + sealed, "standard alphabet": sealed[:20] + "+" + sealed[21:],
		"oversized": "enc.v1.1." + strings.Repeat("A", 1<<20), "no prefix": "1." + body, "no version": "enc.v1.." + body, "no number": "enc.v1.1x." + body,
		"version of 10 digits": "enc.v1.9999999999." + body, "one character more": sealed + "A", "two line ends inside": sealed[:20] + "\r\n" + sealed[20:],
	}
	for name, text := range texts {
		if _, err := fields.Open(key, at, text); !errors.Is(err, fields.ErrCorrupt) {
			t.Errorf("%s: got %v", name, err)
		}
		if v, err := fields.KeyVersion(text); !errors.Is(err, fields.ErrCorrupt) {
			t.Errorf("%s: version %d, %v", name, v, err)
		}
	}
	if _, err := fields.Open(key, at, "enc.v1.2."+body); !errors.Is(err, fields.ErrCorrupt) {
		t.Errorf("with another key's version: got %v", err)
	}
}

// Every character counts, the last one with its unused bits too: their number
// depends on the length.
func TestAlteredCharacterIsRefused(t *testing.T) {
	t.Parallel()
	key := newKey(t, newRing(t), 7, "fields")
	for _, plaintext := range []string{"four", "five5", "sixsix"} {
		sealed, err := fields.Seal(key, at, plaintext)
		if err != nil {
			t.Fatal(err)
		}
		for i := len("enc.v1.1."); i < len(sealed); i++ {
			others := "ADQgw_-."
			if i == len(sealed)-1 {
				others = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"
			}
			for _, c := range []byte(others) {
				altered := []byte(sealed)
				if altered[i] == c {
					continue
				}
				altered[i] = c
				if _, err := fields.Open(key, at, string(altered)); !errors.Is(err, fields.ErrCorrupt) {
					t.Errorf("%s: character %d set to %c: got %v", plaintext, i, c, err)
				}
			}
		}
	}
}

func TestSealRefuses(t *testing.T) {
	t.Parallel()
	key := newKey(t, newRing(t), 7, "fields")
	tests := map[string]struct {
		key   keyring.DataKey
		at    fields.Location
		value string
		want  error
	}{
		"no key":                  {keyring.DataKey{}, at, "x", fields.ErrLocation},
		"no key, no organization": {keyring.DataKey{}, fields.Location{Collection: "c", Record: "r", Field: "f"}, "x", fields.ErrLocation},
		"another organization":    {key, fields.Location{Organization: 8, Collection: "c", Record: "r", Field: "f"}, "x", fields.ErrLocation},
		"no collection":           {key, fields.Location{Organization: 7, Record: "r", Field: "f"}, "x", fields.ErrLocation},
		"no record":               {key, fields.Location{Organization: 7, Collection: "c", Field: "f"}, "x", fields.ErrLocation},
		"no field":                {key, fields.Location{Organization: 7, Collection: "c", Record: "r"}, "x", fields.ErrLocation},
		"too long":                {key, at, strings.Repeat("x", fields.MaxPlaintext+1), fields.ErrTooLong},
	}
	for name, tt := range tests {
		if got, err := fields.Seal(tt.key, tt.at, tt.value); !errors.Is(err, tt.want) || got != "" {
			t.Errorf("%s: got %q, %v", name, got, err)
		}
	}
}

// TestCiphertextOpensOnlyInItsPlace checks that a value sealed for one place opens in another only if both are equal.
func TestCiphertextOpensOnlyInItsPlace(t *testing.T) {
	t.Parallel()
	key := newKey(t, newRing(t), 7, "fields")
	part := rapid.StringMatching(`[ab.]{1,3}`)
	place := rapid.Custom(func(t *rapid.T) fields.Location {
		return fields.Location{Organization: 7, Collection: part.Draw(t, "c"), Record: part.Draw(t, "r"), Field: part.Draw(t, "f")}
	})
	rapid.Check(t, func(t *rapid.T) {
		from, to := place.Draw(t, "from"), place.Draw(t, "to")
		sealed, err := fields.Seal(key, from, "v")
		if err != nil {
			t.Fatal(err)
		}
		if _, err := fields.Open(key, to, sealed); (err == nil) != (from == to) {
			t.Fatalf("from %v to %v: %v", from, to, err)
		}
	})
}

func FuzzOpen(f *testing.F) {
	key := newKey(f, newRing(f), 7, "fields")
	good, err := fields.Seal(key, at, "value")
	if err != nil {
		f.Fatal(err)
	}
	f.Add(good)
	f.Add(good[:len(good)-1])
	f.Add("enc.v1.1.")
	f.Fuzz(func(t *testing.T, text string) {
		_, err := fields.Open(key, at, text)
		if err == nil && text != good {
			t.Fatalf("%q opened", text)
		}
	})
}

func BenchmarkSeal(b *testing.B) {
	key := newKey(b, newRing(b), 7, "fields")
	b.ReportAllocs()
	for b.Loop() {
		if _, err := fields.Seal(key, at, "078-05-1120"); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkOpen(b *testing.B) {
	key := newKey(b, newRing(b), 7, "fields")
	sealed, err := fields.Seal(key, at, "078-05-1120")
	if err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	for b.Loop() {
		if _, err := fields.Open(key, at, sealed); err != nil {
			b.Fatal(err)
		}
	}
}
