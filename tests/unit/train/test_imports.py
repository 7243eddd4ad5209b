"""What a script loads by the names that it takes from elasticd, each in a fresh process."""

import subprocess
import sys

import pytest


def loaded_by(statement: str) -> set[str]:
    """Return the names of the modules that are there after a statement."""
    program = f"import sys; {statement}; print(*sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    return set(done.stdout.split())


def in_rooms(modules: set[str], *rooms: str) -> list[str]:
    """Return those that are one of the rooms or stand in one."""
    return sorted(m for m in modules if any(m == r or m.startswith(f"{r}.") for r in rooms))


def test_elasticd_alone_loads_nothing() -> None:
    """Not even torch: the command line and the agent import it, too."""
    modules = loaded_by("import elasticd")
    assert in_rooms(modules, "elasticd", "torch") == ["elasticd"]


@pytest.mark.parametrize("name", ["State", "Loader"])
def test_what_holds_a_state_loads_nothing_of_the_talk_with_other_processes(name: str) -> None:
    """No client of the keeper, no message to the agent, no record of etcd."""
    modules = loaded_by(f"import elasticd; elasticd.{name}")
    rooms = ("keeper", "channel", "records", "telemetry", "train.process_group", "train.save")
    assert in_rooms(modules, *(f"elasticd.{room}" for room in rooms)) == []
    assert in_rooms(modules, "prometheus_client", "structlog", "grpc", "fsspec") == []


FEW = 165
"""Modules of ours that a script loads by `State` and `run`; 202 before this was counted."""


def test_run_loads_nothing_of_the_talk_with_a_keeper() -> None:
    """A script without `--checkpoint` never needs it."""
    modules = loaded_by("from elasticd import State, run")
    own = in_rooms(modules, "elasticd")
    assert in_rooms(modules, "elasticd.keeper") == []
    assert in_rooms(modules, "elasticd.train.save", "elasticd.train.restore") == []
    assert len(own) <= FEW, own


def test_snapshots_load_the_client_of_the_keeper_and_not_its_server() -> None:
    """So does a restore; `elasticd.run` imports both where there is a keeper."""
    save, restore = "elasticd.train.save.snapshot_taker", "elasticd.train.restore.restore"
    modules = loaded_by(f"import elasticd; elasticd.run; import {save}, {restore}")
    assert "elasticd.keeper.client" in modules
    server = (
        "assembly",
        "checkpoint_finder",
        "memory.share_memory",
        "metrics",
        "mirror",
        "saver",
        "service",
    )
    assert in_rooms(modules, *(f"elasticd.keeper.{part}" for part in server)) == []
    assert in_rooms(modules, "prometheus_client", "structlog", "grpc", "fsspec") == []


def test_where_there_is_a_keeper_a_restore_needs_no_file_in_a_failure() -> None:
    """Files of the installation may be others by then, or no descriptor may be left."""
    modules = loaded_by(
        "from unittest.mock import MagicMock as M; from elasticd.train import checkpoints;"
        "checkpoints.Checkpoints(M(keeper='x'), M(), M())"
    )
    wanted = {f"elasticd.train.restore.{name}" for name in ("restore", "keeper_port")}
    assert wanted <= modules
