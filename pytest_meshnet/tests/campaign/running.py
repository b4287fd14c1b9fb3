"""A whole campaign on a simulated FreeToken, as small as it may be, and what it left behind."""

import json
from dataclasses import dataclass
from pathlib import Path

from click.testing import CliRunner

from pytest_meshnet import cli
from pytest_meshnet.campaign.simulated.rig import smoke_manifest


@dataclass(frozen=True)
class Left:
    """The exit code and the output of a run, its run.json and its SUMMARY.md."""

    exit_code: int
    output: str
    run: dict
    summary: str
    folder: Path

    @property
    def bundle(self):
        (found,) = (path for path in (self.folder / "evidence").iterdir() if path.is_dir())
        return found


def call(*arguments):
    return CliRunner().invoke(cli.main, [str(one) for one in arguments])


def campaign(out, *options, arms=("B1",), classes=("W4",), warmups=1, repetitions=2):
    """Run a developer campaign and read what it left."""
    words = ["--simulated", "--dev-smoke", "--out", out]
    words += [word for name in arms for word in ("--arm", name)]
    words += [word for name in classes for word in ("--class", name)]
    words += ["--warmups", warmups, "--repetitions", repetitions]
    done = call("campaign", "run", *words, *options)
    folder = out / "session-1"
    return Left(
        done.exit_code,
        done.output,
        json.loads((folder / "run.json").read_text()),
        (folder / "SUMMARY.md").read_text(),
        folder,
    )


def canonical_manifest(folder):
    """The words of the smoke manifest in one that says that it is meant for canonical runs."""
    told = json.loads(smoke_manifest().read_text())
    for one in told["workloads"]:
        one["content"] = (smoke_manifest().parent / one.pop("fixture_path")).read_text()
    path = folder / "canonical.json"
    path.write_text(json.dumps(told | {"canonical": True, "manifest_id": "whole"}))
    return path
