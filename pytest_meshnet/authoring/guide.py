"""The tables of docs/guide.md: between two marks of the page stands what the code says.

`<!-- table: NAME -->` begins a table and `<!-- end -->` ends it; the rest is written by hand.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping

_TABLE = re.compile(r"(<!-- table: (?P<name>[a-z-]+) -->\n).*?(<!-- end -->)", re.DOTALL)


class UnknownTable(ValueError):
    """A page asks for a table that there is not."""


def filled(page: str) -> str:
    """Return a page with every table as the code has it. Raises UnknownTable."""

    def table(match: re.Match[str]) -> str:
        name = match["name"]
        if name not in TABLES:
            raise UnknownTable(f"no table {name!r}: expected one of {', '.join(TABLES)}")
        return match[1] + "\n".join(TABLES[name]()) + "\n" + match[3]

    return _TABLE.sub(table, page)


def _profiles() -> Iterator[str]:
    from pytest_meshnet.suite.pages import profile_rows

    yield "| profile | requirements | of them MUST | groups |\n|---|--:|--:|---|"
    yield from profile_rows()


def _tolerances() -> Iterator[str]:
    from pytest_meshnet.suite.pages import tolerance_rows

    yield "| dtype | absolute | relative |\n|---|--:|--:|"
    yield from tolerance_rows()


def _times() -> Iterator[str]:
    from pytest_meshnet.runtime.descriptor import TimeLimits

    times = TimeLimits()
    yield "| key in `[time]` | seconds | from ... to ... |\n|---|--:|---|"
    yield f"| start | {times.start:g} | start command to Health SERVING |"
    yield f"| answer | {times.answer:g} | a message to its last answer |"
    yield f"| cleanup | {times.cleanup:g} | the end of a session to what was held before |"
    yield f"| stop | {times.stop:g} | SIGTERM to the end of the process |"


def _limits() -> Iterator[str]:
    from pytest_meshnet.protocol import codec, flow

    rows = (
        ("a whole stream message, envelope included", codec.MAX_CHUNK_BYTES, "bytes"),
        ("a fragment", codec.MAX_FRAGMENT_BYTES, "bytes"),
        ("fragments of a tensor", codec.MAX_FRAGMENTS, ""),
        ("tensors of a bundle", codec.MAX_TENSORS, ""),
        ("rank of a tensor", codec.MAX_RANK, ""),
        ("a dimension", codec.MAX_DIMENSION, ""),
        ("tokens of a prefill chunk, unless less is settled", flow.DEFAULT_PREFILL_TOKENS, ""),
        ("chunks in flight, unless another number is settled", flow.DEFAULT_INFLIGHT, ""),
        ("credits at first, unless another number is settled", flow.DEFAULT_CREDITS, ""),
    )
    yield "| bound of | at most |\n|---|--:|"
    yield from (f"| {what} | {f'{number:,} {unit}'.strip()} |" for what, number, unit in rows)


def _codes() -> Iterator[str]:
    from pytest_meshnet.ledger.requirements import Ledger
    from pytest_meshnet.protocol.generated import shard_runtime_pb2 as pb

    ledger = Ledger.load()
    never = ledger.get("ERR-03").statement.partition(" are not retryable")[0]
    yield "| number | code | retryable | named by |\n|--:|---|---|---|"
    for value in pb.ErrorCode.DESCRIPTOR.values[1:]:  # the first is UNSPECIFIED, which is none
        name = value.name.removeprefix("ERROR_CODE_")
        word = re.compile(rf"\b{name}\b")
        named = [one.id for one in ledger.requirements if word.search(one.statement)]
        retryable = "never" if word.search(never) else ""
        yield f"| {value.number} | {name} | {retryable} | {', '.join(named)} |"


def _requirements() -> Iterator[str]:
    from pytest_meshnet.authoring.exchange.canonical import exchanges
    from pytest_meshnet.ledger.requirements import Ledger

    yield "| id | level | profile | title | sequence |\n|---|---|---|---|---|"
    for one in Ledger.load().requirements:
        shown = "yes" if one.id in exchanges() else ""
        yield f"| {one.id} | {one.level} | {one.profile} | {one.title} | {shown} |"


TABLES: Mapping[str, Callable[[], Iterator[str]]] = {
    "profiles": _profiles,
    "tolerances": _tolerances,
    "times": _times,
    "limits": _limits,
    "codes": _codes,
    "requirements": _requirements,
}
"""What can stand between two marks, by name: the lines of a table."""
