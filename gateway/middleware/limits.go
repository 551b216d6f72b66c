package middleware

import (
	"context"
	"errors"
	"net/http"
	"strconv"
	"time"

	"tenantry/operation"
	"tenantry/tenants"
	"tenantry/tenants/limits"
)

// Limits counts requests against their limits.
type Limits interface {
	// Take counts a request against the limits that apply to it, and decides whether it may go on.
	Take(ctx context.Context, r limits.Request) limits.Decision
	// Return takes back what Take counted for the organization.
	Return(ctx context.Context, r limits.Request)
}

// count counts the request of a caller whose credential was accepted. A refused credential is not counted, because
// invalid requests must not use up the limits of an organization.
func (x *exchange) count(ctx context.Context) error {
	if x.p.Limits == nil || x.op.OwnLimits {
		return nil
	}
	x.limit = x.p.Limits.Take(ctx, x.limitRequest())
	if x.limit.Limit.Count() > 0 {
		x.setLimitHeaders(x.w.Header())
	}
	if !x.limit.Refused {
		return nil
	}
	x.p.Metrics.limited.WithLabelValues(x.op.Name, x.limit.Name).Inc()
	problem := operation.TooManyRequests(x.limit.Wait)
	return x.refuse(problem, x.limit.Name)
}

// countVisitor implements operation.Call.CountVisitor. The request was counted as one of its address already.
func (x *exchange) countVisitor(ctx context.Context, of string) error {
	if x.p.Limits == nil {
		return nil
	}
	r := x.limitRequest()
	r.Caller = limits.FormVisitor(of, x.call.Remote)
	d := x.p.Limits.Take(ctx, r)
	if !d.Refused {
		return nil
	}
	x.p.Metrics.limited.WithLabelValues(x.op.Name, d.Name).Inc()
	return x.refuse(operation.TooManyRequests(d.Wait), d.Name)
}

// refuse records that the request is over a limit, and returns the problem.
func (x *exchange) refuse(problem *operation.Problem, limit string) error {
	x.refused = true
	problem.Reason = "over the limit: " + limit
	return problem
}

// place is room that a request has in a Flight. The zero value has none.
type place struct {
	in   *limits.Flight
	load limits.Load
}

func (p *place) leave() {
	if p.in != nil {
		p.in.Leave(p.load)
		p.in = nil
	}
}

// enter reserves room in the Flight, and waits for it a moment. It returns a 429 if the organization of the caller uses
// up its share, and a 503 if all organizations together use up everything. Operations with limits of their own need no
// room, because strangers must not be able to take the room for signing in.
func (x *exchange) enter(ctx context.Context, in *limits.Flight, weight int64) (place, error) {
	if in == nil || x.op.OwnLimits {
		return place{}, nil
	}
	l := limits.Load{Organization: x.call.Tenant.Org.OrgID, Stream: x.op.Streams != nil, Weight: max(weight, 1)}
	if x.call.Principal.Public() {
		l.Public, l.Address = true, x.call.Remote
	}
	full := in.Enter(ctx, l)
	if full == "" {
		return place{in, l}, nil
	}
	x.p.Metrics.limited.WithLabelValues(x.op.Name, full).Inc()
	problem := operation.TooManyRequests(time.Second)
	if full == limits.InFlight {
		problem = operation.Unavailable(errors.New("too much is in flight"))
	}
	return place{}, x.refuse(problem, full)
}

// bodyWeight returns how many bytes to reserve for the body.
func (x *exchange) bodyWeight() int64 {
	if n := x.r.ContentLength; n >= 0 && n < x.op.BodyMax() {
		return n
	}
	return x.op.BodyMax()
}

// refund takes back the count for the organization of an anonymous request that was refused, such as one with an
// invalid share token, unless it ran into its deadline. The count for the address of the caller stays.
func (x *exchange) refund(ctx context.Context) {
	refused := x.failure != nil && x.failure.Code < http.StatusInternalServerError &&
		!errors.Is(x.failure.Err, context.DeadlineExceeded)
	anonymous := x.call.Principal != nil && x.call.Principal.Kind == tenants.Anonymous
	if refused && anonymous && x.limit.Name != "" && !x.limit.Refused {
		x.p.Limits.Return(ctx, x.limitRequest())
	}
}

// limitRequest returns the parties whose limits apply to the request.
func (x *exchange) limitRequest() limits.Request {
	org, who := &x.call.Tenant.Org, x.call.Principal
	r := limits.Request{
		Prefix: x.call.Tenant.RedisPrefix(), Transient: x.call.Tenant.Workspace() == nil,
		Caller: limits.Anonymous(x.call.Remote), Limits: org.RequestLimits,
	}
	switch who.Kind {
	case tenants.ServiceAccount:
		r.Caller = limits.Key(who.KeyID)
		r.Limits.Key = who.Limits.Or(r.Limits.Key)
		if who.KeyKind == tenants.Browser {
			r.Caller, r.Limits.Visitor = limits.Visitor(who.KeyID, x.call.Remote), who.Visitors.Or(r.Limits.Visitor)
		}
	case tenants.Person:
		r.Caller = limits.Person(who.UserID)
	case tenants.Anonymous:
	}
	return r
}

// setLimitHeaders sets the RateLimit headers. Their names are in the canonical form of net/http.
func (x *exchange) setLimitHeaders(h http.Header) {
	// One string and one slice hold all three values, because this runs for every request.
	var buffer [60]byte
	text := strconv.AppendInt(buffer[:0], x.limit.Limit.Count(), 10)
	first := len(text)
	text = strconv.AppendInt(text, x.limit.Remaining, 10)
	second := len(text)
	text = strconv.AppendInt(text, int64((x.limit.Reset+time.Second-1)/time.Second), 10)
	all := string(text)
	values := []string{all[:first], all[first:second], all[second:]}
	h["Ratelimit-Limit"] = values[0:1:1]
	h["Ratelimit-Remaining"] = values[1:2:2]
	h["Ratelimit-Reset"] = values[2:3:3]
}
