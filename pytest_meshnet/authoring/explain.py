"""`pytest-meshnet explain`: everything that one requirement asks for, on one page."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator

from pytest_meshnet.authoring.exchange.canonical import exchanges
from pytest_meshnet.authoring.exchange.diagram import draw
from pytest_meshnet.authoring.exchange.notation import Frame, Line, Script
from pytest_meshnet.ledger.requirements import Ledger, Requirement

_LEGEND = """\
`or` stands between answers that are equally right; a dotted arrow may come or not; * is any code
but UNSPECIFIED and INTERNAL; a|b is either, 1..4 any of them, 1.. that or more. Fields that no
line names are free, answers of one unit come in any order, and a tail owes no result for a chunk
that is not final. A key with a dot is the path of a field that is set to something else."""

_NO_EXCHANGE = {
    "suite": "it examines the suite's own codec and schema (or a codec that the descriptor names):"
    " no exchange with a Shard shows it",
    "route": "it examines several Shards together: no single exchange shows it",
    "runtime": "no single exchange shows it: it is about many inputs, times or resources; read its"
    " tests",
}


def explain(name: str) -> str:
    """Return the page of one requirement. Raises UnknownRequirement, CollectionFailed."""
    ledger = Ledger.load()
    requirement = ledger.get(name)
    parts = [*_statement(requirement, ledger), *_wire(requirement), *_proof(requirement)]
    return "\n".join(parts) + "\n"


def _statement(one: Requirement, ledger: Ledger) -> Iterator[str]:
    yield f"{one.id} {one.title} ({one.level}, profile {one.profile}, examines the {one.subject})"
    yield from _wrapped(one.statement)
    for need in one.needs:
        yield f"  needs {need}: {ledger.needs[need]}"


def _wire(one: Requirement) -> Iterator[str]:
    script = exchanges().get(one.id)
    yield "\non the wire, by example:"
    if script is None:
        yield from _wrapped(_NO_EXCHANGE[one.subject])
        return
    yield textwrap.indent(draw(script), "  ")
    yield "\naccepted answers:"
    yield from (f"  {text}" for text in accepted(script))
    yield from _wrapped(_LEGEND)
    yield f"\nplay it:  pytest-meshnet replay {one.id} --target FILE"


def accepted(script: Script) -> Iterator[str]:
    """Say every answer of an exchange in words, one a line, each once."""
    lines = [line for line in script if isinstance(line, Line) and line.direction == "<-"]
    yield from dict.fromkeys(
        ("perhaps " if line.may else "") + ", or ".join(map(_in_words, line.frames))
        for line in lines
    )


def _in_words(frame: Frame) -> str:
    values = dict(frame.values)
    work = values.pop("work", "")
    words = list(frame.words)
    named = f" for {work}" if work else ""
    if frame.kind == "status":
        code = words.pop(0) if words and words[0] != "terminal" else "*"
        said = "any code" if code == "*" else code.replace("|", " or ")
        about = "that ends the stream" if "terminal" in words else "after which the session goes on"
        text = f"status {said}{named} {about}"
    elif frame.kind == "chunk":
        text = f"result{named}"
    else:
        text = " ".join([frame.kind, *words]) + named
    told = ", ".join(f"{key} {value}" for key, value in values.items())
    return f"{text} ({told})" if told else text


def _proof(one: Requirement) -> Iterator[str]:
    from pytest_meshnet.reference.catalogue import entries

    yield "\ntests:"
    yield from (f"  {test}" for test in tests_of(one.id))
    mutants = [entry for entry in entries() if entry.requirement == one.id]
    yield "\nmutants, each of which its tests must catch:" if mutants else "\nmutants: none"
    for mutant in mutants:
        yield from _wrapped(f"{mutant.name}: {mutant.text}")


def tests_of(name: str) -> list[str]:
    """The ids of the tests of a requirement, without parameters. Raises CollectionFailed."""
    from pytest_meshnet.suite.certify import planned_tests

    named = [one.test.partition("[")[0] for one in planned_tests() if name in one.requirements]
    return list(dict.fromkeys(named)) or ["none in this version"]


def _wrapped(text: str) -> list[str]:
    return textwrap.wrap(text, 96, initial_indent="  ", subsequent_indent="  ")
