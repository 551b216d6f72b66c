package reports

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"tenantry/backends/store"
	"tenantry/crypto/keyring"
	"tenantry/crypto/tokens"
	"tenantry/internal/fault"
	"tenantry/internal/texts"
	"tenantry/operation"
	"tenantry/tenants"
)

// Bounds of one report's tokens.
const (
	maxRevocations = 1_000  // tokens revoked individually
	maxIssued      = 10_000 // valid tokens
	maxSwept       = 20     // records of void tokens that are deleted when one is issued
	skew           = 600    // seconds by which clocks of replicas may differ, so that a token may still be valid elsewhere
)

// Issue returns a share token for the report, its identifier and its expiry. params are the values of locked inputs of
// the report or its children; a locked input that is not named has the report's own value. by is the subject who
// issues the token. The error is a 422 that lists every parameter that is missing, is not a locked input or has an
// unsuitable value, or says that the report has too many valid tokens.
func (m *Module) Issue(
	ctx context.Context, t *tenants.Tenant, r *Report, by string, params map[string]any, lifetime time.Duration,
) (token, id string, ends time.Time, err error) {
	children, err := m.children(ctx, t, r)
	if err != nil {
		return "", "", time.Time{}, err
	}
	b := bundleOf(t, r, nil)
	children = slices.DeleteFunc(children, func(child Report) bool { return !b.sees(&child) })
	locked, err := tokenParams(r, children, params)
	if err != nil {
		return "", "", time.Time{}, err
	}
	key, generation, err := m.signing(ctx, t, r)
	if err != nil {
		return "", "", time.Time{}, err
	}
	issued := m.deps.Now().Truncate(time.Second)
	share := tokens.Share{
		ID:           strconv.FormatInt(generation, 10) + "-" + tokens.NewShareID(),
		Organization: t.Org.Slug, Report: r.PID, Params: locked,
		IssuedAt: issued, ExpiresAt: issued.Add(lifetime),
	}
	token, err = tokens.IssueShare(tokens.Signer{Key: key.Bytes(), KeyID: strconv.Itoa(key.Version())}, share)
	if err != nil {
		return "", "", time.Time{}, err
	}
	rec := &Issued{
		Report: r.ID, PID: r.PID, TokenID: share.ID, By: by, Key: int64(key.Version()), Generation: generation, Expires: share.ExpiresAt.Unix(), Params: locked,
	}
	if err := m.record(ctx, t, rec); err != nil {
		return "", "", time.Time{}, err
	}
	return token, share.ID, share.ExpiresAt.UTC(), nil
}

// signing returns the current key and generation for tokens of the report.
func (m *Module) signing(ctx context.Context, t *tenants.Tenant, r *Report) (keyring.DataKey, int64, error) {
	keys, err := m.deps.Keys(ctx, t)
	if err != nil {
		return keyring.DataKey{}, 0, fmt.Errorf("signing key for shared reports: %w", err)
	}
	generation, err := m.generation(ctx, t, r.PID)
	return keys.Current(), generation, err
}

// record stores an issued token, and deletes some void ones.
func (m *Module) record(ctx context.Context, t *tenants.Tenant, rec *Issued) error {
	all := m.Issued.In(t.Workspace())
	of := store.Eq("report", rec.Report)
	dead, err := all.Find(ctx, store.Query{Limit: maxSwept, Filter: store.All(of, store.AnyOf(
		store.Where(store.F("expires"), store.OpLte, m.deps.Now().Unix()),
		store.Where(store.F("generation"), store.OpLt, rec.Generation), store.Where(store.F("key"), store.OpLt, rec.Key)))})
	if err != nil {
		return err
	}
	for i := range dead {
		// A conflict means that another call has deleted it.
		if err := all.Delete(ctx, &dead[i]); err != nil && !errors.Is(err, store.ErrConflict) {
			return err
		}
	}
	n, err := all.Count(ctx, m.valid(rec.Report, rec.PID, rec.Key, rec.Generation))
	if err != nil {
		return err
	}
	if n >= maxIssued {
		return fault.One(
			"id", "length", "the report already has %d valid share tokens; revoke some, or wait until they expire",
			maxIssued,
		)
	}
	return all.Insert(ctx, rec)
}

// valid matches the report's tokens that are currently valid, for that key and generation.
func (m *Module) valid(report, pid string, key, generation int64) store.Filter {
	return store.All(store.Eq("report", report), store.Eq("pid", pid), store.Eq("key", key), store.Eq("generation", generation),
		store.Where(store.F("expires"), store.OpGt, m.deps.Now().Unix()))
}

// validFilter matches the report's tokens that are currently valid.
func (m *Module) validFilter(ctx context.Context, t *tenants.Tenant, r *Report) (store.Filter, error) {
	key, generation, err := m.signing(ctx, t, r)
	return m.valid(r.ID, r.PID, int64(key.Version()), generation), err
}

func tokenParams(r *Report, children []Report, params map[string]any) (map[string]any, error) {
	var errs fault.List
	values := map[string]any{}
	for _, name := range slices.Sorted(maps.Keys(params)) {
		at := "params." + texts.Clip(name)
		in, ok := lockedInput(r, children, name)
		if !ok {
			errs.Add(at, "unknown", "%s is not a locked input of the report", at)
			continue
		}
		value, err := scalarText(params[name])
		switch {
		case err != nil:
			errs.Add(at, "type", "%s must be a string, a number, true or false", at)
		case value == "":
			errs.Add(at, "required", "%s must not be empty", at)
		default:
			checkInput(&errs, at, in, value)
		}
		values[name] = value
	}
	for i, report := range append([]Report{*r}, children...) {
		for _, name := range slices.Sorted(maps.Keys(report.Input)) {
			in := report.Input[name]
			if _, given := params[name]; given || in.Rule == Editable {
				continue
			}
			if in.Value != "" {
				if _, set := values[name]; !set { // the report's own value takes precedence over its children's
					values[name] = in.Value
				}
			} else if i == 0 {
				errs.Add(
					"params."+name, "required",
					"params.%s is a locked input without a value of its own, so it is required", name,
				)
			}
		}
	}
	text, err := json.Marshal(values)
	if err != nil {
		return nil, fmt.Errorf("locked values of a share token: %w", err)
	}
	if len(text) > maxParams {
		errs.Add("params", "length", "the locked values must have at most %d bytes together, as JSON", maxParams)
	}
	return values, errs.Err()
}

// lockedInput finds a locked input of the report or one of its children.
func lockedInput(r *Report, children []Report, name string) (Input, bool) {
	if in, ok := r.Input[name]; ok && in.Rule != Editable {
		return in, true
	}
	for i := range children {
		if in, ok := children[i].Input[name]; ok && in.Rule != Editable {
			return in, true
		}
	}
	return Input{}, false
}

// verify checks a token for the bundle and returns its locked values. Every invalid token gets the same denial; other
// errors mean that this cannot be determined now.
func (m *Module) verify(ctx context.Context, t *tenants.Tenant, b *bundle, token string) (map[string]string, error) {
	o := b.prefetched.share
	if o == nil {
		share, err := m.openToken(ctx, t, b.root.PID, token)
		o = &openedToken{share: share, err: err}
		if err == nil {
			if o.revoked, err = m.isRevoked(ctx, t, b.root.PID, share); err != nil {
				return nil, err
			}
		}
	}
	if o.err != nil {
		return nil, o.err
	}
	if o.revoked {
		return nil, operation.Denied("share token refused: revoked")
	}
	values := make(map[string]string, len(o.share.Params))
	for name, v := range o.share.Params {
		text, err := scalarText(v)
		if _, ok := lockedInput(b.root, b.children, name); !ok || err != nil {
			return nil, operation.Denied("share token refused: it sets an input that is not locked")
		}
		values[name] = text
	}
	return values, nil
}

// openToken returns the content of a token, without checking whether it was revoked. Errors: those of verify.
func (m *Module) openToken(ctx context.Context, t *tenants.Tenant, pid, token string) (tokens.Share, error) {
	keys, err := m.deps.Keys(ctx, t)
	if err != nil {
		return tokens.Share{}, fmt.Errorf("signing keys for shared reports: %w", err)
	}
	key := keys.Current()
	find := func(kid string) ([]byte, bool) { return key.Bytes(), kid == strconv.Itoa(key.Version()) }
	share, err := tokens.VerifyShare(find, token, t.Org.Slug, pid, m.deps.Now())
	if err != nil {
		reason := "share token refused"
		if refused, ok := errors.AsType[*tokens.TokenError](err); ok {
			reason += ": " + string(refused.Reason)
		}
		return tokens.Share{}, operation.Denied(reason)
	}
	return share, nil
}

func (m *Module) isRevoked(ctx context.Context, t *tenants.Tenant, pid string, share tokens.Share) (bool, error) {
	found, err := m.Revocations.In(t.Workspace()).Find(ctx, store.Query{
		Filter: store.All(store.Eq("pid", pid), store.AnyOf(store.Eq("token_id", share.ID), store.Has("token_id", false))),
	})
	if err != nil {
		return false, err
	}
	text, _, _ := strings.Cut(share.ID, "-")
	generation, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		return true, nil // every token issued has one
	}
	return slices.ContainsFunc(found, func(r Revocation) bool { return r.TokenID != "" || generation < r.Generation }), nil
}

// generation returns the current generation of tokens.
func (m *Module) generation(ctx context.Context, t *tenants.Tenant, pid string) (int64, error) {
	found, err := m.Revocations.In(t.Workspace()).Find(ctx, store.Query{
		Filter: store.All(store.Eq("pid", pid), store.Has("token_id", false)),
	})
	return newest(found), err
}

func newest(revocations []Revocation) int64 {
	var generation int64
	for _, r := range revocations {
		generation = max(generation, r.Generation)
	}
	return generation
}

// RevokeToken voids one token of the report for good. The identifier is the token's jti claim. It returns a 404 if no
// valid or revoked token of the report has it; tokens of versions that did not store them can only be revoked
// together.
func (m *Module) RevokeToken(ctx context.Context, t *tenants.Tenant, r *Report, tokenID string) error {
	live, err := m.prune(ctx, t, r.PID)
	if err != nil {
		return err
	}
	all := m.Issued.In(t.Workspace())
	issued, err := all.First(ctx, store.Query{Filter: store.All(store.Eq("report", r.ID), store.Eq("token_id", tokenID))})
	unknown := errors.Is(err, store.ErrNotFound)
	if err != nil && !unknown {
		return err
	}
	revoked := slices.ContainsFunc(live, func(r Revocation) bool { return r.TokenID == tokenID })
	switch {
	case revoked && unknown:
		return nil
	case unknown, !revoked && (issued.Expires <= m.deps.Now().Unix() || issued.Generation < newest(live)):
		return operation.NotFound("Share not found")
	case !revoked && len(live) >= maxRevocations:
		return fault.One(
			"token_id", "length",
			"%d tokens of this report are already revoked individually; revoke all of them instead", maxRevocations,
		)
	}
	if !revoked {
		rec := &Revocation{PID: issued.PID, TokenID: tokenID, Expires: issued.Expires}
		if err := m.Revocations.In(t.Workspace()).Insert(ctx, rec); err != nil {
			return err
		}
	}
	if err := all.Delete(ctx, issued); err != nil && !errors.Is(err, store.ErrConflict) { // another call has deleted it
		return err
	}
	return nil
}

// RevokeAll voids every token issued for the report so far.
func (m *Module) RevokeAll(ctx context.Context, t *tenants.Tenant, pid string) error {
	live, err := m.prune(ctx, t, pid)
	if err != nil {
		return err
	}
	// A counter gives concurrent calls different generations.
	generation, err := t.People().Counter(ctx, "share_generations", 1, newest(live))
	if err != nil {
		return err
	}
	return m.Revocations.In(t.Workspace()).Insert(ctx, &Revocation{PID: pid, Generation: generation})
}

// prune deletes the report's revocations that no longer matter, and returns the others. The newest generation stays
// forever, because counting from the start again would revive tokens.
func (m *Module) prune(ctx context.Context, t *tenants.Tenant, pid string) ([]Revocation, error) {
	all := m.Revocations.In(t.Workspace())
	found, err := all.Find(ctx, store.Query{Filter: store.Eq("pid", pid)})
	if err != nil {
		return nil, err
	}
	now, generation := m.deps.Now().Unix(), newest(found)
	var live []Revocation
	for _, r := range found {
		if (r.TokenID != "" && r.Expires >= now-skew) || (r.TokenID == "" && r.Generation == generation) {
			live = append(live, r)
			continue
		}
		// A conflict means that another call has deleted it.
		if err := all.Delete(ctx, &r); err != nil && !errors.Is(err, store.ErrConflict) {
			return nil, err
		}
	}
	return live, nil
}
