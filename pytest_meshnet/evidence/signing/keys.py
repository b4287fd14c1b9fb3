"""Ed25519 keys: how one is made, what file is accepted, and the two names a public key has."""

from __future__ import annotations

import hashlib
import os
import stat
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

_KEY_FILE_LIMIT = 64 * 1024


class KeyRefused(ValueError):
    """A key file cannot be used; the message says what was found and what to do."""


@dataclass(frozen=True, slots=True)
class PublicKey:
    """An Ed25519 public key as its SubjectPublicKeyInfo in DER (44 bytes)."""

    spki: bytes

    @classmethod
    def from_spki(cls, spki: bytes) -> PublicKey:
        """Accept DER bytes that are exactly one Ed25519 key. Raises KeyRefused."""
        from cryptography.exceptions import UnsupportedAlgorithm
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
        from cryptography.hazmat.primitives.serialization import load_der_public_key

        try:
            key = load_der_public_key(spki)
        except (ValueError, UnsupportedAlgorithm) as error:
            raise KeyRefused("the public key is no SubjectPublicKeyInfo in DER") from error
        if not isinstance(key, Ed25519PublicKey):
            raise KeyRefused(f"the public key is {type(key).__name__}: expected Ed25519")
        return _public(key.public_bytes_raw())

    @classmethod
    def from_pem(cls, text: str) -> PublicKey:
        """Accept a PEM "PUBLIC KEY" block. Raises KeyRefused."""
        from cryptography.hazmat.primitives import serialization

        try:
            key = serialization.load_pem_public_key(text.encode())
        except ValueError as error:
            raise KeyRefused("no PEM public key: expected -----BEGIN PUBLIC KEY-----") from error
        return cls.from_spki(
            key.public_bytes(
                serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo
            )
        )

    @property
    def raw(self) -> bytes:
        """The 32 bytes of the key itself (RFC 8410)."""
        return self.spki[-32:]

    @property
    def keyid(self) -> str:
        """SHA-256 hex of the SPKI DER: the name of the key in envelopes and trust files."""
        return hashlib.sha256(self.spki).hexdigest()

    @property
    def raw_sha256(self) -> str:
        """SHA-256 hex of the raw 32 bytes: the form that published benchmark reports use."""
        return hashlib.sha256(self.raw).hexdigest()

    @property
    def pem(self) -> str:
        """The key as a PEM "PUBLIC KEY" block."""
        from base64 import b64encode

        body = b64encode(self.spki).decode("ascii")
        return f"-----BEGIN PUBLIC KEY-----\n{body}\n-----END PUBLIC KEY-----\n"

    def verifies(self, signature: bytes, data: bytes) -> bool:
        """Say whether the signature of `data` was made by this key."""
        from cryptography.exceptions import InvalidSignature
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

        try:
            Ed25519PublicKey.from_public_bytes(self.raw).verify(signature, data)
        except InvalidSignature:
            return False
        return True


@dataclass(frozen=True, slots=True)
class SigningKey:
    """A private key in memory. `ephemeral` marks one that nobody keeps."""

    private: Ed25519PrivateKey
    public: PublicKey
    ephemeral: bool

    @classmethod
    def load(cls, path: Path) -> SigningKey:
        """Read a PEM file: Ed25519, not encrypted, mode 0600. Raises KeyRefused."""
        from cryptography.exceptions import UnsupportedAlgorithm
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
        from cryptography.hazmat.primitives.serialization import load_pem_private_key

        pem = _read_private(path)
        try:
            key = load_pem_private_key(pem, password=None)
        except TypeError as error:
            raise KeyRefused(
                f"{path} is encrypted: decrypt it with `openssl pkey`, mode 0600"
            ) from error
        except (ValueError, UnsupportedAlgorithm) as error:
            raise KeyRefused(
                f"{path} is no PEM private key: make one with `pytest-meshnet keygen`"
            ) from error
        if not isinstance(key, Ed25519PrivateKey):
            kind = type(key).__name__.lstrip("_")
            raise KeyRefused(
                f"{path} holds {kind}: only Ed25519 signs, see `pytest-meshnet keygen`"
            )
        return cls(key, _public(key.public_key().public_bytes_raw()), ephemeral=False)

    @classmethod
    def make_ephemeral(cls) -> SigningKey:
        """Make a key for one run; what it signs proves only that one process made it all."""
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

        key = Ed25519PrivateKey.generate()
        return cls(key, _public(key.public_key().public_bytes_raw()), ephemeral=True)

    def sign(self, data: bytes) -> bytes:
        """Return the 64-byte Ed25519 signature of `data`."""
        return self.private.sign(data)


def keygen(path: Path) -> PublicKey:
    """Write a new private key, PEM (PKCS #8), mode 0600, and return its public half.

    Raises KeyRefused when the file exists: a key is never overwritten.
    """
    from cryptography.hazmat.primitives.serialization import (
        Encoding,
        NoEncryption,
        PrivateFormat,
    )

    made = SigningKey.make_ephemeral()
    pem = made.private.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError as error:
        raise KeyRefused(f"{path} exists and is never overwritten: choose another path") from error
    with open(descriptor, "wb") as stream:
        stream.write(pem)
        stream.flush()
        os.fsync(stream.fileno())
    return made.public


def _public(raw: bytes) -> PublicKey:
    # RFC 8410, section 4: the fixed DER header of an Ed25519 SubjectPublicKeyInfo.
    return PublicKey(bytes.fromhex("302a300506032b6570032100") + raw)


def _read_private(path: Path) -> bytes:
    try:
        # O_NONBLOCK: a pipe in place of the key must be refused, not waited for.
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    except OSError as error:
        raise KeyRefused(f"the signing key {path} cannot be read: {error.strerror}") from error
    with open(descriptor, "rb") as stream:
        facts = os.fstat(descriptor)
        if not stat.S_ISREG(facts.st_mode):
            raise KeyRefused(f"the signing key {path} is no regular file")
        mode = stat.S_IMODE(facts.st_mode)
        if mode != 0o600:
            raise KeyRefused(f"{path} has mode {mode:04o}, expected 0600: run chmod 600 {path}")
        return stream.read(_KEY_FILE_LIMIT)
