"""What the workers of a job are started with: what they get of the agent, and what of files."""

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from elasticd.records.ids import NodeId, Slot
from elasticd.records.job import JobSpec
from elasticd_agent.worker_setup.worker_setup import WorkerSetup
from tests.fixtures.other_user import NOBODY, open_folder
from tests.unit.control.world_case import SPEC

AGENTS = {"HOME": "/home/x", "ELASTICD_ETCD_PASSWORD": "secret"}


def setup_of(spec: JobSpec, run_folder: Path) -> WorkerSetup:
    return WorkerSetup(spec, NodeId("a"), run_folder, address="127.0.0.1", environ=AGENTS)


def test_variable_of_a_file_is_known_once_the_folder_is_prepared(tmp_path: Path) -> None:
    """Only workers have its value: the agent's own environment and the spec are as before."""
    secret = tmp_path / "id"
    secret.write_text("key")
    spec = replace(SPEC, env_files={"S3_KEY": str(secret)})
    setup = setup_of(spec, tmp_path / "runs")
    assert "S3_KEY" not in setup.prepared_env(Slot(0))
    setup.prepare_folder()
    assert setup.prepared_env(Slot(0))["S3_KEY"] == "key"
    assert "S3_KEY" not in spec.env and "S3_KEY" not in AGENTS


def test_worker_has_the_agents_environment_without_what_opens_etcd(tmp_path: Path) -> None:
    env = setup_of(SPEC, tmp_path).prepared_env(Slot(0))
    assert env["HOME"] == "/home/x" and "ELASTICD_ETCD_PASSWORD" not in env


def test_job_that_brings_files_starts_where_they_are_written(tmp_path: Path) -> None:
    setup = setup_of(replace(SPEC, files={"train.py": "pass\n"}), tmp_path)
    setup.prepare_folder()
    assert (Path(setup.cwd) / "train.py").read_text() == "pass\n"
    files = setup.prepared_files("a.slot-0")
    assert setup.order("0.0", files, {}, niceness=3).cwd == setup.cwd


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may take another user")
def test_folder_is_not_ready_for_workers_that_cannot_read_their_script() -> None:
    """Else each of them would end with an exit code of Python's, and use up a restart."""
    code = f"""
import os, sys
from dataclasses import replace
from pathlib import Path
from tests.unit.agent.worker_setup.test_worker_setup import SPEC, setup_of
folder = Path(sys.argv[1])
os.chown(folder, {NOBODY}, -1)
(folder / "train.py").touch(mode=0o600)
os.setresuid(-1, {NOBODY}, -1)
setup_of(replace(SPEC, entry="train.py", cwd=str(folder)), folder).prepare_folder()
"""
    with open_folder() as folder:
        done = subprocess.run(
            [sys.executable, "-c", code, str(folder)], capture_output=True, text=True, check=False
        )
    assert "PermissionError: The user nobody of --worker-user cannot read the scr" in done.stderr
