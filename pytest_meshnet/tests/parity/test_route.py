"""Routes in one process: the whole model's bits at every cut, and a loss that is survived."""

from dataclasses import replace

import pytest

from pytest_meshnet.parity.metrics import compare
from pytest_meshnet.protocol.tensors import DType
from pytest_meshnet.reference.models import BUILT_IN, built_in
from pytest_meshnet.reference.variants_limits import EvictsTheOldest
from pytest_meshnet.runtime.errors import Nonconformance
from pytest_meshnet.runtime.route import MAX_EPOCHS, Route
from pytest_meshnet.runtime.route_session import RouteLost
from pytest_meshnet.tests.parity.samples import prompt_of, route_here

COUNT = 32


@pytest.mark.parametrize(
    ("model", "cut"),
    [(name, cut) for name in ("tiny-llama", "tiny-index-share") for cut in range(1, 8)],
)
def test_every_cut_gives_the_whole_models_bits(model, cut):
    prompt = prompt_of(model, 21)
    found = compare(route_here(model, [cut]).generate(prompt, COUNT), _whole(model, prompt))
    assert found.identical, f"largest error {found.max_error:.3g} at cut {cut}"
    assert min(found.state_cosines[cut]) == pytest.approx(1.0)


@pytest.mark.parametrize("cuts", [[1, 2], [3, 5], [1, 4, 7]])
@pytest.mark.parametrize("chunk", [1, 7, 128])
def test_more_shards_and_other_chunks_change_no_bit(cuts, chunk):
    prompt = prompt_of("tiny-llama-small", 23)
    small = [cut for cut in cuts if cut < BUILT_IN["tiny-llama-small"].layers]
    route = route_here("tiny-llama-small", small)
    found = compare(
        route.generate(prompt, 8, chunk_tokens=chunk), _whole("tiny-llama-small", prompt, 8)
    )
    assert found.identical


def test_four_sessions_at_once_each_keep_their_bits():
    prompts = [prompt_of("tiny-llama-small", 5 + number, number) for number in range(4)]
    made = route_here("tiny-llama-small", [2]).generate_together(prompts, 8)
    for prompt, one in zip(prompts, made, strict=True):
        assert compare(one, _whole("tiny-llama-small", prompt, 8)).identical


def test_a_state_that_was_dropped_for_others_is_made_again_when_they_have_ended():
    prompts = [prompt_of("tiny-llama-small", 5 + number, number) for number in range(4)]
    route = route_here("tiny-llama-small", [2], mutant="evicts-the-oldest")
    made = route.generate_together(prompts, 8)
    for prompt, one in zip(prompts, made, strict=True):
        assert compare(one, _whole("tiny-llama-small", prompt, 8)).identical
    assert [one.epochs for one in made] == [2, 2, 1, 1]


@pytest.mark.parametrize(
    ("sessions", "finding"), [(2, "CACHE_MISS"), (4, "at least 2 sessions keep their state")]
)
def test_two_sessions_keep_their_states_whatever_is_dropped(monkeypatch, sessions, finding):
    monkeypatch.setattr(EvictsTheOldest, "KEPT", 1)
    route = route_here("tiny-llama-small", [2], mutant="evicts-the-oldest")
    with pytest.raises(Nonconformance, match=finding):
        route.generate_together([prompt_of("tiny-llama-small", 5)] * sessions, 8)


def test_work_is_counted_for_every_shard():
    made = route_here("tiny-llama-small", [1, 3]).generate(prompt_of("tiny-llama-small", 9), 5)
    assert [(one.start_layer, one.end_layer) for one in made.work] == [(0, 1), (1, 3), (3, 4)]
    assert [one.units for one in made.work] == [5, 5, 5]
    assert all(one.least_nanos > 0 and one.unchanged == 0 for one in made.work)


def test_results_with_the_bytes_of_their_input_are_counted():
    route = route_here("tiny-llama-small", [1, 3], DType.BFLOAT16, "passes-its-input-on")
    made = route.generate(prompt_of("tiny-llama-small", 9), 5)
    assert [one.unchanged for one in made.work] == [0, 5, 0]


def test_a_lost_stream_begins_again_at_a_higher_epoch_and_gives_the_same():
    route, prompt = route_here("tiny-llama-small", [2]), prompt_of("tiny-llama-small", 9)
    _lose(route, after=7)
    found = route.generate(prompt, 12)
    assert found.epochs == 2
    assert compare(found, _whole("tiny-llama-small", prompt, 12)).identical


def test_a_route_that_is_lost_again_and_again_is_given_up():
    route = route_here("tiny-llama-small", [2])
    _lose(route, after=0)
    with pytest.raises(RouteLost):
        route.generate(prompt_of("tiny-llama-small", 9), 12)
    assert _opened(route) == MAX_EPOCHS


def test_a_refusal_is_a_finding_and_no_loss():
    route = route_here("tiny-llama-small", [2]).altered(
        lambda place, seam: tuple(replace(one, dtype=DType.INT32) for one in seam)
    )
    with pytest.raises(Nonconformance, match="applied"):
        route.generate(prompt_of("tiny-llama-small", 9), 4)
    assert len(route.shards[0].trace.text().split("accepted")) - 1 == 1, "opened once"


def _whole(model, prompt, count=COUNT):
    return built_in(model).whole().generate(prompt, count)


class _Losing:
    """A transport whose streams are lost after some requests, the first time or always."""

    def __init__(self, inner, after):
        self._inner, self._after, self.opened = inner, after, 0

    def __getattr__(self, name):
        return getattr(self._inner, name)

    def open_stream(self):
        stream = self._inner.open_stream()
        self.opened += 1
        if self.opened == 1 or self._after == 0:
            send, left = stream.send, [self._after + 1]

            def losing(message):
                send(message)
                left[0] -= 1
                if left[0] < 0:
                    stream.drop()

            stream.send = losing
        return stream


def _lose(route: Route, after: int) -> None:
    tail = route.targets[-1]
    tail._transport = _Losing(tail.transport, after)


def _opened(route: Route) -> int:
    return route.targets[-1].transport.opened
