"""The folder of one run: what lies where, and that no reader ever sees half a document."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

RUN = "run.json"
SUMMARY = "SUMMARY.md"
PAGE = "report.html"
BANDWIDTH_LOG = "bench_bw.log"


@dataclass(frozen=True, slots=True)
class RunFolder:
    """`OUT/session-N/`: run.json, SUMMARY.md, report.html, blocks/, logs/ and evidence/."""

    root: Path

    def make(self) -> None:
        """Make the folder. Raises FileExistsError: there is no resume.

        The folder of all runs is ignored by git, so that one session cannot dirty the checkout
        of the next.
        """
        runs = self.root.parent
        runs.mkdir(parents=True, exist_ok=True)
        (runs / ".gitignore").write_text("*\n", encoding="utf-8")
        self.root.mkdir()
        self.logs.mkdir()
        (self.root / "blocks").mkdir()

    @property
    def logs(self) -> Path:
        """Where the output of every process is kept."""
        return self.root / "logs"

    @property
    def evidence(self) -> Path:
        """Where the signed bundle goes."""
        return self.root / "evidence"

    def block(self, arm_id: str, class_id: str) -> Path:
        """Return the JSONL file of one block."""
        return self.root / "blocks" / arm_id / f"{class_id}.jsonl"

    def append(self, arm_id: str, class_id: str, record: Mapping[str, Any]) -> None:
        """Add a repetition to its block, on the disk when this returns."""
        path = self.block(arm_id, class_id)
        path.parent.mkdir(exist_ok=True)
        with path.open("a", encoding="utf-8") as stream:
            stream.write(json.dumps(record, allow_nan=False) + "\n")
            stream.flush()
            os.fsync(stream.fileno())

    def write(self, name: str, document: bytes) -> None:
        """Put a whole document in place; whoever reads sees the old one or the new one."""
        partial = self.root / f".{name}.partial"
        partial.write_bytes(document)
        partial.replace(self.root / name)

    def files(self) -> list[Path]:
        """Return every file of the run but those of the bundle, in the order of their names."""
        found = (path for path in self.root.rglob("*") if path.is_file())
        return sorted(path for path in found if not path.is_relative_to(self.evidence))
