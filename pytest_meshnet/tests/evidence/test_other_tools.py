"""Other people's tools come to the same answer about a bundle's signatures."""

from __future__ import annotations

import json
import shutil
import subprocess
from base64 import b64decode
from pathlib import Path

import pytest
from securesystemslib import dsse as theirs
from securesystemslib.exceptions import VerificationError
from securesystemslib.signer import CryptoSigner, SSlibKey

from pytest_meshnet.evidence import strict
from pytest_meshnet.evidence.documents import PREDICATES, document_name
from pytest_meshnet.evidence.signing import dsse as ours
from pytest_meshnet.evidence.signing.keys import SigningKey
from pytest_meshnet.evidence.verify.integrity import names_digest
from pytest_meshnet.tests.evidence import making


def public(key: SigningKey) -> SSlibKey:
    """The key as securesystemslib reads it from its PEM, under our name for it."""
    return SSlibKey.from_crypto(key.private.public_key(), key.public.keyid)


@pytest.fixture
def bundle(tmp_path: Path, key: SigningKey) -> Path:
    return making.make(tmp_path / "out", key)


@pytest.mark.parametrize("kind", PREDICATES)
def test_securesystemslib_accepts_every_document_of_a_bundle(
    bundle: Path, key: SigningKey, kind: str
):
    raw = json.loads((bundle / document_name(kind)).read_bytes())
    envelope = theirs.Envelope.from_dict(raw)
    assert envelope.verify([public(key)], 1).keys() == {key.public.keyid}
    assert envelope.payload_type == "application/vnd.in-toto+json"
    assert json.loads(envelope.payload)["_type"] == "https://in-toto.io/Statement/v1"
    with pytest.raises(VerificationError):
        envelope.verify([public(SigningKey.make_ephemeral())], 1)


def test_securesystemslib_refuses_what_we_refuse(bundle: Path, key: SigningKey):
    raw = json.loads((bundle / "seal.dsse.json").read_bytes())
    envelope = theirs.Envelope.from_dict(raw)
    envelope.payload = envelope.payload.replace(b"CERTIFIED", b"CERTIFIEd")
    with pytest.raises(VerificationError):
        envelope.verify([public(key)], 1)


def test_what_securesystemslib_signs_is_accepted_here(key: SigningKey):
    envelope = theirs.Envelope(b'{"a":1}', ours.PAYLOAD_TYPE, {})
    envelope.sign(CryptoSigner(key.private, public(key)))
    found = ours.Envelope.from_bytes(strict.dumps(envelope.to_dict()) + b"\n")
    assert found.signed_by(key.public)
    assert found.keyid == key.public.keyid


@pytest.mark.skipif(shutil.which("openssl") is None, reason="no openssl on this machine")
@pytest.mark.parametrize("kind", PREDICATES)
def test_openssl_accepts_every_document_of_a_bundle(
    bundle: Path, key: SigningKey, kind: str, tmp_path: Path
):
    raw = json.loads((bundle / document_name(kind)).read_bytes())
    payload = b64decode(raw["payload"])
    kind_of_payload = raw["payloadType"].encode()
    message = b"DSSEv1 %d %s %d %s" % (len(kind_of_payload), kind_of_payload, len(payload), payload)
    (tmp_path / "pub.pem").write_text(key.public.pem)
    (tmp_path / "sig").write_bytes(b64decode(raw["signatures"][0]["sig"]))
    verify = ["openssl", "pkeyutl", "-verify", "-rawin", "-pubin", "-inkey", "pub.pem",
              "-sigfile", "sig", "-in", "message"]  # fmt: skip
    answers = []
    for signed in (message, message[:-1] + b" "):
        (tmp_path / "message").write_bytes(signed)
        answers.append(subprocess.run(verify, cwd=tmp_path, capture_output=True).returncode)
    assert answers == [0, 1]


@pytest.mark.skipif(shutil.which("openssl") is None, reason="no openssl on this machine")
def test_a_timestamp_request_of_openssl_names_the_seal(bundle: Path):
    seal = bundle / "seal.dsse.json"
    asked = subprocess.run(
        ["openssl", "ts", "-query", "-data", str(seal), "-sha256", "-no_nonce"],
        capture_output=True,
        check=True,
    )
    assert names_digest("anchors/stamp.tsq", asked.stdout, digest_of(seal))
    assert not names_digest("anchors/stamp.tsq", asked.stdout, digest_of(bundle / "run.dsse.json"))


def digest_of(path: Path) -> str:
    summed = subprocess.run(["sha256sum", str(path)], capture_output=True, text=True, check=True)
    return summed.stdout.split()[0]
