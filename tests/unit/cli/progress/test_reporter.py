"""When the agents are asked, and what is shown of their answers."""

from collections.abc import Mapping

from elasticd.cli.progress.part import LinePart, whole
from elasticd.cli.progress.reporter import LINE_S, Reporter
from elasticd.cli.progress.speed import Speed
from elasticd.control.follow import JobEnded, Waiting, WorldFormed
from elasticd.records.account.progress import RankProgress
from elasticd.records.ids import Generation, NodeId, Rank
from elasticd.records.job import JobStatus
from elasticd.records.member import Node
from elasticd.records.reason import Phase
from elasticd.records.world import World
from tests.unit.control.world_case import world

RANK = RankProgress(rank=Rank(0), generation=Generation(1), step=5)


class Case:
    def __init__(self, *, is_live: bool) -> None:
        self.asked = self.hidden = self.goodputs = 0
        self.shown: list[str] = []
        self.now_s = 0.0
        self.during: object = None
        self.reporter = Reporter(
            self.ask,
            self.show,
            self.hide,
            is_live=is_live,
            goodput=self.goodput,
            now_s=lambda: self.now_s,
        )

    def ask(self, world: World, nodes: Mapping[NodeId, Node]) -> tuple[RankProgress, ...]:
        self.asked += 1
        if isinstance(self.during, Waiting):
            self.reporter.receive(self.during)
        return (RANK,)

    def goodput(self) -> float:
        self.goodputs += 1
        return self.goodputs / 10

    def show(self, parts: list[LinePart], rank: RankProgress | None, speed: Speed) -> None:
        self.shown.append(parts[0].text)
        self.last = whole(parts)

    def hide(self) -> None:
        self.hidden += 1


def test_a_terminal_shows_each_answer_while_a_world_stands() -> None:
    """Nobody is asked before, nor when the job waits or is over."""
    case = Case(is_live=True)
    case.reporter.turn()
    case.reporter.receive(WorldFormed(world=world(1, "a")))
    case.reporter.turn()
    case.reporter.turn()
    assert case.shown == ["step 5", "step 5"] and case.hidden == 0
    for news in (Waiting(message="waiting"), JobEnded(status=JobStatus(phase=Phase.FAILED))):
        case.reporter.receive(news)
        case.reporter.turn()
    assert (case.asked, len(case.shown), case.hidden) == (2, 2, 2)


def test_without_a_terminal_there_is_a_line_a_minute() -> None:
    """In a log that is read next week every two seconds would be noise."""
    case = Case(is_live=False)
    case.reporter.receive(WorldFormed(world=world(1, "a")))
    for now_s in range(0, int(3 * LINE_S), 10):
        case.now_s = float(now_s)
        case.reporter.turn()
    assert len(case.shown) == 2


def test_an_answer_that_came_too_late_is_not_shown() -> None:
    """The world ended while the agent was asked: no line may stand there until the next one."""
    case = Case(is_live=True)
    case.reporter.receive(WorldFormed(world=world(1, "a")))
    case.during = Waiting(message="waiting for 1 more node")
    case.reporter.turn()
    assert case.asked == 1 and case.shown == []


def test_goodput_is_read_as_often_as_it_is_written() -> None:
    """It comes from etcd, which need not be asked every two seconds."""
    case = Case(is_live=True)
    case.reporter.receive(WorldFormed(world=world(1, "a")))
    for now_s in range(0, 40, 2):
        case.now_s = float(now_s)
        case.reporter.turn()
    assert case.goodputs == 7
    assert "goodput 70 %" in case.last
