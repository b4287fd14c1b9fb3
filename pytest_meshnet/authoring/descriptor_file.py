"""`pytest-meshnet init`: a descriptor with what GetCapability tells, and places for the rest."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

from pytest_meshnet.protocol.generated import shard_runtime_pb2 as pb
from pytest_meshnet.runtime.errors import Refusal

ANSWER = 10.0
"""Seconds that a runtime has to answer."""

FILL_IN = "FILL IN"


def init(endpoint: str, out: Path) -> str:
    """Ask the runtime at `endpoint` ("host:port") and write its descriptor to `out`.

    Returns what to do next. Raises Refusal when nothing answers or `out` exists.
    """
    if out.exists():
        raise Refusal(f"{out} exists and is never overwritten: name another file with --out")
    text = descriptor(endpoint, _report(endpoint))
    try:
        with out.open("x", encoding="utf-8") as stream:
            stream.write(text)
    except OSError as error:
        raise Refusal(f"{out} cannot be written: {error}") from None
    open_places = [line.split(" ", 1)[0] for line in text.splitlines() if f"# {FILL_IN}" in line]
    return (
        f"wrote {out}; fill in {', '.join(open_places)} (the comments say how), then:\n"
        f"pytest-meshnet doctor --target {out}\n"
    )


def _report(endpoint: str) -> pb.CapabilityReport:
    from pytest_meshnet.runtime.grpc_transport import GrpcTransport
    from pytest_meshnet.runtime.transport import UnaryFailed

    host, colon, port = endpoint.rpartition(":")
    if not (host and colon and port.isdecimal()):
        raise Refusal(f"{endpoint!r} is no endpoint: expected HOST:PORT, such as 127.0.0.1:50051")
    transport = GrpcTransport(endpoint)
    try:
        return transport.capability(
            pb.CapabilityRequest(schema_version=pb.SCHEMA_VERSION_1), ANSWER
        )
    except UnaryFailed as failed:
        raise Refusal(
            f"{endpoint} does not answer GetCapability ({failed}): {_cure(failed.code)}"
        ) from None
    finally:
        transport.close()


def _cure(code: str) -> str:
    if code == "UNIMPLEMENTED":
        return (
            "register the service meshnet.shard.v1.ShardRuntime and implement GetCapability; "
            "`pytest-meshnet proto` prints the .proto"
        )
    if code == "UNAVAILABLE":
        return "start the runtime, without TLS, and check host and port"
    return "look into the runtime's log: GetCapability must answer at once"


def descriptor(endpoint: str, report: pb.CapabilityReport) -> str:
    """Return the descriptor of what a runtime told of itself, as TOML with comments."""
    return "\n".join([*_head(endpoint), *_shard(endpoint, report), *_model(report), ""])


def _head(endpoint: str) -> Iterator[str]:
    yield f"# From GetCapability of {endpoint}. The wire does not tell what is marked {FILL_IN}:"
    yield "# until every such line has a value, the file is refused."
    yield "schema = 1"
    yield _line('name = ""', f"{FILL_IN}: how you call the runtime")
    yield _line('vendor = ""', f"{FILL_IN}: who makes it")
    yield _line('version = ""', f"{FILL_IN}: which build this is")
    yield _line('profiles = ["core-wire"]', "what you claim; core, kv and more: docs/profiles.md")


def _line(value: str, comment: str) -> str:
    return f"{value:<34} # {comment}"


def _shard(endpoint: str, report: pb.CapabilityReport) -> Iterator[str]:
    served, flow = report.shard_range, report.flow_control
    start, end = served.start_layer, served.end_layer
    yield "\n[[shards]]"
    if end > start:
        yield _line(f"range = [{start}, {end}]", f"as reported: layers {start} to {end - 1}")
    else:
        yield _line("range = [0, 0]", f"{FILL_IN}: [first layer, last + 1]; none was reported")
    yield f"endpoint = {json.dumps(endpoint)}"
    yield "# With a start command in place of `endpoint` the suite starts the runtime itself. Only"
    yield "# so can it examine crashes, cold starts and logs; else a certificate is endpoint-only:"
    yield '# start = ["./my-runtime", "--listen", "{listen}"]'
    yield "#"
    yield f"# Reported: backend {report.backend!r}, device {report.device!r},"
    yield f"# {report.max_concurrent_sessions} sessions of {report.max_context_tokens} tokens,"
    yield f"# {flow.credits_granted} credits, {flow.max_inflight_chunks} chunks in flight,"
    yield f"# {flow.max_chunk_bytes} bytes and {flow.max_prefill_chunk_tokens} tokens a chunk."
    if start == 0:
        yield "# Layer 0 makes it a head: units carry token_ids, int32 [1, n]."


def _model(report: pb.CapabilityReport) -> Iterator[str]:
    if report.HasField("boundary"):
        told = report.boundary
        yield f"\n# The Shard reports its boundary (hidden size {told.hidden_size}, vocabulary"
        yield f"# {told.vocab_size}): the file needs no [model]."
        return
    last = report.shard_range.end_layer
    whole = (
        f"of the whole model; {last} if this Shard is its tail" if last else "of the whole model"
    )
    yield "\n[model]"
    yield _line("layers = 0", f"{FILL_IN}: layers {whole}")
    yield _line("hidden_size = 0", f"{FILL_IN}: width of hidden_states, [1, n, hidden_size]")
    yield _line("vocab_size = 0", f"{FILL_IN}: width of a tail's logits, bound of token ids")
    yield _line('# boundary_dtypes = ["bfloat16"]', "of hidden_states; the first is used")
    yield _line("# input_scale = 1.0", "standard deviation of real hidden_states at this seam")
