"""`pytest-meshnet gpus`: what is there, what masks leave of it, and which lanes can run."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import click

from pytest_meshnet.hardware import lanes
from pytest_meshnet.hardware.inventory import Device, place
from pytest_meshnet.hardware.inventory.device import GIB
from pytest_meshnet.hardware.lanes import Lane
from pytest_meshnet.hardware.lanes.matching import Machine, match
from pytest_meshnet.hardware.pinning.visibility import MASKS
from pytest_meshnet.hardware.placement import senses as looks
from pytest_meshnet.hardware.session import Unmeasured, Wishes, look


class Refused(click.ClickException):
    """What was asked for cannot be done; exit code 2."""

    exit_code = 2


@click.command("gpus")
@click.option("--json", "as_json", is_flag=True, help="Print JSON, for programs.")
@click.option("--select", metavar="LIST", help="Resolve a selector as --meshnet-gpu does.")
@click.option(
    "--inventory",
    metavar="FILE",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="Show an invented inventory instead of this machine.",
)
def gpus(as_json: bool, select: str | None, inventory: Path | None) -> None:
    """Show the GPUs of this machine and the hardware lanes that they serve."""
    hardware = _machine(select, inventory)
    if as_json:
        click.echo(json.dumps(_document(hardware), indent=2))
    else:
        click.echo("\n".join(_lines(hardware)))


def _machine(select: str | None, inventory: Path | None) -> Machine:
    wishes = Wishes(selector=select, inventory=inventory)
    try:
        senses = looks.real() if inventory is None else looks.simulated(inventory)
        return look(senses, wishes, os.environ)
    except (Unmeasured, ValueError) as error:
        raise Refused(str(error)) from None


def _document(machine: Machine) -> dict[str, Any]:
    usable = [one.label for one in machine.usable]
    return {
        "simulated": machine.inventory.simulated,
        "devices": [
            one.facts() | {"visible": one in machine.view.devices, "lanes": _lanes_of(one)}
            for one in machine.inventory.devices
        ],
        "usable": usable,
        "lanes": [
            {"name": lane.name, "meaning": lane.meaning, "state": word, "reason": reason}
            for lane, word, reason in _states(machine)
        ],
        "environment": _masks(os.environ),
        "problems": list(machine.inventory.problems),
        "notes": [*machine.inventory.notes, *machine.view.notes],
    }


def _lines(machine: Machine) -> Iterator[str]:
    if machine.inventory.simulated:
        yield "SIMULATED: no proof of any hardware\n"
    if not machine.inventory.devices:
        yield "no GPU"
    for one in machine.inventory.devices:
        yield from _device_lines(one, machine)
    for name, value in _masks(os.environ).items():
        yield f"{name}={value}"
    yield "\nlanes"
    width = max(len(lane.name + lane.parameters) for lane in lanes.BUILT_IN)
    for lane, word, reason in _states(machine):
        shown = f"  {lane.name + lane.parameters:{width}}  {word:10}  {lane.meaning}"
        yield shown if word != "unmeasured" else f"{shown}: {reason}"
    warnings = [*machine.inventory.problems, *machine.inventory.notes, *machine.view.notes]
    if warnings:
        yield "\nwarnings"
        yield from (f"  {warning}" for warning in warnings)


def _device_lines(one: Device, machine: Machine) -> Iterator[str]:
    memory = f"{one.memory_bytes / GIB:.1f} GiB" if one.memory_bytes else "unknown"
    if one.split:
        state = "in MIG mode: use an instance"
    else:
        state = "visible" if one in machine.view.devices else "hidden by the environment"
    yield f"{place(one)} {one.name or 'name unknown'}"
    yield f"    uuid    {one.uuid or 'unknown'}"
    yield f"    bus id  {one.pci or 'unknown'}"
    yield f"    memory  {memory}, {one.architecture or 'architecture unknown'}, driver {one.driver}"
    yield f"    lanes   {', '.join(_lanes_of(one)) or 'none'}"
    yield f"    state   {state}"
    yield from (f"    unknown {name}: {why}" for name, why in sorted(one.unknown.items()))


def _lanes_of(device: Device) -> list[str]:
    return [
        lane.name
        for lane in lanes.BUILT_IN
        if lane.want is not None and lane.want.fits(device).value is True
    ]


def _states(machine: Machine) -> Iterator[tuple[Lane, str, str]]:
    for lane in lanes.BUILT_IN:
        found = match([lane.least()], machine)
        yield lane, found.word, found.reason


def _masks(environment: Mapping[str, str]) -> dict[str, str]:
    return {name: environment[name] for name in MASKS if name in environment}
