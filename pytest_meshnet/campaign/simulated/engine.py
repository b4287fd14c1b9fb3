"""What a simulated FreeToken does with a request: invented words, an invented clock, a cache.

A token is a word. A greedy answer follows from its prompt alone; a sampled one also from the seed
of the server and the number of the request, as two servers never sample alike.
"""

from __future__ import annotations

import hashlib
import random
import threading
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

RING = 256
PAGE = 64
"""Records that the ring keeps, and tokens of a page of the cache."""

_VOCABULARY = ("the", "a", "of", "route", "layer", "token", "cache", "expert", "gate", "sum")


@dataclass(frozen=True, slots=True)
class Generation:
    """What one request gets: its uid, the tokens of its prompt, and its words."""

    uid: int
    prompt_tokens: int
    words: tuple[str, ...]


@dataclass(slots=True)
class Engine:
    """The state behind the routes; safe to use from several threads."""

    switches: frozenset[str]
    seed: int
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _next_uid: int = 0
    _observed: int = 0
    _cached: set[str] = field(default_factory=set)
    _records: deque[dict[str, Any]] = field(default_factory=lambda: deque(maxlen=RING))

    @property
    def served(self) -> int:
        """How many requests there were."""
        return self._next_uid

    def generate(self, body: Mapping[str, Any]) -> Generation:
        """Take a request: it is prefilled, recorded and answered as a whole."""
        prompt = " ".join(str(one["content"]) for one in body["messages"])
        tokens = len(prompt.split())
        with self._lock:
            uid = self._next_uid
            self._next_uid += 1
            self._prefill(uid, prompt, tokens)
        if "workload.prompt_shape_violation" in self.switches:
            tokens = 100_000
        count = int(body["max_tokens"])
        if "workload.completion_length_mismatch" in self.switches:
            count -= 1
        chance = random.Random(
            prompt if body.get("temperature") == 0 else f"{self.seed} {uid} {prompt}"
        )
        return Generation(uid, tokens, tuple(chance.choices(_VOCABULARY, k=count)))

    def _prefill(self, uid: int, prompt: str, tokens: int) -> None:
        key = hashlib.sha256(prompt.encode()).hexdigest()
        cached = tokens // PAGE * PAGE if key in self._cached else 0
        cached = min(cached, tokens - 1)
        self._cached.add(key)
        self._observed += 1
        noise = random.Random(uid).uniform(0.99, 1.01)
        record = {
            "seq": self._observed,
            "uid": uid,
            "wall_monotonic": float(self._observed),
            "gpu_ms": (20.0 + (tokens - cached) * 0.9) * noise,
            "new_tokens": tokens - cached,
            "cached_tokens": cached,
            "chunks": 1 + (tokens - cached) // 8192,
            "shared_batch": "prefill.shared_batch" in self.switches,
        }
        if "prefill.unusable_timing" in self.switches:
            record["gpu_ms"] = 0.0
        if "prefill.no_fresh_record" not in self.switches:
            self._records.append(record)
        if "prefill.ambiguous_records" in self.switches:
            self._observed += 1
            self._records.append(record | {"seq": self._observed})

    def prefill(self, limit: int) -> dict[str, Any]:
        """Return the `prefill` part of the instrumentation, the newest records last."""
        with self._lock:
            records = list(self._records)[-limit:] if limit else []
            return {
                "enabled": "prefill.instrumentation_disabled" not in self.switches,
                "observed": self._observed,
                "records": records,
            }
