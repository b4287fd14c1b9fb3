"""A run with all that its readers need: what was signed, what was recorded, what it came to."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pytest_meshnet.evidence.documents import HEX_DIGEST, Start
from pytest_meshnet.evidence.journal import Collection
from pytest_meshnet.evidence.recorded import Recorded
from pytest_meshnet.evidence.summary import Summary
from pytest_meshnet.ledger.requirements import Ledger

if TYPE_CHECKING:
    from pytest_meshnet.evidence.verify.material import Material

READ_LIMIT = 8 * 1024 * 1024
"""Longest attachment in bytes that is read into a page."""


@dataclass(frozen=True, slots=True)
class Judged:
    """One run, judged from its journals by `summarize`; `sealed` too when it is about to be."""

    root: Path
    start: Start
    plan: Collection
    recorded: Recorded
    summary: Summary
    ledger: Ledger
    sealed: bool = True

    @classmethod
    def of(cls, material: Material) -> Judged | None:
        """Return what was read of a bundle, or None when it could not be judged."""
        start, summary, ledger = material.start, material.summary, material.ledger
        if start is None or summary is None or ledger is None:
            return None
        return cls(
            material.root,
            start,
            material.collection,
            material.recorded,
            summary,
            ledger,
            material.sealed,
        )

    @property
    def endpoint_only(self) -> bool:
        """Whether the target was only an endpoint, so that nobody saw it start."""
        launched = self.recorded.facts().get("launch")
        return launched is not None and launched.value is False

    def read(self, attachment: Mapping[str, Any]) -> bytes | None:
        """Return the bytes of an attachment of the journals, None when they are not there.

        A link, a folder, and what is longer than `READ_LIMIT` count as not there.
        """
        digest = attachment["sha256"]
        if not attachment["stored"] or not HEX_DIGEST.fullmatch(digest):
            return None
        path = self.root / "artifacts" / "sha256" / digest
        try:
            descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
            with open(descriptor, "rb") as stream:
                data = stream.read(READ_LIMIT + 1)
        except OSError:
            return None
        return data if len(data) <= READ_LIMIT else None
