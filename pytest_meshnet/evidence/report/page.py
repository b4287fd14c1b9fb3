"""The page of one run as plain data; HTML and Markdown render the same.

Whatever it says comes from the judging code that seals and verifies, so that a report and a
verdict cannot differ.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Literal

from pytest_meshnet.evidence.documents import Signer, Start
from pytest_meshnet.evidence.judged import Judged
from pytest_meshnet.evidence.report.against import Against, against
from pytest_meshnet.evidence.report.devices import Device, Look, devices, looks
from pytest_meshnet.evidence.report.results import Results, count, results
from pytest_meshnet.evidence.report.sections import Bar, Bars, Provider, Section, collect
from pytest_meshnet.evidence.verify import Report
from pytest_meshnet.evidence.verify.claims import Claim, claims
from pytest_meshnet.evidence.verify.finding import Finding, Result
from pytest_meshnet.evidence.verify.text import LIMITS, MEANING
from pytest_meshnet.ledger.status import Status
from pytest_meshnet.ledger.verdict import INCOMPLETE, REFUSED

SHOWN_REMARKS = 20
"""Most remarks of one kind that the page lists."""

LOG = "log of "
"""How the names of attached logs begin."""

SHOWN_LOG = 20_000
"""Most characters of a log, from its end, that the page shows."""

Tone = Literal["good", "warn", "bad"]

_TONES: Mapping[str, Tone] = {
    "CERTIFIED": "good",
    "NOT CERTIFIED": "warn",
    "NOT CONFORMANT": "bad",
    "INCOMPLETE": "warn",
    "REFUSED": "bad",
}
_ORDINARY = {"CERTIFIED": "PASSED", "NOT CERTIFIED": "PASSED BUT FOR KNOWN FAILURES"}
"""Words for a run that is no certificate, whatever came of it."""
PASSING = frozenset({*_ORDINARY.keys(), *_ORDINARY.values()})
"""Words of headlines under which nothing stands against a run but what was expected."""


@dataclass(frozen=True, slots=True)
class Headline:
    """The verdict in a word, what it rests on in a sentence, and how it is coloured."""

    word: str
    sentence: str
    tone: Tone


@dataclass(frozen=True, slots=True)
class Checked:
    """What a verification said when the page was made from a finished bundle.

    `trust_asked` says that it had a trust file to hold the signer against.
    """

    result: Result
    trust_asked: bool
    meaning: str
    signer_name: str | None
    passed: int
    checks: int
    findings: tuple[tuple[str, Finding], ...]


@dataclass(frozen=True, slots=True)
class Badge:
    """A claimed profile and how many of its requirements passed, self-checks left out."""

    profile: str
    passed: int
    total: int
    status: Status


@dataclass(frozen=True, slots=True)
class Page:
    """Everything that the page of one run says.

    `results` is None when nothing in the bundle can be believed or judged; then only headline,
    signer and findings are shown. `checked` is None while the bundle is being made. `must` are the
    ids of the claimed MUSTs.
    """

    title: str
    run_id: str
    when: str
    headline: Headline
    start: Start | None
    checked: Checked | None
    results: Results | None
    badges: tuple[Badge, ...] = ()
    must: frozenset[str] = frozenset()
    against: tuple[Against, ...] = ()
    claims: tuple[Claim, ...] = ()
    devices: tuple[Device, ...] = ()
    looks: tuple[Look, ...] = ()
    time: Bars | None = None
    sections: tuple[Section, ...] = ()
    remarks: tuple[tuple[str, str], ...] = ()
    logs: tuple[tuple[str, str], ...] = ()
    circumstances: tuple[tuple[str, str], ...] = ()
    limits: tuple[str, ...] = LIMITS

    @property
    def signer(self) -> Signer | None:
        """The key that signed, as the start of the run names it."""
        return self.start.signer if self.start else None

    @property
    def test_counts(self) -> Mapping[Status, int]:
        """How many tests have each status, worst first."""
        return count(one.status for one in self.results.cases) if self.results else {}


def page_of_run(run: Judged, providers: Iterable[Provider] = ()) -> Page:
    """Return the page of a run that is about to be sealed; nobody has verified it yet."""
    return _page(run, None, tuple(providers))


def page_of_bundle(
    report: Report, providers: Iterable[Provider] = (), *, trust_asked: bool = True
) -> Page:
    """Return the page of a bundle from its verification, by a trust file if one was given."""
    run = Judged.of(report.material)
    checked = _checked(report, trust_asked)
    if run is not None and report.result is not Result.INVALID:
        return _page(run, checked, tuple(providers))
    start, root = report.material.start, report.material.root
    return Page(
        title=start.target.name if start else root.name,
        run_id=start.run_id if start else root.name,
        when=_when(start.t_wall) if start else "unknown",
        headline=_CONTRADICTORY if report.result is Result.INVALID else _TOO_LITTLE,
        start=start,
        checked=checked,
        results=None,
    )


_CONTRADICTORY = Headline(
    "INVALID", "The bundle contradicts itself or the question: believe nothing in it.", "bad"
)
_TOO_LITTLE = Headline("INCOMPLETE", "The bundle does not hold enough to say yes or no.", "warn")


def _page(run: Judged, checked: Checked | None, providers: tuple[Provider, ...]) -> Page:
    found = results(run)
    return Page(
        title=run.start.target.name,
        run_id=run.start.run_id,
        when=_when(run.start.t_wall),
        headline=_headline(run, found, checked),
        start=run.start,
        checked=checked,
        results=found,
        badges=_badges(run),
        must=frozenset(
            one.id for one in run.ledger.claims(run.start.profiles) if one.level == "MUST"
        ),
        against=tuple(against(run, found)),
        claims=claims(run.start, run.recorded),
        devices=devices(run),
        looks=tuple(looks(run)),
        time=_time(found),
        sections=tuple(collect(run, providers)),
        remarks=_remarks(run),
        logs=tuple(_logs(run)),
        circumstances=_circumstances(run),
    )


def _headline(run: Judged, found: Results, checked: Checked | None) -> Headline:
    verdict = run.summary.verdict
    if not run.sealed:
        return Headline("INCOMPLETE", "The run was cut short and never sealed.", "warn")
    word = verdict.word if run.start.certificate else _ORDINARY.get(verdict.word, verdict.word)
    if checked is not None and not _agrees(checked, verdict.exit_code):
        # What a reader verified goes before what the run came to by itself.
        text = f"The run came to {word}; its verification: {checked.meaning}."
        soft = checked.result in (Result.INCOMPLETE, Result.UNTRUSTED)
        tone: Tone = "warn" if soft else "bad"
        return Headline(str(checked.result), text, tone)
    return Headline(word, _sentence(run, found), _TONES[verdict.word])


def _agrees(checked: Checked, exit_code: int) -> bool:
    """Say whether a verification found no more against a run than the run itself.

    Without a trust file every signer is a stranger, which says nothing about this one.
    """
    result = checked.result
    if result is Result.UNTRUSTED and checked.trust_asked:
        return False
    if result is Result.INCOMPLETE:
        return exit_code in (INCOMPLETE, REFUSED)
    return result in (Result.VALID_PASS, Result.UNTRUSTED) or exit_code != 0


def _sentence(run: Judged, found: Results) -> str:
    verdict = run.summary.verdict
    if verdict.word == "REFUSED":
        return verdict.blocking[0]
    listed = ", ".join(f"{number} {status}" for status, number in found.counts.items())
    total = sum(found.counts.values())
    text = f"{total} requirements claimed: {listed}" if total else "No requirement was claimed"
    broken = sum(1 for one in found.cases if one.status is Status.ENGINE_ERROR)
    if broken:
        text += f"; the suite itself broke in {broken} places, so nothing is decided"
    text += "."
    if not run.start.certificate:
        text += " An ordinary run, which is never a certificate."
    if run.endpoint_only:
        text += " Endpoint only: nobody saw the runtime start."
    return text


def _checked(report: Report, trust_asked: bool) -> Checked:
    return Checked(
        result=report.result,
        trust_asked=trust_asked,
        meaning=MEANING[report.result],
        signer_name=report.signer_name,
        passed=sum(1 for one in report.checks if one.ok),
        checks=len(report.checks),
        findings=tuple(
            (check.name, one)
            for check in report.checks
            if check.name != "verdict"  # the page leads with it
            for one in check.findings
        ),
    )


def _badges(run: Judged) -> tuple[Badge, ...]:
    statuses = run.summary.verdict.by_requirement
    found = []
    for name in run.start.profiles:
        theirs = [one.id for one in run.ledger.profile(name) if one.subject != "suite"]
        own = count(statuses[one] for one in theirs)
        worst = next(iter(own), Status.NOT_CLAIMED)
        found.append(Badge(name, own.get(Status.PASSED, 0), len(theirs), worst))
    return tuple(found)


def _time(found: Results) -> Bars:
    groups = (*found.runtime, *found.suite)
    spent: dict[str, float] = {}
    for one in groups:
        spent[one.name] = spent.get(one.name, 0.0) + one.seconds
    bars = (Bar(name, seconds, duration(seconds)) for name, seconds in spent.items())
    longest_first = sorted(bars, key=lambda one: -one.value)
    return Bars("Duration of the tests of each group", tuple(longest_first))


def duration(seconds: float) -> str:
    """Return a duration for people: `0.42 s`, `12.3 s`, `2 min 5 s`."""
    if seconds >= 100:
        return f"{int(seconds) // 60} min {int(seconds) % 60} s"
    return f"{seconds:.1f} s" if seconds >= 10 else f"{seconds:.2f} s"


def _remarks(run: Judged) -> tuple[tuple[str, str], ...]:
    """What happened beside the tests: (kind, text)."""
    recorded = run.recorded
    lost = [f"{name}: {text}" for name, text in recorded.target_losses.items()]
    lost += [f"{one['process']}: {one['message']}" for one in recorded.worker_losses]
    warned = [
        f"{one['test']}: {one['message']}" if one["test"] else one["message"]
        for one in recorded.warnings
    ]
    kinds: Mapping[str, Sequence[str]] = {
        "refused": recorded.refusals,
        "lost": lost,
        "warning": warned,
        "deselected": [one.test for one in run.plan.deselected],
    }
    found = []
    for kind, texts in kinds.items():
        found += [(kind, text) for text in texts[:SHOWN_REMARKS]]
        if len(texts) > SHOWN_REMARKS:
            found.append((kind, f"and {len(texts) - SHOWN_REMARKS} more, in the bundle's records"))
    return tuple(found)


def _logs(run: Judged) -> Iterator[tuple[str, str]]:
    """Yield (name, end of the text) of everything that a runtime of the run logged."""
    for one in run.recorded.attachments:
        if one["test"] is None and one["name"].startswith(LOG):
            data = run.read(one)
            if data:
                yield one["name"], data.decode("utf-8", "replace")[-SHOWN_LOG:]


def _circumstances(run: Judged) -> tuple[tuple[str, str], ...]:
    start = run.start
    kind = "certificate" if start.certificate else "ordinary run, no certificate"
    host = start.host
    gpus = [str(one.get("name") or one.get("uuid") or "unnamed") for one in start.gpus]
    plugins = {f"{one.name} {one.version}" for one in (*start.plugins, *run.recorded.plugins)}
    rows = [
        ("kind of run", kind + (", endpoint only" if run.endpoint_only else "")),
        ("SHA-256 of the raw key", start.signer.raw_sha256),
        ("number of this run", f"{start.counter} by this key in its output folder"),
        ("descriptor", start.target.digest),
        ("suite", f"{start.suite.version}, {start.suite.digest}"),
        ("ledger", f"{start.ledger.version}, {start.ledger.digest}"),
        ("policy", start.policy_digest or "none"),
        ("challenge", start.challenge or "none"),
        ("GPUs", ", ".join(gpus) or start.gpu_inventory),
        ("host", ", ".join(f"{name} {value}" for name, value in sorted(host.items()))),
        ("pytest plugins", ", ".join(sorted(plugins)) or "none"),
        ("options", ", ".join(f"{n}={v}" for n, v in start.options.items()) or "none"),
    ]
    return tuple(rows)


def _when(wall_ns: str) -> str:
    moment = datetime.fromtimestamp(int(wall_ns) // 10**9, UTC)
    return moment.strftime("%Y-%m-%d %H:%M:%S UTC")
