"""Suite mutants of WIRE: a schema that differs in one respect, or the right one used wrongly."""

from __future__ import annotations

import shutil
from pathlib import Path
from tempfile import TemporaryDirectory

from google.protobuf.descriptor_pb2 import EDITION_2023, FeatureSet, MethodDescriptorProto
from google.protobuf.descriptor_pb2 import FieldDescriptorProto as Field
from google.protobuf.descriptor_pb2 import FileDescriptorProto as File

from pytest_meshnet import layout
from pytest_meshnet.protocol import codec, regenerate
from pytest_meshnet.protocol.errors import PayloadCorrupt
from pytest_meshnet.protocol.generated import shard_runtime_pb2 as pb
from pytest_meshnet.protocol.machines.client import SeamClient
from pytest_meshnet.protocol.tensors import Tensor
from pytest_meshnet.reference.catalogue import suite_mutant
from pytest_meshnet.reference.mutants.patching import field, message, replace, schema_mutant

_COPIES: list[TemporaryDirectory[str]] = []


def _copied(original: Path) -> Path:
    """A copy that lives as long as this process."""
    _COPIES.append(TemporaryDirectory(prefix="meshnet-mutant-"))
    copy = Path(_COPIES[-1].name) / original.name
    if original.is_dir():
        shutil.copytree(original, copy)
    else:
        shutil.copy(original, copy)
    return copy


# WIRE-01 -----------------------------------------------------------------------------------------


def _method(file: File, name: str) -> MethodDescriptorProto:
    return next(found for found in file.service[0].method if found.name == name)


@schema_mutant("WIRE-01")
def schema_with_a_sixth_method(file: File) -> None:
    """The service has a method Reset that no runtime promised."""
    added = file.service[0].method.add(name="Reset")
    added.input_type, added.output_type = (
        ".meshnet.shard.v1.ReleaseRequest",
        ".meshnet.shard.v1.ReleaseResponse",
    )


@schema_mutant("WIRE-01")
def schema_without_cancel(file: File) -> None:
    """The service lacks the unary Cancel."""
    file.service[0].method.remove(_method(file, "Cancel"))


@schema_mutant("WIRE-01")
def schema_with_a_session_of_one_request(file: File) -> None:
    """Session takes one request and streams the responses."""
    _method(file, "Session").client_streaming = False


@schema_mutant("WIRE-01")
def schema_with_a_session_of_one_response(file: File) -> None:
    """Session streams the requests and answers once."""
    _method(file, "Session").server_streaming = False


@schema_mutant("WIRE-01")
def schema_with_streamed_health(file: File) -> None:
    """Health is a stream of reports."""
    _method(file, "Health").server_streaming = True


# WIRE-02 -----------------------------------------------------------------------------------------


@schema_mutant("WIRE-02")
def envelope_with_a_moved_deadline(file: File) -> None:
    """The deadline has number 13."""
    field(file, "Envelope", "deadline_unix_nanos").number = 13


@schema_mutant("WIRE-02")
def envelope_without_chunk_info(file: File) -> None:
    """The envelope does not say which chunk is the last."""
    message(file, "Envelope").field.remove(field(file, "Envelope", "chunk"))


@schema_mutant("WIRE-02")
def envelope_with_a_renamed_epoch(file: File) -> None:
    """The epoch is called epoch."""
    field(file, "Envelope", "route_epoch").name = "epoch"


@schema_mutant("WIRE-02")
def envelope_with_a_32_bit_step(file: File) -> None:
    """The idempotency step is a uint32 and wraps."""
    field(file, "Envelope", "idempotency_step").type = Field.TYPE_UINT32


# WIRE-03 -----------------------------------------------------------------------------------------


@schema_mutant("WIRE-03")
def fragment_with_a_moved_offset(file: File) -> None:
    """The offset of a fragment has number 6."""
    field(file, "TensorFragment", "byte_offset").number = 6


@schema_mutant("WIRE-03")
def report_with_unpacked_lists(file: File) -> None:
    """The accepted compressions are written one by one, which parses to the same values."""
    field(file, "CapabilityReport", "accepted_compression").options.packed = False


@suite_mutant("WIRE-03")
def golden_made_to_fit() -> None:
    """A stored vector was regenerated after the schema had changed."""
    root = _copied(layout.folder("goldens"))
    vector = root / "session_request.binpb"
    vector.write_bytes(vector.read_bytes() + bytes.fromhex("b8e00401"))
    right = layout.folder
    replace(layout, "folder", lambda name: root if name == "goldens" else right(name))


@suite_mutant("WIRE-03")
def codec_that_writes_checksums_little_endian() -> None:
    """The checksum is written and read in the byte order of the machine."""
    right = codec.crc32c
    replace(codec, "crc32c", lambda data: right(data)[::-1])


# WIRE-04 -----------------------------------------------------------------------------------------


@schema_mutant("WIRE-04")
def fingerprint_with_swapped_labels(file: File) -> None:
    """Recipe version and catalogue version have changed numbers: all parses and means another."""
    recipe = field(file, "Fingerprint", "recipe_version")
    catalogue = field(file, "Fingerprint", "catalogue_version")
    recipe.number, catalogue.number = catalogue.number, recipe.number


@schema_mutant("WIRE-04")
def report_with_a_zigzag_time(file: File) -> None:
    """The time of validation is zigzag-coded and reads as half of itself."""
    field(file, "CapabilityReport", "validated_at_unix_nanos").type = Field.TYPE_SINT64


@suite_mutant("WIRE-04")
def codec_that_joins_backwards() -> None:
    """Fragments are joined last to first."""
    right = codec._tiled

    def backwards(pieces: list[bytes], starts: list[int]) -> bytes:
        right(pieces, starts)
        return b"".join(reversed(pieces))

    replace(codec, "_tiled", backwards)


# WIRE-05 -----------------------------------------------------------------------------------------


def _know(file: File, name: str, number: int) -> None:
    """Give a number of the newer peer a meaning: a flag, of which 12345 is one."""
    added = message(file, name).field.add(name="newer", number=number)
    added.label, added.type = Field.LABEL_OPTIONAL, Field.TYPE_BOOL


@schema_mutant("WIRE-05")
def request_that_knows_9999(file: File) -> None:
    """Number 9999 of a stream message is a bool: what a newer peer puts there becomes 1."""
    _know(file, "SessionRequest", 9999)


@schema_mutant("WIRE-05")
def request_that_knows_9735(file: File) -> None:
    """Number 9735 of a stream message, that of the published bytes, is a bool."""
    _know(file, "SessionRequest", 9735)


@schema_mutant("WIRE-05")
def report_that_knows_9999(file: File) -> None:
    """Number 9999 of the capability report is a bool."""
    _know(file, "CapabilityReport", 9999)


@schema_mutant("WIRE-05")
def envelope_that_knows_9999(file: File) -> None:
    """Number 9999 of the envelope is a bool."""
    _know(file, "Envelope", 9999)


# WIRE-06 -----------------------------------------------------------------------------------------


def _with_presence(file: File, edited: Field, presence: FeatureSet.FieldPresence.ValueType) -> None:
    """Make a proto3 file one of edition 2023, in which one field may have another presence."""
    file.syntax, file.edition = "editions", EDITION_2023
    file.options.features.field_presence = FeatureSet.IMPLICIT
    edited.options.features.field_presence = presence


@schema_mutant("WIRE-06")
def envelope_that_requires_a_session(file: File) -> None:
    """The session id of an envelope is required."""
    session = field(file, "Envelope", "route_session_id")
    _with_presence(file, session, FeatureSet.LEGACY_REQUIRED)


@schema_mutant("WIRE-06")
def cancel_that_requires_a_reason(file: File) -> None:
    """The reason of a cancel is required."""
    _with_presence(file, field(file, "CancelSignal", "reason"), FeatureSet.LEGACY_REQUIRED)


@schema_mutant("WIRE-06")
def ack_that_counts_from_one(file: File) -> None:
    """A step that an ack does not name is 1."""
    step = field(file, "Ack", "idempotency_step")
    _with_presence(file, step, FeatureSet.EXPLICIT)
    step.default_value = "1"


# WIRE-07 -----------------------------------------------------------------------------------------


def _reuse(file: File, number: int, name: str) -> Field:
    fragment = message(file, "TensorFragment")
    del fragment.reserved_range[:], fragment.reserved_name[:]
    added = fragment.field.add(name=name, number=number)
    added.label, added.type = Field.LABEL_OPTIONAL, Field.TYPE_UINT64
    return added


@schema_mutant("WIRE-07")
def fragment_that_forgot_its_number(file: File) -> None:
    """Number 5 is not reserved any more; its name is."""
    del message(file, "TensorFragment").reserved_range[:]


@schema_mutant("WIRE-07")
def fragment_that_forgot_its_name(file: File) -> None:
    """The name is not reserved any more; number 5 is."""
    del message(file, "TensorFragment").reserved_name[:]


@schema_mutant("WIRE-07")
def fragment_that_reuses_the_number(file: File) -> None:
    """Number 5 is a sequence number now."""
    _reuse(file, 5, "sequence")


@schema_mutant("WIRE-07")
def fragment_that_reuses_the_name(file: File) -> None:
    """The name is back under number 6."""
    _reuse(file, 6, "uncompressed_size")


@schema_mutant("WIRE-07")
def fragment_whose_number_5_clears_the_payload(file: File) -> None:
    """Number 5 stands in a oneof with the payload: a peer that sends it wipes the bytes."""
    _reuse(file, 5, "reference").oneof_index = 0
    message(file, "TensorFragment").oneof_decl.add(name="body")
    field(file, "TensorFragment", "payload").oneof_index = 0


@suite_mutant("WIRE-07")
def codec_that_refuses_older_peers() -> None:
    """A fragment with a field that the schema does not know is refused."""
    from google.protobuf.unknown_fields import UnknownFieldSet

    right = codec._joined_body

    def strict(received: pb.NamedTensor, max_wire_bytes: int) -> bytes:
        if any(len(UnknownFieldSet(fragment)) for fragment in received.fragments):
            raise PayloadCorrupt("fragment-tiling", "a fragment with an unknown field")
        return right(received, max_wire_bytes)

    replace(codec, "_joined_body", strict)


# WIRE-08 -----------------------------------------------------------------------------------------


@suite_mutant("WIRE-08")
def proto_edited_after_the_stubs_were_made() -> None:
    """The .proto has a message that the stubs lack."""
    regenerate.PROTO = _copied(regenerate.PROTO)
    with regenerate.PROTO.open("a") as proto:
        proto.write("\nmessage Later { string work_id = 1; }\n")


@suite_mutant("WIRE-08")
def stubs_edited_by_hand() -> None:
    """A committed stub has a line that no generator wrote."""
    regenerate.GENERATED = _copied(regenerate.GENERATED)
    with (regenerate.GENERATED / "shard_runtime_pb2_grpc.py").open("a") as stub:
        stub.write("\nTIMEOUT = 30\n")


@suite_mutant("WIRE-08")
def stubs_with_one_missing() -> None:
    """The type stub was never committed."""
    regenerate.GENERATED = _copied(regenerate.GENERATED)
    (regenerate.GENERATED / "shard_runtime_pb2.pyi").unlink()


# WIRE-09 -----------------------------------------------------------------------------------------


@suite_mutant("WIRE-09")
def client_that_repeats_the_envelope() -> None:
    """Each decode step of the client names session, fingerprint and range once more."""
    right = SeamClient.decode

    def verbose(self: SeamClient, tensor: Tensor, **place: object) -> pb.SessionRequest:
        step = right(self, tensor, **place)  # type: ignore[arg-type]
        chunk = self.chunk([tensor], mode=pb.CACHE_MODE_DECODE)
        step.decode.MergeFromString(_field_15(chunk.chunk.envelope.SerializeToString()))
        return step

    replace(SeamClient, "decode", verbose)


def _field_15(data: bytes) -> bytes:
    """`data` as a field of number 15, which DecodeStep does not have and a worker passes over."""
    length = bytes([len(data) & 0x7F | 0x80, len(data) >> 7])
    return b"\x7a" + length + data


@suite_mutant("WIRE-09")
def codec_that_cuts_into_single_bytes() -> None:
    """A tensor travels in fragments of one byte, each with its own index, count and offset."""
    right = codec.encode_tensor

    def cut(tensor: Tensor) -> pb.NamedTensor:
        return right(tensor, fragment_bytes=1)

    replace(codec, "encode_tensor", cut)
