"""Tells schemathesis about this gateway: existing identifiers, and credentials."""

import itertools
import json
import os
import urllib.parse

import schemathesis

given = json.load(open(os.environ["TENANTRY_CALLS"]))
calls = {f"{call['method']} {call['path']}": call for call in given["calls"]}
address = itertools.count(1)


@schemathesis.hook
def before_load_schema(context, schema):
    """Replaces the document's examples with the values of calls that succeed."""
    teams = next(call["query"]["teams[]"] for call in given["calls"] if "teams[]" in call["query"])
    schema["components"]["parameters"]["teams"]["example"] = teams
    for path, item in schema["paths"].items():
        for method, operation in item.items():
            call = calls.get(f"{method.upper()} {path}")
            if call is None:  # it sends a file
                continue
            values = call["params"] | call["query"] | call["header"]
            for parameter in operation["parameters"]:
                if parameter.get("name") in values:
                    parameter["example"] = values[parameter["name"]]
            if "body" in call:
                operation["requestBody"]["content"]["application/json"]["example"] = call["body"]


@schemathesis.auth(refresh_interval=None)  # each operation has its own
class Credential:
    """The credential for the operation: a key, an administrator's session, or a session to end."""

    def get(self, case, context):
        return calls.get(case.operation.label, {}).get("headers", {})  # uploads and streams are not called

    def set(self, case, data, context):
        for name, value in data.items():
            if name == "Cookie":
                case.cookies = dict([value.split("=", 1)])
            else:
                case.headers[name] = value


@schemathesis.hook
def filter_case(context, case):
    """Skips queries that are too long for a header: the server itself answers them with 431."""
    return len(urllib.parse.urlencode(case.query or {}, doseq=True)) < 100_000


@schemathesis.hook
def before_call(context, case, kwargs):
    """Requests strict handling of wrong input, because lenient operations ignore much of it.

    Every call has an address of its own, because sign-in attempts from one address are throttled.
    """
    if "Prefer" in case.operation.headers:
        case.headers["Prefer"] = "handling=" + ("strict" if case.meta.generation.mode.is_negative else "lenient")
    if case.meta.generation.mode.is_positive:  # the effect of these headers depends on earlier requests
        for name in ("If-Match", "If-None-Match", "Idempotency-Key"):
            case.headers.pop(name, None)
    n = next(address)
    case.headers["X-Forwarded-For"] = f"10.{n >> 16 & 255}.{n >> 8 & 255}.{n & 255}"
