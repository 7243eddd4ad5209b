"""What lies between one machine and the others: delays, cuts, lost answers, unkind watches."""

from collections.abc import Callable
from dataclasses import dataclass
from random import Random

from tests.sim.clock import Clock
from tests.sim.etcd import Etcd, Line, Watch

__all__ = ["CALL_TIMEOUT_S", "Link", "Weather"]

CALL_TIMEOUT_S = 1.0


@dataclass(slots=True)
class Weather:
    """How unkind the network is for the whole run."""

    lost_answer: float = 0.0
    """Share of calls that are carried out, but whose answer comes only after reading back."""
    denied_answer: float = 0.0
    """Share of calls that are carried out, but reported as failed."""
    lost_event: float = 0.0
    repeated_event: float = 0.0
    late_event: float = 0.0


class Link(Line):
    """One machine's way to etcd."""

    def __init__(self, clock: Clock, rng: Random, etcd: Etcd, weather: Weather) -> None:
        self.is_cut_from_etcd = False
        self.weather = weather
        self._clock = clock
        self._rng = rng
        self._etcd = etcd

    def call(self, ask: Callable[[], object], answer: Callable[[object | None], None]) -> None:
        """Ask the server and hand back what it said; None: no answer in time."""
        self._clock.after(self._rng.uniform(0.0002, 0.001), lambda: self._served(ask, answer))

    def _served(self, ask: Callable[[], object], answer: Callable[[object | None], None]) -> None:
        if self._etcd.is_down or self.is_cut_from_etcd:
            self._clock.after(CALL_TIMEOUT_S, lambda: answer(None))
            return
        result = ask()
        back_s = self._rng.uniform(0.0002, 0.001)
        weather = self.weather
        luck = self._rng.random() if weather.lost_answer or weather.denied_answer else 1.0
        if luck < weather.denied_answer:
            self._clock.after(CALL_TIMEOUT_S, lambda: answer(None))
        elif luck < weather.denied_answer + weather.lost_answer:
            self._clock.after(self._rng.uniform(0.05, CALL_TIMEOUT_S), lambda: answer(result))
        else:
            self._clock.after(back_s, lambda: answer(result))

    # --- a watch's line

    def delay_s(self) -> float:
        late = self.weather.late_event
        if late and self._rng.random() < late:
            return self._rng.uniform(0.01, 0.5)
        return self._rng.uniform(0.001, 0.003)

    def is_cut(self) -> bool:
        return self.is_cut_from_etcd

    def is_lost(self) -> bool:
        lost = self.weather.lost_event
        return bool(lost) and self._rng.random() < lost

    def is_repeated(self) -> bool:
        repeated = self.weather.repeated_event
        return bool(repeated) and self._rng.random() < repeated

    def lost(self, watch: Watch) -> None:
        """Cut: it resumes by itself. Lost: what was missed may wait for the slow re-read."""
        if self.is_cut_from_etcd:
            self._clock.after(0.5, lambda: self._etcd.resume(watch))
        elif self._rng.random() < 0.5:
            self._clock.after(self._rng.uniform(0.1, 3.0), lambda: self._etcd.resume(watch))
