"""What Shards keep in memory, judged from resident bytes and from what a layer weighs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from pytest_meshnet.runtime.errors import NotProvoked

LEAST_BITS = 2
"""Bits that a weight takes at least: no quantization in use keeps fewer on the average."""

LEAST_NOISE = 4 * 2**20
"""Bytes that the allocators of two processes differ by, even where two of them happen not to."""

LEAST_SHARE, MOST_SHARE = 0.3, 0.7
"""What half of the layers may weigh of all of them; a page cache and an allocator round."""


@runtime_checkable
class Weighed(Protocol):
    """An oracle that has the weights at hand."""

    def layer_weights(self) -> int:
        """How many weights the lightest decoder layer has."""


@dataclass(frozen=True, slots=True)
class Resident:
    """Resident bytes of Shards without ends: of two alike, and of two with more layers.

    `middle` has half as many layers more than `alike` as `large` has, which has `layers` more.
    """

    alike: tuple[int, int]
    middle: int
    large: int
    layers: int

    @property
    def noise(self) -> int:
        """Bytes that processes of the same layers differ by."""
        return max(abs(self.alike[0] - self.alike[1]), LEAST_NOISE)

    @property
    def small(self) -> float:
        """Bytes of a Shard of the fewest layers."""
        return sum(self.alike) / len(self.alike)

    def findings(self, layer_weights: int) -> Sequence[str]:
        """Judge the growth against layers of so many weights each.

        Raises NotProvoked when even the layers that were added weigh less than the noise.
        """
        expected = self.layers * layer_weights * LEAST_BITS / 8
        if expected <= self.noise:
            raise NotProvoked(
                f"{self.layers} layers weigh {expected:.0f} bytes at {LEAST_BITS} bits a weight, "
                f"and processes of the same layers differ by {self.noise}"
            )
        grown = self.large - self.small
        if grown < expected:
            return [
                f"{self.layers} layers more take {grown:.0f} bytes, at least {expected:.0f} due"
            ]
        share = (self.large - self.middle) / grown
        if LEAST_SHARE <= share <= MOST_SHARE:
            return []
        return [f"half of {self.layers} layers takes {share:.2f} of what all of them take"]
