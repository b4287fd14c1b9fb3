"""What files have to be: the manifest's six, or a list of sums, found where they lie."""

import pytest

from pytest_meshnet.target.artifact.pins import Pin, locate, pins_of_manifest, pins_of_sums
from pytest_meshnet.target.artifact.verification import Code, Expected, verify_files
from pytest_meshnet.target.documents import LockedTarget
from pytest_meshnet.target.fields import TargetRefused
from pytest_meshnet.tests.target.pinned_files import flipped, written

TARGET_PINS = pins_of_manifest(LockedTarget.load().manifest)


def test_the_targets_pins_are_its_six_files():
    assert len(TARGET_PINS) == 6
    assert (
        sum(pin.size_bytes or 0 for pin in TARGET_PINS) == LockedTarget.load().manifest.total_bytes
    )


def test_pins_are_found_at_any_depth_and_absent_ones_are_missing(tmp_path):
    pin = TARGET_PINS[0]
    path = tmp_path / "a" / "b" / pin.name
    written(path, b"x")
    written(tmp_path / "other.gguf", b"y")
    found = locate(TARGET_PINS, [tmp_path])
    assert found[0].path == path
    result = verify_files(found, forbidden_prefixes=())
    assert [v.code for v in result.verdicts] == [Code.WRONG_SIZE] + [Code.MISSING] * 5


def test_a_pinned_file_may_be_named_itself(tmp_path):
    path = tmp_path / TARGET_PINS[2].name
    written(path, b"x")
    found = locate(TARGET_PINS, [path])
    assert found[2].path == path
    assert found[0].path == tmp_path / TARGET_PINS[0].name


@pytest.mark.parametrize("kind", ["stranger", "absent", "twice"])
def test_paths_that_do_not_say_which_file_is_meant_are_refused(tmp_path, kind):
    written(tmp_path / "a" / TARGET_PINS[0].name, b"x")
    written(tmp_path / "b" / TARGET_PINS[0].name, b"x")
    written(tmp_path / "stranger.gguf", b"x")
    path = {"stranger": "stranger.gguf", "absent": "absent", "twice": ""}[kind]
    code = {"stranger": "not-pinned", "absent": "not-found", "twice": "found-twice"}[kind]
    with pytest.raises(TargetRefused) as refused:
        locate(TARGET_PINS, [tmp_path / path])
    assert refused.value.code == code


def test_a_list_of_sums_is_read_as_sha256sum_writes_it(tmp_path):
    text = "a" * 64 + "  dir/one.gguf\n" + "b" * 64 + " *two with space.gguf\n"
    (tmp_path / "SUMS").write_text(text)
    assert pins_of_sums(tmp_path / "SUMS") == (
        Pin("one.gguf", None, "a" * 64),
        Pin("two with space.gguf", None, "b" * 64),
    )


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("", "sums-empty"),
        ("a" * 63 + "  one\n", "sums-line"),
        ("A" * 64 + "  one\n", "sums-line"),
        ("a" * 64 + "  one\n\n" + "b" * 64 + "  two\n", "sums-line"),
        ("a" * 64 + "  x/one\n" + "b" * 64 + "  y/one\n", "sums-twice"),
        (None, "sums-unreadable"),
    ],
)
def test_a_list_of_sums_that_proves_nothing_is_refused(tmp_path, text, code):
    if text is not None:
        (tmp_path / "SUMS").write_text(text)
    with pytest.raises(TargetRefused) as refused:
        pins_of_sums(tmp_path / "SUMS")
    assert refused.value.code == code


def test_a_file_with_only_a_known_digest_is_still_refused_by_it(tmp_path):
    expected = flipped(written(tmp_path / "a", b"abc"))
    unsized = Expected(expected.path, None, expected.sha256)
    (verdict,) = verify_files([unsized], forbidden_prefixes=()).verdicts
    assert verdict.code is Code.WRONG_DIGEST
