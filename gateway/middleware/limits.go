package middleware

import (
	"context"
	"net/http"
	"strconv"
	"time"

	"tenantry/gateway/api"
	"tenantry/tenants"
	"tenantry/tenants/limits"
)

// Limits counts requests.
type Limits interface {
	// Take counts a request against everything that governs it, or against nothing.
	Take(ctx context.Context, r limits.Request) limits.Decision
	// Return gives the organization back what Take counted.
	Return(ctx context.Context, r limits.Request)
}

// count counts the request of a caller whose credential was accepted. A refused credential
// is not counted: junk must not use up an organization's quota.
func (x *exchange) count(ctx context.Context) error {
	if x.p.Limits == nil || x.op.OwnLimits {
		return nil
	}
	x.limit = x.p.Limits.Take(ctx, x.counted())
	if x.limit.Limit.Count() == 0 {
		return nil
	}
	x.tellLimit(x.w.Header())
	if !x.limit.Refused {
		return nil
	}
	x.p.Metrics.limited.WithLabelValues(x.op.Name, x.limit.Name).Inc()
	problem := api.TooManyRequests(x.limit.Wait)
	problem.Reason = "over the limit: " + x.limit.Name
	return problem
}

// uncount gives the organization back what a caller nobody knows was refused, a share
// token that is no good for one. All such callers together stay limited by their own.
func (x *exchange) uncount(ctx context.Context) {
	refused := x.failure != nil && x.failure.Code < http.StatusInternalServerError
	if refused && x.op.Credentials&api.Open != 0 && x.limit.Limit.Count() > 0 && !x.limit.Refused {
		x.p.Limits.Return(ctx, x.counted())
	}
}

// counted returns what the request counts as.
func (x *exchange) counted() limits.Request {
	org, who := &x.call.Tenant.Org, x.call.Principal
	r := limits.Request{Prefix: x.call.Tenant.RedisPrefix(), Caller: limits.Anonymous(), Limits: org.RequestLimits}
	switch who.Kind {
	case tenants.ServiceAccount:
		r.Caller = limits.Key(who.KeyID)
		r.Limits.Key = who.Limits.Or(r.Limits.Key)
	case tenants.Person:
		r.Caller = limits.Person(who.UserID)
	case tenants.Anonymous:
	}
	return r
}

// tellLimit writes the headers that tell of the limit. The names are as net/http spells them.
func (x *exchange) tellLimit(h http.Header) {
	// One text and one list for all three: this is done for every request.
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
