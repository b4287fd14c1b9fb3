"""The parity bench of a run: the descriptor's routes, its oracle, its prompts and its figures."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from pytest_meshnet.options import settings
from pytest_meshnet.parity.bench import ParityBench
from pytest_meshnet.parity.calibration import Calibration, Subject
from pytest_meshnet.parity.corpus import Corpus, corpus_digest, drawn_corpus, read_corpus
from pytest_meshnet.parity.oracles import engine_of, external_oracle
from pytest_meshnet.parity.oracles.llama_server import model_file
from pytest_meshnet.parity.oracles.whole_transformers import gguf_file
from pytest_meshnet.parity.record import RouteRecord
from pytest_meshnet.parity.section import MEDIA_TYPE, NAME, attachment, section
from pytest_meshnet.runtime.descriptor import Descriptor
from pytest_meshnet.runtime.errors import Refusal
from pytest_meshnet.runtime.route_making import MakeInProcess, RouteMaker
from pytest_meshnet.runtime.weights import file_digest
from pytest_meshnet.suite.evidence import Attachments
from pytest_meshnet.suite.parity_progress import on_terminal

if TYPE_CHECKING:
    from pytest_meshnet.protocol.tensors import DType
    from pytest_meshnet.reference.models import BuiltIn
    from pytest_meshnet.runtime.generation import Generator
    from pytest_meshnet.runtime.target import InProcess

FiguresOfLane = Callable[[str, Sequence[RouteRecord]], None]

_BENCH = pytest.StashKey[ParityBench]()


def bench_of(config: pytest.Config, descriptor: Descriptor, mutant: str, place: int) -> ParityBench:
    """The bench of this process, made on the first call. Raises Refusal."""
    if _BENCH not in config.stash:
        from pytest_meshnet.reference.catalogue import entry

        chosen = settings(config)
        here = in_process_shards(descriptor, mutant) if chosen.transport == "in-process" else None
        bench = open_bench(descriptor, chosen.seed, in_process=here, place=place)
        if mutant and entry(mutant).kind == "variant":
            # It may round in its own way: its bits are its own.
            bench.spec = replace(bench.spec, same_kernels=False)
        capture = config.pluginmanager.getplugin("capturemanager")
        bench.report = on_terminal(capture.global_and_fixture_disabled if capture else nullcontext)
        config.stash[_BENCH] = bench
    return config.stash[_BENCH]


def open_bench(
    descriptor: Descriptor,
    seed: int,
    *,
    in_process: MakeInProcess | None = None,
    place: int = 0,
) -> ParityBench:
    """Make the bench of a descriptor. Raises Refusal when it names no route and no oracle."""
    route, oracle = descriptor.route, descriptor.oracle
    if route is None or oracle is None:
        raise Refusal(
            f"{descriptor.name} claims parity but describes no [route] with an [oracle]: add both, "
            "or do not claim it"
        )
    corpus = _corpus(descriptor, seed)
    calibration = Calibration.read(oracle.calibration) if oracle.calibration else None
    if calibration is not None:
        calibration.check_subject(subject_of(descriptor, corpus))
    engine = engine_of(route.engine, descriptor) if route.engine else None
    return ParityBench(
        maker=None if engine else RouteMaker(descriptor, in_process=in_process, place=place),
        engine=engine,
        oracle=_oracle(descriptor),
        spec=oracle,
        corpus=corpus,
        calibration=calibration,
    )


def subject_of(descriptor: Descriptor, corpus: Corpus) -> Subject:
    """What figures of a descriptor's route belong to. Raises Refusal for weights nobody knows."""
    route, oracle = descriptor.route, descriptor.oracle
    assert route is not None, "only a route is calibrated"
    assert oracle is not None, "only beside an oracle"
    return Subject(
        model=oracle.model or descriptor.name,
        digest=_weights_digest(descriptor),
        dtype="" if route.engine else route.usual_dtype.name.lower(),
        corpus=corpus_digest(corpus),
    )


def close(config: pytest.Config) -> None:
    """End what the bench of this process started."""
    if _BENCH in config.stash:
        config.stash[_BENCH].close()
        del config.stash[_BENCH]


@pytest.fixture
def figures_of_lane(attachments: Attachments, parity: ParityBench) -> FiguresOfLane:
    """Attaches what a lane measured to the evidence of a run, for the report's parity section."""

    def attach(lane: str, records: Sequence[RouteRecord]) -> None:
        examined = min(len(one.whole) for one in records)
        about = {
            "oracle": f"{parity.spec.kind} {parity.spec.model}".strip(),
            "prompts": f"{examined} of {len(parity.corpus)}",
        }
        if parity.calibration is not None:
            about["bound"] = repr(parity.calibration.bound)
        attachments.data(NAME, attachment(section(lane, about, records)), MEDIA_TYPE)

    return attach


def _corpus(descriptor: Descriptor, seed: int) -> Corpus:
    assert descriptor.oracle is not None
    path = descriptor.oracle.corpus
    assert descriptor.model is not None, "a descriptor with a route knows its model"
    return read_corpus(path) if path else drawn_corpus(descriptor.model.vocab_size, seed)


def _weights_digest(descriptor: Descriptor) -> str:
    oracle = descriptor.oracle
    assert oracle is not None
    if oracle.kind == "built-in":
        return _built_in(oracle.model).digest()
    if oracle.kind == "transformers":
        return file_digest(gguf_file(oracle.model, descriptor.folder))
    if oracle.engine is not None and oracle.engine.model:
        return file_digest(model_file(oracle.engine.model, descriptor.folder))
    if oracle.binding is not None and "artifact_digest" in oracle.binding:
        return oracle.binding["artifact_digest"]
    raise Refusal(
        f"nobody knows the weights of the oracle of {descriptor.name}, which figures belong to: "
        "give artifact_digest in oracle.binding"
    )


def _built_in(name: str) -> BuiltIn:
    from pytest_meshnet.reference.models import ModelUnavailable, built_in

    try:
        return built_in(name)
    except ModelUnavailable as error:
        raise Refusal(str(error)) from None


def _oracle(descriptor: Descriptor) -> Generator:
    from pytest_meshnet.reference.models import MODELS

    assert descriptor.oracle is not None
    name = descriptor.oracle.model
    if descriptor.oracle.kind != "built-in":
        return external_oracle(descriptor)
    whole = _built_in(name).whole()
    if name in MODELS:
        oracle: Generator = whole
        return oracle
    from pytest_meshnet.parity.oracles.whole_transformers import TransformersOracle

    return TransformersOracle(whole)


def in_process_shards(descriptor: Descriptor, mutant: str) -> MakeInProcess:
    """Make Shards of the oracle's built-in model in this process, with a mutant or a control."""
    assert descriptor.oracle is not None, "only a route with an oracle is made"
    name = descriptor.oracle.model

    def make(start: int, end: int, dtype: DType, control: str) -> InProcess:
        from pytest_meshnet.reference.catalogue import build
        from pytest_meshnet.reference.models import BUILT_IN
        from pytest_meshnet.runtime.in_process import InProcessTransport

        def made() -> InProcessTransport:
            served, model = BUILT_IN[name].shard(start, end, dtype, max_context=256)
            return InProcessTransport(*build(control or mutant, served, model))

        return made

    return make
