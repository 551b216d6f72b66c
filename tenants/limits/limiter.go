// Package limits enforces request limits of organizations and their callers, and bounds the work in flight. With Redis
// all replicas count requests together; without it each process counts its own.
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
	// redisTimeout is how long a request waits for Redis before it is counted in this process.
	redisTimeout = 100 * time.Millisecond

	maxRules    = 6 // of at most three parties
	maxParties  = 3
	rateSuffix  = ":rate"
	quotaSuffix = ":quota"
)

// Options configure a Limiter.
type Options struct {
	// Redis is where replicas count together. Nil: there is one process, which counts locally at far lower cost.
	Redis redisconn.Client
	// Defaults apply where organizations and keys set no limit.
	Defaults rate.Set
	// Prefix is the prefix of Redis keys that belong to no organization: those of addresses.
	Prefix string
	// Timeout is how long a request waits for Redis before it is counted in this process; 0: 100 ms.
	Timeout time.Duration
	Breaker *redisconn.Breaker // of Redis; nil: the Limiter makes its own, which logs nothing
	Now     func() time.Time   // clock of this process; nil: time.Now
}

// Limiter counts requests. Safe for concurrent use.
type Limiter struct {
	shared   *shared // nil: there is no Redis
	local    *local
	defaults atomic.Pointer[rate.Set]
	prefix   string
	now      func() time.Time
	timeout  time.Duration // of one call of Redis
	breaker  *redisconn.Breaker

	localCount atomic.Int64 // requests that were counted here because Redis was away
}

// New returns a Limiter.
func New(o Options) *Limiter {
	l := &Limiter{local: newLocal(), prefix: o.Prefix, breaker: o.Breaker, now: o.Now,
		timeout: cmp.Or(o.Timeout, redisTimeout)}
	l.SetDefaults(o.Defaults)
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

// Defaults returns the limits that apply where organizations and keys set none.
func (l *Limiter) Defaults() rate.Set { return *l.defaults.Load() }

// SetDefaults sets the limits that apply where organizations and keys set none, for the requests that follow.
func (l *Limiter) SetDefaults(s rate.Set) { l.defaults.Store(&s) }

// Local returns how many requests this process counted alone because Redis was unavailable. It stays 0 if no Redis is
// configured.
func (l *Limiter) Local() int64 { return l.localCount.Load() }

// Caller identifies the sender of a request.
type Caller struct {
	kind    string
	id      string
	number  int64
	address netip.Addr
	visitor bool // the address is that of a visitor of a page with a browser key
}

// Key returns the caller that presents the API key with that ID.
func Key(id string) Caller { return Caller{kind: "key", id: id} }

// Visitor returns the caller at an address that presents the browser key with that ID.
func Visitor(key string, address netip.Addr) Caller {
	return Caller{kind: "key", id: key, address: Network(address), visitor: true}
}

// FormVisitor returns the caller at an address who fills in the public form with that ID. Only the limit of visitors
// applies: the request is counted as that of an Anonymous caller too.
func FormVisitor(form string, address netip.Addr) Caller {
	return Caller{kind: formKind, id: form, address: Network(address)}
}

// Person returns the signed-in person with that number.
func Person(number int64) Caller { return Caller{kind: "person", number: number} }

// Anonymous returns the caller without credentials at an address. It is the same caller for every organization.
func Anonymous(address netip.Addr) Caller {
	return Caller{kind: anonymousKind, address: Network(address)}
}

const (
	anonymousKind = "anonymous"
	formKind      = "form"
)

// Network returns the address that represents all addresses with a common limit: an IPv4 address itself, and the /64
// prefix of an IPv6 address, because one subscriber controls all of it. Invalid addresses share one limit.
func Network(address netip.Addr) netip.Addr {
	address = address.Unmap().WithZone("")
	if !address.Is6() {
		return address
	}
	p, _ := address.Prefix(64) // never fails for an IPv6 address
	return p.Addr()
}

// Request describes a request to count.
type Request struct {
	// Prefix is the prefix of the organization's Redis keys.
	Prefix string
	// Transient marks an organization that does not exist, of which there are as many as host names.
	Transient bool
	Caller    Caller
	// Limits are the organization's, with the caller's own in Key if it has any. The Limiter's defaults apply where
	// they are unset. The limit of an Anonymous address comes from the defaults alone.
	Limits rate.Set
}

// rule is one limit that governs a request.
type rule struct {
	limit  rate.Limit
	name   string
	holder string // prefix of the Redis key of the party that the limit is for
	suffix string // rateSuffix or quotaSuffix
	// transient holders are unlimited in number, and must not displace others from memory.
	transient bool
}

// rules returns the limits that govern a request, except that of an Anonymous address. It appends to into.
func (l *Limiter) rules(r *Request, into []rule) []rule {
	in := r.Limits.Or(l.Defaults())
	org, caller := r.holders()
	if r.Caller.kind == formKind {
		into = add(into, in.Visitor, caller+":"+r.Caller.address.String(), "visitor rate", "visitor quota")
		markTransient(into)
		return into
	}
	into = add(into, in.Organization, org, "organization rate", "organization quota")
	if r.Caller.kind != anonymousKind {
		into = add(into, in.Key, caller, "caller rate", "caller quota")
		if r.Caller.visitor {
			own := len(into)
			into = add(into, in.Visitor, caller+":"+r.Caller.address.String(), "visitor rate", "visitor quota")
			markTransient(into[own:])
		}
		return into
	}
	into = add(into, anonymous(in), caller, "anonymous rate", "anonymous quota")
	if r.Transient {
		markTransient(into)
	}
	return into
}

// addressRules returns the limits of the address of an Anonymous caller. They depend neither on the host, which the
// caller chooses, nor on the organization, whose limits would reveal that it exists.
func (l *Limiter) addressRules(c Caller, into []rule) []rule {
	into = add(into, address(l.Defaults()), l.prefix+"limit:address:"+c.address.String(), "address rate", "address quota")
	markTransient(into)
	return into
}

func markTransient(rules []rule) {
	for i := range rules {
		rules[i].transient = true
	}
}

// holders returns the prefixes of the Redis keys of the organization and the caller.
func (r *Request) holders() (org, caller string) {
	var buffer [320]byte // one allocation for both texts, because every request needs them
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

// Take counts the request against all limits that govern it, or against none of them if one is used up. It always
// decides, and takes about 100 ms at most: while Redis is unavailable, this process applies the limits to the requests
// that it has seen itself.
//
// The address of an Anonymous caller is counted first, because it is on another node of a cluster than the
// organization. It stays counted even if a limit of the organization then refuses the request. The decision describes
// the limit of the address only.
func (l *Limiter) Take(ctx context.Context, r Request) Decision {
	var buffer [maxRules]rule
	if r.Caller.kind != anonymousKind {
		d, fellBack := l.decide(ctx, l.rules(&r, buffer[:0]))
		l.countLocal(fellBack)
		return d
	}
	d, fellBack := l.decide(ctx, l.addressRules(r.Caller, buffer[:0]))
	if !d.Refused {
		all, also := l.decide(ctx, l.rules(&r, buffer[:0]))
		fellBack = fellBack || also
		if d.Refused = all.Refused; d.Refused || d.Name == "" {
			d.Name = all.Name
		}
	}
	l.countLocal(fellBack)
	return d
}

func (l *Limiter) countLocal(fellBack bool) {
	if fellBack {
		l.localCount.Add(1)
	}
}

// decide counts on all of the rules, or on none. fellBack reports that Redis is configured but was not used.
func (l *Limiter) decide(ctx context.Context, rules []rule) (_ Decision, fellBack bool) {
	if len(rules) == 0 {
		return Decision{}, false
	}
	if l.shared != nil {
		var v verdict
		err := l.askRedis(ctx, func(ctx context.Context) (err error) {
			v, err = l.shared.decide(ctx, rules)
			return err
		})
		if err == nil {
			return v.decision(rules), false
		}
	}
	return l.local.decide(rules, l.now().UnixMilli()).decision(rules), l.shared != nil
}

// Return gives back what Take counted against the organization and against all its callers without credentials
// together. The caller's own limits keep the count. If Redis fails, nothing is given back, and the organization's limit
// recovers by itself.
func (l *Limiter) Return(ctx context.Context, r Request) {
	var buffer [maxRules]rule
	in := r.Limits.Or(l.Defaults())
	org, caller := r.holders()
	rules := add(buffer[:0], in.Organization, org, "", "")
	if r.Caller.kind == anonymousKind {
		rules = add(rules, anonymous(in), caller, "", "")
	}
	if r.Transient {
		markTransient(rules)
	}
	if len(rules) == 0 {
		return
	}
	if l.shared == nil || l.breaker.Paused() {
		l.local.refund(rules, l.now().UnixMilli())
		return
	}
	_ = l.askRedis(ctx, func(ctx context.Context) error { return l.shared.refund(ctx, rules) })
}

// askRedis calls do unless Redis is paused, with the timeout of one call.
func (l *Limiter) askRedis(ctx context.Context, do func(context.Context) error) error {
	return l.breaker.Do(ctx, func() error {
		ctx, cancel := context.WithTimeout(ctx, l.timeout)
		defer cancel()
		return do(ctx)
	})
}

// Callers without credentials get a fraction of an organization's limits: half for all of them together, which leaves
// the other half to the organization's own callers, and a tenth of that for each address by default, because a few
// addresses must not use it up.
const (
	anonymousPart = 2
	addressPart   = 10
)

// anonymous returns the limits of all callers without credentials together.
func anonymous(s rate.Set) rate.Pair {
	return rate.Pair{Rate: s.Organization.Rate.Part(anonymousPart), Quota: s.Organization.Quota.Part(anonymousPart)}
}

// address returns the limits of one address of such callers. They must come from the defaults rather than from an
// organization, because different limits would reveal that an organization exists.
func address(s rate.Set) rate.Pair {
	all := anonymous(s)
	return rate.Pair{Rate: all.Rate.Part(addressPart).Tighter(s.Address.Rate),
		Quota: all.Quota.Part(addressPart).Tighter(s.Address.Quota)}
}
