package tokens

import (
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/golang-jwt/jwt/v5"

	"tenantry/internal/texts"
)

// Issuer is the iss claim of every share token.
const Issuer = "tenantry"

const (
	// MaxShareToken is the longest share token, in bytes.
	MaxShareToken = 8 << 10
	// MaxShareLifetime is the longest time from iat to exp.
	MaxShareLifetime = 366 * 24 * time.Hour
	// MinShareKey is the shortest signing key, in bytes.
	MinShareKey = 32

	// clockLeeway is how far the clock of another replica may be ahead. It does not prolong a token.
	clockLeeway = 5 * time.Second
	maxClaim    = 256
)

// ErrInvalidToken is wrapped by every error of VerifyShare, which also has its text. The reason is for tests and
// metrics:
// errors.AsType[*TokenError].
var ErrInvalidToken = errors.New("the share token is not valid")

// Reason is why a token was refused.
type Reason string

// Reasons of a TokenError.
const (
	ReasonTooLarge  Reason = "too_large"
	ReasonMalformed Reason = "malformed"
	ReasonHeader    Reason = "header"
	ReasonKey       Reason = "key"
	ReasonSignature Reason = "signature"
	ReasonClaims    Reason = "claims"
	ReasonIssuer    Reason = "issuer"
	ReasonAudience  Reason = "audience"
	ReasonSubject   Reason = "subject"
	ReasonExpired   Reason = "expired"
	ReasonLifetime  Reason = "lifetime"
	ReasonNotYet    Reason = "not_yet_valid"
)

// TokenError is the refusal of a share token. All have the same text, so that answers do not reveal the reason.
type TokenError struct{ Reason Reason }

func (e *TokenError) Error() string { return ErrInvalidToken.Error() }

// Unwrap returns ErrInvalidToken.
func (e *TokenError) Unwrap() error { return ErrInvalidToken }

func invalid(reason Reason) error { return &TokenError{Reason: reason} }

// Share is the content of a share token.
type Share struct {
	// ID is the jti, 1 to 128 of A-Z, a-z, 0-9, '-', '_', for revocation.
	ID string
	// Organization is the audience.
	Organization string
	// Report is the subject, the pid of the report.
	Report string
	// Params holds the locked values, as JSON values. VerifyShare returns numbers as json.Number, which rounds none,
	// and a map that is not nil.
	Params map[string]any
	// IssuedAt and ExpiresAt are stored in whole seconds.
	IssuedAt  time.Time
	ExpiresAt time.Time
}

// Signer signs share tokens. It prints without its key.
type Signer struct {
	// Key has at least MinShareKey bytes.
	Key []byte
	// KeyID is the kid: 1 to 32 of a-z, 0-9.
	KeyID string
}

// String names the signer without its key.
func (s Signer) String() string { return "signer " + s.KeyID }

// Format writes what String returns, for every verb.
func (s Signer) Format(f fmt.State, _ rune) { _, _ = io.WriteString(f, s.String()) }

// MarshalText returns what String returns. slog and JSON use it.
func (s Signer) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// NewShareID returns an identifier of at least 160 random bits.
func NewShareID() string { return randomBase62(27) }

// IssueShare signs a share token. It returns an error if the key is too short, a field of the share is missing or out
// of
// bounds, a parameter is not a JSON value, or the token would exceed MaxShareToken.
func IssueShare(signer Signer, share Share) (string, error) {
	if err := checkShare(signer, share); err != nil {
		return "", fmt.Errorf("issue a share token: %w", err)
	}
	params := share.Params
	if params == nil {
		params = map[string]any{}
	}
	token := jwt.NewWithClaims(jwt.SigningMethodHS256, &shareClaims{
		Issuer: Issuer, Audience: share.Organization, Subject: share.Report, ID: share.ID,
		IssuedAt: share.IssuedAt.Unix(), ExpiresAt: share.ExpiresAt.Unix(), Params: params,
	})
	token.Header["kid"] = signer.KeyID
	text, err := token.SignedString(signer.Key)
	if err != nil {
		return "", fmt.Errorf("issue a share token: %w", err)
	}
	if len(text) > MaxShareToken {
		return "", fmt.Errorf("issue a share token: it would have %d bytes, at most %d are allowed; "+
			"send fewer or shorter parameters", len(text), MaxShareToken)
	}
	// An issued token must be accepted later, but a parameter can marshal to JSON that the strict parser refuses, such
	// as an object with duplicate names.
	keys := func(string) ([]byte, bool) { return signer.Key, true }
	if _, err := VerifyShare(keys, text, share.Organization, share.Report, share.IssuedAt); err != nil {
		return "", errors.New("issue a share token: the parameters cannot be represented; " +
			"expected plain JSON values, nested at most 32 deep")
	}
	return text, nil
}

func checkShare(signer Signer, share Share) error {
	lifetime := share.ExpiresAt.Unix() - share.IssuedAt.Unix()
	switch {
	case len(signer.Key) < MinShareKey:
		return fmt.Errorf("the signing key has %d bytes; at least %d are required", len(signer.Key), MinShareKey)
	case !validKeyID(signer.KeyID):
		return errors.New("the key identifier must be 1 to 32 of a-z, 0-9")
	case share.Organization == "" || len(share.Organization) > maxClaim:
		return fmt.Errorf("the organization must have 1 to %d bytes", maxClaim)
	case share.Report == "" || len(share.Report) > maxClaim:
		return fmt.Errorf("the report's pid must have 1 to %d bytes", maxClaim)
	case !validID(share.ID):
		return errors.New("the token's identifier must be 1 to 128 of A-Z, a-z, 0-9, '-', '_'")
	case share.IssuedAt.Unix() <= 0:
		return errors.New("the time of issue is missing")
	case lifetime < 1:
		return errors.New("the token must expire after its issue")
	case lifetime > int64(MaxShareLifetime/time.Second):
		return fmt.Errorf("the token would be valid for %d seconds; at most %d are allowed", lifetime,
			MaxShareLifetime/time.Second)
	}
	return nil
}

// VerifyShare checks a share token for one organization and report at the time now, and returns its content. keys
// returns
// a signing key by its kid, of that organization only. Every error is a *TokenError, which wraps ErrInvalidToken. It
// does
// not check revocation, for which callers look up Share.ID.
func VerifyShare(
	keys func(keyID string) ([]byte, bool), token, organization, report string, now time.Time,
) (Share, error) {
	keyID, err := inspect(token)
	if err != nil {
		return Share{}, err
	}
	if keys == nil || organization == "" || report == "" {
		return Share{}, invalid(ReasonKey) // empty expectations must not match a token
	}
	key, ok := keys(keyID)
	if !ok || len(key) < MinShareKey {
		return Share{}, invalid(ReasonKey)
	}
	claims := &shareClaims{}
	// Times are checked below, with leeway for iat alone.
	parser := jwt.NewParser(jwt.WithValidMethods([]string{jwt.SigningMethodHS256.Alg()}), jwt.WithStrictDecoding(),
		jwt.WithoutClaimsValidation())
	if _, err := parser.ParseWithClaims(token, claims, func(*jwt.Token) (any, error) { return key, nil }); err != nil {
		if errors.Is(err, jwt.ErrTokenSignatureInvalid) {
			return Share{}, invalid(ReasonSignature)
		}
		return Share{}, invalid(ReasonClaims)
	}
	if reason := claims.check(organization, report, now); reason != "" {
		return Share{}, invalid(reason)
	}
	return Share{
		ID: claims.ID, Organization: claims.Audience, Report: claims.Subject, Params: claims.Params,
		IssuedAt: time.Unix(claims.IssuedAt, 0).UTC(), ExpiresAt: time.Unix(claims.ExpiresAt, 0).UTC(),
	}, nil
}

// inspect checks size, alphabet and header before anything is looked up, and returns the kid, which is not
// authenticated
// yet.
func inspect(token string) (keyID string, err error) {
	if len(token) > MaxShareToken {
		return "", invalid(ReasonTooLarge)
	}
	// base64 decoding ignores line ends even in strict mode.
	if !texts.Plain(token, MaxShareToken, "-_.") || strings.Count(token, ".") != 2 {
		return "", invalid(ReasonMalformed)
	}
	encoded, _, _ := strings.Cut(token, ".")
	header, ok := decodeSegment(encoded)
	if !ok {
		return "", invalid(ReasonMalformed)
	}
	members, err := strictObject(header)
	if err != nil {
		return "", invalid(ReasonHeader)
	}
	// Only known members are allowed, which excludes jwk, jku, x5u, x5c, crit, b64, zip and future ones.
	if len(members) != 3 || textOf(members["alg"]) != "HS256" || textOf(members["typ"]) != "JWT" {
		return "", invalid(ReasonHeader)
	}
	keyID = textOf(members["kid"])
	if !validKeyID(keyID) {
		return "", invalid(ReasonHeader)
	}
	return keyID, nil
}

func validKeyID(text string) bool { return texts.PlainLower(text, 32, "") }

func validID(text string) bool { return texts.Plain(text, 128, "-_") }
