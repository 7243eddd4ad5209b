"""A worker's own GPU is the current one in `train`, under whatever name it is shown."""

import subprocess
import sys
from pathlib import Path

import pytest
import torch

from tests.fixtures.local_run import LocalRun
from tests.fixtures.pool import PoolDriver, pool

__all__ = ["pool"]

SCRIPTS = Path(__file__).parent / "scripts"
SCRIPT = SCRIPTS / "where.py"


def test_current_device_and_generator_are_the_workers_own(tmp_path: Path) -> None:
    """Under plain python: two entries of `train` at one step draw the same."""
    done = subprocess.run(
        [sys.executable, str(SCRIPT)], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    assert "device cuda:0 current 0 draws alike" in done.stdout


@pytest.mark.parametrize("kind", ["number", "uuid"])
def test_mask_is_kept_as_it_was_given(tmp_path: Path, kind: str) -> None:
    """`CUDA_VISIBLE_DEVICES` of the machine or the container, by number or by name."""
    name = "0" if kind == "number" else f"GPU-{torch.cuda.get_device_properties(0).uuid}"
    run = LocalRun(tmp_path)
    ended = run.run("--log-dir", "runs", str(SCRIPT), env={"CUDA_VISIBLE_DEVICES": name})
    assert ended.code == 0, ended.err
    assert "device cuda:0 current 0 draws alike" in ended.out + ended.err
    assert f"mask {name}" in ended.out + ended.err


def test_two_workers_on_one_card_are_refused(tmp_path: Path) -> None:
    """With a sentence, before NCCL would refuse it."""
    ended = LocalRun(tmp_path).run(
        "--nproc-per-node", "2", "--max-restarts", "0", str(SCRIPT),
        env={"CUDA_VISIBLE_DEVICES": "0"},
    )  # fmt: skip
    assert ended.code != 0
    assert "start no more workers per node than it has GPUs" in ended.out + ended.err


def test_empty_mask_trains_on_the_cpu(tmp_path: Path) -> None:
    """As the sentence about a lost card advises."""
    ended = LocalRun(tmp_path).run(str(SCRIPT), env={"CUDA_VISIBLE_DEVICES": ""})
    assert ended.code == 0 and "device cpu" in ended.out + ended.err, ended.err


def test_worker_that_the_warm_pool_forks_can_use_cuda(pool: PoolDriver, tmp_path: Path) -> None:
    """The pool itself never has a context, which no fork survives."""
    end = pool.run(SCRIPTS / "forked.py", folder=tmp_path)
    out = (tmp_path / f"{end.worker}.out").read_text()
    assert end.code == 0, (tmp_path / f"{end.worker}.err").read_text()
    assert "before False, sum 499500" in out
