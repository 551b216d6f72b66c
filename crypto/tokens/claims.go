package tokens

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
	"time"
	"unicode/utf8"

	"github.com/golang-jwt/jwt/v5"
)

const (
	maxDepth = 32
	// maxUnix is the end of the year 9999.
	maxUnix = 253402300799
)

// shareClaims is the payload of a share token. Locked values stand under
// params alone, so that none can take the place of a claim.
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

// UnmarshalJSON requires every claim, by its exact name and type, and refuses
// others and duplicates. Only nbf may be absent.
func (c *shareClaims) UnmarshalJSON(data []byte) error {
	members, err := strictObject(data)
	if err != nil {
		return err
	}
	read := 0
	for name, target := range map[string]*string{"iss": &c.Issuer, "aud": &c.Audience, "sub": &c.Subject, "jti": &c.ID} {
		if *target = textOf(members[name]); *target == "" {
			return fmt.Errorf("claim %q is not a text", name)
		}
		read++
	}
	for name, target := range map[string]*int64{"iat": &c.IssuedAt, "exp": &c.ExpiresAt, "nbf": &c.notBefore} {
		value, present := members[name]
		if !present && name == "nbf" {
			continue
		}
		// ParseInt takes no fraction, exponent or quotes, and so one spelling.
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

// check returns why the claims do not hold for these expectations, or "".
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

// The methods below make shareClaims a jwt.Claims. The values are checked by
// check, not by the library, whose leeway would prolong a token.

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

// textOf returns the value of a JSON string, and "" for anything else.
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

// strictObject returns the members of one JSON object. It refuses what
// encoding/json passes over: duplicate names at any depth, bytes after the
// value, invalid UTF-8, and nesting deeper than 32. Names match exactly.
func strictObject(data []byte) (map[string]json.RawMessage, error) {
	if !utf8.Valid(data) {
		return nil, errors.New("the JSON is not valid UTF-8")
	}
	d := json.NewDecoder(bytes.NewReader(data))
	d.UseNumber()
	if err := walk(d, 0); err != nil {
		return nil, err
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return nil, errors.New("there is something after the JSON value")
	}
	var members map[string]json.RawMessage
	if err := json.Unmarshal(data, &members); err != nil {
		return nil, err
	}
	if members == nil {
		return nil, errors.New("the JSON value is not an object")
	}
	return members, nil
}

func walk(d *json.Decoder, depth int) error {
	if depth > maxDepth {
		return errors.New("the JSON is nested too deep")
	}
	token, err := d.Token()
	if err != nil {
		return err
	}
	opening, ok := token.(json.Delim)
	if !ok {
		return nil
	}
	seen := map[string]bool{}
	for d.More() {
		if opening == '{' {
			name, err := d.Token()
			if err != nil {
				return err
			}
			text, _ := name.(string)
			if seen[text] {
				return errors.New("a name occurs twice")
			}
			seen[text] = true
		}
		if err := walk(d, depth+1); err != nil {
			return err
		}
	}
	_, err = d.Token()
	return err
}
