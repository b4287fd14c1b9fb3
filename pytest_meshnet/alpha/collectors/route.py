"""What is measured on a whole route: its seams, a lost worker, cold starts and decode rates."""

from __future__ import annotations

import contextlib
import os
import socket
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pytest_meshnet.alpha.collectors.claims import Claims, claims
from pytest_meshnet.runtime.errors import Nonconformance
from pytest_meshnet.runtime.generation import greedy
from pytest_meshnet.runtime.route import continued, side_by_side
from pytest_meshnet.runtime.route_session import RouteLost, Step, T

if TYPE_CHECKING:
    from pytest_meshnet.parity.metrics import Comparison
    from pytest_meshnet.runtime.generation import Generation, Rows
    from pytest_meshnet.runtime.route import Route
    from pytest_meshnet.runtime.target import Target

BY = "the route"
FROM_ZERO = "from_token_zero_on_new_compatible_route"
"""The contract's word for a retry that every Shard begins with nothing, in a newer epoch."""
_SHARED_MEMORY = Path("/dev/shm")


def exact_seam(found: Iterable[Comparison]) -> Claims:
    """The worst generation of the float32 lane: how many tokens were compared, how many equal."""
    shares = [one.agreement for one in found]
    worst = min(shares, key=lambda share: (share.equal - share.compared, share.compared))
    return claims(BY, {"tokens_compared": worst.compared, "tokens_equal": worst.equal})


def production_seam(found: Sequence[Comparison], made: Iterable[Generation]) -> Claims:
    """Agreement and mean cosine over the corpus, and the tensors that were looked at for NaN.

    A mean that no finite cosines make is left out; rounding alone takes one beyond 1.
    """
    import numpy as np

    compared = sum(one.agreement.compared for one in found)
    equal = sum(one.agreement.equal for one in found)
    cosines = [cosine for one in found for cosine in one.cosines]
    tensors = [rows for one in made for rows in (one.scores, *one.states.values())]
    seam = {
        "greedy_token_agreement": equal / compared,
        "tensors_checked": len(tensors),
        "nonfinite_tensors": sum(not np.isfinite(rows).all() for rows in tensors),
    }
    if cosines and np.isfinite(cosines).all():
        seam["mean_cosine_similarity"] = min(1.0, float(np.mean(cosines)))
    return claims(BY, seam)


@dataclass(frozen=True, slots=True)
class Pace:
    """Times of one generation by this side's clock, in seconds."""

    first_token: float
    decode: float
    tokens: int
    longest_gap: float


def pace(route: Route, prompt: Sequence[int], count: int) -> Pace:
    """Time a generation of `count` tokens after `prompt`. `decode` is without the first token."""
    times = [time.monotonic()]

    def noted(scores: Rows, position: int) -> int:
        times.append(time.monotonic())
        return greedy(scores, position)

    with route.session(f"pace-{time.monotonic_ns()}", 1) as session:
        _run(continued(session, prompt, count, choose=noted))
    gaps = [after - before for before, after in pairwise(times)]
    return Pace(gaps[0], times[-1] - times[1], count - 1, max(gaps))


def _run(step: Step[T]) -> T:
    (answer,) = side_by_side([step])
    return answer


def worker_loss(route: Route, lost: Target, prompt: Sequence[int], count: int) -> Claims:
    """Kill one worker in the middle of a generation, and retry at the next epoch.

    `lost` is a Shard of the route that was started here. `kv_migrations` counts the Shards that
    continue the lost session although a new epoch begins with nothing. Epochs and the position at
    which the retry began are told by the Shards' own answers.
    """
    undisturbed = route.generate(prompt, count)
    name, old = f"loss-{time.monotonic_ns()}", 1
    aborted = False
    epochs: tuple[int, ...] = ()
    with contextlib.suppress(RouteLost), route.session(name, old) as session:
        epochs = session.epochs()
        token = _run(session.prefill(prompt)).chosen(greedy, len(prompt))
        lost.kill()
        try:
            _run(session.decode(token))
        except RouteLost:
            aborted = True
    route.recover()
    migrations = sum(_continues(route, place, name, old + 1, len(prompt))
                     for place in range(len(route.shards)))  # fmt: skip
    new = old + 2
    with route.session(name, new) as session:
        tokens = _run(continued(session, prompt, count)).tokens
        retry = _retried(epochs, session.epochs(), session.beginnings())
    found = {
        "route_aborted": aborted,
        "output_equals_undisturbed": tokens == undisturbed.tokens,
        "kv_migrations": migrations,
    }
    return claims(BY, found | retry)


def _retried(before: Sequence[int], after: Sequence[int], begun: Sequence[int]) -> dict[str, Any]:
    """How the retry began, by the worst Shard: what none of them told is left out."""
    found: dict[str, Any] = {}
    if before:
        found["old_epoch"] = max(before)
    if after:
        found["new_epoch"] = min(after)
    if begun:
        found["retry_first_position"] = max(begun)
    if before and after and begun and max(before) < min(after) and max(begun) == 0:
        found["retry_policy"] = FROM_ZERO
    return found


def _continues(route: Route, place: int, name: str, epoch: int, held: int) -> bool:
    """Whether a Shard goes on at `held` in a session whose new epoch began with nothing."""
    shard = route.shards[place]
    with shard.session(shard.seam(name, epoch)) as session:
        exchange = session.send_unit(
            session.client.chunk([shard.tokens(1)], expected=held, first=held)
        )
        with contextlib.suppress(Nonconformance):
            session.wait(exchange)
        return exchange.applied


def cold_start(
    start: Callable[[], Route], end: Callable[[], None], prompt: Sequence[int]
) -> Claims:
    """Start a route that does not run yet, have it serve one token, end it, and count what is left.

    What counts as left: processes, bound ports and segments of shared memory. Where one of these
    cannot be looked at, as those of a Shard that somebody else started, `residue` is left out.
    """
    segments = _segments()
    route = start()
    started = [(target.pid, target.address) for target in route.targets if target.pid is not None]
    try:
        served = len(route.generate(prompt, 1).tokens) == 1
    finally:
        end()
    found: dict[str, Any] = {"served": served}
    if segments is not None and started and len(started) == len(route.targets):
        left = sum(_lives(pid) + _is_bound(address) for pid, address in started)
        found["residue"] = left + len((_segments() or set()) - segments)
    return claims(BY, found)


def _segments() -> set[str] | None:
    """Segments of shared memory by name, None where this system does not list them."""
    return {one.name for one in _SHARED_MEMORY.iterdir()} if _SHARED_MEMORY.is_dir() else None


def _lives(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def _is_bound(address: str) -> bool:
    host, _, port = address.rpartition(":")
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, int(port)))
        except OSError:
            return True
    return False
