package tenants

// redisPrefix begins the names of everything that is kept in Redis: of what belongs to an
// organization, or to the whole installation where organization is empty. Numbers begin at 1
// in every installation, and two of them may use one Redis, so names carry identities. The
// hash tag keeps on one node of a cluster what is changed together.
func redisPrefix(installation, organization string) string {
	if organization != "" {
		installation += "." + organization
	}
	return "tnt:{" + installation + "}:"
}

// RedisPrefix begins the names of everything in Redis that belongs to the organization. No
// other organization has it, in this installation or another.
func (t *Tenant) RedisPrefix() string { return t.prefix }

// RedisPrefix begins the names of everything in Redis that belongs to no organization, but to
// the installation.
func (d *Directory) RedisPrefix() string { return redisPrefix(d.installation, "") }
