#!/bin/sh
# Starts Redis with one user, who can access only Tenantry's entries. Only a hash of the password is stored.
set -eu
acl=/data/users.acl
hash=$(printf %s "$REDIS_PASSWORD" | sha256sum | cut -d ' ' -f 1)
(
	umask 077
	cat >"$acl" <<USERS
user default off
user tenantry on #$hash ~tnt:* &tnt:* +@read +@write +@connection +@transaction +@pubsub +@scripting +time -@dangerous +cluster|slots +cluster|shards
USERS
)
if [ "$(id -u)" = 0 ]; then chown redis "$acl"; fi
unset REDIS_PASSWORD
exec docker-entrypoint.sh redis-server /etc/redis.conf --aclfile "$acl"
