"""How an agent learns which of several jobs lack nodes."""

import pytest

from elasticd.control import job_submission
from elasticd.records.codec import encode
from elasticd.records.ids import Generation, JobName
from elasticd.records.job import EntryKind, JobSpec, JobStatus, Want
from elasticd.records.keys import Keys
from elasticd.records.reason import Phase
from elasticd.rendezvous.decide import REREAD_S
from elasticd.store.api import Put, Txn
from elasticd.store.memory import MemoryStore
from elasticd_agent.loop import resync_watch
from elasticd_agent.node.demand import Demands

KEYS = Keys()
A = JobName("A")
SPEC = JobSpec(
    name=A, uid="one", entry_kind=EntryKind.SCRIPT, entry="t.py", min_nodes=1, max_nodes=3
)


class Scene:
    """A store with one job, and what an agent concludes about it."""

    def __init__(self) -> None:
        self.store = MemoryStore()
        job_submission.submit(self.store, KEYS, SPEC)
        self.changes = 0
        self.demands = Demands(self.store, KEYS, lambda item: item(), self._changed)

    def _changed(self) -> None:
        self.changes += 1

    def put(self, key: str, record: object) -> None:
        self.store.commit(Txn(then=(Put(key=key, value=encode(record)),)))

    def running(self, nodes: int) -> None:
        self.put(KEYS.status(A), JobStatus(phase=Phase.RUNNING, nodes=nodes))


def test_pending_job_lacks_nodes() -> None:
    """Known as soon as its records were read, and told."""
    scene = Scene()
    assert scene.demands.lacks_nodes(A) is None
    scene.demands.watch({A: SPEC})
    assert scene.demands.lacks_nodes(A) is True
    assert scene.changes == 1


def test_answer_follows_the_world_and_the_wishes() -> None:
    """Complete with three of three; a wish for two makes two enough; each change is told."""
    scene = Scene()
    scene.demands.watch({A: SPEC})
    answers = []
    scene.running(2)
    answers.append(scene.demands.lacks_nodes(A))
    scene.put(KEYS.want(A, "user"), Want(writer="user", nodes=2))
    answers.append(scene.demands.lacks_nodes(A))
    scene.running(1)
    answers.append(scene.demands.lacks_nodes(A))
    scene.put(KEYS.want(A, "user"), Want(writer="user", nodes=2, is_stop=True))
    answers.append(scene.demands.lacks_nodes(A))
    assert answers == [True, False, True, False]
    assert scene.changes == 4


def test_job_that_had_begun_and_waits_for_nodes_is_stuck() -> None:
    """A new one waits too, and keeps no node elsewhere that others wait for."""
    scene = Scene()
    scene.demands.watch({A: SPEC})
    answers = []
    for phase, generation in ((Phase.WAITING, 0), (Phase.RUNNING, 1), (Phase.WAITING, 1)):
        status = JobStatus(phase=phase, generation=Generation(generation))
        scene.put(KEYS.status(A), status)
        answers.append(scene.demands.is_stuck(A))
    assert answers == [False, False, True]
    assert scene.changes == 3


def test_job_that_is_watched_no_more_is_not_known() -> None:
    """What was seen of it once may be wrong by now."""
    scene = Scene()
    scene.demands.watch({A: SPEC})
    scene.demands.watch({})
    scene.running(3)
    assert scene.demands.lacks_nodes(A) is None
    scene.demands.watch({A: SPEC})
    assert scene.demands.lacks_nodes(A) is False


def test_event_that_a_watch_missed_is_found_a_minute_later(monkeypatch: pytest.MonkeyPatch) -> None:
    """etcd has lost events of watches that stayed open; a job would wait for slots for ever."""
    now_s = [1000.0]
    monkeypatch.setattr(resync_watch, "now_s", lambda: now_s[0])
    scene = Scene()
    scene.demands.watch({A: SPEC})
    scene.store.drop_watches()
    scene.running(3)
    for watch in scene.store._watches:
        watch.missed.clear()
    scene.store.resume_watches()
    assert scene.demands.lacks_nodes(A) is True, "nobody has told of it"
    due_s = scene.demands.wake_s
    assert due_s is not None and due_s <= now_s[0] + 1.25 * REREAD_S
    now_s[0] += 1.25 * REREAD_S
    scene.demands.take_due()
    assert scene.demands.lacks_nodes(A) is False
    scene.demands.close()
    assert scene.demands.wake_s is None


def test_status_that_nobody_here_understands_goes_last() -> None:
    """A newer schema must not stop the jobs that can be read."""
    scene = Scene()
    scene.demands.watch({A: SPEC})
    scene.store.commit(Txn(then=(Put(key=KEYS.status(A), value=b'{"schema":99}'),)))
    assert scene.demands.lacks_nodes(A) is False
