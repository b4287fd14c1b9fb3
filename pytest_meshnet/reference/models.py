"""The built-in models by name."""

from __future__ import annotations

from collections.abc import Mapping

from pytest_meshnet.reference.index_share import DEFAULT_INDEX_SHARE, SMALL_INDEX_SHARE
from pytest_meshnet.reference.seeded_weights import DEFAULT, SMALL, TinyLlamaConfig

MODELS: Mapping[str, TinyLlamaConfig] = {
    config.name: config for config in (DEFAULT, SMALL, DEFAULT_INDEX_SHARE, SMALL_INDEX_SHARE)
}
