"""What crosses the seams of a route, and how long the wire takes for it.

Latency and bandwidth are kept apart: a faster link shortens the second and not the first. Times are
totals over the route's seams, which a token passes one after the other.
"""

from dataclasses import dataclass
from typing import Any

from pytest_meshnet.target.fields import TargetRefused

HOP_LATENCY_MS = 0.5  # one-way, a switched hop; the published plan assumes it
BFLOAT16_BYTES = 2  # hidden states between Shards travel as bfloat16 unless declared otherwise
INDEX_BYTES = 4  # one top-k index travels as int32


@dataclass(frozen=True, slots=True)
class Boundary:
    """What one token carries over one seam: `hidden_size` values of `value_bytes` bytes each.

    `index_topk` is how many indices a broken IndexShare group sends beside them, for each query.
    """

    hidden_size: int
    value_bytes: int
    index_topk: int

    @property
    def token_bytes(self) -> int:
        """Bytes of hidden state for one token at one seam."""
        return self.hidden_size * self.value_bytes

    @property
    def sideband_bytes(self) -> int:
        """Bytes of top-k indices for one query at a seam that cuts an IndexShare group."""
        return self.index_topk * INDEX_BYTES


@dataclass(frozen=True, slots=True)
class SeamPlan:
    """The seams of one route. Bytes are for one seam, times in milliseconds are for all of them."""

    node_count: int
    hidden_size: int
    bytes_per_token_per_seam: int
    prefill_bytes_per_seam: int
    dsa_sideband_bytes_per_query: int
    link_rate_gbps: float
    meets_alpha_minimum: bool
    is_recommended_link: bool
    decode_latency_ms_per_token: float
    decode_serialization_ms_per_token: float
    prefill_serialization_ms: float

    @property
    def seam_count(self) -> int:
        """One seam between each two neighbours."""
        return self.node_count - 1

    def to_dict(self) -> dict[str, Any]:
        """Return the published form: times rounded to 1e-4 ms a token, 1e-3 ms a prefill."""
        share = round(self.decode_serialization_ms_per_token, 4)
        return {
            "node_count": self.node_count,
            "seam_count": self.seam_count,
            "hidden_size": self.hidden_size,
            "bytes_per_token_per_seam": self.bytes_per_token_per_seam,
            "prefill_bytes_per_seam": self.prefill_bytes_per_seam,
            "decode_bytes_per_seam_per_token": self.bytes_per_token_per_seam,
            "dsa_sideband_bytes_per_query": self.dsa_sideband_bytes_per_query,
            "link_rate_gbps": self.link_rate_gbps,
            "meets_alpha_minimum": self.meets_alpha_minimum,
            "is_recommended_link": self.is_recommended_link,
            "decode_serialization_ms_per_token": share,
            "decode_latency_ms_per_token": round(self.decode_latency_ms_per_token, 4),
            "decode_bandwidth_share_ms_per_token": share,
            "prefill_serialization_ms": round(self.prefill_serialization_ms, 3),
        }


def serialization_ms(payload_bytes: int, link_rate_gbps: float) -> float:
    """Return the milliseconds that `payload_bytes` take on a link of that many 10^9 bits/s."""
    return payload_bytes * 8 / (link_rate_gbps * 1e9) * 1e3


def plan_seams(
    node_count: int,
    boundary: Boundary,
    *,
    context_tokens: int,
    link_rate_gbps: float,
    minimum_gbps: float,
    recommended_gbps: float,
    hop_latency_ms: float = HOP_LATENCY_MS,
) -> SeamPlan:
    """Return the seams of a route of `node_count` nodes for one prefill of `context_tokens`.

    Raises TargetRefused: too-few-nodes, link-rate.
    """
    if node_count < 2:
        raise TargetRefused("too-few-nodes", f"{node_count} node has no seam: name at least two")
    if isinstance(link_rate_gbps, bool) or not 0 < link_rate_gbps < float("inf"):
        raise TargetRefused(
            "link-rate", f"the link rate is {link_rate_gbps!r}, expected positive Gbit/s"
        )
    seams = node_count - 1
    prefill = boundary.token_bytes * context_tokens
    return SeamPlan(
        node_count=node_count,
        hidden_size=boundary.hidden_size,
        bytes_per_token_per_seam=boundary.token_bytes,
        prefill_bytes_per_seam=prefill,
        dsa_sideband_bytes_per_query=boundary.sideband_bytes,
        link_rate_gbps=link_rate_gbps,
        meets_alpha_minimum=link_rate_gbps >= minimum_gbps,
        is_recommended_link=link_rate_gbps >= recommended_gbps,
        decode_latency_ms_per_token=seams * hop_latency_ms,
        decode_serialization_ms_per_token=serialization_ms(
            seams * boundary.token_bytes, link_rate_gbps
        ),
        prefill_serialization_ms=serialization_ms(seams * prefill, link_rate_gbps),
    )
