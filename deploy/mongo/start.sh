#!/bin/bash
# Starts MongoDB as a replica set of one member with authentication. A replica set with users requires a key file, with
# which members authenticate to each other. It is created once and stored with the data. Give each new member a copy.
set -euo pipefail
key=/data/configdb/keyfile
if [ ! -s "$key" ]; then
	(umask 077 && head -c 756 /dev/urandom | base64 -w 0 >"$key.new")
	mv "$key.new" "$key"
fi
chmod 0400 "$key"
chown mongodb:mongodb "$key"
exec docker-entrypoint.sh mongod --replSet rs0 --keyFile "$key" --bind_ip_all
