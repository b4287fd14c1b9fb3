"""The target manifest: which files, at which revisions, the locked target consists of."""

from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Self

from pytest_meshnet.target.fields import Fields, TargetRefused

QUANTIZATION = "UD-IQ1_S"
SHARD_COUNT = 6
GIB = 2**30
GB = 10**9
_HUB = "https://huggingface.co"


@dataclass(frozen=True, slots=True)
class Repository:
    """One hub repository at one commit."""

    repo_id: str
    revision: str


@dataclass(frozen=True, slots=True)
class ManifestShard:
    """One file of the artifact: 1-based index, path inside the repository, size, SHA-256."""

    index: int
    path: str
    size_bytes: int
    sha256: str

    @property
    def name(self) -> str:
        """The file's own name, by which a local copy is found."""
        return PurePosixPath(self.path).name


@dataclass(frozen=True, slots=True)
class Fallback:
    """The diagnostic fallback: named by the manifest, never a substitute for the target."""

    quantization: str
    shard_count: int
    total_bytes: int
    policy: str


@dataclass(frozen=True, slots=True)
class Storage:
    """Where artifacts may not lie: below any of these absolute prefixes, links resolved."""

    mounted_storage_only: bool
    forbidden_path_prefixes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Manifest:
    """The parsed manifest. `shards` are ordered by index and sum to `total_bytes`."""

    source: Repository
    artifact: Repository
    quantization: str
    shards: tuple[ManifestShard, ...]
    total_bytes: int
    fallback: Fallback
    storage: Storage

    @classmethod
    def from_dict(cls, document: object) -> Self:
        """Parse a manifest, schema 1.

        Raises TargetRefused with a code for each way it cannot be this target: schema-version,
        quantization, revision-format, shard-count, shard-index, duplicate-digest, shard-path,
        size-sum, size-label, moving-url, storage-policy, and the codes of `Fields`.
        """
        top = Fields("manifest", document)
        top.exactly("schema_version", 1, "schema-version")
        top.exactly("manifest_version", 1, "schema-version")
        top.text("observed_at")
        top.text("observed_by")
        top.exactly("alpha_quantization", QUANTIZATION, "quantization")
        model = top.object("source_model")
        source = _read_repository(model, "weight_license", "code_documentation_license")
        model.close()
        gguf = top.object("gguf_artifact")
        artifact = _read_repository(gguf, "license")
        gguf.exactly("quantization", QUANTIZATION, "quantization")
        shards = _read_shards(gguf, artifact)
        total = _read_total(gguf, sum(shard.size_bytes for shard in shards))
        gguf.close()
        manifest = cls(
            source=source,
            artifact=artifact,
            quantization=QUANTIZATION,
            shards=shards,
            total_bytes=total,
            fallback=_read_fallback(top.object("diagnostic_fallback")),
            storage=_read_storage(top.object("storage")),
        )
        top.close()
        return manifest


def _read_repository(fields: Fields, *licenses: str) -> Repository:
    found = Repository(fields.text("repo_id"), fields.revision("revision"))
    for key in ("last_modified", *licenses):
        fields.text(key)
    expected = {
        "url": f"{_HUB}/{found.repo_id}",
        "revision_url": f"{_HUB}/{found.repo_id}/tree/{found.revision}",
        "api_url": f"{_HUB}/api/models/{found.repo_id}",
    }
    for key, url in expected.items():
        fields.exactly(key, url, "moving-url")
    return found


def _read_shards(gguf: Fields, artifact: Repository) -> tuple[ManifestShard, ...]:
    count = gguf.integer("shard_count")
    items = gguf.list("shards")
    if not count == len(items) == SHARD_COUNT:
        raise TargetRefused(
            "shard-count",
            f"the manifest counts {count} shards and lists {len(items)}, expected {SHARD_COUNT}",
        )
    shards = [_read_shard(position, item, artifact) for position, item in enumerate(items)]
    indices = sorted(shard.index for shard in shards)
    if indices != list(range(1, SHARD_COUNT + 1)):
        raise TargetRefused(
            "shard-index", f"the shard indices are {indices}, expected each of 1..{SHARD_COUNT}"
        )
    stems = {shard.name[: -len("-00000-of-00000.gguf")] for shard in shards}
    if len(stems) > 1:
        raise TargetRefused("shard-path", f"the shards have different stems: {sorted(stems)}")
    digests = {shard.sha256 for shard in shards}
    if len(digests) < len(shards):
        raise TargetRefused("duplicate-digest", "two shards have the same SHA-256: one is a copy")
    return tuple(sorted(shards, key=lambda shard: shard.index))


def _read_shard(position: int, item: object, artifact: Repository) -> ManifestShard:
    fields = Fields(f"manifest.gguf_artifact.shards[{position}]", item)
    shard = ManifestShard(
        index=fields.integer("index", minimum=1),
        path=fields.text("path"),
        size_bytes=fields.integer("size_bytes", minimum=1),
        sha256=fields.digest("sha256"),
    )
    folder, suffix = f"{QUANTIZATION}/", f"-{shard.index:05d}-of-{SHARD_COUNT:05d}.gguf"
    if shard.path != folder + shard.name or not shard.name.endswith(suffix):
        raise TargetRefused(
            "shard-path",
            f"shard {shard.index} has the path {shard.path!r}, expected {folder}*{suffix}",
        )
    url = f"{_HUB}/{artifact.repo_id}/resolve/{artifact.revision}/{shard.path}"
    fields.exactly("url", url, "moving-url")
    fields.close()
    return shard


def _read_total(fields: Fields, found: int | None) -> int:
    total = fields.integer("total_bytes", minimum=1)
    if found is not None and total != found:
        raise TargetRefused(
            "size-sum", f"the shards sum to {found} bytes, total_bytes says {total}: correct one"
        )
    for key, unit in (("total_gib", GIB), ("total_gb", GB)):
        label = fields.number(key)
        if label != round(total / unit, 3):
            raise TargetRefused(
                "size-label",
                f"{fields.where}.{key} is {label}, {total} bytes are {round(total / unit, 3)}",
            )
    return total


def _read_fallback(fields: Fields) -> Fallback:
    fallback = Fallback(
        quantization=fields.text("quantization"),
        shard_count=fields.integer("shard_count", minimum=1),
        total_bytes=_read_total(fields, None),
        policy=fields.text("policy"),
    )
    fields.close()
    if fallback.quantization == QUANTIZATION:
        raise TargetRefused(
            "quantization", f"the diagnostic fallback is {QUANTIZATION} itself: it is another one"
        )
    return fallback


def _read_storage(fields: Fields) -> Storage:
    fields.exactly("mounted_storage_only", True, "storage-policy")
    prefixes = fields.texts("forbidden_path_prefixes")
    fields.text("note")
    fields.close()
    if not prefixes or not all(PurePosixPath(prefix).is_absolute() for prefix in prefixes):
        raise TargetRefused(
            "storage-policy", f"forbidden_path_prefixes is {prefixes}, expected absolute paths"
        )
    return Storage(True, prefixes)
