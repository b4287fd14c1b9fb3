"""A record that a run attached is judged on the run's page, whatever else the record says."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from pytest_meshnet.alpha.section import MEDIA_TYPE, Alpha
from pytest_meshnet.evidence.bundle import BundleWriter
from pytest_meshnet.evidence.report import run_report
from pytest_meshnet.evidence.report.sections import Attached, Paragraph, SectionError, Table
from pytest_meshnet.evidence.signing.keys import SigningKey
from pytest_meshnet.suite.sections import providers
from pytest_meshnet.target.documents import LockedTarget
from pytest_meshnet.tests.evidence.report import samples

from .complete import claim, complete


@pytest.fixture
def record() -> dict[str, Any]:
    made = complete(LockedTarget.load())
    made["synthetic"] = False
    return made


def sections(data: bytes) -> Any:
    return list(Alpha().sections([Attached("t", "alpha record", data)]))


def test_the_section_has_the_verdict_and_a_row_for_each_criterion(record: dict[str, Any]) -> None:
    for node in record["identity_and_fit"]["nodes"]:
        node["files"] = claim([])
    (section,) = sections(json.dumps(record).encode())
    first = section.blocks[0]
    assert isinstance(first, Paragraph)
    assert first.text.startswith("stop: 70 of 71 criteria are met; first bottleneck identity_and")
    rows = [row for block in section.blocks if isinstance(block, Table) for row in block.rows]
    assert len(rows) == 71
    (row,) = (row for row in rows if row[0] == "require all shard sha256")
    assert row[2] == "not met"
    assert row[3].endswith("; and 27 more"), "thirty files are not verified"


@pytest.mark.parametrize("data", [b"{", b"{}", b"[]", b'{"schema": NaN}'])
def test_what_is_no_record_is_said_so(data: bytes) -> None:
    with pytest.raises(SectionError, match="alpha record: "):
        sections(data)


def test_an_attached_record_is_on_the_page_of_its_run(
    tmp_path: Path, record: dict[str, Any]
) -> None:
    def extra(writer: BundleWriter) -> None:
        writer.recorder.attach(None, "alpha record", json.dumps(record).encode(), MEDIA_TYPE)

    bundle = samples.make(tmp_path / "a", SigningKey.make_ephemeral(), extra=extra)
    assert run_report([bundle], html=tmp_path / "page.html", providers=providers())[1] == 0
    page = (tmp_path / "page.html").read_text(encoding="utf-8")
    assert "Release question of the locked target" in page
    assert "alpha: 71 of 71 criteria are met. Measured on Consumer desktop, 64 GiB" in page
