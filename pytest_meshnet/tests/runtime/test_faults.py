"""A lossy line does what its plan says to the frames it names, and nothing to any other."""

from __future__ import annotations

import pytest

from pytest_meshnet.protocol.generated import shard_runtime_pb2 as pb
from pytest_meshnet.runtime.faults import Fault, FaultyLine, Plan, flipped

FRAMES = [b"0", b"1", b"2", b"3", b"4"]


def arrivals(*faults: Fault) -> list[bytes]:
    """What comes out of a line for FRAMES, those held back at its end included."""
    line = FaultyLine(faults, pb.SessionRequest)
    return [out for frame in FRAMES for out in line.carry(frame)] + line.flush()


@pytest.mark.parametrize(
    ("faults", "expected"),
    [
        ((), "01234"),
        ((Fault("drop", 1),), "0234"),
        ((Fault("repeat", 1, 2),), "0111234"),
        ((Fault("swap", 1),), "02134"),
        ((Fault("swap", 4),), "01234"),
        ((Fault("delay", 1, 2),), "02314"),
        ((Fault("delay", 0, 9),), "12340"),
        ((Fault("cut", 2),), "012"),
        ((Fault("flip", 2, 5),), "01234"),
        ((Fault("swap", 1), Fault("drop", 3)), "0214"),
        ((Fault("delay", 1, 3), Fault("repeat", 1)), "0234" + "11"),
        ((Fault("delay", 1, 3), Fault("cut", 2)), "02"),
    ],
)
def test_each_fault_does_what_it_says_to_its_frame_alone(
    faults: tuple[Fault, ...], expected: str
) -> None:
    assert b"".join(arrivals(*faults)).decode() == expected


def test_a_cut_line_says_that_it_is_lost_and_carries_nothing_more() -> None:
    line = FaultyLine((Fault("cut", 0),), pb.SessionRequest)
    assert line.carry(b"0") == [b"0"]
    assert line.lost
    assert line.carry(b"1") == []


def step(*payloads: bytes) -> pb.SessionRequest:
    """A decode step whose tensor has a fragment for each payload."""
    message = pb.SessionRequest()
    message.decode.work_id = "w"
    for payload in payloads:
        message.decode.tensor.fragments.add(payload=payload)
    return message


@pytest.mark.parametrize(
    ("bit", "expected"),
    [
        (0, (b"\x01\x00", b"\x00")),
        (9, (b"\x00\x02", b"\x00")),
        (16, (b"\x00\x00", b"\x01")),
        (24, (b"\x01\x00", b"\x00")),
    ],
)
def test_a_flip_inverts_one_bit_counted_over_all_fragments(
    bit: int, expected: tuple[bytes, bytes]
) -> None:
    frame = step(b"\x00\x00", b"\x00").SerializeToString()
    found = flipped(frame, bit, pb.SessionRequest)
    assert pb.SessionRequest.FromString(found) == step(*expected)


def test_a_flip_finds_the_tensors_of_a_chunk_in_either_direction() -> None:
    for kind in (pb.SessionRequest, pb.SessionResponse):
        message = kind()
        message.chunk.bundle.tensors.add().fragments.add(payload=b"\x00")
        found = kind.FromString(flipped(message.SerializeToString(), 3, kind))
        assert found.chunk.bundle.tensors[0].fragments[0].payload == b"\x08"


@pytest.mark.parametrize("frame", [b"", b"\xff\xff", step().SerializeToString()])
def test_a_flip_leaves_a_frame_without_payload_alone(frame: bytes) -> None:
    assert flipped(frame, 7, pb.SessionRequest) == frame


def test_a_seed_draws_the_same_plan_again_and_another_seed_another_one() -> None:
    plans = [Plan.drawn(seed, 8) for seed in range(20)]
    assert plans == [Plan.drawn(seed, 8) for seed in range(20)]
    assert len(set(plans)) == 20
    assert all(plan.requests for plan in plans)
    faults = [fault for plan in plans for fault in (*plan.requests, *plan.responses)]
    assert all(0 <= fault.frame < 8 for fault in faults)
