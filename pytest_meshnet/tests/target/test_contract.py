"""The contract's thresholds: locked, sealed, immutable, and never defaulted."""

import pytest

from pytest_meshnet.target.contract import Contract, ThresholdNotLocked
from pytest_meshnet.target.documents import LockedTarget
from pytest_meshnet.target.fields import TargetRefused
from pytest_meshnet.tests.target import samples

TARGET = LockedTarget.load()


def test_a_contract_parses_alone_and_only_the_pinned_one_may_be_used():
    weak = samples.edited(
        samples.documents(), ("contract", "performance", "max_unexplained_stall_seconds"), 3600
    )
    parsed = Contract.from_dict(samples.resealed(weak)["contract"])
    assert parsed.number("performance", "max_unexplained_stall_seconds") == 3600
    with pytest.raises(TargetRefused):
        parsed.require_pinned()
    TARGET.contract.require_pinned()


def test_a_threshold_that_is_not_locked_cannot_be_read():
    contract = TARGET.contract
    assert contract.number("performance", "min_median_decode_tokens_per_second") == 0.5
    for section, key in [("performance", "min_ttft"), ("speed", "x"), ("verdicts", "alpha")]:
        with pytest.raises(ThresholdNotLocked, match="not locked"):
            contract.threshold(section, key)
    for section, key in [
        ("identity_and_fit", "forbid_swap"),
        ("target_run", "kv_dtype"),
        ("identity_and_fit", "recommended_topologies"),
    ]:
        with pytest.raises(ThresholdNotLocked, match="no number"):
            contract.number(section, key)


def test_a_parsed_contract_cannot_be_changed_at_any_depth():
    document = samples.documents()["contract"]
    contract = Contract.from_dict(document)
    document["performance"]["min_median_decode_tokens_per_second"] = 0.1
    document["identity_and_fit"]["recommended_topologies"].append("1x8GiB")
    assert contract.number("performance", "min_median_decode_tokens_per_second") == 0.5
    assert len(contract.threshold("identity_and_fit", "recommended_topologies")) == 3
    with pytest.raises(TypeError):
        contract.sections["performance"]["min_median_decode_tokens_per_second"] = 0.1
    with pytest.raises(TypeError):
        contract.sections["performance"] = {}
    with pytest.raises(TypeError):
        contract.threshold("identity_and_fit", "recommended_topologies")[0] = "x"
    with pytest.raises((AttributeError, TypeError)):
        contract.sections = {}


def test_to_dict_is_the_document_and_an_isolated_copy():
    original = samples.documents()["contract"]
    copy = TARGET.contract.to_dict()
    assert copy == original
    copy["performance"]["min_median_decode_tokens_per_second"] = 0.1
    copy["verdicts"].append("maybe")
    assert TARGET.contract.to_dict() == original
    assert TARGET.contract.number("performance", "min_median_decode_tokens_per_second") == 0.5
