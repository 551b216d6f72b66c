package transfer

import (
	"context"
	"maps"
	"reflect"
	"slices"

	"tenantry/backends/resource"
	"tenantry/backends/store"
	"tenantry/internal/fault"
	"tenantry/internal/texts"
	"tenantry/tenants"
)

// organization keeps the one record that an organization itself is.
type organization struct {
	directory *tenants.Directory
	tenant    *tenants.Tenant
}

// organizationResource returns what the line about the organization is. An error is a fault of the
// program.
func organizationResource(d *tenants.Directory, t *tenants.Tenant) (*resource.Resource, error) {
	traits := resource.Traits{Name: kindOrganization, Definition: true, Control: true, Single: true, Travels: "-"}
	return resource.Describe(reflect.TypeFor[tenants.Organization](), traits, organization{d, t}, checkOrganization)
}

func checkOrganization(c *resource.Checking, rec any) {
	o := rec.(*tenants.Organization)
	if len(o.Providers) > tenants.MaxProviders || slices.ContainsFunc(o.Providers, func(name string) bool { return !store.ValidKey(name) }) {
		c.Errs.Add("providers", fault.Format, "providers must be at most %d names of 1 to 64 letters, digits, _ and -", tenants.MaxProviders)
	}
	checkKnown(c.Errs, "features", slices.Sorted(maps.Keys(o.Features)), tenants.AllFeatures())
	checkKnown(c.Errs, "settings", slices.Sorted(maps.Keys(o.Settings)), tenants.AllSettings())
	checkKnown(c.Errs, "limits", slices.Sorted(maps.Keys(o.Limits)), tenants.AllLimits())
}

func checkKnown(errs *fault.List, field string, given, known []string) {
	for _, name := range given {
		if !slices.Contains(known, name) {
			path := field + "." + texts.Clip(name)
			errs.Add(path, fault.Unknown, "%s is not known; there are: %v", path, known)
		}
	}
}

// Spec returns nil: package tenants keeps the organization.
func (o organization) Spec() *store.Spec { return nil }

// Find returns the organization, whatever is asked.
func (o organization) Find(context.Context, *store.Workspace, store.Query) ([]any, error) {
	org := o.tenant.Org
	return []any{&org}, nil
}

func (o organization) Each(ctx context.Context, ws *store.Workspace, _ store.Filter, visit func(any) error) error {
	found, _ := o.Find(ctx, ws, store.Query{})
	return visit(found[0])
}

func (o organization) Count(context.Context, *store.Workspace) (int64, error) { return 1, nil }

// Insert is never called: the organization is there.
func (o organization) Insert(context.Context, *store.Workspace, []any) error { return nil }

// Replace makes the change to the organization as it is now.
func (o organization) Replace(ctx context.Context, _ *store.Workspace, _ any, change func(any)) error {
	_, err := o.directory.Update(ctx, o.tenant.Org.Slug, func(org *tenants.Organization) error {
		change(org)
		return nil
	})
	return err
}
