"""Claims with their source, and a record that is filled path by path."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

from pytest_meshnet.alpha.record import check, template

Source = Literal["measured", "reported", "configured"]
Claims = dict[str, dict[str, Any]]


def claim(value: Any, by: str, source: Source = "measured") -> dict[str, Any]:
    """One value with its source and who says so."""
    return {"value": value, "source": source, "by": by}


def claims(by: str, values: Mapping[str, Any], source: Source = "measured") -> Claims:
    """Several values of one source."""
    return {name: claim(value, by, source) for name, value in values.items()}


class RecordBuilder:
    """A record under construction: it begins with every claim open.

    `synthetic` says whether the machines or the weights are invented.
    """

    def __init__(self, *, synthetic: bool) -> None:
        self.record: dict[str, Any] = template()
        self.record |= {"synthetic": synthetic, "attachments": []}
        self._files: dict[str, bytes] = {}

    def fill(self, path: str, found: Mapping[str, Any]) -> None:
        """Put claims or parts into the part at `path` ("reliability/worker_loss").

        What a part does not tell stays open.
        Raises KeyError for a path or a name that a record does not have.
        """
        part = self.record
        for name in path.split("/"):
            part = part[name]
        for name, value in found.items():
            if name not in part:
                raise KeyError(f"{path}/{name} is no place of a record")
            blank = part[name]
            part[name] = blank | value if isinstance(blank, dict) else value

    def nodes(self, nodes: list[dict[str, Any]]) -> None:
        """Put the machines, each a mapping of claims; what one does not tell stays open."""
        (blank,) = self.record["identity_and_fit"]["nodes"]
        self.record["identity_and_fit"]["nodes"] = [blank | node for node in nodes]

    def entries(self, path: str, found: list[dict[str, Any]]) -> None:
        """Put a list of parts; what one does not tell stays open."""
        *names, last = path.split("/")
        part = self.record
        for name in names:
            part = part[name]
        (blank,) = part[last]
        part[last] = [blank | one for one in found]

    def attach(self, name: str, data: bytes) -> str:
        """Keep a file beside the record and return its SHA-256."""
        digest = hashlib.sha256(data).hexdigest()
        self._files[name] = data
        self.record["attachments"].append({"name": name, "sha256": digest, "size": len(data)})
        return digest

    def save(self, folder: Path) -> Path:
        """Write record and attachments into a folder. Raises RecordRefused if it is none."""
        check(self.record)
        for name, data in self._files.items():
            (folder / name).write_bytes(data)
        path = folder / "record.json"
        path.write_text(json.dumps(self.record, indent=1) + "\n", encoding="utf-8")
        return path
