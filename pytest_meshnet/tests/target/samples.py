"""Fresh copies of the target's documents, edited and sealed again the way a forger would."""

import copy
import json
from typing import Any

from pytest_meshnet import layout
from pytest_meshnet.identity.canonical import digest
from pytest_meshnet.target.documents import FILES

Documents = dict[str, Any]


def read(name: str) -> Any:
    """Return one parsed file of fixtures/target."""
    return json.loads((layout.folder("fixtures") / "target" / name).read_text(encoding="utf-8"))


def documents() -> Documents:
    """Return fresh copies of manifest, snapshot and contract."""
    return {key: read(name) for key, name in FILES.items()}


def published_plan() -> dict[str, Any]:
    """Return the published plan without the name of its generator, all that is not repeated."""
    plan = read("published-resource-plan.json")
    del plan["generated_by"]
    return plan


def edited(found: Documents, path: tuple[Any, ...], value: Any) -> Documents:
    """Return a copy with the value at `path` replaced; `value` may be a function of the old one."""
    found = copy.deepcopy(found)
    *rest, last = path
    place = found
    for key in rest:
        place = place[key]
    place[last] = value(place[last]) if callable(value) else value
    return found


def removed(found: Documents, path: tuple[Any, ...]) -> Documents:
    """Return a copy without the key at `path`."""
    found = copy.deepcopy(found)
    *rest, last = path
    place = found
    for key in rest:
        place = place[key]
    del place[last]
    return found


def resealed(found: Documents) -> Documents:
    """Return a copy in which every digest one document says of another is right again.

    What is bound by value is bound again as well, so that only the pins in code can still object.
    """
    found = copy.deepcopy(found)
    contract = found["contract"]
    contract["target"]["target_manifest_sha256"] = digest(found["manifest"])
    contract["target"]["architecture_snapshot_sha256"] = digest(found["snapshot"])
    contract.pop("contract_sha256", None)
    contract["contract_sha256"] = digest(contract)
    return found


def leaves(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[tuple[Any, ...], Any]]:
    """Return every (path, scalar) below `value`."""
    if isinstance(value, dict):
        return [leaf for key in value for leaf in leaves(value[key], (*path, key))]
    if isinstance(value, list):
        return [leaf for index, item in enumerate(value) for leaf in leaves(item, (*path, index))]
    return [(path, value)]
