"""The hardware profile: what is told, and what stays unknown with a reason."""

import pytest

from pytest_meshnet.hardware.inventory import read
from pytest_meshnet.hardware.inventory.nvml import NvmlDriver
from pytest_meshnet.hardware.profile import Host, host, take
from pytest_meshnet.tests.hardware.fakes import FakeGpu, FakeNvml, NVMLError, inventory


@pytest.fixture
def root(tmp_path):
    """A root folder with what Linux tells of a machine."""
    for name, text in {
        "proc/cpuinfo": "processor\t: 0\nmodel name\t: AMD Ryzen 7 5800X\nprocessor\t: 1\n",
        "proc/meminfo": "MemTotal:       65786324 kB\nMemFree: 1 kB\n",
        "etc/os-release": 'NAME=Debian\nPRETTY_NAME="Debian GNU/Linux 13"\n',
        "sys/bus/pci/devices/0000:01:00.0/numa_node": "0\n",
        "sys/bus/pci/devices/0000:41:00.0/numa_node": "-1\n",
    }.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return tmp_path


def profiled(root, *gpus, **more):
    driver = NvmlDriver(FakeNvml(*gpus, **more))
    return take(read([driver]), driver, root)


FIRST = FakeGpu("GPU-1", "00000000:01:00.0", link=(1, 4, 8, 16))
SECOND = FakeGpu("GPU-2", "00000000:41:00.0", link=(NVMLError(3), 4, 16, 16))


def test_the_link_of_a_device_is_told_as_it_is_now_and_at_most(root):
    link = profiled(root, FIRST).links["GPU-1"]
    assert (link.generation, link.generation_max, link.width, link.width_max) == (1, 4, 8, 16)
    assert link.numa_node == 0


def test_what_the_driver_does_not_tell_of_a_link_stays_unknown(root):
    link = profiled(root, FIRST, SECOND).links["GPU-2"]
    assert (link.generation, link.generation_max) == (None, 4)
    assert "Not Supported" in link.unknown["generation"]
    assert link.numa_node is None, "-1 is the kernel's word for unknown, not a node"


@pytest.mark.parametrize(
    ("level", "shared"),
    [(10, "one PCIe switch"), (50, "across NUMA nodes"), (35, "level 35"), (NVMLError(3), None)],
)
def test_the_topology_says_what_two_devices_share(root, level, shared):
    (pair,) = profiled(root, FIRST, SECOND, topology=level).topology
    assert (pair.one, pair.other, pair.shared) == ("GPU-1", "GPU-2", shared)


def test_the_host_is_described(root):
    found = host(root)
    assert found.cpu == "AMD Ryzen 7 5800X"
    assert found.memory_bytes == 65786324 * 1024
    assert found.os == "Debian GNU/Linux 13"


def test_a_host_that_tells_nothing_is_unknown(tmp_path):
    found = host(tmp_path)
    assert (found.cpu, found.memory_bytes, found.os) == (None, None, None)
    assert isinstance(found, Host)


def test_a_driver_that_fails_leaves_every_link_unknown_with_its_words(root):
    good = NvmlDriver(FakeNvml(FIRST))
    bad = NvmlDriver(FakeNvml(FIRST, init_error=NVMLError(18)))
    link = take(read([good]), bad, root).links["GPU-1"]
    assert link.generation is None
    assert "version mismatch" in link.unknown["all"]


def test_devices_of_other_providers_are_in_the_profile_without_a_link(root):
    told = take(inventory("both-vendors"), None, root).document()
    assert [one["pcie"]["generation"] for one in told["devices"]] == [None, None]
    assert told["devices"][0]["pcie"]["unknown"] == {"link": "file does not tell of the PCIe link"}
    assert told["devices"][0]["architecture"] == "sm_86"
