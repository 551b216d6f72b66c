// Package limits counts requests against the limits of organizations and of their
// callers. With Redis all replicas count together; without it each counts for itself.
package limits

import (
	"cmp"
	"context"
	"net/netip"
	"strconv"
	"sync/atomic"
	"time"

	"tenantry/internal/rate"
	"tenantry/tenants/redisconn"
)

const (
	// patience is how long a request waits for Redis before it is counted here.
	patience = 100 * time.Millisecond

	maxRules    = 6 // of at most three parties
	maxParties  = 3
	rateSuffix  = ":rate"
	quotaSuffix = ":quota"
)

// Options say how a Limiter counts.
type Options struct {
	// Redis is where replicas count together. Nil: one process serves, and counts by
	// itself, which costs it far less than a script.
	Redis redisconn.Client
	// Defaults hold where organizations and keys say nothing.
	Defaults rate.Set
	// Prefix begins the names in Redis of what belongs to no organization: of addresses.
	Prefix string
	// Patience is how long a request waits for Redis before it is counted here; 0: 100 ms.
	Patience time.Duration
	Breaker  *redisconn.Breaker // of Redis; nil: one of its own
	Now      func() time.Time   // of this process; nil: time.Now
}

// Limiter counts requests. Safe for concurrent use.
type Limiter struct {
	shared   *shared // nil: there is no Redis
	local    *local
	defaults rate.Set
	prefix   string
	now      func() time.Time
	patience time.Duration // of one call of Redis
	breaker  *redisconn.Breaker

	alone atomic.Int64 // requests that were counted here because Redis was away
}

// New returns a Limiter.
func New(o Options) *Limiter {
	l := &Limiter{local: newLocal(), defaults: o.Defaults, prefix: o.Prefix, breaker: o.Breaker, now: o.Now, patience: cmp.Or(o.Patience, patience)}
	if o.Redis != nil {
		l.shared = newShared(o.Redis)
	}
	if l.now == nil {
		l.now = time.Now
	}
	if l.breaker == nil {
		l.breaker = redisconn.NewBreaker(nil, l.now)
	}
	return l
}

// Defaults returns the limits that hold where organizations and keys say nothing.
func (l *Limiter) Defaults() rate.Set { return l.defaults }

// Local returns how many requests were counted by this process alone because Redis was
// away. Without Redis it stays 0.
func (l *Limiter) Local() int64 { return l.alone.Load() }

// Caller is who sends a request to an organization.
type Caller struct {
	kind    string
	id      string
	number  int64
	address netip.Addr
	visitor bool // the address is that of a page's visitor
}

// Key is the caller that presents the API key with that identifier.
func Key(id string) Caller { return Caller{kind: "key", id: id} }

// Visitor is the caller at an address that presents the browser key with that identifier, which everybody has.
func Visitor(key string, address netip.Addr) Caller {
	return Caller{kind: "key", id: key, address: Network(address), visitor: true}
}

// Person is a signed-in person.
func Person(number int64) Caller { return Caller{kind: "person", number: number} }

// Anonymous is a caller whom nobody knows, at an address, which is one whatever organization it asks.
func Anonymous(address netip.Addr) Caller {
	return Caller{kind: anonymousKind, address: Network(address)}
}

const anonymousKind = "anonymous"

// Network returns the address that stands for everybody who shares a bound with this one:
// an IPv4 address itself, of an IPv6 address its /64, which a subscriber has to himself.
// Addresses that are none share one bound.
func Network(address netip.Addr) netip.Addr {
	address = address.Unmap().WithZone("")
	if !address.Is6() {
		return address
	}
	p, _ := address.Prefix(64) // of an IPv6 address never fails
	return p.Addr()
}

// Request is what is counted.
type Request struct {
	// Prefix is the organization's, with which names in Redis begin.
	Prefix string
	// Passing: the organization is nobody's, of which there are as many as host names.
	Passing bool
	Caller  Caller
	// Limits are the organization's, with the caller's own in Key where it has some;
	// the Limiter's defaults fill the gaps, and say alone what an Anonymous address has.
	Limits rate.Set
}

// rule is one limit that governs a request.
type rule struct {
	limit  rate.Limit
	name   string
	holder string // whose it is
	suffix string // which of the holder's
	// passing: the holder is one of many that come and go, and must not drive out others.
	passing bool
}

// rules returns the limits that govern a request, in into, but for that of an Anonymous address.
func (l *Limiter) rules(r *Request, into []rule) []rule {
	in := r.Limits.Or(l.defaults)
	org, caller := r.holders()
	into = add(into, in.Organization, org, "organization rate", "organization quota")
	if r.Caller.kind != anonymousKind {
		into = add(into, in.Key, caller, "caller rate", "caller quota")
		if r.Caller.visitor {
			own := len(into)
			into = add(into, in.Visitor, caller+":"+r.Caller.address.String(), "visitor rate", "visitor quota")
			pass(into[own:])
		}
		return into
	}
	into = add(into, anonymous(in), caller, "anonymous rate", "anonymous quota")
	if r.Passing {
		pass(into)
	}
	return into
}

// addressRules returns the limits of a stranger's address, in into. They know neither the host nor the organization:
// the one is chosen by who asks, and the limits of the other would tell that there is one.
func (l *Limiter) addressRules(c Caller, into []rule) []rule {
	into = add(into, address(l.defaults), l.prefix+"limit:address:"+c.address.String(), "address rate", "address quota")
	pass(into)
	return into
}

func pass(rules []rule) {
	for i := range rules {
		rules[i].passing = true
	}
}

// holders returns whose limits govern the request, as the beginnings of keys in Redis.
func (r *Request) holders() (org, caller string) {
	var buffer [320]byte // one text for both: this is done for every request
	text := r.appendPrefix(buffer[:0])
	text = append(text, "org"...)
	end := len(text)
	text = r.appendPrefix(text)
	text = append(text, r.Caller.kind...)
	switch {
	case r.Caller.id != "":
		text = append(append(text, ':'), r.Caller.id...)
	case r.Caller.number != 0:
		text = strconv.AppendInt(append(text, ':'), r.Caller.number, 10)
	}
	both := string(text)
	return both[:end], both[end:]
}

func (r *Request) appendPrefix(text []byte) []byte {
	return append(append(text, r.Prefix...), "limit:"...)
}

func add(into []rule, p rate.Pair, holder, rateName, quotaName string) []rule {
	if p.Rate.Count() > 0 {
		into = append(into, rule{limit: p.Rate, name: rateName, holder: holder, suffix: rateSuffix})
	}
	if p.Quota.Count() > 0 {
		into = append(into, rule{limit: p.Quota, name: quotaName, holder: holder, suffix: quotaSuffix})
	}
	return into
}

// Take counts the request against all limits that govern it, or against none of them
// where one is used up. It always decides, and within about 100 ms: while Redis cannot be
// asked, this process applies the limits by itself, from what it has seen since.
//
// A stranger's address is asked first, and counts also what the organization has no more of for strangers: on a cluster
// the two are on different nodes. The decision tells of the address alone.
func (l *Limiter) Take(ctx context.Context, r Request) Decision {
	var buffer [maxRules]rule
	if r.Caller.kind != anonymousKind {
		d, alone := l.decide(ctx, l.rules(&r, buffer[:0]))
		l.note(alone)
		return d
	}
	d, alone := l.decide(ctx, l.addressRules(r.Caller, buffer[:0]))
	if !d.Refused {
		all, too := l.decide(ctx, l.rules(&r, buffer[:0]))
		alone = alone || too
		if d.Refused = all.Refused; d.Refused || d.Name == "" {
			d.Name = all.Name
		}
	}
	l.note(alone)
	return d
}

func (l *Limiter) note(alone bool) {
	if alone {
		l.alone.Add(1)
	}
}

// decide counts on all of the rules, or on none. alone: Redis was away.
func (l *Limiter) decide(ctx context.Context, rules []rule) (_ Decision, alone bool) {
	if len(rules) == 0 {
		return Decision{}, false
	}
	if l.shared != nil {
		var v verdict
		err := l.ask(ctx, func(ctx context.Context) (err error) {
			v, err = l.shared.decide(ctx, rules)
			return err
		})
		if err == nil {
			return v.decision(rules), false
		}
	}
	return l.local.decide(rules, l.now().UnixMilli()).decision(rules), l.shared != nil
}

// Return gives the organization back what Take counted against it, and against all callers together whom nobody knows.
// The caller's own limits keep the count. Where Redis fails, the organization's limit fills up a moment later, no more.
func (l *Limiter) Return(ctx context.Context, r Request) {
	var buffer [maxRules]rule
	in := r.Limits.Or(l.defaults)
	org, caller := r.holders()
	rules := add(buffer[:0], in.Organization, org, "", "")
	if r.Caller.kind == anonymousKind {
		rules = add(rules, anonymous(in), caller, "", "")
	}
	if r.Passing {
		pass(rules)
	}
	if len(rules) == 0 {
		return
	}
	if l.shared == nil || l.breaker.Resting() {
		l.local.returnOne(rules, l.now().UnixMilli())
		return
	}
	_ = l.ask(ctx, func(ctx context.Context) error { return l.shared.returnOne(ctx, rules) })
}

// ask asks Redis for as long as a request waits for it.
func (l *Limiter) ask(ctx context.Context, do func(context.Context) error) error {
	return l.breaker.Do(ctx, func() error {
		ctx, cancel := context.WithTimeout(ctx, l.patience)
		defer cancel()
		return do(ctx)
	})
}

// Callers without credentials get a part of an organization's limits: half of them together, so that the organization's
// own callers keep the rest, and each address a tenth of that by default, so that a few addresses do not use it up.
const (
	anonymousPart = 2
	addressPart   = 10
)

// anonymous returns the limits of all callers without credentials together.
func anonymous(s rate.Set) rate.Pair {
	return rate.Pair{Rate: s.Organization.Rate.Part(anonymousPart), Quota: s.Organization.Quota.Part(anonymousPart)}
}

// address returns the limits of one address of such callers. They must not be those of an organization: by them
// strangers would know that there is one.
func address(s rate.Set) rate.Pair {
	all := anonymous(s)
	return rate.Pair{Rate: all.Rate.Part(addressPart).Tighter(s.Address.Rate), Quota: all.Quota.Part(addressPart).Tighter(s.Address.Quota)}
}
