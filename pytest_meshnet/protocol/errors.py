"""What the codec raises."""


class ProtocolError(Exception):
    """A message that cannot be interpreted. `rule` names the broken rule for programs."""

    def __init__(self, rule: str, message: str) -> None:
        super().__init__(message)
        self.rule = rule


class PayloadCorrupt(ProtocolError):
    """A message that can be interpreted but does not add up."""
