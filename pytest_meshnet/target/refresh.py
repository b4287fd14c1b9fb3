"""Whether the hub still serves what the target pins. Opt-in, metadata only, and never a cure.

Asks the hub's metadata API for each pinned revision and compares; no payload is downloaded and no
document is written. A mismatch is a finding for a person: the pins stay as they are.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from pytest_meshnet.identity.canonical import DocumentRefused, load_strict
from pytest_meshnet.target.documents import LockedTarget
from pytest_meshnet.target.fields import TargetRefused
from pytest_meshnet.target.manifest import Repository

MAX_REPLY_BYTES = 16 * 2**20
TIMEOUT_SECONDS = 30
_HUB = "https://huggingface.co"

Fetch = Callable[[str], bytes]


@dataclass(frozen=True, slots=True)
class Finding:
    """One pinned fact that the hub no longer confirms; `code` is stable."""

    code: str
    message: str


def refresh(target: LockedTarget, fetch: Fetch | None = None) -> tuple[Finding, ...]:
    """Return every pinned fact that the hub contradicts; empty when it confirms all.

    `fetch(url)` returns a reply's bytes; by default it asks the network. Codes: revision,
    file-gone, file-size, file-digest. Raises TargetRefused("hub-unreachable") or ("hub-reply").
    """
    get = _fetch if fetch is None else fetch
    manifest, snapshot = target.manifest, target.snapshot
    shards = {s.path: (s.size_bytes, s.sha256) for s in manifest.shards}
    files = {f.path: (f.size_bytes, f.sha256) for f in snapshot.files}
    return (
        *_compare(manifest.artifact, shards, get, digests=True),
        # Small files are no LFS objects: of them the hub gives the size, not the SHA-256.
        *_compare(snapshot.source, files, get, digests=False),
    )


def _compare(
    repository: Repository, pinned: dict[str, tuple[int, str]], get: Fetch, *, digests: bool
) -> list[Finding]:
    url = f"{_HUB}/api/models/{repository.repo_id}/revision/{repository.revision}?blobs=true"
    reply = _parse(url, get(url))
    findings = []
    if reply.get("sha") != repository.revision:
        findings.append(
            Finding(
                "revision",
                f"{repository.repo_id}: the hub answers with {reply.get('sha')!r}, pinned is "
                f"{repository.revision}: the pin stays, find out why",
            )
        )
    siblings = reply.get("siblings")
    listed = {
        item.get("rfilename"): item
        for item in (siblings if isinstance(siblings, list) else [])
        if isinstance(item, dict)
    }
    for path, (size, sha256) in pinned.items():
        where = f"{repository.repo_id}@{repository.revision[:12]}/{path}"
        findings += _compare_file(where, size, sha256 if digests else None, listed.get(path))
    return findings


def _compare_file(
    where: str, size: int, sha256: str | None, found: dict[str, Any] | None
) -> list[Finding]:
    if found is None:
        return [Finding("file-gone", f"{where}: the hub no longer lists it")]
    findings = []
    if found.get("size") != size:
        findings.append(
            Finding("file-size", f"{where}: the hub says {found.get('size')} bytes, pinned {size}")
        )
    lfs = found.get("lfs")
    served = lfs.get("sha256") if isinstance(lfs, dict) else None
    if sha256 is not None and served != sha256:
        findings.append(
            Finding("file-digest", f"{where}: the hub says {served}, pinned is {sha256}")
        )
    return findings


def _parse(url: str, data: bytes) -> dict[str, Any]:
    try:
        reply = load_strict(data, url)
    except DocumentRefused as error:
        raise TargetRefused("hub-reply", f"{error.message}: try again later") from error
    if not isinstance(reply, dict):
        raise TargetRefused("hub-reply", f"{url} answers with no JSON object: try again later")
    return reply


def _fetch(url: str) -> bytes:
    from urllib.error import URLError
    from urllib.request import Request, urlopen

    request = Request(url, headers={"Accept": "application/json"})
    try:
        with urlopen(request, timeout=TIMEOUT_SECONDS) as reply:
            data: bytes = reply.read(MAX_REPLY_BYTES + 1)
    except (URLError, TimeoutError, OSError) as error:
        raise TargetRefused(
            "hub-unreachable", f"{url} cannot be asked ({error}): refresh needs a network"
        ) from error
    if len(data) > MAX_REPLY_BYTES:
        raise TargetRefused("hub-reply", f"{url} answers with more than {MAX_REPLY_BYTES} bytes")
    return data
