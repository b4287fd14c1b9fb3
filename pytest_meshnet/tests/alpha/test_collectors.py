"""Collectors measure: a worker that misbehaves is seen, and what cannot be known stays open."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from acceptance.alpha.tiny_route import served_identity
from pytest_meshnet.alpha.collectors import api, machine, protocol, storage
from pytest_meshnet.alpha.collectors.claims import RecordBuilder, claim
from pytest_meshnet.alpha.criteria.semantics import KINDS
from pytest_meshnet.identity.node import Identity
from pytest_meshnet.protocol.generated import shard_runtime_pb2 as pb
from pytest_meshnet.reference.seeded_weights import SMALL
from pytest_meshnet.runtime.errors import Nonconformance
from pytest_meshnet.tests.serving import Quiet, serving
from pytest_meshnet.tests.small import shard_of


def identity() -> Identity:
    return served_identity(SMALL, 1, 3)


def values(claims: Any) -> dict[str, Any]:
    assert all(one["source"] == "measured" for one in claims.values())
    return {name: one["value"] for name, one in claims.items()}


# Protocol ---------------------------------------------------------------------------------------


def test_every_kind_of_mismatch_is_tried_and_refused() -> None:
    found = protocol.handshakes(shard_of(), identity())
    assert tuple(found) == KINDS
    assert {tuple(values(one).items()) for one in found.values()} == {
        (("tried", 1), ("refused", 1))
    }


@pytest.mark.parametrize(
    ("mutant", "accepted"),
    [
        ("ignores-the-artifact", {"artifact", "dsa-metadata"}),
        ("ignores-the-recipe", set(KINDS) - {"artifact", "dsa-metadata"}),
    ],
)
def test_an_accepted_mismatch_is_counted(mutant: str, accepted: set[str]) -> None:
    found = protocol.handshakes(shard_of(mutant), identity())
    assert {kind for kind, one in found.items() if not one["refused"]["value"]} == accepted


def test_each_kind_changes_another_axis() -> None:
    digests = {
        (one.model_artifact_digest, one.runtime_recipe_digest)
        for _, one in protocol.mismatches(identity())
    }
    assert len(digests) == len(KINDS)


def test_handshakes_with_an_identity_that_is_not_served_say_so() -> None:
    other = identity()
    other = replace(other, recipe=replace(other.recipe, kv_dtype="Q8_0"))
    with pytest.raises(Nonconformance, match="declare the identity that the Shard serves"):
        protocol.handshakes(shard_of(), other)


def _crashing(*_: object) -> pb.ShardStatus:
    return pb.ShardStatus(error=pb.ShardError(code=pb.ERROR_CODE_INTERNAL))


def test_a_crash_is_no_refusal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(protocol, "try_edited", _crashing)
    found = protocol.handshakes(shard_of(), identity())
    assert {values(one)["refused"] for one in found.values()} == {0}


@pytest.mark.parametrize(("mutant", "refused"), [("", 2), ("accepts-an-epoch-twice", 1)])
def test_stale_epochs_are_tried(mutant: str, refused: int) -> None:
    assert values(protocol.stale_epoch(shard_of(mutant))) == {"tried": 2, "refused": refused}


@pytest.mark.parametrize(
    ("mutant", "duplicates", "moved"),
    [("", 1, 0), ("duplicate-looks-new", 0, 0), ("duplicate-moves-the-position", 1, 1)],
)
def test_a_replayed_step_is_counted(mutant: str, duplicates: int, moved: int) -> None:
    found = values(protocol.replayed_step(shard_of(mutant)))
    assert found["duplicates"] == duplicates
    assert found["past_len_after"] - found["past_len_before"] == moved


# The machine and its storage --------------------------------------------------------------------


def test_memory_is_measured_on_the_process_itself() -> None:
    found = values(machine.memory(os.getpid()))
    assert 0 < found["peak_rss_bytes"] < found["usable_bytes"]
    assert 0 < found["reserve_bytes"] < found["usable_bytes"]
    assert isinstance(found["overcommitted"], bool)
    with pytest.raises(FileNotFoundError):
        machine.memory(2**22 + 1)


def test_a_link_is_resolved_before_its_place_is_judged(tmp_path: Path) -> None:
    (tmp_path / "real.gguf").touch()
    (tmp_path / "link.gguf").symlink_to(tmp_path / "real.gguf")
    (found,) = storage.artifacts([tmp_path / "link.gguf"])
    assert values(found)["resolved_path"] == str((tmp_path / "real.gguf").resolve())
    (device,) = storage.artifacts([Path("/proc/self/status")])
    assert values(device)["mounted"] is True
    with pytest.raises(FileNotFoundError):
        storage.artifacts([tmp_path / "absent.gguf"])


@pytest.mark.parametrize(
    "line",
    [
        "-----BEGIN OPENSSH PRIVATE KEY-----",
        "using AKIAABCDEFGHIJKLMNOP",
        "hf_abcdefghijklmnopqrstuvwx",
        "key sk-abcdefghijklmnopqrstuvwx",
        "Authorization: Bearer abcdefghijklmnopqrst",
        "connecting with password=hunter2hunter2",
        "API_KEY: 0123456789abcdef",
        "HF_TOKEN=0123456789abcdef",
        "github_token: short",
        "token='0123456789abcdef'",
        "cookie eyJhbGciOiJIUzI1.eyJzdWIiOiIxMjM.c2lnbmVk",
    ],
)
def test_a_credential_in_a_log_is_found(line: str) -> None:
    found = values(storage.scan(["harmless\n" + line, ""], ["a long prompt"]))
    assert (found["files_scanned"], found["secrets_found"]) == (2, 1)
    assert found["prompt_payloads_found"] == 0


def test_a_prompt_in_a_log_is_found_and_ordinary_lines_are_not() -> None:
    log = "served 12 tokens, api_key=None\nprompt: Write a parser for INI files\ntoken rate 4.5"
    found = values(storage.scan([log], ["Write a parser for INI files"]))
    assert (found["secrets_found"], found["prompt_payloads_found"]) == (0, 1)
    with pytest.raises(ValueError, match="too short"):
        storage.scan([log], ["Hi"])


def test_a_scan_tells_how_much_it_looked_at_and_for() -> None:
    found = values(storage.scan(["one\ntwo\n", ""], ["a long prompt"]))
    assert (found["lines_scanned"], found["prompts_searched"]) == (2, 1)
    nothing = values(storage.scan([""], []))
    assert (nothing["lines_scanned"], nothing["prompts_searched"]) == (0, 0)


@pytest.mark.parametrize(
    ("logs", "prompts", "against"),
    [
        (["served\n"], ["a long prompt"], []),
        ([], ["a long prompt"], ["files_scanned is 0", "lines_scanned is 0"]),
        ([""], ["a long prompt"], ["lines_scanned is 0"]),
        (["served\n"], [], ["prompts_searched is 0"]),
        (["got: a long prompt\n"], ["a long prompt"], ["prompt_payloads_found is 1"]),
    ],
)
def test_a_scan_of_nothing_stands_against_a_machine_as_what_was_found_does(
    logs: list[str], prompts: list[str], against: list[str]
) -> None:
    assert storage.objections(storage.scan(logs, prompts)) == against


LONG = "Write a parser for INI files.\nAnswer with the code alone, in Python 3.11, and no prose."


@pytest.mark.parametrize(
    "log",
    [
        LONG,
        json.dumps({"prompt": LONG}),
        f"prompt ({len(LONG)} characters): {LONG[20:80]!r}...",
        "got: Answer with the code alone, in Python 3",
    ],
    ids=["raw", "escaped", "a piece", "cut off"],
)
def test_a_prompt_of_several_lines_is_found_in_any_form(log: str) -> None:
    assert values(storage.scan([log], [LONG]))["prompt_payloads_found"] >= 1
    harmless = "Answer with the code 200\nWrite a parser"
    assert values(storage.scan([harmless], [LONG]))["prompt_payloads_found"] == 0


# The API ----------------------------------------------------------------------------------------


CUT = b'{"choices": ['
"""An answer that ends before its announced length."""


@pytest.fixture
def endpoint() -> Iterator[Any]:
    """An HTTP server that answers what the test puts into `answers`, by path."""
    answers: dict[str, bytes] = {}

    class Handler(Quiet):
        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["Content-Length"]))
            body = answers.get(self.path)
            self.send_response(200 if body is not None else 404)
            if body == CUT:
                self.send_header("Content-Length", "100")
            self.end_headers()
            self.wfile.write(body or b"")

    with serving(Handler) as origin:
        yield f"{origin}/v1", answers


USAGE = {"prompt_tokens": 3, "completion_tokens": 2, "total_tokens": 5}


def test_a_completion_is_kept_raw_and_an_absent_field_stays_open(endpoint: Any) -> None:
    base, answers = endpoint
    choice = {"message": {"content": "Hello"}, "finish_reason": "stop"}
    answers["/v1/chat/completions"] = json.dumps({"choices": [choice], "usage": USAGE}).encode()
    answer = api.chat(base, {"messages": []}, timeout=10)
    assert answer.text == "Hello"
    assert answer.raw == answers["/v1/chat/completions"]
    assert values(answer.response) == {"finish_reason": "stop", "usage": USAGE}


@pytest.mark.parametrize(
    "body",
    [
        None,
        b"no JSON",
        b'{"choices": []}',
        b"[]",
        CUT,
        b'{"choices": [{"message": {"content": null}}]}',
    ],
)
def test_what_is_no_completion_is_said_so(endpoint: Any, body: bytes | None) -> None:
    base, answers = endpoint
    if body is not None:
        answers["/v1/chat/completions"] = body
    with pytest.raises(api.ApiFailed):
        api.chat(base, {"messages": []}, timeout=10)


def test_the_template_is_what_the_server_renders(endpoint: Any) -> None:
    base, answers = endpoint
    answers["/apply-template"] = b'{"prompt": "<|system|>Reasoning Effort: Max"}'
    assert api.rendered(base, [], timeout=10) == "<|system|>Reasoning Effort: Max"
    del answers["/apply-template"]
    for body in ({}, {"/apply-template": b'{"prompt": null}'}, {"/apply-template": b"[]"}):
        answers |= body
        with pytest.raises(api.ApiFailed):
            api.rendered(base, [], timeout=10)


# The record -------------------------------------------------------------------------------------


def test_a_record_is_filled_by_path_and_refuses_a_place_that_it_does_not_have(
    tmp_path: Path,
) -> None:
    made = RecordBuilder(synthetic=True)
    made.fill("performance", {"warmups": claim(1, "test")})
    made.attach("raw.json", b"{}")
    with pytest.raises(KeyError, match="performance/speed"):
        made.fill("performance", {"speed": claim(1, "test")})
    made.fill("reliability", {"replayed_step": {"tried": claim(1, "test")}})
    path = made.save(tmp_path)
    told = json.loads(path.read_text())
    assert told["performance"]["warmups"]["value"] == 1
    assert told["performance"]["ttft_seconds"] is None
    assert told["reliability"]["replayed_step"]["past_len_after"] is None
    assert (tmp_path / "raw.json").read_bytes() == b"{}"
