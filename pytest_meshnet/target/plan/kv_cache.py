"""How many bytes the cache of each layer takes: every family, every layer, the effective KV type.

Sources: the published plan for MLA with the lightning indexer; the GGUF metadata keys and
llama.cpp's hyperparameters for grouped-query, sliding-window and state-space layers.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from pytest_meshnet.target.architecture import Architecture
from pytest_meshnet.target.fields import TargetRefused

# Values and bytes of one block. Q8_0 is 34 bytes for 32 values: a planner that takes it for F16
# asks for twice the memory that is used.
KV_TYPES: Mapping[str, tuple[int, int]] = {
    "F32": (1, 4),
    "F16": (1, 2),
    "BF16": (1, 2),
    "Q8_0": (32, 34),
    "Q5_1": (32, 24),
    "Q5_0": (32, 22),
    "Q4_1": (32, 20),
    "Q4_0": (32, 18),
}


class IndexerLayout(StrEnum):
    """Which layers the planner charges with indexer keys."""

    MLA_ONLY = "mla_only"
    OPTIMIZED = "optimized"
    CONSERVATIVE = "conservative"


@dataclass(frozen=True, slots=True)
class LayerCache:
    """What one layer caches.

    `rows` are the values stored for each token, one entry a row (a quantized row is whole blocks);
    `window` bounds the tokens kept (None keeps the whole context); `state_bytes` is the recurrent
    state of one sequence, which no context length changes.
    """

    rows: tuple[int, ...] = ()
    window: int | None = None
    state_bytes: int = 0

    def bytes(self, context_tokens: int, kv_type: str, concurrency: int = 1) -> int:
        """Return the bytes for `concurrency` sequences of `context_tokens` tokens each.

        Raises TargetRefused: kv-type, context, concurrency.
        """
        block, size = kv_block(kv_type)
        _require_positive("context", context_tokens)
        _require_positive("concurrency", concurrency)
        tokens = context_tokens if self.window is None else min(context_tokens, self.window)
        row_bytes = sum(-(-values // block) * size for values in self.rows)
        return concurrency * (tokens * row_bytes + self.state_bytes)


def kv_block(kv_type: str) -> tuple[int, int]:
    """Return (values, bytes) of one block of `kv_type`. Raises TargetRefused("kv-type")."""
    try:
        return KV_TYPES[kv_type.upper()]
    except KeyError:
        raise TargetRefused(
            "kv-type", f"{kv_type!r} is no KV type: use one of {', '.join(KV_TYPES)}"
        ) from None


def kv_bytes(
    layers: Iterable[LayerCache], context_tokens: int, kv_type: str, concurrency: int = 1
) -> int:
    """Return the bytes of all `layers` together; raises as `LayerCache.bytes` does."""
    return sum(layer.bytes(context_tokens, kv_type, concurrency) for layer in layers)


def target_layers(
    architecture: Architecture, layout: IndexerLayout = IndexerLayout.CONSERVATIVE
) -> tuple[LayerCache, ...]:
    """Return the caches of the locked target's backbone, in layer order.

    Each layer stores the MLA latent with its rotary part (512 + 64 values a token); the indexer key
    (128) is charged to every layer, to the Full layers only, or to none, by `layout`.
    """
    full = architecture.group_starts()
    layers = []
    for layer in range(architecture.backbone_layers):
        charged = layout is IndexerLayout.CONSERVATIVE or (
            layout is IndexerLayout.OPTIMIZED and layer in full
        )
        indexer = (architecture.indexer_values,) if charged else ()
        layers.append(LayerCache((architecture.mla_values, *indexer)))
    return tuple(layers)


def gguf_layers(
    metadata: Mapping[str, Any], block_count: int, backbone_layers: int
) -> tuple[LayerCache, ...]:
    """Return the caches of a GGUF model's backbone from its metadata.

    Per-layer arrays are read whole. Raises TargetRefused("kv-unknown") when the metadata does not
    say what a layer caches: an unknown size is never taken for zero.
    """
    arch = metadata.get("general.architecture")
    found = _Metadata(metadata, str(arch), block_count)
    if found.scalar("attention.kv_lora_rank") is not None:
        layer = _latent_layer(found)
        return (layer,) * backbone_layers
    return tuple(_attention_layer(found, layer) for layer in range(backbone_layers))


def _latent_layer(found: "_Metadata") -> LayerCache:
    latent = found.need("attention.kv_lora_rank") + found.need("rope.dimension_count")
    indexer = found.scalar("attention.indexer.key_length")
    return LayerCache((latent,) if indexer is None else (latent, indexer))


def _attention_layer(found: "_Metadata", layer: int) -> LayerCache:
    heads = found.layer("attention.head_count", layer)
    kv_heads = found.layer("attention.head_count_kv", layer)
    if kv_heads is None:
        kv_heads = heads  # no grouping: every head has its own keys and values
    if kv_heads is None:
        raise found.unknown("attention.head_count_kv")
    if kv_heads == 0:
        return LayerCache(state_bytes=_state_bytes(found))
    window = _window(found, layer)
    swa = "_swa" if window is not None else ""
    widths = []
    for name in ("key_length", "value_length"):
        width = found.layer(f"attention.{name}{swa}", layer)
        if width is None:
            width = found.layer(f"attention.{name}", layer)
        widths.append(_head_width(found, heads) if width is None else width)
    return LayerCache(tuple(kv_heads * width for width in widths), window)


def _head_width(found: "_Metadata", heads: int | None) -> int:
    embedding = found.need("embedding_length")
    if not heads or embedding % heads:
        raise found.unknown("attention.key_length")
    return embedding // heads


def _window(found: "_Metadata", layer: int) -> int | None:
    """Return the window of a layer the pattern marks; without a per-layer pattern, none is."""
    pattern = found.raw("attention.sliding_window_pattern")
    if not isinstance(pattern, Sequence) or isinstance(pattern, str):
        return None
    windowed = found.layer("attention.sliding_window_pattern", layer)
    return found.need("attention.sliding_window") if windowed else None


def _state_bytes(found: "_Metadata") -> int:
    """Return a state-space layer's float32 state: convolution rows and scan state (llama.cpp)."""
    if found.scalar("ssm.state_size") is None:
        return 0  # a layer without attention and without state keeps nothing
    inner, state = found.need("ssm.inner_size"), found.need("ssm.state_size")
    groups = found.scalar("ssm.group_count") or 0
    convolution = (found.need("ssm.conv_kernel") - 1) * (inner + 2 * groups * state)
    return 4 * (convolution + state * inner)


class _Metadata:
    """Integer keys of one architecture, scalar or one entry a layer."""

    def __init__(self, values: Mapping[str, Any], arch: str, block_count: int) -> None:
        self._values = values
        self._arch = arch
        self._block_count = block_count

    def raw(self, key: str) -> Any:
        return self._values.get(f"{self._arch}.{key}")

    def scalar(self, key: str) -> int | None:
        value = self.raw(key)
        if value is None:
            return None
        if not isinstance(value, int) or value < 0:
            raise self.unknown(key)
        return value

    def need(self, key: str) -> int:
        value = self.scalar(key)
        if value is None:
            raise self.unknown(key)
        return value

    def layer(self, key: str, layer: int) -> int | None:
        value = self.raw(key)
        if not isinstance(value, Sequence) or isinstance(value, str):
            return self.scalar(key)
        if len(value) != self._block_count:
            raise TargetRefused(
                "kv-unknown",
                f"{self._arch}.{key} has {len(value)} entries for {self._block_count} layers: "
                "the file contradicts itself",
            )
        entry = value[layer]
        if not isinstance(entry, int) or entry < 0:
            raise self.unknown(key)
        return entry

    def unknown(self, key: str) -> TargetRefused:
        return TargetRefused(
            "kv-unknown",
            f"the metadata gives no usable {self._arch}.{key}, so the cache has no known size: "
            "use a file that says it",
        )


def _require_positive(name: str, value: int) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise TargetRefused(name, f"{name} is {value!r}, expected an integer of at least 1")
