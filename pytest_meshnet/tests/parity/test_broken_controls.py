"""A control is found by numbers or by a coded refusal: one that merely breaks proves nothing."""

from dataclasses import replace

import pytest

from acceptance.parity import test_sensitivity as sensitivity
from pytest_meshnet.parity import calibrating
from pytest_meshnet.parity.calibration import NoSeparation, Subject
from pytest_meshnet.parity.controls import ControlBroken, applicable
from pytest_meshnet.protocol.generated import shard_runtime_pb2 as pb
from pytest_meshnet.protocol.machines.rules import Rules
from pytest_meshnet.protocol.machines.session import Refused
from pytest_meshnet.protocol.machines.worker import Worker
from pytest_meshnet.protocol.tensors import DType
from pytest_meshnet.reference.catalogue import ModelWrapper, build
from pytest_meshnet.reference.models import BUILT_IN
from pytest_meshnet.runtime.descriptor import load
from pytest_meshnet.runtime.errors import Nonconformance
from pytest_meshnet.runtime.in_process import InProcessTransport
from pytest_meshnet.suite.parity import open_bench

SMALL = "tiny-llama-small"
SHIFTED = "decode-shifted-by-one"
ABOUT = Subject(SMALL, "0" * 64, "bfloat16", "1" * 64)


def refusing(code):
    """Refuse every unit with a code."""

    class Refusing(Rules):
        def check_unit(self, session, unit):
            raise Refused(code, "not this one")

    return lambda served, model: (Worker(served, Refusing(served)), model)


def computing(change):
    """Compute in another way."""
    return lambda served, model: (Worker(served), change(model))


class Mangling(ModelWrapper):
    """Gives results under another name."""

    def run(self, work):
        outcome = super().run(work)
        return replace(
            outcome, tensors=tuple(replace(one, name="states") for one in outcome.tensors)
        )


class Losing(InProcessTransport):
    """Loses its streams when they are used."""

    def open_stream(self):
        stream = super().open_stream()
        stream.drop()
        return stream


def made_of(broken, transport=InProcessTransport):
    """Make Shards that break in their own way where the control is asked for."""

    def make(start, end, dtype, control):
        def made():
            served, model = BUILT_IN[SMALL].shard(start, end, dtype)
            if control == SHIFTED:
                return transport(*broken(served, model))
            return InProcessTransport(*build(control, served, model))

        return made

    return make


@pytest.fixture
def bench_of():
    benches = []

    def bench_of(broken, transport=InProcessTransport):
        descriptor = load("reference", small=True)
        route = replace(descriptor.route, cuts=((2,),))
        benches.append(
            open_bench(replace(descriptor, route=route), 1, in_process=made_of(broken, transport))
        )
        return benches[-1]

    yield bench_of
    for one in benches:
        one.close()


BROKEN = {
    "an internal error": (refusing(pb.ERROR_CODE_INTERNAL), InProcessTransport),
    "out of time": (refusing(pb.ERROR_CODE_DEADLINE_EXCEEDED), InProcessTransport),
    "out of room": (refusing(pb.ERROR_CODE_RESOURCE_EXHAUSTED), InProcessTransport),
    "no result": (computing(Mangling), InProcessTransport),
    "a lost stream": (computing(ModelWrapper), Losing),
}


def shifted(bench):
    return next(one for one in applicable(bench.seam) if one.name == SHIFTED)


@pytest.mark.parametrize(("broken", "transport"), BROKEN.values(), ids=BROKEN)
def test_a_control_that_merely_breaks_is_not_found(bench_of, broken, transport):
    bench = bench_of(broken, transport)
    with pytest.raises(ControlBroken, match=f"{SHIFTED} broke, which is no finding"):
        bench.controlled(shifted(bench), DType.BFLOAT16, 1)
    with pytest.raises(Nonconformance, match=f"{SHIFTED} broke"):
        sensitivity.test_every_negative_control_exceeds_the_bound_that_honest_routes_keep(bench)
    with pytest.raises(NoSeparation, match=f"{SHIFTED} broke"):
        calibrating.measure(bench, ABOUT)


def test_a_control_that_is_refused_with_a_code_is_found(bench_of):
    bench = bench_of(refusing(pb.ERROR_CODE_PAYLOAD_CORRUPT))
    assert bench.controlled(shifted(bench), DType.BFLOAT16, 1) is None
    sensitivity.test_every_negative_control_exceeds_the_bound_that_honest_routes_keep(bench)


def test_a_control_without_effect_separates_from_nothing(bench_of):
    bench = bench_of(computing(ModelWrapper))
    with pytest.raises(NoSeparation, match=f"{SHIFTED} only"):
        calibrating.measure(bench, ABOUT)
    with pytest.raises(Nonconformance, match=rf"{SHIFTED} .* keeps the bound of .* in bfloat16"):
        sensitivity.test_every_negative_control_exceeds_the_bound_that_honest_routes_keep(bench)


class Slightly(ModelWrapper):
    """Errs by more than the float32 lane allows, and by less than the calibrated bound."""

    def run(self, work):
        outcome = super().run(work)
        if outcome.tensors and outcome.tensors[0].name == "logits":
            logits = outcome.tensors[0]
            moved = type(logits).from_float32("logits", logits.to_float32() + 0.01, logits.dtype)
            return replace(outcome, tensors=(moved,))
        return outcome


def test_a_control_is_held_to_the_bound_of_the_honest_routes_and_no_closer_one(bench_of):
    bench = bench_of(computing(Slightly))
    errors = bench.controlled(shifted(bench), DType.FLOAT32, 1)
    assert 1e-3 < max(one.max_error for one in errors.values()) < bench.calibration.bound
    with pytest.raises(Nonconformance, match="keeps the bound"):
        sensitivity.test_every_negative_control_exceeds_the_bound_that_honest_routes_keep(bench)
