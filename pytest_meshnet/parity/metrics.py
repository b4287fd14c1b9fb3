"""What is measured between a route and its oracle, one definition a metric.

Both continued the same prompt greedily. Row i of their scores was computed from the prompt and the
tokens before token i; up to and including the first token that differs (the divergence) both had
the same context, so that far scores and states can be compared. After it only tokens can.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pytest_meshnet.runtime.errors import Nonconformance
from pytest_meshnet.runtime.generation import Generation

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Rows = NDArray[np.float32]
    Values = NDArray[np.float64]

TOP = 5


@dataclass(frozen=True, slots=True)
class Share:
    """Equal tokens out of those compared."""

    equal: int
    compared: int

    @property
    def ratio(self) -> float:
        """equal / compared; NaN where nothing was compared."""
        return self.equal / self.compared if self.compared else float("nan")


@dataclass(frozen=True, slots=True)
class Comparison:
    """One generation of a route against the oracle's of the same prompt.

    `before` counts the tokens before the divergence, `after` those from it on; agreement is over
    both. `divergence` is the index of the first token that differs, None where none does.

    For each compared position i, up to and including the divergence:
    `logit_cosines` is the cosine similarity of both rows of scores; `errors` is
    max |route - oracle| over the vocabulary, `relative_errors` the same over max |oracle|;
    `identical` says that all rows have the same bits.

    `state_cosines` maps a layer to the cosine similarity of each position's hidden state that
    entered it. `argmax_first` says whether the best token of step 0 is the oracle's, `top5_first`
    whether its five best are, in their order. `first_log_prob_error` is max |route - oracle| of
    log-probabilities over the oracle's five best tokens at step 0. `margin` is the oracle's score
    of its token minus its score of the route's, at the divergence: near zero, the flip is a tie.
    """

    before: Share
    after: Share
    divergence: int | None
    logit_cosines: tuple[float, ...]
    errors: tuple[float, ...]
    relative_errors: tuple[float, ...]
    identical: bool
    state_cosines: Mapping[int, tuple[float, ...]]
    argmax_first: bool
    top5_first: bool
    first_log_prob_error: float
    margin: float | None

    @property
    def agreement(self) -> Share:
        """Equal tokens over compared tokens, before and after the divergence."""
        return Share(
            self.before.equal + self.after.equal, self.before.compared + self.after.compared
        )

    @property
    def max_error(self) -> float:
        """The largest absolute score error up to the divergence."""
        return max(self.errors)

    @property
    def max_relative_error(self) -> float:
        """The largest relative score error up to the divergence."""
        return max(self.relative_errors)

    @property
    def cosines(self) -> tuple[float, ...]:
        """Every cosine similarity, of states and of scores."""
        states = (value for layer in self.state_cosines.values() for value in layer)
        return (*states, *self.logit_cosines)


def compare(route: Generation, oracle: Generation) -> Comparison:
    """Measure a route's generation against the oracle's.

    Scores of different scales are compared as log-probabilities; a log-probability that an engine
    does not tell (NaN) is left out. Raises Nonconformance for scores or states that have not the
    oracle's shape, and ValueError for generations that are not of one prompt and one length.
    """
    _check_comparable(route, oracle)
    divergence = _divergence(route.tokens, oracle.tokens)
    count = len(oracle.tokens) if divergence is None else divergence + 1
    ours, theirs = _on_one_scale(route, oracle, count)
    known = _told(route, ours) & _told(oracle, theirs)
    errors = _errors(ours, theirs, known)
    return Comparison(
        before=_share(route, oracle, 0, divergence),
        after=_share(route, oracle, divergence),
        divergence=divergence,
        logit_cosines=_cosines(_only(ours, known), _only(theirs, known)),
        errors=tuple(errors.tolist()),
        relative_errors=tuple((errors / _largest(theirs, known)).tolist()),
        identical=route.scores[:count].tobytes() == oracle.scores[:count].tobytes(),
        state_cosines=_state_cosines(route, oracle, len(oracle.prompt) + count - 1),
        argmax_first=route.tokens[0] == oracle.tokens[0],
        top5_first=_best(route.scores[0]) == _best(oracle.scores[0]),
        first_log_prob_error=_first_log_prob_error(route, oracle),
        margin=None if divergence is None else _margin(route, oracle, divergence),
    )


def log_probabilities(scores: Values) -> Values:
    """Log-softmax along the last axis, of logits that are all known."""
    import numpy as np

    shifted = scores - scores.max(axis=-1, keepdims=True)
    result: Values = shifted - np.log(np.exp(shifted).sum(axis=-1, keepdims=True))
    return result


def cosine_rows(ours: Values, theirs: Values) -> Values:
    """Cosine similarity of each row of two [n, width] arrays: a.b / (|a| |b|).

    Two rows of zeros are alike (1); one such row against another is not (0). A row that is not
    finite has a NaN.
    """
    import numpy as np

    with np.errstate(all="ignore"):
        products = (ours * theirs).sum(axis=-1)
        norms = np.linalg.norm(ours, axis=-1) * np.linalg.norm(theirs, axis=-1)
        same = (ours == theirs).all(axis=-1)
        cosines: Values = np.where(norms == 0, same.astype(np.float64), products / norms)
    return cosines


def _check_comparable(route: Generation, oracle: Generation) -> None:
    if route.prompt != oracle.prompt or len(route.tokens) != len(oracle.tokens):
        raise ValueError(
            f"generations of {len(route.prompt)}+{len(route.tokens)} and "
            f"{len(oracle.prompt)}+{len(oracle.tokens)} tokens: compare two of one prompt"
        )
    if route.scores.shape != oracle.scores.shape:
        raise Nonconformance(
            f"scores of shape {list(oracle.scores.shape)}", f"shape {list(route.scores.shape)}"
        )


def _divergence(ours: tuple[int, ...], theirs: tuple[int, ...]) -> int | None:
    pairs = enumerate(zip(ours, theirs, strict=True))
    return next((index for index, (one, other) in pairs if one != other), None)


def _share(
    route: Generation, oracle: Generation, start: int | None, stop: int | None = None
) -> Share:
    if start is None:
        return Share(0, 0)
    pairs = list(zip(route.tokens[start:stop], oracle.tokens[start:stop], strict=True))
    return Share(sum(one == other for one, other in pairs), len(pairs))


def _on_one_scale(route: Generation, oracle: Generation, count: int) -> tuple[Values, Values]:
    ours, theirs = (one.scores[:count].astype("f8") for one in (route, oracle))
    if route.scale == oracle.scale:
        return ours, theirs
    return _as_log_probabilities(route, ours), _as_log_probabilities(oracle, theirs)


def _as_log_probabilities(generation: Generation, scores: Values) -> Values:
    return log_probabilities(scores) if generation.scale == "logits" else scores


def _errors(ours: Values, theirs: Values, known: NDArray[np.bool_]) -> Values:
    """Largest difference of each row; infinite where a value is not finite, or none is known."""
    import numpy as np

    with np.errstate(all="ignore"):
        differences = np.where(known, np.abs(ours - theirs), 0.0)
    finite = np.isfinite(differences).all(axis=-1) & known.any(axis=-1)
    result: Values = np.where(finite, differences.max(axis=-1), np.inf)
    return result


def _largest(theirs: Values, known: NDArray[np.bool_]) -> Values:
    import numpy as np

    largest = np.where(known, np.abs(theirs), 0.0).max(axis=-1)
    result: Values = np.where(largest > 0, largest, 1.0)
    return result


def _only(values: Values, known: NDArray[np.bool_]) -> Values:
    import numpy as np

    result: Values = np.where(known, values, 0.0)
    return result


def _told(generation: Generation, values: Values) -> NDArray[np.bool_]:
    """Which scores an engine told. Logits are all told: a NaN among them is a wrong one."""
    import numpy as np

    if generation.scale == "logits":
        return np.ones(values.shape, dtype=np.bool_)
    result: NDArray[np.bool_] = ~np.isnan(values)
    return result


def _cosines(ours: Values, theirs: Values) -> tuple[float, ...]:
    return tuple(cosine_rows(ours, theirs).tolist())


def _state_cosines(
    route: Generation, oracle: Generation, positions: int
) -> dict[int, tuple[float, ...]]:
    found = {}
    for layer in sorted(route.states.keys() & oracle.states.keys()):
        ours, theirs = route.states[layer], oracle.states[layer]
        if ours.shape != theirs.shape:
            raise Nonconformance(
                f"hidden states of shape {list(theirs.shape)} before layer {layer}",
                f"shape {list(ours.shape)}",
            )
        found[layer] = _cosines(ours[:positions].astype("f8"), theirs[:positions].astype("f8"))
    return found


def _best(scores: Rows) -> list[int]:
    """The ids of the five best scores, best first; of equals the lowest id."""
    import numpy as np

    order = np.argsort(-np.where(np.isnan(scores), -np.inf, scores), kind="stable")
    return [int(one) for one in order[:TOP]]


def _first_log_prob_error(route: Generation, oracle: Generation) -> float:
    import numpy as np

    best = _best(oracle.scores[0])
    ours, theirs = (
        _as_log_probabilities(one, one.scores[:1].astype("f8"))[0, best] for one in (route, oracle)
    )
    differences = np.abs(ours - theirs)
    return float(np.nan_to_num(differences, nan=np.inf).max())


def _margin(route: Generation, oracle: Generation, divergence: int) -> float:
    scores = oracle.scores[divergence]
    return float(scores[oracle.tokens[divergence]]) - float(scores[route.tokens[divergence]])
