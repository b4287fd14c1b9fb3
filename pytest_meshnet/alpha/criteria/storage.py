"""`storage`: where the artifact lay, and what the logs gave away."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from pathlib import PurePosixPath

from pytest_meshnet.alpha.criteria import criterion
from pytest_meshnet.alpha.reading import NOTHING_SCANNED, NOTHING_SEARCHED, Reading

SECTION = "storage"


@criterion(SECTION, "mounted_storage_only", action="move the artifact to a mounted drive")
def artifact_lies_on_a_mount(at: Reading) -> None:
    """Every file that a machine verified was read from a mounted drive."""
    _check_listed(at)
    for number, entry in enumerate(at.parts(SECTION, "artifacts")):
        found = at.flag(entry, "mounted", f"artifacts[{number}]")
        if found is not None:
            at.show(found and at.measured is not False)
        if found is False:
            at.fail("not-mounted", f"artifacts[{number}] lies on no mounted drive")


@criterion(SECTION, "forbidden_path_prefixes", action="move the artifact away from there")
def artifact_lies_nowhere_forbidden(at: Reading) -> None:
    """No path, with its links resolved, is below a forbidden one."""
    _check_listed(at)
    prefixes = at.threshold if isinstance(at.threshold, tuple) else ()
    for number, entry in enumerate(at.parts(SECTION, "artifacts")):
        where = f"artifacts[{number}]"
        path = at.text(entry, "resolved_path", where)
        if path is None:
            continue
        at.show(path)
        pure = PurePosixPath(path)
        # Two slashes at the front are another root than one.
        if pure.root != "/" or ".." in pure.parts:
            at.fail("not-resolved", f"{where}: {path} is not a resolved path")
        for prefix in prefixes:
            if pure.is_relative_to(prefix):
                at.fail("forbidden-path", f"{where}: {path} is below {prefix}")


def _check_listed(at: Reading) -> None:
    """Each machine's copy of each file has its place among the artifacts.

    A store that names files by their content resolves to the SHA-256.
    """
    places = Counter(
        PurePosixPath(path).name
        for entry in at.parts(SECTION, "artifacts")
        if isinstance(path := at.claim(entry, "resolved_path", "artifacts"), str)
    )
    machines = len(list(at.nodes()))
    if at.problems:
        return
    for one in at.locked.manifest.shards:
        found = places[PurePosixPath(one.name).name] + places[one.sha256]
        if found < machines:
            at.fail("unlisted-file", f"{found} of {machines} places of {one.name} are told")


_PAYLOADS = "prompt_payloads_found"
_SCANS = {
    "forbid_secrets_in_logs": ("secrets_found", "secret"),
    "forbid_unrestricted_prompt_payloads_in_logs": (_PAYLOADS, "prompt payload"),
}


@criterion(SECTION, *_SCANS, action="mend what writes it to the log, and scan again")
def logs_give_nothing_away(at: Reading) -> None:
    """Logs were scanned on every machine, for prompts that were sent, and held nothing."""
    name, what = _SCANS[at.key]
    scans = at.part(SECTION, "log_scans")
    for where, node in at.nodes():
        host = at.text(node, "host", where)
        if host is None:
            continue
        found = scans.get(host)
        scan = found if isinstance(found, Mapping) else {}
        files = at.count(scan, "files_scanned", f"log_scans.{host}")
        lines = at.count(scan, "lines_scanned", f"log_scans.{host}")
        hits = at.count(scan, name, f"log_scans.{host}")
        if 0 in (files, lines):
            at.fail(NOTHING_SCANNED, f"no log of {host} was scanned, or not one line of it")
        if name == _PAYLOADS and at.count(scan, "prompts_searched", f"log_scans.{host}") == 0:
            at.fail(NOTHING_SEARCHED, f"no prompt was searched for in the logs of {host}")
        if hits is not None:
            at.show(hits + (at.measured or 0), "lines")
            if hits:
                at.fail("found-in-logs", f"{hits} lines of {host}'s logs hold a {what}")
