"""What a run leaves in its bundle, and that a verifier comes to the same verdict."""

import base64
import hashlib
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from pytest_meshnet import layout
from pytest_meshnet.evidence.signing.keys import keygen
from pytest_meshnet.evidence.verify import run_verify

MIXED = """
@requirement("WIRE-01")
def test_wire(): pass

@requirement("DECODE-01")
def test_good(): pass

@requirement("DECODE-02")
def test_bad(): raise Nonconformance("four", "three")

@requirement("KV-02")
def test_kv(): pass
"""


def bundle_of(suite, out="out"):
    (found,) = (path for path in (suite.project / out).iterdir() if path.is_dir())
    return found


def records(bundle, kind, journal="main"):
    lines = (bundle / "journal" / f"{journal}.jsonl").read_text().splitlines()
    return [one["body"] for one in map(json.loads, lines) if one["type"] == kind]


@pytest.fixture
def verified(suite, monkeypatch):
    """Verify a bundle by the suite's own ledger; return (document, exit code)."""

    def verified(bundle, challenge=None):
        monkeypatch.setattr(layout, "folder", suite.home.joinpath)
        text, code = run_verify(bundle, challenge=challenge, as_json=True)
        return json.loads(text), code

    return verified


def test_every_phase_of_every_test_is_in_the_journal(suite):
    suite.module(MIXED)
    suite.run("--meshnet-out", "out")
    bundle = bundle_of(suite)
    phases = [(one["test"].partition("::")[2], one["when"], one["outcome"], one["kind"])
              for one in records(bundle, "phase")]  # fmt: skip
    passed = [("setup", "passed", ""), ("call", "passed", ""), ("teardown", "passed", "")]
    bad = [passed[0], ("call", "failed", "nonconformance"), passed[2]]
    kv = [("setup", "skipped", "not-claimed"), passed[2]]
    assert phases == [
        (name, *rest)
        for name, steps in (
            ("test_wire", passed),
            ("test_good", passed),
            ("test_bad", bad),
            ("test_kv", kv),
        )
        for rest in steps
    ]
    assert [one["attempt"] for one in records(bundle, "attempt")] == [1, 1, 1, 1]


def test_the_plan_names_every_test_with_its_requirements(suite):
    suite.module(MIXED)
    suite.run("--meshnet-out", "out", "--deselect", "conformance/test_sample.py::test_wire")
    (collected,) = records(bundle_of(suite), "collected")
    assert [(one["test"], one["requirements"]) for one in collected["tests"]] == [
        ("conformance/test_sample.py::test_good", ["DECODE-01"]),
        ("conformance/test_sample.py::test_bad", ["DECODE-02"]),
        ("conformance/test_sample.py::test_kv", ["KV-02"]),
    ]
    assert [one["test"] for one in collected["deselected"]] == [
        "conformance/test_sample.py::test_wire"
    ]


@pytest.mark.parametrize("processes", [0, 2])
def test_a_verifier_comes_to_the_verdict_of_the_run(suite, verified, processes):
    suite.target(frames="-> open", facts={"launch": [False, "descriptor"]})
    suite.module(MIXED)
    run = suite.run_apart if processes else suite.run
    result = run("--meshnet-out", "out", *(["-n", str(processes)] if processes else []))
    document, code = verified(bundle_of(suite))
    assert document["verdict"]["word"] == "NOT CONFORMANT"
    assert document["verdict"]["counts"]["passed"] == 2
    assert (document["sealed"], code, result.ret) == (True, 1, 1)


def test_a_certified_run_is_valid_and_only_its_ephemeral_signer_is_unknown(suite, verified):
    suite.module(MIXED.replace('raise Nonconformance("four", "three")', "pass"))
    result = suite.certify("--meshnet-out", "out", "--meshnet-challenge", "say this")
    document, code = verified(bundle_of(suite), "say this")
    assert (result.ret, code) == (0, 4)
    assert verified(bundle_of(suite), "say that")[1] == 2
    assert document["certificate"] is True
    assert document["profiles"] == ["core"]
    assert document["target"] == {"name": "fake", "sha256": "ab" * 32}


def test_a_key_signs_the_bundle_and_an_open_one_is_refused(suite):
    suite.module(MIXED)
    key = suite.project / "key.pem"
    keyid = keygen(key).keyid
    suite.run("--meshnet-out", "out", "--meshnet-signing-key", key)
    assert keyid in (bundle_of(suite) / "seal.dsse.json").read_text()
    key.chmod(0o644)
    result = suite.run("--meshnet-out", "other", "--meshnet-signing-key", key)
    result.stderr.fnmatch_lines(["*refused: *mode 0644*"])
    assert result.ret == 2
    assert not (suite.project / "other").exists()


def test_the_last_frames_of_a_failure_are_attached(suite):
    suite.target(frames="-> open\n<- accepted")
    suite.module(MIXED)
    suite.run("--meshnet-out", "out")
    bundle = bundle_of(suite)
    (attached,) = records(bundle, "attachment")
    assert attached["test"].endswith("::test_bad")
    stored = bundle / "artifacts" / "sha256" / attached["sha256"]
    assert stored.read_text() == "-> open\n<- accepted"


ATTACHING = """
@requirement("DECODE-01")
def test_a(attachments):
    attachments.text("notes", "seen at /root/x")
    attachments.data("wire", b"\\x00\\x01", "application/octet-stream")
    attachments.prompt("prompt", b"tell me")
"""


@pytest.mark.parametrize("permitted", [True, False])
def test_a_test_attaches_texts_and_bytes_and_prompts_as_far_as_permitted(suite, permitted):
    suite.target(prompts=permitted)
    suite.module(ATTACHING)
    suite.run("--meshnet-out", "out")
    bundle = bundle_of(suite)
    found = {one["name"]: one for one in records(bundle, "attachment")}
    stored = {name: bundle / "artifacts" / "sha256" / one["sha256"] for name, one in found.items()}
    assert stored["notes"].read_text() == "seen at ~/x"
    assert stored["wire"].read_bytes() == b"\x00\x01"
    assert found["prompt"]["sha256"] == hashlib.sha256(b"tell me").hexdigest()
    assert (found["prompt"]["size"], found["prompt"]["stored"]) == (7, permitted)
    assert stored["prompt"].exists() is permitted


def test_without_evidence_attachments_are_kept_nowhere(suite):
    suite.module(ATTACHING)
    assert suite.run().ret == 0


def test_the_log_of_a_started_runtime_is_attached(suite):
    suite.target(logs={"shard": "listening at /home/ada/x"})
    suite.module(MIXED)
    suite.run("--meshnet-out", "out")
    bundle = bundle_of(suite)
    found = {one["name"]: one["sha256"] for one in records(bundle, "attachment")}
    log = bundle / "artifacts" / "sha256" / found["log of shard"]
    assert log.read_text() == "listening at ~/x"


def start_of(bundle):
    payload = json.loads((bundle / "start.dsse.json").read_bytes())["payload"]
    return json.loads(base64.b64decode(payload))["predicate"]


def test_the_start_names_the_policy_and_the_artifacts_that_were_told(suite):
    policy = suite.project / "policy.toml"
    policy.write_text("schema = 1\n")
    suite.target(artifacts={"model.gguf": "cd" * 32})
    suite.module(MIXED)
    suite.run("--meshnet-out", "out", "--meshnet-policy", policy)
    start = start_of(bundle_of(suite))
    assert start["policy_digest"] == hashlib.sha256(b"schema = 1\n").hexdigest()
    assert start["artifacts"] == [{"name": "model.gguf", "digest": "cd" * 32}]


def test_a_policy_that_is_not_understood_ends_the_run_before_it_begins(suite):
    policy = suite.project / "policy.toml"
    policy.write_text("schema = 2\n")
    suite.module(MIXED)
    result = suite.run("--meshnet-out", "out", "--meshnet-policy", policy)
    result.stderr.fnmatch_lines(["*refused: *policy.toml: schema is 2*"])
    assert result.ret == 2


def test_a_certificate_run_looks_at_the_gpus_of_the_machine(suite):
    suite.module(MIXED)
    suite.certify("--meshnet-out", "out")
    assert start_of(bundle_of(suite))["gpu_inventory"].startswith("asked ")


@pytest.mark.parametrize("processes", [0, 2])
def test_every_plugin_of_every_process_is_named_also_those_without_a_distribution(suite, processes):
    suite.stranger("")
    (suite.project / "conftest.py").write_text("# theirs")
    suite.module(MIXED)
    args = ["-n", "2"] if processes else []
    suite.run_apart("--meshnet-out", "out", "-p", "stranger", *args)
    bundle = bundle_of(suite)
    begun = {one["name"]: one["version"] for one in start_of(bundle)["plugins"]}
    digest = hashlib.sha256((suite.project / "stranger.py").read_bytes()).hexdigest()
    assert begun["stranger"] == f"sha256:{digest}"
    assert {"pytest-timeout", "pytest-xdist", "hypothesis"} - begun.keys() <= {"hypothesis"}
    for name in ["main", *(f"gw{n}" for n in range(processes))]:
        (told,) = records(bundle, "plugins", name)
        names = {Path(one["name"]).name for one in told["plugins"]}
        assert {"stranger", "pytest-timeout", "conftest.py"} <= names, name


def test_a_refused_run_leaves_a_sealed_bundle_with_the_reason(suite, verified):
    suite.target(refusal="nothing listens")
    suite.module(MIXED)
    suite.certify("--meshnet-out", "out")
    bundle = bundle_of(suite)
    assert records(bundle, "refusal") == [{"message": "nothing listens"}]
    document, code = verified(bundle)
    assert (document["verdict"]["word"], document["sealed"], code) == ("REFUSED", True, 3)


def test_a_lost_target_leaves_the_rest_not_run_in_a_sealed_bundle(suite, verified):
    first = '@requirement("DECODE-01")\ndef test_a(): raise TargetLost("killed by signal 9")\n'
    suite.module(first + MIXED)
    result = suite.certify("--meshnet-out", "out")
    bundle = bundle_of(suite)
    assert records(bundle, "target-lost") == [{"reason": "killed by signal 9"}]
    document, code = verified(bundle)
    assert document["verdict"]["counts"]["not-run"] == 4
    assert (document["sealed"], code, result.ret) == (True, 3, 3)


def test_a_crashed_worker_leaves_its_journal_and_a_record_of_the_loss(suite, verified):
    suite.module(
        MIXED + '@requirement("DECODE-01")\ndef test_z():\n    import os\n    os._exit(1)\n'
    )
    suite.run_apart("--meshnet-out", "out", "-n", "1")
    bundle = bundle_of(suite)
    (loss,) = records(bundle, "worker-lost")
    assert loss["process"] == "gw0"
    assert records(bundle, "phase", "gw0")[-1]["when"] == "setup"
    document, _ = verified(bundle)
    assert document["sealed"] is True
    assert "conformance/test_sample.py::test_z" in str(document["verdict"]["blocking"])


def test_a_run_killed_at_once_leaves_what_it_had_recorded_unsealed(suite, verified):
    suite.module(
        MIXED
        + '@requirement("DECODE-01")\ndef test_z():\n    import os\n    os.kill(os.getpid(), 9)\n'
    )
    command = [sys.executable, "-m", "pytest", "-p", "pytest_meshnet.tests.plugin.fake_home",
               "-p", "no:randomly", "--meshnet-suite=conformance", "--meshnet-out=out"]  # fmt: skip
    environment = os.environ | {"MESHNET_FAKE_HOME": str(suite.home)}
    ended = subprocess.run(command, cwd=suite.project, env=environment, stdout=subprocess.DEVNULL)
    assert ended.returncode == -signal.SIGKILL
    document, code = verified(bundle_of(suite))
    assert (document["sealed"], code) == (False, 3)
    assert len(records(bundle_of(suite), "phase")) == 12


def test_tests_of_the_project_are_no_part_of_the_evidence(suite):
    own = suite.project / "test_own.py"
    own.write_text("def test_own(): pass")
    suite.module(MIXED)
    suite.run("--meshnet-out", "out", own)
    assert "test_own" not in (bundle_of(suite) / "journal" / "main.jsonl").read_text()


@pytest.mark.parametrize("args", [("--collect-only",), ()])
def test_no_evidence_is_written_that_nobody_asked_for(suite, args):
    suite.module(MIXED)
    out = ["--meshnet-out", "out"] if args else []
    suite.run(*args, *out)
    assert not (suite.project / "out").exists()
    assert not (suite.project / "meshnet-evidence").exists()


def test_a_test_that_runs_again_has_every_attempt_in_the_journal(suite, verified):
    suite.module(MIXED.replace('raise Nonconformance("four", "three")', "pass"))
    suite.stranger(
        """
        from _pytest.runner import runtestprotocol

        def pytest_runtest_protocol(item, nextitem):
            for _ in range(2):
                runtestprotocol(item, nextitem=nextitem)
            return True
        """
    )
    suite.run("--meshnet-out", "out", "-p", "stranger")
    attempts = [one["attempt"] for one in records(bundle_of(suite), "attempt")]
    assert attempts == [1, 2] * 4
