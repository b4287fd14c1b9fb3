"""One parity run: the routes of a descriptor beside its oracle, over one corpus."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from pytest_meshnet.parity.calibration import Calibration
from pytest_meshnet.parity.controls import Control, ControlBroken, controlled, plan_of
from pytest_meshnet.parity.corpus import Corpus, too_small
from pytest_meshnet.parity.lanes import EXACT_TOKENS
from pytest_meshnet.parity.metrics import Comparison, compare
from pytest_meshnet.parity.oracles.llama_server import LlamaServer
from pytest_meshnet.parity.record import CHUNK_BOUNDS, SESSIONS, SWEEP_TOKENS, RouteRecord
from pytest_meshnet.parity.rows import blind_shards
from pytest_meshnet.protocol.tensors import DType
from pytest_meshnet.runtime.errors import Nonconformance, NotProvoked, UnitRefused
from pytest_meshnet.runtime.generation import Generation, Generator
from pytest_meshnet.runtime.route import Route
from pytest_meshnet.runtime.route_making import RouteMaker, RoutePlan
from pytest_meshnet.runtime.route_session import RouteLost
from pytest_meshnet.runtime.route_spec import OracleSpec

Progress = Callable[[str, int, int], None]
"""Told what is measured now, how many routes are done, and how many there are."""


def _silent(what: str, done: int, total: int) -> None:
    del what, done, total


_Key = tuple[tuple[int, ...], int | None]

ENGINE = "the whole model"


@dataclass(slots=True)
class ParityBench:
    """The routes under test, the oracle, and what was measured so far.

    `engine` stands in the place of a route where a whole model behind an API is examined; `maker`
    is None then. `calibration` is None where no figures are kept with the model.
    """

    maker: RouteMaker | None
    engine: Generator | None
    oracle: Generator
    spec: OracleSpec
    corpus: Corpus
    calibration: Calibration | None
    report: Progress = _silent
    _known: dict[_Key, Generation] = field(default_factory=dict)
    _records: dict[RoutePlan | None, RouteRecord] = field(default_factory=dict)

    # What there is to examine ------------------------------------------------------------------

    @property
    def seam(self) -> RouteMaker:
        """The maker of routes. Raises NotProvoked for a whole model, which has no seam."""
        if self.maker is None:
            raise NotProvoked("a whole model behind an API has no seam")
        return self.maker

    @property
    def is_whole(self) -> bool:
        """Whether a whole model behind an API is examined instead of a route."""
        return self.engine is not None

    def check_gated(self) -> None:
        """Raise NotProvoked where tokens decide nothing: another engine on weights of its own."""
        if self.is_whole and not self.spec.near_lossless:
            raise NotProvoked(
                "another engine is reported, and judged only on near-lossless weights: "
                "oracle.near_lossless is false"
            )

    def plans(self, dtype: DType) -> list[RoutePlan]:
        """The routes to examine in a boundary dtype.

        Raises NotProvoked when it is not offered, or there is none: one layer cannot be cut.
        """
        if dtype not in self.seam.spec.dtypes:
            raise NotProvoked(f"the route offers no boundary in {dtype.name.lower()}")
        plans = self.seam.plans(dtype)
        if not plans:
            raise NotProvoked("a model of one layer has no cut: there is no route to examine")
        return plans

    @property
    def production_dtype(self) -> DType:
        """The declared activation dtype. Raises NotProvoked where float32 alone is offered."""
        usual = self.seam.spec.usual_dtype
        if usual is DType.FLOAT32:
            raise NotProvoked("the route offers no boundary narrower than float32")
        return usual

    # What was measured -------------------------------------------------------------------------

    def exact_records(self) -> list[RouteRecord]:
        """Every route on the float32 lane, each measured once; an engine as it is."""
        return self._measured(None if self.is_whole else self.plans(DType.FLOAT32))

    def production_records(self) -> list[RouteRecord]:
        """Every route in the production dtype, each measured once; an engine as it is."""
        return self._measured(None if self.is_whole else self.plans(self.production_dtype))

    def usual_records(self) -> list[RouteRecord]:
        """Every route as it is meant to be used: in production dtype, or in the one it offers."""
        if self.is_whole or self.seam.spec.usual_dtype is DType.FLOAT32:
            return self.exact_records()
        return self.production_records()

    def _measured(self, plans: Sequence[RoutePlan] | None) -> list[RouteRecord]:
        wanted: Sequence[RoutePlan | None] = [None] if plans is None else plans
        missing = [plan for plan in wanted if plan not in self._records]
        for number, plan in enumerate(missing):
            self.report(str(plan or ENGINE), number, len(missing))
            for following in missing[number + 1 : number + 2]:
                if following is not None:
                    self.seam.prepare(following)
            self._records[plan] = self._measure(plan)
        self.report("", len(missing), len(missing))
        return [self._records[plan] for plan in wanted]

    def _measure(self, plan: RoutePlan | None) -> RouteRecord:
        generator = self.engine if plan is None else self.route(plan)
        assert generator is not None, "an engine or a route is examined"
        names = self.fitting(generator)
        made = {name: generator.generate(self.corpus[name], EXACT_TOKENS) for name in names}
        swept = plan is None or plan.dtype is DType.FLOAT32
        return RouteRecord(
            label=str(plan or ENGINE),
            ranges=plan.ranges if plan else (),
            whole={name: compare(one, self.expected(one.prompt)) for name, one in made.items()},
            chunked=self._chunked(generator) if swept else {},
            together=self._together(generator) if swept else {},
            work=tuple(work for one in made.values() for work in one.work),
            epochs=max(one.epochs for one in made.values()),
            blind=self._blind(plan),
            corpus=len(self.corpus),
        )

    def _blind(self, plan: RoutePlan | None) -> tuple[tuple[int, int], ...]:
        if plan is None or plan.dtype is not self.seam.spec.usual_dtype:
            return ()
        return blind_shards(self.route(plan))

    def _chunked(self, generator: Generator) -> dict[int, dict[str, Comparison]]:
        name = max(self.fitting(generator), key=lambda one: len(self.corpus[one]))
        return {
            bound: self.compared(
                generator, prompts=[name], count=SWEEP_TOKENS, chunk_tokens=bound, alike=True
            )
            for bound in CHUNK_BOUNDS
        }

    def _together(self, generator: Generator) -> dict[int, dict[str, Comparison]]:
        names = self.fitting(generator)
        return {
            sessions: self.compared_together(
                generator, [names[i % len(names)] for i in range(sessions)], SWEEP_TOKENS
            )
            for sessions in SESSIONS
            if not isinstance(generator, Route) or sessions <= generator.places
        }

    def fitting(self, generator: Generator) -> list[str]:
        """The prompts that leave room for the tokens of a lane, by name.

        Raises NotProvoked when the context is too small for as many as a corpus has at least.
        """
        context = generator.context if isinstance(generator, Route) else None
        names = [
            name
            for name, ids in self.corpus.items()
            if context is None or len(ids) + EXACT_TOKENS - 1 <= context
        ]
        if lack := too_small([self.corpus[name] for name in names]):
            raise NotProvoked(
                f"with {EXACT_TOKENS} tokens more a context of {context} holds {lack}"
            )
        return names

    def prepare(self, control: Control, dtype: DType) -> None:
        """Start what `controlled` will be asked for after the next, so that it loads meanwhile."""
        self.seam.prepare(plan_of(self.seam, control, dtype))

    def route(self, plan: RoutePlan) -> Route:
        """The running route of a plan."""
        return self.seam.make(plan)

    def expected(
        self, prompt: Sequence[int], count: int = EXACT_TOKENS, chunk_tokens: int | None = None
    ) -> Generation:
        """The oracle's generation, asked for once. `chunk_tokens` chunks the oracle alike."""
        key = (tuple(prompt), chunk_tokens)
        known = self._known.get(key)
        if known is None or len(known.tokens) < count:
            known = self.oracle.generate(prompt, count, chunk_tokens=chunk_tokens)
            self._known[key] = known
        return known.first(count)

    def compared(
        self,
        generator: Generator,
        *,
        prompts: Sequence[str] | None = None,
        count: int = EXACT_TOKENS,
        chunk_tokens: int | None = None,
        alike: bool = False,
    ) -> dict[str, Comparison]:
        """Compare a generator with the oracle on the corpus, or on `prompts` of it by name.

        `alike` has the oracle prefill in the same chunks, where its bits are asked for.
        """
        return {
            name: compare(
                generator.generate(self.corpus[name], count, chunk_tokens=chunk_tokens),
                self.expected(self.corpus[name], count, chunk_tokens if alike else None),
            )
            for name in (self.fitting(generator) if prompts is None else prompts)
        }

    def controlled(
        self, control: Control, dtype: DType, most: int | None = None
    ) -> dict[str, Comparison] | None:
        """Compare a route with a negative control at work; None when its Shards refuse it.

        On the corpus, or on `most` prompts of it. What a Shard refuses with a code is found
        already, before any number is looked at. Raises ControlBroken for a route that merely
        breaks: a crash would hide that nothing looks at the numbers.
        """
        try:
            route = controlled(self.seam, control, dtype)
            return self.compared(route, prompts=self.fitting(route)[:most])
        except UnitRefused:
            return None
        except (Nonconformance, RouteLost) as error:
            raise ControlBroken(f"{control.name} broke, which is no finding: {error}") from error

    def compared_together(
        self, generator: Generator, prompts: Sequence[str], count: int = EXACT_TOKENS
    ) -> dict[str, Comparison]:
        """Compare several sessions that run at once. A prompt may be named several times."""
        made = generator.generate_together([self.corpus[name] for name in prompts], count)
        return {
            f"{name} (session {number})": compare(one, self.expected(one.prompt, count))
            for number, (name, one) in enumerate(zip(prompts, made, strict=True), start=1)
        }

    def close(self) -> None:
        """End everything that was started."""
        if self.maker is not None:
            self.maker.close()
        for one in (self.engine, self.oracle):
            if isinstance(one, LlamaServer):
                one.close()
