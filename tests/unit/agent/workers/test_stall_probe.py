"""What is asked before a standstill is told, and what is told at once."""

from collections.abc import Callable
from queue import SimpleQueue

from elasticd.records.ids import Generation, Life, NodeId
from elasticd.records.member import Peer, StallLimit
from elasticd_agent.liveness.hang_detector import Frozen, Verdict
from elasticd_agent.liveness.progress_timeout import Resumed, Stalled
from elasticd_agent.workers.stall_probe import StallProbe
from tests.fixtures.patience import patience_s

AWAY = NodeId("away")
OTHERS = (Peer(node=AWAY, life=Life("l"), address="127.0.0.1", port=1),)
LIMIT_S = patience_s(20.0)


class Asked:
    """A probe of which nothing is answered; each verdict's turn is in `posted`."""

    def __init__(self) -> None:
        self.posted: SimpleQueue[Callable[[], None]] = SimpleQueue()
        self.told: list[tuple[Verdict, tuple[NodeId, ...]]] = []
        self.probe = StallProbe(
            self.posted.put,
            lambda verdict, silent: self.told.append((verdict, silent)),
            probe=lambda peers: tuple(peer.node for peer in peers),
        )

    def answer(self) -> None:
        self.posted.get(timeout=LIMIT_S)()


def stalled(*, has_returned: bool = False, limit: StallLimit = StallLimit.RECORD) -> Stalled:
    return Stalled(
        pid=10,
        generation=Generation(1),
        step=7,
        sequence=70,
        since_s=5.2,
        limit=limit,
        has_returned=has_returned,
    )


def test_standstill_is_told_with_the_nodes_that_do_not_answer() -> None:
    asked, verdict = Asked(), stalled()
    asked.probe.hear(verdict, OTHERS)
    assert not asked.told
    asked.answer()
    assert asked.told == [(verdict, (AWAY,))]


def test_what_needs_no_other_node_is_told_at_once() -> None:
    """A process that is frozen, one that returned, and a world of this node alone."""
    asked = Asked()
    told: list[tuple[Verdict, tuple[Peer, ...]]] = [
        (Frozen(pid=10, why="It is stopped."), OTHERS),
        (stalled(has_returned=True), OTHERS),
        (stalled(), ()),
    ]
    for verdict, others in told:
        asked.probe.hear(verdict, others)
    assert asked.told == [(verdict, ()) for verdict, _ in told]


def test_worker_that_goes_on_while_nodes_are_tried_was_never_told_of() -> None:
    asked = Asked()
    asked.probe.hear(stalled(), OTHERS)
    asked.probe.hear(Resumed(pid=10), OTHERS)
    asked.answer()
    assert asked.told == [(Resumed(pid=10), ())]


def test_only_the_newest_standstill_is_told() -> None:
    """It passed the next limit before the first answer came."""
    asked, later = Asked(), stalled(limit=StallLimit.PROGRESS)
    asked.probe.hear(stalled(), OTHERS)
    asked.probe.hear(later, OTHERS)
    asked.answer()
    asked.answer()
    assert asked.told == [(later, (AWAY,))]
