package tokens_test

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash/crc32"
	"math"
	"strings"
	"testing"

	"tenantry/crypto/tokens"
)

const base62 = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"

// sign appends the checksum to a body, computed apart from the package.
func sign(body string) string {
	crc := crc32.ChecksumIEEE([]byte(body))
	sum := ""
	for range 6 {
		sum = string(base62[crc%62]) + sum
		crc /= 62
	}
	return body + "_" + sum
}

var fixed = strings.Repeat("aB3", 10) + "xY"

func TestNewAPIKey(t *testing.T) {
	t.Parallel()
	seen := map[string]bool{}
	for _, kind := range tokens.KeyKinds() {
		for range 200 {
			key, err := tokens.NewAPIKey(kind)
			if err != nil {
				t.Fatal(err)
			}
			text := key.Text.Reveal()
			if got, err := tokens.ParseAPIKey(text); err != nil || got != kind || key.Kind != kind {
				t.Fatalf("%s parses as %q, %v", kind, got, err)
			}
			if body := text[:len(text)-7]; sign(body) != text {
				t.Fatal("the checksum is not the CRC-32 of what is before it")
			}
			sum := sha256.Sum256([]byte(text))
			if key.Hash != hex.EncodeToString(sum[:]) || tokens.HashAPIKey(text) != key.Hash {
				t.Fatal("the hash is not the SHA-256 of the text")
			}
			if !strings.HasPrefix(text, key.Hint) || len(key.Hint) != len("tnt_"+string(kind)+"_")+4 {
				t.Fatalf("hint %q", key.Hint)
			}
			if seen[text] {
				t.Fatal("a key was made twice")
			}
			seen[text] = true
			if strings.Contains(fmt.Sprintf("%v %+v %#v", key, key, key), text) {
				t.Fatal("a printed key shows its text")
			}
		}
	}
	if _, err := tokens.NewAPIKey("root"); err == nil {
		t.Fatal("an unknown kind was accepted")
	}
}

func TestAPIKeyRandomBits(t *testing.T) {
	t.Parallel()
	counts := map[rune]int{}
	const keys = 2000
	length := 0
	for range keys {
		key, err := tokens.NewAPIKey(tokens.Browser)
		if err != nil {
			t.Fatal(err)
		}
		random := strings.Split(key.Text.Reveal(), "_")[2]
		length = len(random)
		for _, c := range random {
			counts[c]++
		}
	}
	if bits := float64(length) * math.Log2(62); bits < 160 {
		t.Fatalf("%.1f random bits, at least 160 expected", bits)
	}
	// Taking a byte modulo 62 would give the first 8 characters 25% more, 1290
	// instead of 1032; this bound is 7 standard deviations away.
	expected := float64(keys*length) / 62
	for _, c := range base62 {
		if got := float64(counts[c]); math.Abs(got-expected) > 0.22*expected {
			t.Errorf("%c occurs %v times, about %.0f expected", c, got, expected)
		}
	}
}

func TestMalformedKeyIsRefusedWithoutLookup(t *testing.T) {
	t.Parallel()
	good := sign("tnt_server_full_" + fixed)
	if kind, err := tokens.ParseAPIKey(good); err != nil || kind != tokens.ServerFull {
		t.Fatalf("got %q, %v, want no error and kind = %v", kind, err, tokens.ServerFull)
	}
	texts := map[string]string{
		"empty": "", "prefix": "tnt_", "kind only": "tnt_server_full_", "no checksum": "tnt_server_full_" + fixed,
		"empty checksum": "tnt_server_full_" + fixed + "_", "short checksum": good[:len(good)-1], "long checksum": good + "0",
		"no prefix": sign("server_full_" + fixed), "wrong prefix": sign("tnx_server_full_" + fixed), "upper prefix": sign("TNT_server_full_" + fixed),
		"unknown kind": sign("tnt_server_root_" + fixed), "no kind": sign("tnt_" + fixed), "half a kind": sign("tnt_server_" + fixed),
		"kind in capitals": sign("tnt_SERVER_FULL_" + fixed), "no delimiter": sign("tnt_browser" + fixed + "x"),
		"short random": sign("tnt_browser_" + fixed[1:]), "long random": sign("tnt_browser_" + fixed + "a"),
		"underscore in random": sign("tnt_browser_" + fixed[:31] + "_"), "punctuation": sign("tnt_browser_" + fixed[:31] + "-"),
		"not ASCII": sign("tnt_browser_" + fixed[:30] + "é"), "NUL": sign("tnt_browser_" + fixed[:31] + "\x00"),
		"blank before": " " + good, "blank after": good + " ", "line end": good + "\n", "two keys": good + "," + good,
		"1 MiB": strings.Repeat("tnt_browser_", 1<<17), "kind of another": strings.Replace(good, "server_full", "server_read", 1),
		"lower-case checksum": good[:len(good)-6] + strings.ToLower(good[len(good)-6:]) + "!",
	}
	for i := range good {
		altered := []byte(good)
		altered[i] ^= 1
		texts[fmt.Sprintf("bit flipped in byte %d", i)] = string(altered)
	}
	for name, text := range texts {
		kind, err := tokens.ParseAPIKey(text)
		if !errors.Is(err, tokens.ErrMalformedKey) || kind != "" {
			t.Errorf("%s: got %q, %v", name, kind, err)
		}
	}
}

func TestParseAPIKeyDoesNotAllocate(t *testing.T) {
	good := sign("tnt_server_full_" + fixed)
	bad := sign("tnt_server_full_" + fixed)[:53] + "00"
	for _, text := range []string{good, bad, strings.Repeat("x", 1<<16)} {
		if n := testing.AllocsPerRun(100, func() { _, _ = tokens.ParseAPIKey(text) }); n != 0 {
			t.Errorf("%v allocations for a text of %d bytes", n, len(text))
		}
	}
}

func TestOpaque(t *testing.T) {
	t.Parallel()
	token, hash := tokens.NewOpaque("ses")
	text := token.Reveal()
	if !strings.HasPrefix(text, "ses_") || float64(len(text)-4)*math.Log2(62) < 256 {
		t.Fatalf("a token of %d characters", len(text))
	}
	sum := sha256.Sum256([]byte(text))
	if hash != hex.EncodeToString(sum[:]) {
		t.Fatal("the hash is not the SHA-256 of the text")
	}
	if got, ok := tokens.HashOpaque("ses", text); !ok || got != hash {
		t.Fatalf("hashed again to %q, %v", got, ok)
	}
	for name, bad := range map[string]string{
		"empty": "", "short": text[:len(text)-1], "long": text + "a", "delimiter": "ses-" + text[4:], "character": text[:20] + "-" + text[21:],
		"prefix": "inv_" + text[4:],
	} {
		if got, ok := tokens.HashOpaque("ses", bad); ok || got != "" {
			t.Errorf("%s: accepted", name)
		}
	}
	if other, _ := tokens.NewOpaque("ses"); other.Equal(token) {
		t.Fatal("a token was made twice")
	}
}

func FuzzParseAPIKey(f *testing.F) {
	for _, kind := range tokens.KeyKinds() {
		f.Add(sign("tnt_" + string(kind) + "_" + fixed))
	}
	f.Add("tnt_server_full_")
	f.Fuzz(func(t *testing.T, text string) {
		kind, err := tokens.ParseAPIKey(text)
		if err != nil {
			return
		}
		body := text[:len(text)-7]
		if sign(body) != text || !strings.HasPrefix(text, "tnt_"+string(kind)+"_") || !kind.Valid() {
			t.Fatalf("%q was accepted as %q", text, kind)
		}
	})
}

func BenchmarkParseAPIKey(b *testing.B) {
	text := sign("tnt_server_full_" + fixed)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := tokens.ParseAPIKey(text); err != nil {
			b.Fatal(err)
		}
	}
}
