"""The commands as people and programs use them: exit codes, tables, JSON, refusals in one line."""

import hashlib
import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from pytest_meshnet.target import commands
from pytest_meshnet.target.documents import LockedTarget
from pytest_meshnet.target.fields import TargetRefused
from pytest_meshnet.target.refresh import Finding
from pytest_meshnet.tests.target import gguf_files as make
from pytest_meshnet.tests.target import samples

PUBLISHED = samples.published_plan()


def run(command: str, *args: object) -> Result:
    found = {"plan": commands.plan, "artifact": commands.artifact}[command]
    return CliRunner().invoke(found, [str(arg) for arg in args], catch_exceptions=False)


def nodes(*texts: str) -> list[str]:
    return [item for text in texts for item in ("--node", text)]


@pytest.mark.parametrize("name", list(PUBLISHED["routes"]))
def test_plan_gives_the_published_route_and_its_exit_code(name):
    count, gib = name.split("_unified")[0].rsplit("_", 1)[1].split("x")
    found = run("plan", *nodes(*[f"{gib}:unified"] * int(count)), "--json")
    published = PUBLISHED["routes"][name]
    assert found.exit_code == (0 if published["fits"] else 1)
    document = json.loads(found.stdout)
    assert document["route"] == published
    assert document["reasons"] == published["reasons"]
    assert document["fits"] is published["fits"]
    assert len(document["nodes"]) == int(count)


@pytest.mark.parametrize("name", list(PUBLISHED["seams"]))
def test_plan_gives_the_published_seams(name):
    published = PUBLISHED["seams"][name]
    machines = nodes(*["128:unified"] * published["node_count"])
    found = run("plan", *machines, "--link", published["link_rate_gbps"], "--json")
    assert json.loads(found.stdout)["seams"] == published


def test_plan_for_people_says_the_verdict_first_and_every_machine():
    found = run("plan", *nodes("rig=64+24", "mac=96:unified", "64", "64"))
    assert found.exit_code == 0
    lines = found.stdout.splitlines()
    assert lines[0].startswith("FITS")
    assert [line.split()[0] for line in lines[2:6]] == ["rig", "mac", "node-3", "node-4"]
    assert "88.000" in lines[2]
    assert "(unified)" in lines[3]
    assert "201.832" in found.stdout
    assert "12288 bytes a token" in found.stdout


def test_plan_says_why_it_does_not_fit():
    found = run("plan", *nodes("64", "64", "64"))
    assert found.exit_code == 1
    assert found.stdout.startswith("DOES NOT FIT")
    for reason in PUBLISHED["routes"]["insufficient_3x64_unified"]["reasons"]:
        assert reason in found.stdout


def test_more_context_takes_headroom():
    usual, more = (
        json.loads(run("plan", *nodes(*["64"] * 5), *extra, "--json").stdout)
        for extra in ((), ("--context", 131_072))
    )
    assert more["context_tokens"] == 131_072
    assert more["route"]["headroom_gib"] < usual["route"]["headroom_gib"]


@pytest.mark.parametrize(
    ("args", "code"),
    [
        (nodes("64"), "too-few-nodes"),
        (nodes("a=64", "a=64"), "node-twice"),
        (nodes("64+24:unified", "64"), "unified-counted-twice"),
        (nodes("64", "nan"), "capacity"),
        (nodes("64", "0"), "capacity"),
        (nodes("64", "64:shared"), "node-grammar"),
        (nodes("64", "7"), "no-budget"),
        ([*nodes("64", "64"), "--context", "0"], "context"),
        ([*nodes("64", "64"), "--context", "9999999"], "context"),
        ([*nodes("64", "64"), "--link", "0"], "link-rate"),
        ([*nodes("64", "64"), "--artifact", "/nonexistent"], "not-found"),
    ],
)
def test_a_refusal_is_one_line_exit_two_and_a_code_for_programs(args, code):
    found = run("plan", *args)
    assert found.exit_code == 2
    assert found.stdout == ""
    assert found.stderr.startswith(f"refused ({code}): ")
    assert found.stderr.count("\n") == 1
    found = run("plan", *args, "--json")
    assert found.exit_code == 2
    assert json.loads(found.stdout)["refused"]["code"] == code


def test_no_machine_at_all_is_refused():
    assert run("plan").exit_code == 2


def toy(folder: Path, *, tied: bool = False, parts: int = 1) -> list[Path]:
    pairs, tensors = make.model_pairs(4), make.model_tensors(4, tied=tied)
    return make.write_parts(folder, "toy", pairs, tensors, parts)


gguf = pytest.mark.usefixtures("_gguf")


@pytest.fixture
def _gguf() -> None:
    pytest.importorskip("gguf", reason="needs gguf: pip install gguf")


@gguf
@pytest.mark.parametrize("parts", [1, 3])
def test_inventory_lists_an_artifact_as_one(tmp_path, parts):
    paths = toy(tmp_path, parts=parts)
    found = run("artifact", "inventory", tmp_path, "--json")
    assert found.exit_code == 0
    (artifact,) = json.loads(found.stdout)["artifacts"]
    assert artifact["tensor_count"] == len(make.model_tensors(4))
    assert artifact["layer_count"] == 4
    assert artifact["parts"] == [str(path) for path in paths]
    assert sum(t["bytes"] for t in artifact["tensors"]) == artifact["tensor_bytes"]
    in_layers = sum(t["bytes"] for t in artifact["tensors"] if t["layer"] is not None)
    assert sum(row["bytes"] for row in artifact["layers"]) == in_layers
    people = run("artifact", "inventory", paths[0]).stdout
    assert people.startswith(f"toy  {artifact['tensor_count']} tensors, 4 layers")


@gguf
def test_inventory_refuses_an_incomplete_artifact(tmp_path):
    toy(tmp_path, parts=3)[1].unlink()
    found = run("artifact", "inventory", tmp_path, "--json")
    assert found.exit_code == 2
    assert json.loads(found.stdout)["refused"]["code"] == "part-missing"


@gguf
def test_a_name_with_markup_is_printed_as_it_is(tmp_path):
    make.write(tmp_path / "[red]x.gguf", make.model_pairs(4), make.model_tensors(4))
    assert "[red]x  16 tensors" in run("artifact", "inventory", tmp_path).stdout


def large(folder: Path) -> Path:
    """Write a model of four layers of 1 GiB as holes: only its header is ever read."""
    tensors = [
        make.Tensor("token_embd.weight", (64, 2**22)),
        *(make.Tensor(f"blk.{layer}.ffn_up_exps.weight", (64, 2**22)) for layer in range(4)),
        make.Tensor("output_norm.weight", (64,)),
    ]
    return make.write(folder / "large.gguf", make.model_pairs(4), tensors, fill=None)


@gguf
def test_plan_places_an_artifact_by_its_tensors(tmp_path):
    args = ("--artifact", large(tmp_path), "--json")
    found = run("plan", *nodes("a=12", "b=11.9"), *args)
    assert found.exit_code == 0, found.stdout
    placement = json.loads(found.stdout)["placement"]
    assert [share["layers"] for share in placement["shares"]] == [[0, 2], [2, 4]]
    assert placement["intended_overlap"] == {
        "token_embd.weight": [share["node"] for share in placement["shares"]]
    }
    assert placement["largest_context_tokens"] > 16_384
    people = run("plan", *nodes("a=12", "b=11.9"), "--artifact", tmp_path).stdout
    assert people.startswith("FITS")
    assert "0..1" in people
    ordered = run("plan", *nodes("b=11.9", "a=12"), *args, "--in-order")
    shares = json.loads(ordered.stdout)["placement"]["shares"]
    assert [share["node"] for share in shares] == ["b", "a"]


@gguf
@pytest.mark.parametrize(
    ("machines", "reason"),
    [
        (("a=9.5", "b=9.5"), "exceed the budgets"),
        (("a=14.5", "b=11"), "a could hold the complete artifact alone"),
    ],
)
def test_plan_of_an_artifact_that_does_not_fit_exits_one(tmp_path, machines, reason):
    found = run("plan", *nodes(*machines), "--artifact", large(tmp_path), "--json")
    assert found.exit_code == 1
    assert reason in json.loads(found.stdout)["reasons"][0]


@gguf
def test_plan_of_a_folder_with_two_artifacts_is_refused(tmp_path):
    large(tmp_path)
    toy(tmp_path, parts=2)
    found = run("plan", *nodes("12", "12"), "--artifact", tmp_path)
    assert found.exit_code == 2
    assert "several-artifacts" in found.stderr


@pytest.fixture
def sums(tmp_path: Path) -> Path:
    lines = []
    for index in range(3):
        path = tmp_path / "data" / f"{index}.gguf"
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(bytes([index]) * 1000)
        lines.append(f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path.name}")
    (tmp_path / "SUMS").write_text("\n".join(lines) + "\n")
    return tmp_path / "SUMS"


def test_verify_exits_zero_only_when_every_file_is_the_pinned_one(sums):
    data = sums.parent / "data"
    found = run("artifact", "verify", data, "--sums", sums, "--json")
    assert found.exit_code == 0
    document = json.loads(found.stdout)
    assert document["verified"] is True
    assert [item["code"] for item in document["files"]] == ["verified"] * 3
    assert "3 files verified" in run("artifact", "verify", data, "--sums", sums).stdout
    (data / "1.gguf").write_bytes(bytes(1000))
    found = run("artifact", "verify", data, "--sums", sums, "--json")
    assert found.exit_code == 1
    document = json.loads(found.stdout)
    assert document["verified"] is False
    assert document["content_sha256"] is None
    assert [item["code"] for item in document["files"]] == ["verified", "wrong-digest", "verified"]
    people = run("artifact", "verify", data, "--sums", sums).stdout
    assert "wrong-digest" in people
    assert "1 of 3 files are not good" in people


def test_verify_without_sums_means_the_target_and_names_what_is_missing(sums):
    found = run("artifact", "verify", sums.parent / "data", "--json")
    assert found.exit_code == 1
    files = json.loads(found.stdout)["files"]
    assert [item["code"] for item in files] == ["missing"] * 6
    names = [shard.name for shard in LockedTarget.load().manifest.shards]
    assert [Path(item["path"]).name for item in files] == names


def test_verify_goes_on_where_an_earlier_run_ended(sums):
    args = ("artifact", "verify", sums.parent / "data", "--sums", sums)
    log = sums.parent / "log"
    assert run(*args, "--resume", log, "--jobs", 1).exit_code == 0
    assert log.exists()
    found = run(*args, "--resume", sums.parent / "absent" / "log")
    assert found.exit_code == 2
    assert "resume-log" in found.stderr


@pytest.mark.parametrize("extra", [("--jobs", "0"), ("--sums", "/nonexistent")])
def test_verify_refuses_what_would_verify_nothing(sums, extra):
    found = run("artifact", "verify", sums.parent / "data", "--sums", sums, *extra)
    assert found.exit_code == 2


@pytest.mark.parametrize(("findings", "code"), [((), 0), ((Finding("file-size", "larger"),), 1)])
def test_refresh_reports_findings_and_its_exit_code(monkeypatch, findings, code):
    monkeypatch.setattr(commands, "refresh", lambda _target: findings)
    found = run("artifact", "refresh", "--json")
    assert found.exit_code == code
    assert json.loads(found.stdout)["findings"] == [
        {"code": item.code, "message": item.message} for item in findings
    ]
    people = run("artifact", "refresh")
    assert people.exit_code == code
    assert ("file-size: larger" in people.stdout) is bool(findings)
    assert ("the hub confirms" in people.stdout) is (not findings)


def test_refresh_without_a_network_is_refused(monkeypatch):
    def unreachable(_target: object) -> None:
        raise TargetRefused("hub-unreachable", "no network")

    monkeypatch.setattr(commands, "refresh", unreachable)
    assert run("artifact", "refresh").exit_code == 2


@pytest.mark.parametrize("command", ["inventory", "verify", "refresh"])
def test_every_command_explains_its_exit_codes(command):
    assert "Exit 0" in run("artifact", command, "--help").output
    assert "Exit 0" in run("plan", "--help").output
