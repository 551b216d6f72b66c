"""Generates a Python client from the OpenAPI document and calls every operation with it.

Usage: python.py CALLS.json, in a folder to write to. Each call must return a typed answer with
everything that the server sent, and without its credential a typed refusal.
"""

import builtins
import enum
import importlib
import inspect
import json
import keyword
import re
import subprocess
import sys
import types
import typing
import urllib.request
from pathlib import Path

given = json.loads(Path(sys.argv[1]).read_text())
request = urllib.request.Request(given["url"] + "/api/openapi.json", headers={"Host": given["host"]})
document = json.load(urllib.request.urlopen(request))
Path("openapi.json").write_text(json.dumps(document))
# The generator does not support NDJSON, or files of other types than one.
Path("config.json").write_text(json.dumps({"content_type_overrides": {
    of: "application/octet-stream" for of in (
        "application/x-ndjson", "application/zip", "application/offset+octet-stream", "text/csv",
        "text/tab-separated-values", "multipart/byteranges", "*/*")}}))
generate = ["openapi-python-client", "generate", "--path", "openapi.json", "--output-path", "client", "--config", "config.json"]
subprocess.run([*generate, "--meta", "none", "--fail-on-warning"], check=True)
sys.path.insert(0, ".")
client = importlib.import_module("client")


def snake(name):
    name = re.sub(r"\W+", "_", re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name)).strip("_").lower()
    return name + "_" if name in (set(dir(builtins)) | set(keyword.kwlist)) - {"id"} else name


def typed(annotation, value):
    """Converts the value to one of the classes that the annotation names."""
    for cls in typing.get_args(annotation) or [annotation]:
        if hasattr(cls, "from_dict") and isinstance(value, dict):
            return cls.from_dict(value)
        if isinstance(cls, type) and issubclass(cls, enum.Enum):
            return cls(value)
    return value


def plain(value):
    return value.to_dict() if hasattr(value, "to_dict") else value


def call(operation, tag, headers):
    module = importlib.import_module(f"client.api.{snake(tag)}.{snake(operation['id'])}")
    hints = typing.get_type_hints(module.sync_detailed, vars(types) | vars(client))
    arguments = {snake(name): value for name, value in (operation["params"] | operation["query"] | operation["header"]).items()}
    if "body" in operation:
        arguments["body"] = operation["body"]
    unknown = set(arguments) - set(inspect.signature(module.sync_detailed).parameters)
    if unknown:
        raise TypeError(f"the client takes no {unknown}")
    arguments = {name: typed(hints[name], value) for name, value in arguments.items()}
    caller = client.Client(base_url=given["url"], headers={"Host": given["host"], **headers})
    return module.sync_detailed(client=caller, **arguments)


faults = []
described = {described["operationId"]: described for item in document["paths"].values() for described in item.values()}
if missing := set(described) - {operation["id"] for operation in given["calls"]} - set(given["left_out"]):
    faults.append(f"no calls of {missing}")
for operation in given["calls"]:
    name, tag = operation["id"], described[operation["id"]]["tags"][0]
    try:
        if operation["headers"]:
            refusal = call(operation, tag, {})
            if refusal.status_code != 403 or refusal.parsed is None or refusal.parsed.status != "failed":
                faults.append(f"{name} without its credential: {refusal.status_code} {refusal.parsed}")
        answer = call(operation, tag, operation["headers"])
        if operation["streams"]:
            if answer.status_code != operation["code"] or not answer.content:
                faults.append(f"{name}: {answer.status_code} {answer.content[:300]}")
            continue
        if operation["code"] == 204:
            if answer.status_code != 204 or answer.content:
                faults.append(f"{name}: {answer.status_code} {answer.content[:300]}")
        elif answer.status_code != operation["code"] or answer.parsed is None or answer.parsed.status != "ok":
            faults.append(f"{name}: {answer.status_code} {answer.parsed} {answer.content[:300]}")
        elif plain(answer.parsed.data) != json.loads(answer.content)["data"]:
            faults.append(f"{name}: {answer.content[:300]} was read as {answer.parsed.data}")
    except Exception as err:
        faults.append(f"{name}: {type(err).__name__}: {err}")
print(f"Python: {len(given['calls'])} operations", *faults, sep="\n")
sys.exit(bool(faults))
