"""Every option of the plugin with its ini twin, and the typed settings they come to."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TypeVar, get_args

import pytest

SuiteName = Literal["conformance", "acceptance"]
Transport = Literal["grpc", "in-process"]
Offer = Literal["none", "zstd"]
T = TypeVar("T")

SUITES: tuple[SuiteName, ...] = get_args(SuiteName)
PARTS = ("acceptance/parity",)
"""Parts of a suite that can be asked for alone: those of a requirement, by their folder."""

SUITE_PREFIXES = tuple(f"{name}/" for name in SUITES)
"""How the ids of all tests of suites begin, and no others."""

REFERENCE = "reference"
DEFAULT_SEED = 20260101
DEFAULT_OUT = "meshnet-evidence"
"""The folder of bundles that a certificate run uses when none is given."""

KEY_VARIABLE = "MESHNET_EVIDENCE_SIGNING_KEY"
COMPLETE_VARIABLE = "MESHNET_COMPLETE"

SUITE_HELP = """\
Collect a suite that comes with the plugin: conformance or acceptance, or acceptance/parity alone.
May be repeated."""
TARGET_HELP = """\
The runtime under test: a target descriptor (TOML), or reference[:MUTANT-OR-VARIANT] for the
built-in reference worker. Default: reference."""
SHARD_HELP = """\
The Shard to examine, by its name in the descriptor. Default: the only one."""
PROFILE_HELP = """\
A profile that the target claims, e.g. core-wire. May be repeated. Default: what the target's
descriptor claims."""
EXPECT_HELP = """\
A list of known failures (TOML), each with a reason and the expected message."""
WRITE_EXPECT_HELP = """\
Write the failures of this run to a new file, as a list for --meshnet-expect that is refused until
somebody has filled in each reason."""
OUT_HELP = """\
Write a signed evidence bundle into a new folder of this one."""
SIGNING_KEY_HELP = f"""\
The Ed25519 key (PEM, mode 0600) that signs the evidence; the environment variable
{KEY_VARIABLE} comes before the ini. Default: a key for this run only."""
CHALLENGE_HELP = """\
A text from whoever will verify the evidence, to show that the run came after it."""
POLICY_HELP = """\
The policy (TOML) that the evidence is made for; a bundle names it by its digest."""
CERTIFICATE_HELP = """\
Make the run a certificate run: everything planned runs, nothing may be left out.
`pytest-meshnet certify` sets it up; it is of little use by hand."""
COMPLETE_HELP = f"""\
End a run with exit code 3 when a test of a suite is not-run, as a certificate run does: one that
was not provoked, was skipped or deselected. The environment variable {COMPLETE_VARIABLE} (true or
false) comes before the ini. Default: such a run ends with 0 when nothing failed."""
SEED_HELP = f"""\
The seed of all random inputs of the suites. Default: {DEFAULT_SEED}."""
TRANSPORT_HELP = """\
How a reference target is reached: grpc, in a process of its own, or in-process. Default: grpc."""
OFFER_HELP = """\
The compression that sessions offer beside none: none, or zstd, so that a runtime which compresses
does so in every test. Default: none."""


GPU_HELP = """\
The GPUs that hardware tests may use: a comma list of indices, of UUIDs (a unique prefix will do) or
of PCI bus ids. An index counts inside CUDA_VISIBLE_DEVICES. Default: every visible one."""
GPU_WAIT_HELP = """\
How many seconds a hardware test waits for a GPU that others hold. Default: 600."""
INVENTORY_HELP = """\
An invented inventory of GPUs (JSON) instead of this machine's; it proves nothing about hardware."""
PRESENT_HELP = """\
What this host has beside GPUs, for the lanes that need it: real_target, real_runtime:NAME or
machines:N. May be repeated."""
LANES_HELP = """\
Hardware lanes of a project, one a line: NAME: CONDITION, ... with the conditions vendor=, name=,
name~, sm=, sm>=, gfx=, memory>=, memory<=, count= and mig=no.
Example: a6000: name~RTX A6000, count=2."""


@dataclass(frozen=True, slots=True)
class Option:
    """One option: `--meshnet-NAME` on the command line and `meshnet_NAME` in an ini file."""

    name: str
    help: str
    ini_type: Literal["string", "args", "linelist", "bool"] = "string"
    metavar: str | None = None
    variable: str | None = None

    @property
    def flag(self) -> str:
        """The option on the command line."""
        return f"--meshnet-{self.name}"

    @property
    def key(self) -> str:
        """The key in an ini file, which is the attribute on `config.option` too."""
        return f"meshnet_{self.name.replace('-', '_')}"


SUITE_OPTIONS = (
    Option("suite", SUITE_HELP, "args", "NAME"),
    Option("target", TARGET_HELP, metavar="FILE"),
    Option("shard", SHARD_HELP, metavar="NAME"),
    Option("profile", PROFILE_HELP, "args", "NAME"),
    Option("expect", EXPECT_HELP, metavar="FILE"),
    Option("write-expect", WRITE_EXPECT_HELP, metavar="FILE"),
    Option("out", OUT_HELP, metavar="DIR"),
    Option("signing-key", SIGNING_KEY_HELP, metavar="PEM", variable=KEY_VARIABLE),
    Option("challenge", CHALLENGE_HELP, metavar="TEXT"),
    Option("policy", POLICY_HELP, metavar="FILE"),
    Option("certificate", CERTIFICATE_HELP, "bool"),
    Option("complete", COMPLETE_HELP, "bool", variable=COMPLETE_VARIABLE),
    Option("seed", SEED_HELP, metavar="NUMBER"),
    Option("transport", TRANSPORT_HELP, metavar="KIND"),
    Option("offer", OFFER_HELP, metavar="COMPRESSION"),
)
HARDWARE_OPTIONS = (
    Option("gpu", GPU_HELP, metavar="LIST"),
    Option("gpu-wait", GPU_WAIT_HELP, metavar="SECONDS"),
    Option("inventory", INVENTORY_HELP, metavar="FILE"),
    Option("present", PRESENT_HELP, "args", "FACT"),
    Option("lanes", LANES_HELP, "linelist", "LANE"),
)
"""The options of hardware lanes, which also serve a project that has no suite of ours."""

OPTIONS = (*SUITE_OPTIONS, *HARDWARE_OPTIONS)


@dataclass(frozen=True, slots=True)
class Settings:
    """What the options of a run come to; paths are absolute.

    `target` is `reference`, `reference:NAME` or the path of a descriptor. Without `profiles` the
    descriptor's claims count. `out` is None when no evidence is wanted.
    """

    suites: tuple[str, ...]
    target: str
    shard: str | None
    profiles: tuple[str, ...]
    expect: Path | None
    write_expect: Path | None
    out: Path | None
    signing_key: Path | None
    challenge: str
    policy: Path | None
    certificate: bool
    complete: bool
    seed: int
    transport: Transport
    offer: Offer

    @property
    def is_reference(self) -> bool:
        """Whether the target is the built-in reference worker or one of its kin."""
        return is_reference(self.target)


def is_reference(target: str) -> bool:
    """Say whether a target's name means the built-in reference worker or one of its kin."""
    return target.partition(":")[0] == REFERENCE


def add_options(parser: pytest.Parser) -> None:
    """Register every option and its ini twin, in one help group."""
    group = parser.getgroup("meshnet", "conformance and acceptance of Shard runtimes")
    for one in OPTIONS:
        many = one.ini_type in ("args", "linelist")
        kind: dict[str, Any] = {"action": "append" if many else "store"}
        if one.ini_type == "bool":
            kind = {"action": "store_true"}
        else:
            kind["metavar"] = one.metavar
        # None everywhere: only so can an ini value be told from a default.
        group.addoption(one.flag, dest=one.key, default=None, help=one.help, **kind)
        parser.addini(one.key, one.help, type=one.ini_type, default=None)


_SETTINGS = pytest.StashKey[Settings]()


def are_used(config: pytest.Config) -> bool:
    """Say whether a run asks for this plugin; an unrelated run is left alone."""
    given = any(config.getoption(one.key) is not None for one in SUITE_OPTIONS)
    return given or bool(config.getini("meshnet_suite") or config.getini("meshnet_certificate"))


def hardware_may_run(config: pytest.Config) -> bool:
    """Say whether hardware lanes take part: an option is given, or the project's ini names one."""
    return any(
        config.getoption(one.key) is not None or bool(config.getini(one.key)) for one in OPTIONS
    )


def settings(config: pytest.Config) -> Settings:
    """Return the settings of a run: command line before environment before ini before default.

    Raises pytest.UsageError for a value that cannot be used.
    """
    if _SETTINGS not in config.stash:
        config.stash[_SETTINGS] = _build(_Values(config))
    return config.stash[_SETTINGS]


class _Values:
    """Looks options up by precedence and remembers what a relative path is relative to."""

    def __init__(self, config: pytest.Config) -> None:
        self._config = config
        self._called_in = config.invocation_params.dir
        self._ini_in = config.inipath.parent if config.inipath else config.rootpath

    def get(self, name: str) -> tuple[Any, Path]:
        """Return (value or None, folder that the value is relative to)."""
        option = next(one for one in OPTIONS if one.name == name)
        value = self._config.getoption(option.key)
        if value is not None:
            return value, self._called_in
        if option.variable and os.environ.get(option.variable):
            return os.environ[option.variable], self._called_in
        return self._config.getini(option.key) or None, self._ini_in

    def flag(self, name: str) -> bool:
        value, _ = self.get(name)
        return _one_of(name, str(value or False).lower(), ("true", "false")) == "true"

    def text(self, name: str, default: str) -> str:
        value, _ = self.get(name)
        return default if value is None else str(value)

    def texts(self, name: str) -> tuple[str, ...]:
        value, _ = self.get(name)
        return tuple(dict.fromkeys(value or ()))

    def path(self, name: str, default: str | None = None) -> Path | None:
        value, base = self.get(name)
        if value is None:
            return None if default is None else self._called_in / default
        return Path(os.path.normpath(base / Path(value).expanduser()))


def _build(values: _Values) -> Settings:
    certificate = bool(values.get("certificate")[0])
    built = Settings(
        suites=_suites(values.texts("suite")),
        target=_target(values),
        shard=values.text("shard", "") or None,
        profiles=values.texts("profile"),
        expect=_existing("expect", values.path("expect")),
        write_expect=_new("write-expect", values.path("write-expect")),
        out=values.path("out", DEFAULT_OUT if certificate else None),
        signing_key=_existing("signing-key", values.path("signing-key")),
        challenge=values.text("challenge", ""),
        policy=_existing("policy", values.path("policy")),
        certificate=certificate,
        complete=values.flag("complete"),
        seed=_checked("seed", values.text("seed", str(DEFAULT_SEED)), "a whole number", int),
        transport=_one_of("transport", values.text("transport", "grpc"), get_args(Transport)),
        offer=_one_of("offer", values.text("offer", "none"), get_args(Offer)),
    )
    if built.transport == "in-process" and not built.is_reference:
        raise pytest.UsageError(
            f"--meshnet-transport in-process reaches only a reference target, not {built.target}: "
            "use grpc"
        )
    return built


def _target(values: _Values) -> str:
    name = values.text("target", REFERENCE)
    if is_reference(name):
        return name
    return str(_existing("target", values.path("target")))


def _existing(name: str, path: Path | None) -> Path | None:
    if path is not None and not path.is_file():
        raise pytest.UsageError(f"--meshnet-{name}: there is no file {path}: correct the path")
    return path


def _new(name: str, path: Path | None) -> Path | None:
    if path is not None and path.exists():
        raise pytest.UsageError(f"--meshnet-{name}: {path} exists and is never overwritten")
    return path


def _suites(names: tuple[str, ...]) -> tuple[str, ...]:
    for name in names:
        if name not in (*SUITES, *PARTS):
            raise pytest.UsageError(
                f"--meshnet-suite: {name!r} is no suite: choose from {', '.join((*SUITES, *PARTS))}"
            )
    return tuple(name for name in (*SUITES, *PARTS) if name in names)


def _one_of(name: str, text: str, known: tuple[T, ...]) -> T:
    for found in known:
        if found == text:
            return found
    raise pytest.UsageError(
        f"--meshnet-{name} is {text!r}: expected {' or '.join(map(str, known))}"
    )


def _checked(name: str, text: str, expected: str, read: Callable[[str], T]) -> T:
    try:
        return read(text)
    except ValueError:
        raise pytest.UsageError(f"--meshnet-{name} is {text!r}: expected {expected}") from None
