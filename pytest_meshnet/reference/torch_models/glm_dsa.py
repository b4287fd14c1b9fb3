"""`glm-dsa-tiny`: a GLM-MoE-DSA graph with random weights, as Shards with the IndexShare sideband.

Two dense layers, then experts; latent attention; a lightning indexer whose choices Shared layers
take over. It proves that the graph is cut rightly and nothing about any trained model. Every
parameter follows from its own name, so that a Shard builds only its own layers.
"""

from __future__ import annotations

import hashlib
from math import prod, sqrt
from typing import Any

import torch
import transformers
from transformers.models.glm_moe_dsa import modeling_glm_moe_dsa as glm

from pytest_meshnet.protocol.additions.sideband import IndexShare
from pytest_meshnet.protocol.machines.session import ServedShard
from pytest_meshnet.protocol.tensors import DType
from pytest_meshnet.reference.fingerprints import built_in_fingerprint
from pytest_meshnet.reference.torch_models.shard import Parts, TorchShard, single_threaded

NAME = "glm-dsa-tiny"
SEED = 2026
LAYERS = 8
_NORM_DEVIATION = 0.25


def config() -> Any:
    """The sizes: all ratios of the published model that shape the graph, none of its width.

    16 indexer heads: with few of them rows tie exactly at the top-k boundary.
    """
    return transformers.GlmMoeDsaConfig(
        vocab_size=512,
        hidden_size=64,
        intermediate_size=128,
        moe_intermediate_size=32,
        num_hidden_layers=LAYERS,
        num_attention_heads=4,
        num_key_value_heads=4,
        n_shared_experts=1,
        n_routed_experts=8,
        num_experts_per_tok=2,
        first_k_dense_replace=2,
        q_lora_rank=32,
        kv_lora_rank=32,
        qk_rope_head_dim=8,
        qk_nope_head_dim=16,
        v_head_dim=16,
        index_topk=16,
        index_head_dim=16,
        index_n_heads=16,
        index_topk_freq=4,
        index_skip_topk_offset=3,
        max_position_embeddings=4096,
        tie_word_embeddings=False,
        attn_implementation="eager",
        experts_implementation="eager",
    )


def load_shard(start: int, end: int, boundary_dtype: DType) -> tuple[ServedShard, TorchShard]:
    """Build layers [start, end), with the first the embedding too, with the last the head."""
    single_threaded()
    sizes = config()
    share = IndexShare(sizes.index_topk, tuple(sizes.indexer_types))
    parts = Parts(
        config=sizes,
        start=start,
        end=end,
        layers={number: _layer(sizes, number, number - start) for number in range(start, end)},
        rotary=glm.GlmMoeDsaRotaryEmbedding(sizes),
        embedding=_embedding(sizes) if start == 0 else None,
        final_norm=_norm(sizes),
        head=_head(sizes) if end == LAYERS else None,
    )
    served = _served(sizes, start, end, boundary_dtype, share)
    return served, TorchShard(parts, boundary_dtype, share)


def whole_model() -> Any:
    """The whole model, as transformers runs it, with the same weights."""
    single_threaded()
    model = glm.GlmMoeDsaForCausalLM(config())
    _seeded(model, "")
    return model.eval()


def digest() -> str:
    """SHA-256 (hex) of what the weights follow from: every size, and the seed."""
    return hashlib.sha256(f"{NAME}/{SEED}/{config().to_json_string()}".encode()).hexdigest()


def _served(sizes: Any, start: int, end: int, dtype: DType, share: IndexShare) -> ServedShard:
    return ServedShard(
        fingerprint=built_in_fingerprint(
            NAME,
            source_digest=digest(),
            architecture="glm_moe_dsa",
            layers=LAYERS,
            boundary_dtype=dtype,
            backend="torch-cpu",
            runtime_version=torch.__version__,
        ),
        start_layer=start,
        end_layer=end,
        layer_count=LAYERS,
        hidden_size=sizes.hidden_size,
        vocab_size=sizes.vocab_size,
        boundary_dtype=dtype,
        backend="torch",
        detail=f"{NAME}, random weights: graph parity only, never the alpha target",
        index_share=share,
    )


def _seeded(module: torch.nn.Module, prefix: str) -> None:
    """Fill every parameter with numbers that follow from its name in the whole model.

    Matrices have the deviation 1 / sqrt(inputs), vectors are around 1.
    """
    with torch.no_grad():
        for name, parameter in module.named_parameters():
            key = hashlib.sha256(f"{SEED}/{prefix}{name}".encode()).digest()
            source = torch.Generator().manual_seed(int.from_bytes(key[:7], "big"))
            values = torch.randn(prod(parameter.shape), generator=source).view(parameter.shape)
            if parameter.dim() == 1:
                parameter.copy_(1 + _NORM_DEVIATION * values)
            else:
                parameter.copy_(values / sqrt(parameter.shape[-1]))


def _layer(sizes: Any, number: int, place: int) -> torch.nn.Module:
    layer = glm.GlmMoeDsaDecoderLayer(sizes, number)
    _seeded(layer, f"model.layers.{number}.")
    # The role follows from the layer of the model, the place in the cache from the Shard.
    layer.self_attn.layer_idx = place
    if layer.self_attn.indexer is not None:
        layer.self_attn.indexer.layer_idx = place
    return layer.eval()


def _embedding(sizes: Any) -> torch.nn.Module:
    embedding = torch.nn.Embedding(sizes.vocab_size, sizes.hidden_size)
    _seeded(embedding, "model.embed_tokens.")
    return embedding


def _norm(sizes: Any) -> torch.nn.Module:
    norm = glm.GlmMoeDsaRMSNorm(sizes.hidden_size, eps=sizes.rms_norm_eps)
    _seeded(norm, "model.norm.")
    return norm.eval()


def _head(sizes: Any) -> torch.nn.Module:
    head = torch.nn.Linear(sizes.hidden_size, sizes.vocab_size, bias=False)
    _seeded(head, "lm_head.")
    return head.eval()
