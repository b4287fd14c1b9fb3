"""What needs every place of a runtime is not passed by one that tells of none."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import pytest

from conformance import test_cancel_ends, test_health, test_open_limits, test_release
from conformance.side_by_side import places
from pytest_meshnet.runtime.errors import Nonconformance
from pytest_meshnet.runtime.shard import ShardUnderTest
from pytest_meshnet.tests.runtime.workers import small_shard

NEEDY: dict[str, Callable[[ShardUnderTest], None]] = {
    "CANCEL-08": partial(test_cancel_ends.test_dropped_connections_do_not_add_up, finish=True),
    "HEALTH-04": test_health.test_serving_with_a_free_place_means_that_an_open_succeeds,
    "OPEN-10": test_open_limits.test_one_open_too_many_is_refused_and_disturbs_no_running_session,
    "RELEASE-04": test_release.test_a_full_worker_accepts_a_session_right_after_a_unary_release,
}


@pytest.mark.parametrize("needy", NEEDY.values(), ids=NEEDY)
def test_a_runtime_that_declares_no_place_breaks_what_needs_all_of_them(
    needy: Callable[[ShardUnderTest], None],
) -> None:
    shard = small_shard()
    needy(shard)
    shard.report.max_concurrent_sessions = 0
    with pytest.raises(Nonconformance, match="max_concurrent_sessions above 0"):
        needy(shard)


def test_what_needs_two_places_tries_them_where_none_is_declared() -> None:
    shard = small_shard()
    shard.report.max_concurrent_sessions = 0
    assert places(shard) == places(shard, 2) == 2
    with test_health.many_sessions(shard) as sessions:
        assert len(sessions) == 2
