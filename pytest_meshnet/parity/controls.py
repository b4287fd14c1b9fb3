"""Negative controls: routes that are wrong in one known way, which the lanes must find.

Some are made from outside, by what is put in which order or by what is done to a tensor on its way;
the others are in the Shards, which are started with them. A parity run that cannot find them says
nothing by finding nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from pytest_meshnet.protocol.tensors import DType, Tensor
from pytest_meshnet.runtime.errors import Refusal
from pytest_meshnet.runtime.model_facts import ModelFacts
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

    `ranges` arranges the Shards of a model, None where its layers are too few. `alter`
    makes what is done at the seams. `inside` says that Shards are started with the control,
    `float32_only` that it does nothing where the boundary is as narrow as the control makes it.
    """

    name: str
    text: str
    ranges: Callable[[ModelFacts], Ranges | None]
    alter: Callable[[], Alteration] = lambda: unaltered
    inside: bool = False
    needs_sideband: bool = False
    float32_only: bool = False


def _halves(model: ModelFacts) -> Ranges | None:
    layers = model.layers or 0
    return ranges_of([layers // 2], layers) if layers >= 2 else None


def _one_skipped(model: ModelFacts) -> Ranges | None:
    layers = model.layers or 0
    middle = layers // 2
    return ((0, middle), (middle + 1, layers)) if layers >= 3 else None


def _one_twice(model: ModelFacts) -> Ranges | None:
    layers = model.layers or 0
    middle = layers // 2
    return ((0, middle + 1), (middle, layers)) if layers >= 2 else None


def _swapped(model: ModelFacts) -> Ranges | None:
    layers = model.layers or 0
    if layers < 4:
        return None
    head, *middle, tail = ranges_of([layers // 4, layers // 2, layers - layers // 4], layers)
    return (head, *reversed(middle), tail)


def _split_group(model: ModelFacts) -> Ranges | None:
    """Cut before a Shared layer, the one nearest to the middle, so that indices cross the seam.

    Raises Refusal where nobody says which layers share.
    """
    share = model.index_share
    if share is None:
        raise Refusal(
            "a control of the sideband is offered, but which layers share indices is not said: "
            "give model.index_share"
        )
    layers = len(share.roles)
    splits = [layer for layer in range(1, layers) if share.across(layer) is not None]
    if not splits:
        return None
    return ranges_of([min(splits, key=lambda layer: abs(layer - layers // 2))], layers)


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
"""All of them."""


def applicable(maker: RouteMaker) -> Iterator[Control]:
    """Yield the controls that can be made of a descriptor's route.

    One from outside needs a start command, so that Shards of any range can be had; one from inside
    needs to be offered by name; one of the sideband needs a model that has it. Raises Refusal for
    one of the sideband that is offered for a model of unknown roles.
    """
    spec = maker.spec
    for one in CONTROLS:
        wanted = one.name in spec.controls if one.inside or one.needs_sideband else True
        if spec.start and wanted and one.ranges(maker.model) is not None:
            yield one


def plan_of(maker: RouteMaker, chosen: Control, dtype: DType) -> RoutePlan:
    """The Shards of a route with the control at work, in a boundary dtype. Raises Refusal."""
    ranges = chosen.ranges(maker.model)
    if ranges is None:
        raise Refusal(f"{maker.descriptor.name} has too few layers for {chosen.name}")
    return RoutePlan(ranges, dtype, chosen.name if chosen.inside else "")


def controlled(maker: RouteMaker, chosen: Control, dtype: DType) -> Route:
    """Return a route with the control at work, in the boundary dtype `dtype`. Raises Refusal."""
    return maker.make(plan_of(maker, chosen, dtype)).altered(chosen.alter())
