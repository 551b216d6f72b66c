#!/bin/sh
# The client that openapi-python-client makes.
PATH=$TENANTRY_CI_TOOLS/clients/venv/bin:$PATH exec python "$(dirname "$0")/python.py" "$1"
