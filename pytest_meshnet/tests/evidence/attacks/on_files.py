"""Attacks on files, folders and attachments."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

from pytest_meshnet.evidence.signing.keys import SigningKey
from pytest_meshnet.ledger.requirements import Ledger
from pytest_meshnet.tests.evidence.attacks.base import (
    Act,
    Attack,
    body,
    insider,
    judged_insider,
    outside,
    sealer,
)
from pytest_meshnet.tests.evidence.making import Forger


def file(name: str) -> Callable[[Path], Path]:
    return lambda path: path / name


def frames(path: Path) -> Path:
    """The stored attachment of the honest run, not the ledger's copy."""
    copy = Ledger.load().digest
    return next(one for one in (path / "artifacts" / "sha256").iterdir() if one.name != copy)


def flip(where: Callable[[Path], Path], place: int) -> Act:
    def act(path: Path, key: SigningKey) -> None:
        data = bytearray(where(path).read_bytes())
        data[place] ^= 0x01
        where(path).write_bytes(bytes(data))

    return act


def link(path: Path) -> None:
    inside = path / "journal" / "main.jsonl"
    moved = inside.rename(path.parent / "elsewhere.jsonl")
    inside.symlink_to(moved)


def folder_link(path: Path) -> None:
    moved = (path / "journal").rename(path.parent / "elsewhere")
    (path / "journal").symlink_to(moved)


def touch_anchor(path: Path) -> None:
    (path / "anchors").mkdir()
    (path / "anchors" / "x").write_text("four")


def only_a_beginning(path: Path) -> None:
    """What is left of a run that was killed while it wrote its start."""
    shutil.rmtree(path)
    path.mkdir()
    (path / ".start.dsse.json.partial").write_text("{")


def pipe(path: Path) -> None:
    os.mkfifo(path / "journal" / "gw9.jsonl")


def drop_attachment(forger: Forger) -> None:
    gone = frames(forger.path)
    gone.unlink()
    name = gone.relative_to(forger.path).as_posix()
    forger.document("seal", lambda seal: seal["files"].pop(name))


ON_FILES = (
    # files and folders
    Attack("replace a file by a link", outside(link), 2, "link"),
    Attack("replace a folder by a link", outside(folder_link), 2, "link"),
    Attack(
        "add a link", outside(lambda p: (p / "x").symlink_to("/etc/passwd")), 2, "link", "layout"
    ),
    Attack("add a pipe", outside(pipe), 2, "not-regular", "layout"),
    Attack("add a file", outside(lambda p: (p / "x").touch()), 2, "unexpected-name", "layout"),
    Attack("add a folder", outside(lambda p: (p / "x").mkdir()), 2, "unexpected-name", "layout"),
    Attack(
        "leave a partial file",
        outside(lambda p: (p / ".run.dsse.json.partial").touch()),
        2,
        "partial-file",
        "layout",
    ),
    Attack(
        "add a file with a good name",
        outside(lambda p: (p / "report.md").touch()),
        2,
        "file-unlisted",
        "files",
        on="second",
    ),
    Attack("drop an attachment", outside(lambda p: frames(p).unlink()), 2, "file-missing"),
    Attack(
        "list a path outside",
        sealer(lambda seal: seal["files"].update({"../../etc/passwd": "ab" * 32})),
        2,
        "path-escape",
        "files",
    ),
    Attack(
        "list an absolute path",
        sealer(lambda seal: seal["files"].update({"/etc/passwd": "ab" * 32})),
        2,
        "path-escape",
        "files",
    ),
    *(
        Attack(f"flip byte {place} of {name}", flip(file(name), place), 2, code)
        for name, place, code in (
            ("start.dsse.json", 40, "digest-differs"),
            ("plan.dsse.json", 200, ""),
            ("statement.dsse.json", -10, ""),
            ("run.dsse.json", -150, ""),
            ("seal.dsse.json", 300, ""),
            ("journal/main.jsonl", 900, "digest-differs"),
            ("report.html", 0, "digest-differs"),
            ("report.md", 0, "digest-differs"),
            ("junit.xml", 0, "digest-differs"),
            (f"artifacts/sha256/{Ledger.load().digest}", 9, "digest-differs"),
        )
    ),
    Attack("flip a byte of an attachment", flip(frames, 0), 2, "digest-differs"),
    Attack(
        "flip a byte of a worker's journal",
        flip(file("journal/gw1.jsonl"), 900),
        2,
        "digest-differs",
        on="workers",
    ),
    Attack(
        "a partial file in a run that was cut short",
        outside(lambda p: (p / ".seal.dsse.json.partial").touch()),
        3,
        "unsealed",
        on="cut short",
    ),
    Attack(
        "a foreign file in a run that was cut short",
        outside(lambda p: (p / "seal.dsse.json.partial").touch()),
        2,
        "unexpected-name",
        on="cut short",
    ),
    Attack(
        "nothing but a beginning", outside(only_a_beginning), 3, "start-missing", on="cut short"
    ),
    Attack(
        "too many files",
        outside(lambda p: None),
        2,
        "too-many-files",
        limits={"documents.COUNT_LIMIT": 3},
    ),
    *(
        Attack(
            f"a {kind} that is too large",
            outside(touch_anchor),
            2,
            "too-large",
            limits={f"documents.{limit}": 3},
        )
        for kind, limit in (
            ("document", "DOCUMENT_LIMIT"),
            ("file", "FILE_LIMIT"),
            ("anchor", "ANCHOR_LIMIT"),
        )
    ),
    Attack(
        "list an anchor",
        sealer(lambda seal: seal["files"].update({"anchors/x": "ab" * 32})),
        2,
        "path-escape",
        "files",
    ),
    # attachments
    Attack(
        "drop an attachment and seal",
        insider(drop_attachment),
        2,
        "attachment-missing",
        "attachments",
    ),
    Attack(
        "another size",
        judged_insider(lambda f: f.journal(body("attachment", size=1))),
        2,
        "attachment-size",
        "attachments",
    ),
    Attack(
        "a digest that is a path",
        judged_insider(lambda f: f.journal(body("attachment", sha256="../../x", stored=False))),
        2,
        "path-escape",
        "attachments",
    ),
    Attack(
        "another content",
        insider(lambda f: frames(f.path).write_bytes(b"\x01wire")),
        2,
        "attachment-differs",
        "attachments",
    ),
)
