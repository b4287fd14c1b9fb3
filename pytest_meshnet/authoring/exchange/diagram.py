"""A written exchange as a picture of text: the client on the left, the Shard on the right."""

from __future__ import annotations

import textwrap

from pytest_meshnet.authoring.exchange.notation import Line, Script

WIDTH = 84
"""Columns between the two lines of life."""


def draw(script: Script) -> str:
    """Return the picture; the name of a stream stands before its frames."""
    rows = [f"{'client':<{WIDTH - 1}}Shard"]
    for line in script:
        if isinstance(line, Line):
            rows += _arrow(line)
        else:
            rows += [f"|  {part:<{WIDTH - 4}}|" for part in textwrap.wrap(line.text, WIDTH - 8)]
    return "\n".join(rows)


def _arrow(line: Line) -> list[str]:
    text = f"{line.label}: {line.text}" if line.label else line.text
    *before, last = textwrap.wrap(text, WIDTH - 12) or [text]
    rows = [f"|  {part:<{WIDTH - 4}}|" for part in before]
    fill = "." if line.may else "-"
    body = f" {last} "
    if line.direction == "->":
        return [*rows, f"|{fill * 2}{body}{fill * (WIDTH - 5 - len(body))}>|"]
    return [*rows, f"|<{fill * (WIDTH - 5 - len(body))}{body}{fill * 2}|"]
