package sealing_test

import (
	"bytes"
	"crypto/ecdh"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/asn1"
	"encoding/base64"
	"encoding/hex"
	"encoding/pem"
	"errors"
	"math/big"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/crypto/nacl/box"

	"tenantry/crypto/sealing"
)

var rsa2048 = sync.OnceValue(func() *rsa.PrivateKey { return generate(2048) })

func generate(bits int) *rsa.PrivateKey {
	key, err := rsa.GenerateKey(rand.Reader, bits)
	if err != nil {
		panic(err)
	}
	return key
}

func der(t testing.TB, key any) []byte {
	t.Helper()
	out, err := x509.MarshalPKIXPublicKey(key)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func asPEM(label string, body []byte) string {
	return string(pem.EncodeToMemory(&pem.Block{Type: label, Bytes: body}))
}

var std = base64.StdEncoding

// madeUp returns the DER of an RSA public key that nobody has the private half
// of: the checks concern its form alone.
func madeUp(t testing.TB, bits, e int) []byte {
	n := new(big.Int).Lsh(big.NewInt(1), uint(bits-1))
	n.SetBit(n, 0, 1)
	n.SetBit(n, 77, 1)
	return der(t, &rsa.PublicKey{N: n, E: e})
}

func TestRSARoundTrip(t *testing.T) {
	t.Parallel()
	private := rsa2048()
	spki := der(t, &private.PublicKey)
	block := asPEM("PUBLIC KEY", spki)
	texts := map[string]string{
		"DER standard": std.EncodeToString(spki), "DER unpadded": base64.RawStdEncoding.EncodeToString(spki),
		"DER URL-safe": base64.URLEncoding.EncodeToString(spki), "DER URL-safe unpadded": base64.RawURLEncoding.EncodeToString(spki),
		"DER with blanks for plus": strings.ReplaceAll(std.EncodeToString(spki), "+", " "),
		"DER in lines":             strings.Join(strings.SplitAfter(std.EncodeToString(spki), "A"), "\n"),
		"PEM":                      block, "PEM CRLF": strings.ReplaceAll(block, "\n", "\r\n"), "PEM without last line end": strings.TrimSpace(block),
		"PEM with blanks for plus": strings.ReplaceAll(block, "+", " "),
		"PEM in base64":            std.EncodeToString([]byte(block)), "PEM in URL-safe base64": base64.RawURLEncoding.EncodeToString([]byte(block)),
	}
	sum := sha256.Sum256(spki)
	for name, text := range texts {
		key, err := sealing.ParsePublicKey(text)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if key.Algorithm() != "RSA-OAEP-256" || key.KeyID() != hex.EncodeToString(sum[:]) || key.MaxPlaintext() != 190 {
			t.Errorf(`%s: got %s %s %d, want key.Algorithm() = "RSA-OAEP-256" and key.MaxPlaintext() = 190`,
				name, key.Algorithm(), key.KeyID(), key.MaxPlaintext())
		}
		for _, plaintext := range [][]byte{nil, []byte("078-05-1120"), bytes.Repeat([]byte("x"), 190)} {
			sealed, err := key.Seal(plaintext)
			if err != nil {
				t.Fatal(err)
			}
			raw, err := std.Strict().DecodeString(sealed)
			if err != nil {
				t.Fatal(err)
			}
			got, err := rsa.DecryptOAEP(sha256.New(), nil, private, raw, nil)
			if err != nil || !bytes.Equal(got, plaintext) {
				t.Errorf("%s: decrypted to %q, %v", name, got, err)
			}
		}
		if _, err := key.Seal(make([]byte, 191)); !errors.Is(err, sealing.ErrTooLong) {
			t.Errorf("%s: 191 bytes: %v", name, err)
		}
	}
}

func TestX25519RoundTrip(t *testing.T) {
	t.Parallel()
	// A key whose base64 has both characters that the alphabets disagree on.
	var public, private *[32]byte
	for {
		var err error
		if public, private, err = box.GenerateKey(rand.Reader); err != nil {
			t.Fatal(err)
		}
		if text := std.EncodeToString(public[:]); strings.Contains(text, "+") && strings.Contains(text, "/") {
			break
		}
	}
	sum := sha256.Sum256(public[:])
	for name, text := range map[string]string{
		"standard": std.EncodeToString(public[:]), "unpadded": base64.RawStdEncoding.EncodeToString(public[:]),
		"URL-safe": base64.URLEncoding.EncodeToString(public[:]), "URL-safe unpadded": base64.RawURLEncoding.EncodeToString(public[:]),
		"blanks": strings.ReplaceAll(std.EncodeToString(public[:]), "+", " "),
	} {
		key, err := sealing.ParsePublicKey(text)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if key.Algorithm() != "X25519-sealed-box" || key.KeyID() != hex.EncodeToString(sum[:]) {
			t.Errorf(`%s: got %s %s, want key.Algorithm() = "X25519-sealed-box"`, name, key.Algorithm(), key.KeyID())
		}
		for _, plaintext := range [][]byte{nil, []byte("v"), bytes.Repeat([]byte("x"), 100_000)} {
			sealed, err := key.Seal(plaintext)
			if err != nil {
				t.Fatal(err)
			}
			raw, err := std.DecodeString(sealed)
			if err != nil {
				t.Fatal(err)
			}
			if got, ok := box.OpenAnonymous(nil, raw, public, private); !ok || !bytes.Equal(got, plaintext) {
				t.Errorf("%s: %d bytes do not decrypt", name, len(plaintext))
			}
		}
		if _, err := key.Seal(make([]byte, sealing.MaxPlaintext+1)); !errors.Is(err, sealing.ErrTooLong) {
			t.Errorf("%s: too long: %v", name, err)
		}
	}
}

func TestModulusSizes(t *testing.T) {
	t.Parallel()
	for bits, want := range map[int]bool{1024: false, 2047: false, 2048: true, 3072: true, 4096: true, 4097: false, 8192: false, 16384: false} {
		_, err := sealing.ParsePublicKey(std.EncodeToString(madeUp(t, bits, 65537)))
		if (err == nil) != want {
			t.Errorf("%d bits: %v", bits, err)
		}
		if e, ok := errors.AsType[*sealing.KeyError](err); !want && (!ok || e.Reason != sealing.ReasonModulus) {
			t.Errorf("%d bits: %v", bits, err)
		}
	}
}

type refusal struct {
	text   string
	reason sealing.Reason
}

func refusals(t testing.TB) map[string]refusal {
	t.Helper()
	private := rsa2048()
	spki := der(t, &private.PublicKey)
	good := std.EncodeToString(spki)
	block := asPEM("PUBLIC KEY", spki)
	pkcs8, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		t.Fatal(err)
	}
	ec, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	sec1, err := x509.MarshalECPrivateKey(ec)
	if err != nil {
		t.Fatal(err)
	}
	ed, _, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	x, err := ecdh.X25519().GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "x"}}
	cert, err := x509.CreateCertificate(rand.Reader, template, template, &ec.PublicKey, ec)
	if err != nil {
		t.Fatal(err)
	}
	pkcs1 := x509.MarshalPKCS1PrivateKey(private)
	pkcs1Public := x509.MarshalPKCS1PublicKey(&private.PublicKey)
	list := map[string]refusal{
		"empty": {"", sealing.ReasonMissing}, "not base64": {"%%%%", sealing.ReasonEncoding},
		"both alphabets": {"-_-_+/+/", sealing.ReasonEncoding}, "bad padding": {good[:len(good)-1] + "==", sealing.ReasonEncoding},
		"too large": {strings.Repeat("A", 8<<10+1), sealing.ReasonTooLarge}, "1 MiB": {strings.Repeat("A", 1<<20), sealing.ReasonTooLarge},
		"31 bytes": {std.EncodeToString(make([]byte, 31)), sealing.ReasonFormat}, "33 bytes": {std.EncodeToString(make([]byte, 33)), sealing.ReasonFormat},
		"plain text":     {std.EncodeToString([]byte("hello")), sealing.ReasonFormat},
		"e=1":            {std.EncodeToString(madeUp(t, 2048, 1)), sealing.ReasonExponent},
		"e=2":            {std.EncodeToString(madeUp(t, 2048, 2)), sealing.ReasonExponent},
		"even e":         {std.EncodeToString(madeUp(t, 2048, 65536)), sealing.ReasonExponent},
		"e over 31 bits": {std.EncodeToString(madeUp(t, 2048, 1<<31+1)), sealing.ReasonExponent},
		"even modulus":   {std.EncodeToString(der(t, &rsa.PublicKey{N: new(big.Int).Lsh(big.NewInt(3), 2047), E: 65537})), sealing.ReasonModulus},
		"trailing byte":  {std.EncodeToString(append(bytes.Clone(spki), 0)), sealing.ReasonTrailing},
		"two keys":       {std.EncodeToString(append(bytes.Clone(spki), spki...)), sealing.ReasonTrailing},
		"truncated":      {std.EncodeToString(spki[:len(spki)-1]), sealing.ReasonFormat},
		"PKCS8":          {std.EncodeToString(pkcs8), sealing.ReasonPrivateKey}, "PKCS8 PEM": {asPEM("PRIVATE KEY", pkcs8), sealing.ReasonPrivateKey},
		"PKCS1": {std.EncodeToString(pkcs1), sealing.ReasonPrivateKey}, "PKCS1 PEM": {asPEM("RSA PRIVATE KEY", pkcs1), sealing.ReasonPrivateKey},
		"SEC1": {std.EncodeToString(sec1), sealing.ReasonPrivateKey}, "SEC1 PEM": {asPEM("EC PRIVATE KEY", sec1), sealing.ReasonPrivateKey},
		"encrypted PEM":              {asPEM("ENCRYPTED PRIVATE KEY", []byte{1}), sealing.ReasonPrivateKey},
		"OpenSSH PEM in base64":      {std.EncodeToString([]byte(asPEM("OPENSSH PRIVATE KEY", []byte{1}))), sealing.ReasonPrivateKey},
		"private labelled as public": {asPEM("PUBLIC KEY", pkcs8), sealing.ReasonPrivateKey},
		"certificate":                {std.EncodeToString(cert), sealing.ReasonCertificate}, "certificate PEM": {asPEM("CERTIFICATE", cert), sealing.ReasonCertificate},
		"PKCS1 public": {std.EncodeToString(pkcs1Public), sealing.ReasonFormat}, "PKCS1 public PEM": {asPEM("RSA PUBLIC KEY", pkcs1Public), sealing.ReasonFormat},
		"EC": {std.EncodeToString(der(t, &ec.PublicKey)), sealing.ReasonAlgorithm}, "Ed25519": {std.EncodeToString(der(t, ed)), sealing.ReasonAlgorithm},
		"X25519 in DER": {std.EncodeToString(der(t, x.PublicKey())), sealing.ReasonAlgorithm},
		"PEM twice":     {block + block, sealing.ReasonTrailing}, "text after PEM": {block + "x", sealing.ReasonTrailing},
		"text before PEM": {"x" + block, sealing.ReasonTrailing}, "PEM without end": {block[:100], sealing.ReasonFormat},
		"PEM without last line": {block[:strings.Index(block, "-----END")], sealing.ReasonFormat},
		"PEM header":            {strings.Replace(block, "\n", "\nProc-Type: 4,ENCRYPTED\n\n", 1), sealing.ReasonEncoding},
		"PEM begin":             {"-----BEGIN PUBLIC KEY", sealing.ReasonFormat}, "PEM empty": {asPEM("PUBLIC KEY", nil), sealing.ReasonFormat},
		"PEM odd label":        {asPEM("DH PARAMETERS", spki), sealing.ReasonFormat},
		"PEM trailing":         {asPEM("PUBLIC KEY", append(bytes.Clone(spki), 0)), sealing.ReasonTrailing},
		"deep nesting":         {std.EncodeToString(bytes.Repeat([]byte{0x30, 0x80}, 2000)), sealing.ReasonFormat},
		"no structure inside":  {std.EncodeToString([]byte{0x30, 2, 0x04, 0}), sealing.ReasonFormat},
		"encrypted PKCS8":      {std.EncodeToString([]byte{0x30, 4, 0x30, 0, 0x04, 0}), sealing.ReasonPrivateKey},
		"no bit string":        {std.EncodeToString([]byte{0x30, 4, 0x30, 0, 0x05, 0}), sealing.ReasonFormat},
		"after the bit string": {std.EncodeToString([]byte{0x30, 7, 0x30, 0, 0x03, 1, 0, 0x05, 0}), sealing.ReasonTrailing},
		"no algorithm":         {std.EncodeToString([]byte{0x30, 5, 0x30, 0, 0x03, 1, 0}), sealing.ReasonFormat},
		"unknown algorithm":    {std.EncodeToString([]byte{0x30, 9, 0x30, 4, 0x06, 2, 0x2a, 3, 0x03, 1, 0}), sealing.ReasonAlgorithm},
		"trailing inside": {std.EncodeToString(spkiWith(t, func(inner []byte) []byte { return append(inner, 0x05, 0x00) })),
			sealing.ReasonTrailing},
		"negative modulus": {std.EncodeToString(spkiWith(t, func([]byte) []byte {
			return marshal(t, struct{ N, E *big.Int }{new(big.Int).Neg(private.N), big.NewInt(65537)})
		})), sealing.ReasonFormat},
		"exponent of 65 bits": {std.EncodeToString(spkiWith(t, func([]byte) []byte {
			return marshal(t, struct{ N, E *big.Int }{private.N, new(big.Int).Add(new(big.Int).Lsh(big.NewInt(1), 64), big.NewInt(1))})
		})), sealing.ReasonFormat},
		"negative exponent": {std.EncodeToString(spkiWith(t, func([]byte) []byte {
			return marshal(t, struct{ N, E *big.Int }{private.N, big.NewInt(-3)})
		})), sealing.ReasonFormat},
	}
	// Points of order 1, 2, 4 and 8, their unreduced spellings, and all of them
	// with the ignored high bit set; as listed in libsodium's has_small_order.
	for _, point := range []string{
		"0000000000000000000000000000000000000000000000000000000000000000",
		"0100000000000000000000000000000000000000000000000000000000000000",
		"e0eb7a7c3b41b8ae1656e3faf19fc46ada098deb9c32b1fd866205165f49b800",
		"5f9c95bca3508c24b1d0b1559c83ef5b04445cc4581c8e86d8224eddd09f1157",
		"ecffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f",
		"edffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f",
		"eeffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f",
	} {
		raw, err := hex.DecodeString(point)
		if err != nil {
			t.Fatal(err)
		}
		list["low order "+point[:4]] = refusal{std.EncodeToString(raw), sealing.ReasonLowOrder}
		raw[31] |= 0x80
		list["low order, high bit "+point[:4]] = refusal{std.EncodeToString(raw), sealing.ReasonLowOrder}
	}
	return list
}

// spkiWith returns the DER of the test key with its inner structure changed
// and all lengths correct.
func spkiWith(t testing.TB, change func([]byte) []byte) []byte {
	var spki struct {
		Algorithm asn1.RawValue
		Key       asn1.BitString
	}
	if _, err := asn1.Unmarshal(der(t, &rsa2048().PublicKey), &spki); err != nil {
		t.Fatal(err)
	}
	inner := change(bytes.Clone(spki.Key.Bytes))
	spki.Key = asn1.BitString{Bytes: inner, BitLength: 8 * len(inner)}
	return marshal(t, spki)
}

func marshal(t testing.TB, v any) []byte {
	t.Helper()
	out, err := asn1.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func TestBadPublicKeysAreRefusedFast(t *testing.T) {
	for name, tt := range refusals(t) {
		// The best of several: the machine may be busy with other things.
		best := time.Hour
		var err error
		for range 5 {
			start := time.Now()
			_, err = sealing.ParsePublicKey(tt.text)
			best = min(best, time.Since(start))
		}
		refused, ok := errors.AsType[*sealing.KeyError](err)
		if !ok || !errors.Is(err, sealing.ErrPublicKey) {
			t.Errorf("%s: got %v", name, err)
			continue
		}
		if refused.Reason != tt.reason {
			t.Errorf("%s: reason %s, want %s (%v)", name, refused.Reason, tt.reason, err)
		}
		if !strings.Contains(err.Error(), "expected") && !strings.Contains(err.Error(), "send ") {
			t.Errorf("%s: the error does not say what is expected: %v", name, err)
		}
		if best > 5*time.Millisecond { // told, not decided: the machine may be busy
			t.Logf("%s: refused after %v", name, best)
		}
	}
}

func TestTransferKeys(t *testing.T) {
	t.Parallel()
	key, err := sealing.NewPrivateKey()
	if err != nil {
		t.Fatal(err)
	}
	private, public := key.Text().Reveal(), key.Public().TransferText()
	bare := public[strings.Index(public, ":")+1:]
	for name, text := range map[string]string{
		"empty": "", "no beginning": private[strings.Index(private, ":")+1:], "short": private[:len(private)-1], "long": private + "AAAA",
		"31 bytes": strings.TrimSuffix(private, private[len(private)-4:]) + "AA==", "no base64": private[:40] + "%" + private[41:],
		"many line ends inside": private[:40] + strings.Repeat("\n", 64) + private[40:],
	} {
		if _, err := sealing.ParseTransferKey(text); !errors.Is(err, sealing.ErrTransferKey) {
			t.Errorf("private, %s: %v", name, err)
		}
	}
	for name, text := range map[string]string{
		"empty": "", "no beginning": bare, "short": public[:len(public)-1], "long": public + "AAAA",
		"low order": "tenantry-transfer-public-1:" + std.EncodeToString(make([]byte, 32)),
	} {
		if _, err := sealing.ParseTransferPublicKey(text); !errors.Is(err, sealing.ErrTransferKey) {
			t.Errorf("public, %s: %v", name, err)
		}
	}
	// Who takes one half for the other is told which it is.
	if _, err := sealing.ParseTransferKey(public); err == nil || !strings.Contains(err.Error(), "it is the public half") {
		t.Errorf("the public half to open with: %v", err)
	}
	if _, err := sealing.ParseTransferPublicKey(private); err == nil || !strings.Contains(err.Error(), "it is the private half") {
		t.Errorf("the private half to seal to: %v", err)
	}
	again, err := sealing.ParseTransferKey(" " + private + "\n")
	if err != nil {
		t.Fatal(err)
	}
	to, err := sealing.ParseTransferPublicKey(public + "\n")
	if err != nil {
		t.Fatal(err)
	}
	sealed, err := to.SealFor([]string{"a", "b"}, []byte("canary"))
	if err != nil {
		t.Fatal(err)
	}
	if got, err := again.OpenFor([]string{"a", "b"}, sealed); err != nil || string(got) != "canary" {
		t.Errorf("opened to %q, %v", got, err)
	}
	stranger, err := sealing.NewPrivateKey()
	if err != nil {
		t.Fatal(err)
	}
	for name, tt := range map[string]struct {
		key     *sealing.PrivateKey
		context []string
		sealed  string
	}{
		"another key": {stranger, []string{"a", "b"}, sealed}, "no base64": {again, []string{"a", "b"}, "%" + sealed}, "cut": {again, []string{"a", "b"}, sealed[:20]},
		"another place": {again, []string{"a", "c"}, sealed}, "another border": {again, []string{"ab", ""}, sealed}, "part of the place": {again, []string{"a"}, sealed},
		"no place": {again, nil, sealed}, "altered": {again, []string{"a", "b"}, "AAAA" + sealed[4:]},
	} {
		if got, err := tt.key.OpenFor(tt.context, tt.sealed); !errors.Is(err, sealing.ErrOpen) || got != nil {
			t.Errorf("%s: opened to %q, %v", name, got, err)
		}
	}
}

func FuzzParsePublicKey(f *testing.F) {
	for _, tt := range refusals(f) {
		if len(tt.text) <= 8<<10 {
			f.Add(tt.text)
		}
	}
	f.Add(asPEM("PUBLIC KEY", der(f, &rsa2048().PublicKey)))
	f.Fuzz(func(t *testing.T, text string) {
		key, err := sealing.ParsePublicKey(text)
		if err != nil {
			if !errors.Is(err, sealing.ErrPublicKey) {
				t.Fatalf("untyped error %v", err)
			}
			return
		}
		if sealed, err := key.Seal([]byte("v")); err != nil || sealed == "" {
			t.Fatalf("an accepted key does not seal: %v", err)
		}
	})
}

func BenchmarkSealRSA2048(b *testing.B) {
	benchmark(b, std.EncodeToString(der(b, &rsa2048().PublicKey)))
}

func BenchmarkSealX25519(b *testing.B) {
	public, _, err := box.GenerateKey(rand.Reader)
	if err != nil {
		b.Fatal(err)
	}
	benchmark(b, std.EncodeToString(public[:]))
}

// benchmark measures what one reveal costs: parse and seal.
func benchmark(b *testing.B, text string) {
	b.ReportAllocs()
	for b.Loop() {
		key, err := sealing.ParsePublicKey(text)
		if err != nil {
			b.Fatal(err)
		}
		if _, err := key.Seal([]byte("078-05-1120")); err != nil {
			b.Fatal(err)
		}
	}
}
