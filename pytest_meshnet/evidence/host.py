"""What a bundle may tell about the machine and the suite, and what it must never tell."""

from __future__ import annotations

import hashlib
import hmac
import os
import platform
import re
from collections.abc import Iterator, Mapping
from pathlib import Path

from pytest_meshnet import __version__, layout

MESSAGE_LIMIT = 64 * 1024
"""Longest text, in characters, that a journal keeps of one message."""

ENVIRONMENT = frozenset(
    {
        "CI",
        "CUDA_DEVICE_ORDER",
        "CUDA_VISIBLE_DEVICES",
        "HIP_VISIBLE_DEVICES",
        "LANG",
        "LC_ALL",
        "MESHNET_TEST_STALL_MS",
        "MKL_NUM_THREADS",
        "NVIDIA_VISIBLE_DEVICES",
        "OMP_NUM_THREADS",
        "OPENBLAS_NUM_THREADS",
        "PYTEST_ADDOPTS",
        "PYTEST_DISABLE_PLUGIN_AUTOLOAD",
        "PYTEST_PLUGINS",
        "PYTHONHASHSEED",
        "ROCR_VISIBLE_DEVICES",
        "TZ",
    }
)
"""The environment variables that a bundle may hold. No other is ever written."""

# "token" alone is a word of this field ("sampled_token=7"), so it needs company to be a secret.
_CREDENTIAL_NAME = (
    r"(?<![A-Za-z0-9_-])[A-Za-z0-9_-]{0,64}?(?:secret|passw(?:or)?d|passphrase|credential|api[_-]?key|access[_-]?key"
    r"|private[_-]?key|(?:auth|access|api|refresh|bearer|hf|github|gitlab|npm|pypi)[_-]?token)"
    r"[A-Za-z0-9_-]{0,64}"
)
_LOOKS_SECRET = re.compile(rf"(?i:{_CREDENTIAL_NAME})|[A-Z0-9_]*_(?:TOKEN|PAT|KEY)")
_IS = r"['\"]?\s*[=:]\s*['\"]?"
_VALUE = r"(?!(?:None|null|\[redacted\])(?:[\s'\",;)}\]]|\Z))[^\s'\",;]+"
_SHAPES = re.compile(
    rf"(?P<name>(?i:{_CREDENTIAL_NAME}){_IS}){_VALUE}"
    rf"|(?P<env>(?<![A-Z0-9_])[A-Z0-9_]{{1,64}}_TOKEN{_IS}){_VALUE}"
    rf"|(?P<token>(?<![A-Za-z0-9_-])(?i:token){_IS})(?=[^\s'\",;]{{0,64}}[0-9])[^\s'\",;]{{16,}}"
    r"|(?P<bearer>(?i:bearer)\s+)[A-Za-z0-9._~+/-]{12,}=*"
    r"|-----BEGIN [A-Z ]*PRIVATE KEY-----.*?(?:-----END [A-Z ]*PRIVATE KEY-----|\Z)"
    r"|\b(?:hf_|gh[oprsu]_|glpat-|sk-|pypi-|xox[abp]-)[A-Za-z0-9_-]{16,}"
    r"|\bAKIA[0-9A-Z]{16}\b"
    r"|\beyJ[A-Za-z0-9_-]{10,}\.[A-Za-z0-9_-]{10,}\.[A-Za-z0-9_-]*",
    re.DOTALL,
)
_REDACTED = "[redacted]"


class Redactor:
    """Takes home directories and secrets out of a text before it is written anywhere.

    A person reads the bundle on another machine; nothing there may say who ran it, or let
    anybody log in as them.
    """

    def __init__(self, environment: Mapping[str, str]) -> None:
        home = environment.get("HOME", "").rstrip("/")
        own = rf"{re.escape(home)}(?=/|$|[\s:'\"])|" if home.startswith("/") else ""
        self._homes = re.compile(own + r"(?:/home|/Users)/[^/\s:'\"]+|/root(?=/)")
        values = {
            value
            for name, value in environment.items()
            if len(value) >= 8 and is_credential_name(name)
        }
        self._secrets = tuple(sorted(values, key=len, reverse=True))

    def __call__(self, text: str) -> str:
        """Return the text without home directories and secrets, cut to `MESSAGE_LIMIT`."""
        if not text:
            return text
        length = len(text)
        # What is far beyond the cut need not be searched.
        text = self.clean(text[: 4 * MESSAGE_LIMIT])
        if max(length, len(text)) <= MESSAGE_LIMIT:
            return text
        note = f"\n[cut: {length} characters in all]"
        return text[: MESSAGE_LIMIT - len(note)] + note

    def clean(self, text: str) -> str:
        """Return the whole text without home directories and secrets."""
        for secret in self._secrets:
            text = text.replace(secret, _REDACTED)
        return self._homes.sub("~", _SHAPES.sub(_without_value, text))

    def environment(self, environment: Mapping[str, str]) -> dict[str, str]:
        """Return the variables of the allow list, redacted."""
        names = sorted(ENVIRONMENT & environment.keys())
        return {name: self(environment[name]) for name in names}


def is_credential_name(name: str) -> bool:
    """Say whether a variable or a key with this name looks like it holds a secret."""
    return _LOOKS_SECRET.fullmatch(name) is not None


def holds_credential(text: str) -> bool:
    """Say whether a text shows a credential, by its shape or by the name that it is given."""
    return _SHAPES.search(text) is not None


def _without_value(match: re.Match[str]) -> str:
    label = next((one for one in match.groups() if one), "")
    return label + _REDACTED


def host_facts() -> dict[str, str]:
    """Return facts about this machine as text; what cannot be read is the text "unknown"."""
    return {
        "system": platform.system() or "unknown",
        "release": platform.release() or "unknown",
        "machine": platform.machine() or "unknown",
        "python": f"{platform.python_implementation()} {platform.python_version()}",
        "cpu": _first_match("/proc/cpuinfo", r"^model name\s*:\s*(.+)$"),
        "cpu_count": str(os.cpu_count() or "unknown"),
        "memory_kib": _first_match("/proc/meminfo", r"^MemTotal:\s*(\d+) kB$"),
        "host_id": _host_id(),
    }


def boot_id() -> str:
    """Return the kernel's id of this boot, or "unknown"."""
    return _first_match("/proc/sys/kernel/random/boot_id", r"^(\S+)$")


def _host_id() -> str:
    """Name the host without telling its machine id, as machine-id(5) asks of applications."""
    machine_id = _first_match("/etc/machine-id", r"^([0-9a-f]{32})$")
    if machine_id == "unknown":
        return machine_id
    return hmac.new(machine_id.encode(), b"pytest-meshnet", hashlib.sha256).hexdigest()[:32]


def _first_match(path: str, pattern: str) -> str:
    try:
        text = Path(path).read_text(encoding="utf-8", errors="replace")
    except OSError:
        return "unknown"
    found = re.search(pattern, text, re.MULTILINE)
    return found[1].strip() if found else "unknown"


def suite_version() -> str:
    """Return the version of the suite that runs."""
    return __version__


def suite_digest() -> str:
    """Return one SHA-256 over every file of the suite, equal in a checkout and in a wheel.

    It covers the package without its own tests, and the four folders of suites and data.
    """
    summed = hashlib.sha256()
    for name, path in sorted(_suite_files()):
        digest = hashlib.sha256(path.read_bytes()).hexdigest()
        summed.update(f"{digest}  {name}\n".encode())
    return summed.hexdigest()


def _suite_files() -> Iterator[tuple[str, Path]]:
    folders: tuple[layout.FolderName, ...] = ("conformance", "acceptance", "fixtures", "goldens")
    package = Path(layout.__file__).resolve().parent
    yield from _files(package, "pytest_meshnet", {"tests", *folders})
    for name in folders:
        try:
            yield from _files(layout.folder(name), name, set())
        except FileNotFoundError:
            continue


def _files(root: Path, prefix: str, skipped: set[str]) -> Iterator[tuple[str, Path]]:
    for entry in os.scandir(root):
        if entry.name.startswith(".") or entry.name in {"__pycache__", *skipped}:
            continue
        if entry.is_dir(follow_symlinks=False):
            yield from _files(Path(entry.path), f"{prefix}/{entry.name}", set())
        elif entry.is_file():
            yield f"{prefix}/{entry.name}", Path(entry.path)
