"""The GPT example saves to S3 and loses all its nodes: its loss curve goes on bit for bit."""

import os
import random
import signal
from contextlib import suppress
from pathlib import Path

import pytest

from elasticd.checkpoint.commit.log import CommitLog
from elasticd.checkpoint.storage.location import open_bucket
from tests.fixtures.cluster import Call, until
from tests.fixtures.local_run import LocalRun
from tests.fixtures.s3 import KEYS, S3Place, moto_server, new_bucket
from tests.fixtures.saved_runs import JOIN_S

EXAMPLE = Path(__file__).parents[3] / "docs" / "examples" / "gpt_elastic.py"
STEPS = 60
GPT = ("--steps", str(STEPS), "--evaluate-every", "25", "--text-bytes", "200000", "--evaluate-on",
       "32", "--batch-size", "8", "--micro-batch-size", "2", "--context", "32", "--width", "32",
       "--layers", "1")  # fmt: skip
SLOWLY = ("--step-sleep-s", "0.3")
"""For a life that is to be ended in the middle: a busy machine looks late how far it is."""
KEY = "canary-5d1c7e"
"""A credential that must be seen nowhere."""


class Lives:
    """Calls of one job that saves to one place; each is ended with all its processes."""

    def __init__(self, folder: Path, place: S3Place) -> None:
        folder.mkdir()
        self.run = LocalRun(folder)
        self.place = place
        self.bucket = open_bucket(place.url, place.options, os.environ)
        CommitLog(
            self.bucket
        ).newest_number()  # Imports the driver, which takes longer than many steps.

    def start(self, losses: str, *args: str) -> Call:
        env = {**KEYS, "AWS_SECRET_ACCESS_KEY": KEY}
        return self.run.call(
            "--job", "gpt", "--local-agents", "2", "--join-window", f"{JOIN_S:g}", "--checkpoint",
            self.place.url, "--checkpoint-every", "5steps", "--storage-options",
            f'{{"endpoint_url": "{self.place.endpoint_url}"}}', str(EXAMPLE), *GPT,
            "--losses", losses, *args, env=env,
        )  # fmt: skip

    def losses(self, name: str) -> dict[int, str]:
        """What each step's loss was, to the last bit."""
        path = self.run.folder / name
        lines = path.read_text().split("\n")[:-1] if path.exists() else []
        return {int(line.split()[0]): line.split()[1] for line in lines}


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_loss_curve_goes_on_bit_for_bit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every process of the run is killed twice, agents, etcd and keepers too, at a moment that
    nobody chose; the third call ends with the curve of a run that nothing happened to."""
    seed = random.randrange(10**6)
    draw = random.Random(seed)
    with moto_server() as endpoint:
        calm = Lives(tmp_path / "calm", new_bucket(endpoint, "calm", monkeypatch))
        assert calm.start("all").wait().code == 0
        expected = calm.losses("all")
        assert list(expected) == list(range(1, STEPS + 1))
        lives = Lives(tmp_path / "lives", new_bucket(endpoint, "lives", monkeypatch))
        begun = 0
        for life in ("first", "second"):
            call = lives.start(life, *SLOWLY)
            wanted = begun + draw.randrange(11, 20)
            wait_for_step(lives, life, wanted, call)
            wait_for_checkpoint(lives, call)
            lives.run.mark.kill_all()
            call.process.wait()
            found = lives.losses(life)
            assert found == {step: expected[step] for step in found}, f"seed {seed}"
            assert min(begun, 5) < min(found) <= begun + 1, f"seed {seed}"
            begun = max(found)
        ended = lives.start("third").wait()
        assert ended.code == 0, f"seed {seed}: {ended.err}"
        found = lives.losses("third")
        assert min(found) > 5, "it began anew"
        assert max(found) == STEPS
        assert found == {step: expected[step] for step in found}, f"seed {seed}"
        lives.run.mark.wait_none_left()
    assert_unseen(tmp_path)


def test_workers_may_die_meanwhile(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A worker is killed, later all nodes: the training goes on, and no step is missed."""
    with moto_server() as endpoint:
        lives = Lives(tmp_path / "lives", new_bucket(endpoint, "chaos", monkeypatch))
        call = lives.start("first", *SLOWLY)
        wait_for_step(lives, "first", 12, call)
        os.kill(workers(lives)[0], signal.SIGKILL)
        wait_for_step(lives, "first", 25, call)
        wait_for_checkpoint(lives, call)
        lives.run.mark.kill_all()
        call.process.wait()
        ended = lives.start("second").wait()
        assert ended.code == 0, ended.err
        found = lives.losses("second")
        assert 5 < min(found) <= max(lives.losses("first")) + 1
        assert list(found) == list(range(min(found), STEPS + 1))


def wait_for_step(lives: Lives, name: str, step: int, call: Call) -> None:
    until(lambda: max(lives.losses(name), default=0) >= step, lambda: call.err)


def wait_for_checkpoint(lives: Lives, call: Call) -> None:
    """Wait until something is durable: from then on no life begins anew."""
    until(lambda: any(CommitLog(lives.bucket).checkpoints()), lambda: call.err)


def workers(lives: Lives) -> list[int]:
    """Those that share memory with a keeper and are none."""
    found = []
    for pid, command in lives.run.mark.processes().items():
        with suppress(OSError):
            shares = "memfd:elasticd-checkpoint" in Path(f"/proc/{pid}/maps").read_text()
            found += [pid] if shares and "keeper" not in command else []
    return found


def assert_unseen(folder: Path) -> None:
    """No file of a run has the credential: no log, no record, no report."""
    for path in folder.rglob("*"):
        if path.is_file():
            assert KEY.encode() not in path.read_bytes(), path
