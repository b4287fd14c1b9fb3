"""The built-in models by name, each as a Shard of any range; heavy imports only when asked."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from pytest_meshnet.protocol.machines.events import ShardModel
from pytest_meshnet.protocol.machines.session import ServedShard
from pytest_meshnet.protocol.tensors import DType
from pytest_meshnet.reference.index_share import DEFAULT_INDEX_SHARE, SMALL_INDEX_SHARE
from pytest_meshnet.reference.seeded_weights import DEFAULT, SMALL, TinyLlamaConfig
from pytest_meshnet.reference.tiny_llama import TinyLlama, served_shard
from pytest_meshnet.runtime.weights import (
    INSTALL_SMOLLM2,
    SMOLLM2_PACKAGE,
    file_digest,
    smollm2_file,
)

if TYPE_CHECKING:
    from pytest_meshnet.reference.whole import WholeTinyLlama

MODELS: Mapping[str, TinyLlamaConfig] = {
    config.name: config for config in (DEFAULT, SMALL, DEFAULT_INDEX_SHARE, SMALL_INDEX_SHARE)
}
"""The seeded models, which need no package."""

LoadedShard = tuple[ServedShard, ShardModel]
Load = Callable[[int, int, DType], LoadedShard]


class ModelUnavailable(Exception):
    """A built-in model cannot be loaded here; the message says what to install."""


@dataclass(frozen=True, slots=True)
class BuiltIn:
    """A model of the reference worker: how a range and the whole are loaded, and what they need.

    `whole` gives the oracle of a seeded model, and of any other the model as transformers has it;
    `digest` the SHA-256 (hex) of its weights, or of what they follow from.
    """

    name: str
    layers: int
    load: Load
    whole: Callable[[], Any]
    digest: Callable[[], str]
    packages: Mapping[str, str]

    def missing(self) -> str:
        """What to install before it can be loaded; empty when nothing is missing."""
        wanted = [how for package, how in self.packages.items() if find_spec(package) is None]
        return "; ".join(dict.fromkeys(wanted))

    def shard(
        self, start: int, end: int, dtype: DType, *, max_sessions: int = 8, max_context: int = 4096
    ) -> LoadedShard:
        """Load layers [start, end), and nothing of the others.

        Raises ModelUnavailable when a package is missing, and ValueError for layers it lacks.
        """
        if not 0 <= start < end <= self.layers:
            raise ValueError(f"{self.name} has {self.layers} layers, not {start}:{end}")
        if missing := self.missing():
            raise ModelUnavailable(f"{self.name} cannot be loaded: {missing}")
        served, model = self.load(start, end, dtype)
        return replace(served, max_sessions=max_sessions, max_context=max_context), model


_TORCH = "pip install 'pytest-meshnet[torch]'"


def _tiny(config: TinyLlamaConfig) -> BuiltIn:
    def load(start: int, end: int, dtype: DType) -> LoadedShard:
        return served_shard(config, start, end, dtype), TinyLlama(config, start, end, dtype)

    def whole() -> WholeTinyLlama:
        from pytest_meshnet.reference.whole import WholeTinyLlama

        return WholeTinyLlama(config)

    return BuiltIn(config.name, config.layers, load, whole, config.digest, {})


def _smollm2(start: int, end: int, dtype: DType) -> LoadedShard:
    from pytest_meshnet.reference.torch_models import smollm2

    return smollm2.load_shard(start, end, dtype)


def _glm_dsa(start: int, end: int, dtype: DType) -> LoadedShard:
    from pytest_meshnet.reference.torch_models import glm_dsa

    return glm_dsa.load_shard(start, end, dtype)


def _whole_smollm2() -> Any:
    from pytest_meshnet.reference.torch_models import smollm2

    return smollm2.whole_model()


def _whole_glm_dsa() -> Any:
    from pytest_meshnet.reference.torch_models import glm_dsa

    return glm_dsa.whole_model()


def _glm_dsa_digest() -> str:
    from pytest_meshnet.reference.torch_models import glm_dsa

    return glm_dsa.digest()


_TORCH_PACKAGES = {"torch": _TORCH, "transformers": _TORCH, "gguf": _TORCH}

BUILT_IN: Mapping[str, BuiltIn] = {
    **{name: _tiny(config) for name, config in MODELS.items()},
    "smollm2": BuiltIn(
        "smollm2",
        30,
        _smollm2,
        _whole_smollm2,
        lambda: file_digest(smollm2_file()),
        _TORCH_PACKAGES | {SMOLLM2_PACKAGE: INSTALL_SMOLLM2},
    ),
    "glm-dsa-tiny": BuiltIn(
        "glm-dsa-tiny", 8, _glm_dsa, _whole_glm_dsa, _glm_dsa_digest, _TORCH_PACKAGES
    ),
}


def built_in(name: str) -> BuiltIn:
    """Return a built-in model that can be loaded here.

    Raises ModelUnavailable for a name that is not built in, or when a package is missing.
    """
    if name not in BUILT_IN:
        raise ModelUnavailable(
            f"no built-in model is named {name!r}: known are {', '.join(BUILT_IN)}"
        )
    if missing := BUILT_IN[name].missing():
        raise ModelUnavailable(f"{name} cannot be loaded: {missing}")
    return BUILT_IN[name]
