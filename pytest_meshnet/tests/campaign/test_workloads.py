"""The manifest: frozen words, exact rules, and the smoke manifest that is shipped."""

import hashlib
import json

import pytest

from pytest_meshnet.campaign.errors import CampaignRefused
from pytest_meshnet.campaign.simulated.rig import smoke_manifest
from pytest_meshnet.campaign.workloads.classes import CLASSES
from pytest_meshnet.campaign.workloads.manifest import load
from pytest_meshnet.tests.campaign.running import call


def entry(**changes):
    told = {
        "class_id": "W4",
        "content": "Grüße",
        "content_sha256": hashlib.sha256("Grüße".encode()).hexdigest(),
        "output_tokens": 128,
        "sampling": {"temperature": 1.0, "top_p": 0.95, "top_k": 20},
        "seed": None,
        "ignore_eos": True,
        "chat_template_kwargs": {"enable_thinking": False},
        "role": "user",
    }
    return {name: value for name, value in (told | changes).items() if value is not ...}


def manifest(tmp_path, *entries, **changes):
    told = {
        "schema": "inferswarm.phase0.workload-manifest/1",
        "manifest_id": "test",
        "canonical": True,
        "workloads": list(entries),
    }
    path = tmp_path / "manifest.json"
    path.write_text(json.dumps(told | changes))
    return path


def test_a_manifest_is_read_with_its_digests(tmp_path):
    path = manifest(tmp_path, entry())
    found = load(path)
    assert found.sha256 == hashlib.sha256(path.read_bytes()).hexdigest()
    assert found.workloads["W4"].content == "Grüße"
    assert "Grüße" not in json.dumps(found.document())


def test_a_request_says_exactly_what_the_manifest_says(tmp_path):
    assert load(manifest(tmp_path, entry())).workloads["W4"].body("m") == {
        "model": "m",
        "messages": [{"role": "user", "content": "Grüße"}],
        "max_tokens": 128,
        "stream": True,
        "stream_options": {"include_usage": True},
        "ignore_eos": True,
        "chat_template_kwargs": {"enable_thinking": False},
        "temperature": 1.0,
        "top_p": 0.95,
        "top_k": 20,
    }


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"content": "Grüsse"}, "a frozen prompt is never changed"),
        ({"content_sha256": "0" * 64}, "a frozen prompt is never changed"),
        ({"content": ...}, "neither or both"),
        ({"fixture_path": "w4.txt"}, "neither or both"),
        ({"content": 4}, "expected a text"),
        ({"class_id": "W5"}, "expected one of W1, W2, W3, W4"),
        ({"output_tokens": 127}, "output_tokens is 127: 128"),
        ({"output_tokens": True}, "output_tokens is True"),
        ({"seed": 0}, "seed is 0: expected null"),
        ({"sampling": {"temperature": 1.0, "top_p": 0.95}}, "temperature, top_p, top_k"),
        ({"sampling": {"temperature": 1, "top_p": 1, "top_k": 1, "min_p": 0}}, "sampling is"),
        ({"sampling": {"temperature": None, "top_p": 1, "top_k": 1}}, "expected numbers"),
        ({"ignore_eos": 1}, "ignore_eos is 1: expected bool"),
        ({"chat_template_kwargs": None}, "chat_template_kwargs is None"),
        ({"role": ...}, "expected exactly"),
        ({"extra": 1}, "expected exactly"),
    ],
)
def test_a_workload_that_is_not_exactly_one_is_refused(tmp_path, changes, message):
    with pytest.raises(CampaignRefused, match=message):
        load(manifest(tmp_path, entry(**changes)))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"schema": "other/1"}, "schema is 'other/1'"),
        ({"canonical": "yes"}, "canonical true or false"),
        ({"workloads": []}, "a class twice or none"),
        ({"workloads": [entry(), entry()]}, "a class twice or none"),
        ({"notes": ""}, "expected exactly"),
    ],
)
def test_a_manifest_of_another_form_is_refused(tmp_path, changes, message):
    with pytest.raises(CampaignRefused, match=message):
        load(manifest(tmp_path, entry(), **changes))


def test_a_prompt_lies_below_its_manifest(tmp_path):
    (tmp_path / "outside.txt").write_text("outside")
    inner = tmp_path / "inner"
    inner.mkdir()
    away = entry(content=..., fixture_path="../outside.txt")
    with pytest.raises(CampaignRefused, match="leaves"):
        load(manifest(inner, away))
    with pytest.raises(CampaignRefused, match="cannot be read"):
        load(manifest(inner, entry(content=..., fixture_path="absent.txt")))


def test_the_smoke_manifest_is_of_every_class_and_of_no_canonical_run():
    found = load(smoke_manifest())
    assert list(found.workloads) == list(CLASSES)
    assert not found.declares_canonical
    for name, one in found.workloads.items():
        assert CLASSES[name].fits(len(one.content.split()))


def freeze(out, *prompts, extra=()):
    words = [word for one in prompts for word in ("--prompt", one)]
    sampling = ["--temperature", 1.0, "--top-p", 0.95, "--top-k", 20]
    return call("campaign", "freeze", out, *words, "--id", "mine", *sampling, *extra)


def test_freezing_writes_the_digest_of_each_prompt_and_never_overwrites(tmp_path):
    (tmp_path / "w4.txt").write_text("four words are here")
    out = tmp_path / "manifest.json"
    done = freeze(out, f"W4={tmp_path / 'w4.txt'}")
    assert done.exit_code == 0, done.output
    assert done.output.split()[0] == load(out).sha256
    before = out.read_bytes()
    again = freeze(out, f"W4={tmp_path / 'w4.txt'}")
    assert (again.exit_code, out.read_bytes()) == (2, before)
    assert "never overwritten" in again.stderr


@pytest.mark.parametrize(
    ("prompt", "extra", "message"),
    [
        ("W9={}", (), "'W9' is no class"),
        ("W4={}", ("--canonical",), "a canonical manifest has all"),
        ("W4={}.gone", (), "cannot be read"),
        ("W4=/etc/hostname", (), "put it beside the manifest"),
        ("W4={}", ("--template", "{"), "refused"),
    ],
)
def test_freezing_refuses_what_no_run_could_use(tmp_path, prompt, extra, message):
    (tmp_path / "w4.txt").write_text("words")
    out = tmp_path / "manifest.json"
    done = freeze(out, prompt.format(tmp_path / "w4.txt"), extra=extra)
    assert done.exit_code == 2
    assert message in done.stderr
    assert not out.exists()
