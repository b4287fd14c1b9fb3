"""Keys, envelopes and trust files."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import stat
import subprocess
from base64 import b64decode
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric import ed448
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
)

from pytest_meshnet.evidence.signing import dsse
from pytest_meshnet.evidence.signing.dsse import Envelope
from pytest_meshnet.evidence.signing.keys import KeyRefused, PublicKey, SigningKey, keygen
from pytest_meshnet.evidence.signing.trust import (
    Trust,
    TrustedKey,
    TrustError,
    run_keygen,
    trust_entry,
    write_trust_file,
)
from pytest_meshnet.evidence.strict import StrictError


def private(path: Path, text: bytes, mode: int = 0o600) -> Path:
    path.write_bytes(text)
    path.chmod(mode)
    return path


def other_pem() -> bytes:
    key = ed448.Ed448PrivateKey.generate()
    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())


def test_the_pae_is_the_published_one():
    encoded = dsse.pae("http://example.com/HelloWorld", b"hello world")
    assert encoded == b"DSSEv1 29 http://example.com/HelloWorld 11 hello world"


def test_the_pae_counts_bytes_and_not_characters():
    assert dsse.pae("é", b"\xc3\xa9\x00") == b"DSSEv1 2 \xc3\xa9 3 \xc3\xa9\x00"


def test_a_signed_document_is_read_back_and_verified(key: SigningKey):
    envelope = Envelope.from_bytes(dsse.sign({"a": 1}, key).to_bytes())
    assert envelope.payload == b'{"a":1}'
    assert envelope.payload_type == "application/vnd.in-toto+json"
    assert envelope.keyid == key.public.keyid
    assert envelope.signed_by(key.public)


def test_the_envelope_is_dsse_json(key: SigningKey):
    raw = json.loads(dsse.sign({"a": 1}, key).to_bytes())
    assert raw.keys() == {"payload", "payloadType", "signatures"}
    assert b64decode(raw["payload"]) == b'{"a":1}'
    assert [one.keys() for one in raw["signatures"]] == [{"keyid", "sig"}]


def test_another_key_payload_or_type_does_not_verify(key: SigningKey):
    envelope = dsse.sign({"a": 1}, key)
    assert not envelope.signed_by(SigningKey.make_ephemeral().public)
    changed = Envelope(envelope.payload_type, b'{"a":2}', envelope.keyid, envelope.signature)
    assert not changed.signed_by(key.public)
    retyped = Envelope("text/plain", envelope.payload, envelope.keyid, envelope.signature)
    assert not retyped.signed_by(key.public)


def test_a_float_is_never_signed(key: SigningKey):
    with pytest.raises(StrictError, match="float"):
        dsse.sign({"seconds": 0.5}, key)


@pytest.mark.parametrize(
    ("change", "code"),
    [
        (lambda raw: raw.update(extra=1), "field-unknown"),
        (lambda raw: raw["signatures"].append(raw["signatures"][0]), "envelope-signatures"),
        (lambda raw: raw["signatures"].clear(), "envelope-signatures"),
        (lambda raw: raw.update(payload="!"), "envelope-base64"),
        (lambda raw: raw.update(payload=raw["payload"].rstrip("=")), "envelope-base64"),
    ],
)
def test_another_envelope_is_refused(key: SigningKey, change: Any, code: str):
    raw = json.loads(dsse.sign({"a": 1}, key).to_bytes())
    change(raw)
    with pytest.raises(StrictError) as refused:
        Envelope.from_bytes(json.dumps(raw).encode())
    assert refused.value.code == code


def test_every_flipped_byte_of_an_envelope_is_noticed(key: SigningKey):
    data = dsse.sign({"a": 1}, key).to_bytes()
    for place in range(len(data)):
        for flip in (0x01, 0x20):
            changed = bytearray(data)
            changed[place] ^= flip
            try:
                envelope = Envelope.from_bytes(bytes(changed))
            except StrictError:
                continue
            same_key = envelope.keyid == key.public.keyid
            assert not (same_key and envelope.signed_by(key.public)), f"byte {place} ^ {flip:#x}"


def test_base64_with_loose_last_bits_is_refused(key: SigningKey):
    raw = json.loads(dsse.sign({"a": 1}, key).to_bytes())
    assert raw["payload"].endswith("fQ==")
    raw["payload"] = raw["payload"][:-3] + "R=="
    data = (json.dumps(raw, separators=(",", ":"), sort_keys=True) + "\n").encode()
    with pytest.raises(StrictError) as refused:
        Envelope.from_bytes(data)
    assert refused.value.code == "envelope-form"


@pytest.mark.skipif(shutil.which("openssl") is None, reason="no openssl on this machine")
def test_openssl_accepts_the_signature(key: SigningKey, tmp_path: Path):
    envelope = dsse.sign({"a": 1}, key)
    (tmp_path / "pub.pem").write_text(key.public.pem)
    (tmp_path / "sig").write_bytes(envelope.signature)
    message = tmp_path / "message"

    verify = ["openssl", "pkeyutl", "-verify", "-rawin", "-pubin", "-inkey", "pub.pem"]
    verify += ["-sigfile", "sig", "-in", "message"]

    def openssl() -> int:
        return subprocess.run(verify, cwd=tmp_path, capture_output=True).returncode

    message.write_bytes(dsse.pae(envelope.payload_type, envelope.payload))
    assert openssl() == 0
    message.write_bytes(envelope.payload)
    assert openssl() == 1


def test_a_public_key_has_both_published_names(key: SigningKey):
    raw = key.private.public_key().public_bytes_raw()
    spki = key.private.public_key().public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
    assert key.public.spki == spki
    assert key.public.keyid == hashlib.sha256(spki).hexdigest()
    assert key.public.raw_sha256 == hashlib.sha256(raw).hexdigest()


def test_a_public_key_survives_der_and_pem(key: SigningKey):
    assert PublicKey.from_spki(key.public.spki) == key.public
    assert PublicKey.from_pem(key.public.pem) == key.public


def test_public_keys_that_are_not_exactly_one_ed25519_key_are_refused(key: SigningKey):
    other = ed448.Ed448PrivateKey.generate().public_key()
    der = other.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
    for spki in (b"", key.public.spki + b"\0", key.public.spki[:-1]):
        with pytest.raises(KeyRefused, match="in DER"):
            PublicKey.from_spki(spki)
    with pytest.raises(KeyRefused, match="expected Ed25519"):
        PublicKey.from_spki(der)
    with pytest.raises(KeyRefused, match="BEGIN PUBLIC KEY"):
        PublicKey.from_pem("nonsense")


def test_keygen_writes_a_key_that_loads_and_that_only_the_owner_reads(tmp_path: Path):
    old = os.umask(0)
    try:
        public = keygen(tmp_path / "k.pem")
    finally:
        os.umask(old)
    assert stat.S_IMODE((tmp_path / "k.pem").stat().st_mode) == 0o600
    loaded = SigningKey.load(tmp_path / "k.pem")
    assert (loaded.public, loaded.ephemeral) == (public, False)


def test_keygen_never_overwrites(tmp_path: Path):
    (tmp_path / "k.pem").write_text("precious")
    with pytest.raises(KeyRefused, match="never overwritten"):
        keygen(tmp_path / "k.pem")
    assert (tmp_path / "k.pem").read_text() == "precious"


def test_an_ephemeral_key_says_so_and_is_new_each_time():
    one, other = SigningKey.make_ephemeral(), SigningKey.make_ephemeral()
    assert one.ephemeral
    assert one.public != other.public


@pytest.mark.parametrize("mode", [0o644, 0o640, 0o700, 0o400])
def test_a_key_with_another_mode_than_0600_is_refused(tmp_path: Path, mode: int):
    keygen(tmp_path / "k.pem")
    (tmp_path / "k.pem").chmod(mode)
    with pytest.raises(KeyRefused, match=f"mode {mode:04o}, expected 0600: run chmod 600"):
        SigningKey.load(tmp_path / "k.pem")


def test_a_key_that_is_no_ed25519_is_refused(tmp_path: Path):
    with pytest.raises(KeyRefused, match="only Ed25519"):
        SigningKey.load(private(tmp_path / "k.pem", other_pem()))


def test_a_file_that_is_no_key_is_refused(tmp_path: Path):
    with pytest.raises(KeyRefused, match="no PEM private key"):
        SigningKey.load(private(tmp_path / "k.pem", b"hello"))


def test_an_encrypted_key_is_refused(tmp_path: Path, key: SigningKey):
    locked = key.private.private_bytes(
        Encoding.PEM, PrivateFormat.PKCS8, BestAvailableEncryption(b"secret")
    )
    with pytest.raises(KeyRefused, match="encrypted"):
        SigningKey.load(private(tmp_path / "k.pem", locked))


def test_a_missing_key_and_a_pipe_in_its_place_are_refused(tmp_path: Path):
    with pytest.raises(KeyRefused, match="cannot be read"):
        SigningKey.load(tmp_path / "none.pem")
    os.mkfifo(tmp_path / "pipe", 0o600)
    with pytest.raises(KeyRefused, match="no regular file"):
        SigningKey.load(tmp_path / "pipe")


def test_a_trust_file_made_from_a_key_trusts_that_key(tmp_path: Path, key: SigningKey):
    write_trust_file(tmp_path / "t.toml", key.public, 'Ada "the" \\ tester ü')
    entry = Trust.load(tmp_path / "t.toml").keys[key.public.keyid]
    assert entry.name == 'Ada "the" \\ tester ü'
    assert entry.objection("anything", [0, 2**62]) is None


def test_a_trust_file_is_never_overwritten(tmp_path: Path, key: SigningKey):
    (tmp_path / "t.toml").write_text("")
    with pytest.raises(TrustError, match="add this entry"):
        write_trust_file(tmp_path / "t.toml", key.public, "ada")
    assert (tmp_path / "t.toml").read_text() == ""


def test_a_name_with_line_breaks_cannot_enter_a_trust_file(key: SigningKey):
    with pytest.raises(TrustError, match="printable"):
        trust_entry(key.public, 'x"\nstatus = "active')


KEYID = "ab" * 32


def trust(tmp_path: Path, text: str) -> Trust:
    (tmp_path / "trust.toml").write_text(text)
    return Trust.load(tmp_path / "trust.toml")


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        ("", "expected"),
        ("[[key]]", "keyid is None"),
        ('[[key]]\nkeyid = "AB"', "64 hex digits"),
        (f'[[key]]\nkeyid = "{KEYID}"\nstate = "active"', "unknown field 'state'"),
        (f'[[key]]\nkeyid = "{KEYID}"\nstatus = "maybe"', "active"),
        (f'[[key]]\nkeyid = "{KEYID}"\nscope = "all"', "list of patterns"),
        (f'[[key]]\nkeyid = "{KEYID}"\nname = "a\\nb"', "one line"),
        (f'[[key]]\nkeyid = "{KEYID}"\nname = 5', "one line"),
        (f'[[key]]\nkeyid = "{KEYID}"\nscope = [5]', "list of patterns"),
        (f'[[key]]\nkeyid = "{KEYID}"\nvalid_from = 2026-01-01', "time with zone"),
        (f'[[key]]\nkeyid = "{KEYID}"\nvalid_until = 2026-01-01T00:00:00', "time with zone"),
        (f'[[key]]\nkeyid = "{KEYID}"\n[[key]]\nkeyid = "{KEYID}"', "listed twice"),
        (f'[[key]]\nkeyid = "{KEYID}"\npublic_key = "x"', "BEGIN PUBLIC KEY"),
        (f'[[key]]\nkeyid = "{KEYID}"\n[other]', "nothing else"),
        ("key = 3", "nothing else"),
        ("key = [3]", "expected a table"),
        ("[[key", "expected TOML"),
    ],
)
def test_a_malformed_trust_file_trusts_nobody(tmp_path: Path, lines: str, message: str):
    with pytest.raises(TrustError, match=message.replace("[", r"\[")):
        trust(tmp_path, lines)


def test_a_public_key_and_a_keyid_that_disagree_are_refused(tmp_path: Path, key: SigningKey):
    text = f'[[key]]\nkeyid = "{KEYID}"\npublic_key = """{key.public.pem}"""'
    with pytest.raises(TrustError, match="the entry says"):
        trust(tmp_path, text)


def test_a_missing_trust_file_is_refused(tmp_path: Path):
    with pytest.raises(TrustError, match="cannot be read"):
        Trust.load(tmp_path / "none.toml")


NS = 10**9
NEW_YEAR = 1767225600  # 2026-01-01T00:00:00Z


@pytest.mark.parametrize(
    ("lines", "target", "times", "code"),
    [
        ('scope = ["vendor-*"]', "vendor-x", (NEW_YEAR,), None),
        ('scope = ["vendor-*"]', "other", (NEW_YEAR,), "signer-scope"),
        ("scope = []", "other", (NEW_YEAR,), "signer-scope"),
        ("valid_from = 2026-01-01T00:00:00Z", "x", (NEW_YEAR, NEW_YEAR + 9), None),
        ("valid_from = 2026-01-01T00:00:00Z", "x", (NEW_YEAR - 1, NEW_YEAR + 9), "signer-window"),
        ("valid_until = 2026-01-01T01:00:00+01:00", "x", (NEW_YEAR - 9, NEW_YEAR), None),
        ("valid_until = 2026-01-01T00:00:00Z", "x", (NEW_YEAR - 9, NEW_YEAR + 1), "signer-window"),
        ('status = "revoked"', "x", (NEW_YEAR,), "signer-revoked"),
    ],
)
def test_scope_window_and_revocation_decide_whether_a_key_counts(
    tmp_path: Path, lines: str, target: str, times: tuple[int, ...], code: str | None
):
    entry = trust(tmp_path, f'[[key]]\nkeyid = "{KEYID}"\n{lines}\n').keys[KEYID]
    objection = entry.objection(target, [one * NS for one in times])
    assert (objection and objection[0]) == code


def test_a_run_outside_the_window_is_told_on_which_side():
    entry = TrustedKey(KEYID, "Ada", valid_from=10, valid_until=20)
    assert entry.objection("x", [5, 15]) == (
        "signer-window",
        "the run is before the time that Ada is trusted for",
    )
    assert entry.objection("x", [15, 25]) == (
        "signer-window",
        "the run is after the time that Ada is trusted for",
    )


def test_run_keygen_makes_a_key_and_a_trust_file_that_fit(tmp_path: Path):
    text, code = run_keygen(tmp_path / "rig.pem")
    public = SigningKey.load(tmp_path / "rig.pem").public
    assert code == 0
    assert public.keyid in text
    assert public.raw_sha256 in text
    assert Trust.load(tmp_path / "rig.pem.trust.toml").keys[public.keyid].name == "rig"


@pytest.mark.parametrize("taken", ["rig.pem", "rig.pem.trust.toml"])
def test_run_keygen_overwrites_neither_file(tmp_path: Path, taken: str):
    (tmp_path / taken).write_text("precious")
    text, code = run_keygen(tmp_path / "rig.pem")
    assert code == 2
    assert "never overwritten" in text
    assert [one.name for one in tmp_path.iterdir()] == [taken]


def test_run_keygen_in_a_missing_folder_says_what_to_do(tmp_path: Path):
    text, code = run_keygen(tmp_path / "none" / "rig.pem")
    assert code == 2
    assert "choose a writable folder" in text
