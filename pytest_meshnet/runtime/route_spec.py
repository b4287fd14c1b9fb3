"""What a descriptor says of a whole route and of its oracle."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any, Literal

from pytest_meshnet.protocol.tensors import DType
from pytest_meshnet.runtime.errors import Refusal

_Words = tuple[str, ...]
Ranges = tuple[tuple[int, int], ...]
OracleKind = Literal["built-in", "transformers", "llama-server", "stored"]


@dataclass(frozen=True, slots=True)
class EngineSpec:
    """A llama-server: one that runs at `url`, one to start (`command`, {port} and {model} are
    replaced), or without either the one in the package xllamacpp, on the GGUF file `model`."""

    url: str = ""
    command: _Words = ()
    model: str = ""


@dataclass(frozen=True, slots=True)
class RouteSpec:
    """How whole routes are put together.

    With `start`, Shards of any range: {first}, {last} and {dtype} are replaced. `cuts` are the
    routes to examine, each by the layers at which it is cut; none means every single cut. With
    `shards`, one fixed route of Shards by name. With `engine`, a whole model behind an API that has
    no seams. `dtypes` are the boundary dtypes to examine. `controls` names the negative controls
    that the runtime can be started with, by `control_arguments` ({control} is replaced).
    """

    start: _Words = ()
    environment: tuple[tuple[str, str], ...] = ()
    shards: tuple[str, ...] = ()
    engine: EngineSpec | None = None
    cuts: tuple[tuple[int, ...], ...] = ()
    dtypes: tuple[DType, ...] = (DType.BFLOAT16,)
    controls: tuple[str, ...] = ()
    control_arguments: _Words = ()

    @property
    def usual_dtype(self) -> DType:
        """The boundary dtype that the route is meant to be used with: the last narrow one offered.

        Float32 where nothing narrower is.
        """
        narrow = [one for one in self.dtypes if one is not DType.FLOAT32]
        return narrow[-1] if narrow else DType.FLOAT32

    def command(self, first: int, last: int, dtype: DType) -> _Words:
        """The start command of layers [first, last)."""
        words = {"{first}": str(first), "{last}": str(last), "{dtype}": dtype.name.lower()}
        return tuple(_replaced(argument, words) for argument in self.start)

    def control(self, name: str) -> _Words:
        """What to add to a start command for a negative control."""
        return tuple(
            _replaced(argument, {"{control}": name}) for argument in self.control_arguments
        )


@dataclass(frozen=True, slots=True)
class OracleSpec:
    """The whole model that a route is compared with.

    `model` is the name of a built-in model, or a GGUF file; `record` the file of a stored oracle,
    which must be bound to what `binding` says.
    `same_kernels` says that its logits must be the route's bit for bit. `corpus` and `calibration`
    are files; without a corpus prompts are drawn.
    """

    kind: OracleKind
    model: str = ""
    engine: EngineSpec | None = None
    record: Path | None = None
    binding: Mapping[str, str] | None = None
    same_kernels: bool = False
    near_lossless: bool = True
    corpus: Path | None = None
    calibration: Path | None = None


def ranges_of(cuts: Sequence[int], layers: int) -> Ranges:
    """The layer ranges of a route of `layers` layers that is cut before each of `cuts`.

    Raises ValueError for cuts that do not rise between the first and the last layer.
    """
    edges = (0, *cuts, layers)
    ranges = tuple(pairwise(edges))
    if any(start >= end for start, end in ranges):
        raise ValueError(f"cuts {list(cuts)} of {layers} layers leave a Shard without a layer")
    return ranges


def read_route(entry: Mapping[str, Any], layers: int | None, path: Path) -> RouteSpec:
    """Read the table `route` of a descriptor that the schema accepted. Raises Refusal."""
    if layers is None:
        raise Refusal(f"{path}: a route needs to know how many layers there are: give model.layers")
    cuts = tuple(tuple(cut) for cut in entry.get("cuts", ()))
    for cut in cuts:
        try:
            ranges_of(cut, layers)
        except ValueError as error:
            raise Refusal(f"{path}: route.cuts: {error}: correct it") from None
    return RouteSpec(
        start=tuple(entry.get("start", ())),
        environment=tuple(entry.get("environment", {}).items()),
        shards=tuple(entry.get("shards", ())),
        engine=_engine(entry["llama_server"]) if "llama_server" in entry else None,
        cuts=cuts or (tuple((layer,) for layer in range(1, layers)) if "start" in entry else ()),
        dtypes=tuple(DType.parse(name) for name in entry.get("dtypes", ["bfloat16"])),
        controls=tuple(entry.get("controls", ())),
        control_arguments=tuple(entry.get("control_arguments", ())),
    )


def read_oracle(entry: Mapping[str, Any], folder: Path) -> OracleSpec:
    """Read the table `oracle` of a descriptor in `folder` that the schema accepted."""

    def file(name: str) -> Path | None:
        return folder / entry[name] if name in entry else None

    return OracleSpec(
        kind=entry["kind"],
        model=entry.get("model", ""),
        engine=_engine(entry["llama_server"]) if "llama_server" in entry else None,
        record=file("record"),
        binding=entry.get("binding"),
        same_kernels=entry.get("same_kernels", False),
        near_lossless=entry.get("near_lossless", True),
        corpus=file("corpus"),
        calibration=file("calibration"),
    )


def _engine(entry: Mapping[str, Any]) -> EngineSpec:
    return EngineSpec(entry.get("url", ""), tuple(entry.get("start", ())), entry.get("model", ""))


def _replaced(argument: str, words: Mapping[str, str]) -> str:
    for word, text in words.items():
        argument = argument.replace(word, text)
    return argument
