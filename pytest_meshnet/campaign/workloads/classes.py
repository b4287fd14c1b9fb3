"""The four workload classes: how long a prompt may be, and how many tokens are asked for."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class WorkloadClass:
    """Bounds of a prompt in tokens, both included, and the output tokens of every request."""

    name: str
    fewest: int
    most: int
    output_tokens: int

    def fits(self, tokens: int) -> bool:
        """Say whether a prompt of so many tokens is of this class."""
        return self.fewest <= tokens <= self.most

    @property
    def prompt(self) -> str:
        """The bounds in words."""
        if self.fewest == 1:
            return f"at most {self.most} tokens"
        return f"{self.fewest} to {self.most} tokens"


CLASSES: Mapping[str, WorkloadClass] = {
    one.name: one
    for one in (
        # Coding.
        WorkloadClass("W1", 1, 2000, 512),
        # Reasoning.
        WorkloadClass("W2", 1, 1000, 512),
        # Long context: 16,000 tokens within 15 %.
        WorkloadClass("W3", 13_600, 18_400, 256),
        # A short exchange: 128 tokens within 25 %.
        WorkloadClass("W4", 96, 160, 128),
    )
}
"""The classes by name, in the order in which they are run."""
