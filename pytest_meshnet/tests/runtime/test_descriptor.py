"""The target descriptor: what it says, and what it refuses to say."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import pytest

from pytest_meshnet.layout import folder
from pytest_meshnet.protocol.tensors import DType
from pytest_meshnet.runtime.descriptor import (
    DEFAULT_TOLERANCES,
    Descriptor,
    TimeLimits,
    Tolerance,
    load,
)
from pytest_meshnet.runtime.errors import Refusal

MINIMAL = """\
schema = 1
name = "rt"
vendor = "someone"
version = "9"
profiles = ["core"]

[[shards]]
range = [4, 8]
endpoint = "127.0.0.1:5001"

[model]
layers = 12
hidden_size = 32
vocab_size = 100
"""


def read(tmp_path: Path, text: str) -> Descriptor:
    path = tmp_path / "target.toml"
    path.write_text(text)
    return load(str(path))


def test_a_minimal_descriptor_gets_the_published_defaults(tmp_path: Path) -> None:
    descriptor = read(tmp_path, MINIMAL)
    shard = descriptor.shards[0]
    assert (shard.name, shard.start_layer, shard.end_layer) == ("4-8", 4, 8)
    assert shard.endpoints == ("127.0.0.1:5001",)
    assert shard.launch is None
    assert descriptor.model.boundary_dtypes == (DType.BFLOAT16,)
    assert descriptor.model.input_scale == 1.0
    assert descriptor.tolerances == DEFAULT_TOLERANCES
    assert descriptor.time == TimeLimits()


def test_the_digest_is_that_of_the_file(tmp_path: Path) -> None:
    assert read(tmp_path, MINIMAL).digest == hashlib.sha256(MINIMAL.encode()).hexdigest()


def test_tolerances_and_times_override_only_what_they_name(tmp_path: Path) -> None:
    text = MINIMAL + ("[tolerances.float32]\nabsolute = 0.5\nrelative = 0.25\n[time]\nanswer = 3\n")
    descriptor = read(tmp_path, text)
    assert descriptor.tolerances[DType.FLOAT32] == Tolerance(0.5, 0.25)
    assert descriptor.tolerances[DType.BFLOAT16] == DEFAULT_TOLERANCES[DType.BFLOAT16]
    assert descriptor.time == TimeLimits(answer=3.0)


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ("schema = 1", "schema = 2", "schema"),
        ('name = "rt"\n', "", "'name' is a required property"),
        ('endpoint = "127.0.0.1:5001"', "", "shards.0"),
        ('endpoint = "127.0.0.1:5001"', 'endpoint = "nowhere"', "shards.0"),
        ("range = [4, 8]", "range = [8, 8]", "holds no layer"),
        ("range = [4, 8]", "range = [4, 8, 9]", "shards.0.range"),
        ("layers = 12", "layers = true", "model.layers"),
        ("layers = 12", "layers = 12\nlayer = 12", "Additional properties"),
        ('profiles = ["core"]', "profiles = []", "profiles"),
        ("schema = 1", "schema =", "is not TOML"),
        ("vocab_size = 100", 'vocab_size = 100\nboundary_dtypes = ["int8"]', "boundary_dtypes"),
        ('endpoint = "127.0.0.1:5001"', 'endpoint = "a:1"\nstart = ["x"]', "shards.0"),
    ],
)
def test_a_malformed_descriptor_is_refused_at_its_place(
    tmp_path: Path, old: str, new: str, says: str
) -> None:
    assert old in MINIMAL
    with pytest.raises(Refusal) as refusal:
        read(tmp_path, MINIMAL.replace(old, new))
    assert says in refusal.value.message


def test_a_missing_file_is_refused_with_what_to_give_instead(tmp_path: Path) -> None:
    with pytest.raises(Refusal, match="give a TOML file, or reference"):
        load(str(tmp_path / "none.toml"))


def test_the_reference_takes_a_mutant_into_every_start_command() -> None:
    plain, mutated = load("reference"), load("reference:some-name")
    assert mutated.shards[0].launch is not None
    assert mutated.shards[0].launch.command[-2:] == ("--mutant", "some-name")
    assert mutated.shards[0].reduced_limits is not None
    assert mutated.shards[0].reduced_limits.command[-2:] == ("--mutant", "some-name")
    assert mutated.digest != plain.digest
    assert mutated.name == "meshnet-reference:some-name"


def test_the_small_reference_is_another_descriptor() -> None:
    assert load("reference", small=True).model.hidden_size == 16
    assert load("reference").model.hidden_size == 64


def test_the_published_schema_is_itself_valid() -> None:
    jsonschema = pytest.importorskip("jsonschema")
    schema = json.loads((folder("fixtures") / "target.schema.json").read_bytes())
    jsonschema.Draft202012Validator.check_schema(schema)


def test_a_codec_testee_is_a_command_with_what_it_adds_to_the_environment(tmp_path: Path) -> None:
    text = MINIMAL + '\n[codec]\ncommand = ["{folder}/testee"]\nenvironment = { LC_ALL = "C" }\n'
    codec = read(tmp_path, text).codec
    assert codec is not None
    assert (codec.command, codec.environment) == (("{folder}/testee",), {"LC_ALL": "C"})
    assert read(tmp_path, MINIMAL).codec is None


def test_a_codec_testee_without_a_command_is_refused(tmp_path: Path) -> None:
    with pytest.raises(Refusal, match="codec: 'command' is a required property"):
        read(tmp_path, MINIMAL + '\n[codec]\nstart = ["testee"]\n')


def test_a_mutant_is_named_to_the_shard_and_to_the_testee_of_the_reference() -> None:
    descriptor = load("reference:one-session")
    assert descriptor.codec is not None
    assert descriptor.codec.command[-2:] == ("--mutant", "one-session")
    assert load("reference").codec is not None
