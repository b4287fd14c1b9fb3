"""The check of the stored golden vectors, on copies that were tampered with."""

from __future__ import annotations

import hashlib
import shutil

import pytest

from pytest_meshnet import layout
from pytest_meshnet.protocol import goldens

NAMES = ("session_request.binpb", "capability_report.binpb")
OWN = (
    "session_open_1_1.binpb",
    "decode_bundle_1_1.binpb",
    "tail_result_1_1.binpb",
    "capability_report_1_1.binpb",
    "sampling-vectors.json",
)


@pytest.fixture
def copy(tmp_path, monkeypatch):
    """A copy of the goldens in the place of the real ones."""
    root = tmp_path / "goldens"
    shutil.copytree(layout.folder("goldens"), root)
    monkeypatch.setattr(goldens, "folder", lambda name: {"goldens": root}[name])
    return root


def _spoil(path):
    data = bytearray(path.read_bytes())
    data[100] ^= 1
    path.write_bytes(bytes(data))


def test_the_stored_goldens_are_the_published_ones():
    assert goldens.check() == []


def test_the_published_digests_are_those_of_the_protocol():
    session_request, capability_report = (goldens.PUBLISHED[name] for name in NAMES)
    assert session_request == "c2c3df8a717ddeae7bd99624d2c7f34c09a518988de990237fe313b75cff0817"
    assert capability_report == "71ac5f150775f398515b43a63596a5cbe8d2ad607e7e4de56bd44fbe7987080c"


@pytest.mark.parametrize("name", NAMES)
def test_one_flipped_bit_is_found_by_both_digests(copy, name):
    _spoil(copy / name)
    found = goldens.check()
    assert len(found) == 2, found
    assert found[0].startswith(f"{name}: sha256 ")
    assert found[0].endswith(f"{goldens.PUBLISHED[name]} published")
    assert found[1] == f"{name}: sha256 differs from SHA256SUMS"


@pytest.mark.parametrize("name", OWN)
def test_a_flipped_bit_in_a_vector_of_1_1_is_found_by_both_digests(copy, name):
    path = copy / name
    path.write_bytes(bytes([path.read_bytes()[0] ^ 1]) + path.read_bytes()[1:])
    found = goldens.check()
    assert len(found) == 2, found
    assert found[0].endswith(f"{goldens.EXPECTED[name]} pinned")


@pytest.mark.parametrize("name", NAMES)
def test_an_edit_that_also_edits_the_sums_is_found(copy, name):
    before = hashlib.sha256((copy / name).read_bytes()).hexdigest()
    _spoil(copy / name)
    after = hashlib.sha256((copy / name).read_bytes()).hexdigest()
    sums = copy / "SHA256SUMS"
    sums.write_text(sums.read_text().replace(before, after))
    assert goldens.check() == [f"{name}: sha256 {after} stored, {before} published"]


@pytest.mark.parametrize("name", NAMES)
def test_a_lost_vector_is_named(copy, name):
    (copy / name).unlink()
    assert goldens.check() == [
        f"{name}: sha256 of no file stored, {goldens.PUBLISHED[name]} published",
        f"{name}: sha256 differs from SHA256SUMS",
    ]


def test_a_file_that_is_not_listed_is_named(copy):
    (copy / "extra.binpb").write_bytes(b"")
    assert goldens.check() == ["extra.binpb: not listed in SHA256SUMS"]


def test_lost_sums_are_a_difference_and_not_a_crash(copy):
    (copy / "SHA256SUMS").unlink()
    assert goldens.check() == ["SHA256SUMS: missing"]


def test_damaged_sums_are_a_difference_and_not_a_crash(copy):
    sums = copy / "SHA256SUMS"
    sums.write_text(sums.read_text().replace("  session_request", " session_request"))
    assert any("session_request" in line for line in goldens.check())


def test_a_build_that_serializes_otherwise_is_named(copy, monkeypatch):
    request = goldens.session_request()
    request.chunk.envelope.work_id = "work-7f3b"
    monkeypatch.setattr(goldens, "session_request", lambda: request)
    found = goldens.check()
    assert found == [f"{NAMES[0]}: this build serializes to other bytes than the published ones"]


def test_writing_repairs_vectors_and_sums(copy):
    before = {path.name: path.read_bytes() for path in copy.iterdir()}
    _spoil(copy / NAMES[0])
    (copy / "SHA256SUMS").unlink()
    goldens.write()
    assert {path.name: path.read_bytes() for path in copy.iterdir()} == before
    assert goldens.check() == []


@pytest.mark.parametrize("name", NAMES + OWN)
def test_a_wrong_build_writes_nothing_at_all(copy, monkeypatch, name):
    wrong = goldens.built() | {name: b"other bytes"}
    monkeypatch.setattr(goldens, "built", lambda: wrong)
    for other in (*NAMES, *OWN):
        (copy / other).write_bytes(b"as it was")
    with pytest.raises(ValueError, match=f"{name}: this build does not give"):
        goldens.write()
    left = {(copy / other).read_bytes() for other in (*NAMES, *OWN)}
    assert left == {b"as it was"}
