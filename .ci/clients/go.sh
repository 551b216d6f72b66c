#!/bin/sh
# Tests the client of oapi-codegen, which requires OpenAPI 3.0.
set -e
here=$(dirname "$0")
curl -sf -H "Host: $(jq -r .host "$1")" "$(jq -r .url "$1")/api/openapi.json" >openapi.json
jq -f "$here/openapi30.jq" openapi.json >openapi30.json
cp -r "$here/go" module
mkdir module/client
"$TENANTRY_CI_TOOLS/clients/oapi-codegen" -generate types,client -package client -o module/client/client.go openapi30.json
cd module
go run . ../openapi.json "$1"
