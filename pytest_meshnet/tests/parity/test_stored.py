"""A stored oracle answers only for the very run that it is bound to."""

from dataclasses import asdict, fields, replace

import numpy as np
import pytest

from pytest_meshnet.parity.oracles.stored import DENSE_FALLBACK, Binding, StoredOracle, store
from pytest_meshnet.reference.models import built_in
from pytest_meshnet.runtime.errors import Refusal

CORPUS = {"one": [1, 2, 3], "two": [200, 7]}
BINDING = Binding(
    artifact_digest="a" * 64,
    template="none",
    adapter="none",
    compute_dtype="float32",
    activation_dtype="float32",
    kv_dtype="float32",
    rope="theta 10000",
    engine="tiny-llama",
    engine_version="1",
    patch_hash="none",
    attention="dense",
)


@pytest.fixture
def record(tmp_path):
    path = tmp_path / "oracle.json"
    store(path, BINDING, built_in("tiny-llama-small").whole(), CORPUS, 8)
    return path


def test_what_was_stored_comes_back_bit_for_bit(record):
    kept = StoredOracle.read(record, BINDING).generate(CORPUS["one"], 8)
    fresh = built_in("tiny-llama-small").whole().generate(CORPUS["one"], 8)
    assert kept.tokens == fresh.tokens
    assert np.array_equal(kept.scores, fresh.scores)


@pytest.mark.parametrize("name", [field.name for field in fields(Binding)])
def test_any_difference_of_the_binding_refuses_the_record(record, name):
    with pytest.raises(Refusal, match=name):
        StoredOracle.read(record, replace(BINDING, **{name: "other"}))


def test_an_engine_that_fell_back_to_dense_attention_is_no_oracle(tmp_path):
    fallen = replace(BINDING, attention=DENSE_FALLBACK)
    with pytest.raises(Refusal, match="dense fallback"):
        store(tmp_path / "x.json", fallen, built_in("tiny-llama-small").whole(), CORPUS, 2)


def test_a_record_of_a_dense_fallback_is_refused_even_when_asked_for(record):
    text = record.read_text().replace('"attention": "dense"', f'"attention": "{DENSE_FALLBACK}"')
    record.write_text(text)
    with pytest.raises(Refusal, match="no oracle"):
        StoredOracle.read(record, replace(BINDING, attention=DENSE_FALLBACK))


def test_a_record_is_not_used_without_a_binding(record):
    with pytest.raises(Refusal, match=r"oracle\.binding"):
        StoredOracle.read(record, None)


def test_what_was_never_stored_is_refused_and_not_guessed(record):
    oracle = StoredOracle.read(record, BINDING)
    with pytest.raises(Refusal, match="has 0 tokens"):
        oracle.generate([9, 9], 4)
    with pytest.raises(Refusal, match="has 8 tokens"):
        oracle.generate(CORPUS["two"], 9)


@pytest.mark.parametrize("name", [field.name for field in fields(Binding)])
def test_a_binding_must_say_everything(name):
    document = asdict(BINDING)
    for broken in ({**document, name: ""}, {**document, "more": "x"}):
        with pytest.raises(Refusal):
            Binding.read(broken)
    del document[name]
    with pytest.raises(Refusal, match=name):
        Binding.read(document)


def test_a_torn_record_is_refused(record):
    record.write_text(record.read_text()[:-40])
    with pytest.raises(Refusal, match="store it again"):
        StoredOracle.read(record, BINDING)
