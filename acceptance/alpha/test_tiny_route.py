"""The release question asked of the tiny route: measured for real, and `stop` all the same.

The route runs in processes of its own, and once more in network namespaces where the machine lets
one make them. Its model has a few layers and invented weights, so that no measurement may pass it.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from pytest_meshnet import layout
from pytest_meshnet.alpha.collectors import storage
from pytest_meshnet.alpha.judge import MET, NO_EVIDENCE, Line, judge
from pytest_meshnet.alpha.record import load as load_record
from pytest_meshnet.alpha.section import MEDIA_TYPE
from pytest_meshnet.protocol.tensors import DType
from pytest_meshnet.reference.index_share import DEFAULT_INDEX_SHARE as INDEX_SHARE
from pytest_meshnet.runtime.descriptor import load
from pytest_meshnet.runtime.route_making import RoutePlan
from pytest_meshnet.suite.evidence import Attachments
from pytest_meshnet.suite.parity import open_bench
from pytest_meshnet.target.documents import LockedTarget

from .tiny_route import Subject, collect, sent, served_identity

LEAST_MET = 20
RANGES = ((0, 2), (2, 6), (6, 8))
"""Each begins with a layer that makes its own indices, so that any Shard can be asked alone."""


@pytest.fixture
def subject() -> Iterator[Subject]:
    path = layout.folder("fixtures") / "targets" / "parity-index-share.toml"
    descriptor = load(str(path))
    assert descriptor.route is not None, "expected whole routes"
    # Parity drives this target over float32 alone; a release needs the production seam as well.
    both = replace(descriptor.route, dtypes=(DType.FLOAT32, DType.BFLOAT16))
    bench = open_bench(replace(descriptor, route=both), seed=20260101)
    plan = RoutePlan(RANGES, DType.BFLOAT16)
    yield Subject(bench, plan, served_identity(INDEX_SHARE, 0, INDEX_SHARE.layers))
    bench.close()


@pytest.mark.timeout(300)
def test_the_verdict_is_stop_because_the_workers_are_layer_reduced(
    subject: Subject, attachments: Attachments, tmp_path: Path
) -> None:
    """What this machine lets one measure is measured; the rest stays without evidence."""
    made = collect(subject)
    record = load_record(made.save(tmp_path))
    verdict = judge(LockedTarget.load(), record)
    attachments.data("alpha record", json.dumps(record).encode(), MEDIA_TYPE)
    lines = {line.id: line for line in verdict.lines}
    reduced = lines["reliability.layer_reduced_fixtures_satisfy_alpha"]
    met = [line.id for line in verdict.lines if line.status == MET and line.source == "measured"]
    assert verdict.word == "stop", "expected stop, for the model has a few layers"
    assert [code for code, _ in reduced.reasons if code.endswith(".layer-reduced")], reduced
    assert len(met) >= LEAST_MET, f"expected {LEAST_MET} criteria met by measurement, found {met}"
    _check(lines)


@pytest.mark.parametrize("form", ["got {}", "got {!r}", "prefill of {} tokens"])
def test_the_token_ids_of_a_prompt_are_what_a_log_gives_away(form: str) -> None:
    ids = (17, 4, 211, 90, 33)
    hits = storage.scan([form.format(list(ids))], sent({"short": ids}))["prompt_payloads_found"]
    assert hits["value"] == 1, f"expected the line found among {sent({'short': ids})}"


def _check(lines: dict[str, Line]) -> None:
    """What must be met on an honest route, and what this machine cannot show."""
    for name in (
        "semantic_correctness.f32_seam_fixture_exact_match_tokens",
        "semantic_correctness.f32_seam_fixture_requires_exact_match",
        "semantic_correctness.require_fail_closed_on_fingerprint_mismatch",
        "reliability.consecutive_clean_cold_starts",
        "reliability.require_worker_loss_aborts_route",
        "reliability.retry_policy",
        "reliability.forbid_silent_kv_migration",
        "reliability.require_reject_stale_epoch",
        "reliability.require_reject_duplicate_step_id",
        "storage.forbid_secrets_in_logs",
        "storage.forbid_unrestricted_prompt_payloads_in_logs",
        "identity_and_fit.forbid_swap",
    ):
        assert lines[name].status == MET, f"{name}: expected met, found {lines[name].reasons}"
    for name in ("target.target_manifest_sha256", "target_run.require_sentinels"):
        assert lines[name].status == NO_EVIDENCE, f"{name}: nobody measured it, yet {lines[name]}"
