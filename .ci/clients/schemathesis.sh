#!/bin/sh
# Runs schemathesis, which generates requests from the OpenAPI document and checks the answers against it.
set -e
here=$(dirname "$0")
url=$(jq -r .url "$1")
cp "$here/schemathesis.toml" "$here/hooks.py" .
TENANTRY_CALLS=$1 SCHEMATHESIS_HOOKS=hooks.py exec "$TENANTRY_CI_TOOLS/clients/venv/bin/schemathesis" run "$url/api/openapi.json" \
	--url "$url" --header "Host: $(jq -r .host "$1")"
