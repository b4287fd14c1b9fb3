"""Artifacts of several parts: found at any depth, proven complete, listed as one."""

import itertools
import shutil
from pathlib import Path

import pytest

from pytest_meshnet.target.artifact.inventory import read_inventory
from pytest_meshnet.target.artifact.parts import find_artifacts
from pytest_meshnet.target.fields import TargetRefused
from pytest_meshnet.tests.target import gguf_files as make

pytest.importorskip("gguf", reason="needs gguf: pip install gguf")

PAIRS, TENSORS = make.model_pairs(4), make.model_tensors(4)


def whole(folder: Path, name: str = "toy.gguf") -> Path:
    return make.write(folder / name, PAIRS, TENSORS)


def parts(folder: Path, count: int = 3, stem: str = "toy-Q8_0") -> list[Path]:
    return make.write_parts(folder, stem, PAIRS, TENSORS, count)


def read_all(paths: tuple[Path, ...]) -> None:
    for found in find_artifacts(paths):
        read_inventory(found)


def refusal(*paths: Path) -> TargetRefused:
    with pytest.raises(TargetRefused) as refused:
        read_all(paths)
    return refused.value


@pytest.mark.parametrize("count", [1, 2, 3, 7])
def test_parts_give_the_inventory_of_the_whole(tmp_path, count):
    single = read_inventory([whole(tmp_path)])
    (found,) = find_artifacts([tmp_path / "parts", *parts(tmp_path / "parts", count)])
    split = read_inventory(found)
    assert split.stem == "toy-Q8_0"
    assert split.digest() == single.digest()
    assert [t.name for t in split.tensors] == [t.name for t in single.tensors]
    assert (split.backbone_layers, split.architecture) == (4, "toy")
    # faults.md 30: the size is the sum of all parts.
    assert split.total_bytes == sum(path.stat().st_size for path in found)
    assert [tensor.part for tensor in split.tensors] == sorted(t.part for t in split.tensors)
    assert {tensor.part for tensor in split.tensors} == set(range(1, count + 1))


@pytest.mark.parametrize("named", [0, 1, 2])
def test_any_part_names_the_whole_artifact(tmp_path, named):
    paths = parts(tmp_path)
    parts(tmp_path, 3, "another")
    parts(tmp_path, 2)
    assert find_artifacts([paths[named]]) == [tuple(paths)]


def test_artifacts_are_found_at_any_depth_and_grouped_by_stem_and_folder(tmp_path):
    """Two quantizations side by side, the same stem in two folders, a whole file beside parts."""
    expected = {
        tuple(parts(tmp_path, 2, "toy-Q8_0")),
        tuple(parts(tmp_path, 3, "toy-Q4_K")),
        tuple(parts(tmp_path / "a" / "b" / "c", 2, "toy-Q8_0")),
        (whole(tmp_path / "a", "toy-Q8_0.gguf"),),
    }
    assert set(find_artifacts([tmp_path])) == expected


# faults.md 28: a folder or a derived file with a part's name is no part.
def test_a_folder_named_as_a_part_does_not_make_its_files_parts(tmp_path):
    path = whole(tmp_path / "m-00001-of-00013", "shard-0.gguf")
    assert find_artifacts([tmp_path]) == [(path,)]


def test_a_derived_file_that_keeps_a_parts_name_is_refused_and_not_taken_for_part_one(tmp_path):
    path = whole(tmp_path, "m-00001-of-00013.gguf")
    found = refusal(path)
    assert found.code == "part-missing"
    assert "1 of 13 parts" in found.message
    lone = whole(tmp_path / "lone", "m-00001-of-00001.gguf")
    assert len(read_inventory([lone]).tensors) == len(TENSORS)


def test_a_missing_part_is_named(tmp_path):
    paths = parts(tmp_path)
    paths[1].unlink()
    found = refusal(tmp_path)
    assert found.code == "part-missing"
    assert "00002" in found.message


def test_a_part_beyond_the_count_is_refused(tmp_path):
    paths = parts(tmp_path)
    shutil.copy(paths[0], tmp_path / "toy-Q8_0-00000-of-00003.gguf")
    assert refusal(tmp_path).code == "part-count"


# faults.md 14: the glob that made part 2 an output left 0 bytes there.
def test_an_emptied_part_is_named(tmp_path):
    paths = parts(tmp_path)
    paths[1].write_bytes(b"")
    found = refusal(tmp_path)
    assert found.code == "empty-part"
    assert str(paths[1]) in found.message


# faults.md 15: parts joined with cat, or renamed, still say how many they were.
@pytest.mark.parametrize("joined", [False, True])
def test_a_part_under_another_name_says_that_it_is_one(tmp_path, joined):
    paths = parts(tmp_path / "parts")
    data = [path.read_bytes() for path in paths]
    (tmp_path / "joined.gguf").write_bytes(b"".join(data) if joined else data[0])
    found = refusal(tmp_path / "joined.gguf")
    assert found.code == "split-count"
    assert "split.count 3" in found.message
    assert "never joined" in found.message


def rewritten(folder: Path, number: int, **changes: int) -> list[Path]:
    """Write three parts of which one says something else."""
    paths = parts(folder)
    said = {"no": number, "count": 3, "total": len(TENSORS), **changes}
    share = TENSORS[number * len(TENSORS) // 3 : (number + 1) * len(TENSORS) // 3]
    keys = make.split_pairs(said["no"], said["count"], said["total"])
    make.write(paths[number], [*(PAIRS if number == 0 else ()), *keys], share)
    return paths


# faults.md 73: split.no counts from 0 and names from 1; the tensor count is that of all parts.
@pytest.mark.parametrize("number", [0, 1, 2])
@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"no": 3}, "split-no"),
        ({"count": 2}, "split-count"),
        ({"count": 4}, "split-count"),
        ({"total": len(TENSORS) - 1}, "split-tensors"),
        ({"total": len(TENSORS) // 3}, "split-tensors"),
    ],
)
def test_a_part_that_contradicts_the_set_is_refused(tmp_path, number, changes, code):
    rewritten(tmp_path, number, **changes)
    assert refusal(tmp_path).code == code


def test_a_part_numbered_from_one_is_refused(tmp_path):
    rewritten(tmp_path, 1, no=2)
    found = refusal(tmp_path)
    assert found.code == "split-no"
    assert "expected 1" in found.message


@pytest.mark.parametrize(
    "extra",
    [
        make.pair("general.architecture", "str", "toy"),
        make.pair("toy.block_count", "u32", 4),
    ],
)
def test_a_later_part_with_the_models_metadata_is_another_artifact(tmp_path, extra):
    paths = parts(tmp_path)
    keys = [extra, *make.split_pairs(1, 3, len(TENSORS))]
    make.write(paths[1], keys, TENSORS[len(TENSORS) // 3 : 2 * len(TENSORS) // 3])
    assert refusal(tmp_path).code == "split-metadata"


def test_a_part_without_split_keys_is_refused(tmp_path):
    paths = parts(tmp_path)
    make.write(paths[1], [], TENSORS[len(TENSORS) // 3 : 2 * len(TENSORS) // 3])
    assert refusal(tmp_path).code == "split-count"


def test_parts_given_in_another_order_are_refused(tmp_path):
    paths = parts(tmp_path)
    for order in itertools.permutations(paths):
        if list(order) != paths:
            with pytest.raises(TargetRefused) as refused:
                read_inventory(order)
            assert refused.value.code in {"part-order", "split-no"}
    with pytest.raises(TargetRefused) as refused:
        read_inventory([paths[0], whole(tmp_path, "x.gguf")])
    assert refused.value.code in {"part-order", "split-count"}


def test_parts_whose_names_contradict_their_numbers_are_refused(tmp_path):
    """Names swapped, and the files given in the order that split.no wants."""
    paths = parts(tmp_path)
    spare = tmp_path / "spare"
    paths[0].rename(spare)
    paths[1].rename(paths[0])
    spare.rename(paths[1])
    with pytest.raises(TargetRefused) as refused:
        read_inventory([paths[1], paths[0], paths[2]])
    assert refused.value.code == "part-order"


def test_parts_under_names_of_their_own_are_refused(tmp_path):
    named = [path.rename(tmp_path / f"{i}.gguf") for i, path in enumerate(parts(tmp_path))]
    with pytest.raises(TargetRefused) as refused:
        read_inventory(named)
    assert refused.value.code == "part-order"


def test_a_tensor_in_two_parts_is_refused(tmp_path):
    tensors = [*TENSORS[:-1], make.Tensor(TENSORS[0].name)]
    make.write_parts(tmp_path, "toy", PAIRS, tensors, 2)
    found = refusal(tmp_path)
    assert found.code == "duplicate-tensor"
    assert TENSORS[0].name in found.message


@pytest.mark.parametrize(
    ("pairs", "tensors", "code"),
    [
        (make.model_pairs(3), TENSORS, "layer-range"),
        (make.model_pairs(5), TENSORS, "layer-missing"),
        (PAIRS, [t for t in TENSORS if not t.name.startswith("blk.2.")], "layer-missing"),
        ([*PAIRS, make.pair("toy.nextn_predict_layers", "u32", 4)], TENSORS, "nextn-count"),
        ([*PAIRS, make.pair("toy.nextn_predict_layers", "str", "1")], TENSORS, "nextn-count"),
        (
            [PAIRS[0], make.pair("toy.block_count", "u32", 0)],
            TENSORS,
            "layer-range",
        ),
        ([make.pair("general.architecture", "u32", 3)], TENSORS, "header-value"),
    ],
)
def test_layers_and_tensors_that_contradict_each_other_are_refused(tmp_path, pairs, tensors, code):
    assert refusal(make.write(tmp_path / "m.gguf", pairs, tensors)).code == code


def test_a_model_of_one_layer_is_a_model(tmp_path):
    path = make.write(tmp_path / "m.gguf", make.model_pairs(1), make.model_tensors(1))
    assert read_inventory([path]).backbone_layers == 1


def test_the_nextn_layer_is_counted_apart(tmp_path):
    tensors = make.model_tensors(4, nextn=1)
    path = make.write(tmp_path / "m.gguf", make.model_pairs(4, nextn=1), tensors)
    found = read_inventory([path])
    assert (found.block_count, found.backbone_layers, found.nextn_layers) == (5, 4, 1)
    assert found.to_dict()["layer_count"] == 4


@pytest.mark.parametrize(
    "pairs",
    [
        [make.pair("general.architecture", "str", "toy")],
        [make.pair("None.block_count", "u32", 4)],
    ],
)
def test_a_layer_count_is_taken_from_the_architecture_or_not_at_all(tmp_path, pairs):
    found = read_inventory([make.write(tmp_path / "m.gguf", pairs, TENSORS)])
    assert (found.block_count, found.nextn_layers) == (None, 0)


# faults.md 182: what the file does not say stays unknown; bytes are counted all the same.
def test_an_unknown_layer_count_stays_unknown(tmp_path):
    path = make.write(tmp_path / "m.gguf", [], TENSORS)
    found = read_inventory([path])
    assert found.to_dict()["layer_count"] is None
    assert found.to_dict()["architecture"] is None
    assert found.tensor_bytes == sum(tensor.size for tensor in TENSORS)
    with pytest.raises(TargetRefused) as refused:
        _ = found.backbone_layers
    assert refused.value.code == "layers-unknown"


# faults.md 31: identity is content: name, place and time change nothing, another tensor does.
def test_an_inventory_digest_depends_on_tensors_and_on_nothing_else(tmp_path):
    first = read_inventory([whole(tmp_path, "one.gguf")])
    second = read_inventory([whole(tmp_path / "else", "two.gguf")])
    assert first.digest() == second.digest()
    other = [*TENSORS[:-1], make.Tensor("output.weight", (64, 101), make.F16)]
    third = read_inventory([make.write(tmp_path / "three.gguf", PAIRS, other)])
    assert third.digest() != first.digest()


@pytest.mark.parametrize("kind", ["absent", "no-gguf", "other-file"])
def test_paths_without_an_artifact_are_refused(tmp_path, kind):
    (tmp_path / "notes.txt").write_text("hello, this is no model")
    path = {"absent": "absent", "no-gguf": "", "other-file": "notes.txt"}[kind]
    expected = {"absent": "not-found", "no-gguf": "no-artifact", "other-file": "not-gguf"}[kind]
    assert refusal(tmp_path / path).code == expected
