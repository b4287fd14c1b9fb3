"""The bound on the logit error of one model: between honest rounding and what must be found.

Tokens alone do not bite: a decode position that is off by one can keep most of them. So for each
model and boundary dtype the largest logit error of honest routes is measured, and the smallest of
the negative controls; the bound lies between them, or there is none.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from math import isfinite, sqrt
from pathlib import Path
from typing import Any

from pytest_meshnet.runtime.errors import Refusal

SCHEMA = 2

LEAST_SEPARATION = 2.0
"""The weakest control must err by at least this many times what honest rounding does: below it a
bound between them would be passed or failed by chance."""


_FARTHEST = 1e30

_OF = {"digest": "weights", "corpus": "prompts", "dtype": "boundary"}
_SHOWN = 16
"""How a message names what figures belong to, and how much of a digest it shows."""


class NoSeparation(Exception):
    """Honest rounding and a negative control cannot be told apart by the logit error."""


@dataclass(frozen=True, slots=True)
class Subject:
    """What figures belong to: nothing else may be judged by them.

    `digest` is the SHA-256 (hex) of the weights, `corpus` that of the prompts; `dtype` is the
    production dtype of the boundary, empty for a whole model, which has none.
    """

    model: str
    digest: str
    dtype: str
    corpus: str


@dataclass(frozen=True, slots=True)
class Calibration:
    """Figures of one model: largest logit errors up to the divergence, in logits.

    `honest` maps each honest route to its error, `controls` each negative control to its own.
    """

    about: Subject
    honest: Mapping[str, float]
    controls: Mapping[str, float]
    bound: float

    @property
    def highest_honest(self) -> float:
        """The largest error of an honest route."""
        return max(self.honest.values())

    @property
    def weakest_control(self) -> tuple[str, float]:
        """The control with the smallest error, and that error."""
        name = min(self.controls, key=lambda one: self.controls[one])
        return name, self.controls[name]

    def check(self) -> None:
        """Raise NoSeparation for a bound that does not lie between honest routes and controls."""
        if not self.honest or not self.controls:
            raise NoSeparation(f"{self.about.model}: no honest route or no control was measured")
        name, weakest = self.weakest_control
        apart = weakest >= LEAST_SEPARATION * self.highest_honest
        between = self.highest_honest < self.bound < weakest
        # max and min can overlook a NaN.
        finite = all(map(isfinite, (*self.honest.values(), *self.controls.values(), self.bound)))
        if not (apart and between and finite):
            raise NoSeparation(
                f"{self.about.model} in {self.about.dtype}: honest rounding reaches "
                f"{self.highest_honest:.4g}, {name} only {weakest:.4g}, the bound is "
                f"{self.bound:.4g}: expected the bound between them and a factor of at least "
                f"{LEAST_SEPARATION:g}"
            )

    def write(self, path: Path) -> None:
        """Keep the figures in a file."""
        document = {"schema": SCHEMA, **asdict(self)}
        path.write_text(json.dumps(document, indent=2, sort_keys=True) + "\n")

    def check_subject(self, wanted: Subject) -> None:
        """Raise Refusal unless the figures are those of what is `wanted`, whatever its name."""
        names = ["digest", "corpus", *(["dtype"] if wanted.dtype else [])]
        ours, theirs = asdict(self.about), asdict(wanted)
        wrong = [
            f"{_OF[name]} {ours[name][:_SHOWN]}, expected {theirs[name][:_SHOWN]}"
            for name in names
            if ours[name] != theirs[name]
        ]
        if wrong:
            raise Refusal(
                f"the calibration of {self.about.model} belongs to another run: "
                f"{'; '.join(wrong)}: run pytest-meshnet parity calibrate for {wanted.model}"
            )

    @classmethod
    def read(cls, path: Path) -> Calibration:
        """Read kept figures and check them. Raises Refusal for figures that cannot be used."""
        try:
            document: dict[str, Any] = json.loads(path.read_bytes())
            schema = document.pop("schema")
            found = cls(about=Subject(**document.pop("about")), **document)
            if schema != SCHEMA:
                raise ValueError(f"schema {schema}, expected {SCHEMA}")
            found.check()
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            raise Refusal(f"{path} holds no calibration ({error!r}): calibrate again") from None
        except NoSeparation as error:
            raise Refusal(f"{path} is refused: {error}") from None
        return found


def calibrated(
    about: Subject,
    honest: Mapping[str, float],
    controls: Mapping[str, float],
    *,
    bound: float | None = None,
) -> Calibration:
    """Calibrate `about` by the errors of honest routes and of controls.

    The bound is chosen as the geometric mean of both sides unless one is given, and checked.

    Raises NoSeparation when no bound separates them, or when the one given does not.
    """
    if not honest or not controls:
        raise NoSeparation(f"{about.model}: no honest route or no control was measured")
    if bound is None:
        # An honest error of zero has no mean with anything; half the control is as far from both.
        highest, weakest = max(honest.values()), min(controls.values())
        bound = sqrt(highest * weakest) if highest else weakest / 2
    # A control that is not even finite is as far as a number can be; JSON has no infinity.
    kept = {name: min(error, _FARTHEST) for name, error in controls.items()}
    found = Calibration(about, dict(honest), kept, bound)
    found.check()
    return found
