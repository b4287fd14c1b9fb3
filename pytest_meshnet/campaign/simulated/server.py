"""The routes of a simulated FreeToken: health, stats, instrumentation and streamed completions."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from socketserver import TCPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

from pytest_meshnet.campaign.simulated.engine import RING, Engine, Generation
from pytest_meshnet.campaign.simulated.switches import GPU_NAME, OTHER_GPU

LOADING_LOOKS = 1
"""How often /health says that the model is still loading."""


@dataclass(frozen=True, slots=True)
class Settings:
    """The flags of `ft serve`, by their names."""

    model: str
    host: str
    port: int
    moe_backend: str
    nvfp4_backend: str
    moe_cache_auto: bool
    moe_cache_size: int | None
    moe_cpu_layers: int
    max_running_requests: int
    cuda_graph_max_bs: int
    memory_ratio: float
    sampling_defaults: str
    kv_reserve_tokens: int
    max_seq_len_override: int
    gpu: str


def serve(settings: Settings, switches: frozenset[str]) -> None:
    """Serve until the process is ended."""
    server = _Server((settings.host, settings.port), _Handler)
    server.settings, server.switches = settings, switches
    server.engine, server.looks = Engine(switches, settings.port), 0
    server.serve_forever()


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    # Without a name lookup, which may wait for a resolver that is not there.
    server_bind = TCPServer.server_bind
    settings: Settings
    switches: frozenset[str]
    engine: Engine
    looks: int


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: _Server

    def log_message(self, *_: Any) -> None:
        """Keep the log of the process for what a runtime says."""

    def do_GET(self) -> None:
        place = urlsplit(self.path)
        limit = int(parse_qs(place.query).get("limit", ["8"])[0])
        if place.path == "/health":
            self._answer(_health(self.server))
        elif place.path == "/v1/stats":
            self._answer(_stats(self.server))
        elif place.path == "/v1/instrumentation" and _instrumented(self.server):
            self._answer(_instrumentation(self.server, min(limit, RING)))
        else:
            self._answer({"error": f"no route {place.path}"}, 404)

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        switches, served = self.server.switches, self.server.engine.served
        generation = self.server.engine.generate(body)
        if "execution.generation_failed" in switches and served == 1:
            self._answer({"error": "CUDA out of memory"}, 500)
            return
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        for event in _events(generation):
            data = f"data: {event}\n\n".encode()
            self.wfile.write(f"{len(data):x}\r\n".encode() + data + b"\r\n")
            self.wfile.flush()
        self.wfile.write(b"0\r\n\r\n")

    def _answer(self, document: Mapping[str, Any], status: int = 200) -> None:
        data = json.dumps(document).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)


def _health(server: _Server) -> dict[str, Any]:
    server.looks += 1
    loading = server.looks <= LOADING_LOOKS
    return {
        "status": "loading" if loading else "ok",
        "maintenance": "loading" if loading else "serving",
    }


def _stats(server: _Server) -> dict[str, Any]:
    uuid = OTHER_GPU if "gpu.mismatch" in server.switches else server.settings.gpu
    gpus = [{"index": 0, "uuid": uuid, "name": GPU_NAME}]
    return {
        "gpus": [] if "gpu.unproven" in server.switches else gpus,
        "vram_bytes": 10_800_000_000,
        "kv": {"used_pages": 0, "total_pages": 17_000, "page_size": 1},
        "simulated": True,
    }


def _instrumented(server: _Server) -> bool:
    if "runtime.instrumentation_unavailable" in server.switches:
        return False
    return not ("prefill.unavailable" in server.switches and server.engine.served)


def _instrumentation(server: _Server, limit: int) -> dict[str, Any]:
    document: dict[str, Any] = {
        "schema": "freetoken.instrumentation/1",
        "prefill": server.engine.prefill(limit),
    }
    if "runtime.config_missing" not in server.switches:
        document["runtime_config"] = _configuration(server.settings, server.switches)
    return document


def _configuration(asked: Settings, switches: frozenset[str]) -> dict[str, Any]:
    backend = "hybrid" if asked.moe_backend == "auto" else asked.moe_backend
    nvfp4 = asked.nvfp4_backend
    if nvfp4 == "auto":
        nvfp4 = "marlin" if backend == "offload" else "triton"
    if asked.moe_backend == "auto" and "sweep.b3_resolution_unexpected" in switches:
        backend = "fused"
    first = asked.moe_backend == "offload"
    other_quant = not first and "held_constant.expert_quant_mismatch" in switches
    other_page = not first and "held_constant.mismatch" in switches
    hybrid = {"hybrid_max_fetch_resolved": 4, "hybrid_fetch_fraction_resolved": 0.25}
    return {
        "schema": "freetoken.runtime_report/1",
        "simulated": True,
        "model": {"expert_quant": "mxfp4" if other_quant else "nvfp4"},
        "moe": {
            "backend_requested": asked.moe_backend,
            "backend_resolved": backend,
            "cpu_threads": 12,
            "cpu_layers_resolved": [],
            **(hybrid if backend == "hybrid" else {}),
        },
        "nvfp4": {"requested": asked.nvfp4_backend, "resolved": nvfp4},
        "cache": {
            "policy_requested": "auto" if asked.moe_cache_auto else "size",
            "resolved_slots": asked.moe_cache_size or 900,
            "kv_reserve_tokens": asked.kv_reserve_tokens,
        },
        "runtime": {
            "attention_backend": None if "runtime.config_missing_field" in switches else "triton",
            "page_size": 16 if other_page else 1,
            "memory_ratio": asked.memory_ratio,
            "max_running_req": asked.max_running_requests,
            "max_seq_len": asked.max_seq_len_override,
            "num_pages": 17_000 + len(backend),
            "cuda_graph_max_bs": asked.cuda_graph_max_bs,
            "cuda_graph_capture_happened": backend != "cpu",
            "max_prefill_length_resolved": 8192,
            "cache_type_resolved": "radix",
        },
    }


def _events(generation: Generation) -> Iterator[str]:
    name = f"chatcmpl-{generation.uid}"

    def event(**fields: Any) -> str:
        return json.dumps({"id": name, "object": "chat.completion.chunk", **fields})

    # A chunk with only a role, as servers send first: no token has been generated yet.
    yield event(choices=[{"index": 0, "delta": {"role": "assistant", "content": ""}}])
    for number, word in enumerate(generation.words):
        kind = "reasoning_content" if number < len(generation.words) // 2 else "content"
        yield event(choices=[{"index": 0, "delta": {kind: f"{word} "}}])
    completion = len(generation.words)
    usage = {
        "prompt_tokens": generation.prompt_tokens,
        "completion_tokens": completion,
        "total_tokens": generation.prompt_tokens + completion,
    }
    yield event(choices=[], usage=usage)
    yield "[DONE]"
