"""The verifier with one check taken out: does any attack then go through?

A mutant is a verifier of which one statement that reports something is gone. Only the code of the
one function is exchanged, in place, so that a mutant costs no more than the verifications that it
takes to notice it. `python -m` of this module prints them all, with `--halves` also those that
lose half of a condition: some of these survive, because checks overlap and none relies on another.
"""

from __future__ import annotations

import ast
import inspect
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import CodeType, FunctionType, ModuleType
from typing import Any

from pytest_meshnet.evidence import documents, journal, recorded, strict, summary
from pytest_meshnet.evidence.signing import dsse, keys, trust
from pytest_meshnet.evidence.verify import conduct, integrity, material, question
from pytest_meshnet.tests.evidence.attacks import ATTACKS
from pytest_meshnet.tests.evidence.attacks.base import Attack, Corpus

ALL = ("",)
VERIFIER: Sequence[tuple[ModuleType, tuple[str, ...]]] = (
    (integrity, ALL),
    (conduct, ALL),
    (question, ALL),
    (material, ALL),
    (recorded, ALL),
    (documents, ("unwrap",)),
    (dsse, ("Envelope.from_bytes", "_base64")),
    (keys, ("PublicKey.from_spki",)),
    (trust, ("TrustedKey.objection",)),
    (strict, ("loads", "_object", "_integer", "_check_integer", "_refuse", "decode", "_read")),
    (journal, ("Replay", "nanoseconds", "check_body")),
    (summary, ("summarize", "breaches", "_expected", "same_collection")),
)
"""Where the verifier reports what it finds: a module and how the names of the functions begin."""

_FAULTS = {"fault", "faults", "key_fault", "summary_fault", "backwards"}


@dataclass(frozen=True)
class Mutant:
    """A function of the verifier with one thing taken out.

    `codes` are the texts that went, `beside` all texts of the function: attacks with one of these
    as their reason code are the likeliest to notice.
    """

    place: str
    function: FunctionType
    code: CodeType = field(repr=False)
    codes: frozenset[str]
    beside: frozenset[str]


def mutants(weakened: bool = False) -> Iterator[Mutant]:
    """Yield every mutant; `weakened` ones are those that lose half of a condition."""
    for module, names in VERIFIER:
        tree = ast.parse(inspect.getsource(module))
        for qualname, node in _functions(tree):
            if qualname.startswith(names):
                yield from _mutants_of(module, qualname, node, tree, weakened)


def _functions(tree: ast.Module) -> Iterator[tuple[str, ast.FunctionDef]]:
    for node in tree.body:
        if isinstance(node, ast.FunctionDef):
            yield node.name, node
        elif isinstance(node, ast.ClassDef):
            for inner in node.body:
                if isinstance(inner, ast.FunctionDef):
                    yield f"{node.name}.{inner.name}", inner


def _mutants_of(
    module: ModuleType, qualname: str, node: ast.FunctionDef, tree: ast.Module, weakened: bool
) -> Iterator[Mutant]:
    function = _live(module, qualname)
    for label, gone, change, undo in _changes(node, weakened):
        change()
        code = _code_of(compile(ast.fix_missing_locations(tree), str(module.__file__), "exec"),
                        qualname)  # fmt: skip
        undo()
        place = f"{module.__name__.rpartition('.')[2]}.{qualname}:{gone.lineno}"
        what = f"{place} {label}: {ast.unparse(gone)[:90]}"
        yield Mutant(what, function, code, _texts(gone), _texts(node))


def _texts(node: ast.AST) -> frozenset[str]:
    found = (one.value for one in ast.walk(node) if isinstance(one, ast.Constant))
    return frozenset(one for one in found if isinstance(one, str))


Change = tuple[str, Any, Callable[[], None], Callable[[], None]]


def _changes(function: ast.FunctionDef, weakened: bool) -> Iterator[Change]:
    """Yield (what, node that goes, do, undo) for everything that can be taken out."""
    for node in ast.walk(function):
        for name in ("body", "orelse", "handlers", "finalbody"):
            block = getattr(node, name, None)
            for number, statement in enumerate(block if isinstance(block, list) else ()):
                if _reports(statement):
                    yield _exchange(block, number, ast.Pass(), statement, "without")
        if weakened and isinstance(node, ast.BoolOp):
            for number, operand in enumerate(node.values):
                kept = node.values[:number] + node.values[number + 1 :]
                yield _narrow(node, kept, operand)


def _exchange(block: Any, number: int, other: ast.AST, node: Any, label: str) -> Change:
    def put(one: Any) -> Callable[[], None]:
        return lambda: block.__setitem__(number, one)

    return label, node, put(other), put(node)


def _narrow(node: ast.BoolOp, kept: list[ast.expr], gone: ast.expr) -> Change:
    before = node.values

    def put(values: list[ast.expr]) -> Callable[[], None]:
        return lambda: setattr(node, "values", values)

    # A BoolOp of one value is no legal program, so the value stands twice.
    return "half of a condition", gone, put(kept if kept[1:] else kept * 2), put(before)


def _reports(node: ast.AST) -> bool:
    """Say whether a statement is one by which the verifier tells what it found."""
    if isinstance(node, ast.Raise):
        return True
    if isinstance(node, ast.Expr):
        value = node.value
        if isinstance(value, ast.Call):
            text = ast.unparse(value)
            return text.startswith("_breach(") or any(w in text for w in ("Breach(", "Oddity("))
        return isinstance(value, (ast.Yield, ast.YieldFrom))
    if isinstance(node, ast.Return) and node.value is not None:
        text = ast.unparse(node.value)
        return "Oddity(" in text or text.startswith(("'signer-", "('signer-"))
    if isinstance(node, ast.AugAssign):
        return any(word in ast.unparse(node.value) for word in ("Breach(", "Judgement("))
    targets = node.targets if isinstance(node, ast.Assign) else []
    return any(_FAULTS & {getattr(one, "attr", ""), _subscripted(one)} for one in targets)


def _subscripted(node: ast.expr) -> str:
    return getattr(node.value, "attr", "") if isinstance(node, ast.Subscript) else ""


def _live(module: ModuleType, qualname: str) -> FunctionType:
    found: Any = module
    for name in qualname.split("."):
        found = inspect.getattr_static(found, name)
    found = getattr(found, "fget", None) or getattr(found, "__func__", found)
    function = inspect.unwrap(found)
    assert isinstance(function, FunctionType), qualname
    return function


def _code_of(code: CodeType, qualname: str) -> CodeType:
    waiting = [code]
    while waiting:
        one = waiting.pop()
        if one.co_qualname == qualname:
            return one
        waiting += [inner for inner in one.co_consts if isinstance(inner, CodeType)]
    raise LookupError(qualname)


@contextmanager
def applied(mutant: Mutant) -> Iterator[None]:
    """Let the verifier be the mutant."""
    before = mutant.function.__code__
    mutant.function.__code__ = mutant.code
    try:
        yield
    finally:
        mutant.function.__code__ = before


def noticed_by(mutant: Mutant, corpus: Corpus, attacks: Sequence[Attack]) -> Attack | None:
    """Return the first attack that does not end as it must, or None."""
    likely_first = sorted(
        attacks, key=lambda one: (one.code not in mutant.codes, one.code not in mutant.beside)
    )
    with applied(mutant):
        for attack in likely_first:
            if corpus.complaint(attack):
                return attack
    return None


def main() -> int:
    """Print every mutant and what notices it; return 1 when one survives, 2 for a broken corpus."""
    with tempfile.TemporaryDirectory() as folder:
        corpus = Corpus.make(Path(folder))
        broken = {one.name: corpus.complaint(one) for one in ATTACKS}
        for name, complaint in broken.items():
            if complaint:
                sys.stdout.write(f"not the verifier's fault: {name} {complaint}\n")
        if any(broken.values()):
            return 2
        return _bite(corpus)


def _bite(corpus: Corpus) -> int:
    found = list(mutants(weakened="--halves" in sys.argv))
    survivors, waiting = 0, list(ATTACKS)
    for mutant in found:
        by = noticed_by(mutant, corpus, waiting)
        survivors += by is None
        sys.stdout.write(f"{mutant.place}\n    {by.name if by else 'SURVIVED'}\n")
        sys.stdout.flush()
        if by is not None:  # it is likely to notice the neighbour as well
            waiting.remove(by)
            waiting.insert(0, by)
    sys.stdout.write(f"{len(ATTACKS)} attacks, {len(found)} mutants, {survivors} survived\n")
    return 1 if survivors else 0


if __name__ == "__main__":
    sys.exit(main())
