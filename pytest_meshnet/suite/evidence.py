"""What a run gives to the evidence room: a bundle from its controller, a journal per process."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest

from pytest_meshnet.evidence.bundle import About, BundleError, BundleWriter
from pytest_meshnet.evidence.documents import Named
from pytest_meshnet.evidence.journal import Collection, CollectionError
from pytest_meshnet.evidence.judged import Judged
from pytest_meshnet.evidence.recorder import Recorder
from pytest_meshnet.evidence.signing.keys import KeyRefused, SigningKey
from pytest_meshnet.evidence.verify.policy import Policy, PolicyError
from pytest_meshnet.hardware import fixtures
from pytest_meshnet.options import OPTIONS
from pytest_meshnet.suite import collection, plugins
from pytest_meshnet.suite import run as runs
from pytest_meshnet.suite.run import Outcome

if TYPE_CHECKING:
    from pytest_meshnet.evidence.summary import Summary
    from pytest_meshnet.suite.run import Run

TICKET = "meshnet_ticket"
LOG_LIMIT = 4 * 1024 * 1024
"""How much of a runtime's log is kept, in characters from its end."""


@dataclass(slots=True)
class Feed:
    """The journal of this process and, where the run is controlled, the bundle."""

    recorder: Recorder
    bundle: BundleWriter | None = None


def open_feed(config: pytest.Config, run: Run) -> Feed | None:
    """Start the bundle, or join it as an xdist worker; None when no evidence is wanted.

    An unusable key or folder ends the run with exit code 2.
    """
    workerinput: dict[str, Any] | None = getattr(config, "workerinput", None)
    if workerinput is not None:
        ticket = workerinput.get(TICKET)
        return Feed(Recorder.join(ticket, workerinput["workerid"])) if ticket else None
    if run.settings.out is None:
        return None
    try:
        key = _key(run)
        bundle = BundleWriter.create(run.settings.out, _about(config, run), key)
    except (KeyRefused, BundleError, PolicyError) as error:
        pytest.exit(f"refused: {error}", returncode=2)
    return Feed(bundle.recorder, bundle)


def _key(run: Run) -> SigningKey:
    path = run.settings.signing_key
    return SigningKey.load(path) if path else SigningKey.make_ephemeral()


def _about(config: pytest.Config, run: Run) -> About:
    settings = run.settings
    expect = settings.expect.read_text(encoding="utf-8") if settings.expect else ""
    inventory, devices = _inventory(config, run)
    return About(
        gpu_inventory=inventory,
        gpus=devices,
        target=Named(run.target.name, run.target.digest),
        profiles=tuple(sorted(run.claimed)),
        ledger=run.ledger,
        certificate=settings.certificate,
        plugins=plugins.active(config),
        challenge=settings.challenge,
        policy_digest=Policy.load(settings.policy).digest if settings.policy else "",
        artifacts=tuple(Named(*one) for one in run.target.artifacts.items()),
        expected_failures=expect,
        options=_options(config),
    )


def _inventory(config: pytest.Config, run: Run) -> tuple[str, tuple[Mapping[str, Any], ...]]:
    if not run.settings.certificate and "acceptance" not in run.settings.suites:
        return "not collected: an ordinary run without hardware tests", ()
    return fixtures.evidence(config)


def _options(config: pytest.Config) -> dict[str, str]:
    given = {one.key: config.getoption(one.key) for one in OPTIONS}
    return {key: str(value) for key, value in given.items() if value is not None}


@dataclass(frozen=True, slots=True)
class Attachments:
    """What a test adds to the evidence; nothing is kept in a run without any.

    `permitted` says whether the target's descriptor lets prompts be published.
    """

    test: str
    recorder: Recorder | None
    permitted: bool

    def text(self, name: str, text: str) -> None:
        """Add a text, redacted."""
        if self.recorder is not None:
            self.recorder.attach_text(self.test, name, text)

    def data(self, name: str, data: bytes, media_type: str) -> None:
        """Add bytes as they are."""
        if self.recorder is not None:
            self.recorder.attach(self.test, name, data, media_type)

    def prompt(self, name: str, data: bytes, media_type: str = "text/plain") -> None:
        """Add a prompt, or an answer to one: whole where that is permitted, else its digest."""
        if self.recorder is not None:
            self.recorder.attach(self.test, name, data, media_type, store=self.permitted)


def attachments_of(item: pytest.Item) -> Attachments:
    """Return where a test adds to the evidence of its run."""
    run = runs.active(item.config)
    if run is None or run.feed is None:
        return Attachments(item.nodeid, None, permitted=False)
    test = collection.test_id(item)
    return Attachments(test, run.feed.recorder, run.target.publishes_prompts)


def attach_logs(run: Run, logs: Mapping[str, str]) -> None:
    """Attach the end of what each started runtime wrote, by the name of its start."""
    if run.feed is not None:
        for name, text in logs.items():
            run.feed.recorder.attach_text(None, f"log of {name}", text[-LOG_LIMIT:])


def write_collection(config: pytest.Config, run: Run, lanes: Mapping[str, str]) -> None:
    """Record what this process collected, and sign it as the plan where the run is controlled.

    `lanes` maps hardware tests to their lane. Every conftest is loaded by now, so the plugins of
    the process are recorded too.
    """
    if run.feed is None:
        return
    run.feed.recorder.plugins(plugins.active(config))
    found = Collection(
        tests=tuple(run.planned.values()),
        deselected=tuple(run.deselected.values()),
        errors=tuple(CollectionError(name, text) for name, text in run.errors.items()),
        hardware=lanes,
    )
    run.feed.recorder.collected(found)
    if run.feed.bundle is not None:
        run.feed.bundle.plan(found)


def take_plan_of(config: pytest.Config, run: Run, process: str) -> None:
    """Sign as the plan what an xdist worker collected; the first worker counts."""
    if run.feed is not None and run.feed.bundle is not None and not run.feed.bundle.planned:
        run.feed.recorder.plugins(plugins.active(config))
        run.feed.bundle.plan_from(process)


def judge_journals(run: Run) -> Outcome | None:
    """Judge the run from its journals; None when there are none or they are broken."""
    if run.feed is None or run.feed.bundle is None:
        return None
    summary = run.feed.bundle.summary()
    return Outcome(summary.judgements, summary.verdict)


def close_feed(run: Run, exit_status: int) -> None:
    """End the journal of this process and seal the bundle where the run is controlled.

    Raises BundleError when it cannot be sealed; the run is then unsealed and proves nothing.
    """
    if run.feed is None:
        return
    if run.feed.bundle is None:
        run.feed.recorder.finish(exit_status)
    else:
        bundle = run.feed.bundle
        summary = bundle.seal(exit_status, partial(_reports, run))
        if run.settings.certificate:
            _write_badge(run, bundle, summary)


def _write_badge(run: Run, bundle: BundleWriter, summary: Summary) -> None:
    """Write the badge beside the bundle; without it the evidence is as good."""
    from pytest_meshnet.evidence.badge import write_badge

    try:
        write_badge(bundle.path.parent, bundle.run_id, summary, bundle.start.profiles)
    except OSError as error:
        run.unreported = f"no badge: {error}"


def _reports(run: Run, judged: Judged) -> Mapping[str, bytes]:
    """Make the reports; without them the evidence is as good, and a person hears why."""
    from pytest_meshnet.evidence.report import ReportError, derive
    from pytest_meshnet.suite.sections import providers

    try:
        return derive(judged, providers())
    except ReportError as error:
        run.unreported = str(error)
        return {}
