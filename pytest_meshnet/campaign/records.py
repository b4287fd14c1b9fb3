"""One repetition as a record: what was measured of one request, and nothing that was concluded."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from pytest_meshnet.campaign.documents import Fields, loads
from pytest_meshnet.campaign.errors import CampaignRefused

CLASSES = ("W1", "W2", "W3", "W4")
"""The workload classes, in the order in which they are run and drawn."""


@dataclass(frozen=True, slots=True)
class Prefill:
    """The server's own measure of one prompt: milliseconds on the device, tokens it computed.

    `new_tokens` were computed, `cached_tokens` were found in a cache; None is not told.
    """

    gpu_ms: float
    new_tokens: int
    cached_tokens: int | None
    tokens_per_s: float


@dataclass(frozen=True, slots=True)
class Repetition:
    """One request of a block; times in milliseconds as the client saw them, None is unknown.

    `gaps_ms` are all gaps between events with generated content; records of other tools carry
    only the three figures of them. `session` tells sessions apart; they are never pooled.
    """

    session: int
    execution_index: int
    arm_id: str
    class_id: str
    measured: bool
    repetition: int
    ttft_ms: float
    decode_tok_s: float
    decode_window_ms: float
    decode_steps: int
    gap_p50_ms: float
    gap_p95_ms: float
    gap_max_ms: float
    gaps_ms: tuple[float, ...] | None = None
    prefill: Prefill | None = None
    vram_bytes: int | None = None
    kv_used_pages: int | None = None
    token_events: int | None = None


def read_blocks(*folders: Path) -> dict[str, tuple[Repetition, ...]]:
    """Read `W1.jsonl` to `W4.jsonl` of one arm; class to repetitions in recorded order.

    Several folders hold several sessions. Raises CampaignRefused for a folder without any block,
    for a broken line, for a repetition that failed or stands there twice, and for several arms.
    """
    found: dict[str, tuple[Repetition, ...]] = {}
    for folder in folders:
        paths = {name: folder / f"{name}.jsonl" for name in CLASSES}
        blocks = {name: read_block(path) for name, path in paths.items() if path.is_file()}
        if not blocks:
            raise CampaignRefused(f"{folder} holds no block: expected W1.jsonl to W4.jsonl in it")
        for name, block in blocks.items():
            found[name] = (*found.get(name, ()), *block)
    _check_whole(found)
    return {name: found[name] for name in CLASSES if name in found}


def _check_whole(blocks: Mapping[str, Sequence[Repetition]]) -> None:
    arms = {one.arm_id for block in blocks.values() for one in block}
    if len(arms) > 1:
        raise CampaignRefused(f"the arms {', '.join(sorted(arms))} are mixed: expected one")
    for name, block in blocks.items():
        seen = Counter((one.session, one.measured, one.repetition) for one in block)
        for (session, _, repetition), count in seen.items():
            if count > 1:
                raise CampaignRefused(
                    f"{name}: repetition {repetition} of session {session} stands {count} times: "
                    "sessions are never pooled, and no repetition counts twice"
                )


def read_block(path: Path) -> tuple[Repetition, ...]:
    """Read one JSONL file, a repetition a line. Raises CampaignRefused."""
    return tuple(_repetitions(path))


def _repetitions(path: Path) -> Iterator[Repetition]:
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise CampaignRefused(f"{path} cannot be read: {error}") from None
    for number, line in enumerate(lines, start=1):
        where = f"{path.name} line {number}"
        try:
            told = loads(line)
        except ValueError as error:
            raise CampaignRefused(f"{where} is no JSON: {error}; the block is broken") from None
        yield repetition(Fields(told, where), path.stem)


def repetition(told: Fields, class_id: str) -> Repetition:
    """Read one record. Raises CampaignRefused for one that failed or is of another class."""
    if told.flag("failed"):
        raise CampaignRefused(
            f"arm {told.text('arm_id')}, {class_id}, repetition {told.whole('repetition')} failed: "
            "an incomplete block has no statistics; run the campaign again"
        )
    if told.text("class_id") != class_id:
        raise CampaignRefused(
            f"a record of class {told.text('class_id')} lies in the file of {class_id}"
        )
    kv = told.inner("kv")
    return Repetition(
        session=told.whole("session_number"),
        execution_index=told.whole("execution_index"),
        arm_id=told.text("arm_id"),
        class_id=class_id,
        measured=told.flag("measured"),
        repetition=told.whole("repetition"),
        ttft_ms=told.number("ttft_ms"),
        decode_tok_s=told.number("decode_tok_s"),
        decode_window_ms=told.number("decode_window_s") * 1000,
        decode_steps=told.whole("decode_steps"),
        gap_p50_ms=told.number("inter_token_ms_p50"),
        gap_p95_ms=told.number("inter_token_ms_p95"),
        gap_max_ms=told.number("inter_token_ms_max"),
        gaps_ms=told.numbers("inter_token_ms"),
        prefill=_prefill(told.inner("prefill")),
        vram_bytes=told.maybe_whole("vram_bytes"),
        kv_used_pages=None if kv is None else kv.maybe_whole("used_pages"),
        token_events=told.maybe_whole("token_events"),
    )


def _prefill(told: Fields | None) -> Prefill | None:
    if told is None:
        return None
    return Prefill(
        gpu_ms=told.number("gpu_ms"),
        new_tokens=told.whole("new_tokens"),
        cached_tokens=told.maybe_whole("cached_tokens"),
        tokens_per_s=told.number("prefill_tok_s"),
    )


def measured(block: Sequence[Repetition], session: int) -> tuple[Repetition, ...]:
    """Return the repetitions of one session that count, in the order of their repetition."""
    chosen = [one for one in block if one.measured and one.session == session]
    return tuple(sorted(chosen, key=lambda one: one.repetition))
