"""Features: what a peer can do beyond 1.0, and what two peers agree on."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from enum import IntEnum


class Feature(IntEnum):
    """The features of 1.1, with the numbers of the wire's Feature enum."""

    DECODE_BUNDLE = 1
    TAIL_RESULT = 2
    INDEX_SHARE_SIDEBAND = 3
    BOUNDARY_SPEC = 4


_KNOWN = {int(feature): feature for feature in Feature}


def known_features(numbers: Iterable[int]) -> frozenset[Feature]:
    """Return the features among `numbers`; those of a later version are passed over."""
    return frozenset(_KNOWN[number] for number in numbers if number in _KNOWN)


def negotiated(offered: Iterable[int], supported: Collection[Feature]) -> tuple[Feature, ...]:
    """Return what holds in a session: offered in its open and supported here, by number."""
    return tuple(sorted(known_features(offered) & frozenset(supported)))
