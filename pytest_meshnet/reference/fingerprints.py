"""Fingerprints of the built-in models: digests over the same documents as for any runtime."""

from __future__ import annotations

from pytest_meshnet.protocol.additions.canonical import canonical_digest
from pytest_meshnet.protocol.generated import shard_runtime_pb2 as pb
from pytest_meshnet.protocol.tensors import DType


def built_in_fingerprint(
    name: str,
    *,
    source_digest: str,
    architecture: str,
    layers: int,
    boundary_dtype: DType,
    backend: str = "numpy",
    runtime_version: str = "1",
    tokenizer: str = "none",
) -> pb.Fingerprint:
    """The fingerprint of a built-in model that computes in float32.

    `source_digest` is the SHA-256 (hex) of the weights, or of what they follow from.
    """
    artifact = {
        "source_digest": source_digest,
        "architecture": architecture,
        "architecture_digest": canonical_digest(architecture),
        "layer_count": layers,
    }
    recipe = {
        "weight_quantization": "float32",
        "activation_dtype": boundary_dtype.name.lower(),
        "compute_dtype": "float32",
        "kv_dtype": "float32",
        "kv_layout": "contiguous",
        "tokenizer_revision": tokenizer,
        "architecture_adapter": architecture,
        "backend_id": backend,
        "runtime_version": runtime_version,
        "boundary_schema_version": 1,
        "protocol_schema_version": 1,
    }
    return pb.Fingerprint(
        model_artifact_digest=_domain_digest("meshnet.model-artifact.v1", artifact),
        runtime_recipe_digest=_domain_digest("meshnet.runtime-recipe.v1", recipe),
        recipe_id=f"{name}-{boundary_dtype.name.lower()}",
        recipe_version="1",
        catalogue_version="reference-1",
    )


def _domain_digest(domain: str, body: object) -> str:
    return canonical_digest({"domain": domain, "body": body})
