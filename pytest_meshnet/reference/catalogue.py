"""The catalogue of mutants, which must fail, and variants, which must pass.

A class decorated with `mutant` or `variant` breaks or bends the reference worker: it subclasses
Worker, Rules, or ModelWrapper. A function decorated with `suite_mutant` patches the suite's own
codec or schema in the process that runs the tests; one decorated with `testee_mutant` those of the
reference's codec testee, in its own process. Names are the Python names in kebab case.
"""

from __future__ import annotations

import importlib
import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from difflib import get_close_matches
from functools import cache
from typing import TYPE_CHECKING, Literal, TypeVar

from pytest_meshnet.protocol.machines.events import Outcome, ShardModel, Work
from pytest_meshnet.protocol.machines.rules import Rules
from pytest_meshnet.protocol.machines.session import ServedShard
from pytest_meshnet.protocol.machines.worker import Worker

if TYPE_CHECKING:
    from pytest_meshnet.runtime.descriptor import Descriptor, ShardSpec

Kind = Literal["mutant", "suite-mutant", "testee-mutant", "variant", "testee-variant", "control"]

_MODULES = (
    "pytest_meshnet.reference.mutants.wire",
    "pytest_meshnet.reference.mutants.codec",
    "pytest_meshnet.reference.mutants.testees",
    "pytest_meshnet.reference.mutants.opening",
    "pytest_meshnet.reference.mutants.prefill",
    "pytest_meshnet.reference.mutants.decode",
    "pytest_meshnet.reference.mutants.idempotency",
    "pytest_meshnet.reference.mutants.epochs",
    "pytest_meshnet.reference.mutants.reports",
    "pytest_meshnet.reference.mutants.lifetimes",
    "pytest_meshnet.reference.mutants.sturdiness",
    "pytest_meshnet.reference.mutants.statuses",
    "pytest_meshnet.reference.mutants.cancelling",
    "pytest_meshnet.reference.mutants.cancel_state",
    "pytest_meshnet.reference.mutants.signals",
    "pytest_meshnet.reference.mutants.stream_ends",
    "pytest_meshnet.reference.mutants.flow",
    "pytest_meshnet.reference.mutants.flow_limits",
    "pytest_meshnet.reference.mutants.caches",
    "pytest_meshnet.reference.mutants.cache_bounds",
    "pytest_meshnet.reference.mutants.sequences",
    "pytest_meshnet.reference.mutants.relayed",
    "pytest_meshnet.reference.mutants.bundles",
    "pytest_meshnet.reference.mutants.tails",
    "pytest_meshnet.reference.mutants.tails_sampling",
    "pytest_meshnet.reference.mutants.sidebands",
    "pytest_meshnet.reference.mutants.sidebands_refused",
    "pytest_meshnet.reference.mutants.sidebands_believed",
    "pytest_meshnet.reference.mutants.parity",
    "pytest_meshnet.reference.mutants.parity_controls",
    "pytest_meshnet.reference.granting",
    "pytest_meshnet.reference.variants",
    "pytest_meshnet.reference.variants_answers",
    "pytest_meshnet.reference.variants_limits",
    "pytest_meshnet.reference.variants_testee",
    "pytest_meshnet.reference.variants_negotiated",
)


class UnknownName(Exception):
    """No mutant and no variant has that name."""


class ModelWrapper:
    """A model that passes everything on; subclasses break `run`."""

    def __init__(self, model: ShardModel) -> None:
        self.model = model

    def run(self, work: Work) -> Outcome:
        """Compute as the wrapped model does."""
        return self.model.run(work)


Change = type[Worker] | type[Rules] | type[ModelWrapper] | Callable[[], None]
C = TypeVar("C", bound=Change)


@dataclass(frozen=True, slots=True)
class Entry:
    """One mutant or variant. `requirement` is what a mutant breaks, empty for a variant."""

    name: str
    kind: Kind
    requirement: str
    text: str
    change: Change


_ENTRIES: dict[str, Entry] = {}


def mutant(requirement: str) -> Callable[[C], C]:
    """Enter a runtime mutant that must fail the tests of `requirement`."""
    return lambda change: _enter("mutant", requirement, change)


def suite_mutant(requirement: str) -> Callable[[C], C]:
    """Enter a patch of the suite itself that must fail the self-checks of `requirement`."""
    return lambda change: _enter("suite-mutant", requirement, change)


def testee_mutant(requirement: str) -> Callable[[C], C]:
    """Enter a patch of the codec testee that must fail the tests of `requirement` on it."""
    return lambda change: _enter("testee-mutant", requirement, change)


def testee_variant(change: C) -> C:
    """Enter a patch of the codec testee that changes only what its contract leaves free."""
    return _enter("testee-variant", "", change)


def variant(change: C) -> C:
    """Enter an honest worker that differs from the reference in what the protocol leaves free."""
    return _enter("variant", "", change)


def control(change: C) -> C:
    """Enter a negative control of parity that only some models have: no run of mutants tries it."""
    return _enter("control", "", change)


_BETWEEN_WORDS = re.compile(r"_|(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")


def _enter(kind: Kind, requirement: str, change: C) -> C:
    name = _BETWEEN_WORDS.sub("-", change.__name__).lower()
    if name in _ENTRIES:
        raise ValueError(f"two entries of the catalogue are named {name}")
    if not change.__doc__:
        raise ValueError(f"{name} needs a docstring that says what it does")
    _ENTRIES[name] = Entry(name, kind, requirement, " ".join(change.__doc__.split()), change)
    return change


@cache
def entries() -> tuple[Entry, ...]:
    """Every mutant and variant, in the order of the groups."""
    for module in _MODULES:
        importlib.import_module(module)
    return tuple(_ENTRIES.values())


def entry(name: str) -> Entry:
    """The entry of that name. Raises UnknownName, with the names there are."""
    entries()
    if name not in _ENTRIES:
        near = get_close_matches(name, _ENTRIES, n=3)
        hint = f"did you mean {' or '.join(near)}?" if near else "see pytest-meshnet mutants --list"
        raise UnknownName(f"no mutant or variant is named {name!r}: {hint}")
    return _ENTRIES[name]


def build(name: str, served: ServedShard, model: ShardModel) -> tuple[Worker, ShardModel]:
    """The worker and model of an entry, or with an empty name of the reference itself.

    A mutant of the suite or of the testee leaves the Shard alone. Raises UnknownName.
    """
    change = entry(name).change if name else None
    if not isinstance(change, type):
        return Worker(served), model
    if issubclass(change, Worker):
        return change(served), model
    if issubclass(change, Rules):
        return Worker(served, change(served)), model
    if issubclass(change, ModelWrapper):
        return Worker(served), change(model)
    raise TypeError(f"{name} changes {change}, which is no Worker, Rules or ModelWrapper")


def build_small(
    name: str, descriptor: Descriptor, shard: ShardSpec | None = None
) -> tuple[Worker, ShardModel]:
    """The entry on a small model, serving what `descriptor` says, for runs in process.

    `shard` is one of its Shards, by default the first. A model with shared indices is the small one
    of that kind.
    """
    from pytest_meshnet.reference.index_share import SMALL_INDEX_SHARE
    from pytest_meshnet.reference.seeded_weights import SMALL
    from pytest_meshnet.reference.tiny_llama import TinyLlama, served_shard

    shard = shard or descriptor.shards[0]
    facts = shard.model or descriptor.model
    assert facts is not None, "the reference's descriptors describe their models"
    dtype = facts.boundary_dtypes[0]
    config = SMALL_INDEX_SHARE if facts.index_share else SMALL
    served = served_shard(config, shard.start_layer, shard.end_layer, dtype)
    served = replace(served, max_sessions=3, max_context=256)
    return build(name, served, TinyLlama(config, shard.start_layer, shard.end_layer, dtype))


def apply_suite_mutant(name: str) -> None:
    """Patch this process when `name` is a suite mutant; do nothing for any other entry."""
    _apply(name, ("suite-mutant",))


def apply_to_testee(name: str) -> None:
    """Patch this process when `name` is a mutant or variant of the testee, and else do nothing."""
    _apply(name, ("testee-mutant", "testee-variant"))


def _apply(name: str, kinds: tuple[Kind, ...]) -> None:
    found = entry(name)
    if found.kind in kinds and not isinstance(found.change, type):
        found.change()
