"""The acceptance record: one strict JSON document, its schema, and a form to fill by hand."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

from pytest_meshnet import layout
from pytest_meshnet.identity.canonical import DocumentRefused, Refused, canonical_bytes, load_strict

SCHEMA_ID = "meshnet.alpha-record/1"
FIRST_MACHINE = "machine-1"
MAX_BYTES = 64 * 2**20
"""A record with every tensor of every node is some hundred kilobytes."""
MAX_DEPTH = 16
"""Parts nest six deep, and a value is a list of objects at most."""


class RecordRefused(Refused):
    """A record that cannot be judged without guessing; `code` is stable."""


@cache
def schema() -> Mapping[str, Any]:
    """The JSON Schema of a record, version 1."""
    path = layout.folder("fixtures") / "alpha" / "record-1.schema.json"
    found: Mapping[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return found


def load(path: Path) -> dict[str, Any]:
    """Read a record and the attachments beside it.

    Raises RecordRefused: unreadable, too-large, the codes of strict JSON (duplicate-key,
    non-finite, not-json, ...), schema, host-unknown, attachment-missing, attachment-differs,
    attachment-twice.
    """
    record = read(path)
    check(record)
    _check_attachments(record, path.parent)
    return record


def read(path: Path) -> dict[str, Any]:
    """Read one strict JSON object. Raises RecordRefused as `load` does for what is none."""
    try:
        if path.stat().st_size > MAX_BYTES:
            raise RecordRefused("too-large", f"{path} has more than {MAX_BYTES} bytes")
        document = load_strict(path.read_bytes(), path.name)
        # A lone surrogate could be read here and never be written again.
        canonical_bytes(document)
    except OSError as error:
        raise RecordRefused("unreadable", f"{path}: {error.strerror}: name a record") from error
    except DocumentRefused as error:
        raise RecordRefused(error.code, error.message) from error
    if not isinstance(document, dict):
        raise RecordRefused("schema", f"{path} holds no object: see `alpha template`")
    return document


def check(record: Any) -> None:
    """Refuse a document that is no record: another schema, unknown fields, parts that do not fit.

    Raises RecordRefused. Values are not judged here: a wrong one is a criterion that is not met.
    """
    import jsonschema

    if _deeper_than(record, MAX_DEPTH):
        raise RecordRefused(
            "too-deep", f"a value nests deeper than {MAX_DEPTH}: see `alpha template`"
        )
    errors = jsonschema.Draft202012Validator(schema()).iter_errors(record)
    first = min(errors, key=lambda error: (len(error.absolute_path), error.message), default=None)
    if first is not None:
        raise RecordRefused("schema", f"{first.json_path}: {first.message}: see `alpha template`")
    _check_hosts(record)


def _deeper_than(value: Any, levels: int) -> bool:
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return levels == 0 or any(_deeper_than(one, levels - 1) for one in inner)


def check_part(name: str, value: Any) -> None:
    """Refuse ("part") what does not have the form that the schema gives to `name` ("node")."""
    import jsonschema

    form = {"$ref": f"#/$defs/{name}", "$defs": schema()["$defs"]}
    error = next(jsonschema.Draft202012Validator(form).iter_errors(value), None)
    if error is not None:
        raise RecordRefused("part", f"no {name} of a record ({error.message}): collect it again")


def _check_hosts(record: Mapping[str, Any]) -> None:
    """What belongs to a machine names one that is in the record."""
    nodes = record["identity_and_fit"]["nodes"]
    hosts = [one["host"]["value"] for one in nodes if one["host"]]
    named = [one["host"] for one in record["performance"]["stages"]]
    named += list(record["storage"]["log_scans"])
    for host in named:
        if host not in hosts:
            raise RecordRefused(
                "host-unknown", f"{host!r} has telemetry or logs and is no node of the record"
            )


def _check_attachments(record: Mapping[str, Any], folder: Path) -> None:
    seen: set[str] = set()
    for one in record["attachments"]:
        name = one["name"]
        if name in seen:
            raise RecordRefused("attachment-twice", f"the attachment {name} is listed twice")
        seen.add(name)
        path = folder / name
        if path.is_symlink() or not path.is_file():
            raise RecordRefused("attachment-missing", f"there is no file {name} beside the record")
        data = path.read_bytes()
        if (len(data), hashlib.sha256(data).hexdigest()) != (one["size"], one["sha256"]):
            raise RecordRefused("attachment-differs", f"{name} is not what the record says")


def blank_node() -> dict[str, Any]:
    """A machine of which nothing is known."""
    return dict.fromkeys(schema()["$defs"]["node"]["properties"])


def template() -> dict[str, Any]:
    """A record with one machine in which every claim is still open (null), to fill by hand."""
    blank: dict[str, Any] = _blank(schema())
    blank |= {"schema": SCHEMA_ID, "synthetic": False}
    (node,) = blank["identity_and_fit"]["nodes"]
    node["host"] = {"value": FIRST_MACHINE, "source": "configured", "by": ""}
    blank["performance"]["stages"][0]["host"] = FIRST_MACHINE
    return blank


def _blank(part: Mapping[str, Any]) -> Any:
    if "$ref" in part:
        name = part["$ref"].rpartition("/")[2]
        return None if name == "claim" else _blank(schema()["$defs"][name])
    if part.get("type") == "object":
        if "propertyNames" in part:
            return {}
        return {name: _blank(inner) for name, inner in part.get("properties", {}).items()}
    if part.get("type") == "array":
        item = _blank(part["items"])
        return [item] if isinstance(item, dict) and part.get("minItems") else []
    return "" if part.get("type") == "string" else None
