"""`init`, `explain` and `proto`: what they write, print and refuse."""

from __future__ import annotations

import socket
import tomllib
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from pytest_meshnet import cli
from pytest_meshnet.authoring.descriptor_file import FILL_IN, descriptor
from pytest_meshnet.authoring.exchange.canonical import exchanges
from pytest_meshnet.authoring.exchange.notation import parse
from pytest_meshnet.authoring.explain import accepted
from pytest_meshnet.ledger.requirements import Ledger
from pytest_meshnet.protocol.generated import shard_runtime_pb2 as pb
from pytest_meshnet.reference.catalogue import entries
from pytest_meshnet.runtime.descriptor import load
from pytest_meshnet.runtime.errors import Refusal
from pytest_meshnet.tests.authoring.bent import bent_runtime


def call(*args: object) -> tuple[int, str]:
    result = CliRunner().invoke(cli.main, [str(one) for one in args])
    return result.exit_code, result.output


# init


def of_1_0(answer: Any) -> list[Any]:
    """An answer without what 1.1 tells of the model."""
    answer.ClearField("boundary")
    return [answer]


@pytest.fixture
def written(tmp_path: Path) -> tuple[Path, str, str]:
    """A descriptor that init wrote of a running worker: the file, what was said, the endpoint."""
    out = tmp_path / "mine.toml"
    with bent_runtime(of_1_0) as address:
        code, shown = call("init", address, "--out", out)
    assert code == 0, shown
    return out, shown, address


def filled(text: str) -> str:
    values = {
        'name = ""': 'name = "n"',
        'vendor = ""': 'vendor = "v"',
        'version = ""': 'version = "1"',
        "layers = 0": "layers = 4",
        "hidden_size = 0": "hidden_size = 16",
        "vocab_size = 0": "vocab_size = 256",
    }
    for place, value in values.items():
        assert f"\n{place}" in text
        text = text.replace(place, value)
    return text


def test_init_writes_what_was_reported_and_names_the_places_to_fill_in(written) -> None:
    out, shown, address = written
    document = tomllib.loads(out.read_text())
    assert document["shards"] == [{"range": [1, 3], "endpoint": address}]
    assert document["profiles"] == ["core-wire"]
    assert "backend 'numpy', device 'cpu'" in out.read_text()
    assert "fill in name, vendor, version, layers, hidden_size, vocab_size" in shown
    assert f"pytest-meshnet doctor --target {out}" in shown


def test_a_descriptor_is_refused_until_every_place_is_filled_in(written) -> None:
    out, _, _ = written
    text = out.read_text()
    places = [line for line in text.splitlines() if FILL_IN in line and not line.startswith("#")]
    whole = filled(text)
    out.write_text(whole)
    assert load(str(out)).model.hidden_size == 16
    for place in places:
        key = place.split(" = ")[0]
        lines = [place if line.startswith(f"{key} = ") else line for line in whole.splitlines()]
        out.write_text("\n".join(lines))
        with pytest.raises(Refusal, match=key):
            load(str(out))


def test_init_never_overwrites(written) -> None:
    out, _, _ = written
    before = out.read_text()
    code, shown = call("init", "127.0.0.1:1", "--out", out)
    assert code == 2
    assert f"{out} exists and is never overwritten" in shown
    assert out.read_text() == before


def test_init_says_what_to_do_where_nothing_answers(tmp_path: Path) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        endpoint = f"127.0.0.1:{free.getsockname()[1]}"
    code, shown = call("init", endpoint, "--out", tmp_path / "t.toml")
    assert code == 2
    assert "start the runtime, without TLS, and check host and port" in shown
    assert not (tmp_path / "t.toml").exists()


def test_init_says_what_to_implement_where_the_call_is_missing(tmp_path: Path) -> None:
    with bent_runtime(without="GetCapability") as address:
        code, shown = call("init", address, "--out", tmp_path / "t.toml")
    assert code == 2
    assert "implement GetCapability" in shown


@pytest.mark.parametrize("endpoint", ["localhost", ":50051", "host:port"])
def test_what_is_no_endpoint_is_refused(endpoint: str, tmp_path: Path) -> None:
    code, shown = call("init", endpoint, "--out", tmp_path / "t.toml")
    assert code == 2
    assert f"{endpoint!r} is no endpoint: expected HOST:PORT" in shown


def test_a_report_without_a_range_leaves_it_to_fill_in() -> None:
    text = descriptor("h:1", pb.CapabilityReport())
    assert "range = [0, 0]" in text
    assert "none was reported" in text


def test_a_reported_boundary_leaves_no_model_to_describe() -> None:
    report = pb.CapabilityReport(shard_range=pb.ShardRange(start_layer=1, end_layer=3))
    report.boundary.hidden_size, report.boundary.vocab_size = 16, 256
    text = descriptor("h:1", report)
    assert "model" not in tomllib.loads(text)
    assert "hidden size 16, vocabulary\n# 256): the file needs no [model]" in text


# explain


def test_explain_gives_statement_picture_answers_tests_and_mutants() -> None:
    code, shown = call("explain", "DECODE-02")
    assert code == 0
    one = Ledger.load().get("DECODE-02")
    assert shown.startswith(f"DECODE-02 {one.title} (MUST, profile core, examines the runtime)\n")
    assert " ".join(shown.split()).count(one.statement) == 1
    assert "|-- decode work=w2 step=2 position=3 ---" in shown
    assert "status CACHE_MISS for w2 after which the session goes on (actual_past_len 4" in shown
    assert "conformance/test_decode.py::test_a_wrong_length_is_a_cache_miss" in shown
    for mutant in entries():
        assert (f"{mutant.name}: " in shown) == (mutant.requirement == "DECODE-02")


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("KV-01", "needs sessions>=2: max_concurrent_sessions is at least 2"),
        ("CODEC-01", "examines the suite's own codec"),
        ("PARITY-01", "examines several Shards together"),
        ("ROBUST-05", "about many inputs, times or resources"),
    ],
)
def test_explain_says_what_is_needed_or_why_there_is_no_exchange(name: str, said: str) -> None:
    code, shown = call("explain", name)
    assert code == 0
    assert said in " ".join(shown.split())


def test_an_unknown_requirement_is_refused_with_the_nearest() -> None:
    code, shown = call("explain", "DECODE-2")
    assert code == 2
    assert "did you mean DECODE-02" in shown


def test_answers_are_said_in_words() -> None:
    script = parse(
        "-> open\n<- accepted epoch=2\n<- ? chunk work=w1\n<- status A|B work=w1 or ack work=w1\n"
        "<- status * terminal"
    )
    assert list(accepted(script)) == [
        "accepted (epoch 2)",
        "perhaps result for w1",
        "status A or B for w1 after which the session goes on, or ack for w1",
        "status any code that ends the stream",
    ]


def test_every_exchange_can_be_said_in_words() -> None:
    assert all(list(accepted(script)) for script in exchanges().values())


# proto


def test_proto_prints_the_schema_that_the_suite_uses(tmp_path: Path) -> None:
    code, shown = call("proto")
    assert code == 0
    out = tmp_path / "shard_runtime.proto"
    assert call("proto", "--out", out) == (0, f"wrote {out}\n")
    assert out.read_text() == shown
    assert "package meshnet.shard.v1;" in shown
    assert "service ShardRuntime {" in shown


def test_proto_never_overwrites(tmp_path: Path) -> None:
    out = tmp_path / "shard_runtime.proto"
    out.write_text("mine")
    code, shown = call("proto", "--out", out)
    assert code == 2
    assert "is never overwritten" in shown
    assert out.read_text() == "mine"
