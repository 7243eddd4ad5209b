"""The heartbeats of one worker and the samples of its process, which show whether it hangs."""

from dataclasses import dataclass

from elasticd.channel.worker import Beat
from elasticd.records.ids import Generation, JobName
from elasticd.records.member import StallLimit

__all__ = ["Quiet", "ObservedWorker"]

HUSH_S = 60.0
"""The pause between false alarms to the other nodes, since each is a write to etcd."""


@dataclass(slots=True, kw_only=True)
class Quiet:
    """A run of samples in which the process did not run."""

    since_s: float
    last_s: float
    cpu_s: float
    has_disk: bool = False
    is_stopped: bool = False
    signalled_s: float | None = None
    """Since when a signal has stopped it. A debugger does not count: it stops and continues a
    process often."""
    was_running: bool = False
    """True if it ran in the last sample. One such sample may be only a look for the GIL."""


@dataclass(slots=True, kw_only=True)
class ObservedWorker:
    pid: int
    job: JobName
    limit_s: float
    heard_s: float = 0.0
    beat: Beat | None = None
    quiet: Quiet | None = None
    formed: Generation = Generation(0)
    formed_step: int = 0
    has_stepped: bool = False
    """True if it has made a step in the generation that is formed."""
    moved_s: float = 0.0
    """When one of its numbers last changed; moved on by time that does not count."""
    record_s: float = 0.0
    """The longest time that it stood still within a step and then went on."""
    is_told_frozen: bool = False
    told: StallLimit | None = None
    """The last limit without progress that it passed and that was reported."""
    has_resumed: bool = False
    """True if it went on after that report, and this is not reported yet."""
    hushed_until_s: float = 0.0
    """Until when it is not suspected beyond this node."""

    @property
    def in_loop(self) -> Beat | None:
        """Return its heartbeat, if it counts for progress."""
        beat = self.beat
        return beat if beat is not None and 0 < beat.generation == self.formed else None

    @property
    def place(self) -> tuple[int, int]:
        """Return a key that orders the workers of a world by how far they are."""
        assert self.beat is not None
        return (self.beat.step, self.beat.sequence)

    def beats(self, beat: Beat, now_s: float) -> None:
        """Note a heartbeat of the worker, and whether it shows progress."""
        before = self.beat
        if before is None or _numbers(before) != _numbers(beat):
            if self.in_loop is not None and before is not None and before.is_in_step:
                self.record_s = max(self.record_s, now_s - self.moved_s)
            self.moves(now_s)
        if beat.generation == self.formed and beat.step > self.formed_step:
            self.has_stepped = True
        self.beat = beat

    def moves(self, now_s: float) -> None:
        """Take note of progress: its time without progress begins anew."""
        self.moved_s = now_s
        if self.told is not None:
            if self.told is not StallLimit.PROGRESS:
                self.hushed_until_s = now_s + HUSH_S
            self.told, self.has_resumed = None, True

    def forms(self, generation: Generation, step: int, now_s: float) -> None:
        """Take note that its group is formed: what was reported of it in the one before is
        forgotten.
        """
        self.formed, self.formed_step = generation, step
        self.has_stepped = self.has_resumed = False
        self.told, self.moved_s = None, now_s


def _numbers(beat: Beat) -> tuple[int, ...]:
    return (beat.generation, beat.step, beat.batches, beat.sequence, beat.is_in_collective)
