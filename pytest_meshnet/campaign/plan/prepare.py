"""From orders to a preparation: look at the machine once, and collect what refuses the run."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from pytest_meshnet.campaign.plan.orders import Orders
from pytest_meshnet.campaign.plan.refusals import Preparation, prepare
from pytest_meshnet.campaign.plan.surroundings import checkout, machine, provenance


def look(orders: Orders) -> Preparation:
    """Find out everything that a run needs to know; nothing is started or written."""
    found = machine(orders)
    return prepare(orders, found, provenance(orders, found, checkout(orders.checkout)))


@contextmanager
def prepared(orders: Orders, switches: tuple[str, ...] | None) -> Iterator[Preparation]:
    """Prepare a run, on an invented rig when there are switches (none of them is one too).

    Raises CampaignRefused for an unknown switch.
    """
    if switches is None:
        yield look(orders)
        return
    from pytest_meshnet.campaign.simulated.rig import check, simulate

    check(switches)
    with TemporaryDirectory(prefix="simulated-rig-") as folder:
        yield look(simulate(orders, Path(folder), switches))
