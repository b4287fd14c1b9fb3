"""Whole campaigns: what a complete one leaves, what a broken one says, and that none is resumed."""

import hashlib
import json
import math
import re
import signal
import subprocess
import sys
from dataclasses import replace

import pytest

from pytest_meshnet.campaign.plan.surroundings import checkout
from pytest_meshnet.campaign.report.section import Campaign
from pytest_meshnet.campaign.runner import session
from pytest_meshnet.campaign.simulated.rig import smoke_manifest
from pytest_meshnet.evidence.report.sections import Attached, SectionError
from pytest_meshnet.tests.campaign.running import call, campaign, canonical_manifest

FIRST_KEYS = ["schema", "headline", "execution_status", "validity", "intent", "blockers"]
FIRST_KEYS += ["campaign_invalidations", "codes", "protocol"]


@pytest.fixture(scope="module")
def smoke(tmp_path_factory):
    """Five arms, four classes, two warm-ups and ten measured repetitions a block."""
    arms, classes = ("B1", "B2", "B3", "B4", "B5"), ("W1", "W2", "W3", "W4")
    out = tmp_path_factory.mktemp("smoke")
    return campaign(out, arms=arms, classes=classes, warmups=2, repetitions=10)


def records(left):
    paths = sorted((left.folder / "blocks").rglob("*.jsonl"))
    return [json.loads(line) for path in paths for line in path.read_text().splitlines()]


def test_a_smoke_campaign_is_complete_clean_and_never_canonical(smoke):
    assert smoke.exit_code == 4, smoke.output
    assert smoke.run["headline"] == "NON-CANONICAL DEVELOPER RUN"
    assert smoke.run["execution_status"] == "COMPLETE"
    assert smoke.run["validity"] == "NON_CANONICAL"
    assert smoke.run["codes"] == {}
    assert smoke.run["protocol"]["observed"] == 240
    assert "canonical" not in smoke.run
    assert list(smoke.run)[: len(FIRST_KEYS)] == FIRST_KEYS
    assert smoke.run["schema"] == "inferswarm.phase0.run/2"


def test_its_bundle_verifies_and_holds_every_file(smoke):
    done = call("verify", smoke.bundle)
    assert done.exit_code == 4, done.output
    assert "passed 21" in done.output
    journal = (smoke.bundle / "journal" / "main.jsonl").read_text().splitlines()
    bodies = [json.loads(line) for line in journal]
    attached = {one["body"]["name"] for one in bodies if one["type"] == "attachment"}
    files = {
        path.relative_to(smoke.folder).as_posix()
        for path in smoke.folder.rglob("*")
        if path.is_file() and "evidence" not in path.relative_to(smoke.folder).parts
    }
    assert attached == files
    assert {"run.json", "SUMMARY.md", "logs/bench_bw.log", "blocks/B5/W4.jsonl"} <= files


def test_the_report_of_its_bundle_has_a_section_about_it(smoke, tmp_path):
    page = tmp_path / "page.html"
    done = call("report", smoke.bundle, "--html", page, "--md", tmp_path / "page.md")
    assert done.exit_code == 0, done.output
    for text in (page.read_text(), (tmp_path / "page.md").read_text()):
        assert "Campaign session-1" in text
        assert "240 of 240 requests; validity NON" in text
        assert "B5: median decode rate of each class, in tok/s" in text


@pytest.mark.parametrize("data", [b"{", b"[]", b'{"protocol": {}}', b"null"])
def test_a_run_json_that_cannot_be_shown_breaks_no_report(data):
    with pytest.raises(SectionError, match=r"run\.json"):
        list(Campaign().sections([Attached(None, "run.json", data)]))


def test_each_block_is_two_warm_ups_and_ten_measured_ones_in_one_order(smoke):
    every = sorted(records(smoke), key=lambda one: one["execution_index"])
    assert [one["execution_index"] for one in every] == list(range(240))
    places = [(one["arm_id"], one["class_id"], one["phase"], one["repetition"]) for one in every]
    block = [("warmup", n) for n in range(2)] + [("measured", n) for n in range(10)]
    assert places == [
        (f"B{arm}", f"W{number}", *one)
        for arm in range(1, 6)
        for number in range(1, 5)
        for one in block
    ]


def test_every_record_holds_all_its_gaps_and_the_figures_that_follow(smoke):
    for one in records(smoke):
        gaps = one["inter_token_ms"]
        ordered = sorted(gaps)
        assert len(gaps) == one["token_events"] - 1 == one["completion_tokens"] - 1
        assert math.isclose(sum(gaps), one["decode_window_s"] * 1000, rel_tol=1e-6)
        assert one["decode_tok_s"] == one["decode_steps"] / one["decode_window_s"]
        for name, share in (("p50", 0.5), ("p95", 0.95), ("max", 1.0)):
            assert one[f"inter_token_ms_{name}"] == ordered[round(share * (len(gaps) - 1))]


def test_prefill_is_the_servers_own_and_no_figure_is_prompt_tokens_over_ttft(smoke):
    for one in records(smoke):
        told = one["prefill"]
        assert one["prefill_status"]["attribution"] == "uid"
        assert told["uid"] == one["request_uid"]
        assert told["prefill_tok_s"] == told["new_tokens"] / (told["gpu_ms"] / 1000)
        first = one["execution_index"] % 12 == 0
        assert told["label"] == ("prompt throughput" if first else "uncached-suffix work")
        forbidden = one["prompt_tokens"] / (one["ttft_ms"] / 1000)
        numbers = [value for value in {**one, **told}.values() if isinstance(value, float)]
        assert not any(math.isclose(value, forbidden, rel_tol=1e-9) for value in numbers)


def test_no_line_of_the_suite_divides_a_prompt_by_its_ttft():
    """The wrong division is recognised by its words, on either side of the stroke."""
    from pytest_meshnet import campaign as room
    from pytest_meshnet import layout

    folders = [*room.__path__, layout.folder("acceptance")]
    wrong = re.compile(r"prompt\w*[\])\"']*\s*/\s*[^\n/]{0,40}(ttft|first)", re.IGNORECASE)
    assert wrong.search('told["prompt_tokens"] / (one["ttft_ms"] / 1000)')
    paths = [path for one in folders for path in _python_files(one)]
    assert len(paths) > 50
    assert [path for path in paths if wrong.search(path.read_text())] == []


def _python_files(folder):
    from pathlib import Path

    return Path(folder).rglob("*.py")


def test_the_page_shows_every_block_and_loads_nothing(smoke):
    page = (smoke.folder / "report.html").read_text()
    assert "<h1>NON-CANONICAL DEVELOPER RUN</h1>" in page
    assert page.count("<figure>") == 60
    assert "Decode per repetition" in page
    assert not re.search(r"<script|https?://|src=|@import", page)


def test_a_page_and_a_summary_escape_what_others_wrote(tmp_path):
    left = campaign(tmp_path, "--revision", "<script>alert(1)</script>")
    page = (left.folder / "report.html").read_text()
    assert "<script>" not in page
    assert "&lt;script&gt;" in page
    assert left.summary.count("<script>") == left.summary.count("`<script>alert(1)</script>`") == 1


def test_run_json_names_each_block_with_its_digest_and_compares_no_arms(smoke):
    for block in smoke.run["blocks"]:
        data = (smoke.folder / block["file"]).read_bytes()
        assert block["sha256"] == hashlib.sha256(data).hexdigest()
        assert (block["expected"], block["observed"], block["failed"]) == (12, 12, 0)
        assert block["decode_tok_s"]["n"] == 10
    names = set(re.findall(r'"(\w+)":', json.dumps(smoke.run)))
    assert {name for name in names if re.search("(^|_)ratio(_|$)|winner|best|speedup", name)} == {
        "memory_ratio"
    }


def test_every_server_got_its_flags_and_the_same_environment(smoke):
    told = smoke.run["resolved_configuration"]
    assert list(told) == ["B1", "B2", "B3", "B4", "B5"]
    flags = ["--moe-backend", "hybrid", "--moe-cache-auto", "--nvfp4-backend", "triton"]
    command = told["B2"]["command"]
    assert command[command.index("--moe-backend") :][:5] == flags
    assert command[-2:] == ["--gpu", smoke.run["provenance"]["gpu_uuid"]]
    environments = [one["environment"] for one in told.values()]
    assert environments == [{"FREETOKEN_INSTRUMENT_PREFILL": "1"}] * 5
    assert smoke.run["cross_arm"]["b1_b4_one_configuration"] is False


def test_the_second_session_runs_backwards_beside_the_first(tmp_path):
    first = campaign(tmp_path, arms=("B1", "B2"), classes=("W2", "W4"))
    again = ["--simulated", "--dev-smoke", "--out", tmp_path, "--arm", "B1", "--arm", "B2"]
    again += ["--class", "W2", "--class", "W4", "--warmups", 1, "--repetitions", 2]
    done = call("campaign", "run", *again, "--session", 2, "--reverse")
    assert done.exit_code == 4, done.output
    told = json.loads((tmp_path / "session-2" / "run.json").read_text())
    assert first.run["protocol"]["arms"] == ["B1", "B2"]
    assert told["protocol"]["arms"] == ["B2", "B1"]
    assert told["protocol"]["classes"] == ["W4", "W2"]
    assert told["intent"]["reversed_order"] is True
    assert (tmp_path / ".gitignore").read_text() == "*\n"
    analysed = call(
        *("campaign", "analyse", "--baseline", tmp_path / "session-2" / "blocks" / "B1"),
        *("--candidate", tmp_path / "session-2" / "blocks" / "B2", "--json"),
    )
    assert list(json.loads(analysed.stdout)["performance"]) == ["2"]


def test_a_canonical_attempt_ends_before_any_server_when_its_prerequisite_fails(tmp_path):
    """Hours of figures could not make up for it, and none of them can look canonical."""
    manifest = canonical_manifest(tmp_path)
    words = ["--simulated", "--manifest", manifest, "--out", tmp_path / "runs"]
    done = call("campaign", "run", *words, "--simulate", "bench_bw.profile_gpu_mismatch")
    folder = tmp_path / "runs" / "session-1"
    run = json.loads((folder / "run.json").read_text())
    assert (done.exit_code, run["headline"], run["validity"]) == (3, "INCOMPLETE RUN", "INVALID")
    assert run["codes"]["bench_bw.profile_gpu_mismatch"] == 1
    assert run["resolved_configuration"] == {}
    assert [path.name for path in (folder / "logs").iterdir()] == ["bench_bw.log"]


def test_an_unusable_key_or_folder_is_refused_before_anything_is_made(tmp_path):
    real = ["campaign", "run", "--dev-smoke", "--ft", "true", "--model", "/m", "--gpu", "0"]
    real += ["--inventory", smoke_manifest().parents[1] / "inventories" / "rtx3060.json"]
    real += ["--manifest", smoke_manifest()]
    keyed = call(*real, "--out", tmp_path / "runs", "--key", tmp_path / "absent.pem")
    assert keyed.exit_code == 2
    assert "the signing key" in keyed.stderr
    assert not (tmp_path / "runs").exists()
    (tmp_path / "file").write_text("")
    placed = call(*real, "--out", tmp_path / "file")
    assert placed.exit_code == 2
    assert "choose another --out" in placed.stderr


def test_a_runtime_that_cannot_serve_fails_every_arm_and_the_campaign(tmp_path):
    left = campaign(tmp_path, "--simulate", "execution.server_failed", arms=("B1", "B2"))
    assert left.exit_code == 3
    assert left.run["codes"]["execution.server_failed"] == 2
    assert [one["decode_tok_s"] for one in left.run["blocks"]] == [None, None]
    assert "no kernel image" in (left.folder / "logs" / "B2.log").read_text()


def end_with(monkeypatch, **told):
    """Have git tell this of the checkout at the end of a run."""
    monkeypatch.setattr(session, "checkout", lambda path: replace(checkout(path), **told))


def test_a_checkout_that_becomes_dirty_during_a_run_is_seen_at_its_end(tmp_path, monkeypatch):
    end_with(monkeypatch, dirty_paths=("late.py",))
    left = campaign(tmp_path)
    assert left.run["codes"] == {"provenance.dirty_working_tree": 1}
    assert left.run["provenance"]["dirty_paths"] == ["late.py"]


def test_a_checkout_that_moves_during_a_run_is_not_the_one_that_was_recorded(tmp_path, monkeypatch):
    end_with(monkeypatch, commit="c" * 40)
    left = campaign(tmp_path)
    assert left.run["codes"] == {"provenance.dirty_working_tree": 1}
    (told,) = left.run["campaign_invalidations"]
    assert told["message"].endswith(f"and at {'c' * 40} after it")


@pytest.mark.parametrize("name", ["commit", "dirty_paths"])
def test_a_checkout_that_tells_nothing_at_the_end_is_unknown_and_not_clean(
    tmp_path, monkeypatch, name
):
    end_with(monkeypatch, **{name: None})
    left = campaign(tmp_path)
    assert left.run["codes"] == {"provenance.missing_required": 1}
    assert left.exit_code == 1


def test_there_is_no_resume(tmp_path):
    left = campaign(tmp_path)
    before = (left.folder / "run.json").read_bytes()
    done = call("campaign", "run", "--simulated", "--dev-smoke", "--out", tmp_path)
    assert done.exit_code == 2
    assert "there is no resume" in done.stderr
    assert (left.folder / "run.json").read_bytes() == before


def test_a_judgement_is_made_again_from_the_records(tmp_path):
    left = campaign(tmp_path, "--simulate", "gpu.mismatch")
    done = call("campaign", "judge", left.folder, "--json")
    assert done.exit_code == 1
    assert json.loads(done.stdout)["codes"] == {"gpu.mismatch": 1}
    person = call("campaign", "judge", left.folder)
    assert person.stdout.startswith("# NON-CANONICAL DEVELOPER RUN")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda run: run.update(headline="VALID CANONICAL CAMPAIGN"), "run.json says headline"),
        (lambda run: run.update(campaign_invalidations=[]), "says campaign_invalidations"),
        (lambda run: run["intent"].update(dev_smoke=False), "run.json says"),
        (lambda run: run["intent"].pop("synthetic"), "intent lacks the field 'synthetic'"),
        (lambda run: run.pop("bench_bw"), "has no 'bench_bw'"),
        (lambda run: run.update(schema="other/1"), "is no run"),
        (lambda run: run["blocks"][0].update(sha256="0" * 64), "is not the file"),
    ],
)
def test_a_run_that_was_edited_by_hand_is_refused(tmp_path, edited, change, message):
    run = json.loads((edited / "run.json").read_text())
    change(run)
    copy = tmp_path / "copy"
    (copy / "blocks" / "B1").mkdir(parents=True)
    (copy / "run.json").write_text(json.dumps(run))
    (copy / "blocks" / "B1" / "W4.jsonl").write_bytes(
        (edited / "blocks" / "B1" / "W4.jsonl").read_bytes()
    )
    done = call("campaign", "judge", copy)
    assert done.exit_code == 2, done.output
    assert message in done.stderr


@pytest.fixture(scope="module")
def edited(tmp_path_factory):
    """A run that a code stands against, whose documents a test may alter in a copy."""
    return campaign(tmp_path_factory.mktemp("edited"), "--simulate", "gpu.mismatch").folder


# Ended early

COMMAND = [sys.executable, "-m", "pytest_meshnet", "campaign", "run", "--simulated", "--dev-smoke"]
MOMENTS = {
    "when the plan is signed": "evidence/*/plan.dsse.json",
    "in the first block": "blocks/B1/W1.jsonl",
    "in the second arm": "blocks/B2/W1.jsonl",
}


def started(out, pattern):
    """Start a whole smoke campaign and return it when a file of the pattern exists."""
    process = subprocess.Popen([*COMMAND, "--out", str(out)], stdout=subprocess.PIPE, text=True)
    folder = out / "session-1"
    while not any(folder.glob(pattern)):
        assert process.poll() is None, "expected a campaign that still runs"
        try:
            process.wait(0.02)
        except subprocess.TimeoutExpired:
            continue
    return process, folder


@pytest.mark.parametrize("moment", MOMENTS)
def test_a_campaign_that_is_killed_is_incomplete_everywhere(tmp_path, moment):
    process, folder = started(tmp_path, MOMENTS[moment])
    process.kill()
    process.communicate()
    (bundle,) = (path for path in (folder / "evidence").iterdir() if path.is_dir())
    verified = call("verify", bundle)
    assert verified.exit_code == 3, verified.output
    told = folder / "run.json"
    if told.exists():
        run = json.loads(told.read_text())
        assert run["headline"] == "INCOMPLETE RUN"
        assert run["validity"] == "NON_CANONICAL"
        assert call("campaign", "judge", folder).exit_code == 3


def test_a_campaign_that_is_asked_to_end_is_judged_and_sealed_as_incomplete(tmp_path):
    process, folder = started(tmp_path, MOMENTS["in the first block"])
    process.send_signal(signal.SIGTERM)
    output, _ = process.communicate()
    assert process.returncode == 3, output
    assert output.startswith("INCOMPLETE RUN\n")
    (bundle,) = (path for path in (folder / "evidence").iterdir() if path.is_dir())
    assert (bundle / "seal.dsse.json").exists()
    assert call("verify", bundle).exit_code == 3
    assert call("campaign", "judge", folder).exit_code == 3
