// Package rate has request limits as settings and records write them: 100/s, 6000/m, off.
package rate

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"time"

	"tenantry/internal/fault"
	"tenantry/internal/strictjson"
	"tenantry/internal/texts"
)

// MaxCount bounds a limit, because a count times the milliseconds of a day must stay below 2^53: Lua, whose numbers are
// floating point, calculates with it exactly.
const MaxCount = 100_000_000

// Off is the text of a limit that admits everything.
const Off = "off"

// Limit is how many requests a period admits. It is used up one by one and refills steadily: after a period without
// requests it is full. The zero value is unset, so a default applies. Limits can be compared with ==.
type Limit struct {
	count  int64 // 0: unset; below 0: off
	period int64 // milliseconds
}

type unit struct {
	name, word string
	period     time.Duration
}

func units() [4]unit {
	return [...]unit{
		{"s", "second", time.Second}, {"m", "minute", time.Minute}, {"h", "hour", time.Hour}, {"d", "day", 24 * time.Hour},
	}
}

// Parse reads a limit such as 100/s, 6000/m, 20000/h, 100000/d or off; "" is the zero value. The error says what is
// wrong and how limits are written.
func Parse(text string) (Limit, error) {
	switch text {
	case "":
		return Limit{}, nil
	case Off:
		return Unlimited(), nil
	}
	number, name, found := strings.Cut(text, "/")
	count, err := strconv.ParseUint(number, 10, 63)
	if err != nil || !found {
		return Limit{}, fmt.Errorf("%q is not a limit; write it like 100/s, 6000/m, 20000/h, 100000/d, or off",
			texts.Clip(text))
	}
	if count < 1 || count > MaxCount {
		return Limit{}, fmt.Errorf("%q is out of range: a limit is from 1 to %d requests, or off", texts.Clip(text), MaxCount)
	}
	for _, u := range units() {
		if u.name == name {
			return Limit{int64(count), u.period.Milliseconds()}, nil
		}
	}
	return Limit{}, fmt.Errorf("%q has no known period; write s, m, h or d after the slash, for second, minute, hour or day",
		texts.Clip(text))
}

// PerSecond returns the limit of count requests a second, from 1 to MaxCount.
func PerSecond(count int64) Limit {
	return Limit{min(max(count, 1), MaxCount), time.Second.Milliseconds()}
}

// PerHour returns the limit of count requests an hour, from 1 to MaxCount.
func PerHour(count int64) Limit {
	return Limit{min(max(count, 1), MaxCount), time.Hour.Milliseconds()}
}

// Burst returns the limit of count requests at once, from 1 to MaxCount, of which one is available again after each
// interval.
func Burst(count int64, interval time.Duration) Limit {
	count = min(max(count, 1), MaxCount)
	return Limit{count, count * interval.Milliseconds()}
}

// Unlimited returns the limit that is off.
func Unlimited() Limit { return Limit{count: -1} }

// Count returns how many requests the period admits, 0 if the limit is off or unset.
func (l Limit) Count() int64 { return max(l.count, 0) }

// Period returns the milliseconds of the period, 0 if the limit is off or unset.
func (l Limit) Period() int64 { return l.period }

// IsSet reports whether the limit is set, which includes off.
func (l Limit) IsSet() bool { return l.count != 0 }

// Equal reports whether both are the same limit.
func (l Limit) Equal(other Limit) bool { return l == other }

// String returns the limit as Parse reads it.
func (l Limit) String() string {
	switch {
	case l.count == 0:
		return ""
	case l.count < 0:
		return Off
	}
	for _, u := range units() {
		if u.period.Milliseconds() == l.period {
			return strconv.FormatInt(l.count, 10) + "/" + u.name
		}
	}
	return ""
}

// MarshalText returns what String does.
func (l Limit) MarshalText() ([]byte, error) { return []byte(l.String()), nil }

// UnmarshalText reads what Parse does.
func (l *Limit) UnmarshalText(text []byte) (err error) {
	*l, err = Parse(string(text))
	return err
}

func (l Limit) or(fallback Limit) Limit {
	if l.IsSet() {
		return l
	}
	return fallback
}

// Pair is the two limits of one party: a rate against bursts and a quota over a longer period.
type Pair struct {
	Rate  Limit `json:"rate,omitzero"`
	Quota Limit `json:"quota,omitzero"`
}

// Or returns the pair, with the fallback's limits for those that are unset.
func (p Pair) Or(fallback Pair) Pair {
	return Pair{p.Rate.or(fallback.Rate), p.Quota.or(fallback.Quota)}
}

// Part returns the limit divided by the number of parts, at least one request a period.
func (l Limit) Part(parts int64) Limit {
	if l.count > 0 {
		l.count = max(l.count/parts, 1)
	}
	return l
}

// Tighter returns the limit that admits less in the long run.
func (l Limit) Tighter(other Limit) Limit {
	if l.count <= 0 || other.count > 0 && other.count*l.period < l.count*other.period {
		return other
	}
	return l
}

// Set is the limits of an organization, of each of its callers, and of each network address of callers without an
// accepted credential. A caller's own limits take precedence.
type Set struct {
	Organization Pair `json:"organization,omitzero"`
	Key          Pair `json:"key,omitzero"`
	Address      Pair `json:"address,omitzero"`
	// Visitor limits each network address that uses a browser key, within the key's own limits.
	Visitor Pair `json:"visitor,omitzero"`
}

// Or returns the set, with the fallback's limits for those that are unset.
func (s Set) Or(fallback Set) Set {
	return Set{
		Organization: s.Organization.Or(fallback.Organization), Key: s.Key.Or(fallback.Key),
		Address: s.Address.Or(fallback.Address), Visitor: s.Visitor.Or(fallback.Visitor),
	}
}

// ReadValue reads the limits of an import's line, and adds a fault if they are malformed.
func (s *Set) ReadValue(name string, v strictjson.Value, errs *fault.List) {
	dec := json.NewDecoder(bytes.NewReader(v.Raw()))
	dec.DisallowUnknownFields()
	if err := dec.Decode(s); v.Is != strictjson.Object || err != nil {
		errs.Add(name, fault.Format,
			`%s must be like {"organization": {"rate": "100/s", "quota": "100000/d"}, "key": {"rate": "off"}}`, name)
	}
}

// MergeValue overrides the limits of s with those that from, a Set, sets.
func (s *Set) MergeValue(from any) { *s = from.(Set).Or(*s) }
