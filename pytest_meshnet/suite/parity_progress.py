"""What a parity run measures now, on one line of a terminal that goes away again."""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext

from pytest_meshnet.parity.bench import Progress


def on_terminal(uncaptured: Callable[[], AbstractContextManager[None]] = nullcontext) -> Progress:
    """Report to a person at a terminal, and to nobody elsewhere.

    `uncaptured` is entered while something is written: pytest captures output.
    """
    from rich.console import Console
    from rich.progress import Progress as Bar

    console = Console(file=sys.__stderr__)

    def report(what: str, done: int, total: int) -> None:
        if not console.is_terminal:
            return
        with uncaptured():
            if not what:
                console.print(" " * console.width, end="\r")
                return
            bar = Bar(console=console, transient=True)
            bar.add_task(f"parity {what}", total=total, completed=done)
            console.print(bar.get_renderable(), end="\r")

    return report
