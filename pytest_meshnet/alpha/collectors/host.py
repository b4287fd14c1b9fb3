"""One machine's part of a record, collected on that machine, and the parts of all put together.

A TOML file on each machine says which process is the worker and where its files are:

    schema = 1
    host = "rig-a"
    pid = 4711
    role = "head"
    layers = [0, 16]
    backend = "llama.cpp b6000"
    kv_recipe = "Q8_0"
    patch_digest = "..."
    gguf_revision = "..."
    worker_kind = "whole"
    artifacts = ["/mnt/models/UD-IQ1_S"]
    logs = ["/var/log/worker.log"]
    prompts = ["coding.txt"]
    owned = "owned.json"

`host` is what the machine calls itself (uname -n). What the file says is `configured`, `owned` (the
worker's own report, [{name, bytes}]) is `reported`, and memory, digests, paths and logs are
measured.
"""

from __future__ import annotations

import json
import platform
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pytest_meshnet.alpha.collectors import machine, storage
from pytest_meshnet.alpha.collectors.claims import claim, claims
from pytest_meshnet.alpha.record import RecordRefused, blank_node, check, check_part
from pytest_meshnet.identity.canonical import DocumentRefused, load_strict
from pytest_meshnet.target.artifact.pins import locate, pins_of_manifest
from pytest_meshnet.target.artifact.verification import verify_files

if TYPE_CHECKING:
    from pytest_meshnet.hardware.inventory import Inventory
    from pytest_meshnet.target.manifest import Manifest

SCHEMA = "meshnet.alpha-part/1"
_TOLD = ("role", "layers", "backend", "kv_recipe", "patch_digest", "gguf_revision", "worker_kind")
_KEYS = frozenset({"schema", "host", "pid", "artifacts", "logs", "prompts", "owned", *_TOLD})


def read_settings(path: Path) -> dict[str, Any]:
    """Read the TOML file of one machine. Raises RecordRefused (code "host-file")."""
    try:
        found = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise RecordRefused("host-file", f"{path} cannot be read: {error}") from error
    missing, unknown = sorted(_KEYS - found.keys()), sorted(found.keys() - _KEYS)
    if missing or unknown or found["schema"] != 1:
        raise RecordRefused(
            "host-file",
            f"{path}: missing {missing or 'nothing'}, unknown {unknown or 'nothing'}, schema "
            f"{found.get('schema')!r}: it needs schema 1 and exactly {', '.join(sorted(_KEYS))}",
        )
    return found


def collect_host(path: Path, manifest: Manifest, inventory: Inventory) -> dict[str, Any]:
    """Measure this machine as its file says, and return its part as JSON.

    `inventory` is what the GPU drivers of this machine told.
    Every file of the manifest that is here is read and hashed, which takes a while. Raises
    RecordRefused for a file that cannot be used, OSError when the worker or a log is not there.
    """
    told = read_settings(path)
    here = path.parent
    source = f"the file {path.name}"
    name = platform.node()
    if told["host"] != name:
        raise RecordRefused(
            "host-file", f"{path}: host is {told['host']!r}, this machine is {name!r}: correct it"
        )
    node = {"host": claim(name, "the operating system")}
    node |= claims(source, {name: told[name] for name in _TOLD}, "configured")
    node |= {"hardware": claim(machine.hardware(), machine.BY)}
    node |= machine.with_gpus(machine.memory(told["pid"]), machine.gpus(inventory))
    node["owned"] = claim(_json(here / told["owned"]), "the worker", "reported")
    found = verify_files(
        locate(pins_of_manifest(manifest), [Path(one) for one in told["artifacts"]]),
        forbidden_prefixes=manifest.storage.forbidden_path_prefixes,
    )
    sizes = {one.name: one.size_bytes for one in manifest.shards}
    node["files"] = claim(
        [
            {"name": one.path.name, "size_bytes": sizes[one.path.name], "sha256": one.sha256}
            for one in found.verdicts
            if one.code == "verified"
        ],
        "SHA-256 of every byte",
    )
    logs = [(here / name).read_text(errors="replace") for name in told["logs"]]
    prompts = [(here / name).read_text(encoding="utf-8") for name in told["prompts"]]
    return {
        "schema": SCHEMA,
        "node": node,
        "artifacts": storage.artifacts(one.path for one in found.verdicts if one.path.exists()),
        "log_scan": storage.scan(logs, prompts),
    }


def _json(path: Path) -> Any:
    try:
        return load_strict(path.read_bytes(), path.name)
    except (OSError, DocumentRefused) as error:
        raise RecordRefused("host-file", f"{path} cannot be read: {error}") from error


def _checked(part: Mapping[str, Any]) -> str:
    """The host of a part, once it has the form of one and says where its layers are."""
    found = part.get("schema")
    if found != SCHEMA or part.keys() != {"schema", "node", "artifacts", "log_scan"}:
        raise RecordRefused("part", f"a part has the schema {found!r}: {SCHEMA} and its four keys")
    node = part["node"]
    check_part("node", blank_node() | node if isinstance(node, dict) else node)
    check_part("log_scan", part["log_scan"])
    for artifact in part["artifacts"] if isinstance(part["artifacts"], list) else [None]:
        check_part("artifact", artifact)
    host, layers = ((node.get(name) or {}).get("value") for name in ("host", "layers"))
    if not isinstance(host, str) or not isinstance(layers, list) or not layers:
        raise RecordRefused("part", "a part names no host or no layers: collect it again")
    if not all(isinstance(one, int) for one in layers):
        raise RecordRefused("part", f"{host} has the layers {layers}: two whole numbers are needed")
    return host


def merge(record: Mapping[str, Any], parts: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Put the machines' parts into a record, in the order of their layers.

    What an earlier version of the record said of these sections is replaced. Raises RecordRefused
    ("part") for what is no part, and for two parts of one machine, and as `check` does.
    """
    check(record)
    hosts = [_checked(part) for part in parts]
    twice = sorted({host for host in hosts if hosts.count(host) > 1})
    if twice or not parts:
        raise RecordRefused("part", f"one part for each machine, not two of {twice or 'nobody'}")
    ordered = sorted(parts, key=lambda part: part["node"]["layers"]["value"][0])
    merged: dict[str, Any] = json.loads(json.dumps(record))
    merged["identity_and_fit"]["nodes"] = [blank_node() | part["node"] for part in ordered]
    merged["storage"] = {
        "artifacts": [one for part in ordered for one in part["artifacts"]],
        "log_scans": {part["node"]["host"]["value"]: part["log_scan"] for part in ordered},
    }
    return merged
