"""The canonical exchange of each requirement that one can show on the wire.

`fixtures/exchanges/GROUP.frames` holds those of a group; a line `== ID` begins one.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache

from pytest_meshnet.authoring.exchange.notation import BadExchange, Script, parse
from pytest_meshnet.layout import folder

_HEAD = "== "


@cache
def exchanges() -> Mapping[str, Script]:
    """Return every exchange by the id of its requirement. Raises BadExchange."""
    found: dict[str, Script] = {}
    for path in sorted((folder("fixtures") / "exchanges").glob("*.frames")):
        for name, text in _split(path.read_text(encoding="utf-8"), path.name):
            if name in found:
                raise BadExchange(f"{path.name}: {name} has two exchanges; keep one")
            try:
                found[name] = parse(text)
            except BadExchange as error:
                raise BadExchange(f"{path.name}, {name}: {error}") from None
    return found


def _split(text: str, origin: str) -> list[tuple[str, str]]:
    before, *parts = f"\n{text}".split(f"\n{_HEAD}")
    if before.strip():
        raise BadExchange(f"{origin} begins with {before.strip()!r}: expected `{_HEAD}ID`")
    named = [part.partition("\n") for part in parts]
    return [(name.strip(), body) for name, _, body in named]
