"""Microbenchmarks without a device: arithmetic, refusals, and what is never computed."""

import json
import statistics
import sys
from types import SimpleNamespace

import pytest

from pytest_meshnet.hardware.microbench import (
    BUFFER_BYTES,
    PUBLISHED_RTX3060_GB_S,
    REPETITIONS,
    WARM_UPS,
    Bandwidth,
    BenchmarkRefusal,
    ExpertShape,
    GroupedStep,
    Times,
    bandwidth,
    check_times,
    grouped_step,
    single_expert,
)
from pytest_meshnet.hardware.microbench import __main__ as program
from pytest_meshnet.hardware.microbench.torch_device import TorchDevice
from pytest_meshnet.tests.hardware.fakes import RTX3060

SHAPE = ExpertShape(hidden=64, intermediate=32, experts=16)


class FakeDevice:
    """Takes the times of a list, one after the other; `bound` may change between questions."""

    def __init__(self, times, bound=(RTX3060,)):
        self.times, self.bound = list(times), list(bound)
        self.asked = []

    def bound_uuid(self):
        return self.bound.pop(0) if len(self.bound) > 1 else self.bound[0]

    def prepare_copy(self, size):
        self.asked.append(("copy", size))
        return lambda: self.times.pop(0)

    def prepare_experts(self, shape, top_k):
        self.asked.append(("experts", top_k))
        return lambda: self.times.pop(0)


def ramp(count=REPETITIONS, warm_up=1000.0):
    return [warm_up] * WARM_UPS + [float(number) for number in range(1, count + 1)]


def test_a_copy_is_stated_both_ways_for_every_repetition():
    device = FakeDevice(ramp())
    told = bandwidth(device, RTX3060).document()
    assert device.asked == [("copy", 512 * 1024**2)]
    assert told["each_ms"] == [float(number) for number in range(1, 31)], "warm-ups are left out"
    first = 512 * 1024**2 / 1e6
    assert told["read_only_gb_s"]["each"][0] == pytest.approx(first)
    assert told["read_write_gb_s"]["each"][0] == pytest.approx(2 * first)
    for way in ("read_only_gb_s", "read_write_gb_s"):
        assert told[way]["median"] == statistics.median(told[way]["each"])
    assert len(told["read_write_gb_s"]["each"]) == REPETITIONS == 30
    assert WARM_UPS == 5


def test_the_arithmetic_gives_the_figure_that_was_published_for_the_rtx_3060():
    ms = 2 * BUFFER_BYTES / (PUBLISHED_RTX3060_GB_S * 1e6)
    figure = Bandwidth(RTX3060, BUFFER_BYTES, Times((ms,) * REPETITIONS))
    assert statistics.median(figure.gb_per_s("read+write")) == pytest.approx(331.3)
    assert statistics.median(figure.gb_per_s("read")) == pytest.approx(331.3 / 2)


def test_the_variation_is_the_sample_deviation_over_the_mean_in_percent():
    times = Times((1.0, 2.0, 3.0))
    assert times.cv_percent == pytest.approx(50.0)
    assert times.median_ms == 2.0


@pytest.mark.parametrize("size", [0, 1, BUFFER_BYTES - 1])
def test_a_buffer_that_could_stay_in_a_cache_is_refused(size):
    with pytest.raises(BenchmarkRefusal, match="may stay in a cache"):
        bandwidth(FakeDevice(ramp()), RTX3060, size)


@pytest.mark.parametrize("measure", ["bandwidth", "single", "grouped"])
@pytest.mark.parametrize(
    ("bound", "message"),
    [
        ([None], "tells no UUID"),
        (["GPU-0"], "bound is GPU-0: nothing is measured"),
        ([RTX3060, "GPU-0"], "bound is GPU-0"),
    ],
)
def test_a_figure_of_another_device_is_refused(measure, bound, message):
    # faults row 85
    device = FakeDevice(ramp(), bound)
    measures = {
        "bandwidth": lambda: bandwidth(device, RTX3060),
        "single": lambda: single_expert(device, RTX3060, SHAPE),
        "grouped": lambda: grouped_step(device, RTX3060, SHAPE, 8),
    }
    with pytest.raises(BenchmarkRefusal, match=message):
        measures[measure]()
    assert len(bound) > 1 or device.asked == [], "something ran on the wrong device"


def test_the_uuid_may_be_told_in_any_spelling():
    device = FakeDevice(ramp(), [RTX3060.removeprefix("GPU-").upper()])
    assert bandwidth(device, RTX3060).uuid == RTX3060


@pytest.mark.parametrize("ms", [0.0, -1.0, float("nan"), float("inf")])
def test_a_time_that_no_clock_can_show_is_refused(ms):
    with pytest.raises(BenchmarkRefusal, match=r"repetition 2 took .* ms"):
        check_times([1.0, ms])


def test_one_expert_is_timed_in_calls_of_its_own():
    device = FakeDevice(ramp())
    told = single_expert(device, RTX3060, SHAPE).document()
    assert device.asked == [("experts", 1)]
    assert (told["figure"], told["top_k"]) == ("single_expert_latency", 1)
    assert told["median_ms"] == 15.5


def test_a_grouped_step_is_another_figure_and_is_never_divided_by_top_k():
    device = FakeDevice(ramp())
    step = grouped_step(device, RTX3060, SHAPE, 8)
    told = step.document()
    assert device.asked == [("experts", 8)]
    assert (told["figure"], told["top_k"], told["median_ms"]) == ("grouped_step", 8, 15.5)
    numbers = [value for value in told.values() if isinstance(value, float)]
    assert not any(abs(value - 15.5 / 8) < 1e-9 for value in numbers)
    assert not hasattr(GroupedStep, "per_expert")
    assert told["each_ms"] == [float(number) for number in range(1, 31)]


@pytest.mark.parametrize("top_k", [0, 1, 17])
def test_a_grouped_step_of_one_expert_or_of_more_than_there_are_is_refused(top_k):
    with pytest.raises(BenchmarkRefusal, match="takes 2 to 16 experts"):
        grouped_step(FakeDevice(ramp()), RTX3060, SHAPE, top_k)


# torch -----------------------------------------------------------------------------------------


class Tensor:
    """A tensor that knows its shape and what was done to it."""

    def __init__(self, log, shape):
        self.log, self.shape = log, shape

    def __getitem__(self, chosen):
        self.log.append((chosen.start, chosen.stop))
        return Tensor(self.log, (chosen.stop - chosen.start, *self.shape[1:]))

    def __mul__(self, other):
        assert self.shape == other.shape
        return self

    def copy_(self, source):
        self.log.append("copy")


def bmm(one, other):
    assert one.shape[0] == other.shape[0], "a batch of experts meets a batch of tokens"
    assert one.shape[2] == other.shape[1]
    return Tensor(one.log, (one.shape[0], one.shape[1], other.shape[2]))


def fake_torch(count=1, free=80 * 1024**3, uuid="3060a1f0-7c21-4d5e-9b10-0c8f5e2d6a71"):
    log = []

    class Event:
        def __init__(self, enable_timing):
            assert enable_timing

        def record(self):
            log.append("event")

        def synchronize(self):
            log.append("wait")

        def elapsed_time(self, end):
            return 2.5

    properties = SimpleNamespace() if uuid is None else SimpleNamespace(uuid=uuid)
    return log, SimpleNamespace(
        cuda=SimpleNamespace(
            is_available=lambda: count > 0,
            device_count=lambda: count,
            set_device=lambda index: None,
            get_device_properties=lambda index: properties,
            mem_get_info=lambda index: (free, free),
            Event=Event,
        ),
        uint8="uint8",
        bfloat16="bfloat16",
        zeros=lambda size, dtype, device: Tensor(log, (size,)),
        empty_like=lambda other: Tensor(log, other.shape),
        randn=lambda shape, dtype, device: Tensor(log, shape),
        bmm=bmm,
        nn=SimpleNamespace(functional=SimpleNamespace(silu=lambda tensor: tensor)),
    )


@pytest.mark.parametrize("count", [0, 2, 8])
def test_torch_must_see_exactly_one_device(count):
    # faults row 84
    with pytest.raises(BenchmarkRefusal, match=f"torch sees {count} devices"):
        TorchDevice(fake_torch(count)[1])


def test_without_torch_there_is_a_refusal(monkeypatch):
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(BenchmarkRefusal, match="torch is not installed"):
        TorchDevice()


def test_torch_tells_the_uuid_that_it_bound_and_an_older_one_nothing():
    assert TorchDevice(fake_torch()[1]).bound_uuid() == RTX3060.removeprefix("GPU-")
    assert TorchDevice(fake_torch(uuid=None)[1]).bound_uuid() is None


def test_a_copy_is_timed_between_two_device_events():
    log, torch = fake_torch()
    assert TorchDevice(torch).prepare_copy(BUFFER_BYTES)() == 2.5
    assert log == ["event", "copy", "event", "wait"]


def test_a_step_goes_round_the_experts_of_the_layer():
    log, torch = fake_torch()
    step = TorchDevice(torch).prepare_experts(SHAPE, 8)
    for _ in range(3):
        step()
    slices = [one for one in log if isinstance(one, tuple)]
    assert slices == [(0, 8)] * 3 + [(8, 16)] * 3 + [(0, 8)] * 3


@pytest.mark.parametrize("what", ["copy", "experts"])
def test_a_device_without_room_is_refused_before_anything_is_allocated(what):
    device = TorchDevice(fake_torch(free=1024)[1])
    with pytest.raises(BenchmarkRefusal, match="1024 are free"):
        device.prepare_copy(BUFFER_BYTES) if what == "copy" else device.prepare_experts(SHAPE, 1)


# The program -----------------------------------------------------------------------------------


@pytest.mark.parametrize("figure", program.FIGURES)
def test_the_program_prints_one_figure_with_its_pid(figure, monkeypatch, capsys):
    monkeypatch.setattr(program, "TorchDevice", lambda: FakeDevice(ramp()))
    assert program.main([figure, RTX3060]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["pid"] > 0
    assert told["uuid"] == RTX3060


@pytest.mark.parametrize("arguments", [["speed", RTX3060], ["bandwidth"], ["bandwidth", "GPU-0"]])
def test_the_program_refuses_with_exit_code_2(arguments, monkeypatch, capsys):
    monkeypatch.setattr(program, "TorchDevice", lambda: FakeDevice(ramp()))
    assert program.main(arguments) == 2
    assert json.loads(capsys.readouterr().out)["refused"]
