#!/bin/sh
# Tests the types of openapi-typescript, with openapi-fetch.
set -e
cp -r "$TENANTRY_CI_TOOLS/clients/npm/node_modules" "$TENANTRY_CI_TOOLS/clients/npm/package.json" .
exec node "$(dirname "$0")/typescript.mjs" "$1"
