"""What schemathesis must know of this gateway: identifiers that lead somewhere, and credentials."""

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
    """Puts the values of the calls that succeed in the place of the document's examples."""
    teams = next(call["query"]["teams[]"] for call in given["calls"] if "teams[]" in call["query"])
    schema["components"]["parameters"]["teams"]["example"] = teams
    for path, item in schema["paths"].items():
        for method, operation in item.items():
            call = calls.get(f"{method.upper()} {path}")
            if call is None:  # it sends a file
                continue
            values = call["params"] | call["query"]
            for parameter in operation["parameters"]:
                if parameter.get("name") in values:
                    parameter["example"] = values[parameter["name"]]
            if "body" in call:
                operation["requestBody"]["content"]["application/json"]["example"] = call["body"]


@schemathesis.auth(refresh_interval=None)  # each operation has its own
class Credential:
    """The one that the operation takes: a key, an administrator's session, or one to end."""

    def get(self, case, context):
        return calls[case.operation.label]["headers"]

    def set(self, case, data, context):
        for name, value in data.items():
            if name == "Cookie":
                case.cookies = dict([value.split("=", 1)])
            else:
                case.headers[name] = value


@schemathesis.hook
def filter_case(context, case):
    """What is more than a header may have reaches no operation: that is a 431 of the server itself."""
    return len(urllib.parse.urlencode(case.query or {}, doseq=True)) < 100_000


@schemathesis.hook
def before_call(context, case, kwargs):
    """Asks for strict handling where the input is wrong, since lenient operations ignore much of that.

    Every call has an address of its own, since attempts to sign in from one are slowed down.
    """
    if "Prefer" in case.operation.headers:
        case.headers["Prefer"] = "handling=" + ("strict" if case.meta.generation.mode.is_negative else "lenient")
    if case.meta.generation.mode.is_positive:  # what these headers do depends on requests before
        for name in ("If-Match", "If-None-Match", "Idempotency-Key"):
            case.headers.pop(name, None)
    n = next(address)
    case.headers["X-Forwarded-For"] = f"10.{n >> 16 & 255}.{n >> 8 & 255}.{n & 255}"
