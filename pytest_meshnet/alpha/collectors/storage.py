"""Where artifacts lie, and what the logs of the workers give away."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from pytest_meshnet.alpha.collectors.claims import Claims, claims

# Shapes of credentials that are published by those who issue them, and plain assignments of one.
_SECRETS = re.compile(
    r"-----BEGIN [A-Z ]*PRIVATE KEY-----"
    r"|\bAKIA[0-9A-Z]{16}\b"
    r"|\b(?:hf|ghp|gho|glpat)[_-][A-Za-z0-9_-]{20,}"
    r"|\bsk-[A-Za-z0-9_-]{20,}"
    r"|\beyJ[A-Za-z0-9_-]{10,}\.[A-Za-z0-9_-]{10,}\."
    r"|\b[Bb]earer +[A-Za-z0-9._~+/-]{16,}"
    r"|\b(?:password|passwd|secret|api_?key|token)\s*[=:]\s*['\"]?[^\s'\"]{8,}",
)


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


def scan(logs: Sequence[str], prompts: Sequence[str]) -> Claims:
    """Count the lines that hold a credential, or the text of one of the prompts.

    A prompt shorter than eight characters would be found by chance: it is refused with ValueError.
    """
    short = [prompt for prompt in prompts if len(prompt) < 8]
    if short:
        raise ValueError(f"{short[0]!r} is too short to be told from chance: use longer prompts")
    lines = [line for log in logs for line in log.splitlines()]
    return claims(
        "a scan of the logs",
        {
            "files_scanned": len(logs),
            "secrets_found": sum(bool(_SECRETS.search(line)) for line in lines),
            "prompt_payloads_found": sum(any(one in line for one in prompts) for line in lines),
        },
    )
