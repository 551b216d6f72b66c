package tokens

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/golang-jwt/jwt/v5"

	"tenantry/internal/strictjson"
)

// maxUnix is the end of the year 9999.
const maxUnix = 253402300799

// shareClaims is the payload of a share token. Locked values are members of params only, so that none can take the
// place
// of a claim.
type shareClaims struct {
	Issuer    string         `json:"iss"`
	Audience  string         `json:"aud"`
	Subject   string         `json:"sub"`
	ID        string         `json:"jti"`
	IssuedAt  int64          `json:"iat"`
	ExpiresAt int64          `json:"exp"`
	Params    map[string]any `json:"params"`

	notBefore int64
}

// UnmarshalJSON requires every claim except nbf, with its exact name and type, and refuses unknown claims and
// duplicates.
func (c *shareClaims) UnmarshalJSON(data []byte) error {
	members, err := strictObject(data)
	if err != nil {
		return err
	}
	read := 0
	for name, target := range map[string]*string{"iss": &c.Issuer, "aud": &c.Audience, "sub": &c.Subject, "jti": &c.ID} {
		if *target = textOf(members[name]); *target == "" {
			return fmt.Errorf("claim %q is not a non-empty string", name)
		}
		read++
	}
	for name, target := range map[string]*int64{"iat": &c.IssuedAt, "exp": &c.ExpiresAt, "nbf": &c.notBefore} {
		value, present := members[name]
		if !present && name == "nbf" {
			continue
		}
		// ParseInt accepts no fraction, exponent or quotes.
		*target, err = strconv.ParseInt(string(value), 10, 64)
		if err != nil || *target <= 0 || *target > maxUnix {
			return fmt.Errorf("claim %q is not a time in seconds", name)
		}
		read++
	}
	d := json.NewDecoder(bytes.NewReader(members["params"]))
	d.UseNumber()
	if err := d.Decode(&c.Params); err != nil || c.Params == nil {
		return errors.New(`claim "params" is not an object`)
	}
	if read+1 != len(members) {
		return errors.New("there is an unknown claim")
	}
	return nil
}

// check returns why the claims do not meet these expectations, or "".
func (c *shareClaims) check(organization, report string, now time.Time) Reason {
	latest := now.Add(clockLeeway).Unix()
	switch {
	case c.Issuer != Issuer:
		return ReasonIssuer
	case c.Audience != organization:
		return ReasonAudience
	case c.Subject != report:
		return ReasonSubject
	case !validID(c.ID):
		return ReasonClaims
	case c.ExpiresAt <= c.IssuedAt || c.ExpiresAt-c.IssuedAt > int64(MaxShareLifetime/time.Second):
		return ReasonLifetime
	case c.IssuedAt > latest || c.notBefore > latest:
		return ReasonNotYet
	case now.Unix() >= c.ExpiresAt:
		return ReasonExpired
	}
	return ""
}

// The methods below implement jwt.Claims. The values are checked by check rather than by the library, whose leeway
// would
// prolong a token.

// GetExpirationTime returns exp.
func (c *shareClaims) GetExpirationTime() (*jwt.NumericDate, error) {
	return jwt.NewNumericDate(time.Unix(c.ExpiresAt, 0)), nil
}

// GetIssuedAt returns iat.
func (c *shareClaims) GetIssuedAt() (*jwt.NumericDate, error) {
	return jwt.NewNumericDate(time.Unix(c.IssuedAt, 0)), nil
}

// GetNotBefore returns nbf, or nil.
func (c *shareClaims) GetNotBefore() (*jwt.NumericDate, error) {
	if c.notBefore == 0 {
		return nil, nil
	}
	return jwt.NewNumericDate(time.Unix(c.notBefore, 0)), nil
}

// GetIssuer returns iss.
func (c *shareClaims) GetIssuer() (string, error) { return c.Issuer, nil }

// GetSubject returns sub.
func (c *shareClaims) GetSubject() (string, error) { return c.Subject, nil }

// GetAudience returns aud.
func (c *shareClaims) GetAudience() (jwt.ClaimStrings, error) {
	return jwt.ClaimStrings{c.Audience}, nil
}

func decodeSegment(segment string) ([]byte, bool) {
	data, err := base64.RawURLEncoding.Strict().DecodeString(segment)
	return data, err == nil
}

// textOf returns the value of a JSON string, or "" for any other JSON value.
func textOf(raw json.RawMessage) string {
	if len(raw) < 2 || raw[0] != '"' {
		return ""
	}
	var text string
	if json.Unmarshal(raw, &text) != nil {
		return ""
	}
	return text
}

// strictObject returns the members of a JSON object by their exact names. It refuses what encoding/json tolerates: see
// package strictjson.
func strictObject(data []byte) (map[string]json.RawMessage, error) {
	if err := strictjson.Check(data); err != nil {
		return nil, err
	}
	var members map[string]json.RawMessage
	err := json.Unmarshal(data, &members)
	if err == nil && members == nil {
		err = errors.New("the JSON value is not an object")
	}
	return members, err
}
