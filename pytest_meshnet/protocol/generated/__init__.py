"""Stubs made from shard_runtime.proto by the pinned generator; see regenerate.py."""
