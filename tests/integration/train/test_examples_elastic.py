"""The examples of docs/examples come to their end: alone, and with a worker killed on the way."""

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.fixtures.cluster import until
from tests.fixtures.local_run import LocalRun
from tests.fixtures.patience import patience_s

EXAMPLES = Path(__file__).parents[3] / "docs" / "examples"
DIGITS = ("digits_elastic.py", "--epochs", "6")
GPT = ("gpt_elastic.py", "--steps", "30", "--evaluate-every", "10", "--text-bytes", "200000",
       "--evaluate-on", "32", "--batch-size", "8", "--micro-batch-size", "2", "--context", "32",
       "--width", "32", "--layers", "1")  # fmt: skip


def test_digits_alone_learn(tmp_path: Path) -> None:
    out = _python(tmp_path, *DIGITS)
    assert _accuracy(out) > 90.0
    assert "0 repeated, 0 skipped" in out


def test_paced_alone_makes_its_steps(tmp_path: Path) -> None:
    """The job on which the autoscaler is shown."""
    out = _python(tmp_path, "paced_elastic.py", "--steps", "20", "--a", "0", "--b", "0.001")
    assert "20 steps" in out


@pytest.mark.slow
def test_digits_survive_a_worker(tmp_path: Path) -> None:
    """Rank 1 kills itself; the others end with each sample counted once, and as good."""
    place = LocalRun(tmp_path / "here")
    place.folder.mkdir(exist_ok=True)
    script, *args = DIGITS
    ended = place.run(
        "--job", "digits", "--nproc-per-node", "2", str(EXAMPLES / script), *args,
        "--die-at-step", "40",
    )  # fmt: skip
    place.mark.wait_none_left()
    assert ended.code == 0, ended.err
    out = _output(place, "digits")
    assert "rank 1 kills itself" in out
    assert _accuracy(out) > 90.0
    assert "138 steps, 6 epochs, 8622 samples (0 repeated, 0 skipped)" in out


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_gpt_alone_learns(tmp_path: Path, dtype: str) -> None:
    """With the gradient scaler on (float16) and off."""
    losses = _losses(_python(tmp_path, *GPT, "--dtype", dtype))
    assert losses[-1] < losses[0] - 1.0


@pytest.mark.slow
def test_gpt_survives_a_worker(tmp_path: Path) -> None:
    """Killed from outside, with micro-batches, a scaler and a schedule under way. Slowly, so
    that the steps are not over when the test comes to it."""
    place = LocalRun(tmp_path / "here")
    place.folder.mkdir(exist_ok=True)
    script, *args = GPT
    call = place.call(
        "--job", "gpt", "--nproc-per-node", "2", str(EXAMPLES / script), *args,
        "--dtype", "float16", "--step-sleep-s", "0.3",
    )  # fmt: skip
    until(
        lambda: "step   10" in _output(place, "gpt") or call.process.poll() is not None,
        lambda: call.err,
    )
    os.kill(max(place.mark.processes("ELASTICD_WORKER=1.")), signal.SIGKILL)
    ended = call.wait()
    place.mark.wait_none_left()
    assert ended.code == 0, ended.err
    out = _output(place, "gpt")
    assert "30 steps, 0 epochs, 240 samples (0 repeated, 0 skipped)" in out
    assert _losses(out)[-1] < _losses(out)[0]


def _python(folder: Path, script: str, *args: str) -> str:
    ended = subprocess.run(
        [sys.executable, str(EXAMPLES / script), *args],
        cwd=folder,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=patience_s(100.0),
    )
    assert ended.returncode == 0, ended.stderr
    return ended.stdout


def _output(place: LocalRun, job: str) -> str:
    """What all ranks printed, in the order of generations."""
    paths = place.runs.glob(f"{job}/gen-*/rank-*.out")
    ordered = sorted(paths, key=lambda path: (int(path.parent.name[4:]), path.name))
    return "".join(path.read_text() for path in ordered)


def _accuracy(out: str) -> float:
    return float(re.findall(r"test accuracy ([\d.]+)%", out)[-1])


def _losses(out: str) -> list[float]:
    return [float(loss) for loss in re.findall(r"validation loss ([\d.]+)", out)]
