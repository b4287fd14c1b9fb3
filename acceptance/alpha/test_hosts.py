"""The tiny route over separate network hosts: namespaces behind one bridge, with shaped links."""

from __future__ import annotations

import contextlib
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from pytest_meshnet.parity.bench import ParityBench
from pytest_meshnet.parity.lanes import exact
from pytest_meshnet.runtime.descriptor import load
from pytest_meshnet.suite.parity import open_bench

from .namespaces import Host, hosts, rate_gbps, unavailable

RANGES = ((0, 3), (3, 6), (6, 8))
PORT = 50051
CEILING_GBPS = 2.5

HEADER = """
schema = 1
name = "hosts"
vendor = "pytest-meshnet"
version = "0.1.0"
profiles = ["parity"]

[model]
layers = 8
hidden_size = 64
vocab_size = 256
boundary_dtypes = ["float32"]

[route]
shards = ["a", "b", "c"]
dtypes = ["float32"]

[oracle]
kind = "built-in"
model = "tiny-index-share"
same_kernels = true
"""
SHARD = """
[[shards]]
name = "{name}"
range = [{first}, {last}]
endpoint = "{address}:{port}"
"""


@pytest.fixture
def machines() -> Iterator[Sequence[Host]]:
    reason = unavailable()
    if reason:
        pytest.skip(f"not run: {reason}")
    with hosts(len(RANGES)) as made:
        yield made


@contextlib.contextmanager
def served(host: Host, first: int, last: int) -> Iterator[None]:
    """A worker on that host, ended by its process id."""
    worker = [sys.executable, "-m", "pytest_meshnet", "serve", "--boundary", "float32"]
    where = ["--listen", f"{host.address}:{PORT}", "--range", f"{first}:{last}"]
    command = host.command(*worker, *where, "--model", "tiny-index-share")
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        line = process.stderr.readline()
        try:
            assert "serving" in line, f"expected a worker that serves, it wrote {line!r}"
            yield
        finally:
            process.terminate()


@pytest.fixture
def bench(machines: Sequence[Host], tmp_path: Path) -> Iterator[ParityBench]:
    text = HEADER
    with contextlib.ExitStack() as running:
        for name, host, (first, last) in zip("abc", machines, RANGES, strict=True):
            running.enter_context(served(host, first, last))
            text += SHARD.format(name=name, first=first, last=last, address=host.address, port=PORT)
        path = tmp_path / "hosts.toml"
        path.write_text(text)
        made = open_bench(load(str(path)), seed=20260101)
        running.callback(made.close)
        yield made


@pytest.mark.timeout(180)
def test_the_route_gives_the_oracles_bits_over_separate_hosts(
    machines: Sequence[Host], bench: ParityBench
) -> None:
    """Every seam crosses a shaped link, and not one bit of 32 tokens differs."""
    (record,) = bench.exact_records()
    found = exact(record.whole, bits=True)
    assert not found, f"expected the oracle's tokens and logits, found {found}"
    rates = [rate_gbps(host) for host in machines]
    assert max(rates) <= CEILING_GBPS, f"expected links shaped to 2.5 Gbit/s, measured {rates}"
