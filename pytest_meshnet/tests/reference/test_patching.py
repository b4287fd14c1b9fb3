"""How suite mutants reach code that was imported before them. Each runs in a process of its own."""

from __future__ import annotations

import subprocess
import sys
import textwrap

import pytest

from pytest_meshnet.reference.catalogue import entries


def _run(program):
    command = [sys.executable, "-c", textwrap.dedent(program)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout.split()


def test_a_replaced_function_is_replaced_wherever_it_was_imported():
    found = _run("""
        from pytest_meshnet.protocol import codec, flow
        from pytest_meshnet.protocol.machines import client, outgoing, rules, units
        from pytest_meshnet.reference.mutants.patching import replace

        marker = lambda *_: None
        for name in ("encode_bundle", "decode_bundle", "check_message_size"):
            replace(codec, name, marker)
        replace(flow, "plan_prefill", marker)
        print(codec.encode_bundle is outgoing.encode_bundle is units.encode_bundle is marker)
        print(client.decode_bundle is rules.decode_bundle is rules.check_message_size is marker)
        print(outgoing.plan_prefill is marker, outgoing.encode_tensor is codec.encode_tensor)
    """)
    assert found == ["True"] * 4


def test_a_replaced_number_is_replaced_only_where_it_was_named():
    found = _run("""
        from pytest_meshnet.protocol import codec, flow
        from pytest_meshnet.reference.mutants.patching import replace

        replace(codec, "MAX_CHUNK_BYTES", 5)
        print(codec.MAX_CHUNK_BYTES, flow.MAX_CHUNK_BYTES)
    """)
    assert found == ["5", "4194304"]


def test_an_edited_schema_is_what_every_module_then_speaks():
    found = _run("""
        import pytest_meshnet.protocol.goldens as goldens
        import pytest_meshnet.runtime.in_process as in_process
        from pytest_meshnet.protocol.generated import shard_runtime_pb2 as published
        from pytest_meshnet.protocol.generated import shard_runtime_pb2_grpc as rpc
        from pytest_meshnet.reference.mutants.patching import edited_schema, field

        def edit(file):
            field(file, "Envelope", "route_epoch").number = 20

        old, phase = published, published.Phase
        edited_schema(edit)
        from pytest_meshnet.protocol.generated import shard_runtime_pb2 as edited

        print(edited is not old, goldens.pb is edited, in_process.pb is edited)
        print(edited in vars(rpc).values(), old not in vars(rpc).values())
        print(edited.Envelope(route_epoch=7).SerializeToString().hex())
        print(old.Envelope(route_epoch=7).SerializeToString().hex())
        print(edited.Phase is phase, edited.PHASE_DECODE, len(goldens.built()))
    """)
    assert found == [*["True"] * 5, "a00107", "2007", "True", "2", "7"]


def test_an_edited_enum_gets_a_wrapper_of_its_own():
    found = _run("""
        from pytest_meshnet.protocol.generated import shard_runtime_pb2 as old
        from pytest_meshnet.reference.mutants.patching import edited_schema

        def edit(file):
            phase = next(one for one in file.enum_type if one.name == "Phase")
            phase.value.add(name="PHASE_REWIND", number=5)

        before = old.Phase
        edited_schema(edit)
        from pytest_meshnet.protocol.generated import shard_runtime_pb2 as edited
        print(edited.Phase is before, edited.PHASE_REWIND, edited.Phase.Name(5))
    """)
    assert found == ["False", "5", "PHASE_REWIND"]


SUITE_MUTANTS = [one.name for one in entries() if one.kind == "suite-mutant"]


@pytest.mark.parametrize("half", [0, 1])
def test_every_suite_mutant_can_be_applied(half):
    names = SUITE_MUTANTS[half::2]
    found = _run(f"""
        import os
        from pytest_meshnet.reference.catalogue import apply_suite_mutant, entries

        entries()
        for name in {names!r}:
            child = os.fork()
            if child == 0:
                apply_suite_mutant(name)
                os._exit(0)
            if os.waitpid(child, 0)[1] != 0:
                print(name)
    """)
    assert found == []
