"""The architecture snapshot: what the pinned configuration says of layers, caches and effort."""

from dataclasses import dataclass
from typing import Self

from pytest_meshnet.identity.canonical import digest
from pytest_meshnet.target.fields import Fields, TargetRefused
from pytest_meshnet.target.manifest import Repository

_HUB = "https://huggingface.co"
_PINNED_FILES = ("config.json", "chat_template.jinja")
# Read as integers of at least one. What the planner needs is a field of Architecture; the rest is
# typed here and held by the document's digest.
_COUNTS = (
    "num_hidden_layers",
    "num_nextn_predict_layers",
    "total_artifact_layers",
    "first_k_dense_replace",
    "dense_layers",
    "sparse_moe_layers",
    "hidden_size",
    "intermediate_size",
    "moe_intermediate_size",
    "n_routed_experts",
    "num_experts_per_tok",
    "n_shared_experts",
    "num_attention_heads",
    "head_dim",
    "qk_nope_head_dim",
    "qk_rope_head_dim",
    "qk_head_dim",
    "v_head_dim",
    "kv_lora_rank",
    "q_lora_rank",
    "mla_cached_values_per_token_per_layer",
    "index_topk",
    "index_head_dim",
    "index_n_heads",
    "index_topk_freq",
    "index_skip_topk_offset",
    "indexer_full_layers",
    "indexer_shared_layers",
    "max_position_embeddings",
    "vocab_size",
    "rope_theta",
)
_TEXTS = ("model_type", "scoring_func", "topk_method", "dtype")
_BOOLEANS = ("norm_topk_prob", "index_share_for_mtp_iteration", "tie_word_embeddings")


@dataclass(frozen=True, slots=True)
class SourceFile:
    """One file of the source repository, pinned by size and SHA-256."""

    path: str
    size_bytes: int
    sha256: str


@dataclass(frozen=True, slots=True)
class Architecture:
    """What the planner needs. Layers and cached values are counts; `nextn_layers` stand apart."""

    backbone_layers: int
    nextn_layers: int
    dense_layers: int
    sparse_layers: int
    hidden_size: int
    vocab_size: int
    max_positions: int
    mla_values: int
    indexer_values: int
    index_topk: int
    index_offset: int
    index_frequency: int
    boundary_dtype: str

    def indexer_role(self, layer: int) -> str:
        """Return "full" for a layer that computes its own top-k, "shared" for one that reuses it.

        Layer i is Full iff max(i - (offset - 1), 0) mod frequency = 0, with offset 3 and frequency
        4 here, which gives the pinned list of roles. Raises TargetRefused("layer") outside the
        backbone.
        """
        if isinstance(layer, bool) or not 0 <= layer < self.backbone_layers:
            raise TargetRefused(
                "layer", f"layer {layer!r} is not in the backbone 0..{self.backbone_layers - 1}"
            )
        past = max(layer - (self.index_offset - 1), 0)
        return "full" if past % self.index_frequency == 0 else "shared"

    def indexer_roles(self) -> tuple[str, ...]:
        """Return the roles of the whole backbone, in layer order."""
        return tuple(self.indexer_role(layer) for layer in range(self.backbone_layers))

    @property
    def full_layers(self) -> int:
        """How many layers compute their own top-k."""
        return self.indexer_roles().count("full")

    def group_starts(self) -> frozenset[int]:
        """Return the layers that begin an IndexShare group: a cut there breaks none."""
        roles = self.indexer_roles()
        return frozenset(layer for layer, role in enumerate(roles) if role == "full")


@dataclass(frozen=True, slots=True)
class ReasoningEffort:
    """How the template renders the alpha mode; the request field alone proves nothing."""

    alpha_mode: str
    rendered_marker: str
    template_rule: str
    suppressed_when: str


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The parsed snapshot: source revision, its pinned files, architecture, reasoning effort."""

    source: Repository
    files: tuple[SourceFile, ...]
    architecture: Architecture
    reasoning_effort: ReasoningEffort

    @classmethod
    def from_dict(cls, document: object) -> Self:
        """Parse a snapshot, schema 1.

        Raises TargetRefused with a code for each contradiction: schema-version, source-files,
        moving-url, layer-sum, expert-layers, indexer-roles, mla-width, head-width, head-count,
        reasoning-effort, and the codes of `Fields`.
        """
        top = Fields("snapshot", document)
        top.exactly("schema_version", 1, "schema-version")
        top.text("observed_at")
        source = Repository(top.text("source_repo_id"), top.revision("source_revision"))
        snapshot = cls(
            source=source,
            files=_read_files(top.list("source_files"), source),
            architecture=_read_architecture(top.object("architecture")),
            reasoning_effort=_read_effort(top.object("reasoning_effort")),
        )
        top.texts("notes")
        top.close()
        return snapshot


def _read_files(items: tuple[object, ...], source: Repository) -> tuple[SourceFile, ...]:
    files = []
    for position, item in enumerate(items):
        fields = Fields(f"snapshot.source_files[{position}]", item)
        found = SourceFile(
            fields.text("path"), fields.integer("size_bytes", minimum=1), fields.digest("sha256")
        )
        url = f"{_HUB}/{source.repo_id}/resolve/{source.revision}/{found.path}"
        fields.exactly("url", url, "moving-url")
        fields.close()
        files.append(found)
    names = [found.path for found in files]
    for name in _PINNED_FILES:
        if name not in names:
            raise TargetRefused("source-files", f"{name} is not pinned by the snapshot: pin it")
    if len(set(names)) < len(names):
        raise TargetRefused("source-files", "a source file is listed twice: keep one")
    return tuple(files)


def _read_architecture(fields: Fields) -> Architecture:
    if len(fields.texts("architectures")) != 1:
        raise TargetRefused("wrong-type", f"{fields.where}.architectures must name exactly one")
    counts = {name: fields.integer(name, minimum=1) for name in _COUNTS}
    texts = {name: fields.text(name) for name in _TEXTS}
    for name in _BOOLEANS:
        fields.boolean(name)
    fields.number("routed_scaling_factor")
    roles_digest = fields.digest("indexer_types_sha256")
    fields.close()
    _check_sums(counts)
    architecture = Architecture(
        backbone_layers=counts["num_hidden_layers"],
        nextn_layers=counts["num_nextn_predict_layers"],
        dense_layers=counts["dense_layers"],
        sparse_layers=counts["sparse_moe_layers"],
        hidden_size=counts["hidden_size"],
        vocab_size=counts["vocab_size"],
        max_positions=counts["max_position_embeddings"],
        mla_values=counts["mla_cached_values_per_token_per_layer"],
        indexer_values=counts["index_head_dim"],
        index_topk=counts["index_topk"],
        index_offset=counts["index_skip_topk_offset"],
        index_frequency=counts["index_topk_freq"],
        boundary_dtype=texts["dtype"],
    )
    _check_roles(architecture, counts, roles_digest)
    return architecture


def _check_sums(counts: dict[str, int]) -> None:
    sums = (
        ("layer-sum", ("num_hidden_layers", "num_nextn_predict_layers"), "total_artifact_layers"),
        ("expert-layers", ("dense_layers", "sparse_moe_layers"), "num_hidden_layers"),
        ("expert-layers", ("first_k_dense_replace",), "dense_layers"),
        ("indexer-roles", ("indexer_full_layers", "indexer_shared_layers"), "num_hidden_layers"),
        (
            "mla-width",
            ("kv_lora_rank", "qk_rope_head_dim"),
            "mla_cached_values_per_token_per_layer",
        ),
        ("head-width", ("qk_nope_head_dim", "qk_rope_head_dim"), "qk_head_dim"),
    )
    for code, parts, whole in sums:
        found = sum(counts[part] for part in parts)
        if found != counts[whole]:
            terms = " + ".join(f"{part} {counts[part]}" for part in parts)
            raise TargetRefused(code, f"{terms} gives {found}, {whole} is {counts[whole]}")


def _check_roles(architecture: Architecture, counts: dict[str, int], expected: str) -> None:
    roles = architecture.indexer_roles()
    if roles.count("full") != counts["indexer_full_layers"]:
        raise TargetRefused(
            "indexer-roles",
            f"offset {architecture.index_offset} and frequency {architecture.index_frequency} give "
            f"{roles.count('full')} Full layers, the snapshot says {counts['indexer_full_layers']}",
        )
    found = digest(list(roles))
    if found != expected:
        raise TargetRefused(
            "indexer-roles", f"the roles by rule digest to {found}, the snapshot says {expected}"
        )


def _read_effort(fields: Fields) -> ReasoningEffort:
    fields.exactly("alpha_mode", "max", "reasoning-effort")
    fields.exactly("default_is_max", True, "reasoning-effort")
    effort = ReasoningEffort(
        alpha_mode="max",
        rendered_marker=fields.text("rendered_marker"),
        template_rule=fields.text("template_rule"),
        suppressed_when=fields.text("suppressed_when"),
    )
    fields.text("note")
    fields.close()
    if not effort.rendered_marker.endswith("Reasoning Effort: Max"):
        raise TargetRefused(
            "reasoning-effort",
            f"the rendered marker is {effort.rendered_marker!r}, expected it to end in "
            "'Reasoning Effort: Max'",
        )
    if effort.suppressed_when != "enable_thinking is defined and false":
        raise TargetRefused(
            "reasoning-effort",
            f"suppressed_when is {effort.suppressed_when!r}, expected enable_thinking alone",
        )
    return effort
