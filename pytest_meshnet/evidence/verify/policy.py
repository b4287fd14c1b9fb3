"""The policy file: what a reader of evidence asks for beyond a valid signature.

    schema = 1
    requirements = ["DECODE-01"]    # each must have passed
    profiles = ["core-wire"]        # every MUST of these ledger profiles must have passed
    certificate = false             # true: only a run of `pytest-meshnet certify` will do
    expected_failures = []          # ids of tests whose known failure is acceptable
    reruns = false                  # tests may have had several attempts; the worst one counts
    deselection = true              # tests may have been deselected
    skips = true                    # tests of no MUST may not have run
    artifacts = ["<sha256>"]        # model artifacts that the run must have been configured with
    ledgers = ["<sha256>"]          # ledgers of other versions that may be judged by
    plugins = ["pytest-meshnet"]    # no other pytest plugin may have been active
    max_age_hours = 720             # age of the seal
    [gpu]                           # every device that the run proves must be this one
    model = "NVIDIA GeForce RTX 3060"
    uuid = "GPU-..."
    driver = "560.35"

Every key but `schema` may be left out. Without a policy file the values shown for `certificate` to
`skips` hold and nothing else is asked.
"""

from __future__ import annotations

import hashlib
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from pytest_meshnet.evidence import strict

_LISTS = ("requirements", "profiles", "expected_failures", "artifacts", "ledgers", "plugins")
_FLAGS = ("certificate", "reruns", "deselection", "skips")
_GPU_FIELDS = {"model", "uuid", "driver"}


class PolicyError(ValueError):
    """The policy file is malformed; a rule that is not understood is never ignored."""


@dataclass(frozen=True, slots=True)
class Policy:
    """What a bundle must show. `digest` is the SHA-256 hex of the file, empty without one."""

    requirements: tuple[str, ...] = ()
    profiles: tuple[str, ...] = ()
    certificate: bool = False
    expected_failures: tuple[str, ...] = ()
    reruns: bool = False
    deselection: bool = True
    skips: bool = True
    artifacts: tuple[str, ...] = ()
    ledgers: tuple[str, ...] = ()
    plugins: tuple[str, ...] | None = None
    max_age_hours: int | None = None
    gpu: Mapping[str, str] = field(default_factory=dict)
    digest: str = ""

    @classmethod
    def load(cls, path: Path) -> Policy:
        """Read a policy file. Raises PolicyError."""
        try:
            data = path.read_bytes()
            document = tomllib.loads(data.decode())
        except OSError as error:
            raise PolicyError(f"the policy file {path} cannot be read: {error.strerror}") from error
        except (UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
            raise PolicyError(f"{path}: {error}; expected TOML with schema = 1") from error
        try:
            return _from_document(document, hashlib.sha256(data).hexdigest())
        except PolicyError as error:
            raise PolicyError(f"{path}: {error}") from error


def _from_document(document: Mapping[str, Any], digest: str) -> Policy:
    known = {one.name for one in fields(Policy)} - {"digest"} | {"schema"}
    unknown = sorted(document.keys() - known)
    if unknown:
        raise PolicyError(f"unknown key {unknown[0]!r}; expected {sorted(known)}")
    if document.get("schema") != 1:
        raise PolicyError(f"schema is {document.get('schema')!r}; this suite reads schema 1")
    values = {name: value for name, value in document.items() if name != "schema"}
    for name, value in values.items():
        if name in _LISTS:
            values[name] = _texts(name, value)
        elif name in _FLAGS:
            if type(value) is not bool:
                raise PolicyError(f"{name} is {value!r}; expected true or false")
        elif name == "max_age_hours":
            if type(value) is not int or not 0 < value <= strict.MAX_INTEGER:
                raise PolicyError(f"max_age_hours is {value!r}; expected a positive integer")
        elif (
            not isinstance(value, dict)
            or value.keys() - _GPU_FIELDS
            or not all(isinstance(one, str) for one in value.values())
        ):
            raise PolicyError(f"gpu is {value!r}; expected texts for {sorted(_GPU_FIELDS)}")
    return Policy(**values, digest=digest)


def _texts(name: str, value: Any) -> tuple[str, ...]:
    if not isinstance(value, list) or not all(isinstance(one, str) for one in value):
        raise PolicyError(f"{name} is {value!r}; expected a list of texts")
    return tuple(value)
