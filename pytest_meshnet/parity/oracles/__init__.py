"""Oracles and engines that are nobody's Shards: found by what a descriptor says of them."""

from __future__ import annotations

from pytest_meshnet.parity.oracles.llama_server import LlamaServer
from pytest_meshnet.runtime.descriptor import Descriptor
from pytest_meshnet.runtime.errors import Refusal
from pytest_meshnet.runtime.generation import Generator
from pytest_meshnet.runtime.route_spec import EngineSpec


def external_oracle(descriptor: Descriptor) -> Generator:
    """The oracle of a descriptor that names none built in. Raises Refusal."""
    spec, folder = descriptor.oracle, descriptor.folder
    assert spec is not None, "a descriptor with a route has an oracle"
    if spec.kind == "transformers":
        from pytest_meshnet.parity.oracles.whole_transformers import TransformersOracle

        return TransformersOracle.from_gguf(spec.model, folder)
    if spec.kind == "stored":
        from pytest_meshnet.parity.oracles.stored import Binding, StoredOracle

        if spec.record is None:
            raise Refusal("a stored oracle needs its record: name the file in oracle.record")
        wanted = Binding.read(spec.binding) if spec.binding is not None else None
        return StoredOracle.read(spec.record, wanted)
    if spec.engine is None:
        raise Refusal("the oracle is a llama-server: describe it in oracle.llama_server")
    return engine_of(spec.engine, descriptor)


def engine_of(spec: EngineSpec, descriptor: Descriptor) -> LlamaServer:
    """A whole model behind a llama-server. Raises Refusal when it cannot be reached."""
    model = descriptor.model
    assert model is not None, "a descriptor with a route knows its model"
    return LlamaServer.reach(spec, descriptor.folder, model.vocab_size, model.layers or 0)
