"""The machine behind a run: CUDA's own order, and what a simulated machine shows."""

import pytest

from pytest_meshnet.hardware.inventory import DriverError
from pytest_meshnet.hardware.placement.judge import Seen
from pytest_meshnet.hardware.placement.processes import ProcFs
from pytest_meshnet.hardware.placement.senses import Senses, simulated
from pytest_meshnet.hardware.session import Unmeasured, Wishes, look
from pytest_meshnet.tests.hardware.fakes import inventory, inventory_file
from pytest_meshnet.tests.hardware.test_gpu import MASK, Driver


def _no_library(environment, vendor):
    raise DriverError("no libcuda")


def test_cuda_itself_is_asked_for_its_order_where_a_mask_needs_it():
    # faults rows 85 and 178
    found = inventory("a6000-pair")
    order = [found.devices[place] for place in (1, 2, 0, 3)]
    asked = []

    def inside(environment, vendor):
        asked.append(environment)
        return 1, tuple(Seen(one.uuid) for one in order)

    senses = Senses((Driver(found),), inside, ProcFs())
    machine = look(senses, Wishes(), {MASK: "0,3", "CUDA_DEVICE_ORDER": "FASTEST_FIRST"})
    assert [one.uuid for one in machine.usable] == [order[0].uuid, order[3].uuid]
    assert asked == [{"CUDA_DEVICE_ORDER": "FASTEST_FIRST"}], "the mask itself must not be in force"


def test_when_cuda_cannot_be_asked_an_index_is_refused():
    senses = Senses((Driver(inventory("a6000-pair")),), _no_library, ProcFs())
    with pytest.raises(Unmeasured, match="CUDA's order is not known here"):
        look(senses, Wishes(), {MASK: "0"})


@pytest.mark.parametrize(
    ("name", "environment"),
    [("a6000-pair", {}), ("rtx3060", {MASK: "0"}), ("fastest-first", {MASK: "1"})],
)
def test_cuda_is_not_asked_where_its_order_does_not_matter(name, environment):
    senses = Senses((Driver(inventory(name)),), _never, ProcFs())
    assert look(senses, Wishes(), environment).usable


def _never(environment, vendor):
    raise AssertionError("CUDA was asked")


def test_a_simulated_machine_lists_devices_as_its_file_says():
    senses = simulated(inventory_file("fastest-first"))
    _, seen = senses.inside({}, "nvidia")
    assert [one.uuid for one in seen] == [
        one.uuid for one in reversed(inventory("fastest-first").devices)
    ]
    with pytest.raises(DriverError, match="does not tell the order"):
        simulated(inventory_file("a6000-pair")).inside({}, "nvidia")
