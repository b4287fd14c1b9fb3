"""What a person asked a campaign to be, as the options of the command say it."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from pytest_meshnet.campaign.judging.canonical import REPETITIONS, WARMUPS
from pytest_meshnet.campaign.judging.facts import Protocol
from pytest_meshnet.campaign.plan.arms import ARMS, Arm, ServeSettings
from pytest_meshnet.campaign.workloads.classes import CLASSES

START_S = 1800.0
"""How long a server may load; a 35 B model from a disk takes minutes."""
REQUEST_S = 1800.0
"""How long a stream may stay silent."""


@dataclass(frozen=True, slots=True)
class Orders:
    """All options of `campaign run` and `campaign dry-run`; None was not given."""

    manifest: Path | None = None
    model: str | None = None
    repository: str | None = None
    revision: str | None = None
    gpu: str | None = None
    inventory: Path | None = None
    runtime: tuple[str, ...] = ("ft",)
    settings: ServeSettings = field(default_factory=ServeSettings)
    checkout: Path = Path()
    out: Path = Path("campaign-runs")
    session: int = 1
    reverse: bool = False
    arms: tuple[str, ...] = tuple(ARMS)
    classes: tuple[str, ...] = tuple(CLASSES)
    warmups: int = WARMUPS
    repetitions: int = REPETITIONS
    bench_bw: bool = True
    dev_smoke: bool = False
    allow_missing_provenance: bool = False
    key: Path | None = None
    start_s: float = START_S
    request_s: float = REQUEST_S
    simulated: tuple[str, ...] | None = None

    @property
    def developer(self) -> bool:
        """Whether the run is a developer's, which no figure can make canonical."""
        return self.dev_smoke or self.allow_missing_provenance

    @property
    def session_id(self) -> str:
        """The name of the session and of its folder."""
        return f"session-{self.session}"

    @property
    def folder(self) -> Path:
        """Where everything of the run goes."""
        return self.out / self.session_id

    @property
    def traversal(self) -> tuple[tuple[Arm, ...], tuple[str, ...]]:
        """Arms and classes in the order in which they are run; `reverse` turns both around."""
        step = -1 if self.reverse else 1
        arms = tuple(ARMS[name] for name in ARMS if name in self.arms)
        classes = tuple(name for name in CLASSES if name in self.classes)
        return arms[::step], classes[::step]

    def protocol(self, *, baseline_prompts: bool) -> Protocol:
        """Return what is to be run, with prompts of a manifest for canonical runs or not."""
        arms, classes = self.traversal
        return Protocol(
            tuple(one.arm_id for one in arms),
            classes,
            self.warmups,
            self.repetitions,
            baseline_prompts,
        )
