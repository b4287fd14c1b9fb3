"""A parity run that could examine too little did not run, and what is not finite never holds."""

from dataclasses import replace

import numpy as np
import pytest

from acceptance.parity import test_lanes as lanes
from acceptance.parity import test_sweeps as sweeps
from pytest_meshnet.protocol.machines.worker import Worker
from pytest_meshnet.protocol.tensors import DType
from pytest_meshnet.reference.catalogue import ModelWrapper
from pytest_meshnet.reference.models import BUILT_IN
from pytest_meshnet.runtime.descriptor import load
from pytest_meshnet.runtime.errors import Nonconformance, NotProvoked
from pytest_meshnet.runtime.in_process import InProcessTransport
from pytest_meshnet.suite.parity import open_bench

SMALL = "tiny-llama-small"


@pytest.fixture
def bench_of():
    """Make a bench of one cut whose Shards report other limits, or compute in another way."""
    benches = []

    def bench_of(change=ModelWrapper, cuts=((2,),), dtypes=(DType.FLOAT32,), **limits):
        def make(start, end, dtype, control):
            def made():
                served, model = BUILT_IN[SMALL].shard(start, end, dtype)
                return InProcessTransport(Worker(replace(served, **limits)), change(model))

            return made

        descriptor = load("reference", small=True)
        route = replace(descriptor.route, cuts=cuts, dtypes=dtypes)
        oracle = replace(descriptor.oracle, calibration=None)
        described = replace(descriptor, route=route, oracle=oracle)
        benches.append(open_bench(described, 1, in_process=make))
        return benches[-1]

    yield bench_of
    for one in benches:
        one.close()


@pytest.mark.parametrize(("places", "examined"), [(2, {1, 2}), (3, {1, 2}), (4, {1, 2, 4})])
def test_what_two_sessions_at_once_show_is_examined(bench_of, places, examined):
    bench = bench_of(max_sessions=places)
    sweeps.test_tokens_hold_for_one_two_and_four_sessions_at_once(bench)
    assert set(bench.exact_records()[0].together) == examined


def test_a_route_of_one_place_shows_nothing_of_two_sessions(bench_of):
    with pytest.raises(NotProvoked, match="takes no 2 sessions at once"):
        sweeps.test_tokens_hold_for_one_two_and_four_sessions_at_once(bench_of(max_sessions=1))


def test_a_route_that_reports_no_place_shows_nothing_either(bench_of):
    bench = bench_of()
    record = replace(bench.exact_records()[0], together={})
    bench._records = dict.fromkeys(bench._records, record)
    with pytest.raises(NotProvoked, match="takes no 2 sessions at once"):
        sweeps.test_tokens_hold_for_one_two_and_four_sessions_at_once(bench)


def test_prompts_that_do_not_fit_are_counted(bench_of):
    (record,) = bench_of(max_context=48).exact_records()
    assert (len(record.whole), record.corpus) == (3, 5)


@pytest.mark.parametrize(("context", "left"), [(40, 2), (36, 1), (20, 0)])
def test_a_context_that_leaves_too_few_prompts_examines_nothing(bench_of, context, left):
    with pytest.raises(NotProvoked, match=rf"{left} prompt\(s\) of at most .* at least 3"):
        bench_of(max_context=context).exact_records()


def test_without_a_cut_there_is_nothing_to_examine(bench_of):
    bench = bench_of(cuts=())
    with pytest.raises(NotProvoked, match="no route to examine"):
        lanes.test_chunks_alike_give_the_oracles_bits(bench)


class Infinite(ModelWrapper):
    """Gives one logit of every row that is not finite and changes no token."""

    def run(self, work):
        outcome = super().run(work)
        return replace(outcome, tensors=tuple(map(self.spoilt, outcome.tensors)))

    def spoilt(self, tensor):
        if tensor.name != "logits":
            return tensor
        logits = tensor.to_float32().copy()
        logits[..., logits[0, 0].argmin()] = -np.inf
        return type(tensor).from_float32("logits", logits, tensor.dtype)


@pytest.mark.parametrize("dtype", [DType.FLOAT32, DType.BFLOAT16])
def test_scores_that_are_not_finite_are_no_fresh_start(bench_of, dtype):
    bench = bench_of(Infinite, dtypes=(dtype,))
    with pytest.raises(Nonconformance, match="scores are not finite"):
        sweeps.test_parity_holds_right_after_a_start_and_again_after_a_hundred_sessions(bench)


class InfiniteInTheEnd(Infinite):
    """Does so once many sessions were served."""

    def __init__(self, model):
        super().__init__(model)
        self.sessions = set()

    def run(self, work):
        self.sessions.add(work.session)
        return super().run(work)

    def spoilt(self, tensor):
        return super().spoilt(tensor) if len(self.sessions) > 90 else tensor


def test_scores_that_are_not_finite_in_the_end_are_found(bench_of):
    with pytest.raises(Nonconformance, match="largest logit error inf after 100 sessions"):
        sweeps.test_parity_holds_right_after_a_start_and_again_after_a_hundred_sessions(
            bench_of(InfiniteInTheEnd)
        )
