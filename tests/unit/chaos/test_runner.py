"""What the runner waits for between two faults."""

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from chaos import runner as runner_module
from chaos.plan.fault import Fault, Kind
from chaos.plan.scenario import parse
from chaos.runner import Runner

NOW_S = 100.0


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
