"""What a writer makes of what it is sent: files that TensorBoard shows with each step once."""

import math
from collections.abc import Callable
from pathlib import Path

import pytest

from elasticd.checkpoint.storage.bucket import Bucket, Data
from elasticd.checkpoint.storage.folder import FolderBucket
from elasticd.checkpoint.storage.forwarding_bucket import ForwardingBucket
from elasticd.errors import Refused, Unavailable
from elasticd.telemetry.metrics.exposition import parsed
from elasticd.tensorboard.message import Scalars, name_block
from elasticd.tensorboard.writer import buffer as buffer_module
from elasticd.tensorboard.writer.buffer import Buffer, FilePart
from elasticd.tensorboard.writer.file_writer import (
    LAST_PAUSE_S,
    LEAST_INTERVAL_S,
    MOST_INTERVAL_S,
    FileWriter,
    interval_s,
)
from elasticd.tensorboard.writer.metrics import MetricsFile
from tests.fixtures.event_reader import Shown, multiplexer, shown, shown_by_server

LOSS = name_block(["loss"])


class Clock:
    def __init__(self) -> None:
        self.now_s = 100.0

    def __call__(self) -> float:
        return self.now_s


class Storage(ForwardingBucket):
    """A folder that may be away, or lose its answers."""

    def __init__(self, folder: Path) -> None:
        super().__init__(FolderBucket(str(folder)))
        self.is_away = self.is_mute = self.is_late = False
        self.refusal = ""
        self.names: list[str] = []

    def create(self, name: str, data: Data) -> bool:
        self._meet()
        return super().create(name, data)

    def list(self, prefix, limit, keep):  # type: ignore[no-untyped-def]
        self._meet()
        return [] if self.is_late else super().list(prefix, limit, keep)

    def replace(self, name: str, data: Data) -> None:
        self._meet()
        self.names.append(name)
        super().replace(name, data)
        if self.is_mute:
            raise Unavailable("no answer")

    def _meet(self) -> None:
        if self.refusal:
            raise Refused(self.refusal)
        if self.is_away:
            raise Unavailable("away")


class Node:
    """A writer, and what its workers have it write."""

    def __init__(
        self, bucket: Bucket, clock: Clock, *, name: str = "a", uid: str = "u" * 16
    ) -> None:
        self.clock = clock
        self.buffer = Buffer(clock)
        self.told: list[str] = []
        self.writer = FileWriter(
            self.buffer,
            lambda: bucket,
            folder="job",
            uid=uid,
            node=name,
            job="job",
            tell=self.told.append,
            clock=clock,
            wall_clock=clock,
        )

    def begin(self, generation: int, step: int) -> FilePart:
        return self.buffer.begin(generation, step)

    def take(self, part: FilePart, *steps: int, value: float = 0.0) -> None:
        for step in steps:
            self.buffer.take(part, Scalars(at_unix_s=1.0, step=step, names=LOSS, values=[value]))

    def flush(self) -> None:
        """Let so much time go by that all is due."""
        self.clock.now_s += MOST_INTERVAL_S
        while self.writer.turn():
            pass


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def storage(tmp_path: Path) -> Storage:
    return Storage(tmp_path)


Make = Callable[..., Node]


@pytest.fixture
def node(storage: Storage, clock: Clock) -> Make:
    return lambda **more: Node(storage, clock, **more)


def steps(found: Shown, run: str = "job/1") -> list[int]:
    return [step for step, _ in found[run]["loss"]]


def test_a_file_is_written_at_each_flush(node: Make, storage: Storage, tmp_path: Path) -> None:
    """Not before it is due; and TensorBoard that looks in between shows what is there."""
    one, live = node(), multiplexer()
    part = one.begin(1, 0)
    one.take(part, 1, 2, 3)
    assert not one.writer.turn()
    assert storage.names == []
    one.clock.now_s += LEAST_INTERVAL_S
    assert one.writer.turn()
    assert steps(shown(tmp_path, many=live)) == [1, 2, 3]
    one.take(part, 4, 5)
    assert not one.writer.turn()
    one.buffer.end(part)  # Its worker has ended: at once.
    assert one.writer.turn()
    assert steps(shown(tmp_path, many=live)) == [1, 2, 3, 4, 5]
    assert len(storage.names) == len(set(storage.names)) == 2
    assert one.told == []


def test_interval_grows_with_the_run() -> None:
    """Else a week would be a hundred thousand files."""
    assert interval_s(0.0) == LEAST_INTERVAL_S
    assert LEAST_INTERVAL_S < interval_s(1800.0) < MOST_INTERVAL_S
    assert interval_s(1e6) == MOST_INTERVAL_S


def test_large_part_is_written_at_once(
    node: Make, storage: Storage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In files of a limited size, and whole."""
    monkeypatch.setattr(buffer_module, "FILE_BYTES", 2000)
    one = node()
    part = one.begin(1, 0)
    one.take(part, *range(1, 101))
    while one.writer.turn():
        pass
    one.buffer.end(part)
    while one.writer.turn():
        pass
    assert len(storage.names) > 3


# A hundred thousand steps are read back in four ways: that is work of the processor, not a wait.
@pytest.mark.timeout(600)
@pytest.mark.parametrize("total", [10_000, pytest.param(100_000, marks=pytest.mark.slow)])
def test_each_step_shows_once_after_fifty_restores(node: Make, tmp_path: Path, total: int) -> None:
    """Rank 0 changes its node, and every fifth time is lost with what it had not written."""
    nodes, live = [node(name=name) for name in "abc"], multiplexer()
    want: dict[int, float] = {}
    kept = range(0)
    step, usual = 0, total // 75
    for generation in range(1, 52):
        one = nodes[generation % 3]
        part = one.begin(generation, step)
        one.take(part, *(each for each in kept if each <= step), value=-1.0)
        last = total if generation == 51 else step + usual + generation
        one.take(part, *range(step + 1, last + 1), value=float(generation))
        want |= dict.fromkeys(range(step + 1, last + 1), float(generation))
        is_lost = generation % 5 == 2
        if is_lost:
            one.flush()
            nodes[generation % 3] = node(name=f"x{generation}")
            want |= dict.fromkeys(range(last + 1, last + 31), -1.0)
            last += 30
        else:
            one.buffer.end(part)
            one.flush()
        kept = range(last - 50, last + 1)
        if generation < 51:  # Some go on where they were, some go back.
            step = last if generation % 2 else last - 9 * (generation % 7)
            want = {k: v for k, v in want.items() if k <= step}
        if generation % 10 == 0:
            shown(tmp_path, many=live)
    assert sorted(want) == list(range(1, total + 1))
    for found in (
        shown(tmp_path),
        shown(tmp_path, many=live),
        shown(tmp_path, has_multifile=True),
        shown_by_server(tmp_path, total),
    ):
        assert list(found) == ["job/1"]
        assert found["job/1"]["loss"] == sorted(want.items())


def test_storage_that_is_down_is_waited_for(
    node: Make, storage: Storage, clock: Clock, tmp_path: Path
) -> None:
    """With one warning, and pauses that grow; then everything is written."""
    one = node()
    part = one.begin(1, 0)
    one.take(part, 1)
    storage.is_away = True
    tries = 0
    for second in range(2, 200):
        one.take(part, second)
        before = one.writer._retry_s
        one.writer.turn()
        tries += one.writer._retry_s != before
        clock.now_s += 1.0
    assert tries < 20
    storage.is_away = False
    clock.now_s += LAST_PAUSE_S
    one.flush()
    assert steps(shown(tmp_path)) == list(range(1, 200))
    assert len(one.told) == 1
    assert "tried again until they can" in one.told[0]


def test_what_has_no_room_is_dropped_and_counted(
    node: Make, storage: Storage, clock: Clock, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With one more warning; what comes when there is room again is written."""
    monkeypatch.setattr(buffer_module, "LIMIT_BYTES", 50_000)
    one = node()
    part = one.begin(1, 0)
    storage.is_away = True
    one.take(part, *range(1, 2001))
    assert one.buffer.nbytes <= 50_000
    one.flush()
    one.flush()
    there = one.buffer.steps
    assert one.buffer.dropped == 2000 - there > 0
    assert len(one.told) == 2
    path = tmp_path / "node.tensorboard.prom"
    MetricsFile("job", str(path), one.buffer, one.writer).write()
    said = {name: value for name, _, value in parsed(path.read_text())}
    assert said == {
        "elasticd_tensorboard_files_total": 0.0,
        "elasticd_tensorboard_dropped_steps_total": 2000.0 - there,
        "elasticd_tensorboard_unwritten_steps": there,
    }
    storage.is_away = False
    one.flush()
    one.take(part, 3000)
    one.flush()
    assert steps(shown(tmp_path)) == [*range(1, there + 1), 3000]
    assert len(one.told) == 2


def test_url_that_cannot_be_written_is_told_at_once(node: Make, storage: Storage) -> None:
    """Before anything is due."""
    one = node()
    storage.refusal = "This user may not write there."
    one.begin(1, 0)
    assert not one.writer.turn()
    (told,) = one.told
    assert told == (
        "event files cannot be written now, and are tried again until they can: This user may not "
        "write there."
    )


def test_file_whose_answer_was_lost_is_not_written_twice(
    node: Make, storage: Storage, clock: Clock, tmp_path: Path
) -> None:
    """Under one name, whatever has come since."""
    one = node()
    part = one.begin(1, 0)
    one.take(part, 1, 2)
    storage.is_mute = True
    clock.now_s += LEAST_INTERVAL_S
    assert not one.writer.turn()
    one.take(part, 3)
    storage.is_mute = False
    one.flush()
    one.flush()
    assert storage.names[0] == storage.names[1]
    assert steps(shown(tmp_path)) == [1, 2, 3]
    assert len(list((tmp_path / "job" / "1").glob("events*"))) == 2


def test_writer_that_is_started_anew_goes_on(node: Make, tmp_path: Path) -> None:
    """The worker sends what it kept; what stands in a file is not written again."""
    one = node()
    part = one.begin(1, 0)
    one.take(part, *range(1, 6))
    one.flush()
    one.take(part, 6, 7)  # Lost with the writer.
    other = node()
    part = other.begin(1, 0)
    other.take(part, *range(1, 8))
    other.flush()
    other.take(part, 8)
    other.flush()
    assert steps(shown(tmp_path)) == list(range(1, 9))


def test_late_file_of_an_older_generation_changes_nothing(node: Make, tmp_path: Path) -> None:
    """A node whose storage was away for longer: its file is before those of the newer one."""
    old, new = node(name="a"), node(name="b")
    early, late = old.begin(1, 0), new.begin(2, 3)
    old.take(early, *range(1, 6), value=1.0)
    new.take(late, *range(1, 4), value=-1.0)  # What it kept.
    new.take(late, *range(4, 9), value=2.0)
    new.flush()
    old.flush()
    assert shown(tmp_path)["job/1"]["loss"] == [
        (step, -1.0 if step < 4 else 2.0) for step in range(1, 9)
    ]


def test_job_that_begins_anew_has_a_run_of_its_own(node: Make, tmp_path: Path) -> None:
    """And one that goes on with a checkpoint goes on with the newest run."""
    for uid, step, last in (("a", 0, 9), ("b", 0, 5), ("c", 3, 8)):
        one = node(uid=uid * 16)
        part = one.begin(1, step)
        one.take(part, *range(step + 1, last + 1))
        one.buffer.end(part)
        one.flush()
        assert one.told == []
    found = shown(tmp_path)
    assert sorted(found) == ["job/1", "job/2"]
    assert steps(found, "job/1") == list(range(1, 10))
    assert steps(found, "job/2") == list(range(1, 9))


def test_two_jobs_that_begin_at_once_have_two_runs(
    node: Make, storage: Storage, tmp_path: Path
) -> None:
    """Both looked before either wrote."""
    both = [node(uid=uid * 16) for uid in "ab"]
    parts = [one.begin(1, 0) for one in both]
    storage.is_late = True
    for one in both:
        one.writer.turn()
    storage.is_late = False
    for one, part in zip(both, parts, strict=True):
        one.take(part, 1, 2)
        one.flush()
    assert sorted(shown(tmp_path)) == ["job/1", "job/2"]


def test_job_whose_node_was_lost_before_its_first_file_keeps_its_run(
    node: Make, tmp_path: Path
) -> None:
    """Another node knows the claim."""
    lost = node(name="a")
    lost.begin(1, 0)
    lost.writer.turn()
    one = node(name="b")
    part = one.begin(2, 0)
    one.take(part, 1, 2)
    one.flush()
    assert sorted(shown(tmp_path)) == ["job/1"]


def test_numbers_that_are_not_finite_are_kept(node: Make, tmp_path: Path) -> None:
    """TensorBoard marks them."""
    one = node()
    part = one.begin(1, 0)
    for step, value in enumerate((math.nan, math.inf, -math.inf), 1):
        one.take(part, step, value=value)
    one.flush()
    values = [value for _, value in shown(tmp_path)["job/1"]["loss"]]
    assert math.isnan(values[0]) and values[1:] == [math.inf, -math.inf]
