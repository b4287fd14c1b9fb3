from __future__ import annotations

import os
from pathlib import Path

import pytest

from pytest_meshnet.evidence.signing.keys import SigningKey, keygen


@pytest.fixture(autouse=True)
def _no_waiting_for_the_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    """No test pulls the plug, so none waits for the disk."""
    monkeypatch.setattr(os, "fsync", lambda descriptor: None)


@pytest.fixture
def key(tmp_path: Path) -> SigningKey:
    """A key that somebody keeps."""
    path = tmp_path / "signing-key.pem"
    keygen(path)
    return SigningKey.load(path)
