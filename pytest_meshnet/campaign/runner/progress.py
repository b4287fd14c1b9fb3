"""What a person sees of a run: where it is, and how long it will still take."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from pytest_meshnet.campaign.runner.session import Step


@contextmanager
def on_terminal(total: int) -> Iterator[Step]:
    """Show a bar with the time left on standard error; no terminal, no bar."""
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeElapsedColumn,
        TimeRemainingColumn,
    )

    console = Console(stderr=True)
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TextColumn("left"),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=console, disable=not console.is_terminal) as bar:
        task = bar.add_task("starting", total=total)

        def step(where: str) -> None:
            bar.update(task, advance=1, description=where)

        yield step
