"""The malformed corpus: stored as it is made, and each case breaks the rule it names."""

from __future__ import annotations

import json

import pytest

from pytest_meshnet.protocol import malformed
from pytest_meshnet.protocol.codec import decode_bundle
from pytest_meshnet.protocol.errors import ProtocolError
from pytest_meshnet.protocol.generated import shard_runtime_pb2 as pb


def test_the_stored_corpus_is_the_one_made_here() -> None:
    assert malformed.differences() == [], "run python -m pytest_meshnet.protocol.malformed"


@pytest.mark.parametrize("case", malformed.cases(), ids=lambda case: case.name)
def test_a_stored_case_breaks_the_rule_it_names(case: malformed.Malformed) -> None:
    data = (malformed.corpus_folder() / f"{case.name}.binpb").read_bytes()
    with pytest.raises(ProtocolError) as refusal:
        decode_bundle(pb.TensorBundle.FromString(data))
    assert refusal.value.rule == case.rule


def test_the_bundle_that_all_are_spoilt_from_is_correct() -> None:
    data = (malformed.corpus_folder() / "correct.binpb").read_bytes()
    (tensor,) = decode_bundle(pb.TensorBundle.FromString(data))
    assert tensor.shape == (1, 128, 8)


def test_the_index_lists_every_case_with_its_codes() -> None:
    index = json.loads((malformed.corpus_folder() / malformed.INDEX).read_bytes())
    assert list(index) == [case.name for case in malformed.cases()]
    assert all(entry["codes"] for entry in index.values())
