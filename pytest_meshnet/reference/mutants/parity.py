"""Shards that compute nearly what they should, and tests that must say so. They break PARITY."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from pytest_meshnet.parity import lanes, metrics
from pytest_meshnet.protocol.machines.events import Outcome, ShardModel, Work
from pytest_meshnet.protocol.tensors import DType, Tensor
from pytest_meshnet.reference.catalogue import ModelWrapper, mutant, suite_mutant
from pytest_meshnet.reference.mutants.patching import replace as patch
from pytest_meshnet.runtime.generation import Generation


class _Results(ModelWrapper):
    """Changes what leaves a Shard."""

    def change(self, tensor: Tensor) -> Tensor:
        raise NotImplementedError

    def run(self, work: Work) -> Outcome:
        outcome = super().run(work)
        return replace(outcome, tensors=tuple(self.change(one) for one in outcome.tensors))


def _scaled(tensor: Tensor, factor: float) -> Tensor:
    rows = tensor.to_float32() * np.float32(factor)
    return Tensor.from_float32(tensor.name, rows, tensor.dtype)


@mutant("PARITY-01")
class RoundsItsBoundary(_Results):
    """Hidden states are rounded to bfloat16 on the float32 lane: nearly every token holds."""

    def change(self, tensor: Tensor) -> Tensor:
        if tensor.name != "hidden_states" or tensor.dtype is not DType.FLOAT32:
            return tensor
        narrow = Tensor.from_float32(tensor.name, tensor.to_float32(), DType.BFLOAT16)
        return Tensor.from_float32(tensor.name, narrow.to_float32(), DType.FLOAT32)


@mutant("PARITY-01")
class LogitsAreScaled(_Results):
    """Logits are a thousandth too large, which changes no token."""

    def change(self, tensor: Tensor) -> Tensor:
        return _scaled(tensor, 1.001) if tensor.name == "logits" else tensor


@mutant("PARITY-01")
class LastBitOfLogits(_Results):
    """Logits differ from the oracle's in their last bits alone."""

    def change(self, tensor: Tensor) -> Tensor:
        return _scaled(tensor, 1.000001) if tensor.name == "logits" else tensor


@mutant("PARITY-01")
class SkipsItsLastLayer(ModelWrapper):
    """The last layer of a Shard of several is not run."""

    def run(self, work: Work) -> Outcome:
        if work.end_layer - work.start_layer > 1:
            work = replace(work, end_layer=work.end_layer - 1)
        return super().run(work)


@mutant("PARITY-01")
class SecondBestToken(_Results):
    """The best logit and the second best change places."""

    def change(self, tensor: Tensor) -> Tensor:
        if tensor.name != "logits":
            return tensor
        logits = tensor.to_float32().copy()
        best, second = np.argsort(-logits[0, 0])[:2]
        logits[0, 0, [best, second]] = logits[0, 0, [second, best]]
        return Tensor.from_float32(tensor.name, logits, tensor.dtype)


@mutant("PARITY-02")
class OneValueOverflows(_Results):
    """One value of a long prefill is infinite, as from a dtype that is too narrow."""

    def change(self, tensor: Tensor) -> Tensor:
        if tensor.name != "hidden_states" or tensor.shape[1] < 4:
            return tensor
        rows = tensor.to_float32().copy()
        rows[0, 2, 0] = np.inf
        return Tensor.from_float32(tensor.name, rows, tensor.dtype)


@mutant("PARITY-02")
class StatesInThreeBits(_Results):
    """Hidden states keep three bits of each value, as under a coarse quantization."""

    def change(self, tensor: Tensor) -> Tensor:
        if tensor.name != "hidden_states":
            return tensor
        rows = tensor.to_float32()
        mantissa, exponent = np.frexp(rows)
        coarse = np.ldexp(np.round(mantissa * 8) / 8, exponent).astype(np.float32)
        return Tensor.from_float32(tensor.name, coarse, tensor.dtype)


@mutant("PARITY-02")
class FlatterLogits(_Results):
    """The best logit falls by half a unit: cosines hardly move, tokens do."""

    def change(self, tensor: Tensor) -> Tensor:
        if tensor.name != "logits":
            return tensor
        logits = tensor.to_float32().copy()
        logits[0, 0, logits[0, 0].argmax()] -= 0.5
        return Tensor.from_float32(tensor.name, logits, tensor.dtype)


@mutant("PARITY-03")
class RotatesEachChunkFromZero(ModelWrapper):
    """A prefill that continues is rotated as if it began at position zero."""

    def run(self, work: Work) -> Outcome:
        if work.mode == "prefill":
            work = replace(work, first_position=0)
        return super().run(work)


@mutant("PARITY-03")
class OneTokenChunksAreDecode(ModelWrapper):
    """A chunk of one token is taken for a decode step that was rotated already."""

    def run(self, work: Work) -> Outcome:
        if work.mode == "prefill" and work.token_count == 1:
            work = replace(work, first_position=max(0, work.first_position - 1))
        return super().run(work)


@mutant("PARITY-03")
class ShortPrefillStateOfTheNeighbour(ModelWrapper):
    """With two sessions in their decode at once, one step continues the other's state."""

    def __init__(self, model: ShardModel) -> None:
        super().__init__(model)
        self._last: Work | None = None

    def run(self, work: Work) -> Outcome:
        before, self._last = self._last, work
        if before and before.mode == work.mode == "decode" and before.session != work.session:
            return super().run(replace(work, state=before.state))
        return super().run(work)


@mutant("PARITY-04")
class WearsOut(_Results):
    """After sixty sessions the results of a Shard are a little too large."""

    def __init__(self, model: ShardModel) -> None:
        super().__init__(model)
        self._sessions: set[str] = set()

    def run(self, work: Work) -> Outcome:
        self._sessions.add(work.session)
        return super().run(work)

    def change(self, tensor: Tensor) -> Tensor:
        return _scaled(tensor, 1.05) if len(self._sessions) > 60 else tensor


@mutant("PARITY-04")
class ColdStart(_Results):
    """The first session after a start gets results that are too large."""

    def __init__(self, model: ShardModel) -> None:
        super().__init__(model)
        self._sessions: set[str] = set()

    def run(self, work: Work) -> Outcome:
        self._sessions.add(work.session)
        return super().run(work)

    def change(self, tensor: Tensor) -> Tensor:
        return _scaled(tensor, 1.5) if len(self._sessions) == 1 else tensor


@mutant("PARITY-05")
class PassesItsInputOn(ModelWrapper):
    """A middle Shard gives back the states that it was given."""

    def run(self, work: Work) -> Outcome:
        outcome = super().run(work)
        if outcome.tensors and outcome.tensors[0].name == work.tensors[0].name:
            outcome = replace(outcome, tensors=work.tensors)
        return outcome


@mutant("PARITY-05")
class NoTimeAtAll(ModelWrapper):
    """Execution takes no time."""

    def run(self, work: Work) -> Outcome:
        return replace(super().run(work), execution_nanos=0)


@mutant("PARITY-05")
class AttendsToNothingBefore(ModelWrapper):
    """Every row is computed alone, so that a head is little more than its embedding."""

    def run(self, work: Work) -> Outcome:
        if work.mode != "prefill" or work.token_count == 1:
            return super().run(work)
        last = tuple(one.rows(work.token_count - 1, work.token_count) for one in work.tensors)
        alone = super().run(replace(work, mode="stateless", token_count=1, tensors=last))
        whole = super().run(work)
        if not whole.tensors or whole.tensors[0].name == "logits":
            return replace(whole, tensors=alone.tensors)
        states = whole.tensors[0]
        data = bytes(states.data)[: -len(bytes(alone.tensors[0].data))]
        joined = replace(states, data=data + bytes(alone.tensors[0].data))
        return replace(whole, tensors=(joined,))


@mutant("PARITY-06")
class ErrsMoreThanRounding(_Results):
    """Logits are off by half a unit here and there, below what changes most tokens."""

    def change(self, tensor: Tensor) -> Tensor:
        if tensor.name != "logits":
            return tensor
        logits = tensor.to_float32().copy()
        logits[0, 0, logits[0, 0].argmin()] += 0.5
        return Tensor.from_float32(tensor.name, logits, tensor.dtype)


@suite_mutant("PARITY-06")
def error_is_never_large() -> None:
    """The metric caps every logit error below the bound."""
    measured = metrics.compare

    def compare(route: Generation, oracle: Generation) -> metrics.Comparison:
        found = measured(route, oracle)
        return replace(found, errors=tuple(min(one, 1e-6) for one in found.errors))

    patch(metrics, "compare", compare)


@suite_mutant("PARITY-06")
def only_tokens_count() -> None:
    """The float32 lane looks at tokens alone."""

    def exact(comparisons: object, *, bits: bool = False) -> list[str]:
        return lanes.flips(comparisons)  # type: ignore[arg-type]

    patch(lanes, "exact", exact)
