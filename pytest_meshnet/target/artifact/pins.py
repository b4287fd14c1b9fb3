"""What files have to be: the manifest's pins or a list of SHA-256 sums, found below given paths."""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from pytest_meshnet.target.artifact.verification import Expected
from pytest_meshnet.target.fields import TargetRefused
from pytest_meshnet.target.manifest import Manifest

_SUM = re.compile(r"(?P<sha256>[0-9a-f]{64}) [ *](?P<name>.+)")


@dataclass(frozen=True, slots=True)
class Pin:
    """One file by its own name: pinned SHA-256 and bytes (None when only the digest is known)."""

    name: str
    size_bytes: int | None
    sha256: str


def pins_of_manifest(manifest: Manifest) -> tuple[Pin, ...]:
    """Return the target's six files."""
    return tuple(Pin(shard.name, shard.size_bytes, shard.sha256) for shard in manifest.shards)


def pins_of_sums(path: Path) -> tuple[Pin, ...]:
    """Read a list as `sha256sum` writes it; names count without their folders.

    Raises TargetRefused: sums-unreadable, sums-line, sums-empty, sums-twice.
    """
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise TargetRefused(
            "sums-unreadable", f"{path} cannot be read ({error}): name a list made by sha256sum"
        ) from error
    pins = []
    for number, line in enumerate(lines, start=1):
        found = _SUM.fullmatch(line)
        if found is None:
            raise TargetRefused(
                "sums-line", f"{path} line {number} is no SHA-256 sum: write it with sha256sum"
            )
        pins.append(Pin(Path(found["name"]).name, None, found["sha256"]))
    if not pins:
        raise TargetRefused("sums-empty", f"{path} lists no file: it proves nothing")
    if len({pin.name for pin in pins}) < len(pins):
        raise TargetRefused("sums-twice", f"{path} lists one file name twice: keep one line")
    return tuple(pins)


def locate(pins: Sequence[Pin], paths: Iterable[Path]) -> list[Expected]:
    """Return what to verify: each pin at the one place it was found below `paths`.

    A pin that was not found stands at the first path, where it will be told as missing; files in a
    folder that no pin names are left alone, a file that was named itself is refused
    ("not-pinned"). Raises TargetRefused("found-twice") when a pin lies in two places.
    """
    wanted = {pin.name for pin in pins}
    places: dict[str, set[Path]] = {name: set() for name in wanted}
    roots = list(paths)
    for path in roots:
        if path.is_dir():
            for found in path.rglob("*"):
                if found.name in wanted:
                    places[found.name].add(found)
        elif path.name in wanted:
            places[path.name].add(path)
        elif not path.exists():
            raise TargetRefused("not-found", f"{path} does not exist: name a file or a folder")
        else:
            raise TargetRefused(
                "not-pinned", f"{path} is none of the pinned files: name those, or their folder"
            )
    for name, found_at in places.items():
        if len(found_at) > 1:
            raise TargetRefused(
                "found-twice",
                f"{name} lies at {' and '.join(sorted(map(str, found_at)))}: name one of them",
            )
    default = next((p if p.is_dir() else p.parent for p in roots), Path())
    return [
        Expected(next(iter(places[pin.name]), default / pin.name), pin.size_bytes, pin.sha256)
        for pin in pins
    ]
