"""The plan: exact commands, and everything that refuses a run before it starts."""

import json
import os
import re
import subprocess

import pytest

from pytest_meshnet.campaign.errors import CampaignRefused
from pytest_meshnet.campaign.plan.arms import ARMS, Runtime, ServeSettings
from pytest_meshnet.campaign.plan.orders import Orders
from pytest_meshnet.campaign.plan.surroundings import checkout
from pytest_meshnet.campaign.runner.folder import RunFolder
from pytest_meshnet.campaign.simulated.rig import smoke_manifest
from pytest_meshnet.tests.campaign.running import call, canonical_manifest
from pytest_meshnet.tests.campaign.whole import REVISION, UUID

RUNTIME = Runtime(("ft",), "/m", ServeSettings(0.85, 4096, 32_768))
COMMON = [
    *("--max-running-requests", "1", "--cuda-graph-max-bs", "1", "--memory-ratio", "0.85"),
    *("--sampling-defaults", "none", "--kv-reserve-tokens", "4096"),
    *("--max-seq-len-override", "32768", "--gpu", UUID),
]
PLACE = ["ft", "serve", "--model", "/m", "--host", "127.0.0.1", "--port", "4000"]


@pytest.mark.parametrize(
    ("arm", "flags"),
    [
        ("B1", "--moe-backend offload --moe-cache-auto --nvfp4-backend auto"),
        ("B2", "--moe-backend hybrid --moe-cache-auto --nvfp4-backend triton"),
        ("B3", "--moe-backend auto --moe-cache-auto --nvfp4-backend auto"),
        ("B4", "--moe-backend offload --moe-cache-auto --nvfp4-backend triton"),
        ("B5", "--moe-backend cpu --moe-cache-auto --nvfp4-backend triton"),
    ],
)
def test_an_arm_is_served_by_exactly_its_flags(arm, flags):
    assert RUNTIME.serve(ARMS[arm], UUID, 4000) == [*PLACE, *flags.split(), *COMMON]


def test_what_nobody_asked_for_is_not_said():
    bare = Runtime(("ft",), "/m", ServeSettings(0.9)).serve(ARMS["B1"], UUID, 1)
    assert not {"--kv-reserve-tokens", "--max-seq-len-override"} & set(bare)


def test_the_prerequisite_measures_nvfp4_on_the_resolved_gpu():
    assert RUNTIME.bandwidth(UUID) == ["ft", "bench", "bw", "--dtype", "nvfp4", "--gpu", UUID]


def test_the_correctness_reference_leaves_nothing_to_the_runtime():
    flags = "--moe-backend offload --moe-cpu-layers 0 --moe-cache-size 992 --nvfp4-backend marlin"
    assert RUNTIME.reference(UUID, 4000, 992, "marlin") == [*PLACE, *flags.split(), *COMMON]


@pytest.mark.parametrize(
    ("slots", "nvfp4", "good"),
    [
        (992, "marlin", True),
        (993, "marlin", False),
        (2000, "triton", True),
        ("auto", "triton", False),
        (0, "triton", False),
        (900, "auto", False),
    ],
)
def test_a_reference_with_anything_left_open_is_refused(slots, nvfp4, good):
    if good:
        assert str(slots) in RUNTIME.reference(UUID, 1, slots, nvfp4)
    else:
        with pytest.raises(CampaignRefused):
            RUNTIME.reference(UUID, 1, slots, nvfp4)


def test_a_reversed_session_turns_arms_and_classes_around():
    forward, backward = Orders().traversal, Orders(reverse=True).traversal
    assert [one.arm_id for one in forward[0]] == ["B1", "B2", "B3", "B4", "B5"]
    assert forward[1] == ("W1", "W2", "W3", "W4")
    assert backward == (forward[0][::-1], forward[1][::-1])


def git(tree, *words):
    who = ["-c", "user.name=t", "-c", "user.email=t@invalid"]
    subprocess.run(["git", "-C", str(tree), *who, *words], check=True, capture_output=True)


@pytest.fixture
def tree(tmp_path):
    """A clean checkout with one file."""
    found = tmp_path / "tree"
    found.mkdir()
    git(found, "init", "-q")
    (found / "kept.py").write_text("kept\n")
    (found / "moved.py").write_text("moved\n")
    git(found, "add", ".")
    git(found, "commit", "-q", "-m", "first")
    return found


def test_a_checkout_tells_its_commit_and_every_changed_path(tree):
    assert checkout(tree).dirty_paths == ()
    assert re.fullmatch(r"[0-9a-f]{40}", checkout(tree).commit)
    (tree / "kept.py").write_text("changed\n")
    (tree / "new name.py").write_text("new\n")
    git(tree, "mv", "moved.py", "renamed.py")
    assert set(checkout(tree).dirty_paths) == {"kept.py", "new name.py", "renamed.py"}


def test_the_folder_of_a_run_does_not_dirty_the_checkout_of_the_next(tree):
    folder = RunFolder(tree / "campaign-runs" / "session-1")
    folder.make()
    folder.write("run.json", b"{}")
    assert (tree / "campaign-runs" / "session-1" / "run.json").exists()
    assert checkout(tree).dirty_paths == ()


def test_where_git_tells_nothing_a_checkout_is_unknown_and_not_clean(tmp_path, monkeypatch):
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path.parent))
    found = checkout(tmp_path)
    assert (found.commit, found.dirty_paths) == (None, None)


def dry(*options):
    return call("campaign", "dry-run", *options)


def simulated(tmp_path, *options):
    manifest = canonical_manifest(tmp_path)
    return dry("--simulated", "--manifest", manifest, "--out", tmp_path / "runs", *options)


def refusals(done):
    return [line for line in done.output.splitlines() if line.startswith("  refused: ")]


def test_a_plan_that_nothing_refuses_is_printed_with_every_command(tmp_path):
    done = simulated(tmp_path)
    assert (done.exit_code, refusals(done)) == (0, []), done.output
    assert "canonical run, synthetic" in done.output
    assert "5 arms x 4 classes x (2 + 10) = 240 requests" in done.output
    for name, arm in ARMS.items():
        assert f"  {name}: FREETOKEN_INSTRUMENT_PREFILL=1 " in done.output
        assert " ".join(arm.flags) in done.output
    assert "bench bw --dtype nvfp4" in done.output
    assert not (tmp_path / "runs").exists()


def test_a_dirty_checkout_and_an_unknown_gpu_are_both_refused(tree):
    (tree / "kept.py").write_text("changed\n")
    done = dry("--gpu", "GPU-ffffffff", "--checkout", tree)
    assert done.exit_code == 2
    told = "\n".join(refusals(done))
    assert "the checkout is dirty: kept.py" in told
    assert "the GPU cannot be resolved: the GPU selector 'GPU-ffffffff'" in told


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--no-bench-bw"], "--no-bench-bw"),
        (["--simulate", "provenance.dirty_working_tree"], "the checkout is dirty: changed.py"),
        (["--revision", "main"], "expected 40 hexadecimal digits"),
        (["--revision", "f" * 40], f"the model's path holds snapshot {REVISION}"),
        (["--simulate", "provenance.model_repository_mismatch"], "the model's path is of nobody/"),
        (["--repository", "nobody/else"], "a canonical run is of nvidia/Qwen3.6-35B-A3B-NVFP4"),
        (["--gpu", "7"], "there is no index 7"),
        (["--gpu", "cuda:0"], "the GPU cannot be resolved"),
        (["--simulate", "provenance.missing_required"], "is unknown: model_revision"),
        (["--arm", "B1"], "only the arms B1"),
        (["--class", "W1"], "only the classes W1"),
        (["--repetitions", "9"], "2 + 9 requests a block"),
        (["--warmups", "0"], "0 + 10 requests a block"),
        (["--key", "key.pem"], "synthetic evidence is signed by no kept key"),
    ],
)
def test_each_refusal_is_named_by_itself(tmp_path, options, message):
    done = simulated(tmp_path, *options)
    assert done.exit_code == 2, done.output
    assert message in "\n".join(refusals(done))


def test_a_canonical_run_refuses_the_smoke_manifest(tmp_path):
    done = dry("--simulated", "--out", tmp_path / "runs")
    assert done.exit_code == 2
    (one,) = refusals(done)
    assert "the manifest is not meant for a canonical run" in one
    assert dry("--simulated", "--dev-smoke", "--out", tmp_path / "runs").exit_code == 0


def test_a_manifest_without_a_class_is_refused(tmp_path):
    told = json.loads(smoke_manifest().read_text())
    del told["workloads"][2:]
    for one in told["workloads"]:
        one["content"] = (smoke_manifest().parent / one.pop("fixture_path")).read_text()
    (tmp_path / "two.json").write_text(json.dumps(told))
    done = dry("--simulated", "--dev-smoke", "--manifest", tmp_path / "two.json")
    assert "the manifest has no workload of W3, W4" in "\n".join(refusals(done))


INVENTORIES = smoke_manifest().parents[1] / "inventories"


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("a6000-pair", "a canonical run is on an RTX 3060"),
        ("memory-unknown", "a canonical run is on"),
        ("empty", "the GPU cannot be resolved"),
    ],
)
def test_another_card_or_none_is_refused(tmp_path, name, message):
    done = simulated(tmp_path, "--inventory", INVENTORIES / f"{name}.json")
    assert done.exit_code == 2
    assert message in "\n".join(refusals(done)), done.output


@pytest.mark.parametrize(("gib", "good"), [(8, False), (10.9, False), (11, True), (13, True)])
def test_the_card_has_eleven_to_thirteen_gib(tmp_path, gib, good):
    told = json.loads((INVENTORIES / "rtx3060.json").read_text())
    told["devices"][0]["memory_bytes"] = int(gib * 1024**3)
    path = tmp_path / "inventory.json"
    path.write_text(json.dumps(told))
    assert (simulated(tmp_path, "--inventory", path).exit_code == 0) is good


def test_several_gpus_are_as_wrong_as_none(tmp_path):
    done = simulated(tmp_path, "--inventory", INVENTORIES / "four.json", "--gpu", "0,1")
    assert "names 2 GPUs: name one" in "\n".join(refusals(done))


def test_a_run_is_refused_with_the_same_words_and_leaves_nothing(tmp_path):
    out = tmp_path / "runs"
    done = call("campaign", "run", "--simulated", "--no-bench-bw", "--out", out)
    assert done.exit_code == 2
    assert "--no-bench-bw" in done.stderr
    assert not out.exists()
    planned = call("campaign", "run", "--simulated", "--dry-run", "--out", out)
    assert planned.exit_code == 2
    assert "1 refusals" in planned.output


def test_a_plan_with_nothing_given_says_what_is_missing(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PATH", os.defpath)
    done = dry()
    told = "\n".join(refusals(done))
    assert done.exit_code == 2
    for word in ("--gpu", "--manifest", "--model", "model_revision", "runtime_version"):
        assert word in told
