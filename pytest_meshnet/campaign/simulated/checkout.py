"""The git working tree of a simulated rig."""

from __future__ import annotations

import subprocess
from pathlib import Path

_GIT = ("-c", "user.name=simulated", "-c", "user.email=simulated@invalid", "-c", "gc.auto=0")


def make(folder: Path, *, dirty: bool) -> Path:
    """Make a tree with one commit in `folder`, and with one more file when it is to be dirty."""
    tree = folder / "checkout"
    if not tree.exists():
        tree.mkdir(parents=True)
        _git(tree, "init", "-q")
        _git(tree, *_GIT, "commit", "-q", "--allow-empty", "-m", "simulated")
    if dirty:
        (tree / "changed.py").write_text("changed = True\n", encoding="utf-8")
    return tree


def _git(tree: Path, *words: str) -> None:
    subprocess.run(["git", "-C", str(tree), *words], check=True, capture_output=True)
