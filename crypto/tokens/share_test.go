package tokens_test

import (
	"bytes"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/golang-jwt/jwt/v5"

	"tenantry/crypto/tokens"
)

var (
	signer = tokens.Signer{Key: bytes.Repeat([]byte("k"), 32), KeyID: "k1"}
	issued = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	now    = issued.Add(time.Minute)
)

func share() tokens.Share {
	return tokens.Share{
		ID: "id-1", Organization: "7", Report: "pid-1", IssuedAt: issued, ExpiresAt: issued.Add(time.Hour),
		Params: map[string]any{"country": "CZ"},
	}
}

func keys(id string) ([]byte, bool) {
	if id == signer.KeyID {
		return signer.Key, true
	}
	return nil, false
}

func verify(token string) (tokens.Share, error) {
	return tokens.VerifyShare(keys, token, "7", "pid-1", now)
}

// forge signs any header and claims, apart from the library.
func forge(header, claims string, key []byte) string {
	body := base64.RawURLEncoding.EncodeToString([]byte(header)) + "." + base64.RawURLEncoding.EncodeToString([]byte(claims))
	mac := hmac.New(sha256.New, key)
	mac.Write([]byte(body))
	return body + "." + base64.RawURLEncoding.EncodeToString(mac.Sum(nil))
}

const goodHeader = `{"alg":"HS256","kid":"k1","typ":"JWT"}`

// claims returns the good claims with members replaced; nil removes one.
func claims(t testing.TB, changes map[string]any) string {
	t.Helper()
	members := map[string]any{
		"iss": "tenantry", "aud": "7", "sub": "pid-1", "jti": "id-1", "iat": issued.Unix(),
		"exp": issued.Add(time.Hour).Unix(), "params": map[string]any{"country": "CZ"},
	}
	for name, value := range changes {
		if members[name] = value; value == nil {
			delete(members, name)
		}
	}
	out, err := json.Marshal(members)
	if err != nil {
		t.Fatal(err)
	}
	return string(out)
}

func TestShareRoundTrip(t *testing.T) {
	t.Parallel()
	in := share()
	in.Params = map[string]any{
		"text": "<Ž&\">", "number": json.Number("9007199254740993"), "truth": true, "nothing": nil,
		"list": []any{"a", json.Number("1.5")}, "object": map[string]any{"a": map[string]any{}}, "exp": "1", "sub": "other",
	}
	token, err := tokens.IssueShare(signer, in)
	if err != nil {
		t.Fatal(err)
	}
	out, err := verify(token)
	if err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(in, out) {
		t.Fatalf("got  %#v\nwant %#v", out, in)
	}
	in.Params = nil
	if token, err = tokens.IssueShare(signer, in); err != nil {
		t.Fatal(err)
	}
	if out, err = verify(token); err != nil || out.Params == nil || len(out.Params) != 0 {
		t.Fatalf("without params: %v, %v", out.Params, err)
	}
}

// The claims as another JWT implementation sees them.
func TestShareIsAnOrdinaryJWT(t *testing.T) {
	t.Parallel()
	token, err := tokens.IssueShare(signer, share())
	if err != nil {
		t.Fatal(err)
	}
	parsed, err := jwt.Parse(token, func(*jwt.Token) (any, error) { return signer.Key, nil },
		jwt.WithTimeFunc(func() time.Time { return now }), jwt.WithExpirationRequired(), jwt.WithIssuedAt(),
		jwt.WithIssuer("tenantry"), jwt.WithAudience("7"), jwt.WithSubject("pid-1"))
	if err != nil {
		t.Fatal(err)
	}
	want := jwt.MapClaims{
		"iss": "tenantry", "aud": "7", "sub": "pid-1", "jti": "id-1", "iat": float64(issued.Unix()),
		"exp": float64(issued.Add(time.Hour).Unix()), "params": map[string]any{"country": "CZ"},
	}
	if !reflect.DeepEqual(parsed.Claims, want) || parsed.Header["kid"] != "k1" {
		t.Fatalf("claims %v, header %v", parsed.Claims, parsed.Header)
	}
	if _, err := verify(forge(goodHeader, claims(t, nil), signer.Key)); err != nil {
		t.Fatalf("a token made by hand: %v", err)
	}
}

func TestShortOrEmptySigningKeyIsRefused(t *testing.T) {
	t.Parallel()
	for _, key := range [][]byte{nil, {}, bytes.Repeat([]byte("k"), 31)} {
		if _, err := tokens.IssueShare(tokens.Signer{Key: key, KeyID: "k1"}, share()); err == nil {
			t.Errorf("a token was signed with %d bytes", len(key))
		}
		token := forge(goodHeader, claims(t, nil), key)
		for _, found := range []bool{true, false} {
			_, err := tokens.VerifyShare(func(string) ([]byte, bool) { return key, found }, token, "7", "pid-1", now)
			wantReason(t, fmt.Sprintf("key of %d bytes", len(key)), err, tokens.ReasonKey)
		}
	}
	_, err := tokens.VerifyShare(func(string) ([]byte, bool) { return signer.Key, false }, forge(goodHeader, claims(t, nil), signer.Key), "7", "pid-1", now)
	wantReason(t, "a key that is not the organization's", err, tokens.ReasonKey)
	_, err = tokens.VerifyShare(nil, forge(goodHeader, claims(t, nil), nil), "7", "pid-1", now)
	wantReason(t, "no key function", err, tokens.ReasonKey)
}

func wantReason(t *testing.T, name string, err error, want tokens.Reason) {
	t.Helper()
	refused, ok := errors.AsType[*tokens.TokenError](err)
	if !ok || !errors.Is(err, tokens.ErrInvalidToken) {
		t.Errorf("%s: got %v", name, err)
		return
	}
	if refused.Reason != want {
		t.Errorf("%s: refused for %s, want %s", name, refused.Reason, want)
	}
	if err.Error() != tokens.ErrInvalidToken.Error() {
		t.Errorf("%s: the text %q tells the reason", name, err)
	}
}

func TestForgedTokensAreRefusedAlike(t *testing.T) {
	t.Parallel()
	good, err := tokens.IssueShare(signer, share())
	if err != nil {
		t.Fatal(err)
	}
	parts := strings.Split(good, ".")
	head := func(header string) string { return forge(header, claims(t, nil), signer.Key) }
	body := func(name string, value any) string {
		return forge(goodHeader, claims(t, map[string]any{name: value}), signer.Key)
	}
	raw := func(text string) string { return forge(goodHeader, text, signer.Key) }
	base := claims(t, nil)
	sec := func(d time.Duration) int64 { return issued.Add(d).Unix() }
	tests := map[string]struct {
		token  string
		reason tokens.Reason
	}{
		"empty": {"", tokens.ReasonMalformed}, "one segment": {parts[0], tokens.ReasonMalformed}, "two segments": {parts[0] + "." + parts[1], tokens.ReasonMalformed},
		"four segments": {good + ".x", tokens.ReasonMalformed}, "five segments": {good + ".x.y", tokens.ReasonMalformed},
		"1 MiB": {strings.Repeat("a", 1<<20), tokens.ReasonTooLarge}, "1 MiB of dots": {strings.Repeat(".", 1<<20), tokens.ReasonTooLarge},
		"blank": {good + " ", tokens.ReasonMalformed}, "line end": {good + "\n", tokens.ReasonMalformed},
		"line end inside": {parts[0] + "." + parts[1][:8] + "\r\n" + parts[1][8:] + "." + parts[2], tokens.ReasonMalformed},
		"padding":         {good + "=", tokens.ReasonMalformed}, "standard alphabet": {good[:len(good)-1] + "+", tokens.ReasonMalformed},
		"header not base64": {"a." + parts[1] + "." + parts[2], tokens.ReasonMalformed}, "no header": {"." + parts[1] + "." + parts[2], tokens.ReasonHeader},

		"no signature": {parts[0] + "." + parts[1] + ".", tokens.ReasonSignature}, "wrong key": {forge(goodHeader, base, bytes.Repeat([]byte("x"), 32)), tokens.ReasonSignature},
		"empty key": {forge(goodHeader, base, nil), tokens.ReasonSignature}, "cut signature": {good[:len(good)-3], tokens.ReasonSignature},
		"claims of another": {parts[0] + "." + strings.Split(body("sub", "pid-2"), ".")[1] + "." + parts[2], tokens.ReasonSignature},

		"alg none": {head(`{"alg":"none","kid":"k1","typ":"JWT"}`), tokens.ReasonHeader}, "alg nOnE": {head(`{"alg":"nOnE","kid":"k1","typ":"JWT"}`), tokens.ReasonHeader},
		"alg none, unsigned": {unsigned(t), tokens.ReasonHeader},
		"alg HS384":          {head(`{"alg":"HS384","kid":"k1","typ":"JWT"}`), tokens.ReasonHeader}, "alg RS256": {head(`{"alg":"RS256","kid":"k1","typ":"JWT"}`), tokens.ReasonHeader},
		"alg hs256": {head(`{"alg":"hs256","kid":"k1","typ":"JWT"}`), tokens.ReasonHeader}, "alg list": {head(`{"alg":["HS256"],"kid":"k1","typ":"JWT"}`), tokens.ReasonHeader},
		"no alg": {head(`{"kid":"k1","typ":"JWT"}`), tokens.ReasonHeader}, "Alg": {head(`{"Alg":"HS256","kid":"k1","typ":"JWT"}`), tokens.ReasonHeader},
		"no typ": {head(`{"alg":"HS256","kid":"k1","x":"JWT"}`), tokens.ReasonHeader}, "other typ": {head(`{"alg":"HS256","kid":"k1","typ":"JOSE"}`), tokens.ReasonHeader},
		"no kid": {head(`{"alg":"HS256","typ":"JWT"}`), tokens.ReasonHeader}, "unknown kid": {head(`{"alg":"HS256","kid":"k2","typ":"JWT"}`), tokens.ReasonKey},
		"kid path": {head(`{"alg":"HS256","kid":"../../dev/null","typ":"JWT"}`), tokens.ReasonHeader}, "kid SQL": {head(`{"alg":"HS256","kid":"k1' OR '1","typ":"JWT"}`), tokens.ReasonHeader},
		"kid number": {head(`{"alg":"HS256","kid":1,"typ":"JWT"}`), tokens.ReasonHeader}, "kid empty": {head(`{"alg":"HS256","kid":"","typ":"JWT"}`), tokens.ReasonHeader},
		"kid long":  {head(`{"alg":"HS256","kid":"` + strings.Repeat("k", 33) + `","typ":"JWT"}`), tokens.ReasonHeader},
		"jwk":       {head(`{"alg":"HS256","kid":"k1","typ":"JWT","jwk":{"kty":"oct","k":"AA"}}`), tokens.ReasonHeader},
		"jku":       {head(`{"alg":"HS256","kid":"k1","typ":"JWT","jku":"https://a.example/k"}`), tokens.ReasonHeader},
		"x5u":       {head(`{"alg":"HS256","kid":"k1","typ":"JWT","x5u":"https://a.example/k"}`), tokens.ReasonHeader},
		"x5c":       {head(`{"alg":"HS256","kid":"k1","typ":"JWT","x5c":["AA"]}`), tokens.ReasonHeader},
		"crit":      {head(`{"alg":"HS256","kid":"k1","typ":"JWT","crit":["exp"]}`), tokens.ReasonHeader},
		"b64":       {head(`{"alg":"HS256","kid":"k1","typ":"JWT","b64":false}`), tokens.ReasonHeader},
		"alg twice": {head(`{"alg":"none","alg":"HS256","kid":"k1","typ":"JWT"}`), tokens.ReasonHeader},
		"kid twice": {head(`{"alg":"HS256","kid":"k2","kid":"k1","typ":"JWT"}`), tokens.ReasonHeader}, "kid twice, escaped": {head(`{"alg":"HS256","k\u0069d":"k2","kid":"k1","typ":"JWT"}`), tokens.ReasonHeader},
		"header list": {head(`[]`), tokens.ReasonHeader}, "header null": {head(`null`), tokens.ReasonHeader}, "header trailing": {head(goodHeader + "{}"), tokens.ReasonHeader},
		"header BOM": {head("\ufeff" + goodHeader), tokens.ReasonHeader},

		"no iss": {body("iss", nil), tokens.ReasonClaims}, "other iss": {body("iss", "tenantry2"), tokens.ReasonIssuer},
		"no aud": {body("aud", nil), tokens.ReasonClaims}, "other aud": {body("aud", "8"), tokens.ReasonAudience}, "aud list": {body("aud", []string{"7", "8"}), tokens.ReasonClaims},
		"aud number": {body("aud", 7), tokens.ReasonClaims}, "aud empty": {body("aud", ""), tokens.ReasonClaims},
		"no sub": {body("sub", nil), tokens.ReasonClaims}, "other sub": {body("sub", "pid-2"), tokens.ReasonSubject}, "sub empty": {body("sub", ""), tokens.ReasonClaims},
		"no jti": {body("jti", nil), tokens.ReasonClaims}, "jti odd": {body("jti", "a b"), tokens.ReasonClaims}, "jti long": {body("jti", strings.Repeat("a", 129)), tokens.ReasonClaims},
		"no exp": {body("exp", nil), tokens.ReasonClaims}, "exp null": {raw(strings.Replace(base, `"exp":`, `"exp":null,"e":`, 1)), tokens.ReasonClaims},
		"exp text": {body("exp", fmt.Sprint(sec(time.Hour))), tokens.ReasonClaims}, "exp fraction": {body("exp", float64(sec(time.Hour))+0.5), tokens.ReasonClaims},
		"exp huge": {body("exp", json.Number("1e300")), tokens.ReasonClaims}, "exp over int64": {body("exp", json.Number("9223372036854775808")), tokens.ReasonClaims},
		"exp negative": {body("exp", -1), tokens.ReasonClaims}, "EXP": {raw(strings.Replace(base, `"exp"`, `"EXP"`, 1)), tokens.ReasonClaims},
		"exp past": {body("exp", sec(30*time.Second)), tokens.ReasonExpired}, "exp now": {body("exp", sec(time.Minute)), tokens.ReasonExpired},
		"exp after the year 9999": {body("exp", 253402300800), tokens.ReasonClaims},
		"exp far":                 {body("exp", sec(366*24*time.Hour)+1), tokens.ReasonLifetime}, "exp before iat": {body("exp", sec(-time.Second)), tokens.ReasonLifetime},
		"no iat": {body("iat", nil), tokens.ReasonClaims}, "iat zero": {body("iat", 0), tokens.ReasonClaims}, "iat future": {body("iat", sec(time.Minute+6*time.Second)), tokens.ReasonNotYet},
		"nbf future": {body("nbf", sec(10*time.Minute)), tokens.ReasonNotYet}, "nbf text": {body("nbf", "x"), tokens.ReasonClaims},
		"no params": {body("params", nil), tokens.ReasonClaims}, "params list": {body("params", []int{}), tokens.ReasonClaims}, "params text": {body("params", "x"), tokens.ReasonClaims},
		"params null":        {raw(strings.Replace(base, `{"country":"CZ"}`, `null`, 1)), tokens.ReasonClaims},
		"locked at top":      {body("country", "CZ"), tokens.ReasonClaims},
		"claim twice":        {raw(strings.Replace(base, `"sub":`, `"sub":"pid-2","sub":`, 1)), tokens.ReasonClaims},
		"param twice":        {raw(strings.Replace(base, `"CZ"`, `"CZ","country":"SK"`, 1)), tokens.ReasonClaims},
		"param twice, deep":  {raw(strings.Replace(base, `"CZ"`, `[{"a":1,"a":2}]`, 1)), tokens.ReasonClaims},
		"claims trailing":    {raw(base + "x"), tokens.ReasonClaims},
		"claims list":        {raw("[]"), tokens.ReasonClaims},
		"claims null":        {raw("null"), tokens.ReasonIssuer},
		"claims not UTF-8":   {raw(strings.Replace(base, "CZ", "\xff", 1)), tokens.ReasonClaims},
		"claims nested deep": {raw(strings.Replace(base, `"CZ"`, strings.Repeat("[", 40)+strings.Repeat("]", 40), 1)), tokens.ReasonClaims},
	}
	for name, tt := range tests {
		got, err := verify(tt.token)
		wantReason(t, name, err, tt.reason)
		if !reflect.DeepEqual(got, tokens.Share{}) {
			t.Errorf("%s: a refusal came with a share", name)
		}
	}
	if _, err := verify(good); err != nil {
		t.Fatalf("the good token: %v", err)
	}
}

func unsigned(t *testing.T) string {
	t.Helper()
	token := jwt.NewWithClaims(jwt.SigningMethodNone, jwt.MapClaims{"sub": "pid-1"})
	token.Header["kid"] = "k1"
	text, err := token.SignedString(jwt.UnsafeAllowNoneSignatureType)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// TestAlteredTokenCharacterIsRefused changes each character in turn, including the last of a segment, whose low bits
// are unused.
func TestAlteredTokenCharacterIsRefused(t *testing.T) {
	t.Parallel()
	good, err := tokens.IssueShare(signer, share())
	if err != nil {
		t.Fatal(err)
	}
	for i := range good {
		others := "ADQgw_-."
		if i == len(good)-1 {
			others = base62 + "-_"
		}
		for _, c := range []byte(others) {
			if good[i] == c {
				continue
			}
			altered := []byte(good)
			altered[i] = c
			if _, err := verify(string(altered)); !errors.Is(err, tokens.ErrInvalidToken) {
				t.Errorf("character %d set to %c: %v", i, c, err)
			}
		}
	}
}

func TestShareTimes(t *testing.T) {
	t.Parallel()
	token, err := tokens.IssueShare(signer, share())
	if err != nil {
		t.Fatal(err)
	}
	for offset, want := range map[time.Duration]bool{
		-6 * time.Second: false, -5 * time.Second: true, 0: true, time.Hour - time.Nanosecond: true,
		time.Hour: false, time.Hour + 4*time.Second: false,
	} {
		_, err := tokens.VerifyShare(keys, token, "7", "pid-1", issued.Add(offset))
		if (err == nil) != want {
			t.Errorf("%v after issue: %v", offset, err)
		}
	}
}

func TestLockedValueNamedLikeAClaimShadowsNothing(t *testing.T) {
	t.Parallel()
	in := share()
	in.Params = map[string]any{"exp": issued.Add(1000 * time.Hour).Unix(), "aud": "8", "sub": "pid-2", "iss": "x"}
	token, err := tokens.IssueShare(signer, in)
	if err != nil {
		t.Fatal(err)
	}
	out, err := verify(token)
	if err != nil || out.Report != "pid-1" || out.Organization != "7" || !out.ExpiresAt.Equal(in.ExpiresAt) {
		t.Fatalf(`got %v, %v, want no error and out.Report = "pid-1" and out.Organization = "7"`, out, err)
	}
	if _, err := tokens.VerifyShare(keys, token, "7", "pid-1", in.ExpiresAt); err == nil {
		t.Fatal("a locked value named exp prolonged the token")
	}
	if _, err := tokens.VerifyShare(keys, token, "8", "pid-2", now); err == nil {
		t.Fatal("locked values named aud and sub moved the token")
	}
}

func TestVerifyShareWithoutExpectations(t *testing.T) {
	t.Parallel()
	token, err := tokens.IssueShare(signer, share())
	if err != nil {
		t.Fatal(err)
	}
	for _, expect := range [][2]string{{"", "pid-1"}, {"7", ""}, {"", ""}} {
		_, err := tokens.VerifyShare(keys, token, expect[0], expect[1], now)
		wantReason(t, fmt.Sprintf("organization %q, report %q", expect[0], expect[1]), err, tokens.ReasonKey)
	}
}

func TestIssueShareRefuses(t *testing.T) {
	t.Parallel()
	deep := any("x")
	for range 40 {
		deep = []any{deep}
	}
	const id, unsayable = "the token's identifier must be", "the parameters cannot be represented"
	for name, tt := range map[string]struct {
		change func(*tokens.Signer, *tokens.Share)
		says   string
	}{
		"no organization":   {func(_ *tokens.Signer, s *tokens.Share) { s.Organization = "" }, "the organization must have 1 to 256 bytes"},
		"long organization": {func(_ *tokens.Signer, s *tokens.Share) { s.Organization = strings.Repeat("7", 257) }, "the organization must have 1 to 256 bytes"},
		"no report":         {func(_ *tokens.Signer, s *tokens.Share) { s.Report = "" }, "the report's pid must have 1 to 256 bytes"},
		"long report":       {func(_ *tokens.Signer, s *tokens.Share) { s.Report = strings.Repeat("p", 257) }, "the report's pid must have 1 to 256 bytes"},
		"no id":             {func(_ *tokens.Signer, s *tokens.Share) { s.ID = "" }, id}, "odd id": {func(_ *tokens.Signer, s *tokens.Share) { s.ID = "a/b" }, id},
		"no times":        {func(_ *tokens.Signer, s *tokens.Share) { s.IssuedAt, s.ExpiresAt = time.Time{}, time.Time{} }, "the time of issue is missing"},
		"no expiry":       {func(_ *tokens.Signer, s *tokens.Share) { s.ExpiresAt = time.Time{} }, "must expire after its issue"},
		"expires at once": {func(_ *tokens.Signer, s *tokens.Share) { s.ExpiresAt = s.IssuedAt }, "must expire after its issue"},
		"too long":        {func(_ *tokens.Signer, s *tokens.Share) { s.ExpiresAt = s.IssuedAt.Add(366*24*time.Hour + time.Second) }, "at most 31622400 are allowed"},
		"too large":       {func(_ *tokens.Signer, s *tokens.Share) { s.Params["x"] = strings.Repeat("x", 8<<10) }, "at most 8192 are allowed"},
		"NaN":             {func(_ *tokens.Signer, s *tokens.Share) { s.Params["x"] = math.NaN() }, "NaN"},
		"function":        {func(_ *tokens.Signer, s *tokens.Share) { s.Params["x"] = func() {} }, "func()"},
		"deep":            {func(_ *tokens.Signer, s *tokens.Share) { s.Params["x"] = deep }, unsayable},
		"duplicates":      {func(_ *tokens.Signer, s *tokens.Share) { s.Params["x"] = json.RawMessage(`{"a":1,"a":2}`) }, unsayable},
		"no kid":          {func(k *tokens.Signer, _ *tokens.Share) { k.KeyID = "" }, "the key identifier must be"},
		"odd kid":         {func(k *tokens.Signer, _ *tokens.Share) { k.KeyID = "../x" }, "the key identifier must be"},
		"no key":          {func(k *tokens.Signer, _ *tokens.Share) { k.Key = nil }, "at least 32 are required"},
		"short key":       {func(k *tokens.Signer, _ *tokens.Share) { k.Key = k.Key[:31] }, "at least 32 are required"},
	} {
		s, k := share(), signer
		tt.change(&k, &s)
		if token, err := tokens.IssueShare(k, s); err == nil || token != "" || !strings.Contains(err.Error(), tt.says) {
			t.Errorf("%s: %v, want %q", name, err, tt.says)
		}
	}
	made := tokens.NewShareID()
	if s := share(); made == tokens.NewShareID() || len(made) < 27 {
		t.Errorf("identifier %q", made)
	} else if s.ID = made; true {
		if _, err := tokens.IssueShare(signer, s); err != nil {
			t.Error(err)
		}
	}
}

func TestSignerIsNotPrinted(t *testing.T) {
	t.Parallel()
	for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%x"} {
		if got := fmt.Sprintf(verb, signer); got != "signer k1" {
			t.Errorf(`%s: got %s, want "signer k1"`, verb, got)
		}
	}
	if out, err := json.Marshal(signer); err != nil || string(out) != `"signer k1"` {
		t.Errorf("JSON %s, %v", out, err)
	}
}

func FuzzVerifyShare(f *testing.F) {
	good, err := tokens.IssueShare(signer, share())
	if err != nil {
		f.Fatal(err)
	}
	f.Add(good)
	f.Add(good[:len(good)-1])
	f.Add("..")
	f.Fuzz(func(t *testing.T, token string) {
		if _, err := verify(token); err == nil && token != good {
			t.Fatalf("%q was accepted", token)
		} else if err != nil && err.Error() != tokens.ErrInvalidToken.Error() {
			t.Fatalf("another error: %v", err)
		}
	})
}

// The claims reader behind the signature: whatever it accepts names every
// claim once.
func FuzzSignedClaims(f *testing.F) {
	f.Add(claims(f, nil))
	f.Add(`{"iss":"tenantry"}`)
	f.Fuzz(func(t *testing.T, payload string) {
		out, err := verify(forge(goodHeader, payload, signer.Key))
		if err != nil {
			return
		}
		var members map[string]json.RawMessage
		if err := json.Unmarshal([]byte(payload), &members); err != nil {
			t.Fatal(err)
		}
		if len(members) < 7 || out.Params == nil || !out.ExpiresAt.After(now) || out.ExpiresAt.Sub(out.IssuedAt) > tokens.MaxShareLifetime {
			t.Fatalf("%q was accepted", payload)
		}
	})
}

func BenchmarkIssueShare(b *testing.B) {
	b.ReportAllocs()
	for b.Loop() {
		if _, err := tokens.IssueShare(signer, share()); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkVerifyShare(b *testing.B) {
	token, err := tokens.IssueShare(signer, share())
	if err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	for b.Loop() {
		if _, err := verify(token); err != nil {
			b.Fatal(err)
		}
	}
}
