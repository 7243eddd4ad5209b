"""The operator's counts of its own work; several threads may use them."""

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable
from enum import StrEnum
from threading import Lock

from elasticd.telemetry.metrics.catalog import EVALUATION_BOUNDS_S, by_name
from elasticd.telemetry.metrics.exposition import Histogram, Sample, exposition

__all__ = ["OperatorCounts", "ActionOutcome"]

LEADER = by_name("elasticd_operator_leader")
FOLLOWING = by_name("elasticd_operator_following")
JOBS = by_name("elasticd_operator_jobs")
ACTIONS = by_name("elasticd_operator_actions_total")
REQUESTS = by_name("elasticd_operator_api_requests_total")
RECONCILIATION = by_name("elasticd_operator_reconciliation_seconds")
_PHASES, _ACTIONS, _ANSWERS = JOBS.labels[0].values, ACTIONS.labels[0].values, REQUESTS.labels[0]


class ActionOutcome(StrEnum):
    """The outcome of an action."""

    DONE = "done"
    OUTDATED = "outdated"
    """The object or job of the decision does not exist any more: the next evaluation decides
    again."""
    REFUSED = "refused"
    UNAVAILABLE = "unavailable"


class OperatorCounts:
    """The counts of one process since its start."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._is_leader = self._is_following = False
        self._jobs = dict.fromkeys(_PHASES, 0)
        self._actions = {(action, how.value): 0 for action in _ACTIONS for how in ActionOutcome}
        self._requests = dict.fromkeys(_ANSWERS.values, 0)
        self._times = [0] * (len(EVALUATION_BOUNDS_S) + 1)
        self._time_s = 0.0

    def leads(self, is_leader: bool) -> None:
        """Note whether this process leads."""
        with self._lock:
            self._is_leader = is_leader
            if not is_leader:
                self._is_following = False
                self._jobs = dict.fromkeys(_PHASES, 0)

    def sees(self, phases: Iterable[str], *, is_following: bool) -> None:
        """Note the phases of all ElasticJobs; an unknown phase comes from a newer operator."""
        found = Counter(phases)
        with self._lock:
            self._is_following = is_following
            self._jobs = {phase: found.get(phase, 0) for phase in _PHASES}

    def acted(self, action: str, outcome: ActionOutcome) -> None:
        """Count an action by its name in small letters, and by its outcome."""
        with self._lock:
            self._actions[action, outcome.value] += 1

    def asked(self, code: int) -> None:
        """Count a request to the API server by its HTTP status; 0 if there was no answer."""
        classes = {0: "none", 2: "success", 4: "refused"}
        with self._lock:
            self._requests[classes.get(code // 100, "failed")] += 1

    def reconciled(self, took_s: float) -> None:
        """Count one evaluation, and its duration in seconds."""
        with self._lock:
            self._times[bisect_left(EVALUATION_BOUNDS_S, took_s)] += 1
            self._time_s += took_s

    def exposition(self, *, is_alive: bool = True) -> bytes:
        """Return all counts in Prometheus' text format.

        `is_alive` is False if the thread that acts does not run any more: then this process does
        not lead.
        """
        with self._lock:
            samples = [Sample(LEADER, (), float(self._is_leader and is_alive))]
            samples += [Sample(FOLLOWING, (), float(self._is_following))]
            samples += [Sample(JOBS, (phase,), n) for phase, n in self._jobs.items()]
            samples += [Sample(ACTIONS, key, n) for key, n in self._actions.items()]
            samples += [Sample(REQUESTS, (answer,), n) for answer, n in self._requests.items()]
            times = Histogram(tuple(self._times), self._time_s)
        return exposition([*samples, Sample(RECONCILIATION, (), times)])
