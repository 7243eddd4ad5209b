"""In which order the operator tries again what hung, and what it makes of what ended late."""

import threading
from collections.abc import Iterable, Iterator
from typing import Any

import pytest

from elasticd.kube.api.failure import Failed
from elasticd.kube.api.memory import MemoryApi
from elasticd.kube.decide.action import Action, RemoveFinalizer, StopJob
from elasticd.kube.operator.write import action_threads
from elasticd.kube.operator.write.action_threads import SLOW_THREADS, ActionThreads
from elasticd.kube.operator.write.effect import group_of
from elasticd.kube.resource.elastic_job import JobKey
from elasticd.records.ids import JobName
from tests.fixtures.operator_scene import OperatorScene
from tests.fixtures.recorder import LIMIT_S
from tests.fixtures.store import wait_until


class Webhook:
    """Stands in for `Effects`: each write of a thing that hangs waits for `may_end`, then fails."""

    def __init__(self, hanging: Iterable[Action]) -> None:
        self.hanging = {group_of(action) for action in hanging}
        self.begun: list[str] = []
        self.ended: list[str] = []
        self.may_end = threading.Event()

    def carry_out(self, action: Action) -> None:
        about = group_of(action)
        self.begun.append(about)
        if about in self.hanging:
            self.may_end.wait(LIMIT_S)
            self.ended.append(about)
            raise Failed("The webhook does not answer.")


class Clock:
    """The operator's own; each look at it takes `step_s`."""

    at_s, step_s = 100.0, 0.0

    def __call__(self) -> float:
        self.at_s += self.step_s
        return self.at_s


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def threads(monkeypatch: pytest.MonkeyPatch, clock: Clock) -> Iterator[ActionThreads]:
    monkeypatch.setattr(action_threads, "LOOK_S", 0.2)
    threads = ActionThreads(lambda: None, clock)
    yield threads
    threads.close()


def release(action: str) -> Action:
    return RemoveFinalizer(job=JobKey(namespace="team", name=action, uid=f"uid-{action}"))


def stop(job: str) -> Action:
    return StopJob(job=JobName(job), uid="one", why="", may_end=False)


def end_all(threads: ActionThreads, webhook: Webhook) -> None:
    """Have all that hangs fail, and hear of it, as each look does; what is begun afterwards hangs
    anew.
    """
    webhook.may_end.set()
    wait_until(lambda: not threads._running)
    webhook.may_end.clear()
    threads.take_ended()
    webhook.begun.clear()
    webhook.ended.clear()


def test_each_thing_that_hung_has_its_turn(threads: ActionThreads) -> None:
    """Of a webhook that hangs for good there may be more than are tried at once."""
    actions = [release(f"a{number:02}") for number in range(14)]
    every = {group_of(action) for action in actions}
    webhook = Webhook(actions)
    while set(webhook.begun) != every:
        threads.carry_out(webhook, actions)  # type: ignore[arg-type]
    end_all(threads, webhook)
    tried: list[str] = []
    for _ in range(4):
        threads.carry_out(webhook, actions)  # type: ignore[arg-type]
        wait_until(lambda: len(webhook.begun) == SLOW_THREADS)
        tried += webhook.begun
        end_all(threads, webhook)
    assert set(tried) == every


def test_what_hangs_at_the_api_server_keeps_nothing_from_etcd(threads: ActionThreads) -> None:
    """Even where a write to etcd hung once itself."""
    actions = [release(f"a{number}") for number in range(SLOW_THREADS)]
    webhook = Webhook([*actions, stop("job")])
    while len(webhook.begun) < 5:
        threads.carry_out(webhook, [*actions, stop("job")])  # type: ignore[arg-type]
    end_all(threads, webhook)
    threads.carry_out(webhook, actions)  # type: ignore[arg-type]
    wait_until(lambda: len(webhook.begun) == SLOW_THREADS)
    threads.carry_out(webhook, [*actions, stop("job")])  # type: ignore[arg-type]
    try:
        wait_until(lambda: webhook.begun[SLOW_THREADS:] == [group_of(stop("job"))])
    finally:
        end_all(threads, webhook)


def test_what_ended_unheard_is_not_done_again(threads: ActionThreads) -> None:
    """It ended while it was decided what to do, and who decided knew nothing of it."""
    action = release("a")
    webhook = Webhook([action])
    while not webhook.begun:
        threads.carry_out(webhook, [action])  # type: ignore[arg-type]
    webhook.may_end.set()
    wait_until(lambda: not threads._running)
    webhook.may_end.clear()
    (heard,) = threads.carry_out(webhook, [action])  # type: ignore[arg-type]
    assert heard.action is action and not threads._running
    assert threads.late == {group_of(action)}, "the next look comes at once"
    threads.carry_out(webhook, [action])  # type: ignore[arg-type]
    wait_until(lambda: len(webhook.begun) == 2)
    end_all(threads, webhook)


def test_what_did_nothing_is_waited_for_no_more_than_before(
    threads: ActionThreads, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its look was over before it began: that it was quick says nothing."""
    action = release("a")
    webhook = Webhook([action])
    while not webhook.begun:
        threads.carry_out(webhook, [action])  # type: ignore[arg-type]
    end_all(threads, webhook)
    clock.step_s = 0.3
    threads.carry_out(webhook, [action])  # type: ignore[arg-type]
    wait_until(lambda: not threads._running)
    assert not webhook.begun
    clock.step_s = 0.0
    monkeypatch.setattr(action_threads, "LOOK_S", 2 * LIMIT_S)
    threads.carry_out(webhook, [action])  # type: ignore[arg-type]
    assert not webhook.ended, "the look did not wait for it"
    end_all(threads, webhook)


class SlowToNote(MemoryApi):
    """Answers no event until it may."""

    may_answer = threading.Event()
    is_noted = False

    def note(self, *args: Any, **more: Any) -> Any:
        self.may_answer.wait(2 * LIMIT_S)
        made = super().note(*args, **more)
        self.is_noted = True
        return made


def test_an_event_that_was_written_late_is_not_written_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """What ended after its look is known before the next decision."""
    monkeypatch.setattr(action_threads, "LOOK_S", 0.2)
    scene = OperatorScene()
    api = scene.api = SlowToNote(scene.objects)
    api.may_answer = threading.Event()
    scene.create()
    operator = scene.begin()
    try:
        for _ in range(5):
            operator.evaluate()
            scene.now_s += 5.0
        assert "note" not in " ".join(api.calls)
        woken = scene.wakes
        api.may_answer.set()
        wait_until(lambda: api.is_noted and scene.wakes > woken)
        for _ in range(5):
            operator.evaluate()
            wait_until(lambda: not operator._threads._running)
            scene.now_s += 5.0
        notes = [call for call in api.calls if call.startswith("note")]
        assert len(notes) == 1
    finally:
        api.may_answer.set()
        scene.close()
