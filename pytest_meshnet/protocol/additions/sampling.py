"""The sampling contract of a session and the typed result of a tail.

The contract's digest is defined by the wire, so the protocol owns it. Choosing a token is in
`choice.py`.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from math import isfinite

from pytest_meshnet.protocol.additions.canonical import canonical_digest
from pytest_meshnet.protocol.codec import MAX_CHUNK_BYTES, decode_tensor, encode_tensor
from pytest_meshnet.protocol.errors import PayloadCorrupt, ProtocolError
from pytest_meshnet.protocol.generated import shard_runtime_pb2 as pb
from pytest_meshnet.protocol.tensors import DType, Tensor

DOMAIN = "meshnet.sampling.v1"
LOGITS = "logits"


class TailWant(IntEnum):
    """What a tail result must hold, with the numbers of the wire's TailWant enum."""

    UNSPECIFIED = 0
    TOKEN = 1
    LOGITS = 2
    BOTH = 3

    @property
    def token(self) -> bool:
        """Whether a sampled token is wanted."""
        return self in (TailWant.TOKEN, TailWant.BOTH)

    @property
    def logits(self) -> bool:
        """Whether logits are wanted."""
        return self in (TailWant.LOGITS, TailWant.BOTH)


@dataclass(frozen=True, slots=True)
class SamplingContract:
    """How the tail samples in one session.

    `temperature` 0 is greedy; `top_k` 0 and `top_p` 0 bound nothing. The seed is an unsigned 64-bit
    number; template digest and reasoning effort name what made the prompt, and only identify.
    """

    temperature: float = 0.0
    top_k: int = 0
    top_p: float = 0.0
    seed: int = 0
    chat_template_digest: str = ""
    reasoning_effort: str = ""
    want: TailWant = TailWant.TOKEN

    @classmethod
    def from_proto(cls, message: pb.SamplingContract) -> SamplingContract:
        """Read the wire form.

        Raises ProtocolError for a negative or non-finite temperature, a `top_p` outside [0, 1], and
        a wanted result that is unspecified or unknown.
        """
        if not (isfinite(message.temperature) and message.temperature >= 0):
            raise ProtocolError("sampling", "the temperature is not a finite number from 0 up")
        if not 0 <= message.top_p <= 1:
            raise ProtocolError("sampling", "top_p is not within 0 and 1")
        if int(message.want) not in (TailWant.TOKEN, TailWant.LOGITS, TailWant.BOTH):
            raise ProtocolError("sampling", "want is not one of TOKEN, LOGITS, BOTH")
        return cls(
            message.temperature,
            message.top_k,
            message.top_p,
            message.seed,
            message.chat_template_digest,
            message.reasoning_effort,
            TailWant(message.want),
        )

    def to_proto(self) -> pb.SamplingContract:
        """Write the wire form."""
        return pb.SamplingContract(
            temperature=self.temperature,
            top_k=self.top_k,
            top_p=self.top_p,
            seed=self.seed,
            chat_template_digest=self.chat_template_digest,
            reasoning_effort=self.reasoning_effort,
            want=int(self.want),  # type: ignore[arg-type]
        )

    def document(self) -> dict[str, object]:
        """What is digested: the seven fields by name, floats as their shortest decimal string.

        `want` is the value's name in the .proto, such as TAIL_WANT_BOTH. A float's shortest string
        is Python's repr of the double, so 0 is "0.0" and a tenth "0.1".
        """
        body = {
            "temperature": repr(float(self.temperature)),
            "top_k": self.top_k,
            "top_p": repr(float(self.top_p)),
            "seed": self.seed,
            "chat_template_digest": self.chat_template_digest,
            "reasoning_effort": self.reasoning_effort,
            "want": f"TAIL_WANT_{self.want.name}",
        }
        return {"domain": DOMAIN, "body": body}

    def digest(self) -> str:
        """SHA-256 (hex) of the canonical JSON of `document`, as every tail result carries it."""
        return canonical_digest(self.document())


@dataclass(frozen=True, slots=True)
class SampledToken:
    """A token that the tail chose, and the natural logarithm of its probability in the model.

    The model's distribution is the softmax of the logits, before temperature and bounds.
    """

    token_id: int
    log_prob: float
    end_of_sequence: bool = False


@dataclass(frozen=True, slots=True)
class TailResult:
    """What a tail gives for a final chunk or a decode step.

    `position` is the last of the unit. `logits` are float32 [1, 1, vocabulary] and belong to that
    position; either of them and the token may be missing, as the contract wants.
    """

    work_id: str
    step: int
    position: int
    logits: Tensor | None
    token: SampledToken | None
    sampling_digest: str

    @classmethod
    def from_proto(cls, message: pb.TailResult, *, max_bytes: int = MAX_CHUNK_BYTES) -> TailResult:
        """Read the wire form.

        Raises ProtocolError for a result with neither logits nor token, or as the codec does, and
        PayloadCorrupt for logits that are not one float32 row.
        """
        logits = None
        if message.HasField("logits"):
            logits = decode_tensor(message.logits, max_bytes=max_bytes)
            check_logits(logits)
        token = None
        if message.HasField("token"):
            chosen = message.token
            token = SampledToken(chosen.token_id, chosen.log_prob, chosen.end_of_sequence)
        if logits is None and token is None:
            raise ProtocolError("tail-result", "a tail result with neither logits nor token")
        return cls(
            message.work_id,
            message.idempotency_step,
            message.position,
            logits,
            token,
            message.sampling_digest,
        )

    def to_proto(self) -> pb.TailResult:
        """Write the wire form. Raises as `encode_tensor`."""
        message = pb.TailResult(
            work_id=self.work_id,
            idempotency_step=self.step,
            position=self.position,
            sampling_digest=self.sampling_digest,
        )
        if self.logits is not None:
            message.logits.CopyFrom(encode_tensor(self.logits))
        if self.token is not None:
            message.token.token_id = self.token.token_id
            message.token.log_prob = self.token.log_prob
            message.token.end_of_sequence = self.token.end_of_sequence
        return message


def check_logits(tensor: Tensor) -> None:
    """Raise PayloadCorrupt unless a tensor is one row of logits, float32 [1, 1, vocabulary]."""
    if tensor.dtype is not DType.FLOAT32 or len(tensor.shape) != 3 or tensor.shape[:2] != (1, 1):
        raise PayloadCorrupt(
            "tail-result",
            f"logits are {tensor.dtype.name.lower()} {list(tensor.shape)}, "
            "expected float32 [1, 1, vocabulary]",
        )
