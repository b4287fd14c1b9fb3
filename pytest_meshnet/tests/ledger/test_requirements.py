import hashlib

import pytest

from pytest_meshnet import layout
from pytest_meshnet.ledger.applicability import NEEDS
from pytest_meshnet.ledger.requirements import (
    Ledger,
    LedgerError,
    UnknownProfile,
    UnknownRequirement,
)

ENTRY = """
[[requirement]]
id = "OPEN-01"
level = "MUST"
profile = "core"
subject = "runtime"
title = "Open first"
statement = "Any message before open is refused."
"""
HEAD = 'schema = 1\nledger_version = "1.0.0"\n'


@pytest.fixture
def load(tmp_path):
    def load(text):
        path = tmp_path / "requirements.toml"
        path.write_text(text)
        return Ledger.load(path)

    return load


def test_the_digest_is_that_of_the_files_bytes():
    path = layout.folder("conformance") / "requirements.toml"
    assert Ledger.load().digest == hashlib.sha256(path.read_bytes()).hexdigest()


def test_core_wire_is_exactly_the_five_complete_groups_of_core():
    ledger = Ledger.load()
    groups = {one.group for one in ledger.profile("core-wire")}
    assert groups == {"WIRE", "CODEC", "OPEN", "PREFILL", "DECODE"}
    assert set(ledger.profile("core-wire")) < set(ledger.profile("core"))


def test_every_profile_of_the_ledger_is_named_once_and_has_requirements():
    ledger = Ledger.load()
    assert ledger.profiles[:2] == ("core-wire", "core")
    assert len(set(ledger.profiles)) == len(ledger.profiles)
    assert all(ledger.profile(name) for name in ledger.profiles)


def test_every_need_of_the_ledger_has_a_rule_and_every_rule_a_need():
    assert set(Ledger.load().needs) == set(NEEDS)


def test_an_unknown_id_offers_the_nearest_ones():
    with pytest.raises(UnknownRequirement, match="did you mean DECODE-0"):
        Ledger.load().get("decode-99")


def test_an_unknown_profile_lists_the_profiles():
    ledger = Ledger.load()
    with pytest.raises(UnknownProfile, match="choose from core-wire, core, kv"):
        ledger.profile("everything")
    with pytest.raises(UnknownProfile):
        ledger.claims(["core", "everything"])


def test_a_claim_of_two_profiles_contains_both_and_only_them():
    ledger = Ledger.load()
    profiles = {one.profile for one in ledger.claims(["kv", "flow"])}
    assert profiles == {"kv", "flow"}


def test_a_group_is_found_by_the_start_of_its_ids():
    assert [one.id for one in Ledger.load().group("CAP")] == [f"CAP-0{n}" for n in range(1, 6)]


def test_a_minimal_ledger_loads(load):
    requirement = load(HEAD + ENTRY).get("OPEN-01")
    assert (requirement.level, requirement.group, requirement.needs) == ("MUST", "OPEN", ())


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        (HEAD + ENTRY + ENTRY, "appears twice"),
        (HEAD, "no \\[\\[requirement"),
        (ENTRY, "schema is None"),
        ("schema = 2\n" + ENTRY, "schema is 2"),
        ("schema = 1\n" + ENTRY, "ledger_version is None"),
        (HEAD + "extra = 1\n" + ENTRY, "unknown keys \\['extra'\\]"),
        (HEAD + ENTRY + "colour = 1\n", "unknown \\['colour'\\]"),
        (HEAD + ENTRY.replace('title = "Open first"', ""), "missing \\['title'\\]"),
        (HEAD + ENTRY.replace('"Open first"', '""'), "title is ''"),
        (HEAD + ENTRY.replace("OPEN-01", "open-1"), "must look like"),
        (HEAD + ENTRY.replace("MUST", "OUGHT"), "level is 'OUGHT'"),
        (HEAD + ENTRY.replace("runtime", "weather"), "subject is 'weather'"),
        (HEAD + ENTRY + 'needs = ["luck"]\n', "needs is 'luck'"),
        (HEAD + "[[requirement", "expected a TOML ledger"),
    ],
)
def test_a_malformed_ledger_is_refused_by_name(load, text, complaint):
    with pytest.raises(LedgerError, match=complaint):
        load(text)
