package operation

import (
	"slices"
	"time"

	"tenantry/tenants"
)

// Credentials are the ways to authenticate a call. The zero value admits nobody.
type Credentials uint8

// The credentials. Open operations need none. The only one they look at is a browser key, if the row takes those: pages
// of its origins may then read the answer.
const (
	Key     Credentials = 1 << iota // an API key in the header x-service-token
	Session                         // a signed-in person's browser session
	Open                            // none; the operation itself checks tokens in its input
	// Operator runs commands through the control socket. No public listener serves such a row.
	Operator
)

// Kinds are the kinds of API keys an operation takes. The zero value takes none.
type Kinds uint8

// The kinds. Only operations whose method is GET take ServerRead.
const (
	ServerFull Kinds = 1 << iota
	ServerRead
	Browser
	ServerKeys = ServerFull | ServerRead
)

// Admits reports whether a key of that kind may be used.
func (k Kinds) Admits(kind tenants.KeyKind) bool {
	switch kind {
	case tenants.ServerFull:
		return k&ServerFull != 0
	case tenants.ServerRead:
		return k&ServerRead != 0
	case tenants.Browser:
		return k&Browser != 0
	}
	return false
}

type ruleKind uint8

const (
	ruleNobody ruleKind = iota
	ruleAnyCaller
	rulePermission
	ruleAdmin
	ruleHandler
)

// Rule says what a caller must hold. The zero value refuses everybody.
type Rule struct {
	kind        ruleKind
	permissions []tenants.Permission
	denial      string
	persons     bool // keys do not need the permissions
	unlimited   bool // refuses callers who are limited to teams
}

// AnyCaller admits every caller whose credential is accepted.
func AnyCaller() Rule { return Rule{kind: ruleAnyCaller} }

// Needs admits callers who hold the permission.
func Needs(p tenants.Permission) Rule {
	return Rule{kind: rulePermission, permissions: []tenants.Permission{p}, denial: string(p)}
}

// NeedsOneOf admits callers who hold at least one of the permissions; a refusal names the first.
func NeedsOneOf(named tenants.Permission, others ...tenants.Permission) Rule {
	return Rule{
		kind: rulePermission, permissions: append([]tenants.Permission{named}, others...), denial: string(named),
	}
}

// PersonsNeed admits keys of the row's kinds, and persons who hold the permission.
func PersonsNeed(p tenants.Permission) Rule {
	r := Needs(p)
	r.persons = true
	return r
}

// Unlimited returns the rule that also refuses callers who are limited to teams, because the answer covers all teams.
func (r Rule) Unlimited() Rule {
	r.unlimited = true
	return r
}

// AdminOnly admits administrators, who are always persons. The label is the message of a refusal.
func AdminOnly(label string) Rule { return Rule{kind: ruleAdmin, denial: label} }

// HandlerDecides admits every caller whose credential is accepted. The handler refuses callers itself, because the
// decision depends on the record.
func HandlerDecides() Rule { return Rule{kind: ruleHandler} }

// Permissions returns the permissions of which one is needed; nil if the rule asks for none.
func (r Rule) Permissions() []tenants.Permission { return slices.Clone(r.permissions) }

// IsUnlimited reports whether callers who are limited to teams are refused.
func (r Rule) IsUnlimited() bool { return r.unlimited }

// ExemptsKeys reports whether only persons need the permissions.
func (r Rule) ExemptsKeys() bool { return r.persons }

// IsAdminOnly reports whether only administrators are admitted.
func (r Rule) IsAdminOnly() bool { return r.kind == ruleAdmin }

// LooksAtRecords reports whether the handler decides by the record.
func (r Rule) LooksAtRecords() bool { return r.kind == ruleHandler }

// NotLimited is the message of a refusal by Unlimited.
const NotLimited = "Only callers who are not limited to teams"

// Check returns nil if the rule admits the principal in the organization, otherwise the Problem to answer.
func (r Rule) Check(p *tenants.Principal, t *tenants.Tenant) error {
	if r.unlimited && p.Teams != nil && t.Org.Feature(tenants.FeatureTeams) {
		return Forbidden(NotLimited)
	}
	switch r.kind {
	case ruleAnyCaller, ruleHandler:
		return nil
	case ruleAdmin:
		if p.IsAdmin() {
			return nil
		}
		return AdminRequired(r.denial)
	case rulePermission:
		if r.persons && p.Kind == tenants.ServiceAccount {
			return nil
		}
		if slices.ContainsFunc(r.permissions, p.May) {
			return nil
		}
		return MissingPermission(r.denial)
	}
	return Denied("the operation admits nobody")
}

// Audit says when an operation writes a record to the audit log. The record is written before the answer.
type Audit uint8

// The audit rules. If the record cannot be written, the answer is 503. Operations that change something must be
// audited. So must those that answer a secret, because answers of audited operations are never compressed.
const (
	NoAudit Audit = iota
	AuditAlways
	// AuditNoted, of commands: only if the handler has noted a fact, which means that it changed something.
	AuditNoted
)

// Policy says who may call an operation, and bounds the cost of a call. The zero value admits nobody.
type Policy struct {
	Credentials Credentials
	Kinds       Kinds
	Rule        Rule
	Audit       Audit

	// AnyHost: the operation also answers on hosts that lead to no organization, as an organization without users
	// would. Its call then has tenants.Directory.Anonymous and no Workspace. Other operations answer Denied there, so
	// that an unknown organization looks like a wrong key.
	AnyHost bool
	// AnySite, of an open operation: pages of other sites may call it. The handler decides which; see Call.CrossSite.
	AnySite bool
	// Reads: the operation changes nothing, whatever its method, and no answer is stored for repetitions.
	Reads bool

	// OwnLimits: the operation throttles its callers itself; request limits do not count its calls.
	OwnLimits bool
	// MakesRoom: quotas do not refuse the operation's writes, as they do not refuse those of a DELETE.
	MakesRoom bool
	Timeout   time.Duration // 0: DefaultTimeout
	Weight    int64         // of a call among those in flight; 0 means 1, for at most 8 MiB; see Heavy
}
