"""Kernel families: native, fallback or incompatible, each with its reason."""

import pytest

from pytest_meshnet.hardware.arch_gates import GATES, UnknownArchitecture, ask

TABLE = [
    (
        "nvfp4",
        "weights",
        {(7, 0): "i", (7, 5): "f", (8, 6): "f", (8, 9): "f", (9, 0): "n", (12, 0): "n"},
    ),
    (
        "nvfp4",
        "kv",
        {(8, 6): "i", (9, 0): "i", (10, 0): "n", (10, 1): "i", (10, 3): "n", (12, 0): "i"},
    ),
    ("fp8_e4m3", "kv", {(8, 6): "i", (8, 8): "i", (8, 9): "n", (9, 0): "n", (12, 1): "n"}),
    (
        "deepgemm_fp8",
        "weights",
        {(8, 9): "i", (9, 0): "n", (10, 0): "n", (12, 0): "i", (12, 1): "i"},
    ),
]
WORDS = {"n": "native", "f": "fallback", "i": "incompatible"}
CASES = [(f, role, sm, WORDS[w]) for f, role, answers in TABLE for sm, w in answers.items()]


@pytest.mark.parametrize(("format", "role", "sm", "word"), CASES, ids=[str(one) for one in CASES])
def test_a_gate_is_a_family_and_not_a_floor(format, role, sm, word):
    answer = ask(format, role, sm)
    assert answer.word == word
    assert f"sm_{sm[0]}{sm[1]}" in answer.reason


def test_the_rtx_3060_runs_nvfp4_weights_by_fallback_only():
    assert ask("nvfp4", "weights", (8, 6)).word == "fallback"


def test_what_is_unknown_is_neither_native_nor_a_fallback():
    with pytest.raises(UnknownArchitecture, match="compute capability is unknown"):
        ask("nvfp4", "weights", None)
    with pytest.raises(UnknownArchitecture, match="expected one of nvfp4 weights"):
        ask("nvfp5", "weights", (9, 0))
    with pytest.raises(UnknownArchitecture, match="no gate for fp8_e4m3 weights"):
        ask("fp8_e4m3", "weights", (9, 0))


def test_every_gate_gives_a_reason():
    assert all(one.why for one in GATES)
    assert len({(one.format, one.role) for one in GATES}) == len(GATES)
