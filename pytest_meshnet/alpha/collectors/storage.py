"""Where artifacts lie, and what the logs of the workers give away."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from pytest_meshnet.alpha.collectors.claims import Claims, claims
from pytest_meshnet.evidence.host import holds_credential


def artifacts(paths: Iterable[Path]) -> list[dict[str, Any]]:
    """Each file with its links resolved, and whether it lies below a mount of its own.

    Raises FileNotFoundError for a path that is not there.
    """
    found = []
    for path in paths:
        resolved = path.resolve(strict=True)
        values = {"resolved_path": str(resolved), "mounted": _mount_of(resolved) != Path("/")}
        found.append(claims("the file system", values))
    return found


def _mount_of(path: Path) -> Path:
    return next(one for one in (path, *path.parents) if os.path.ismount(one))


SHORTEST = 8
WINDOW = 32
"""Characters of a prompt that no ordinary line of a log repeats by chance."""


def _pieces(prompt: str) -> set[str]:
    found = set()
    for line in prompt.splitlines():
        text = line.strip()
        found |= {text[at : at + WINDOW] for at in range(len(text) - WINDOW + 1)}
    return found or {line.strip() for line in prompt.splitlines() if len(line.strip()) >= SHORTEST}


def _holds(line: str, pieces: set[str]) -> bool:
    lengths = {len(piece) for piece in pieces}
    return any(
        line[at : at + length] in pieces
        for length in lengths
        for at in range(len(line) - length + 1)
    )


def scan(logs: Sequence[str], prompts: Sequence[str]) -> Claims:
    """Count the lines that hold a credential, or a piece of one of the prompts that were sent.

    A piece is WINDOW characters in a row, or a shorter prompt as a whole: a log that cuts a prompt
    off, wraps it or writes its line ends as escapes still holds one. A prompt shorter than SHORTEST
    would be found by chance: it is refused with ValueError.
    """
    short = [prompt for prompt in prompts if not _pieces(prompt)]
    if short:
        raise ValueError(f"{short[0]!r} is too short to be told from chance: use longer prompts")
    pieces = {piece for prompt in prompts for piece in _pieces(prompt)}
    lines = [line for log in logs for line in log.splitlines()]
    return claims(
        "a scan of the logs",
        {
            "files_scanned": len(logs),
            "lines_scanned": len(lines),
            "prompts_searched": len(prompts),
            "secrets_found": sum(holds_credential(line) for line in lines),
            "prompt_payloads_found": sum(_holds(line, pieces) for line in lines),
        },
    )


def objections(found: Claims) -> list[str]:
    """What stands against a scan: what it found, and that it read nothing or looked for nothing."""
    counts = {name: one["value"] for name, one in found.items()}
    looked = ("files_scanned", "lines_scanned", "prompts_searched")
    nothing = [name for name in looked if not counts[name]]
    leaks = [name for name in ("secrets_found", "prompt_payloads_found") if counts[name]]
    return [f"{name} is {counts[name]}" for name in (*nothing, *leaks)]
