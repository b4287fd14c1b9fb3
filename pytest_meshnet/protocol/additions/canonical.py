"""The digest convention of the documents, for the documents that the protocol itself defines.

Python's own JSON and not RFC 8785: the published digests depend on it. The room of identities has
an implementation of its own, strict about documents from strangers; tests hold the two equal.
"""

from __future__ import annotations

import hashlib
import json


def canonical_digest(document: object) -> str:
    """SHA-256 (hex) of the canonical JSON of a document: keys sorted, no white space, UTF-8."""
    text = json.dumps(document, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return hashlib.sha256(text.encode()).hexdigest()
