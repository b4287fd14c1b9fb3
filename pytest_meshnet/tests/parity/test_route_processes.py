"""Routes of real processes: the same bits over TCP, and a Shard that is killed on the way."""

from itertools import pairwise

import pytest

from pytest_meshnet.parity.metrics import compare
from pytest_meshnet.protocol.tensors import DType
from pytest_meshnet.reference.models import built_in
from pytest_meshnet.runtime.descriptor import load
from pytest_meshnet.runtime.generation import greedy
from pytest_meshnet.runtime.route_making import MOST_ROUTES, RouteMaker, RoutePlan
from pytest_meshnet.tests.parity.samples import prompt_of

SMALL = "tiny-llama-small"


@pytest.fixture(scope="module")
def maker():
    made = RouteMaker(load("reference", small=True))
    yield made
    made.close()


def plan(*edges):
    return RoutePlan(tuple(pairwise(edges)), DType.FLOAT32)


def test_a_killed_shard_is_started_again_and_the_tokens_are_the_same(maker):
    route, prompt = maker.make(plan(0, 2, 4)), prompt_of(SMALL, 9)
    killed = []

    def choose(scores, position):
        if position == len(prompt) + 3 and not killed:
            killed.append(route.targets[-1].pid)
            route.targets[-1].kill()
        return greedy(scores, position)

    found = route.generate(prompt, 8, choose=choose)
    assert found.epochs == 2
    assert route.targets[-1].pid not in (None, *killed)
    assert compare(found, built_in(SMALL).whole().generate(prompt, 8)).identical


def test_no_more_routes_run_than_are_needed(maker):
    plans = [plan(0, 1, 4), plan(0, 3, 4), plan(0, 2, 4)]
    routes = [maker.make(one) for one in plans]
    assert maker.make(plans[-1]) is routes[-1], "the newest is kept"
    running = [one for one in routes if all(target.pid for target in one.targets)]
    assert len(running) == MOST_ROUTES


def test_a_prepared_route_loads_while_another_is_driven(maker):
    now, following = plan(0, 2, 4), plan(0, 1, 4)
    maker.close()
    maker.prepare(following)
    loading = maker._loading[following]
    route = maker.make(now)
    route.generate(prompt_of(SMALL, 5), 2)
    assert maker.make(following).targets == tuple(loading), "it is the one that was started"
    assert maker.make(now) is route, "both are kept"


def test_what_was_prepared_in_vain_makes_room_and_ends(maker):
    maker.close()
    for edges in ((0, 1, 4), (0, 2, 4), (0, 3, 4)):
        maker.prepare(plan(*edges))
    assert list(maker._loading) == [plan(0, 2, 4), plan(0, 3, 4)]
    started = [target._ahead for targets in maker._loading.values() for target in targets]
    maker.close()
    assert all(one.exit_code is not None for one in started)
