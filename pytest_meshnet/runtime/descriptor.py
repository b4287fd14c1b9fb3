"""The target descriptor: a TOML file that says how to reach a runtime and what it claims."""

from __future__ import annotations

import hashlib
import json
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pytest_meshnet.layout import folder
from pytest_meshnet.protocol.additions.sideband import IndexShare
from pytest_meshnet.protocol.tensors import DType
from pytest_meshnet.runtime.errors import Refusal
from pytest_meshnet.runtime.model_facts import ModelFacts
from pytest_meshnet.runtime.route_spec import OracleSpec, RouteSpec, read_oracle, read_route

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

Command = tuple[str, ...]

REFERENCE = "reference"


@dataclass(frozen=True, slots=True)
class Tolerance:
    """Values are equal that differ by at most absolute * input_scale + relative * abs(value)."""

    absolute: float
    relative: float

    def ratios(
        self, actual: NDArray[np.float32], expected: NDArray[np.float32], scale: float
    ) -> NDArray[np.float64]:
        """Differences as multiples of what is allowed; NaN and unequal infinities are infinite."""
        import numpy as np

        with np.errstate(all="ignore"):
            difference = np.abs(actual.astype(np.float64) - expected)
            ratios = difference / (self.absolute * scale + self.relative * np.abs(expected))
        same: NDArray[np.float64] = np.where(difference == 0, 0.0, ratios)
        return np.nan_to_num(same, nan=np.inf, posinf=np.inf)


# Calibrated on the reference worker (tests/runtime/test_tolerances.py measures it): its variants
# that round honestly, blas-rounding and boundary-precision, stay below half of what is allowed, and
# every numerical mutant goes beyond twice. In bfloat16 and float16 that is three spacings of the
# dtype at 1 relative, and six at the input scale absolute, since residual sums cancel.
DEFAULT_TOLERANCES: Mapping[DType, Tolerance] = {
    DType.BFLOAT16: Tolerance(absolute=6 * 2**-7, relative=3 * 2**-7),
    DType.FLOAT16: Tolerance(absolute=6 * 2**-10, relative=3 * 2**-10),
    DType.FLOAT32: Tolerance(absolute=1e-3, relative=1e-3),
}


@dataclass(frozen=True, slots=True)
class TimeLimits:
    """Limits in seconds: start to SERVING, message to answer, session end to baseline, stop."""

    start: float = 60.0
    answer: float = 10.0
    cleanup: float = 5.0
    stop: float = 5.0


@dataclass(frozen=True, slots=True)
class Launch:
    """A start command with what it adds to the environment."""

    command: Command
    environment: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ShardSpec:
    """One Shard of the target: served layers [start_layer, end_layer), and how to get at it.

    One with `profiles` stands beside the Shard that is examined, for what those profiles ask of a
    Shard of another kind. `model` takes the place of the descriptor's where it serves another one.
    """

    name: str
    start_layer: int
    end_layer: int
    endpoints: tuple[str, ...]
    launch: Launch | None
    drain: Command | None
    reduced_limits: Launch | None
    later_start: bool
    stall_hook: bool
    profiles: tuple[str, ...] = ()
    model: ModelFacts | None = None


@dataclass(frozen=True, slots=True)
class Descriptor:
    """A runtime under test. `digest` is the SHA-256 of the file, `folder` where it lies.

    `model` is None where the file has none: then every Shard must report its boundary.
    `artifacts` maps each model artifact that it is configured with to its SHA-256 hex;
    `publishes_prompts` says whether evidence may hold prompts, and not only their digests.
    `codec` starts the codec testee, where the runtime has one.
    `shards` may be empty where only a whole `route` is described.
    """

    name: str
    vendor: str
    version: str
    profiles: tuple[str, ...]
    shards: tuple[ShardSpec, ...]
    model: ModelFacts | None
    tolerances: Mapping[DType, Tolerance]
    time: TimeLimits
    artifacts: Mapping[str, str]
    publishes_prompts: bool
    digest: str
    folder: Path
    codec: Launch | None = None
    route: RouteSpec | None = None
    oracle: OracleSpec | None = None


def load(target: str, *, small: bool = False) -> Descriptor:
    """Read the descriptor that `--target` names: a file, or reference[:MUTANT-OR-VARIANT].

    `small` takes the reference worker's small model, for runs in process. Raises Refusal for a
    missing or malformed file, with the place in it.
    """
    if target == REFERENCE or target.startswith(f"{REFERENCE}:"):
        return _reference(target.partition(":")[2], small)
    path = Path(target)
    if not path.is_file():
        raise Refusal(
            f"no target descriptor at {target!r}: give a TOML file, or {REFERENCE}[:NAME]"
        )
    return _read(path)


def _reference(name: str, small: bool) -> Descriptor:
    file = "reference-small.toml" if small else "reference.toml"
    descriptor = _read(folder("fixtures") / "targets" / file)
    if not name:
        return descriptor
    extra = ("--mutant", name)
    return replace(
        descriptor,
        name=f"{descriptor.name}:{name}",
        shards=tuple(_with_arguments(shard, extra) for shard in descriptor.shards),
        codec=_extended(descriptor.codec, extra),
        route=_with_mutant(descriptor.route, extra),
        digest=hashlib.sha256(f"{descriptor.digest}:{name}".encode()).hexdigest(),
    )


def _with_arguments(shard: ShardSpec, extra: Command) -> ShardSpec:
    launch, reduced = _extended(shard.launch, extra), _extended(shard.reduced_limits, extra)
    return replace(shard, launch=launch, reduced_limits=reduced)


def _extended(launch: Launch | None, extra: Command) -> Launch | None:
    return None if launch is None else replace(launch, command=launch.command + extra)


def _with_mutant(route: RouteSpec | None, extra: Command) -> RouteSpec | None:
    return None if route is None else replace(route, start=route.start + extra)


def _read(path: Path) -> Descriptor:
    return _parsed(path.read_bytes(), path, path.resolve().parent)


@lru_cache(maxsize=4)
def _parsed(data: bytes, path: Path, home: Path) -> Descriptor:
    """One run asks for its descriptor several times, and a matrix of mutants for each of them."""
    try:
        document = tomllib.loads(data.decode())
    except (UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise Refusal(f"{path} is not TOML: {error}") from None
    _validate(document, path)
    model = _model(document["model"], path) if "model" in document else None
    route = None
    if "route" in document:
        route = read_route(document["route"], model.layers if model else None, path)
    oracle = read_oracle(document["oracle"], home) if "oracle" in document else None
    return Descriptor(
        name=document["name"],
        vendor=document["vendor"],
        version=document["version"],
        profiles=tuple(document["profiles"]),
        shards=tuple(_shard(entry, path) for entry in document.get("shards", ())),
        model=model,
        tolerances={**DEFAULT_TOLERANCES, **_tolerances(document.get("tolerances", {}))},
        time=TimeLimits(**{k: float(v) for k, v in document.get("time", {}).items()}),
        artifacts={one["name"]: one["sha256"] for one in document.get("artifacts", ())},
        publishes_prompts=document.get("evidence", {}).get("prompts", False),
        digest=hashlib.sha256(data).hexdigest(),
        folder=home,
        codec=_launch(document["codec"], "command") if "codec" in document else None,
        route=route,
        oracle=oracle,
    )


def _validate(document: Mapping[str, Any], path: Path) -> None:
    import jsonschema

    schema = json.loads((folder("fixtures") / "target.schema.json").read_bytes())
    validator = jsonschema.Draft202012Validator(schema)
    best = jsonschema.exceptions.best_match
    found = [best([error]) for error in validator.iter_errors(document)]
    places = [".".join(map(str, error.absolute_path)) or "the document" for error in found]
    lines = [f"{place}: {error.message}" for place, error in zip(places, found, strict=True)]
    if lines:
        raise Refusal(f"{path}: " + "; ".join(sorted(lines)))


def _shard(entry: Mapping[str, Any], path: Path) -> ShardSpec:
    start, end = entry["range"]
    if end <= start:
        raise Refusal(f"{path}: shards.range: [{start}, {end}) holds no layer")
    endpoint = entry.get("endpoint")
    return ShardSpec(
        name=entry.get("name", f"{start}-{end}"),
        start_layer=start,
        end_layer=end,
        endpoints=(endpoint,) if endpoint else tuple(entry.get("endpoints", ())),
        launch=_launch(entry) if "start" in entry else None,
        drain=tuple(entry["drain"]) if "drain" in entry else None,
        reduced_limits=_launch(entry["reduced_limits"]) if "reduced_limits" in entry else None,
        later_start=entry.get("later_start", True),
        stall_hook=entry.get("stall_hook", False),
        profiles=tuple(entry.get("profiles", ())),
        model=_model(entry["model"], path) if "model" in entry else None,
    )


def _launch(entry: Mapping[str, Any], key: str = "start") -> Launch:
    return Launch(tuple(entry[key]), dict(entry.get("environment", {})))


def _model(entry: Mapping[str, Any], path: Path) -> ModelFacts:
    dtypes = entry.get("boundary_dtypes", ["bfloat16"])
    return ModelFacts(
        layers=entry["layers"],
        hidden_size=entry["hidden_size"],
        vocab_size=entry["vocab_size"],
        boundary_dtypes=tuple(DType.parse(name) for name in dtypes),
        input_scale=float(entry.get("input_scale", 1.0)),
        index_share=_index_share(entry, path) if "index_share" in entry else None,
    )


def _index_share(entry: Mapping[str, Any], path: Path) -> IndexShare:
    found, layers = entry["index_share"], entry["layers"]
    if len(found["roles"]) != layers:
        raise Refusal(
            f"{path}: model.index_share.roles has {len(found['roles'])} roles for {layers} layers"
        )
    try:
        return IndexShare(found["topk"], tuple(found["roles"]))
    except ValueError as error:
        raise Refusal(f"{path}: model.index_share: {error}") from None


def _tolerances(entry: Mapping[str, Mapping[str, float]]) -> dict[DType, Tolerance]:
    return {
        DType.parse(name): Tolerance(float(value["absolute"]), float(value["relative"]))
        for name, value in entry.items()
    }
