"""Which records a command opens while a local run ends: its etcd's, or its archive."""

import socket
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from elasticd.cli import record_source
from elasticd.cli.record_source import open_run
from elasticd.control.local_run.archive import archive
from elasticd.control.local_run.run_folder import JobFolder
from elasticd.records.codec import encode
from elasticd.store.api import KeyValue, Store
from elasticd.store.memory import MemoryStore
from tests.unit.control.world_case import JOB, KEYS, SPEC


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[JobFolder]:
    """A run that is at its end: its records are kept, and its folder is still its own."""
    made = JobFolder(tmp_path, JOB)
    made.take()
    made.write_endpoint(f"unix://{tmp_path}/etcd:1")
    spec = KeyValue(key=KEYS.spec(JOB), value=encode(SPEC), mod_revision=1, create_revision=1)
    archive([spec], made.records)
    yield made
    made.release()


def never_opened(*args: object) -> Store:
    raise AssertionError("A store tries for seconds whether its etcd comes back.")


def test_run_that_ends_while_it_is_opened_is_read_from_its_archive(
    folder: JobFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(record_source, "open_store", never_opened)
    monkeypatch.setattr(time, "sleep", lambda s: folder.remove_endpoint())
    with open_run(folder) as source:
        assert source.is_archive and source.store.get(KEYS.spec(JOB)) is not None


def test_private_etcd_that_is_started_anew_is_awaited(
    folder: JobFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And its run has ended as soon as it takes its address away, before its etcd ends."""
    with socket.socket(socket.AF_UNIX) as door:

        def starts(seconds: float) -> None:
            door.bind(str(folder.path.parent / "etcd:1"))
            door.listen()

        monkeypatch.setattr(record_source, "open_store", lambda *args: MemoryStore())
        monkeypatch.setattr(time, "sleep", starts)
        with open_run(folder) as source:
            assert not source.is_archive and not source.has_ended()
            folder.remove_endpoint()
            assert source.has_ended()
