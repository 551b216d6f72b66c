package control

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"strings"

	"tenantry/backends/store"
	"tenantry/tenants"
)

func (h *handler) organization(o *tenants.Organization) Organization {
	return Organization{
		ID: o.OrgID, Slug: o.Slug, Name: o.Name, State: string(o.State),
		Features: table(o.Features), Settings: table(o.Settings), Limits: table(o.Limits), Providers: list(o.Providers), RequestLimits: o.RequestLimits,
		Backend: cmp.Or(o.Backend, store.DefaultBackend), OldCopy: o.Former, Move: moveOf(o.Move),
		URL: h.BaseURL(o.Slug), CreatedAt: when(o.CreatedAt), UpdatedAt: when(o.UpdatedAt),
	}
}

func (h *handler) createOrganization(ctx context.Context, r *OrganizationChange) (Organization, error) {
	n := tenants.NewOrganization{Slug: r.Slug, Backend: r.Backend, Features: r.Features, Settings: r.Settings, Limits: r.Limits}
	if r.Name != nil {
		n.Name = *r.Name
	}
	if r.Providers != nil {
		n.Providers = *r.Providers
	}
	t, err := h.Directory.Create(ctx, n)
	var duplicate *store.DuplicateError
	if errors.As(err, &duplicate) {
		return Organization{}, &Error{
			Code:    CodeDuplicate,
			Message: fmt.Sprintf("the slug %q is or was an organization's, and slugs are never handed out twice; choose another", r.Slug),
		}
	}
	if err != nil {
		return Organization{}, err
	}
	return h.organization(&t.Org), h.record(ctx, t, "org.create", nil)
}

func (h *handler) listOrganizations(ctx context.Context, r *OrganizationPage) (List[Organization], error) {
	limit := pageLimit(r.Limit)
	found, err := h.Directory.List(ctx, r.After, limit+1)
	if err != nil {
		return List[Organization]{}, err
	}
	out := List[Organization]{Items: []Organization{}, More: len(found) > limit}
	for i := range found[:min(len(found), limit)] {
		out.Items = append(out.Items, h.organization(&found[i]))
	}
	return out, nil
}

func (h *handler) showOrganization(ctx context.Context, r *Slug) (Organization, error) {
	t, err := h.tenant(ctx, r.Slug)
	if err != nil {
		return Organization{}, err
	}
	return h.organization(&t.Org), nil
}

func (h *handler) updateOrganization(ctx context.Context, r *OrganizationChange) (Organization, error) {
	if r.Backend != "" {
		return Organization{}, &Error{Code: CodeInvalid, Message: "an organization gets to another backend with tenantry org move"}
	}
	if _, err := h.tenant(ctx, r.Slug); err != nil {
		return Organization{}, err
	}
	var changed []string
	t, err := h.Directory.Update(ctx, r.Slug, func(o *tenants.Organization) error {
		changed = changed[:0]
		if r.Name != nil {
			o.Name = *r.Name
			changed = append(changed, "name")
		}
		if r.Providers != nil {
			o.Providers = *r.Providers
			changed = append(changed, "providers")
		}
		if len(r.Features) > 0 {
			o.Features = merged(o.Features, r.Features)
			changed = append(changed, "features")
		}
		if len(r.Settings) > 0 {
			o.Settings = merged(o.Settings, r.Settings)
			changed = append(changed, "settings")
		}
		if len(r.Limits) > 0 {
			o.Limits = merged(o.Limits, r.Limits)
			changed = append(changed, "limits")
		}
		return nil
	})
	if err != nil {
		return Organization{}, err
	}
	return h.organization(&t.Org), h.record(ctx, t, "org.update", map[string]string{"changed": strings.Join(changed, ",")})
}

func merged[T any](into, from map[string]T) map[string]T {
	if into == nil {
		into = map[string]T{}
	}
	maps.Copy(into, from)
	return into
}

func (h *handler) suspendOrganization(ctx context.Context, r *Slug) (Organization, error) {
	return h.changeState(ctx, r.Slug, "org.suspend", h.Directory.Suspend)
}

func (h *handler) resumeOrganization(ctx context.Context, r *Slug) (Organization, error) {
	return h.changeState(ctx, r.Slug, "org.resume", h.Directory.Resume)
}

func (h *handler) changeState(ctx context.Context, slug, operation string, change func(context.Context, string) error) (Organization, error) {
	if _, err := h.tenant(ctx, slug); err != nil {
		return Organization{}, err
	}
	if err := change(ctx, slug); err != nil {
		return Organization{}, err
	}
	t, err := h.tenant(ctx, slug)
	if err != nil {
		return Organization{}, err
	}
	return h.organization(&t.Org), h.record(ctx, t, operation, nil)
}

// deleteOrganization does not ask for the organization first: a deletion that failed
// midway is repeated, and by then it is no longer found.
func (h *handler) deleteOrganization(ctx context.Context, r *Slug) (Slug, error) {
	err := h.Directory.Remove(ctx, r.Slug)
	if errors.Is(err, tenants.ErrUnknownTenant) {
		_, err = h.tenant(ctx, r.Slug)
		if err == nil {
			err = tenants.ErrUnknownTenant
		}
	}
	return *r, err
}
