"""The committed stubs, the record of how they were made, and the generator."""

from __future__ import annotations

import importlib.metadata
import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from pytest_meshnet.protocol import regenerate

STUBS = (
    "shard_runtime_pb2.py",
    "shard_runtime_pb2.pyi",
    "shard_runtime_pb2_grpc.py",
    "codec_testee_pb2.py",
    "codec_testee_pb2.pyi",
)
PROTOS = ("PROTO", "TESTEE_PROTO")


@pytest.fixture
def copy(tmp_path, monkeypatch):
    """A copy of the .proto and the stubs, in whose place a test may spoil them."""
    generated = tmp_path / "generated"
    shutil.copytree(regenerate.GENERATED, generated)
    for name in PROTOS:
        copied = shutil.copy(getattr(regenerate, name), tmp_path)
        monkeypatch.setattr(regenerate, name, Path(copied))
    monkeypatch.setattr(regenerate, "GENERATED", generated)
    monkeypatch.setattr(regenerate, "PROVENANCE", generated / regenerate.PROVENANCE.name)
    return tmp_path


def _append(path):
    path.write_bytes(path.read_bytes() + b"\n# edited\n")


def _edit_record(**changes):
    record = json.loads(regenerate.PROVENANCE.read_text())
    regenerate.PROVENANCE.write_text(json.dumps(record | changes))


def test_the_committed_record_fits_the_committed_files():
    assert regenerate.provenance_differences() == []


@pytest.mark.parametrize("name", STUBS)
def test_an_edited_stub_no_longer_fits_the_record(copy, name):
    _append(copy / "generated" / name)
    assert regenerate.provenance_differences() == [f"{name}: changed since it was made"]


@pytest.mark.parametrize("name", STUBS)
def test_a_lost_stub_is_missed(copy, name):
    (copy / "generated" / name).unlink()
    assert regenerate.provenance_differences() == [f"{name}: missing"]


def test_a_stub_that_the_record_does_not_know_is_named(copy):
    (copy / "generated" / "shard_runtime_pb3.py").write_text("")
    found = regenerate.provenance_differences()
    assert found == ["shard_runtime_pb3.py: no digest of it is recorded"]


def test_a_record_without_digests_vouches_for_nothing(copy):
    _edit_record(stubs_sha256={})
    found = regenerate.provenance_differences()
    assert found == [f"{name}: no digest of it is recorded" for name in sorted(STUBS)]


@pytest.mark.parametrize("name", PROTOS)
def test_an_edited_proto_no_longer_fits_the_record(copy, name):
    proto = getattr(regenerate, name)
    _append(proto)
    found = regenerate.provenance_differences()
    assert found == [f"{proto.name}: changed since the stubs were made"]


def test_a_record_of_another_generator_is_named(copy):
    _edit_record(generator="grpcio-tools==1.73.0")
    found = regenerate.provenance_differences()
    assert found == ["PROVENANCE.json: made by grpcio-tools==1.73.0"]


def test_a_missing_record_is_a_difference_and_not_a_crash(copy):
    regenerate.PROVENANCE.unlink()
    assert regenerate.provenance_differences() == ["PROVENANCE.json: missing"]


def test_differences_name_what_is_missing_other_and_too_much(copy):
    expected = {name: (copy / "generated" / name).read_bytes() for name in STUBS}
    assert regenerate.differences(expected) == []
    (copy / "generated" / STUBS[0]).unlink()
    _append(copy / "generated" / STUBS[1])
    del expected[STUBS[2]]
    assert regenerate.differences(expected) == [
        "shard_runtime_pb2_grpc.py: not made by grpcio-tools",
        "shard_runtime_pb2.py: missing",
        "shard_runtime_pb2.pyi: differs from the output of grpcio-tools 1.82.1",
    ]


def test_another_version_of_the_generator_is_refused_with_what_to_install(monkeypatch):
    monkeypatch.setattr(regenerate.importlib.metadata, "version", lambda _: "1.73.0")
    with pytest.raises(regenerate.GeneratorMissing, match=r"found grpcio-tools 1\.73\.0") as found:
        regenerate.generate()
    assert "pip install grpcio-tools==1.82.1" in str(found.value)


def test_a_missing_generator_is_refused_with_what_to_install(monkeypatch):
    def version(name):
        raise importlib.metadata.PackageNotFoundError(name)

    monkeypatch.setattr(regenerate.importlib.metadata, "version", version)
    with pytest.raises(regenerate.GeneratorMissing, match="is not installed") as found:
        regenerate.generate()
    assert "pip install" in str(found.value)


def _check(*arguments):
    command = [sys.executable, "-m", "pytest_meshnet.protocol.regenerate", *arguments]
    return subprocess.run(command, capture_output=True, text=True)


def test_an_unknown_argument_writes_nothing():
    done = _check("--chek")
    assert done.returncode == 2
    assert "expected --check" in done.stderr


needs_generator = pytest.mark.skipif(
    not any(
        one.metadata["Name"] == regenerate.GENERATOR and one.version == regenerate.GENERATOR_VERSION
        for one in importlib.metadata.distributions(name=regenerate.GENERATOR)
    ),
    reason=f"{regenerate.GENERATOR} {regenerate.GENERATOR_VERSION} is not installed",
)


@needs_generator
def test_the_generator_makes_the_committed_stubs():
    done = _check("--check")
    assert (done.returncode, done.stderr) == (0, "")


@needs_generator
def test_the_check_names_an_edited_stub_and_what_to_do(copy, capsys):
    _append(copy / "generated" / STUBS[0])
    assert regenerate.main(["--check"]) == 1
    assert capsys.readouterr().err == (
        "shard_runtime_pb2.py: differs from the output of grpcio-tools 1.82.1: run tox -e proto\n"
    )


@needs_generator
def test_regenerating_repairs_an_edited_stub(copy):
    _append(copy / "generated" / STUBS[0])
    assert regenerate.main([]) == 0
    assert regenerate.provenance_differences() == []
    assert regenerate.differences(regenerate.generate()) == []


def test_the_package_demands_the_runtimes_that_its_stubs_demand():
    grpc_stub = (regenerate.GENERATED / STUBS[2]).read_text()
    protobuf_stub = (regenerate.GENERATED / STUBS[0]).read_text()
    grpc_version = re.search(r"GRPC_GENERATED_VERSION = '(.*)'", grpc_stub)
    protobuf_version = re.search(r"# Protobuf Python Version: (.*)", protobuf_stub)
    assert grpc_version is not None
    assert protobuf_version is not None
    requirements = importlib.metadata.requires("pytest-meshnet") or []
    assert f"grpcio>={grpc_version[1]}" in requirements
    assert f"protobuf>={protobuf_version[1]}" in requirements
