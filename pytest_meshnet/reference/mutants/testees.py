"""Mutants of the codec testee: those of the codec, in its process, and some that only it can be."""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import wraps

from pytest_meshnet.protocol.generated import codec_testee_pb2 as testee
from pytest_meshnet.protocol.generated import shard_runtime_pb2 as pb
from pytest_meshnet.reference import codec_testee
from pytest_meshnet.reference.catalogue import testee_mutant
from pytest_meshnet.reference.codec_testee import Task
from pytest_meshnet.reference.mutants import (
    codec,
    codec_bounds,
    codec_fields,
    codec_zstd,
    wire,
)
from pytest_meshnet.reference.mutants.patching import edited_schema

Patch = Callable[[], None]


def _also(requirement: str, *patches: Patch) -> None:
    """Enter patches that break the suite's codec as mutants of the testee too."""
    for patch in patches:

        @wraps(patch)
        def on_testee(patch: Patch = patch) -> None:
            patch()

        on_testee.__name__ = f"testee_{patch.__name__}"
        testee_mutant(requirement)(on_testee)


def _schema(edit: Callable[..., None]) -> Patch:
    @wraps(edit)
    def patch() -> None:
        edited_schema(edit)

    return patch


def _task(number: int, bent: Callable[[Task, testee.CodecRequest], testee.Result]) -> None:
    """Put `bent`, which is handed the right task, in the place of a task."""
    right = codec_testee.TASKS[number]
    codec_testee.TASKS[number] = lambda request: bent(right, request)


# WIRE --------------------------------------------------------------------------------------------

_also(
    "WIRE-03",
    _schema(wire.fragment_with_a_moved_offset),
    _schema(wire.report_with_unpacked_lists),
)
_also(
    "WIRE-04",
    _schema(wire.fingerprint_with_swapped_labels),
    _schema(wire.report_with_a_zigzag_time),
    wire.codec_that_joins_backwards,
)
_also("WIRE-05", _schema(wire.envelope_that_knows_9999), _schema(wire.report_that_knows_9999))
_also(
    "WIRE-07",
    _schema(wire.fragment_whose_number_5_clears_the_payload),
    wire.codec_that_refuses_older_peers,
)


@testee_mutant("WIRE-03")
def testee_that_hands_back_its_input() -> None:
    """What is to be serialized again was never parsed."""
    codec_testee.TASKS[testee.TASK_RESERIALIZE] = lambda request: testee.Result(data=request.data)


@testee_mutant("WIRE-03")
def testee_that_serializes_as_it_comes() -> None:
    """A message built from JSON is written with an empty field that a default would leave out."""

    def written(right: Task, request: testee.CodecRequest) -> testee.Result:
        return testee.Result(data=right(request).data + b"\x12\x00")

    _task(testee.TASK_FROM_JSON, written)


@testee_mutant("WIRE-05")
def testee_that_drops_unknown_fields() -> None:
    """A field from a newer peer is gone once the message is serialized, as in older libraries."""

    def discarded(right: Task, request: testee.CodecRequest) -> testee.Result:
        message = getattr(pb, request.message).FromString(request.data)
        message.DiscardUnknownFields()
        request.data = message.SerializeToString(deterministic=True)
        return right(request)

    _task(testee.TASK_RESERIALIZE, discarded)


# CODEC -------------------------------------------------------------------------------------------

_also(
    "CODEC-01",
    codec.codec_without_int8,
    codec.codec_that_ends_at_rank_7,
    codec.codec_that_has_no_scalars,
    codec.codec_that_refuses_empty_tensors,
    codec.codec_that_loses_the_last_fragment,
    codec.codec_that_tidies_booleans,
)
_also(
    "CODEC-02",
    codec.codec_with_the_crc_of_zlib,
    codec.codec_that_covers_the_wire_body,
    codec.codec_that_never_compares,
    codec.codec_that_compares_half,
    codec.codec_that_covers_the_beginning,
)
_also(
    "CODEC-03",
    codec.codec_that_joins_by_offset,
    codec.codec_that_joins_by_index,
    codec.codec_that_joins_as_they_come,
    codec.codec_that_writes_into_a_buffer,
    codec.codec_that_counts_for_itself,
    codec.codec_that_lets_the_later_fragment_win,
)
_also(
    "CODEC-04",
    codec.codec_that_pads_before_sending,
    codec.codec_that_passes_over_total_bytes,
    codec.codec_that_passes_over_the_shape,
    codec.codec_that_fits_the_payload,
    codec.codec_that_fits_what_it_expanded,
)
_also(
    "CODEC-05",
    codec_bounds.codec_without_a_rank,
    codec_bounds.codec_that_multiplies_signs,
    codec_bounds.codec_with_64_bit_dimensions,
    codec_bounds.codec_with_dimensions_below_the_bound,
    codec_bounds.codec_whose_product_wraps,
)
_also(
    "CODEC-06",
    codec_fields.codec_that_takes_big_endian,
    codec_fields.codec_that_assumes_a_byte_order,
)
_also(
    "CODEC-07",
    codec_fields.codec_that_assumes_a_dtype,
    codec_fields.codec_that_takes_any_dtype,
    codec_fields.codec_that_takes_any_compression,
    codec_fields.codec_that_takes_any_checksum,
    codec_fields.codec_that_assumes_a_bundle_version,
    codec_fields.codec_that_demands_a_checksum,
)
_also(
    "CODEC-08",
    codec_bounds.codec_with_fragments_of_any_size,
    codec_bounds.codec_with_any_number_of_fragments,
    codec_bounds.codec_that_allows_one_fragment_less,
    codec_bounds.codec_with_fragments_below_the_bound,
)
_also(
    "CODEC-09",
    codec_bounds.codec_with_any_number_of_tensors,
    codec_bounds.codec_that_names_the_nameless,
    codec_bounds.codec_that_takes_a_name_twice,
    codec_bounds.codec_that_measures_tensors_one_by_one,
)
_also(
    "CODEC-10",
    codec_bounds.codec_without_a_message_bound,
    codec_bounds.codec_that_forgives_the_envelope,
    codec_bounds.codec_that_wants_to_stay_below,
)
_also(
    "CODEC-11",
    codec_zstd.zstd_that_expands_and_then_compares,
    codec_zstd.zstd_that_believes_the_header,
    codec_zstd.zstd_that_stops_at_total_bytes,
    codec_zstd.zstd_that_pads_a_truncated_frame,
    codec_zstd.zstd_that_passes_over_trailing_data,
    codec_zstd.zstd_with_any_window,
    codec_zstd.zstd_that_demands_a_content_size,
    codec_zstd.codec_that_bounds_only_the_wire_body,
    codec_zstd.codec_that_bounds_only_total_bytes,
)


@testee_mutant("CODEC-07")
def testee_that_dies_of_an_unknown_dtype() -> None:
    """A table is read beyond its end, and the process with it: no answer, no refusal."""

    def looked_up(right: Task, request: testee.CodecRequest) -> testee.Result:
        bundle = pb.TensorBundle.FromString(request.data)
        if any(not 0 <= one.dtype < 9 for one in bundle.tensors):
            os._exit(139)
        return right(request)

    _task(testee.TASK_TENSORS, looked_up)


@testee_mutant("CODEC-03")
def testee_that_names_another_rule() -> None:
    """Whatever is wrong with fragments is said to be wrong with the byte order."""
    right = codec_testee.answer

    def misnamed(request: testee.CodecRequest) -> testee.CodecAnswer:
        answer = right(request)
        if answer.refused.rule == "fragment-tiling":
            answer.refused.rule = "byte-order"
        return answer

    codec_testee.answer = misnamed
