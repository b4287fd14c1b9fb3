"""DSSE envelopes: signed bytes that are verified as stored, never re-canonicalized.

Format: https://github.com/secure-systems-lab/dsse, version 1, with exactly one signature.
"""

from __future__ import annotations

import binascii
from base64 import b64decode, b64encode
from dataclasses import dataclass
from typing import Any

from pytest_meshnet.evidence import strict
from pytest_meshnet.evidence.signing.keys import PublicKey, SigningKey

PAYLOAD_TYPE = "application/vnd.in-toto+json"


@dataclass(frozen=True, slots=True)
class Envelope:
    """One signed payload. `keyid` is a hint for finding the key, never proof of it."""

    payload_type: str
    payload: bytes
    keyid: str
    signature: bytes

    def to_bytes(self) -> bytes:
        """Return the envelope as one line of JSON, the only form that `from_bytes` accepts."""
        document = {
            "payload": b64encode(self.payload).decode("ascii"),
            "payloadType": self.payload_type,
            "signatures": [{"keyid": self.keyid, "sig": b64encode(self.signature).decode("ascii")}],
        }
        return strict.dumps(document) + b"\n"

    @classmethod
    def from_bytes(cls, data: bytes) -> Envelope:
        """Read an envelope. Raises StrictError.

        Only the form that `to_bytes` writes is accepted: otherwise a byte outside the signed
        payload, in white space or in the last base64 digit, could change unnoticed.
        """
        raw = strict.decode(_Raw, strict.loads(data), "envelope")
        if len(raw.signatures) != 1:
            raise strict.StrictError(
                "envelope-signatures", f"{len(raw.signatures)} signatures: expected exactly one"
            )
        signature = raw.signatures[0]
        envelope = cls(
            raw.payloadType, _base64(raw.payload), signature.keyid, _base64(signature.sig)
        )
        if envelope.to_bytes() != data:
            raise strict.StrictError("envelope-form", "the envelope is not in its only form")
        return envelope

    def signed_by(self, key: PublicKey) -> bool:
        """Say whether the key signed exactly this payload under exactly this type."""
        return key.verifies(self.signature, pae(self.payload_type, self.payload))


@dataclass(frozen=True, slots=True)
class _Signature:
    keyid: str
    sig: str


@dataclass(frozen=True, slots=True)
class _Raw:
    payload: str
    payloadType: str
    signatures: tuple[_Signature, ...]


def pae(payload_type: str, payload: bytes) -> bytes:
    """Return the pre-authentication encoding: the bytes that are signed; lengths are in bytes."""
    kind = payload_type.encode()
    return b"DSSEv1 %d %s %d %s" % (len(kind), kind, len(payload), payload)


def sign(document: Any, key: SigningKey) -> Envelope:
    """Serialize a JSON document once and sign it. Raises StrictError for inexact values."""
    payload = strict.dumps(document)
    signature = key.sign(pae(PAYLOAD_TYPE, payload))
    return Envelope(PAYLOAD_TYPE, payload, key.public.keyid, signature)


def _base64(text: str) -> bytes:
    try:
        return b64decode(text, validate=True)
    except (binascii.Error, ValueError) as error:
        raise strict.StrictError("envelope-base64", f"not base64: {error}") from error
