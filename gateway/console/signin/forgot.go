package signin

import (
	"context"
	"time"

	"tenantry/operation"
)

// Forgot is the answer to asking for a new password.
type Forgot struct {
	Mailed bool `json:"mailed" doc:"Whether a link is mailed if a person has the address. false: the installation sends no mail, and an administrator can make a link."`
}

type forgotAddress struct {
	Email string `json:"email" rule:"required min=1 max=254 format=line" ask:"E-mail address" example:"ada@example.com"`
}

// forgotTime is how long the answer takes at least. It is longer than what is done for an organization that exists, so
// that the time does not reveal which do. Whether a person has the address is looked up after the answer.
const forgotTime = 250 * time.Millisecond

// forgotRow returns the row with which people who are not signed in ask for a new password.
func (m *Module) forgotRow(row operation.Row) operation.Row {
	row.Name, row.Path, row.Summary, row.Message = "passwords.forgot", "/auth/password/forgot", "Ask for a new password", "Request taken"
	row.Description = "Mails a single-use link, valid for 30 minutes, with which the person chooses a new password. The answer is " +
		"the same, after the same time, whether or not somebody has the address. At most three mails are sent to an address in an hour."
	row.Example = Forgot{Mailed: true}
	return operation.Typed(row, m.forgot)
}

func (m *Module) forgot(ctx context.Context, c *operation.Call, in forgotAddress) (Forgot, error) {
	if err := m.Sessions.CountRecovery(ctx, c.Tenant, in.Email, c.Remote); err != nil {
		return Forgot{}, throttled(err)
	}
	if !m.Mails {
		return Forgot{}, c.Tenant.Absent(ctx)
	}
	floor := time.NewTimer(forgotTime)
	defer floor.Stop()
	err := m.Forgotten(ctx, c.Tenant, in.Email)
	select {
	case <-floor.C:
	case <-ctx.Done():
		return Forgot{}, ctx.Err()
	}
	return Forgot{Mailed: true}, err
}
