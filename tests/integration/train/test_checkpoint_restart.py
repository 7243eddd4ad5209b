"""`elasticd.checkpoint.save` and `load` in scripts that are started again, with real processes."""

import json
import os
import signal
import time
from pathlib import Path

import pytest

from elasticd.train.save_and_load import UPLOAD_WAIT_LIMIT_S
from tests.fixtures.cluster import SCRIPTS, Ended, until
from tests.fixtures.local_run import LocalRun
from tests.fixtures.saved_runs import assert_damaged, assert_whole, is_close

SCRIPT = str(SCRIPTS / "saver.py")
SAVES_LAST = str(SCRIPTS / "saves_last.py")
NEVER_WHOLE = (
    "The checkpoint of step 6 could not be saved: A process ended before its part was whole"
)
AWAITED = "waiting for the last checkpoint"


class Restarts:
    """Calls of the script in one folder, all for one job."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir()
        self.place = LocalRun(folder, shares_server=True)
        self.url = f"file://{folder.with_name('saved')}"

    def run(self, *args: str, agents: int = 1, workers: int = 2) -> Ended:
        """With so many workers in all. Several agents cost seconds: each imports torch."""
        places = ("--local-agents", str(agents), "--nproc-per-node", str(workers // agents))
        flags = ("--job", "job", *places, "--checkpoint", self.url)
        return self.place.run(*flags, "--checkpoint-timeout", "3", SCRIPT, *args)

    def words(self) -> list[dict[str, object]]:
        """What rank 0 said in JSON, in all generations of the last call."""
        found = []
        for path in sorted((self.place.runs / "job").glob("gen-*/rank-0.out")):
            found += [json.loads(one) for one in path.read_text().splitlines() if one[:1] == "{"]
        return found

    def weights(self) -> list[float]:
        weights = self.words()[-1]["weights"]
        assert isinstance(weights, list)
        return weights


NOTHING_SAVED = "nothing was saved, though --checkpoint was given: call elasticd.checkpoint.load()"
LOADS = "import elasticd.checkpoint\nelasticd.checkpoint.load()\nraise SystemExit(0)\n"
SAVES_LATE = """import atexit, subprocess, sys
code = "import elasticd.checkpoint as c, torch; c.save({'w': torch.ones(2)}, 1)"
atexit.register(subprocess.run, [sys.executable, "-c", code])
"""


@pytest.mark.parametrize(
    ("script", "workers", "is_told"),
    [(LOADS, "2", True), (SAVES_LATE, "1", False)],
    ids=["never", "late-in-a-child"],
)
def test_script_that_saves_nothing_is_told_so_once_at_its_end(
    tmp_path: Path, script: str, workers: str, is_told: bool
) -> None:
    """By rank 0 alone; who saves as late as can be, and in another process, is told nothing."""
    (tmp_path / "run").mkdir()
    place = LocalRun(tmp_path / "run", shares_server=True)
    (tmp_path / "run" / "script.py").write_text(script)
    flags = ("--job", "job", "--nproc-per-node", workers, "--checkpoint", "ck")
    ended = place.run(*flags, "script.py")
    assert ended.code == 0, ended.err
    said = [path.read_text() for path in (place.runs / "job").glob("gen-1/rank-*.err")]
    assert "".join(said).count(NOTHING_SAVED) == is_told, said


@pytest.mark.parametrize("kind", [(), ("--sharded",)], ids=["replicated", "sharded"])
def test_killed_script_goes_on_where_it_was_saved(tmp_path: Path, kind: tuple[str, ...]) -> None:
    """Every rank is killed after step 9; the next generation loads what the keepers made durable,
    and ends with the weights of a run that nothing happened to."""
    calm = Restarts(tmp_path / "calm")
    assert calm.run(*kind).code == 0
    (tmp_path / "saved").rename(tmp_path / "other")
    runs = Restarts(tmp_path / "run")
    ended = runs.run(*kind, "--die-at", "9", agents=2)
    assert ended.code == 0, ended.err
    begun = [word["loaded"] for word in runs.words() if "loaded" in word]
    assert begun[0] == 0
    assert begun[-1] in (2, 4, 6, 8)
    assert is_close(runs.weights(), calm.weights())
    assert_whole(runs.url)
    runs.place.mark.wait_none_left()


def test_share_that_its_worker_never_handed_over_is_not_waited_for(tmp_path: Path) -> None:
    """Rank 1 is killed in the middle of the save of step 6, on another node than rank 0, which has
    handed over its part: the next generation goes on from step 4, long before five minutes are
    over.
    """
    runs = Restarts(tmp_path / "run")
    began_s = time.monotonic()
    flags = ("--sharded", "--patient", "--steps", "8", "--die-in-save", "6")
    ended = runs.run(*flags, agents=2)
    assert ended.code == 0, ended.err
    assert time.monotonic() - began_s < UPLOAD_WAIT_LIMIT_S / 2
    assert [word["loaded"] for word in runs.words() if "loaded" in word] == [0, 4]
    said = [path.read_text() for path in (runs.place.runs / "job").glob("gen-2/rank-0.err")]
    assert NEVER_WHOLE in "".join(said)
    assert_whole(runs.url)
    runs.place.mark.wait_none_left()


def test_sharded_state_is_loaded_by_another_number_of_ranks(tmp_path: Path) -> None:
    """Saved by two ranks, filled into the shards of three and of one."""
    runs = Restarts(tmp_path / "run")
    assert runs.run("--sharded", "--patient", "--steps", "6", agents=2).code == 0
    before = runs.weights()
    for workers in (3, 1):
        ended = runs.run("--sharded", "--steps", "6", workers=workers)
        assert ended.code == 0, ended.err
        assert runs.words()[0] == {"loaded": 6}
        assert runs.weights() == before


def test_part_that_is_damaged_and_only_rank_1_reads_costs_one_start(tmp_path: Path) -> None:
    """Rank 0 reads its own part only, and takes the newest. Rank 1 fails, and its keeper says in
    the storage where: so the next generation goes on from the checkpoint before.
    """
    runs = Restarts(tmp_path / "run")
    flags = ("--sharded", "--patient", "--steps", "6")
    assert runs.run(*flags).code == 0
    (folder,) = (tmp_path / "saved" / "steps").glob(f"{6:012d}-*")
    part = max(folder.glob("00001-0-*.bin"), key=lambda path: path.stat().st_size)
    data = bytearray(part.read_bytes())
    data[0] ^= 1
    part.write_bytes(data)
    ended = runs.run(*flags)
    assert ended.code == 0, ended.err
    assert [word["loaded"] for word in runs.words() if "loaded" in word][-1] == 4
    said = [path.read_text() for path in (runs.place.runs / "job").glob("gen-*/rank-?.err")]
    assert "Rank 1 cannot load checkpoint" in "".join(said)
    assert "The checkpoint of step 6 (run 1, generation 1) is damaged: steps/" in "".join(said)
    assert_damaged(runs.url, (2, 6, False), (1, 6, True), (1, 4, False))
    runs.place.mark.wait_none_left()


def test_what_is_saved_last_is_durable_when_the_run_ends(tmp_path: Path) -> None:
    """The keeper stands still until the run says that it waits for it, and is not ended."""
    place = LocalRun(tmp_path, shares_server=True)
    url = f"file://{tmp_path / 'saved'}"
    call = place.call("--job", "job", "--checkpoint", url, SAVES_LAST)
    until(lambda: AWAITED in call.err, lambda: call.err)
    os.kill(int((tmp_path / "keeper").read_text()), signal.SIGCONT)
    ended = call.wait()
    assert ended.code == 0, ended.err
    assert "was not saved" not in ended.err
    listed = json.loads(place.command("checkpoint", "ls", url, "--json").out)
    assert [each["step"] for each in listed] == [7], ended.err
    place.mark.wait_none_left()


def test_last_checkpoint_is_given_up_by_the_second_ctrl_c(tmp_path: Path) -> None:
    """The first one changes nothing: the run still waits for the keeper, which stands still."""
    place = LocalRun(tmp_path, shares_server=True)
    url = f"file://{tmp_path / 'saved'}"
    call = place.call("--job", "job", "--checkpoint", url, SAVES_LAST)
    until(lambda: AWAITED in call.err, lambda: call.err)
    call.send(signal.SIGINT)
    said = call.err.count(AWAITED)
    until(lambda: call.err.count(AWAITED) > said + 1, lambda: call.err)
    call.send(signal.SIGINT)
    ended = call.wait()
    assert ended.code == 0, ended.err  # The job's own: it has succeeded.
    assert ended.err.count("the last checkpoint was given up; the one before it counts") == 1
    assert "There is no checkpoint" in place.command("checkpoint", "ls", url).sentence
    place.mark.wait_none_left()


def test_script_without_a_url_is_told(tmp_path: Path) -> None:
    """One sentence that names the flag."""
    place = LocalRun(tmp_path, shares_server=True)
    ended = place.run("--job", "job", "--max-restarts", "0", SCRIPT)
    assert ended.code != 0
    assert "start the script with `elasticd run --checkpoint URL`" in ended.err
