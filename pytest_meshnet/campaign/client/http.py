"""GET with a JSON answer, and the connection that streams use."""

from __future__ import annotations

from http.client import HTTPConnection, HTTPException
from typing import Any
from urllib.parse import urlsplit

from pytest_meshnet.campaign.documents import loads

ANSWER_S = 15.0
"""How long a route that computes nothing may take to answer."""


class Unanswered(Exception):
    """A route gave no usable answer; the message names the route and what came instead."""


def connect(origin: str, timeout: float) -> HTTPConnection:
    """Return a connection to `http://host:port`; it is opened by the first request."""
    place = urlsplit(origin)
    return HTTPConnection(place.hostname or "", place.port, timeout=timeout)


def get_json(origin: str, path: str, timeout: float = ANSWER_S) -> Any:
    """Return the JSON answer of a route. Raises Unanswered."""
    connection = connect(origin, timeout)
    try:
        connection.request("GET", path)
        answer = connection.getresponse()
        data = answer.read()
    except (OSError, HTTPException) as error:
        raise Unanswered(f"GET {path}: {error or type(error).__name__}") from None
    finally:
        connection.close()
    if answer.status != 200:
        raise Unanswered(f"GET {path} answered {answer.status} {answer.reason}")
    try:
        return loads(data)
    except ValueError as error:
        raise Unanswered(f"GET {path} answered no JSON: {error}") from None
