"""FreeToken: a ring of prefill records behind `GET /v1/instrumentation`, matched by request id.

Schema `freetoken.instrumentation/1`; the ring keeps the last 256 records.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from pytest_meshnet.campaign.attribution.attributed import Attribution, Names, Route, measured

SCHEMA = "freetoken.instrumentation/1"
RING = 256
"""Most records that the server keeps, and the largest limit of the route."""

_NAMES = Names("gpu_ms", "new_tokens", "cached_tokens")
_RESPONSE_ID = re.compile(r"chatcmpl-([0-9]+)", re.ASCII)


def request_uid(response_id: str | None) -> int | None:
    """Return the uid in a response id, `chatcmpl-<uid>` from 0; None for any other shape."""
    found = _RESPONSE_ID.fullmatch(response_id or "")
    return int(found[1]) if found else None


def problem_of(document: Any) -> str | None:
    """Say why an answer of the route is no instrumentation, None when it is."""
    if not isinstance(document, Mapping):
        return f"/v1/instrumentation answered {document!r:.60}: expected an object"
    if document.get("schema") != SCHEMA:
        return f"/v1/instrumentation has schema {document.get('schema')!r}: expected {SCHEMA}"
    return None


def sequence_floor(document: Any) -> int | None:
    """Return how many prefills were observed so far, None where the route does not tell."""
    prefill = document.get("prefill") if isinstance(document, Mapping) else None
    observed = prefill.get("observed") if isinstance(prefill, Mapping) else None
    return observed if type(observed) is int else None


def attribute(
    document: Any, problem: str | None, response_id: str | None, floor: int | None
) -> Attribution:
    """Find the record of one finished request.

    `document` is what the route answered after the request, `problem` why it did not; `floor` the
    count of observed prefills before the request, None when it could not be read. With a uid only
    the record of that uid counts; without one only a single record newer than the floor.
    """
    uid = request_uid(response_id)
    route: Route = "sequence" if uid is None else "uid"
    problem = problem or problem_of(document)
    prefill = None if problem else document.get("prefill")
    if not isinstance(prefill, Mapping):
        return Attribution("unavailable", problem or "it holds no prefill", route, uid)
    if prefill.get("enabled") is not True:
        reason = "the server does not measure prefill; no other figure stands in for it"
        return Attribution("instrumentation_disabled", reason, route, uid)
    known = _records(prefill.get("records"))
    found = _fresh(known, floor) if uid is None else _of(known, uid, floor)
    if len(found) != 1:
        return _not_one(found, route, uid, floor)
    record = found[0]
    if record.get("shared_batch") is not False:
        reason = "the batch was shared by several requests: its time is none of theirs"
        return Attribution("shared_batch", reason, route, uid, record=record)
    return measured(record, _NAMES, route, uid)


def _records(told: Any) -> list[Mapping[str, Any]]:
    return [one for one in told if isinstance(one, Mapping)] if isinstance(told, list) else []


def _fresh(records: Sequence[Mapping[str, Any]], floor: int | None) -> list[Mapping[str, Any]]:
    """Records newer than the floor; without a floor nothing is known to be new."""
    if floor is None:
        return []
    return [one for one in records if type(one.get("seq")) is int and one["seq"] > floor]


def _of(
    records: Sequence[Mapping[str, Any]], uid: int, floor: int | None
) -> list[Mapping[str, Any]]:
    """Records of a uid. One that was there before the request is another server's or a lie."""
    own = [one for one in records if type(one.get("uid")) is int and one["uid"] == uid]
    return own if floor is None else _fresh(own, floor)


def _not_one(
    found: Sequence[Mapping[str, Any]], route: Route, uid: int | None, floor: int | None
) -> Attribution:
    whose = f"newer than sequence {floor}" if uid is None else f"of request {uid}"
    if found:
        reason = f"{len(found)} records {whose}: which one is the request's is not told"
        return Attribution("ambiguous_records", reason, route, uid)
    reason = f"no fresh record {whose}: another request's is never taken"
    return Attribution("no_fresh_record", reason, route, uid)
