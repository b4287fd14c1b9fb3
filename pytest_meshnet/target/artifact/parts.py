"""The parts of a multi-part artifact: which files they are, and the proof that they are all of it.

Parts are grouped by folder and stem, the file name without `-NNNNN-of-NNNNN.gguf`: never by a
quantization token, and never by a folder whose name happens to look like a part.
"""

import re
from collections import defaultdict
from collections.abc import Iterable, Sequence
from pathlib import Path

from pytest_meshnet.target.artifact.header import Header
from pytest_meshnet.target.fields import TargetRefused

_PART = re.compile(r"(?P<stem>.+)-(?P<index>[0-9]{5})-of-(?P<count>[0-9]{5})\.gguf", re.DOTALL)
SPLIT_NO, SPLIT_COUNT, SPLIT_TENSORS = "split.no", "split.count", "split.tensors.count"


def find_artifacts(paths: Iterable[Path]) -> list[tuple[Path, ...]]:
    """Return the artifacts below `paths` (files, or folders searched at any depth), parts in order.

    Naming any part of an artifact names all of it. Raises TargetRefused: not-found, no-artifact,
    part-missing, part-count.
    """
    files: set[Path] = set()
    for path in paths:
        if path.is_dir():
            below = {found for found in path.rglob("*.gguf") if not found.is_dir()}
            if not below:
                raise TargetRefused(
                    "no-artifact", f"{path} holds no .gguf file: name another folder"
                )
            files |= below
        elif path.exists():
            files |= {path} | _siblings(path)
        else:
            raise TargetRefused("not-found", f"{path} does not exist: name a file or a folder")
    return [_ordered(group) for _, group in sorted(_groups(files).items())]


def stem_of(path: Path) -> str:
    """Return the file name without its part suffix and extension."""
    part = _PART.fullmatch(path.name)
    return path.name.removesuffix(".gguf") if part is None else part["stem"]


def check_split(headers: Sequence[Header]) -> None:
    """Prove that headers, in order, are all the parts of one artifact.

    A file alone may leave the split keys out; a part may not. Raises TargetRefused: part-order,
    split-count, split-no, split-tensors, split-metadata.
    """
    count, total = len(headers), sum(len(header.tensors) for header in headers)
    alone = {SPLIT_COUNT: 1, SPLIT_NO: 0, SPLIT_TENSORS: total} if count == 1 else {}
    for position, header in enumerate(headers):
        found = {**alone, **header.metadata}
        _check_name(header.path, position, count)
        if found.get(SPLIT_COUNT) != count:
            raise TargetRefused(
                "split-count",
                f"{header.path} says split.count {found.get(SPLIT_COUNT)}, {count} of its parts "
                "were found: parts lie side by side under their own names, never joined or renamed",
            )
        if found.get(SPLIT_NO) != position:
            raise TargetRefused(
                "split-no",
                f"{header.path} says split.no {found.get(SPLIT_NO)}, expected {position} (it "
                "counts from 0, file names from 1): give the file its own name back",
            )
        if found.get(SPLIT_TENSORS) != total:
            raise TargetRefused(
                "split-tensors",
                f"{header.path} says {found.get(SPLIT_TENSORS)} tensors over all parts, they hold "
                f"{total}: fetch the part that is damaged or foreign again",
            )
        if position:
            _check_later_part(header, headers[0])


def _check_name(path: Path, position: int, count: int) -> None:
    part = _PART.fullmatch(path.name)
    if part is None:
        if count > 1:
            raise TargetRefused("part-order", f"{path} is not named as a part: give the parts only")
    elif (int(part["index"]), int(part["count"])) != (position + 1, count):
        raise TargetRefused(
            "part-order", f"{path} is given as part {position + 1} of {count}: order the parts"
        )


def _siblings(path: Path) -> set[Path]:
    part = _PART.fullmatch(path.name)
    if part is None:
        return set()
    wanted = (part["stem"], part["count"])
    found = set()
    for other in path.parent.iterdir():
        match = _PART.fullmatch(other.name)
        if match is not None and (match["stem"], match["count"]) == wanted:
            found.add(other)
    return found


def _groups(files: Iterable[Path]) -> dict[tuple[Path, str, int], list[Path]]:
    groups: dict[tuple[Path, str, int], list[Path]] = defaultdict(list)
    for path in files:
        part = _PART.fullmatch(path.name)
        key = (path.name, 0) if part is None else (part["stem"], int(part["count"]))
        groups[(path.parent, *key)].append(path)
    return groups


def _ordered(group: list[Path]) -> tuple[Path, ...]:
    ordered = sorted(group, key=lambda path: path.name)
    first = _PART.fullmatch(ordered[0].name)
    if first is None:
        return tuple(ordered)
    count = int(first["count"])
    found = {int(part["index"]) for path in ordered if (part := _PART.fullmatch(path.name))}
    missing = sorted(set(range(1, count + 1)) - found)
    if missing:
        names = ", ".join(f"{number:05d}" for number in missing[:8])
        raise TargetRefused(
            "part-missing",
            f"{ordered[0].parent}/{first['stem']} has {len(found)} of {count} parts, missing "
            f"{names}: fetch them, or rename a file that is no part",
        )
    if len(found) != count:
        raise TargetRefused(
            "part-count", f"{ordered[0]}: parts {sorted(found)} of {count}: rename the odd one"
        )
    return tuple(ordered)


def _check_later_part(header: Header, first: Header) -> None:
    architecture = first.metadata.get("general.architecture")
    for key in header.metadata:
        if key == "general.architecture" or key.startswith(f"{architecture}."):
            raise TargetRefused(
                "split-metadata",
                f"{header.path} carries {key!r}, which only the first part does: it is another "
                "artifact under this name",
            )
