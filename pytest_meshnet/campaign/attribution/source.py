"""Where an attribution comes from: one source for each kind of server."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from pytest_meshnet.campaign.attribution import freetoken, llama_cpp
from pytest_meshnet.campaign.attribution.attributed import Attribution
from pytest_meshnet.campaign.client.http import Unanswered, get_json
from pytest_meshnet.campaign.client.stream import Reply


class PrefillSource(Protocol):
    """Asked before a request and after it; what it returns from one goes into the other."""

    def before(self) -> int | None:
        """Return the mark that separates earlier requests from the next one."""

    def after(self, reply: Reply, mark: int | None) -> Attribution:
        """Attribute a prefill to a finished request."""


@dataclass(frozen=True, slots=True)
class FreeToken:
    """The instrumentation ring of a FreeToken server at `origin` (http://host:port)."""

    origin: str

    def before(self) -> int | None:
        """Return the count of observed prefills, None when the server does not tell."""
        try:
            return freetoken.sequence_floor(get_json(self.origin, _ROUTE.format(0)))
        except Unanswered:
            return None

    def after(self, reply: Reply, mark: int | None) -> Attribution:
        """Read the whole ring and find the record of the request in it."""
        try:
            document = get_json(self.origin, _ROUTE.format(freetoken.RING))
        except Unanswered as error:
            return freetoken.attribute(None, str(error), reply.response_id, mark)
        return freetoken.attribute(document, None, reply.response_id, mark)


_ROUTE = "/v1/instrumentation?limit={}"


@dataclass(frozen=True, slots=True)
class LlamaCpp:
    """The times in the responses of a llama.cpp server."""

    def before(self) -> int | None:
        """Return nothing: no request is told from another by its order."""
        return None

    def after(self, reply: Reply, mark: int | None) -> Attribution:
        """Read the times that came with the response itself."""
        del mark
        return llama_cpp.attribute(reply.timings)
