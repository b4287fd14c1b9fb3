"""The bandwidth prerequisite: `ft bench bw`, once, before any server."""

from __future__ import annotations

import hashlib
import os
import subprocess
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from pytest_meshnet.campaign.documents import loads
from pytest_meshnet.campaign.judging.facts import Bandwidth

BENCH_S = 3600.0
"""How long the measurement may take."""

ENVIRONMENT: Mapping[str, str] = {"FREETOKEN_BENCH_PROGRESS": "1"}
"""Makes the command say where it wrote its profile."""

_WROTE = "FTBENCH_OUT "


def skipped() -> Bandwidth:
    """Return the record of a prerequisite that was not wanted."""
    return Bandwidth(True, (), None, None, None, None, None, None, None, None)


def measure(command: Sequence[str], gpu_uuid: str, log: Path, limit: float = BENCH_S) -> Bandwidth:
    """Run the command, keep its output in `log`, and read the profile that it wrote."""
    started = datetime.now(UTC)
    code, problem = _run(command, log, limit)
    finished = datetime.now(UTC)
    path, contents, digest = None, None, None
    if code == 0:
        path = _written(log.read_text(encoding="utf-8", errors="replace"), gpu_uuid)
        contents, digest, problem = _profile(path, started.timestamp())
    return Bandwidth(
        skipped=False,
        command=tuple(command),
        started_at=started.isoformat(),
        finished_at=finished.isoformat(),
        returncode=code,
        gpu_uuid=gpu_uuid,
        path=None if path is None else str(path),
        sha256=digest,
        contents=contents,
        problem=problem,
    )


def _run(command: Sequence[str], log: Path, limit: float) -> tuple[int | None, str | None]:
    with log.open("wb") as stream:
        try:
            done = subprocess.run(
                command,
                stdin=subprocess.DEVNULL,
                stdout=stream,
                stderr=subprocess.STDOUT,
                env={**os.environ, **ENVIRONMENT},
                timeout=limit,
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            return None, str(error)
    if done.returncode == 0:
        return 0, None
    lines = log.read_text(encoding="utf-8", errors="replace").splitlines()
    return done.returncode, lines[-1] if lines else None


def _written(output: str, gpu_uuid: str) -> Path:
    """Where the command says that it wrote, or else where a profile of this GPU lies."""
    told = [line for line in output.splitlines() if line.startswith(_WROTE)]
    if told:
        return Path(told[-1].removeprefix(_WROTE).strip())
    return Path.home() / ".cache" / "freetoken" / "benchbw" / f"{gpu_uuid}.json"


def _profile(path: Path, since: float) -> tuple[Any, str | None, str | None]:
    """Return (contents, SHA-256, problem). One older than the run was not measured by it."""
    try:
        data = path.read_bytes()
        age = since - path.stat().st_mtime
    except OSError as error:
        return None, None, f"{path} cannot be read: {error.strerror}"
    digest = hashlib.sha256(data).hexdigest()
    if age > 1:
        return None, digest, f"{path} was written {age:.0f} s before the command ran"
    try:
        return loads(data), digest, None
    except ValueError as error:
        return None, digest, f"{path} is no JSON: {error}"
