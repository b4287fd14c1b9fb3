"""Everything that a campaign is judged by, as it was observed; nothing here is a conclusion."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Intent:
    """What the run set out to be. `synthetic` says that the runtime or the machine is invented."""

    session_id: str
    session_number: int
    reversed_order: bool
    dev_smoke: bool
    allow_missing_provenance: bool
    synthetic: bool

    @property
    def developer(self) -> bool:
        """Whether the run could never be canonical, whatever it shows."""
        return self.dev_smoke or self.allow_missing_provenance


@dataclass(frozen=True, slots=True)
class Protocol:
    """Arms and classes in the order of their traversal; warm-ups and measured ones per block.

    `baseline_prompts` says that the manifest was frozen for canonical runs, as none that is
    shipped with the suite was.
    """

    arms: tuple[str, ...]
    classes: tuple[str, ...]
    warmups: int
    repetitions: int
    baseline_prompts: bool

    @property
    def per_block(self) -> int:
        """Requests of one arm and class."""
        return self.warmups + self.repetitions

    @property
    def expected(self) -> int:
        """Requests of the whole campaign."""
        return len(self.arms) * len(self.classes) * self.per_block


@dataclass(frozen=True, slots=True)
class Bandwidth:
    """`ft bench bw`, run once before any server. `problem` says why there is no profile.

    `contents` is the parsed profile, `path` where it lies, `sha256` of its bytes.
    """

    skipped: bool
    command: tuple[str, ...]
    started_at: str | None
    finished_at: str | None
    returncode: int | None
    gpu_uuid: str | None
    path: str | None
    sha256: str | None
    contents: Any
    problem: str | None


@dataclass(frozen=True, slots=True)
class Provenance:
    """Where everything came from; None is unknown and never a default.

    `dirty_paths` are those of the checkout before and after the run; None when nobody could tell,
    then or at the end. `checkout_commit` is that of the start and `checkout_commit_last` what was
    last seen.
    """

    model_repository: str | None
    model_revision: str | None
    model_path: str | None
    checkout_commit: str | None
    checkout_commit_last: str | None
    dirty_paths: tuple[str, ...] | None
    runtime_version: str | None
    suite_version: str | None
    manifest_sha256: str | None
    gpu_uuid: str | None
    gpu_name: str | None
    gpu_memory_bytes: int | None
    driver: str | None
    host: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Placed:
    """Where a driver's process list showed the server at the end of its arm.

    `verdict` is proven, contradicted or unobservable, `reasons` say why; `foreign` are other
    processes that computed on the device.
    """

    verdict: str
    observed: tuple[str, ...]
    reasons: tuple[str, ...]
    foreign: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ArmFacts:
    """One arm with the server that it got.

    `failure` says why the server did not start, or how it died. `ready` whether it ever served.
    `instrumentation` is the reason why the route could not be read, None when it could.
    `gpu_uuids` are those that the server reports for itself; None when it reports none.
    `placement` is what was seen from outside, None when nobody could look.
    """

    arm_id: str
    command: tuple[str, ...]
    environment: Mapping[str, str]
    ready: bool
    failure: str | None
    instrumentation: str | None
    configuration: Mapping[str, Any] | None
    gpu_uuids: tuple[str, ...] | None
    placement: Placed | None
    log: str


@dataclass(frozen=True, slots=True)
class Observation:
    """One request: what is judged of it. `prefill` is "ok" or the last part of a prefill code."""

    arm_id: str
    class_id: str
    execution_index: int
    measured: bool
    repetition: int
    failed: bool
    error: str | None
    prompt_tokens: int | None
    completion_tokens: int | None
    requested_tokens: int
    prefill: str
    prefill_reason: str | None


@dataclass(frozen=True, slots=True)
class CampaignRecord:
    """A whole campaign, or as much of it as happened."""

    intent: Intent
    protocol: Protocol
    bandwidth: Bandwidth
    provenance: Provenance
    arms: tuple[ArmFacts, ...]
    observations: tuple[Observation, ...]
