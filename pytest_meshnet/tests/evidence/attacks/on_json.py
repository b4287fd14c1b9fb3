"""Attacks on the form of what is signed: JSON, envelopes, statements, keys."""

from __future__ import annotations

import hashlib
import json
from base64 import b64encode
from collections.abc import Callable
from pathlib import Path
from typing import Any

from cryptography.hazmat.primitives.asymmetric.ed448 import Ed448PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from pytest_meshnet.evidence.documents import document_name
from pytest_meshnet.evidence.signing import dsse
from pytest_meshnet.evidence.signing.keys import SigningKey
from pytest_meshnet.tests.evidence.attacks.base import Act, Attack, insider, outside
from pytest_meshnet.tests.evidence.making import Forger


def signed(change: Callable[[bytes], bytes], kind: str = "run") -> Act:
    """Let the holder of the key sign these bytes as a document, and seal again."""

    def act(path: Path, key: SigningKey) -> None:
        payload = dsse.Envelope.from_bytes((path / document_name(kind)).read_bytes()).payload
        changed = change(payload)
        assert changed != payload
        Forger(path, key).sign_bytes(kind, changed)
        Forger(path, key).reseal()

    return act


def written(text: str) -> Act:
    """Write something in place of the value of `certificate` in the run statement."""
    old, new = b'"certificate":true', f'"certificate":{text}'.encode()
    return signed(lambda payload: payload.replace(old, new))


def enveloped(change: Callable[[dict[str, Any]], Any]) -> Act:
    """Change the envelope of the run statement, not what is signed in it."""

    def act(path: Path) -> None:
        file = path / "run.dsse.json"
        raw = json.loads(file.read_bytes())
        change(raw)
        file.write_text(json.dumps(raw, separators=(",", ":"), sort_keys=True) + "\n")

    return outside(act)


def respelt(change: Callable[[bytes], bytes]) -> Act:
    """Write the envelope of the run statement in other bytes that mean the same."""

    def act(path: Path) -> None:
        file = path / "run.dsse.json"
        file.write_bytes(change(file.read_bytes()))

    return outside(act)


def loose_base64(data: bytes) -> bytes:
    """Set bits in the last digit of the signature that say nothing."""
    place = data.index(b'=="}') - 1
    digit = {ord("Q"): b"R", ord("g"): b"h", ord("w"): b"x", ord("A"): b"B"}[data[place]]
    return data[:place] + digit + data[place + 1 :]


def say(kind: str, **change: Any) -> Act:
    """Change fields of a signed document with the bundle's own key."""
    return insider(lambda forger: forger.document(kind, lambda found: found.update(change)))


def within(kind: str, name: str, **change: Any) -> Act:
    """Change fields of an object in a signed document with the bundle's own key."""
    return insider(lambda f: f.document(kind, lambda found: found[name].update(change)))


def subject(**change: Any) -> Act:
    return insider(lambda f: f.payload("run", lambda found: found["subject"][0].update(change)))


def other_curve() -> str:
    key = Ed448PrivateKey.generate().public_key()
    return b64encode(key.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)).decode()


def other_curve_by_its_names(path: Path, key: SigningKey) -> None:
    """Name a key of another kind, with the names that its bytes would have as one of ours."""
    other = Ed448PrivateKey.generate().public_key()
    spki = key.public.spki[:-32] + other.public_bytes_raw()
    names = {
        "public_key": b64encode(
            other.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
        ).decode(),
        "keyid": hashlib.sha256(spki).hexdigest(),
        "raw_sha256": hashlib.sha256(spki[-32:]).hexdigest(),
    }
    within("start", "signer", **names)(path, key)


def start_key(text: str) -> Act:
    """Name another public key in the start, which the right key signed."""
    return within("start", "signer", public_key=text)


ON_JSON = (
    # JSON
    Attack(
        "a duplicate key in an envelope",
        respelt(lambda data: b'{"payload":"",' + data[1:]),
        2,
        "json-duplicate-key",
    ),
    Attack("bytes that are no UTF-8",
           signed(lambda payload: payload.replace(b'"certificate":true', b'"certificate":"\xff"')),
           2, "json-not-utf8"),
    Attack("no JSON at all", signed(lambda _: b"{"), 2, "json-malformed"),
    Attack("lists in lists", signed(lambda _: b"[" * 200_000), 2, "json-too-deep"),
    Attack("a number that is not exact", written("0.5"), 2, "json-number"),
    Attack("no number", written("NaN"), 2, "json-number"),
    Attack("a number beyond 2**53", written("9007199254740993"), 2, "json-number"),
    Attack("a number of many digits", written("1" * 5000), 2, "json-number"),
    # envelopes
    Attack("an envelope with more", enveloped(lambda raw: raw.update(more=1)), 2, "field-unknown"),
    Attack("an envelope with less", enveloped(lambda raw: raw.pop("payloadType")), 2,
           "field-missing"),
    Attack("two signatures", enveloped(lambda raw: raw["signatures"].append(raw["signatures"][0])),
           2, "envelope-signatures"),
    Attack("no signature", enveloped(lambda raw: raw["signatures"].clear()), 2,
           "envelope-signatures"),
    Attack("a payload that is no base64", enveloped(lambda raw: raw.update(payload="!")), 2,
           "envelope-base64"),
    Attack("white space in an envelope", respelt(lambda data: b" " + data), 2, "envelope-form"),
    Attack("loose bits in a signature", respelt(loose_base64), 2, "envelope-form"),
    Attack("an envelope that is a list", respelt(lambda _: b"[]\n"), 2, "field-type"),
    # statements
    Attack("a statement that is a list", signed(lambda _: b"[]"), 2, "statement-form"),
    Attack("a statement of another type",
           insider(lambda f: f.payload("run", lambda found: found.update(_type="x"))),
           2, "statement-type"),
    Attack("no list of subjects",
           insider(lambda f: f.payload("run", lambda found: found.update(subject={}))),
           2, "statement-form"),
    Attack("a subject with more", subject(uri="x"), 2, "field-unknown"),
    Attack("a subject with another digest", subject(digest={"sha256": "ab" * 32}), 2,
           "target-differs"),
    # fields
    *(
        Attack(f"an unknown field in {kind}", say(kind, critical=1), 2, "field-unknown")
        for kind in ("start", "seal")
    ),
    Attack("an unknown field deep in the start", within("start", "suite", more="x"), 2,
           "field-unknown"),
    Attack("a number as a text", say("start", counter="1"), 2, "field-type"),
    Attack("a yes as a number", say("start", certificate=1), 2, "field-type"),
    Attack("a list as a text", say("start", profiles="core"), 2, "field-type"),
    Attack("an object as a list", say("start", host=[]), 2, "field-type"),
    Attack("a document as a text", say("start", suite="1.0"), 2, "field-type"),
    Attack("a float in a list of GPUs", say("start", gpus=[{"uuid": []}]), 2, "field-type"),
    Attack("a time of the plan that is none", say("plan", t_mono="-5"), 2, "journal-record"),
    Attack("a time of too many digits", say("plan", t_wall="9" * 21), 2, "journal-record"),
    # keys
    Attack("a key that is no base64", start_key("!"), 2, "signer-malformed"),
    Attack("a key of another kind", start_key(other_curve()), 2, "signer-malformed"),
    Attack("a key of another kind by its names", other_curve_by_its_names, 2, "signer-malformed"),
    Attack("another name for the key in the start", within("start", "signer", keyid="ab" * 32), 2,
           "signer-malformed"),
)  # fmt: skip
