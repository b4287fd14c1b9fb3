"""One file's header: what the gguf library reads too, and nothing that a hostile header says."""

import contextlib
import os
import stat
import struct
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pytest_meshnet.target.artifact import header as module
from pytest_meshnet.target.artifact.header import Skipped, read_header
from pytest_meshnet.target.fields import TargetRefused
from pytest_meshnet.tests.target import gguf_files as make

gguf = pytest.importorskip("gguf", reason="needs gguf: pip install gguf")

TENSORS = [make.Tensor("a", (32, 3), make.Q8_0), make.Tensor("b", (5, 2, 3)), make.Tensor("c")]


def good(path: Path) -> Path:
    pairs = [
        make.pair("general.architecture", "str", "toy"),
        make.pair("toy.block_count", "u32", 1),
        make.pair("toy.heads", "[u32", [3, 1, 2]),
        make.pair("toy.pattern", "[bool", [True, False]),
        make.pair("toy.scale", "f32", 0.5),
        make.pair("tokenizer.tokens", "[str", ["a", "ü", ""]),
    ]
    return make.write(path, pairs, TENSORS)


def test_a_header_gives_metadata_and_tensors_with_arrays_whole(tmp_path):
    found = read_header(good(tmp_path / "m.gguf"))
    assert found.version == 3
    assert found.metadata["general.architecture"] == "toy"
    assert found.metadata["toy.heads"] == (3, 1, 2)
    assert found.metadata["toy.pattern"] == (True, False)
    assert found.metadata["toy.scale"] == 0.5
    assert found.metadata["tokenizer.tokens"] == Skipped(3)
    assert [(t.name, t.dtype, t.shape, t.size_bytes) for t in found.tensors] == [
        ("a", "Q8_0", (32, 3), 102),
        ("b", "F32", (5, 2, 3), 120),
        ("c", "F32", (32,), 128),
    ]
    assert found.file_bytes == (tmp_path / "m.gguf").stat().st_size


def test_of_a_long_array_only_the_length_is_kept_and_the_rest_is_read_after_it(tmp_path):
    for length, kept in ((65_536, (1,) * 65_536), (65_537, Skipped(65_537))):
        pairs = [make.pair("long", "[u8", [1] * length), make.pair("after", "u32", 7)]
        found = read_header(make.write(tmp_path / f"{length}.gguf", pairs, TENSORS))
        assert found.metadata["long"] == kept
        assert found.metadata["after"] == 7
        assert len(found.tensors) == len(TENSORS)


def test_no_descriptor_is_left_open(tmp_path):
    good(tmp_path / "good.gguf")
    (tmp_path / "folder.gguf").mkdir()
    (tmp_path / "bad.gguf").write_bytes(b"bad")
    before = len(os.listdir("/proc/self/fd"))
    for name in ("good", "folder", "bad"):
        with contextlib.suppress(TargetRefused):
            read_header(tmp_path / f"{name}.gguf")
    assert len(os.listdir("/proc/self/fd")) == before


def test_the_gguf_library_reads_the_same(tmp_path):
    path = good(tmp_path / "m.gguf")
    theirs = gguf.GGUFReader(path)
    ours = read_header(path)
    assert [(t.name, t.dtype, t.shape, t.size_bytes, t.offset) for t in ours.tensors] == [
        (t.name, t.tensor_type.name, tuple(t.shape.tolist()), t.n_bytes, t.data_offset)
        for t in theirs.tensors
    ]
    assert theirs.get_field("toy.heads").contents() == list(ours.metadata["toy.heads"])


def test_a_file_written_by_the_gguf_library_is_read(tmp_path):
    numpy = pytest.importorskip("numpy")
    path = tmp_path / "theirs.gguf"
    writer = gguf.GGUFWriter(path, "toy")
    writer.add_block_count(2)
    writer.add_head_count_kv([4, 2])
    writer.add_custom_alignment(64)
    writer.add_tensor("token_embd.weight", numpy.zeros((3, 32), numpy.float32))
    writer.add_tensor("output_norm.weight", numpy.zeros(32, numpy.float16))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    found = read_header(path)
    assert found.metadata["toy.attention.head_count_kv"] == (4, 2)
    assert [(t.name, t.shape, t.size_bytes, t.offset % 64) for t in found.tensors] == [
        ("token_embd.weight", (32, 3), 384, 0),
        ("output_norm.weight", (32,), 64, 0),
    ]


def test_only_the_header_is_read(tmp_path, monkeypatch):
    """A hole of 64 GiB behind the header costs nothing and is never touched."""
    tensor = make.Tensor("big", (2**20, 2**14), make.F32)
    path = make.write(tmp_path / "big.gguf", [], [tensor], fill=None)
    assert path.stat().st_size > 2**36
    read = []
    walk = module._Walk._bytes
    monkeypatch.setattr(
        module._Walk, "_bytes", lambda self, count: (read.append(count), walk(self, count))[1]
    )
    assert read_header(path).tensors[0].size_bytes == 2**36
    assert sum(read) < 200


# faults.md 14: no input is ever opened for writing, whatever it is called.
def test_an_input_is_never_opened_for_writing(tmp_path, monkeypatch):
    path = good(tmp_path / "part1.gguf")
    path.chmod(stat.S_IRUSR)
    before = (path.read_bytes(), path.stat().st_mtime_ns)
    flags = []
    opener = os.open
    monkeypatch.setattr(module.os, "open", lambda p, f: (flags.append(f), opener(p, f))[1])
    monkeypatch.setattr("builtins.open", None)
    read_header(path)
    monkeypatch.undo()
    assert flags
    assert all(flag & os.O_ACCMODE == os.O_RDONLY and not flag & os.O_TRUNC for flag in flags)
    assert (path.read_bytes(), path.stat().st_mtime_ns) == before


def head(tensors: int, pairs: int, rest: bytes, version: int = 3) -> bytes:
    return (b"GGUF" + struct.pack("<IQQ", version, tensors, pairs) + rest).ljust(512, b"\0")


def entry(
    name: str, dims: list[int], dtype: int = 0, offset: int = 0, count: int | None = None
) -> bytes:
    shape = struct.pack(f"<{len(dims)}Q", *dims)
    number = len(dims) if count is None else count
    return make.text(name) + struct.pack("<I", number) + shape + struct.pack("<IQ", dtype, offset)


# faults.md 75 and its kind: every count, length and product is bounded before it is used.
HOSTILE = [
    ("empty-part", b""),
    ("not-gguf", b"GGML" + b"\0" * 60),
    ("not-gguf", b"PK\x03\x04" + b"\0" * 60),
    ("truncated", b"GG"),
    ("truncated", b"GGUF\x03\0\0"),
    ("gguf-version", head(0, 0, b"", version=1)),
    ("gguf-version", head(0, 0, b"", version=4)),
    ("big-endian", head(0, 0, b"", version=3 << 24)),
    ("header-bounds", head(0, 2**60, b"")),
    ("header-bounds", head(2**60, 0, b"")),
    ("header-bounds", head(0, 1, struct.pack("<Q", 2**60))),
    ("header-bounds", head(0, 1, make.text("k") + struct.pack("<IQ", 8, 2**40))),
    ("header-bounds", head(0, 1, make.text("k") + struct.pack("<IIQ", 9, 4, 2**62))),
    ("header-bounds", head(0, 1, make.text("k") + struct.pack("<IIQ", 9, 8, 2**62))),
    ("truncated", head(0, 1, make.text("k") + struct.pack("<IIQQ", 9, 8, 1, 2**62))),
    ("header-value", head(0, 1, make.text("k") + struct.pack("<I", 99))),
    ("header-value", head(0, 1, make.text("k") + struct.pack("<IIQ", 9, 9, 1))),
    ("header-value", head(0, 1, make.text(b"\xff\xfe"))),
    ("header-value", head(0, 1, make.text("k") + struct.pack("<I", 8) + make.text(b"\xff"))),
    ("header-value", head(0, 1, make.pair("general.alignment", "u32", 0))),
    ("header-value", head(0, 1, make.pair("general.alignment", "u32", 24))),
    ("header-value", head(0, 1, make.pair("general.alignment", "str", "32"))),
    ("duplicate-metadata", head(0, 2, make.pair("k", "u32", 1) * 2)),
    ("tensor-bounds", head(1, 0, entry("t", [], count=1_000_000))),
    ("tensor-bounds", head(1, 0, entry("t", [1] * 5))),
    ("tensor-bounds", head(1, 0, entry("t", [2**63, 2]))),
    ("tensor-bounds", head(1, 0, entry("t", [2**32, 2**32]))),
    ("tensor-bounds", head(1, 0, entry("t", [0]))),
    ("tensor-bounds", head(1, 0, entry("t", [33], dtype=make.Q8_0))),
    ("tensor-bounds", head(1, 0, entry("t", [1], offset=1))),
    ("header-value", head(1, 0, entry("t", [1], dtype=77))),
    ("header-bounds", head(1, 0, entry("t" * 65, [1]))),
    ("truncated", head(1, 0, entry("t", [1000]))),
    ("truncated", head(1, 0, entry("t", [1], offset=2**63))),
    ("duplicate-tensor", head(2, 0, entry("t", [8]) + entry("t", [8], offset=32))),
    ("tensor-overlap", head(2, 0, entry("t", [9]) + entry("u", [8], offset=32))),
    ("tensor-overlap", head(2, 0, entry("t", [8]) + entry("u", [8]))),
]


@pytest.mark.parametrize(("code", "data"), HOSTILE)
def test_a_header_that_does_not_add_up_is_refused_and_named(tmp_path, code, data):
    path = tmp_path / "m.gguf"
    path.write_bytes(data)
    with pytest.raises(TargetRefused) as refused:
        read_header(path)
    assert refused.value.code == code, refused.value.message
    assert str(path) in refused.value.message


# faults.md 76: a file short by one byte is not a file with uninitialised weights.
def test_a_file_short_by_one_byte_is_refused(tmp_path):
    path = good(tmp_path / "m.gguf")
    last = max(t.offset + t.size_bytes for t in read_header(path).tensors)
    os.truncate(path, last)
    read_header(path)
    os.truncate(path, last - 1)
    with pytest.raises(TargetRefused, match="'c' ends at") as refused:
        read_header(path)
    assert refused.value.code == "truncated"


@given(st.data())
@settings(
    deadline=None, max_examples=200, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
def test_no_bytes_crash_the_reader(tmp_path, data):
    path = good(tmp_path / "base.gguf")
    found = bytearray(path.read_bytes())
    for _ in range(data.draw(st.integers(1, 4))):
        found[data.draw(st.integers(0, 400))] = data.draw(st.integers(0, 255))
    cut = data.draw(st.integers(0, len(found)))
    path.write_bytes(bytes(found[:cut]) if data.draw(st.booleans()) else bytes(found))
    with contextlib.suppress(TargetRefused):
        read_header(path)


@pytest.mark.parametrize("kind", ["absent", "folder", "pipe"])
def test_what_is_no_file_is_refused_and_never_waited_for(tmp_path, kind):
    path = tmp_path / "m.gguf"
    if kind == "folder":
        path.mkdir()
    elif kind == "pipe":
        os.mkfifo(path)
    with pytest.raises(TargetRefused) as refused:
        read_header(path)
    assert refused.value.code == "unreadable"


def test_without_the_gguf_library_the_extra_is_named(tmp_path, monkeypatch):
    def absent(name: str) -> Any:
        raise ModuleNotFoundError(f"No module named {name!r}")

    path = good(tmp_path / "m.gguf")
    monkeypatch.setattr(module.importlib, "import_module", absent)
    with pytest.raises(TargetRefused, match=r"pip install 'pytest-meshnet\[torch\]'") as refused:
        read_header(path)
    assert refused.value.code == "gguf-missing"
