"""Ports of the loopback for processes that are started here."""

import socket

HOST = "127.0.0.1"


def free_port() -> int:
    """An ephemeral port that was free a moment ago."""
    with socket.socket() as probe:
        probe.bind((HOST, 0))
        return int(probe.getsockname()[1])
