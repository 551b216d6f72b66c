#!/bin/bash
# Starts MongoDB as a replica set of one member with authentication. A replica set with
# users demands a key file, with which members trust each other: it is made once and lies
# with the data. To add members, give each of them a copy.
set -euo pipefail
key=/data/configdb/keyfile
if [ ! -s "$key" ]; then
	(umask 077 && head -c 756 /dev/urandom | base64 -w 0 >"$key.new")
	mv "$key.new" "$key"
fi
chmod 0400 "$key"
chown mongodb:mongodb "$key"
exec docker-entrypoint.sh mongod --replSet rs0 --keyFile "$key" --bind_ip_all
