"""A GGUF file with every tensor in float32: what another engine needs to be near-lossless.

Metadata is kept as it is, but for the file type; the copy lies in the user's cache folder under the
digest of its original, and is made once.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from pytest_meshnet.runtime.errors import Refusal
from pytest_meshnet.runtime.weights import cache_folder, file_digest

_ALL_FLOAT32 = 0
"""`general.file_type` of a file whose tensors are all float32 (LLAMA_FTYPE_ALL_F32)."""


def converted(original: Path) -> Path:
    """Return the float32 copy of a GGUF file, made when there is none. Raises Refusal."""
    path = cache_folder() / f"{original.stem}-{file_digest(original)[:16]}-float32.gguf"
    if path.is_file():
        return path
    try:
        import gguf
    except ImportError:
        raise Refusal("converting to float32 needs gguf: pip install 'gguf>=0.17'") from None
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f"{path.name}.{os.getpid()}.partial")
    _write(gguf, gguf.GGUFReader(original), partial)
    partial.replace(path)
    return path


def _write(gguf: Any, reader: Any, path: Path) -> None:
    architecture = reader.fields["general.architecture"].contents()
    writer = gguf.GGUFWriter(path, architecture)
    for name, entry in reader.fields.items():
        if name.startswith("GGUF.") or name == "general.architecture":
            continue
        kind = entry.types[0]
        value = _ALL_FLOAT32 if name == "general.file_type" else entry.contents()
        if kind == gguf.GGUFValueType.ARRAY:
            writer.add_key_value(name, value, kind, sub_type=entry.types[-1])
        else:
            writer.add_key_value(name, value, kind)
    for tensor in reader.tensors:
        writer.add_tensor(tensor.name, gguf.quants.dequantize(tensor.data, tensor.tensor_type))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
