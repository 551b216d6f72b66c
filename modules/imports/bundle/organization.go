package bundle

import (
	"context"
	"maps"
	"reflect"
	"slices"

	"tenantry/backends/record"
	"tenantry/backends/store"
	"tenantry/internal/fault"
	"tenantry/internal/rate"
	"tenantry/tenants"
)

// organization holds the organization itself as the only record of its kind.
type organization struct {
	directory *tenants.Directory
	tenant    *tenants.Tenant
	bounded   bool
}

// operatorFields returns the fields of an organization that only the operator sets.
func operatorFields() []string { return []string{"limits", "request_limits", "providers"} }

// organizationResource returns the resource of the line with the organization. With bounded, an import must not change
// its operatorFields. An error is a fault of the program.
func organizationResource(d *tenants.Directory, t *tenants.Tenant, bounded bool) (*record.Resource, error) {
	traits := record.Traits{Name: kindOrganization, Definition: true, Control: true, Single: true, Travels: "-"}
	check := func(c *record.Checking, rec any) {
		o := rec.(*tenants.Organization)
		tenants.CheckOrganization(c.Errs, o)
		hold := func(field string, same bool) {
			if bounded && !same {
				c.Errs.Add(
					field, fault.Forbidden,
					"%s differ from those that the operator has set for this organization: leave them out of the line",
					field,
				)
			}
		}
		hold("limits", !slices.ContainsFunc(slices.Collect(maps.Keys(o.Limits)), func(name string) bool { return o.Limits[name] != t.Org.Limits[name] }))
		hold("request_limits", o.RequestLimits == (rate.Set{}) || o.RequestLimits == t.Org.RequestLimits)
		hold("providers", o.Providers == nil || slices.Equal(o.Providers, t.Org.Providers))
	}
	return record.Describe(reflect.TypeFor[tenants.Organization](), traits, organization{d, t, bounded}, check)
}

// Spec returns nil, because package tenants stores the organization.
func (o organization) Spec() *store.Spec { return nil }

// Find returns the organization for every query.
func (o organization) Find(context.Context, *store.Workspace, store.Query) ([]any, error) {
	org := o.tenant.Org
	return []any{&org}, nil
}

func (o organization) Each(ctx context.Context, ws *store.Workspace, _ store.Filter, visit func(any) error) error {
	found, _ := o.Find(ctx, ws, store.Query{})
	return visit(found[0])
}

func (o organization) Count(context.Context, *store.Workspace) (int64, error) { return 1, nil }

// Insert is never called, because the organization exists.
func (o organization) Insert(context.Context, *store.Workspace, store.Preconditions, []any) error {
	return nil
}

// Portion is never called, because nothing is inserted.
func (o organization) Portion(_ *store.Workspace, recs []any) int { return len(recs) }

// Delete is never called, because the organization is not removed.
func (o organization) Delete(context.Context, *store.Workspace, any) error { return nil }

// Unchanged requires nothing, because no record depends on the organization.
func (o organization) Unchanged(*store.Workspace, any) store.Precondition {
	return store.Precondition{}
}

// Replace applies the change to the current organization.
func (o organization) Replace(
	ctx context.Context, _ *store.Workspace, _ store.Preconditions, _ any, change func(any),
) error {
	_, err := o.directory.Update(ctx, o.tenant.Org.Slug, func(org *tenants.Organization) error {
		limits, providers, requests := maps.Clone(org.Limits), slices.Clone(org.Providers), org.RequestLimits
		if change(org); o.bounded {
			org.Limits, org.Providers, org.RequestLimits = limits, providers, requests
		}
		return nil
	})
	return err
}
