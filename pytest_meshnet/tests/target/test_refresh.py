"""Asking the hub: metadata only, findings for people, and never a changed pin. No network here."""

import io
import json
from typing import Any
from urllib.error import URLError

import pytest

from pytest_meshnet.target import refresh as module
from pytest_meshnet.target.documents import LockedTarget
from pytest_meshnet.target.fields import TargetRefused
from pytest_meshnet.target.refresh import refresh

TARGET = LockedTarget.load()


class Hub:
    """A hub that confirms everything, until a test changes one of its answers."""

    def __init__(self) -> None:
        manifest, snapshot = TARGET.manifest, TARGET.snapshot
        self.asked: list[str] = []
        self.artifact = {
            "sha": manifest.artifact.revision,
            "siblings": [
                {"rfilename": s.path, "size": s.size_bytes, "lfs": {"sha256": s.sha256}}
                for s in manifest.shards
            ],
        }
        self.source = {
            "sha": snapshot.source.revision,
            "siblings": [{"rfilename": f.path, "size": f.size_bytes} for f in snapshot.files],
        }

    def __call__(self, url: str) -> bytes:
        self.asked.append(url)
        found = self.artifact if TARGET.manifest.artifact.repo_id in url else self.source
        return json.dumps(found).encode()


def test_a_hub_that_confirms_every_pin_gives_no_finding_and_is_asked_for_metadata_only():
    hub = Hub()
    assert refresh(TARGET, hub) == ()
    assert len(hub.asked) == 2
    for url, repository in zip(
        hub.asked, (TARGET.manifest.artifact, TARGET.snapshot.source), strict=True
    ):
        assert "/api/models/" in url
        assert "/resolve/" not in url
        assert repository.revision in url


def changed(name: str) -> Hub:
    hub = Hub()
    first: dict[str, Any] = hub.artifact["siblings"][0]
    if name == "revision":
        hub.artifact["sha"] = "0" * 40
    elif name == "no-revision":
        del hub.artifact["sha"]
    elif name == "gone":
        hub.artifact["siblings"] = hub.artifact["siblings"][1:]
    elif name == "no-list":
        hub.source["siblings"] = None
    elif name == "size":
        first["size"] += 1
    elif name == "digest":
        first["lfs"]["sha256"] = "0" * 64
    elif name == "no-digest":
        del first["lfs"]
    elif name == "config-size":
        hub.source["siblings"][0]["size"] = None
    return hub


@pytest.mark.parametrize(
    ("name", "codes"),
    [
        ("revision", ["revision"]),
        ("no-revision", ["revision"]),
        ("gone", ["file-gone"]),
        ("no-list", ["file-gone"] * 4),
        ("size", ["file-size"]),
        ("digest", ["file-digest"]),
        ("no-digest", ["file-digest"]),
        ("config-size", ["file-size"]),
    ],
)
def test_a_contradiction_is_a_finding_and_heals_nothing(name, codes):
    assert [finding.code for finding in refresh(TARGET, changed(name))] == codes
    assert LockedTarget.load() == TARGET


@pytest.mark.parametrize("reply", [b"", b"[]", b"<html>", b'{"sha": 1, "sha": 2}'])
def test_a_reply_that_is_no_metadata_is_refused(reply):
    with pytest.raises(TargetRefused) as refused:
        refresh(TARGET, lambda _url: reply)
    assert refused.value.code == "hub-reply"


@pytest.mark.parametrize(("size", "code"), [(8, None), (9, "hub-reply")])
def test_a_reply_without_end_is_not_read_to_its_end(monkeypatch, size, code):
    asked = []

    def served(request: Any, timeout: float) -> Any:
        asked.append((request.full_url, timeout))
        return io.BytesIO(b"{}" + b" " * (size - 2))

    monkeypatch.setattr("urllib.request.urlopen", served)
    monkeypatch.setattr(module, "MAX_REPLY_BYTES", 8)
    if code is None:
        assert {finding.code for finding in refresh(TARGET)} == {"revision", "file-gone"}
    else:
        with pytest.raises(TargetRefused) as refused:
            refresh(TARGET)
        assert refused.value.code == code
    assert all(url.startswith("https://") and timeout > 0 for url, timeout in asked)


def test_without_a_network_it_is_refused_and_no_pass(monkeypatch):
    def unreachable(*_: object, **__: object) -> None:
        raise URLError("no network")

    monkeypatch.setattr("urllib.request.urlopen", unreachable)
    with pytest.raises(TargetRefused, match="needs a network") as refused:
        refresh(TARGET)
    assert refused.value.code == "hub-unreachable"
