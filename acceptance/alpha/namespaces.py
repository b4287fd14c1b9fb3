"""Separate network hosts on one machine: a namespace for each worker, joined by shaped links.

Needs root and the commands `ip` and `tc`. Every link goes to one bridge, which stands for the
switch; this process has a link of its own, so that traffic to a worker crosses two shaped links.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

RATE = "2500mbit"
_NET = "10.213"


@dataclass(frozen=True, slots=True)
class Host:
    """One namespace with its address, and how a command is run in it."""

    name: str
    address: str

    def command(self, *words: str) -> list[str]:
        """The command that runs `words` there."""
        return ["ip", "netns", "exec", self.name, *words]


def unavailable() -> str:
    """Why this machine cannot have network namespaces, or an empty text."""
    missing = [name for name in ("ip", "tc") if shutil.which(name) is None]
    if missing:
        return f"the commands {' and '.join(missing)} are not installed (Debian: iproute2)"
    if os.geteuid() != 0:
        return "network namespaces need root"
    probe = f"meshnet-{secrets.token_hex(3)}"
    made = subprocess.run(["ip", "netns", "add", probe], capture_output=True, text=True)
    if made.returncode:
        return f"network namespaces cannot be made here: {made.stderr.strip()}"
    _do("ip", "netns", "del", probe)
    return ""


def _do(*words: str) -> None:
    subprocess.run(words, check=True, capture_output=True, text=True)


@contextlib.contextmanager
def hosts(count: int) -> Iterator[Sequence[Host]]:
    """Make `count` hosts behind one bridge, and take everything away in the end."""
    tag = secrets.token_hex(2)
    bridge, subnet = f"mn{tag}", secrets.randbelow(200) + 20
    with contextlib.ExitStack() as undo:
        _do("ip", "link", "add", bridge, "type", "bridge")
        undo.callback(_do, "ip", "link", "del", bridge)
        # The driver's own end of the network is shaped as well.
        _do("ip", "addr", "add", f"{_NET}.{subnet}.1/24", "dev", bridge)
        _do("ip", "link", "set", bridge, "up")
        yield [
            undo.enter_context(_host(bridge, f"{tag}{number}", f"{_NET}.{subnet}.{number + 2}"))
            for number in range(count)
        ]


@contextlib.contextmanager
def _host(bridge: str, tag: str, address: str) -> Iterator[Host]:
    name, outside, inside = f"meshnet-{tag}", f"mo{tag}", f"mi{tag}"
    shape = ("root", "tbf", "rate", RATE, "burst", "1mb", "latency", "20ms")
    with contextlib.ExitStack() as undo:
        _do("ip", "netns", "add", name)
        undo.callback(_do, "ip", "netns", "del", name)
        _do("ip", "link", "add", outside, "type", "veth", "peer", "name", inside)
        undo.callback(_quietly, "ip", "link", "del", outside)
        _do("ip", "link", "set", outside, "master", bridge, "up")
        _do("ip", "link", "set", inside, "netns", name)
        host = Host(name, address)
        for words in (
            ("ip", "link", "set", "lo", "up"),
            ("ip", "addr", "add", f"{address}/24", "dev", inside),
            ("ip", "link", "set", inside, "up"),
            ("tc", "qdisc", "add", "dev", inside, *shape),
        ):
            _do(*host.command(*words))
        _do("tc", "qdisc", "add", "dev", outside, *shape)
        yield host


def _quietly(*words: str) -> None:
    # The end in a namespace takes the other one with it when the namespace goes first.
    subprocess.run(words, capture_output=True)


_RECEIVE = """
import socket, sys
with socket.create_server((sys.argv[1], 0)) as server:
    print(server.getsockname()[1], flush=True)
    stream, _ = server.accept()
    left = int(sys.argv[2])
    while left > 0:
        left -= len(stream.recv(1 << 20)) or left
    stream.sendall(b"done")
"""


def rate_gbps(host: Host, size: int = 100_000_000) -> float:
    """Time the transfer of `size` bytes to a host over TCP, in Gbit/s."""
    command = host.command(sys.executable, "-c", _RECEIVE, host.address, str(size))
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as receiver:
        assert receiver.stdout is not None
        port = int(receiver.stdout.readline())
        with socket.create_connection((host.address, port), timeout=10) as stream:
            began = time.monotonic()
            stream.sendall(bytes(size))
            stream.recv(4)
            seconds = time.monotonic() - began
    return size * 8 / seconds / 1e9
