"""A machine's part is collected by its file; the parts of all make the machines of a record."""

from __future__ import annotations

import copy
import hashlib
import json
import os
import platform
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from pytest_meshnet.alpha.collectors import machine
from pytest_meshnet.alpha.collectors.claims import claim
from pytest_meshnet.alpha.collectors.host import collect_host, merge, read_settings
from pytest_meshnet.alpha.commands import alpha
from pytest_meshnet.alpha.reading import GIB
from pytest_meshnet.alpha.record import RecordRefused, check
from pytest_meshnet.hardware.inventory import Inventory
from pytest_meshnet.hardware.inventory.device import Device
from pytest_meshnet.target.documents import LockedTarget
from pytest_meshnet.target.manifest import Manifest

from .complete import complete

SETTINGS = """
schema = 1
host = "{host}"
pid = {pid}
role = "head"
layers = [0, 16]
backend = "b"
kv_recipe = "Q8_0"
patch_digest = "ab"
gguf_revision = "cd"
worker_kind = "whole"
artifacts = ["{folder}/models"]
logs = ["worker.log"]
prompts = ["prompt.txt"]
owned = "owned.json"
"""


NO_GPU = Inventory()


@pytest.fixture
def manifest() -> Manifest:
    """The locked manifest with a first file that is small enough to lie here."""
    found = LockedTarget.load().manifest
    first, *others = found.shards
    digest = hashlib.sha256(b"weights").hexdigest()
    return replace(found, shards=(replace(first, size_bytes=7, sha256=digest), *others))


@pytest.fixture
def folder(tmp_path: Path, manifest: Manifest) -> Path:
    (tmp_path / "models").mkdir()
    (tmp_path / "models" / manifest.shards[0].name).write_bytes(b"weights")
    (tmp_path / "worker.log").write_text("started\nAuthorization: Bearer 0123456789abcdef0123\n")
    (tmp_path / "prompt.txt").write_text("Write a parser for INI files")
    (tmp_path / "owned.json").write_text('[{"name": "blk.0.attn.weight", "bytes": 5}]')
    text = SETTINGS.format(host=platform.node(), pid=os.getpid(), folder=tmp_path)
    (tmp_path / "host.toml").write_text(text)
    return tmp_path


def test_a_machine_measures_what_it_can_and_says_what_it_was_told(
    folder: Path, manifest: Manifest
) -> None:
    part = collect_host(folder / "host.toml", manifest, NO_GPU)
    node = part["node"]
    assert [one["name"] for one in node["files"]["value"]] == [manifest.shards[0].name]
    assert (node["files"]["source"], node["owned"]["source"]) == ("measured", "reported")
    assert (node["role"]["source"], node["peak_rss_bytes"]["source"]) == ("configured", "measured")
    assert part["log_scan"]["secrets_found"]["value"] == 1
    assert len(part["artifacts"]) == 1


def test_a_damaged_file_is_not_among_the_verified_ones(folder: Path, manifest: Manifest) -> None:
    (folder / "models" / manifest.shards[0].name).write_bytes(b"weightS")
    assert collect_host(folder / "host.toml", manifest, NO_GPU)["node"]["files"]["value"] == []


@pytest.mark.parametrize("spoil", ["schema = 1", "pid = ", 'role = "head"'])
def test_a_file_that_lacks_a_key_or_cannot_be_read_is_refused(
    folder: Path, manifest: Manifest, spoil: str
) -> None:
    path = folder / "host.toml"
    path.write_text(path.read_text().replace(spoil, "", 1))
    with pytest.raises(RecordRefused) as refused:
        collect_host(path, manifest, NO_GPU)
    assert refused.value.code == "host-file"


@pytest.mark.parametrize("text", ['{"a": 1, "a": 2}', "NaN", "[" * 100_000, ""])
def test_what_the_worker_owns_is_read_without_guessing(
    folder: Path, manifest: Manifest, text: str
) -> None:
    settings = read_settings(folder / "host.toml")
    (folder / settings["owned"]).write_text(text)
    with pytest.raises(RecordRefused) as refused:
        collect_host(folder / "host.toml", manifest, NO_GPU)
    assert refused.value.code == "host-file"


def _device(size: int | None) -> Device:
    return Device(provider="nvml", vendor="nvidia", uuid=f"GPU-{size}", memory_bytes=size)


@pytest.mark.parametrize(
    ("inventory", "known"),
    [
        (Inventory(notes=("nvml: not installed",)), {}),
        (Inventory((_device(12 * GIB), _device(8 * GIB))), {"gpu_bytes": 20 * GIB}),
        (Inventory((_device(12 * GIB), _device(None))), {}),
        (Inventory(problems=("nvml: lost",)), {}),
    ],
    ids=["none", "two", "one unknown", "a driver failed"],
)
def test_what_gpu_drivers_do_not_tell_stays_open(
    inventory: Inventory, known: dict[str, Any]
) -> None:
    gpu = machine.gpus(inventory)
    assert {name: one["value"] for name, one in gpu.items()} == known
    whole = machine.with_gpus({"usable_bytes": claim(5, "test")}, gpu)
    if known:
        assert whole["usable_bytes"]["value"] == 5 + known["gpu_bytes"]
    else:
        assert "usable_bytes" not in whole


def test_a_machine_that_is_called_otherwise_is_not_measured(
    folder: Path, manifest: Manifest
) -> None:
    path = folder / "host.toml"
    path.write_text(path.read_text().replace(f'"{platform.node()}"', '"rig-z"'))
    with pytest.raises(RecordRefused, match="host is 'rig-z', this machine is"):
        collect_host(path, manifest, NO_GPU)


def _part(record: dict[str, Any], place: int) -> dict[str, Any]:
    node = record["identity_and_fit"]["nodes"][place]
    host = node["host"]["value"]
    return {
        "schema": "meshnet.alpha-part/1",
        "node": node,
        "artifacts": record["storage"]["artifacts"],
        "log_scan": record["storage"]["log_scans"][host],
    }


def test_parts_in_any_order_make_the_same_record() -> None:
    record = complete(LockedTarget.load())
    parts = [_part(record, place) for place in (3, 0, 4, 1, 2)]
    merged = merge(record, parts)
    check(merged)
    assert merged["identity_and_fit"] == record["identity_and_fit"]
    assert merged["storage"]["log_scans"] == record["storage"]["log_scans"]


def test_two_parts_of_one_machine_and_what_is_no_part_are_refused() -> None:
    record = complete(LockedTarget.load())
    part = _part(record, 0)
    for parts in ([part, copy.deepcopy(part)], [], [part | {"schema": "x"}]):
        with pytest.raises(RecordRefused) as refused:
            merge(record, parts)
        assert refused.value.code == "part"


def test_the_command_merges_and_refuses(tmp_path: Path) -> None:
    record = complete(LockedTarget.load())
    (tmp_path / "record.json").write_text(json.dumps(record))
    (tmp_path / "part.json").write_text(json.dumps(_part(record, 0)))
    names = [str(tmp_path / "record.json"), str(tmp_path / "part.json")]
    answer = CliRunner().invoke(alpha, ["merge", *names])
    assert answer.exit_code == 0
    assert len(json.loads(answer.stdout)["identity_and_fit"]["nodes"]) == 1
    assert CliRunner().invoke(alpha, ["merge", *names, names[1]]).exit_code == 2
