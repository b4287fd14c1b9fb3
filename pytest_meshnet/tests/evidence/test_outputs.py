"""The output folder: runs do not collide, and name the run before."""

from __future__ import annotations

import hashlib
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from pytest_meshnet.evidence.signing.keys import SigningKey
from pytest_meshnet.tests.evidence import making


def test_runs_by_one_key_count_and_name_the_seal_before(tmp_path: Path, key: SigningKey):
    first = making.make(tmp_path, key)
    making.make(tmp_path, SigningKey.make_ephemeral())
    unsealed = making.make(tmp_path, key, seal=False)
    third = making.make(tmp_path, key)
    seal = hashlib.sha256((first / "seal.dsse.json").read_bytes()).hexdigest()
    assert making.predicate(unsealed, "start")["counter"] == 2
    assert making.predicate(third, "start")["counter"] == 3
    assert making.predicate(third, "start")["previous_seal"] == seal
    assert making.predicate(third, "seal")["counter"] == 3


def test_what_another_key_or_nobody_signed_does_not_count(tmp_path: Path, key: SigningKey):
    foreign = making.make(tmp_path, SigningKey.make_ephemeral())
    making.Forger(foreign, SigningKey.make_ephemeral()).document(
        "start", lambda start: start.update(counter=99)
    )
    (tmp_path / "junk").mkdir()
    (tmp_path / "junk" / "start.dsse.json").write_text("{")
    path = making.make(tmp_path, key)
    assert making.predicate(path, "start")["counter"] == 1


def test_runs_into_one_output_folder_do_not_collide(tmp_path: Path, key: SigningKey):
    with ThreadPoolExecutor(8) as pool:
        writers = list(pool.map(lambda _: making.begin(tmp_path, key), range(16)))
    for writer in writers:
        writer.recorder.close()
    assert len({writer.run_id for writer in writers}) == 16
    assert sorted(writer.start.counter for writer in writers) == list(range(1, 17))
