"""A job that the autoscaler sizes, in a store at which the commands of this folder look."""

import importlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from elasticd.cli.record_source import RecordSource
from elasticd.records.ids import JobName, checked_name
from elasticd.records.reason import Phase
from elasticd.store.memory import MemoryStore
from tests.fixtures.autoscaled import KEYS, autoscaled

Look = Callable[[MemoryStore], MemoryStore]
OPENERS = ("explain", "set", "simulate", "unset")


@pytest.fixture
def look(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Look:
    """Have every command of the room look at this store."""

    def at(store: MemoryStore, *, is_archive: bool = False) -> MemoryStore:
        source = RecordSource(store=store, keys=KEYS, run_folder=tmp_path, is_archive=is_archive)

        @contextmanager
        def one(values: object, job: str) -> Iterator[tuple[RecordSource, JobName]]:
            yield source, JobName(checked_name("job", job))

        for name in OPENERS:
            module = importlib.import_module(f"elasticd.cli.autoscale.{name}")
            monkeypatch.setattr(module, "job_source", one)
        return store

    return at


@pytest.fixture
def store(look: Look) -> MemoryStore:
    """A running job with a policy, a curve and decisions."""
    return look(autoscaled())


@pytest.fixture
def over(look: Look) -> MemoryStore:
    """The same job when it is over."""
    return look(autoscaled(phase=Phase.SUCCEEDED))
