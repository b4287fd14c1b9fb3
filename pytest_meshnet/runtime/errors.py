"""What a test or a driver can find out about a target, as exceptions the plugin understands."""

from __future__ import annotations


class Nonconformance(AssertionError):
    """The runtime did what the protocol excludes.

    `expected` and `actual` are texts for a person; `hint` says what to try next and may be empty.
    `frame` is the line of the trace at which the expectation broke, where `actual` does not hold
    it already.
    """

    def __init__(self, expected: str, actual: str, hint: str = "", *, frame: str = "") -> None:
        super().__init__(expected, actual, hint)
        self.expected = expected
        self.actual = actual
        self.hint = hint
        self.frame = frame

    @property
    def broken(self) -> str:
        """A text that holds the line of the trace at which the expectation broke, if any does."""
        return self.frame or self.actual

    def __str__(self) -> str:
        lines = [f"expected: {self.expected}", f"actual:   {self.actual}"]
        if self.hint:
            lines.append(f"try:      {self.hint}")
        return "\n".join(lines)


class UnitRefused(Nonconformance):
    """A unit that was to be applied was refused, with a code that speaks about what it carried."""


class Evicted(UnitRefused):
    """A session's state was dropped to make room, as a Shard may that serves many (KV-07)."""


class TargetLost(Exception):
    """The target went away in mid-run; nothing more can be tested in this process."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


class Refusal(Exception):
    """The target cannot be reached or started; the message ends with its last log lines."""

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.message = message


class NotProvoked(Exception):
    """The situation that a test is about never arose, so it says nothing about the runtime."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason
