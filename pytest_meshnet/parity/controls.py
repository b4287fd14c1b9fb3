"""Negative controls: routes that are wrong in one known way, which the lanes must find.

Some are made from outside, by what is put in which order or by what is done to a tensor on its way;
the others are in the Shards, which are started with them. A parity run that cannot find them says
nothing by finding nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from pytest_meshnet.protocol.tensors import DType, Tensor
from pytest_meshnet.runtime.errors import Refusal
from pytest_meshnet.runtime.route import Route, unaltered
from pytest_meshnet.runtime.route_making import RouteMaker, RoutePlan
from pytest_meshnet.runtime.route_session import Alteration, Seam
from pytest_meshnet.runtime.route_spec import Ranges, ranges_of

SIDEBAND = "topk_indices"


class ControlBroken(Exception):
    """A route with a control crashed, hung or said nonsense, so that there is nothing to judge."""


@dataclass(frozen=True, slots=True)
class Control:
    """One way to be wrong, which the lane that honest routes keep must find.

    `ranges` arranges the Shards of a model of that many layers, None where it has too few. `alter`
    makes what is done at the seams. `inside` says that Shards are started with the control,
    `float32_only` that it does nothing where the boundary is as narrow as the control makes it.
    """

    name: str
    text: str
    ranges: Callable[[int], Ranges | None]
    alter: Callable[[], Alteration] = lambda: unaltered
    inside: bool = False
    needs_sideband: bool = False
    float32_only: bool = False


def _halves(layers: int) -> Ranges | None:
    return ranges_of([layers // 2], layers) if layers >= 2 else None


def _one_skipped(layers: int) -> Ranges | None:
    middle = layers // 2
    return ((0, middle), (middle + 1, layers)) if layers >= 3 else None


def _one_twice(layers: int) -> Ranges | None:
    middle = layers // 2
    return ((0, middle + 1), (middle, layers)) if layers >= 2 else None


def _swapped(layers: int) -> Ranges | None:
    if layers < 4:
        return None
    head, *middle, tail = ranges_of([layers // 4, layers // 2, layers - layers // 4], layers)
    return (head, *reversed(middle), tail)


def _split_group(layers: int) -> Ranges | None:
    """Cut where a Shared layer follows, so that indices cross the seam."""
    return ((0, 4), (4, layers)) if layers >= 6 else None


def rounded_to_bfloat16(place: int, seam: Seam) -> Seam:
    """Round float32 hidden states to bfloat16 on the way, and say nothing."""
    del place
    return tuple(_rounded(one) if one.dtype is DType.FLOAT32 else one for one in seam)


def _rounded(tensor: Tensor) -> Tensor:
    narrow = Tensor.from_float32(tensor.name, tensor.to_float32(), DType.BFLOAT16)
    return Tensor.from_float32(tensor.name, narrow.to_float32(), tensor.dtype)


def stale_sideband() -> Alteration:
    """Pass on the indices that the step before had, where they have the shape of this step's."""
    last: dict[int, Tensor] = {}

    def alter(place: int, seam: Seam) -> Seam:
        indices = next((one for one in seam if one.name == SIDEBAND), None)
        if indices is None:
            return seam
        before, last[place] = last.get(place), indices
        if before is None or before.shape != indices.shape:
            return seam
        return tuple(before if one is indices else one for one in seam)

    return alter


CONTROLS = (
    Control("one-layer-skipped", "A layer runs on no Shard.", _one_skipped),
    Control("one-layer-twice", "A layer runs on two Shards.", _one_twice),
    Control("shards-swapped", "Two Shards change places.", _swapped),
    Control(
        "sideband-of-another-step",
        "The indices of the step before travel with this step's states.",
        _split_group,
        stale_sideband,
        needs_sideband=True,
    ),
    Control(
        "one-expert-dropped",
        "One expert of one layer gives nothing.",
        _halves,
        inside=True,
    ),
    Control(
        "decode-shifted-by-one",
        "Decode steps are rotated one position too far, against the prefill.",
        _halves,
        inside=True,
    ),
    Control(
        "kv-of-another-session",
        "One layer attends to the keys and values of another session.",
        _halves,
        inside=True,
    ),
    Control(
        "boundary-rounded",
        "The float32 lane's states are rounded to bfloat16 on the way.",
        _halves,
        lambda: rounded_to_bfloat16,
        float32_only=True,
    ),
    Control(
        "final-norm-at-the-seam",
        "The final norm is applied where the model is cut.",
        _halves,
        inside=True,
    ),
)
"""All of them. Those found on the float32 lane only are found by the error, not by the tokens."""


def control(name: str) -> Control:
    """Return a control by name. Raises Refusal."""
    for one in CONTROLS:
        if one.name == name:
            return one
    known = ", ".join(one.name for one in CONTROLS)
    raise Refusal(f"no negative control is named {name!r}: known are {known}")


def applicable(maker: RouteMaker) -> Iterator[Control]:
    """Yield the controls that can be made of a descriptor's route.

    One from outside needs a start command, so that Shards of any range can be had; one from inside
    needs to be offered by name; one of the sideband needs a model that has it.
    """
    spec, layers = maker.spec, maker.layers
    for one in CONTROLS:
        offered = one.name in spec.controls
        possible = bool(spec.start) and one.ranges(layers) is not None
        if possible and (offered if one.inside or one.needs_sideband else True):
            yield one


def controlled(maker: RouteMaker, chosen: Control, dtype: DType) -> Route:
    """Return a route with the control at work, in the boundary dtype `dtype`. Raises Refusal."""
    ranges = chosen.ranges(maker.layers)
    if ranges is None:
        raise Refusal(f"{maker.descriptor.name} has too few layers for {chosen.name}")
    plan = RoutePlan(ranges, dtype, chosen.name if chosen.inside else "")
    return maker.make(plan).altered(chosen.alter())


def names(found: Sequence[Control]) -> str:
    """The names of some controls, for a message."""
    return ", ".join(one.name for one in found) or "none"
