"""The whole of what can be measured on the tiny route with shared indices, as a record.

The workers are real processes and everything about them is measured; that their model has a few
layers and invented weights is said, so that the verdict can only be `stop`.
"""

from __future__ import annotations

import platform
import secrets
from collections.abc import Sequence
from dataclasses import dataclass

from pytest_meshnet.alpha.collectors import machine, protocol, route, storage
from pytest_meshnet.alpha.collectors.claims import RecordBuilder, claim, claims
from pytest_meshnet.identity.node import Artifact, Identity, Recipe
from pytest_meshnet.parity.bench import ParityBench
from pytest_meshnet.parity.corpus import Corpus
from pytest_meshnet.protocol.additions.canonical import canonical_digest
from pytest_meshnet.protocol.tensors import DType
from pytest_meshnet.reference.seeded_weights import TinyLlamaConfig
from pytest_meshnet.runtime.route import Route
from pytest_meshnet.runtime.route_making import RoutePlan
from pytest_meshnet.runtime.shard import ShardUnderTest
from pytest_meshnet.runtime.target import Target

BY = "acceptance/alpha"
TOKENS = 32


@dataclass(frozen=True, slots=True)
class Subject:
    """What is measured: a bench with its routes, the plan to run, and the identity it serves."""

    bench: ParityBench
    plan: RoutePlan
    identity: Identity

    @property
    def route(self) -> Route:
        """The running route."""
        return self.bench.route(self.plan)

    @property
    def head(self) -> ShardUnderTest:
        """The first Shard by itself, with session ids that no generation has."""
        return ShardUnderTest(self.route.targets[0], f"alpha-{secrets.token_hex(3)}", 0)

    @property
    def lost(self) -> Target:
        """The worker in the middle, which is killed and begins another log."""
        return self.route.targets[len(self.route.targets) // 2]

    @property
    def prompt(self) -> Sequence[int]:
        """The longest prompt of the corpus."""
        return max(self.bench.corpus.values(), key=len)


def served_identity(model: TinyLlamaConfig, start: int, end: int) -> Identity:
    """The identity that Shards of these layers of a tiny model serve, axis by axis."""
    architecture = "tiny-llama"
    artifact = Artifact(
        artifact_id=model.name,
        revision="0" * 40,
        content_digest=model.digest(),
        architecture=architecture,
        architecture_digest=canonical_digest(architecture),
        layer_count=model.layers,
        derived_from=None,
    )
    recipe = Recipe(
        weight_quantization="float32",
        activation_dtype="bfloat16",
        compute_dtype="float32",
        kv_dtype="float32",
        kv_layout="contiguous",
        tokenizer_revision="none",
        architecture_adapter=architecture,
        backend_id="numpy",
        runtime_version="1",
        boundary_schema_version=1,
        protocol_schema_version=1,
        recipe_id=f"{model.name}-bfloat16",
        recipe_version="1",
        catalogue_version="reference-1",
    )
    return Identity(artifact, recipe, start, end)


def sent(corpus: Corpus) -> list[str]:
    """The prompts as a log would write them: their token ids, for a route is sent no text."""
    return [mark.join(map(str, ids)) for ids in corpus.values() for mark in (", ", ",", " ")]


def collect(subject: Subject) -> RecordBuilder:
    """Measure everything that this machine lets one measure."""
    made = RecordBuilder(synthetic=False)
    made.record["taken"] = {"started": "now", "ended": "now", "by": BY}
    _label(made)
    _semantics(made, subject)
    _speed(made, subject)
    logs = [subject.lost.log()]
    _reliability(made, subject)
    _machines(made, subject)
    logs += [target.log() for target in subject.route.targets]
    scan = storage.scan(logs, sent(subject.bench.corpus))
    made.record["storage"]["log_scans"] = {platform.node(): scan}
    return made


def _label(made: RecordBuilder) -> None:
    made.fill("labels", {"hardware": claim([machine.hardware()], machine.BY)})
    made.fill("labels", claims(BY, {
        "topology": "processes on one machine over loopback",
        "aggregate_floor_class": "experimental_hard_fit_floor",
    }, "configured"))  # fmt: skip


def _semantics(made: RecordBuilder, subject: Subject) -> None:
    bench = subject.bench
    exact = bench.compared(bench.route(RoutePlan(subject.plan.ranges, DType.FLOAT32))).values()
    narrow = RoutePlan(subject.plan.ranges, bench.production_dtype)
    compared = list(bench.compared(bench.route(narrow)).values())
    generations = [subject.route.generate(ids, TOKENS) for ids in bench.corpus.values()]
    made.fill(
        "semantic_correctness",
        {
            "f32_seam": route.exact_seam(exact),
            "production_seam": route.production_seam(compared, generations),
            "handshakes": protocol.handshakes(subject.head, subject.identity),
        },
    )


def _speed(made: RecordBuilder, subject: Subject) -> None:
    route.pace(subject.route, subject.prompt, 2)
    runs = [route.pace(subject.route, subject.prompt, TOKENS) for _ in range(3)]
    found = {
        "warmups": 1,
        "ttft_seconds": runs[0].first_token,
        "ttft_prompt_tokens": len(subject.prompt),
        "unexplained_gaps_seconds": [one.longest_gap for one in runs],
    }
    made.fill("performance", claims(BY, found))
    decode = [
        {"tokens_per_second": one.tokens / one.decode, "tokens": one.tokens, "seconds": one.decode}
        for one in runs
    ]
    made.entries("performance/decode", [claims(BY, one) for one in decode])


def _reliability(made: RecordBuilder, subject: Subject) -> None:
    bench, running = subject.bench, subject.route
    made.fill(
        "reliability",
        {
            "worker_loss": route.worker_loss(running, subject.lost, subject.prompt, 8),
            "stale_epoch": protocol.stale_epoch(subject.head),
            "replayed_step": protocol.replayed_step(subject.head),
        },
    )
    cold = RoutePlan(subject.plan.ranges, DType.FLOAT32)
    starts = []
    for _ in range(2):
        bench.seam.forget(cold)
        starts.append(
            route.cold_start(
                lambda: bench.route(cold), lambda: bench.seam.forget(cold), subject.prompt
            )
        )
    made.entries("reliability/cold_starts", starts)


def _machines(made: RecordBuilder, subject: Subject) -> None:
    running = subject.route
    made_tokens = running.generate(subject.prompt, TOKENS).tokens
    nodes = []
    for place, target in enumerate(running.targets):
        assert target.pid is not None, "the workers are processes"
        last = place == len(running.targets) - 1
        layers = running.shards[place].layers
        told = {
            "role": "head" if place == 0 else "tail" if last else "middle",
            "layers": [layers.start, layers.stop],
            "worker_kind": "layer-reduced",
        }
        seen = claims(machine.BY, {"host": platform.node(), "hardware": machine.hardware()})
        nodes.append(seen | claims(BY, told, "reported") | machine.memory(target.pid))
    made.nodes(nodes)
    made.fill("target_run", {"output_tokens": claim(len(made_tokens), BY)})
    made.record["performance"]["stages"][0]["host"] = platform.node()
