package operation

import (
	"context"
	"errors"
	"net/http"

	"tenantry/tenants"
)

// Accounts are the service accounts of organizations, on whose behalf something is done later. Implementations must be safe
// for concurrent use.
type Accounts interface {
	// AccountPrincipal returns what an account may do. Error: tenants.ErrDenied if there is no such account, or it is not
	// active.
	AccountPrincipal(ctx context.Context, t *tenants.Tenant, id string) (*tenants.Principal, error)
	// Lend refuses a caller who lacks rights of the account: with a *fault.Error about the field, or, if that is empty,
	// with a 403. If lasts is set, it also refuses a key that is bound to a time or to addresses.
	Lend(ctx context.Context, c *Call, account, field string, lasts bool) error
}

// Borrows returns which of the service accounts the caller may have something done on behalf of. Errors: those of Lend, but
// for its 403.
func Borrows(ctx context.Context, c *Call, of Accounts, accounts []string) (map[string]bool, error) {
	may := map[string]bool{}
	for _, account := range accounts {
		if _, asked := may[account]; asked {
			continue
		}
		var err error
		if c.Principal.Kind != tenants.System && !c.Principal.IsAdmin() {
			err = of.Lend(ctx, c, account, "", false)
		}
		refused, is := errors.AsType[*Problem](err)
		if err != nil && (!is || refused.Code != http.StatusForbidden) {
			return nil, err
		}
		may[account] = err == nil
	}
	return may, nil
}

// BoundLoan refuses a key that would have something done later on behalf of a service account.
const BoundLoan = "A key that expires or is bound to addresses cannot have something sent or done later, because that " +
	"would not be bound in this way"
