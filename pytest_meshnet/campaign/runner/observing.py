"""From the JSON line of a repetition to what the judge sees of it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from pytest_meshnet.campaign.attribution.attributed import OK
from pytest_meshnet.campaign.documents import Fields, loads
from pytest_meshnet.campaign.errors import CampaignRefused
from pytest_meshnet.campaign.judging.facts import Observation


def observation(record: Any, where: str) -> Observation:
    """Read one line of a block. Raises CampaignRefused for one that is no repetition."""
    told = Fields(record, where)
    status = told.inner("prefill_status")
    failed = told.flag("failed")
    return Observation(
        arm_id=told.text("arm_id"),
        class_id=told.text("class_id"),
        execution_index=told.whole("execution_index"),
        measured=told.flag("measured"),
        repetition=told.whole("repetition"),
        failed=failed,
        error=told.maybe_text("error"),
        prompt_tokens=told.maybe_whole("prompt_tokens"),
        completion_tokens=told.maybe_whole("completion_tokens"),
        requested_tokens=told.whole("requested_max_tokens"),
        prefill=_code(status, told.inner("prefill")),
        prefill_reason=None if status is None else status.maybe_text("reason"),
    )


def _code(status: Fields | None, prefill: Fields | None) -> str:
    """How the attribution ended; one that says ok holds a time, its tokens, and its own uid."""
    if status is None:
        return "unavailable"
    code = status.text("code")
    if code != OK:
        return code
    if prefill is None:
        return "no_fresh_record"
    milliseconds, tokens = prefill.maybe_number("gpu_ms"), prefill.maybe_whole("new_tokens")
    if not milliseconds or milliseconds <= 0 or not tokens or tokens <= 0:
        return "unusable_timing"
    own = status.maybe_whole("request_uid")
    if own is not None and prefill.maybe_whole("uid") != own:
        return "no_fresh_record"
    return OK


def observations(block: bytes, where: str) -> Iterator[Observation]:
    """Read the lines of a block. Raises CampaignRefused."""
    for number, line in enumerate(block.splitlines(), start=1):
        place = f"{where} line {number}"
        try:
            record = loads(line)
        except ValueError as error:
            raise CampaignRefused(f"{place} is no JSON: {error}") from None
        yield observation(record, place)
