"""What a heartbeat carries, whatever a script gives to `commit`."""

from collections.abc import Mapping

from elasticd.channel.wire import pack
from elasticd.train.introspection.time_spent import SecondsSpent
from elasticd.train.session.heartbeat import NAMES_LIMIT, HeartbeatSender
from elasticd.train.session.step_session import EpochProgress
from elasticd_agent.liveness.worker_sockets import LINE_LIMIT_BYTES


class Training:
    """One whose script gave these numbers to its last commit."""

    step, epoch, batches = 7, 0, 7
    why_paused: str | None = None
    has_returned = has_failed = is_in_step = False
    training_generation = 1
    committed_at_s = 1.0

    def __init__(self, scalars: Mapping[str, float]) -> None:
        self._scalars = scalars
        self.spent = SecondsSpent()

    def arrived(self) -> int:
        return 0

    def is_in_collective(self) -> bool:
        return True

    def epoch_progress(self) -> EpochProgress:
        return EpochProgress()

    def scalars(self) -> Mapping[str, float]:
        return self._scalars


def test_agent_takes_every_beat_however_many_numbers_there_are() -> None:
    """It hangs up on a line that is too long, and gives up the worker."""
    many = {f"layer-{number}/norm": 0.1 for number in range(100_000)}
    given = {"n" * 2_000_000: 1.0, **many}
    beat = HeartbeatSender(Training(given), lambda beat: None, lambda now_s: False)._beat()
    assert dict(beat.scalars) == dict(list(many.items())[:NAMES_LIMIT])
    assert len(pack(beat)) < LINE_LIMIT_BYTES / 10
    few = {"loss": 0.5}
    assert (
        HeartbeatSender(Training(few), lambda beat: None, lambda now_s: False)._beat().scalars
        == few
    )


def test_number_that_cannot_be_read_does_not_silence_the_worker() -> None:
    """A tensor of a kind that nobody thought of; who does not beat is taken for frozen."""

    class Odd(Training):
        def scalars(self) -> Mapping[str, float]:
            raise RuntimeError("value cannot be converted to type double without overflow")

    beat = HeartbeatSender(Odd({}), lambda beat: None, lambda now_s: False)._beat()
    assert (beat.step, dict(beat.scalars)) == (7, {})
