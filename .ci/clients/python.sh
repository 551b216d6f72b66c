#!/bin/sh
# Tests the client of openapi-python-client.
PATH=$TENANTRY_CI_TOOLS/clients/venv/bin:$PATH exec python "$(dirname "$0")/python.py" "$1"
