"""What was heard of one worker and seen of its process, as far as it tells whether it hangs."""

from dataclasses import dataclass

from elasticd.channel.worker import Beat
from elasticd.records.ids import Generation, JobName
from elasticd.records.member import StallLimit

__all__ = ["Quiet", "WatchedWorker"]

HUSH_S = 60.0
"""After a false alarm to the other nodes the next one waits this long: each is a write to etcd."""


@dataclass(slots=True, kw_only=True)
class Quiet:
    """A run of samples in which the process did not run."""

    since_s: float
    last_s: float
    cpu_s: float
    has_disk: bool = False
    is_stopped: bool = False
    signalled_s: float | None = None
    """Since when it is stopped by a signal; not by a debugger: those come and go."""
    was_running: bool = False
    """In the last sample; one alone may be a look for the GIL."""


@dataclass(slots=True, kw_only=True)
class WatchedWorker:
    pid: int
    job: JobName
    limit_s: float
    heard_s: float = 0.0
    beat: Beat | None = None
    quiet: Quiet | None = None
    formed: Generation = Generation(0)
    formed_step: int = 0
    has_stepped: bool = False
    """In the generation that is formed."""
    moved_s: float = 0.0
    """When a number last changed; moved on by what does not count."""
    record_s: float = 0.0
    """The longest that it stood still within a step, and came on."""
    is_told_frozen: bool = False
    told: StallLimit | None = None
    """The last limit without progress that it passed, as was told."""
    has_resumed: bool = False
    """It moved on after that was told, which is not told yet."""
    hushed_until_s: float = 0.0
    """It is not suspected beyond this node until then."""

    @property
    def in_loop(self) -> Beat | None:
        """Its beat, if it counts for progress."""
        beat = self.beat
        return beat if beat is not None and 0 < beat.generation == self.formed else None

    @property
    def place(self) -> tuple[int, int]:
        """Orders workers of a world by how far they are."""
        assert self.beat is not None
        return (self.beat.step, self.beat.sequence)

    def beats(self, beat: Beat, now_s: float) -> None:
        """Take in a heartbeat."""
        before = self.beat
        if before is None or _numbers(before) != _numbers(beat):
            if self.in_loop is not None and before is not None and before.is_in_step:
                self.record_s = max(self.record_s, now_s - self.moved_s)
            self.moves(now_s)
        if beat.generation == self.formed and beat.step > self.formed_step:
            self.has_stepped = True
        self.beat = beat

    def moves(self, now_s: float) -> None:
        """Its time without progress begins anew."""
        self.moved_s = now_s
        if self.told is not None:
            if self.told is not StallLimit.PROGRESS:
                self.hushed_until_s = now_s + HUSH_S
            self.told, self.has_resumed = None, True

    def forms(self, generation: Generation, step: int, now_s: float) -> None:
        """Its group stands: what it was told to be in the one before is forgotten."""
        self.formed, self.formed_step = generation, step
        self.has_stepped = self.has_resumed = False
        self.told, self.moved_s = None, now_s


def _numbers(beat: Beat) -> tuple[int, ...]:
    return (beat.generation, beat.step, beat.batches, beat.sequence)
