"""Makes the committed stubs from the .proto files with the pinned generator, or checks them.

Run as `python -m pytest_meshnet.protocol.regenerate [--check]` with grpcio-tools 1.82.1 installed.
PROVENANCE.json beside the stubs keeps the digests of what went in and came out, so that a
certificate run, which has no generator, can still see an edit.
"""

import hashlib
import importlib.metadata
import json
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path

from pytest_meshnet.layout import folder

GENERATOR = "grpcio-tools"
GENERATOR_VERSION = "1.82.1"
PROTO = Path(__file__).with_name("shard_runtime.proto")
TESTEE_PROTO = folder("fixtures") / "codec" / "codec_testee.proto"
GENERATED = Path(__file__).with_name("generated")
PROVENANCE = GENERATED / "PROVENANCE.json"

# The stubs register under a path of our own, so that they cannot clash with a stranger's
# shard_runtime.proto in the one descriptor pool of a process.
_IMPORT_PATH = "pytest_meshnet/protocol/generated"


class GeneratorMissing(Exception):
    """The pinned generator is not installed, or another version of it."""


def _generator_version() -> str:
    try:
        found = importlib.metadata.version(GENERATOR)
    except importlib.metadata.PackageNotFoundError:
        raise GeneratorMissing(
            f"{GENERATOR} is not installed; regenerating needs {GENERATOR}=={GENERATOR_VERSION}: "
            "pip install 'pytest-meshnet[dev]'"
        ) from None
    if found != GENERATOR_VERSION:
        raise GeneratorMissing(
            f"found {GENERATOR} {found}, expected {GENERATOR_VERSION}: "
            f"pip install {GENERATOR}=={GENERATOR_VERSION}"
        )
    return found


def generate() -> dict[str, bytes]:
    """Run the pinned generator and return the stub files by name. Raises GeneratorMissing."""
    version = _generator_version()
    from grpc_tools import protoc  # type: ignore[import-untyped]

    stubs: dict[str, bytes] = {}
    # Only the first has a service.
    for proto, options in ((PROTO, ["--grpc_python_out"]), (TESTEE_PROTO, [])):
        with tempfile.TemporaryDirectory() as out:
            code = protoc.main(
                [
                    "protoc",
                    f"--proto_path={_IMPORT_PATH}={proto.parent}",
                    *(f"{one}={out}" for one in ("--python_out", "--pyi_out", *options)),
                    f"{_IMPORT_PATH}/{proto.name}",
                ]
            )
            if code != 0:
                raise RuntimeError(f"protoc ended with {code} on {proto}: see its messages above")
            made = sorted((Path(out) / _IMPORT_PATH).iterdir())
            stubs |= {path.name: path.read_bytes() for path in made}
    return {**stubs, PROVENANCE.name: _provenance(version, stubs)}


def _provenance(version: str, stubs: Mapping[str, bytes]) -> bytes:
    record = {
        "generator": f"{GENERATOR}=={version}",
        "protos_sha256": {proto.name: _digest(proto) for proto in (PROTO, TESTEE_PROTO)},
        "stubs_sha256": {name: hashlib.sha256(data).hexdigest() for name, data in stubs.items()},
    }
    return (json.dumps(record, indent=2) + "\n").encode()


def _digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def _committed() -> set[str]:
    """The names of all stub files there are."""
    return {
        path.name for proto in (PROTO, TESTEE_PROTO) for path in GENERATED.glob(f"{proto.stem}_*")
    }


def differences(expected: Mapping[str, bytes]) -> list[str]:
    """Name the committed stub files that differ from `expected`."""
    found = [f"{name}: not made by {GENERATOR}" for name in sorted(_committed() - expected.keys())]
    for name, data in expected.items():
        path = GENERATED / name
        if not path.is_file():
            found.append(f"{name}: missing")
        elif path.read_bytes() != data:
            found.append(f"{name}: differs from the output of {GENERATOR} {GENERATOR_VERSION}")
    return found


def provenance_differences() -> list[str]:
    """Name what no longer has the digest recorded when the stubs were made. Needs no generator."""
    if not PROVENANCE.is_file():
        return [f"{PROVENANCE.name}: missing"]
    record = json.loads(PROVENANCE.read_bytes())
    found = []
    if record["generator"] != f"{GENERATOR}=={GENERATOR_VERSION}":
        found.append(f"{PROVENANCE.name}: made by {record['generator']}")
    for proto in (PROTO, TESTEE_PROTO):
        if record["protos_sha256"].get(proto.name) != _digest(proto):
            found.append(f"{proto.name}: changed since the stubs were made")
    recorded = record["stubs_sha256"]
    unknown = sorted(_committed() - recorded.keys())
    found += [f"{name}: no digest of it is recorded" for name in unknown]
    for name, digest in recorded.items():
        path = GENERATED / name
        if not path.is_file():
            found.append(f"{name}: missing")
        elif _digest(path) != digest:
            found.append(f"{name}: changed since it was made")
    return found


def main(arguments: list[str]) -> int:
    """Write the stubs, or with `--check` report what differs. Returns the exit code."""
    if arguments not in ([], ["--check"]):
        print(f"found {' '.join(arguments)}, expected --check or nothing", file=sys.stderr)  # noqa: T201
        return 2
    try:
        expected = generate()
    except GeneratorMissing as missing:
        print(missing, file=sys.stderr)  # noqa: T201
        return 2
    if arguments == ["--check"]:
        found = differences(expected)
        for line in found:
            print(f"{line}: run tox -e proto", file=sys.stderr)  # noqa: T201
        return 1 if found else 0
    for name, data in expected.items():
        (GENERATED / name).write_bytes(data)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
