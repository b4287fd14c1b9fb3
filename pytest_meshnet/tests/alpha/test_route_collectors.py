"""What is measured on a route shows what is wrong with it."""

from __future__ import annotations

import math
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from pytest_meshnet import layout
from pytest_meshnet.alpha.collectors import route as collectors
from pytest_meshnet.parity.metrics import Comparison, Share
from pytest_meshnet.protocol.tensors import DType
from pytest_meshnet.runtime.descriptor import load
from pytest_meshnet.runtime.generation import Generation
from pytest_meshnet.runtime.ports import free_port
from pytest_meshnet.runtime.route import Route, side_by_side
from pytest_meshnet.runtime.route_making import RoutePlan
from pytest_meshnet.runtime.route_session import RouteSession
from pytest_meshnet.suite.parity import in_process_shards, open_bench

SAME = Comparison(
    before=Share(32, 32),
    after=Share(0, 0),
    divergence=None,
    logit_cosines=(1.0, 0.5),
    errors=(0.0,),
    relative_errors=(0.0,),
    identical=True,
    state_cosines={2: (1.0, 1.0)},
    argmax_first=True,
    top5_first=True,
    first_log_prob_error=0.0,
    margin=None,
)
ONE_OFF = replace(SAME, before=Share(30, 30), after=Share(1, 2), divergence=30)


def values(claims: Any) -> dict[str, Any]:
    return {name: one["value"] for name, one in claims.items()}


def test_the_exact_seam_is_as_good_as_its_worst_generation() -> None:
    found = values(collectors.exact_seam([SAME, ONE_OFF, SAME]))
    assert found == {"tokens_compared": 32, "tokens_equal": 31}


def test_the_production_seam_counts_tokens_cosines_and_what_is_not_finite() -> None:
    scores = np.zeros((2, 3), np.float32)
    broken = scores.copy()
    broken[1, 1] = np.nan
    made = [
        Generation((1,), (2, 3), scores, states={2: scores}),
        Generation((1,), (2, 3), broken, states={2: scores}),
    ]
    found = values(collectors.production_seam([SAME, ONE_OFF], made))
    assert found["greedy_token_agreement"] == pytest.approx(63 / 64)
    assert found["mean_cosine_similarity"] == pytest.approx(7 / 8)
    assert (found["tensors_checked"], found["nonfinite_tensors"]) == (4, 1)


@pytest.mark.parametrize("cosine", [math.nan, math.inf])
def test_a_cosine_that_is_not_finite_is_no_similarity_of_one(cosine: float) -> None:
    made = [Generation((1,), (2, 3), np.zeros((2, 3), np.float32))]
    spoilt = replace(SAME, logit_cosines=(1.0, cosine))
    assert "mean_cosine_similarity" not in collectors.production_seam([SAME, spoilt], made)


def test_seams_of_which_no_cosine_is_known_are_not_alike() -> None:
    silent = replace(SAME, logit_cosines=(), state_cosines={})
    assert "mean_cosine_similarity" not in collectors.production_seam([silent], [])


@pytest.fixture
def route() -> Iterator[Route]:
    """The tiny route in this process."""
    path = layout.folder("fixtures") / "targets" / "parity-index-share.toml"
    descriptor = load(str(path))
    bench = open_bench(descriptor, seed=1, in_process=in_process_shards(descriptor, ""))
    yield bench.route(RoutePlan(((0, 2), (2, 8)), DType.FLOAT32))
    bench.close()


def test_a_generation_is_timed_token_by_token(route: Route) -> None:
    found = collectors.pace(route, [1, 2, 3], 5)
    assert found.tokens == 4
    assert 0 < found.longest_gap <= found.first_token + found.decode


def without_a_loss(route: Route) -> dict[str, Any]:
    """What the collector tells where the worker that it kills goes on."""
    survivor = SimpleNamespace(kill=lambda: None)
    return values(collectors.worker_loss(route, survivor, [1, 2, 3], 4))  # type: ignore[arg-type]


def test_a_loss_that_nobody_notices_is_told(route: Route) -> None:
    found = without_a_loss(route)
    assert found["route_aborted"] is False
    assert (found["old_epoch"], found["new_epoch"], found["retry_first_position"]) == (1, 3, 0)


def test_a_retry_that_a_shard_does_not_begin_with_nothing_is_not_from_token_zero(
    route: Route, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(RouteSession, "beginnings", lambda _: (0, 3))
    found = without_a_loss(route)
    assert found["retry_first_position"] == 3
    assert "retry_policy" not in found


def test_an_epoch_is_the_one_that_every_shard_accepted(
    route: Route, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(RouteSession, "epochs", lambda _: (1, 1))
    found = without_a_loss(route)
    assert (found["old_epoch"], found["new_epoch"]) == (1, 1)
    assert "retry_policy" not in found


def test_a_session_tells_epochs_and_beginnings_as_its_shards_answered(route: Route) -> None:
    with route.session("told", 7) as session:
        assert session.beginnings() == ()
        side_by_side([session.prefill([1, 2, 3])])
        side_by_side([session.decode(4)])
        assert session.epochs() == (7, 7)
        assert session.beginnings() == (0, 0)


def test_what_a_start_leaves_behind_is_counted(tmp_path: Path) -> None:
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as left:
        target = SimpleNamespace(pid=left.pid, address=f"127.0.0.1:{free_port()}")
        started = SimpleNamespace(
            targets=[target], generate=lambda prompt, count: SimpleNamespace(tokens=(5,))
        )
        found = values(collectors.cold_start(lambda: started, lambda: None, [1]))  # type: ignore[arg-type,return-value]
        assert found == {"served": True, "residue": 1}
        left.communicate(b"\n")
    found = values(collectors.cold_start(lambda: started, lambda: None, [1]))  # type: ignore[arg-type,return-value]
    assert found == {"served": True, "residue": 0}


def test_what_was_not_started_here_leaves_nothing_that_is_known() -> None:
    elsewhere = SimpleNamespace(
        targets=[SimpleNamespace(pid=None, address="10.0.0.1:1")],
        generate=lambda prompt, count: SimpleNamespace(tokens=(5,)),
    )
    found = values(collectors.cold_start(lambda: elsewhere, lambda: None, [1]))  # type: ignore[arg-type,return-value]
    assert found == {"served": True}


def test_segments_that_cannot_be_listed_are_not_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(collectors, "_SHARED_MEMORY", tmp_path / "absent")
    with subprocess.Popen([sys.executable, "-c", ""]) as ended:
        ended.wait()
        started = SimpleNamespace(
            targets=[SimpleNamespace(pid=ended.pid, address=f"127.0.0.1:{free_port()}")],
            generate=lambda prompt, count: SimpleNamespace(tokens=(5,)),
        )
        found = values(collectors.cold_start(lambda: started, lambda: None, [1]))  # type: ignore[arg-type,return-value]
    assert found == {"served": True}
