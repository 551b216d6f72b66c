package operation

import (
	"errors"
	"net/http"
	"time"

	"tenantry/tenants"
)

// Concern is a record that somebody should check, and why.
type Concern struct {
	ID, Name string // of the record: its key, and the name that people read
	Cause    Cause
	Expires  time.Time            // of ExpiresSoon
	Unused   []tenants.Permission // of UnusedRights
}

// Cause is the reason why somebody should check a record.
type Cause uint8

// The causes.
const (
	ExpiresSoon  Cause = iota + 1 // it expires at Expires
	NeverUsed                     // it was made long ago and never used
	UnusedRights                  // it has had the permissions Unused for long and never needed them
	OpenToAll                     // everybody who has its address can read it
	Halted                        // the gateway paused it
	Failing                       // what it does by itself failed when it last did it
)

// Concerns are the records of a list that somebody should check.
type Concerns struct {
	First []Concern // in the order of their identifiers
	Count int64     // of all, including First
	// AtLeast: there may be more than Count, because not every record was examined.
	AtLeast bool
}

// Borrows returns which of the service accounts the caller may have something done on behalf of; lend refuses others with a
// 403. Errors: others of lend.
func Borrows(c *Call, accounts []string, lend func(account string) error) (map[string]bool, error) {
	may := map[string]bool{}
	for _, account := range accounts {
		if _, asked := may[account]; asked {
			continue
		}
		var err error
		if c.Principal.Kind != tenants.System && !c.Principal.IsAdmin() {
			err = lend(account)
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
