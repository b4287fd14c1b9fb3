"""`semantic_correctness`: did the model run as published, and does the route compute it?"""

from __future__ import annotations

from pytest_meshnet.alpha.criteria import criterion
from pytest_meshnet.alpha.reading import Reading

SECTION = "semantic_correctness"
GRAPH = "run the target with graph counters on"
PARITY = "run acceptance/parity on the route and look at the first cut that differs"
FIRST_TURN = "<|user|>"
KINDS = (
    "artifact",
    "tokenizer",
    "adapter",
    "dsa-metadata",
    "boundary",
    "activation",
    "kv",
    "backend-class",
    "patch",
)
"""What a handshake must refuse, each tried by itself."""

_COUNTERS = {
    "require_active_moe_routing": "moe_routed_tokens",
    "require_active_shared_expert": "shared_expert_tokens",
    "require_active_dsa_lightning_indexer": "indexer_selections",
    "require_active_sparse_attention": "sparse_attention_steps",
}


@criterion(SECTION, *_COUNTERS, action=GRAPH)
def part_of_the_graph_ran(at: Reading) -> None:
    """A counter in the graph says that this part of the model ran."""
    name = _COUNTERS[at.key]
    found = at.count(at.part(SECTION, "graph"), name, "graph", told=True)
    if found is not None:
        at.show(found, "times")
        if found == 0:
            at.fail("never-ran", f"graph.{name} is 0: this part of the model did not run")


@criterion(SECTION, "require_active_indexshare_full_and_shared", action=GRAPH)
def both_indexer_roles_ran(at: Reading) -> None:
    """As many Full and Shared layers ran as the snapshot has."""
    graph, architecture = at.part(SECTION, "graph"), at.locked.snapshot.architecture
    expected = {
        "indexshare_full_layers": architecture.full_layers,
        "indexshare_shared_layers": architecture.backbone_layers - architecture.full_layers,
    }
    for name, layers in expected.items():
        found = at.count(graph, name, "graph", told=True)
        if found is not None:
            at.show(found, "layers")
            at.equal(found, layers, f"graph.{name}")


@criterion(SECTION, "dense_attention_fallback_satisfies_alpha", action=GRAPH)
def attention_was_never_dense(at: Reading) -> None:
    """No step fell back to dense attention."""
    found = at.count(at.part(SECTION, "graph"), "dense_attention_fallbacks", "graph", told=True)
    if found is not None:
        at.show(found, "times")
        if found and at.threshold is False:
            at.fail("dense-fallback", f"{found} steps fell back to dense attention")


@criterion(
    SECTION,
    "require_rendered_reasoning_effort_marker",
    action="render the chat template with thinking on and keep what came out",
)
def marker_was_rendered(at: Reading) -> None:
    """The text that the model saw holds the marker; what the request asked for proves nothing."""
    found = at.text(at.part(SECTION), "rendered_template", SECTION)
    if found is not None:
        # Behind the first turn of the user the marker would be the user's own words.
        before, _, _ = found.partition(FIRST_TURN)
        at.show(str(at.threshold) in before)
        if str(at.threshold) not in before:
            at.fail("no-marker", f"{at.threshold!r} is not before the first {FIRST_TURN}")


@criterion(SECTION, "f32_seam_fixture_exact_match_tokens", action=PARITY)
def enough_tokens_were_compared(at: Reading) -> None:
    """The float32 seam was compared over at least the locked number of tokens."""
    found = at.count(at.part(SECTION, "f32_seam"), "tokens_compared", "f32_seam")
    if found is not None:
        at.show(found, "tokens")
        at.at_least(found, at.limit, "f32_seam.tokens_compared")


@criterion(SECTION, "f32_seam_fixture_requires_exact_match", action=PARITY)
def every_token_was_equal(at: Reading) -> None:
    """Not one token of the float32 seam differs."""
    seam = at.part(SECTION, "f32_seam")
    compared = at.count(seam, "tokens_compared", "f32_seam")
    equal = at.count(seam, "tokens_equal", "f32_seam")
    if compared is None or equal is None:
        return
    at.show(equal, "tokens")
    if equal > compared:
        at.fail("contradictory", f"{equal} of {compared} tokens are equal")
    elif equal < compared or not compared:
        at.fail("token-differs", f"{equal} of {compared} tokens of the f32 seam are equal")


_SHARES = {
    "min_greedy_token_agreement": "greedy_token_agreement",
    "min_mean_state_cosine_similarity": "mean_cosine_similarity",
}


@criterion(SECTION, *_SHARES, action=PARITY)
def production_seam_agrees(at: Reading) -> None:
    """Agreement and similarity of the production seam, each at most 1."""
    name = _SHARES[at.key]
    found = at.number(at.part(SECTION, "production_seam"), name, "production_seam")
    if found is None:
        return
    at.show(found)
    at.at_least(found, at.limit, f"production_seam.{name}")
    if found > 1:
        at.fail("contradictory", f"production_seam.{name} is {found}, which exceeds 1")


@criterion(SECTION, "forbid_nonfinite_tensors", action=PARITY)
def every_number_was_finite(at: Reading) -> None:
    """Tensors were looked at, and none held a NaN or an infinity."""
    seam = at.part(SECTION, "production_seam")
    checked = at.count(seam, "tensors_checked", "production_seam")
    found = at.count(seam, "nonfinite_tensors", "production_seam")
    if checked == 0:
        at.fail("nothing-checked", "no tensor was checked for numbers that are not finite")
    if found is not None:
        at.show(found, "tensors")
        if checked is not None and found > checked:
            at.fail("contradictory", f"{found} of {checked} tensors were not finite")
        if found:
            at.fail("nonfinite", f"{found} tensors held numbers that are not finite")


@criterion(
    SECTION,
    "require_fail_closed_on_fingerprint_mismatch",
    action="try the handshake with each kind of mismatch",
)
def every_mismatch_was_refused(at: Reading) -> None:
    """One handshake of each kind was tried with something else, and was refused."""
    refused = 0
    for kind in KINDS:
        known = len(at.problems)
        at.all_refused(at.part(SECTION, "handshakes", kind), f"handshakes.{kind}")
        refused += len(at.problems) == known
    at.show(refused, "kinds refused")
