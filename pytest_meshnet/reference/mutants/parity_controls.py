"""The negative controls of parity that are in a Shard: wrong in one known way, all else honest.

They are mutants, and `serve --mutant NAME` starts them on any built-in model that has what they
break. The tests of PARITY-06 find the weakest of them by the logit error alone.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Protocol, runtime_checkable

from pytest_meshnet.protocol.machines.events import Outcome, ShardModel, Work
from pytest_meshnet.protocol.tensors import Tensor
from pytest_meshnet.reference.catalogue import ModelWrapper, control, mutant
from pytest_meshnet.reference.models import ModelUnavailable


@runtime_checkable
class _State(Protocol):
    """A Hot KV State of which one layer can be another's."""

    def with_layer_of(self, other: object, layer: int) -> object: ...


@runtime_checkable
class _Normalizing(Protocol):
    """A model that can apply its final norm to the rows of a tensor, wherever it is cut."""

    def final_norm(self, states: Tensor) -> Tensor: ...


@runtime_checkable
class _WithExperts(Protocol):
    """A model that can lose an expert of the first layer that has experts."""

    def drop_expert(self) -> None: ...


@mutant("PARITY-06")
class DecodeShiftedByOne(ModelWrapper):
    """Decode steps are rotated one position too far against the prefill."""

    def run(self, work: Work) -> Outcome:
        if work.mode == "decode":
            work = replace(work, first_position=work.first_position + 1)
        return super().run(work)


@mutant("PARITY-03")
class KvOfAnotherSession(ModelWrapper):
    """The first layer of a Shard attends to the keys and values of another session."""

    def __init__(self, model: ShardModel) -> None:
        super().__init__(model)
        # What the last two sessions held after their prefill.
        self._held: dict[str, object] = {}

    def run(self, work: Work) -> Outcome:
        others = [state for session, state in self._held.items() if session != work.session]
        if work.mode == "decode" and others:
            assert isinstance(work.state, _State), "the state of a built-in model"
            work = replace(work, state=work.state.with_layer_of(others[-1], work.start_layer))
        outcome = super().run(work)
        if work.mode == "prefill":
            self._held = {**dict(list(self._held.items())[-1:]), work.session: outcome.state}
        return outcome


@mutant("PARITY-01")
class FinalNormAtTheSeam(ModelWrapper):
    """Hidden states leave a Shard normalized as if it were the last."""

    def run(self, work: Work) -> Outcome:
        outcome = super().run(work)
        assert isinstance(self.model, _Normalizing), "a built-in model"
        tensors = tuple(
            self.model.final_norm(one) if one.name == "hidden_states" else one
            for one in outcome.tensors
        )
        return replace(outcome, tensors=tensors)


@control
class OneExpertDropped(ModelWrapper):
    """One expert of one layer gives nothing; for a model with experts."""

    def __init__(self, model: ShardModel) -> None:
        super().__init__(model)
        if not isinstance(model, _WithExperts):
            raise ModelUnavailable("one-expert-dropped needs a model with experts: glm-dsa-tiny")
        model.drop_expert()
