"""A job in the foreground: its end, Ctrl-C, agents that die. Agents are scripted."""

import signal
from collections.abc import Collection
from dataclasses import replace

import pytest

from elasticd.control import jobs
from elasticd.control.local_run.launch import Agents
from elasticd.control.local_run.session import (
    AgentEnded,
    Interrupt,
    LocalRun,
    RunNews,
    Stopping,
    exit_code,
)
from elasticd.errors import EnvironmentProblem, NotFound, Unavailable
from elasticd.records.codec import decode
from elasticd.records.failure import Failure
from elasticd.records.ids import Generation, Incarnation, NodeId, Nonce, Rank, Slot
from elasticd.records.job import Active, JobStatus, Want
from elasticd.records.member import Member
from elasticd.records.reason import Phase
from elasticd.store.api import Txn, TxnResult
from elasticd.store.memory import MemoryStore
from tests.unit.control.world_case import JOB, KEYS, SPEC, end, node, put, world


class ScriptedAgents(Agents):
    """Agents without processes: they end when told to, or as scripted."""

    def __init__(self, *names: str, ends_at_signal: bool = True) -> None:
        super().__init__()
        self.names = frozenset(map(NodeId, names))
        self.over: dict[NodeId, int] = {}
        self.signals: list[int] = []
        self.waited_s: list[float] = []
        self.ends_at_signal = ends_at_signal

    @property
    def nodes(self) -> frozenset[NodeId]:
        return self.names

    def running(self) -> list[NodeId]:
        return [name for name in self.names if name not in self.over]

    def ended(self) -> dict[NodeId, int]:
        return self.over

    def last_words(self, node: NodeId) -> str:
        return "There is no torch."

    def signal(self, number: int, nodes: Collection[NodeId] | None = None) -> None:
        struck = self.names if nodes is None else self.names & frozenset(nodes)
        self.signals += [number] if struck else []
        if self.ends_at_signal:
            self.over |= dict.fromkeys(struck, -number)

    def wait(self, timeout_s: float) -> bool:
        self.waited_s.append(timeout_s)
        return not self.running()


class Case:
    def __init__(self, agents: ScriptedAgents | None, *, is_private: bool = True) -> None:
        self.store = MemoryStore()
        put(self.store, KEYS.spec(JOB), SPEC)
        put(self.store, KEYS.status(JOB), JobStatus())
        put(self.store, KEYS.active_job(JOB), Active(uid=SPEC.uid, is_ready=True))
        self.told: list[RunNews] = []
        self.now_s = 0.0
        self.interrupt = Interrupt()
        self.session = LocalRun(
            self.store,
            KEYS,
            SPEC,
            agents=agents,
            is_private=is_private,
            tail=None,
            interrupt=self.interrupt,
            tell=self.receive,
            now_s=lambda: self.now_s,
        )

    def receive(self, news: RunNews) -> None:
        self.told.append(news)

    def status(self) -> JobStatus:
        item = self.store.get(KEYS.status(JOB))
        assert item is not None
        return decode(JobStatus, item.value)

    def has_stop(self) -> bool:
        item = self.store.get(KEYS.want(JOB, "user"))
        return item is not None and decode(Want, item.value).is_stop


def test_the_final_status_is_the_result() -> None:
    """Worlds are told on the way."""
    case = Case(None)
    put(case.store, KEYS.world(JOB), world(1, "a"))
    end(case.store)
    assert case.session.run().phase is Phase.SUCCEEDED


def test_the_first_signal_wishes_for_a_stop_and_waits_for_it() -> None:
    """The job ends as the agents say, not as we would like."""
    case = Case(ScriptedAgents("a"))

    def receive(news: RunNews) -> None:
        case.told.append(news)
        if isinstance(news, Stopping):
            case.interrupt.wake = lambda: None

    case.session._tell = receive
    case.interrupt.take(signal.SIGINT, None)
    original = case.store.commit

    def commit(txn):  # type: ignore[no-untyped-def]
        result = original(txn)
        if case.has_stop() and not case.status().phase.is_final:
            case.store.commit = original  # type: ignore[method-assign]
            end(case.store, Phase.STOPPED)
        return result

    case.store.commit = commit  # type: ignore[method-assign]
    status = case.session.run()
    assert status.phase is Phase.STOPPED and case.has_stop()
    assert exit_code(status, case.interrupt.number) == 130


def test_the_second_signal_kills_from_the_handler() -> None:
    """No call that hangs stands in between; a private job is then over in its records too."""
    agents = ScriptedAgents("a")
    case = Case(agents)
    case.interrupt.kill = lambda: agents.signal(signal.SIGKILL)
    case.interrupt.take(signal.SIGINT, None)
    assert agents.signals == []
    case.interrupt.take(signal.SIGINT, None)
    assert agents.signals == [signal.SIGKILL]
    assert case.session.run().phase is Phase.STOPPED
    assert case.status().phase is Phase.STOPPED
    assert case.store.get(KEYS.active_job(JOB)) is None


def test_terminal_that_is_closed_is_one_signal() -> None:
    """Bash passes its SIGHUP on and exits, and the kernel sends another: the last checkpoint was
    given up.
    """
    agents = ScriptedAgents("a")
    case = Case(agents)
    case.interrupt.kill = lambda: agents.signal(signal.SIGKILL)
    for _ in range(2):
        case.interrupt.take(signal.SIGHUP, None)
    assert case.interrupt.count == 1 and agents.signals == []
    case.interrupt.take(signal.SIGINT, None)
    assert case.interrupt.count == 2 and agents.signals == [signal.SIGKILL]


def test_two_signals_at_once_end_a_job_of_the_daemons_too() -> None:
    """It was said to be stopped, and went on: nobody had told it to stop."""
    case = Case(None, is_private=False)
    for _ in range(2):
        case.interrupt.take(signal.SIGINT, None)
    assert case.session.run().phase is Phase.STOPPED
    assert case.has_stop()


def test_a_job_that_does_not_stop_in_time_is_an_error() -> None:
    """The shutdown timeout and some slack, not for ever."""
    case = Case(None)
    case.interrupt.take(signal.SIGTERM, None)

    def receive(news: RunNews) -> None:
        case.now_s += 100.0

    case.session._tell = receive
    with pytest.raises(Unavailable, match="did not within"):
        case.session.run()


def test_stop_whose_answer_was_lost_is_not_told_as_one_that_was_not_asked_for() -> None:
    """The wish stood in etcd, and the call said "The job was not told to stop and goes on"."""
    case = Case(None, is_private=False)
    commit = case.store.commit

    def lose_answer(txn: Txn) -> TxnResult:
        commit(txn)
        raise Unavailable("etcd does not answer.")

    case.store.commit = lose_answer  # type: ignore[method-assign]
    case.interrupt.take(signal.SIGINT, None)
    with pytest.raises(Unavailable, match="is not known, so it may go on: `elasticd stop j`"):
        case.session.run()
    assert case.has_stop()


def test_a_private_job_without_enough_agents_fails_with_their_last_words() -> None:
    """It could never form a world again."""
    agents = ScriptedAgents("a")
    agents.over = {NodeId("a"): 1}
    case = Case(agents)
    status = case.session.run()
    assert (status.phase, case.status().phase) == (Phase.FAILED, Phase.FAILED)
    assert "There is no torch." in status.message
    assert [type(news) for news in case.told] == [AgentEnded]


def test_what_the_last_agents_said_is_told_once_and_gives_the_exit_code() -> None:
    """A module of `--preload` that is not there was told twice, and the exit code was 1."""
    for codes, expected in (((2, 2), 2), ((-9, 2), 2), ((-9, -9), 1), ((0, 0), 1)):
        agents = ScriptedAgents("a", "b")
        agents.over = {NodeId("a"): codes[0], NodeId("b"): codes[1]}
        case = Case(agents)
        status = case.session.run()
        assert status.message.count("There is no torch.") == 1
        assert [news.words for news in case.told if isinstance(news, AgentEnded)] == ["", ""]
        assert exit_code(status) == exit_code(case.status()) == expected


def test_what_an_agent_said_is_told_while_others_go_on() -> None:
    agents = ScriptedAgents("a", "b")
    agents.over = {NodeId("a"): 2}
    case = Case(agents)

    def receive(news: RunNews) -> None:
        case.told.append(news)
        agents.over[NodeId("b")] = 2

    case.session._tell = receive
    case.session.run()
    assert [news.words for news in case.told if isinstance(news, AgentEnded)] == [
        "There is no torch.",
        "",
    ]


def test_a_joined_job_outlives_the_agent_of_this_host() -> None:
    """Other hosts may go on: nothing is written, only this call fails."""
    agents = ScriptedAgents("a")
    agents.over = {NodeId("a"): -9}
    case = Case(agents, is_private=False)
    with pytest.raises(EnvironmentProblem, match="SIGKILL"):
        case.session.run()
    assert case.status().phase is Phase.PENDING


def test_a_joined_host_leaves_alone_while_others_serve_the_job() -> None:
    """As with torchrun, where Ctrl-C on one host ends that host's part."""
    agents = ScriptedAgents("a")
    case = Case(agents, is_private=False)
    serve(case, "a", "b")
    put(case.store, KEYS.status(JOB), JobStatus(phase=Phase.RUNNING, generation=Generation(7)))
    case.interrupt.take(signal.SIGINT, None)
    status = case.session.run()
    assert (status.phase, status.generation) == (Phase.STOPPED, 7)
    assert "goes on on the others" in status.message
    assert agents.signals == [signal.SIGTERM]
    assert not case.has_stop()
    assert case.status().phase is Phase.RUNNING


def test_a_private_job_that_was_interrupted_says_by_what() -> None:
    """Also where its agents had to be ended, with a rank that hung: nobody has left anything."""
    agents = ScriptedAgents("a")
    agents.over = {NodeId("a"): -15}
    case = Case(agents)
    serve(case, "a")
    case.interrupt.take(signal.SIGTERM, None)
    status = case.session.run()
    assert (status.phase, status.message) == (Phase.STOPPED, "SIGTERM to elasticd run")


def serve(case: Case, *names: str) -> None:
    for name in names:
        member = Member(
            node=NodeId(name), incarnation=Incarnation("i"), host="h", address="x", port=1, slots=()
        )
        put(case.store, KEYS.member(JOB, NodeId(name)), member)


def failed(code: int | None = None, name: str = "") -> JobStatus:
    failure = Failure(
        node=NodeId("a"),
        incarnation=Incarnation("i"),
        host="h",
        generation=Generation(1),
        rank=Rank(0),
        local_rank=0,
        slot=Slot(0),
        nonce=Nonce(1),
        exit_code=code,
        signal=name,
    )
    return JobStatus(phase=Phase.FAILED, failure=failure)


@pytest.mark.parametrize(
    ("status", "number", "code"),
    [
        (JobStatus(phase=Phase.SUCCEEDED), 0, 0),
        (JobStatus(phase=Phase.SUCCEEDED), signal.SIGINT, 0),
        (failed(code=7), 0, 7),
        (failed(name="SIGSEGV"), 0, 139),
        (failed(name="signal 40"), 0, 168),
        (failed(name="of a newer version"), 0, 1),
        (JobStatus(phase=Phase.FAILED), 0, 1),
        (failed(code=1), signal.SIGINT, 130),
        (JobStatus(phase=Phase.STOPPED), signal.SIGTERM, 143),
        (JobStatus(phase=Phase.STOPPED), 0, 143),
    ],
)
def test_the_exit_code_is_the_jobs(status: JobStatus, number: int, code: int) -> None:
    """As a shell would give it: the first failing rank's, 128 + n for a signal, 130 for Ctrl-C."""
    assert exit_code(status, number) == code


def test_stopped_workers_have_their_grace_before_the_agents_are_ended() -> None:
    """They may be saving their state; of a job that came to its end none is left."""
    waited = {}
    for phase in (Phase.STOPPED, Phase.SUCCEEDED):
        agents = ScriptedAgents("a")
        case = Case(agents)
        serve(case, "a")
        end(case.store, phase)
        assert case.session.run().phase is phase
        (waited[phase],) = agents.waited_s
        assert agents.signals == []
    assert waited[Phase.STOPPED] == waited[Phase.SUCCEEDED] + SPEC.shutdown_timeout_s


def test_agent_that_came_when_the_job_was_over_is_ended_at_once() -> None:
    """It has seen no job of this name, and would wait for one while the run waits for its end."""
    agents = ScriptedAgents("trained", "stands-by", "came-late")
    case = Case(agents)
    put(case.store, KEYS.node(NodeId("trained")), node("trained"))
    put(case.store, KEYS.world(JOB), world(1, "trained"))
    serve(case, "stands-by")
    end(case.store, Phase.STOPPED)
    assert case.session.run().phase is Phase.STOPPED
    assert agents.over == {"came-late": -signal.SIGTERM}


def test_agent_that_was_in_the_cluster_but_in_no_world_of_the_job_is_ended_too() -> None:
    """It had registered when the world formed, and not joined yet: it has served nobody."""
    agents = ScriptedAgents("trained", "registered")
    case = Case(agents)
    for name in ("trained", "registered", "of another job"):
        put(case.store, KEYS.node(NodeId(name)), node(name))
    put(case.store, KEYS.world(JOB), world(1, "trained"))
    end(case.store, Phase.STOPPED)
    assert case.session.run().phase is Phase.STOPPED
    assert set(case.session.nodes) == {"trained"}
    assert agents.over == {"registered": -signal.SIGTERM}


def test_job_that_is_stopped_before_anybody_has_joined_does_not_wait_for_its_agents() -> None:
    agents = ScriptedAgents("a")
    case = Case(agents)
    jobs.stop(case.store, KEYS, JOB)
    assert case.session.run().phase is Phase.STOPPED
    assert agents.over == {"a": -signal.SIGTERM}


def test_agent_that_a_real_time_signal_killed_is_named() -> None:
    """Python has no name for most of these; the sentence was a traceback."""
    agents = ScriptedAgents("a")
    agents.over = {NodeId("a"): -40}
    case = Case(agents)
    status = case.session.run()
    assert status.phase is Phase.FAILED
    assert "ended: a (killed by signal 40)" in status.message
    assert [news.ending for news in case.told if isinstance(news, AgentEnded)] == [
        "killed by signal 40"
    ]


def test_ctrl_c_does_not_stop_a_job_that_took_the_name() -> None:
    """The records have not told yet that the job is over and another one has its name."""
    case = Case(None, is_private=False)
    case.interrupt.take(signal.SIGINT, None)

    def receive(news: RunNews) -> None:
        if isinstance(news, Stopping):
            put(case.store, KEYS.spec(JOB), replace(SPEC, uid="v"))
            put(case.store, KEYS.status(JOB), JobStatus(uid="v"))
            put(case.store, KEYS.active_job(JOB), Active(uid="v", is_ready=True))

    case.session._tell = receive
    with pytest.raises(NotFound, match="another job took its name"):
        case.session.run()
    assert not case.has_stop()
