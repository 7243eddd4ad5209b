"""The cluster in memory of the commands about jobs."""

from tests.unit.cli.jobs.conftest import store

__all__ = ["store"]
