"""Comparing fingerprints on the wire: digests decide, labels are for people."""

from pytest_meshnet.protocol.generated import shard_runtime_pb2 as pb


def fingerprint_mismatch(served: pb.Fingerprint, offered: pb.Fingerprint) -> str | None:
    """Say how `offered` differs from what is served, or None when both digests are equal.

    A missing digest never equals anything. The text names the axis and not the values, which may
    come from a stranger.
    """
    if not offered.model_artifact_digest or not offered.runtime_recipe_digest:
        return "the offered fingerprint lacks a digest"
    if offered.model_artifact_digest != served.model_artifact_digest:
        return "the artifact digest differs from the one served"
    if offered.runtime_recipe_digest != served.runtime_recipe_digest:
        return "the recipe digest differs from the one served"
    return None
