"""What the runner waits for between two faults, and what it does meanwhile."""

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from chaos import runner as runner_module
from chaos.error import NotNow
from chaos.plan.fault import Fault, Kind
from chaos.plan.scenario import parse
from chaos.runner import Runner
from chaos.site import Blow
from tests.fixtures.patience import patience_s

NOW_S = 100.0
PATIENCE_S = patience_s(60.0)


@pytest.mark.parametrize(
    ("kind", "committed_s", "is_over"),
    [
        (Kind.WORKER_KILL, NOW_S - 0.1, False),
        (Kind.WORKER_KILL, NOW_S + 0.1, True),
        (Kind.ETCD_QUORUM_STOP, NOW_S + 0.1, False),
        (Kind.ETCD_QUORUM_STOP, NOW_S + 3.9, False),
        (Kind.ETCD_QUORUM_STOP, NOW_S + 4.1, True),
    ],
)
def test_fault_is_over_when_a_step_was_committed_after_its_effects(
    kind: Kind,
    committed_s: float,
    is_over: bool,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Steps go on while etcd has no quorum, and leases run out when it is back: what comes next
    would fall together with their end.
    """
    monkeypatch.setattr(runner_module, "boottime_s", lambda: NOW_S)
    site: Any = SimpleNamespace(folder=tmp_path, records=tmp_path, scenario=parse({}, name="none"))
    runner = Runner(site, (), seed=1, say=lambda text: None)
    runner._tail.full_taken_s = committed_s
    asked: list[bool] = []

    def wait(until: Callable[[], bool], limit_s: float, why: str) -> None:
        asked.append(until())

    monkeypatch.setattr(runner, "_wait", wait)
    runner._wait_steady(Fault(number=0, kind=kind))
    runner._file.close()
    assert asked == [True, is_over]


def test_planned_change_in_an_outage_of_etcd_does_not_keep_the_outage_up(tmp_path: Path) -> None:
    """The change is made, and taken back, when etcd answers again; its return is the runner's."""
    did: list[str] = []
    is_away = True

    def with_etcd(what: str) -> Callable[[], None]:
        def deed() -> None:
            if is_away:
                raise NotNow("no etcd answers")
            did.append(what)

        return deed

    def resume() -> None:
        nonlocal is_away
        is_away = False
        did.append("etcd is back")

    def stop() -> None:
        nonlocal is_away
        is_away = True
        did.append("etcd is away")

    outage = Blow(victim="etcd m0", strike=stop, undo=resume)
    drain = Blow(victim="n0", strike=with_etcd("drained"), undo=with_etcd("taken back"))
    site: Any = SimpleNamespace(
        folder=tmp_path,
        records=tmp_path,
        scenario=parse({}, name="none"),
        nodes=(),
        aim=lambda fault, tail: drain if fault.kind is Kind.NODE_DRAIN else outage,
    )
    runner = Runner(site, (), seed=1, say=lambda text: None)
    runner._strike(Fault(number=0, kind=Kind.ETCD_KILL, for_s=0.1))
    runner._strike(Fault(number=1, kind=Kind.NODE_DRAIN, for_s=1000.0))
    stop()
    # Both are due, the drain first.
    late = Fault(number=2, kind=Kind.ETCD_KILL)
    runner._undos = [(0.0, 0, Fault(number=1, kind=Kind.NODE_DRAIN), drain), (0.1, 1, late, outage)]
    runner._wait(lambda: not runner._undos, PATIENCE_S, "a fault could not be undone")
    runner._file.close()
    once = ["etcd is away", "etcd is back"]
    assert did == [*once, "drained", *once, "taken back"]
