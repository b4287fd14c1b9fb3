"""`pytest-meshnet serve`: a reference worker in a process of its own, to develop against."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from pathlib import Path
from typing import NamedTuple

import click

from pytest_meshnet.protocol.heap import keep_heap
from pytest_meshnet.protocol.machines.events import ShardModel
from pytest_meshnet.protocol.machines.session import ServedShard
from pytest_meshnet.protocol.machines.worker import Worker
from pytest_meshnet.protocol.tensors import DType
from pytest_meshnet.reference.models import BUILT_IN, ModelUnavailable
from pytest_meshnet.reference.server import CannotListen, ShardServer

STALL_VARIABLE = "MESHNET_TEST_STALL_MS"


class Address(NamedTuple):
    """Where to listen; an IPv6 host is in brackets."""

    host: str
    port: int


def _address(_context: click.Context, _option: click.Parameter, text: str) -> Address:
    host, colon, port = text.rpartition(":")
    if not colon or not host or not port.isdecimal() or int(port) > 65_535:
        raise click.BadParameter(f"{text!r} is not HOST:PORT: write 127.0.0.1:0 for any free port")
    return Address(host, int(port))


def _layer_range(
    _context: click.Context, _option: click.Parameter, text: str | None
) -> tuple[int, int] | None:
    if text is None:
        return None
    start, _, end = text.partition(":")
    if not start.isdecimal() or not end.isdecimal() or int(start) >= int(end):
        raise click.BadParameter(f"{text!r} is not A:B with A < B: write 0:4 for layers 0 to 3")
    return int(start), int(end)


@click.command()
@click.option(
    "--listen",
    default="127.0.0.1:50051",
    show_default=True,
    callback=_address,
    metavar="HOST:PORT",
    help="Where to listen. Port 0 takes a free one; the first line on stderr tells which.",
)
@click.option(
    "--range",
    "layers",
    callback=_layer_range,
    metavar="A:B",
    help="Layers to serve, the end excluded. Default: the whole model.",
)
@click.option(
    "--model",
    "model_name",
    type=click.Choice(list(BUILT_IN)),
    default="tiny-llama",
    show_default=True,
    help="Which built-in model.",
)
@click.option(
    "--boundary",
    type=click.Choice(["bfloat16", "float32"]),
    default="bfloat16",
    show_default=True,
    help="Dtype of the hidden states between Shards.",
)
@click.option("--mutant", metavar="ID", help="Break one requirement, or vary one liberty.")
@click.option(
    "--max-sessions",
    type=click.IntRange(1, 65_536),
    default=8,
    show_default=True,
    metavar="N",
    help="Sessions that hold a place at once.",
)
@click.option(
    "--max-context",
    type=click.IntRange(1, 2**20),
    default=4096,
    show_default=True,
    metavar="N",
    help="Tokens that one session may hold.",
)
@click.option(
    "--port-file",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Write HOST:PORT to this file once the worker listens.",
)
def serve(
    *,
    listen: Address,
    layers: tuple[int, int] | None,
    model_name: str,
    boundary: str,
    mutant: str | None,
    max_sessions: int,
    max_context: int,
    port_file: Path | None,
) -> None:
    """Serve a range of a built-in model until SIGTERM. SIGUSR1 drains.

    With MESHNET_TEST_STALL_MS in the environment each unit takes that many milliseconds.
    """
    built_in = BUILT_IN[model_name]
    start, end = layers or (0, built_in.layers)
    if end > built_in.layers:
        raise click.UsageError(
            f"{model_name} has {built_in.layers} layers, --range asks for {start}:{end}: "
            f"use at most 0:{built_in.layers}"
        )
    dtype = DType.parse(boundary)
    try:
        served, loaded = built_in.shard(
            start, end, dtype, max_sessions=max_sessions, max_context=max_context
        )
        worker, model = _built(mutant, served, loaded)
    except ModelUnavailable as error:
        raise click.UsageError(str(error)) from error
    keep_heap()
    server = ShardServer(worker, model, _stall_seconds())
    try:
        asyncio.run(_serve(server, listen, f"{start}:{end}", port_file))
    except CannotListen as error:
        raise click.ClickException(f"{error}: pass a free --listen HOST:PORT") from error


def _built(mutant: str | None, served: ServedShard, model: ShardModel) -> tuple[Worker, ShardModel]:
    if mutant is None:
        return Worker(served), model
    from pytest_meshnet.reference.catalogue import UnknownName, build

    try:
        return build(mutant, served, model)
    except UnknownName as error:
        raise click.UsageError(str(error)) from error


def _stall_seconds() -> float:
    text = os.environ.get(STALL_VARIABLE, "0")
    if not text.isdecimal():
        raise click.UsageError(
            f"{STALL_VARIABLE} is {text!r}, expected whole milliseconds: unset it or correct it"
        )
    return int(text) / 1000


async def _serve(server: ShardServer, listen: Address, layers: str, port_file: Path | None) -> None:
    loop = asyncio.get_running_loop()
    told_to_stop = asyncio.Event()
    port = await server.start(listen.host, listen.port)
    try:
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, told_to_stop.set)
        loop.add_signal_handler(signal.SIGUSR1, server.drain)
        address = f"{listen.host}:{port}"
        if port_file is not None:
            _write_whole(port_file, address)
        click.echo(f"serving {layers} on {address}", file=sys.stderr)
        await told_to_stop.wait()
    finally:
        await server.stop()
        await _rest_of_grpc()


async def _rest_of_grpc() -> None:
    """gRPC's own tasks end a moment after its server; cut off by the loop's end they complain."""
    if others := asyncio.all_tasks() - {asyncio.current_task()}:
        await asyncio.wait(others, timeout=0.25)


def _write_whole(path: Path, text: str) -> None:
    """Whoever waits for the file sees it complete or not at all."""
    partial = path.with_name(path.name + ".partial")
    try:
        partial.write_text(text)
        partial.replace(path)
    except OSError as error:
        raise click.ClickException(
            f"cannot write {path} ({error.strerror}): pass another --port-file"
        ) from error
