"""`reliability`: starts, cancellation, loss, and that the workers were whole ones."""

from __future__ import annotations

from pytest_meshnet.alpha.criteria import criterion
from pytest_meshnet.alpha.criteria.identity import span
from pytest_meshnet.alpha.reading import MISSING, Reading

SECTION = "reliability"
UNREAL = ("synthetic", "pass-through", "zero-layer")
REDUCED = "layer-reduced"
WHOLE = "whole"


@criterion(
    SECTION, "consecutive_clean_cold_starts", action="start cold again and look at what was left"
)
def starts_were_clean(at: Reading) -> None:
    """The last starts in a row that were cold and left nothing behind."""
    starts = at.parts(SECTION, "cold_starts")
    clean = 0
    for number, start in enumerate(starts):
        where = f"cold_starts[{number}]"
        served = at.flag(start, "served", where)
        residue = at.count(start, "residue", where)
        clean = clean + 1 if served and residue == 0 else 0
        if residue:
            at.fail("residue", f"{where}: {residue} processes, ports, files or segments remained")
    at.show(clean, "starts")
    if not at.problems:
        at.at_least(clean, at.limit, "clean cold starts in a row")


@criterion(
    SECTION,
    "require_cancellation_releases_buffers_and_kv",
    action="look for who still holds the cancelled request's memory",
)
def cancellation_gives_back(at: Reading) -> None:
    """In prefill and in decode: sessions, buffers and KV are back where they were.

    A session with buffers and KV was there in between: what was never held cannot be given back.
    """
    for phase in ("prefill", "decode"):
        part, where = at.part(SECTION, "cancellation", phase), f"cancellation.{phase}"
        for name in ("sessions", "buffer_bytes", "kv_bytes"):
            before, held, after = (
                at.count(part, f"{name}_{when}", where, told=True)
                for when in ("before", "during", "after")
            )
            if before is not None and held is not None and held <= before:
                at.fail("nothing-held", f"{where}: the request to cancel held no {name}")
            if before is not None and after is not None and after > before:
                at.fail("not-released", f"{where}: {after - before} {name} were not given back")
    at.show(not at.problems)


@criterion(SECTION, "require_worker_loss_aborts_route", action="abort the route when a worker dies")
def loss_ends_the_route(at: Reading) -> None:
    """A killed worker ended the request on every remaining one."""
    found = at.flag(at.part(SECTION, "worker_loss"), "route_aborted", "worker_loss")
    if found is not None:
        at.show(found)
        if not found:
            at.fail("went-on", "the route went on after a worker was lost")


@criterion(SECTION, "retry_policy", action="retry on a new route with a higher epoch, from token 0")
def retry_starts_afresh(at: Reading) -> None:
    """The retry began at token zero, in a higher epoch, and gave the undisturbed output."""
    part = at.part(SECTION, "worker_loss")
    policy = at.text(part, "retry_policy", "worker_loss")
    first = at.count(part, "retry_first_position", "worker_loss")
    old, new = (at.count(part, name, "worker_loss") for name in ("old_epoch", "new_epoch"))
    same = at.flag(part, "output_equals_undisturbed", "worker_loss")
    if policy is not None:
        at.show(policy)
        at.equal(policy, at.threshold, "worker_loss.retry_policy")
    if first:
        at.fail("not-from-zero", f"the retry began at position {first}")
    if old is not None and new is not None and new <= old:
        at.fail("old-epoch", f"the retry ran in epoch {new} after {old}")
    if same is False:
        at.fail("output-differs", "the retry gave another output than an undisturbed run")


@criterion(SECTION, "forbid_silent_kv_migration", action="never move KV between workers")
def kv_never_moved(at: Reading) -> None:
    """No KV state turned up on another worker."""
    found = at.count(at.part(SECTION, "worker_loss"), "kv_migrations", "worker_loss")
    if found is not None:
        at.show(found, "times")
        if found:
            at.fail("migrated", f"KV moved to another worker {found} times")


@criterion(SECTION, "require_reject_stale_epoch", action="fence older epochs at open")
def stale_epochs_are_refused(at: Reading) -> None:
    """An open with an older epoch was tried and refused."""
    at.all_refused(at.part(SECTION, "stale_epoch"), "stale_epoch")
    at.show(not at.problems)


@criterion(SECTION, "require_reject_duplicate_step_id", action="answer a used step as a duplicate")
def replayed_steps_change_nothing(at: Reading) -> None:
    """A replayed step was answered as a duplicate, and the length stayed."""
    part, where = at.part(SECTION, "replayed_step"), "replayed_step"
    tried, duplicates = at.count(part, "tried", where), at.count(part, "duplicates", where)
    before = at.count(part, "past_len_before", where)
    after = at.count(part, "past_len_after", where)
    if tried == 0:
        at.fail("not-tried", "no step was replayed")
    if before == 0:
        at.fail("nothing-held", "the session that was replayed to had no length")
    if tried is not None and duplicates is not None:
        at.show(duplicates, "duplicates")
        if duplicates != tried:
            at.fail("applied-again", f"{duplicates} of {tried} replays were duplicates")
    if before is not None and after is not None and before != after:
        at.fail("length-moved", f"past_len went from {before} to {after} by a replay")


def _kinds(at: Reading) -> dict[str, str]:
    """What kind of worker each machine ran."""
    found = {}
    for where, node in at.nodes():
        kind = at.text(node, "worker_kind", where, told=True)
        if kind is not None:
            found[where] = kind
    at.show(", ".join(sorted(set(found.values()))))
    return found


@criterion(SECTION, "synthetic_workers_satisfy_alpha", action="run the real artifact")
def workers_were_real(at: Reading) -> None:
    """No worker only pretended, and the record is no invention."""
    for where, kind in _kinds(at).items():
        if kind in UNREAL:
            at.fail(kind, f"{where} was a {kind} worker")
        elif kind not in (WHOLE, REDUCED):
            at.fail("unknown-kind", f"{where} was a worker of kind {kind!r}")
    if at.record.get("synthetic") is not False:
        at.fail("synthetic", "the record says that it is synthetic")


@criterion(
    SECTION, "layer_reduced_fixtures_satisfy_alpha", action="run all layers of the real artifact"
)
def no_layer_was_left_out(at: Reading) -> None:
    """The machines' layers follow on each other from first to last, and their roles say so."""
    for where, kind in _kinds(at).items():
        if kind == REDUCED:
            at.fail(REDUCED, f"{where} served a model with fewer layers")
    ranges = []
    last = at.locked.snapshot.architecture.backbone_layers
    for where, node in at.nodes():
        layers = span(at, node, where)
        role = at.text(node, "role", where, told=True)
        if layers is None:
            continue
        ranges.append(layers)
        expected = "head" if layers[0] == 0 else "tail" if layers[1] == last else "middle"
        if role is not None and role != expected:
            at.fail("other-role", f"{where}.role is {role!r}, its layers make it the {expected}")
    if any(one.code == MISSING for one in at.problems):
        return
    at_layer = 0
    for first, end in sorted(ranges):
        if first != at_layer:
            word = "twice" if first < at_layer else "nowhere"
            at.fail("gap-or-overlap", f"layer {min(first, at_layer)} is served {word}")
        at_layer = max(at_layer, end)
    if at_layer != last:
        at.fail("layers-missing", f"the machines serve {at_layer} layers")
