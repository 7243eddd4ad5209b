"""A cluster in memory, at which the commands look and which they change."""

import importlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from elasticd.cli.record_source import RecordSource
from elasticd.control import job_submission
from elasticd.records.ids import JobName, checked_name
from elasticd.store.memory import MemoryStore
from tests.unit.control.world_case import KEYS, SPEC, node, put

OPENERS = (
    *(f"elasticd.cli.jobs.{name}" for name in ("status", "nodes", "wait", "attach", "logs")),
    *(f"elasticd.cli.jobs.change.{name}" for name in ("scale", "stop", "drain", "prune")),
    "elasticd.cli.why.command",
)
"""The modules that open records."""


@pytest.fixture
def store(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> MemoryStore:
    """One job, two nodes, and every command that opens records opened on them."""
    made = MemoryStore()
    job_submission.submit(made, KEYS, SPEC)
    for name in "ab":
        put(made, KEYS.node(node(name).node), node(name))
    source = RecordSource(store=made, keys=KEYS, run_folder=tmp_path)

    @contextmanager
    def one(values: object, job: str) -> Iterator[tuple[RecordSource, JobName]]:
        yield source, JobName(checked_name("job", job))

    @contextmanager
    def all_of_them(values: object) -> Iterator[list[RecordSource]]:
        yield [source]

    for name in OPENERS:
        module = importlib.import_module(name)
        monkeypatch.setattr(module, "job_source", one, raising=False)
        monkeypatch.setattr(module, "sources", all_of_them, raising=False)
    return made
