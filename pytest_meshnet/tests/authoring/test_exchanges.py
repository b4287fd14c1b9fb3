"""The canonical exchanges: the reference and its variants answer as written, mutants do not."""

from __future__ import annotations

from dataclasses import replace

import pytest

from pytest_meshnet.authoring.exchange.canonical import exchanges
from pytest_meshnet.authoring.exchange.playing import DoesNotFit, play
from pytest_meshnet.ledger.applicability import unmet
from pytest_meshnet.ledger.requirements import Ledger
from pytest_meshnet.reference.catalogue import build_small, entries
from pytest_meshnet.runtime.descriptor import load
from pytest_meshnet.runtime.errors import Nonconformance
from pytest_meshnet.runtime.in_process import InProcessTransport
from pytest_meshnet.runtime.shard import ShardUnderTest
from pytest_meshnet.runtime.target import Target

SMALL = load("reference", small=True)
LEDGER = Ledger.load()

WITHOUT_BITE = {
    "CANCEL-03": "how many were cancelled is a race in one exchange",
    "CANCEL-06": "which of two legal outcomes came is a race in one exchange",
    "CANCEL-08": "what is freed shows in Health, after a time",
    "FLOW-06": "the worker's own ceiling shows only beyond the client's",
    "HEALTH-04": "it takes every place to see the last one missing",
    "KV-04": "a batch takes sessions that are computed together",
}
"""Exchanges that show a requirement and that none of its mutants answers otherwise."""


def outcome(script, name=""):
    """None when a worker answers as written or is excused, else the finding."""
    transport = InProcessTransport(*build_small(name, SMALL))
    target = Target(SMALL, SMALL.shards[0], in_process=lambda: transport)
    target.connect()
    try:
        play(script, ShardUnderTest(target, "x", 20260101))
    except Nonconformance as finding:
        return finding
    return None


@pytest.mark.parametrize("name", exchanges())
def test_the_reference_answers_every_exchange_as_it_is_written(name):
    assert LEDGER.get(name).subject == "runtime"
    assert outcome(exchanges()[name]) is None


@pytest.mark.parametrize("name", sorted(exchanges().keys() - WITHOUT_BITE))
def test_an_exchange_shows_what_a_mutant_of_its_requirement_does_wrong(name):
    mutants = [one.name for one in entries() if one.requirement == name]
    caught = [mutant for mutant in mutants if outcome(exchanges()[name], mutant) is not None]
    # A SHOULD need not have a mutant.
    assert caught or (LEDGER.get(name).level != "MUST" and not mutants), mutants


def test_the_list_of_exchanges_without_bite_is_not_longer_than_it_must_be():
    assert WITHOUT_BITE.keys() <= exchanges().keys()
    for name in WITHOUT_BITE:
        mutants = [one.name for one in entries() if one.requirement == name]
        assert all(outcome(exchanges()[name], mutant) is None for mutant in mutants), name


@pytest.mark.parametrize("name", [one.name for one in entries() if one.kind == "variant"])
def test_an_honest_variant_answers_every_exchange_that_fits_it(name):
    fits = 0
    transport = InProcessTransport(*build_small(name, SMALL))
    target = Target(SMALL, SMALL.shards[0], in_process=lambda: transport)
    target.connect()
    for requirement, script in exchanges().items():
        if unmet(LEDGER.get(requirement).needs, target.facts()) is not None:
            continue
        try:
            assert outcome(script, name) is None, requirement
        except DoesNotFit:
            continue
        fits += 1
    assert fits >= 15


@pytest.mark.parametrize("layers", [(0, 2), (2, 4), (0, 4)], ids=["head", "tail", "whole"])
def test_an_honest_shard_at_any_place_answers_every_exchange_that_fits_it(layers):
    spec = replace(SMALL.shards[0], start_layer=layers[0], end_layer=layers[1])
    descriptor = replace(SMALL, shards=(spec,))
    unfit = set()
    for requirement, script in exchanges().items():
        transport = InProcessTransport(*build_small("", descriptor))
        target = Target(descriptor, spec, in_process=lambda transport=transport: transport)
        target.connect()
        if unmet(LEDGER.get(requirement).needs, target.facts()) is not None:
            unfit.add(requirement)
            continue
        try:
            play(script, ShardUnderTest(target, "x", 20260101))
        except DoesNotFit:
            unfit.add(requirement)
    assert unfit == ({"PREFILL-10"} if layers[0] == 0 else set()) | (
        {"PREFILL-02"} if layers[1] == 4 else set()
    )


def test_an_exchange_that_is_too_long_for_a_shard_says_so_and_judges_nothing():
    with pytest.raises(DoesNotFit, match="it sends 3 tokens in a chunk, the Shard allows 1"):
        outcome(exchanges()["CANCEL-01"], "one-token-chunks")
