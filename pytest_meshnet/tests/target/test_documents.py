"""The three pinned documents: read as published, and every edit refused with its own reason."""

import hashlib
import json
from typing import Any

import pytest

from pytest_meshnet import layout
from pytest_meshnet.identity.canonical import digest
from pytest_meshnet.target.architecture import Snapshot
from pytest_meshnet.target.contract import (
    CONTRACT_SHA256,
    SECTIONS,
    Contract,
)
from pytest_meshnet.target.documents import FILES, MANIFEST_SHA256, SNAPSHOT_SHA256, LockedTarget
from pytest_meshnet.target.fields import TargetRefused
from pytest_meshnet.target.manifest import Manifest
from pytest_meshnet.tests.target import samples

TARGET = LockedTarget.load()


def test_the_fixtures_are_the_published_files_byte_for_byte():
    folder = layout.folder("fixtures") / "target"
    listed = dict(
        reversed(line.split("  ")) for line in (folder / "SHA256SUMS").read_text().splitlines()
    )
    assert listed.keys() == {path.name for path in folder.glob("*.json")}
    for name, sha256 in listed.items():
        assert hashlib.sha256((folder / name).read_bytes()).hexdigest() == sha256, name


def test_the_digests_pinned_in_code_are_the_published_ones():
    published = samples.published_plan()
    assert published["manifest_sha256"] == MANIFEST_SHA256
    assert published["architecture_snapshot_sha256"] == SNAPSHOT_SHA256
    assert published["alpha_contract_sha256"] == CONTRACT_SHA256
    found = samples.documents()
    assert digest(found["manifest"]) == MANIFEST_SHA256
    assert digest(found["snapshot"]) == SNAPSHOT_SHA256
    assert found["contract"].pop("contract_sha256") == digest(found["contract"]) == CONTRACT_SHA256


def test_the_indexer_roles_by_rule_have_the_published_digest():
    roles = TARGET.snapshot.architecture.indexer_roles()
    published = samples.documents()["snapshot"]["architecture"]
    assert digest(list(roles)) == published["indexer_types_sha256"]
    assert roles.count("full") == published["indexer_full_layers"]
    assert roles.count("shared") == published["indexer_shared_layers"]
    assert [i for i, role in enumerate(roles) if role == "full"][:6] == [0, 1, 2, 6, 10, 14]


def test_roles_that_the_rule_does_not_give_are_counted_in_the_refusal():
    found = samples.edited(samples.documents(), (*ARCH, "indexer_full_layers"), 22)
    found = samples.edited(found, (*ARCH, "indexer_shared_layers"), 56)
    code, message = code_of(found)
    assert code == "indexer-roles"
    assert "21 Full layers, the snapshot says 22" in message


@pytest.mark.parametrize("layer", [-1, 78, True])
def test_the_nextn_layer_and_other_strangers_have_no_indexer_role(layer):
    with pytest.raises(TargetRefused) as refused:
        TARGET.snapshot.architecture.indexer_role(layer)
    assert refused.value.code == "layer"


def test_the_nextn_layer_is_counted_apart():
    architecture = TARGET.snapshot.architecture
    published = samples.documents()["snapshot"]["architecture"]
    assert architecture.backbone_layers == published["num_hidden_layers"]
    assert architecture.nextn_layers == published["num_nextn_predict_layers"]
    total = architecture.backbone_layers + architecture.nextn_layers
    assert total == published["total_artifact_layers"]


M, S, C = "manifest", "snapshot", "contract"
SHARDS = (M, "gguf_artifact", "shards")
ARCH = (S, "architecture")
EFFORT = (S, "reasoning_effort")

# (code, document part, new value). Every kind of edit that a forger would try.
STRUCTURAL: list[tuple[str, tuple[Any, ...], Any]] = [
    ("schema-version", (M, "schema_version"), 2),
    ("schema-version", (M, "schema_version"), True),
    ("schema-version", (M, "manifest_version"), 2),
    ("schema-version", (S, "schema_version"), "1"),
    ("schema-version", (C, "schema_version"), 1.0),
    ("schema-version", (C, "contract_version"), 2),
    ("quantization", (M, "alpha_quantization"), "UD-IQ1_M"),
    ("quantization", (M, "gguf_artifact", "quantization"), "ud-iq1_s"),
    ("quantization", (M, "diagnostic_fallback", "quantization"), "UD-IQ1_S"),
    ("shard-count", (M, "gguf_artifact", "shard_count"), 5),
    ("shard-count", SHARDS, lambda shards: shards[:5]),
    ("shard-count", SHARDS, lambda shards: [*shards, shards[0]]),
    ("shard-path", (*SHARDS, 5, "index"), 7),
    ("shard-index", SHARDS, lambda shards: [shards[0], *shards[:5]]),
    ("out-of-range", (*SHARDS, 0, "index"), 0),
    ("wrong-type", (*SHARDS, 0, "index"), True),
    (
        "duplicate-digest",
        (*SHARDS, 1, "sha256"),
        "46b6148389219ae45167cb8124fbb18ef7d432daf619b4faf9e06ea80d3f4777",
    ),
    ("digest-format", (*SHARDS, 1, "sha256"), "F" * 64),
    ("digest-format", (*SHARDS, 1, "sha256"), "f" * 63),
    ("out-of-range", (*SHARDS, 1, "size_bytes"), 0),
    ("out-of-range", (*SHARDS, 1, "size_bytes"), -1),
    ("wrong-type", (*SHARDS, 1, "size_bytes"), True),
    ("wrong-type", (*SHARDS, 1, "size_bytes"), 9423744.0),
    ("size-sum", (*SHARDS, 1, "size_bytes"), lambda size: size + 1),
    ("size-sum", (M, "gguf_artifact", "total_bytes"), lambda size: size - 1),
    ("size-label", (M, "gguf_artifact", "total_gib"), 201.833),
    ("size-label", (M, "gguf_artifact", "total_gb"), 216.7),
    ("size-label", (M, "diagnostic_fallback", "total_bytes"), lambda size: size + 10**7),
    ("shard-path", (*SHARDS, 1, "path"), "UD-IQ1_M/GLM-5.2-UD-IQ1_S-00002-of-00006.gguf"),
    ("revision-format", (M, "source_model", "revision"), "main"),
    ("revision-format", (M, "gguf_artifact", "revision"), "abc55e7"),
    ("revision-format", (S, "source_revision"), "b4734de4facf877f85769a911abafc5283eab3d"),
    ("revision-format", (C, "target", "gguf_revision"), "HEAD"),
    (
        "moving-url",
        (M, "gguf_artifact", "revision_url"),
        lambda url: url.replace("abc55e7", "main"),
    ),
    ("moving-url", (M, "source_model", "url"), "https://example.org/GLM"),
    ("moving-url", (*SHARDS, 1, "url"), lambda url: url.replace("resolve/abc55e7", "resolve/main")),
    ("moving-url", (S, "source_files", 0, "url"), lambda url: url.replace("b4734de", "main")),
    ("storage-policy", (M, "storage", "mounted_storage_only"), False),
    ("storage-policy", (M, "storage", "forbidden_path_prefixes"), []),
    ("storage-policy", (M, "storage", "forbidden_path_prefixes"), ["home"]),
    ("layer-sum", (*ARCH, "total_artifact_layers"), 78),
    ("layer-sum", (*ARCH, "num_nextn_predict_layers"), 2),
    ("layer-sum", (*ARCH, "num_hidden_layers"), 79),
    ("expert-layers", (*ARCH, "dense_layers"), 4),
    ("expert-layers", (*ARCH, "sparse_moe_layers"), 76),
    ("expert-layers", (*ARCH, "first_k_dense_replace"), 2),
    ("indexer-roles", (*ARCH, "indexer_full_layers"), 22),
    ("indexer-roles", (*ARCH, "indexer_shared_layers"), 56),
    ("indexer-roles", (*ARCH, "index_topk_freq"), 3),
    ("indexer-roles", (*ARCH, "index_skip_topk_offset"), 2),
    ("indexer-roles", (*ARCH, "indexer_types_sha256"), "0" * 64),
    ("mla-width", (*ARCH, "kv_lora_rank"), 513),
    ("mla-width", (*ARCH, "mla_cached_values_per_token_per_layer"), 577),
    ("head-width", (*ARCH, "qk_nope_head_dim"), 193),
    ("wrong-type", (*ARCH, "hidden_size"), True),
    ("wrong-type", (*ARCH, "tie_word_embeddings"), 0),
    ("out-of-range", (*ARCH, "index_topk"), 0),
    ("source-files", (S, "source_files"), lambda files: files[1:]),
    ("source-files", (S, "source_files"), lambda files: [files[0], *files[2:]]),
    ("source-files", (S, "source_files"), lambda files: [*files, files[3]]),
    ("digest-format", (S, "source_files", 0, "sha256"), "abc"),
    ("reasoning-effort", (*EFFORT, "alpha_mode"), "high"),
    ("reasoning-effort", (*EFFORT, "default_is_max"), False),
    ("reasoning-effort", (*EFFORT, "rendered_marker"), "<|system|>Reasoning Effort: High"),
    ("reasoning-effort", (*EFFORT, "suppressed_when"), "never"),
    ("not-locked", (C, "locked_before_target_execution"), False),
    ("not-locked", (C, "locked_before_target_execution"), 1),
    ("not-locked", (C, "locked_at"), "soon"),
    ("verdicts", (C, "verdicts"), ["alpha", "stop", "maybe"]),
    ("verdicts", (C, "verdicts"), ["stop", "alpha"]),
    ("sections", (C, "performance"), []),
    ("threshold-type", (C, "performance", "min_median_decode_tokens_per_second"), None),
    ("threshold-type", (C, "performance", "min_median_decode_tokens_per_second"), [0.5]),
    ("shard-path", (*SHARDS, 0, "index"), 2),
    ("digest-format", (C, "contract_sha256"), "x" * 64),
    ("unknown-field", (C, "seventh_section"), {"key": True}),
    ("unknown-field", (M, "comment"), "x"),
    ("unknown-field", (M, "source_model", "comment"), "x"),
    ("unknown-field", (M, "gguf_artifact", "comment"), "x"),
    ("unknown-field", (*SHARDS, 3, "comment"), "x"),
    ("unknown-field", (M, "diagnostic_fallback", "comment"), "x"),
    ("unknown-field", (M, "storage", "allowed_path_prefixes"), ["/home/me"]),
    ("unknown-field", (S, "comment"), "x"),
    ("unknown-field", (S, "source_files", 0, "comment"), "x"),
    ("unknown-field", (*EFFORT, "comment"), "x"),
    ("unknown-field", (C, "target", "comment"), "x"),
    ("unknown-field", (*ARCH, "num_layers"), 79),
    ("binding", (C, "target", "source_repo_id"), "zai-org/GLM-5.1"),
    ("binding", (C, "target", "source_revision"), "0" * 40),
    ("binding", (C, "target", "gguf_repo_id"), "else/GLM-5.2-GGUF"),
    ("binding", (C, "target", "gguf_revision"), "0" * 40),
    ("binding", (C, "target", "quantization"), "UD-IQ1_M"),
    ("binding", (C, "target", "shard_count"), 7),
    ("binding", (C, "target", "total_bytes"), lambda size: size + 1),
    ("binding", (C, "target", "reasoning_effort"), "high"),
    (
        "binding",
        (C, "semantic_correctness", "require_rendered_reasoning_effort_marker"),
        "Reasoning Effort: Max",
    ),
    ("binding", (C, "storage", "forbidden_path_prefixes"), ["/root"]),
]
REMOVED = [
    ("missing-field", (M, "storage")),
    ("missing-field", (*SHARDS, 0, "sha256")),
    ("missing-field", (*ARCH, "kv_lora_rank")),
    ("missing-field", (*EFFORT, "rendered_marker")),
    ("missing-field", (C, "contract_sha256")),
    ("missing-field", (C, "verdicts")),
    *(("sections", (C, name)) for name in SECTIONS),
]


def code_of(found: samples.Documents) -> tuple[str, str]:
    with pytest.raises(TargetRefused) as refused:
        LockedTarget.from_documents(**found)
    return refused.value.code, refused.value.message


@pytest.mark.parametrize("seal", ["as-is", "resealed"])
@pytest.mark.parametrize(("code", "path", "value"), STRUCTURAL)
def test_every_named_edit_is_refused_with_its_own_reason(code, path, value, seal):
    found = samples.edited(with_place(samples.documents(), path), path, value)
    if seal == "resealed" and path != (C, "contract_sha256"):
        found = samples.resealed(found)
        assert code_of(found)[0] == code
        return
    # Not sealed again, an edit of the contract's content breaks its seal before it can bind.
    assert code_of(found)[0] == ("seal-broken" if code == "binding" else code)


def with_place(found: samples.Documents, path: tuple[Any, ...]) -> samples.Documents:
    """Make a place for a key that the documents do not have."""
    place: Any = found
    for key in path[:-1]:
        place = place[key]
    if isinstance(place, dict):
        place.setdefault(path[-1], None)
    return found


@pytest.mark.parametrize("seal", ["as-is", "resealed"])
@pytest.mark.parametrize(("code", "path"), REMOVED)
def test_every_removed_part_is_refused_with_its_own_reason(code, path, seal):
    found = samples.removed(samples.documents(), path)
    if seal == "resealed" and path != (C, "contract_sha256"):
        found = samples.resealed(found)
    assert code_of(found)[0] == code


def test_edits_of_different_kinds_have_different_messages():
    messages: dict[str, str] = {}
    for code, path, value in STRUCTURAL:
        found = samples.edited(with_place(samples.documents(), path), path, value)
        if path != (C, "contract_sha256"):
            found = samples.resealed(found)
        found_code, message = code_of(found)
        assert found_code == code
        assert messages.setdefault(message, code) == code


@pytest.mark.parametrize(
    "path",
    [
        (C, "performance", "min_median_decode_tokens_per_second"),
        (C, "identity_and_fit", "min_node_reserve_gib"),
        (C, "semantic_correctness", "min_greedy_token_agreement"),
        (C, "reliability", "consecutive_clean_cold_starts"),
        (C, "target_run", "context_tokens"),
    ],
)
def test_a_weakened_threshold_is_refused_broken_seal_or_sealed_again(path):
    weak = samples.edited(samples.documents(), path, lambda value: value / 2)
    assert code_of(weak)[0] == "seal-broken"
    code, message = code_of(samples.resealed(weak))
    assert code == "not-the-pinned-contract"
    assert CONTRACT_SHA256 in message


@pytest.mark.parametrize(
    ("path", "value", "code"),
    [
        ((M, "source_model", "weight_license"), "proprietary", "not-the-pinned-manifest"),
        ((M, "observed_at"), "2026-07-14", "not-the-pinned-manifest"),
        ((*ARCH, "hidden_size"), 6145, "not-the-pinned-snapshot"),
        ((*ARCH, "rope_theta"), 8000001, "not-the-pinned-snapshot"),
        ((S, "notes"), [], "not-the-pinned-snapshot"),
        ((C, "amendment_policy"), "anything goes", "not-the-pinned-contract"),
    ],
)
def test_what_no_rule_can_see_is_held_by_the_pins_in_code(path, value, code):
    found = samples.edited(samples.documents(), path, value)
    assert code_of(found)[0] == ("seal-broken" if path[0] == C else "binding")
    assert code_of(samples.resealed(found))[0] == code


@pytest.mark.parametrize(
    ("value", "code"),
    [("latest", "digest-format"), ("F" * 64, "digest-format"), ("0" * 64, "binding")],
)
@pytest.mark.parametrize("key", ["target_manifest_sha256", "architecture_snapshot_sha256"])
def test_a_contract_that_names_another_documents_digest_is_refused(key, value, code):
    contract = samples.edited(samples.documents(), (C, "target", key), value)[C]
    del contract["contract_sha256"]
    contract["contract_sha256"] = digest(contract)
    assert code_of({**samples.documents(), C: contract})[0] == code


def test_shards_of_two_different_files_are_no_artifact():
    """Path and URL of one shard agree with each other and not with the rest."""
    found = samples.documents()
    for key in ("path", "url"):
        edit = (*SHARDS, 1, key)
        found = samples.edited(found, edit, lambda text: text.replace("GLM-5.2-UD", "GLM-5.1-UD"))
    code, message = code_of(samples.resealed(found))
    assert code == "shard-path"
    assert "different stems" in message


def consistent_bigger_model(found: samples.Documents) -> samples.Documents:
    """One more byte in a shard, told everywhere it is told."""
    found = samples.edited(found, (*SHARDS, 1, "size_bytes"), lambda size: size + 1)
    found = samples.edited(found, (M, "gguf_artifact", "total_bytes"), lambda size: size + 1)
    return samples.edited(found, (C, "target", "total_bytes"), lambda size: size + 1)


def test_a_change_told_consistently_everywhere_still_meets_a_pin():
    found = samples.resealed(consistent_bigger_model(samples.documents()))
    assert code_of(found)[0] == "not-the-pinned-manifest"


NUMBERS = [
    path
    for name, document in samples.documents().items()
    for path, value in samples.leaves(document, (name,))
    if isinstance(value, int | float) and not isinstance(value, bool)
]


@pytest.mark.parametrize("path", NUMBERS)
def test_one_unit_in_any_number_is_refused_sealed_again_or_not(path):
    found = samples.edited(samples.documents(), path, lambda value: value + 1)
    code_of(found)
    code_of(samples.resealed(found))


@pytest.mark.parametrize("parse", [Manifest.from_dict, Snapshot.from_dict, Contract.from_dict])
@pytest.mark.parametrize("document", [None, [], "x", 1, {}])
def test_what_is_no_document_is_refused(parse, document):
    with pytest.raises(TargetRefused):
        parse(document)


def test_loading_from_a_folder_refuses_duplicate_keys_and_absent_files(tmp_path):
    for key, name in FILES.items():
        text = json.dumps(samples.documents()[key])
        if key == "contract":
            text = text.replace('"schema_version": 1', '"schema_version": 1, "schema_version": 1')
        (tmp_path / name).write_text(text)
    with pytest.raises(TargetRefused) as refused:
        LockedTarget.load(tmp_path)
    assert refused.value.code == "duplicate-key"
    (tmp_path / FILES["contract"]).unlink()
    with pytest.raises(TargetRefused) as refused:
        LockedTarget.load(tmp_path)
    assert refused.value.code == "unreadable"
