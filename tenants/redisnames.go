package tenants

// redisPrefix returns the prefix of every Redis key of an organization, or of the whole installation if organization is
// empty. The prefix holds identities rather than numbers, because numbers begin at 1 in every installation and two
// installations may share one Redis. The hash tag puts keys that are changed together on one node of a cluster.
func redisPrefix(installation, organization string) string {
	if organization != "" {
		installation += "." + organization
	}
	return "tnt:{" + installation + "}:"
}

// RedisPrefix returns the prefix of every Redis key of the organization. No other organization has it, in this
// installation or another.
func (t *Tenant) RedisPrefix() string { return t.prefix }

// RedisPrefix returns the prefix of every Redis key that belongs to the installation rather than to an organization.
func (d *Directory) RedisPrefix() string { return redisPrefix(d.installation, "") }
