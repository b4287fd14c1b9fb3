"""A target that does what a test wrote into target.json, in place of the real one."""

import json
import os
import time
from types import SimpleNamespace

import pytest

from pytest_meshnet import layout
from pytest_meshnet.ledger.applicability import Fact
from pytest_meshnet.runtime.errors import Refusal, TargetLost
from pytest_meshnet.suite.evidence import attachments_of


def home():
    return layout.folder("conformance").parent


def told():
    return json.loads((home() / "target.json").read_text())


def note(line):
    with (home() / "calls.txt").open("a") as calls:
        calls.write(f"{line}\n")


def descriptor_of(config):
    if "descriptor_refusal" in told():
        raise Refusal(told()["descriptor_refusal"])
    return SimpleNamespace(
        name="fake",
        digest="ab" * 32,
        profiles=tuple(told()["profiles"]),
        artifacts=told().get("artifacts", {}),
        publishes_prompts=told().get("prompts", False),
    )


def connect(config, claimed):
    note(f"connect {os.getpid()}")
    time.sleep(told().get("starts_in", 0))
    if "refusal" in told():
        raise Refusal(told()["refusal"])
    if "lost" in told():
        raise TargetLost(told()["lost"])
    return {name: Fact(value, source) for name, (value, source) in told()["facts"].items()}


def claims(config):
    return {"backend": Fact("fake numpy", "capability")}


def granted(config):
    return told().get("granted", False)


def disconnect(config):
    note(f"disconnect {os.getpid()}")
    if "disconnect_error" in told():
        raise OSError(told()["disconnect_error"])
    return told().get("crash", "")


def logs(config):
    return told().get("logs", {})


def trace_text(item, broken):
    return told().get("frames")


@pytest.fixture
def attachments(request):
    return attachments_of(request.node)


@pytest.fixture
def target():
    return "the fake target"


@pytest.fixture
def codec_testee():
    return "the fake codec"
