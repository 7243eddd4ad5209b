"""Where an agent runs, as it tells a fork server."""

import resource
from collections.abc import Iterator

import pytest

from elasticd_agent.pool.fork_server.surroundings import surroundings


@pytest.fixture
def hard_limit() -> Iterator[int]:
    """Return the hard limit of open files; the soft one is put back afterwards."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    yield hard
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_agent_that_raised_its_limit_of_files_runs_where_it_did(hard_limit: int) -> None:
    """Each agent does, where the machine gives 1,024 and allows more: else none was ever served."""
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard_limit - 1, hard_limit))
    before = surroundings()
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard_limit, hard_limit))
    assert surroundings() == before


def test_each_limit_has_one_name() -> None:
    """By the name that people know: Python has two for the limit of files."""
    names = [name for name in surroundings() if name.startswith("RLIMIT_")]
    assert "RLIMIT_NOFILE" in names and "RLIMIT_OFILE" not in names
    numbers = [getattr(resource, name) for name in names]
    assert len(set(numbers)) == len(numbers)
