"""The `pytest-meshnet` command; each subcommand imports what it needs when it is called."""

from __future__ import annotations

import sys
from importlib import import_module
from pathlib import Path
from typing import NoReturn

import click

_FILE = click.Path(exists=True, dir_okay=False, path_type=Path)
_PATH = click.Path(path_type=Path)

ELSEWHERE = {
    "artifact": "pytest_meshnet.target.commands",
    "campaign": "pytest_meshnet.campaign.commands",
    "compare": "pytest_meshnet.suite.report_command",
    "doctor": "pytest_meshnet.authoring.commands",
    "explain": "pytest_meshnet.authoring.commands",
    "gpus": "pytest_meshnet.hardware.commands",
    "init": "pytest_meshnet.authoring.commands",
    "mutants": "pytest_meshnet.suite.bite.command",
    "alpha": "pytest_meshnet.alpha.commands",
    "parity": "pytest_meshnet.suite.parity_command",
    "plan": "pytest_meshnet.target.commands",
    "proto": "pytest_meshnet.authoring.commands",
    "replay": "pytest_meshnet.authoring.commands",
    "report": "pytest_meshnet.suite.report_command",
    "serve": "pytest_meshnet.reference.serve",
}
"""Subcommands that live in the room they are about: module, which has an attribute of the name."""


class Commands(click.Group):
    """The subcommands here, and those of other rooms, imported only when called."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return every subcommand in the order of the alphabet."""
        return sorted([*super().list_commands(ctx), *ELSEWHERE])

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Return one subcommand, or None when there is none of that name."""
        if cmd_name not in ELSEWHERE:
            return super().get_command(ctx, cmd_name)
        found: click.Command = getattr(import_module(ELSEWHERE[cmd_name]), cmd_name)
        return found


@click.group(cls=Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="pytest-meshnet")
def main() -> None:
    """Conformance and acceptance of Shard runtimes, with evidence that a stranger can check."""


@main.command()
@click.option(
    "--target",
    default="reference",
    show_default=True,
    metavar="FILE",
    help="A target descriptor, or reference[:MUTANT-OR-VARIANT].",
)
@click.option("--shard", metavar="NAME", help="The Shard to examine, when there are several.")
@click.option(
    "--profile",
    "profiles",
    multiple=True,
    metavar="P",
    help="A profile to claim; may be repeated. Default: those of the descriptor.",
)
@click.option("--expect", type=_FILE, help="Known failures with the message of each.")
@click.option(
    "--write-expect",
    type=_PATH,
    metavar="FILE",
    help="Write what fails as such a list, its reasons to be filled in.",
)
@click.option(
    "--out", type=_PATH, metavar="DIR", help="Where bundles go.  [default: meshnet-evidence]"
)
@click.option("--key", type=_FILE, metavar="PEM", help="The key that signs; see keygen.")
@click.option("--challenge", metavar="TEXT", help="A text from whoever will verify.")
@click.option("--policy", type=_FILE, help="The policy that the evidence is made for.")
@click.option("--seed", type=int, metavar="N", help="The seed of all random inputs.")
@click.option(
    "-n",
    "processes",
    type=click.IntRange(1),
    metavar="N",
    help="Processes; each starts a runtime or has an endpoint of its own.",
)
def certify(
    *,
    target: str,
    shard: str | None,
    profiles: tuple[str, ...],
    expect: Path | None,
    write_expect: Path | None,
    out: Path | None,
    key: Path | None,
    challenge: str | None,
    policy: Path | None,
    seed: int | None,
    processes: int | None,
) -> NoReturn:
    """Run the conformance suite on a target and leave a signed bundle.

    Exit code 0: certified, or exactly the expected failures; 1: not conformant; 2: refused;
    3: incomplete, or the suite itself broke.
    """
    from pytest_meshnet.suite.certify import Order
    from pytest_meshnet.suite.certify import certify as run

    order = Order(
        target=target,
        profiles=profiles,
        shard=shard,
        expect=expect,
        write_expect=write_expect,
        out=out,
        key=key,
        challenge=challenge,
        policy=policy,
        seed=seed,
        processes=processes,
    )
    sys.exit(run(order))


@main.command()
@click.argument("path", type=_PATH)
def keygen(path: Path) -> NoReturn:
    """Make an Ed25519 key (PEM, mode 0600) and the trust file to hand out."""
    from pytest_meshnet.evidence.signing.trust import run_keygen

    _answer(*run_keygen(path))


@main.command()
@click.argument("bundle", type=_PATH)
@click.option("--trust", type=_PATH, metavar="FILE", help="Whose signatures count.")
@click.option("--policy", type=_PATH, metavar="FILE", help="What the run must have shown.")
@click.option("--challenge", metavar="TEXT", help="The text that the run was asked to repeat.")
@click.option("--json", "as_json", is_flag=True, help="Every check with its reason code.")
def verify(
    *, bundle: Path, trust: Path | None, policy: Path | None, challenge: str | None, as_json: bool
) -> NoReturn:
    """Judge a bundle again, offline.

    Exit code 0: valid and passed; 1: valid and failed; 2: invalid; 3: incomplete; 4: valid, but
    the signer is not trusted.
    """
    from pytest_meshnet.evidence.verify import run_verify

    _answer(*run_verify(bundle, trust, policy, challenge, as_json))


@main.command()
@click.option("--check", is_flag=True, help="Exit 1 when a MUST has no test or no mutant.")
@click.option(
    "--format",
    "form",
    type=click.Choice(["table", "md", "json"]),
    default="table",
    show_default=True,
    help="How to print it.",
)
@click.option("--profile", "profiles", multiple=True, metavar="P", help="Only this profile.")
def ledger(*, check: bool, form: str, profiles: tuple[str, ...]) -> NoReturn:
    """Print every requirement with its tests and mutants."""
    from pytest_meshnet.suite.ledger_text import run_ledger

    _answer(*run_ledger(check=check, form=form, profiles=profiles))


@main.command()
@click.option("--check", "action", flag_value="check", help="Compare; exit 1 on a difference.")
@click.option("--write", "action", flag_value="write", help="Write what this build makes.")
def goldens(*, action: str | None) -> NoReturn:
    """Check the golden vectors against the published digests, or write them."""
    from pytest_meshnet.protocol import goldens as vectors

    if action is None:
        raise click.UsageError("say --check or --write")
    if action == "check":
        differences = vectors.check()
        _answer("".join(f"{line}\n" for line in differences or ["goldens are as published"]),
                1 if differences else 0)  # fmt: skip
    try:
        _answer("".join(f"wrote {name}\n" for name in vectors.write()), 0)
    except ValueError as error:
        _answer(f"{error}\n", 1)


def _answer(text: str, code: int) -> NoReturn:
    click.echo(text, nl=not text.endswith("\n"))
    sys.exit(code)
