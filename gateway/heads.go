package gateway

import (
	"context"
	"errors"
	"time"

	"tenantry/backends/store"
	"tenantry/internal/background"
	"tenantry/modules/audit"
	"tenantry/tenants"
)

// Every replica signs the heads of the logs to which it has written. What a killed one has left is done by the next that
// writes to the log, or with the seals.
const (
	headTick = 15 * time.Second // between two rounds
	headEach = 5 * time.Second  // timeout for one log
	// headSettled is how old a record is when it has been stored, so that the next head has it.
	headSettled = audit.HeadGrace + 5*time.Second
)

// SignHeads signs the heads of the audit logs to which this replica has written records since the last call. What fails
// is logged, and repeated by the next call.
func (a *App) SignHeads(ctx context.Context) {
	for org, last := range a.audit.Written() {
		began := time.Now()
		err := background.Try(func() error { return a.signHead(ctx, org) })
		switch {
		case ctx.Err() != nil:
			return
		case errors.Is(err, tenants.ErrUnknownTenant), err == nil && began.Sub(last) > headSettled:
			a.audit.Covered(org, last)
		case err != nil && !errors.Is(err, store.ErrConflict):
			a.log.WarnContext(ctx, "the head of an audit log could not be signed and will be retried",
				"org", org, "error", err)
		}
	}
}

// signHead signs the head of an organization's log, or of the installation's if the number is 0.
func (a *App) signHead(ctx context.Context, org int64) error {
	ctx, cancel := context.WithTimeout(ctx, headEach)
	defer cancel()
	if org == 0 {
		return a.heads.Advance(ctx, a.directory.Own())
	}
	t, err := a.directory.BySlug(ctx, a.directory.SlugOf(ctx, org))
	if err != nil {
		return err
	}
	return a.heads.Advance(ctx, t.Through((*store.Workspace).BeyondQuota))
}

// examineOwnHead reports whether the log of the installation agrees with its head.
func (s *Services) examineOwnHead(ctx context.Context, e *examination) {
	ctx, cancel := context.WithTimeout(ctx, checkTimeout)
	defer cancel()
	switch size, at, err := s.heads.Check(ctx, s.directory.Own()); {
	case err != nil:
		e.wrong("audit log", err.Error(), headAdvice("tenantry audit verify"))
	case size > 0:
		e.good("audit log", "%d records of the installation are in the head of %s", size, at.UTC().Format(time.RFC3339))
	}
}

// examineHead reports if the log of an organization does not agree with its head.
func (s *Services) examineHead(ctx context.Context, e *examination, org *tenants.Organization) {
	ctx, cancel := context.WithTimeout(ctx, checkTimeout)
	defer cancel()
	t, err := s.directory.BySlug(ctx, org.Slug)
	if err == nil {
		_, _, err = s.heads.Check(ctx, t)
	}
	if err == nil || errors.Is(err, tenants.ErrUnknownTenant) || errors.Is(err, store.ErrUnavailable) { // others have said so
		return
	}
	e.wrong("audit log of organization "+org.Slug, err.Error(), headAdvice("tenantry audit verify --org "+org.Slug))
}

func headAdvice(compare string) string {
	return "no further head is signed; " + compare + " says what differs, and the manual what to do (Heads)"
}
