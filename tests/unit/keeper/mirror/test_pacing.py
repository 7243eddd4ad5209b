"""How long a sender waits, so that a node sends no more than it may."""

from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from elasticd.checkpoint.format.checksum import BLOCK_BYTES
from elasticd.keeper.mirror.connection import STEP_LIMIT_S
from elasticd.keeper.mirror.pacing import SendPacing
from elasticd.records.checkpoint import LEAST_BANDWIDTH
from tests.fixtures.cluster import until
from tests.unit.keeper.mirror.pair import WORKER, Far, Near, wait_steps
from tests.unit.keeper.site import a_plan, a_snapshot

PARTS = 4
PLAN = replace(a_plan(1, 2, parts=PARTS), is_alone=True)
BLOCK_S = 1e6
"""What a block takes: so long that nothing real counts beside it."""


def test_without_a_limit_nothing_waits() -> None:
    """Which is the default."""
    pacing = SendPacing()
    assert [pacing.pause_s(1 << 40, 5.0) for _ in range(3)] == [0.0, 0.0, 0.0]


def test_each_block_waits_for_the_one_before() -> None:
    """The first one does not; what its sending took is no part of the pause."""
    pacing = SendPacing(100.0)
    assert pacing.pause_s(50, 10.0) == 0.0
    assert pacing.pause_s(50, 10.2) == pytest.approx(0.3)
    assert pacing.pause_s(50, 10.5) == pytest.approx(0.5)
    assert pacing.pause_s(50, 99.0) == 0.0


@given(
    st.lists(st.tuples(st.integers(1, BLOCK_BYTES), st.floats(0.0, 2.0)), min_size=1, max_size=60),
    st.floats(1e6, 1e10),
)
def test_no_time_sees_more_than_the_bandwidth_and_a_block(
    blocks: list[tuple[int, float]], rate: float
) -> None:
    """Nothing is saved up while nothing is sent: any two moments are looked at."""
    pacing, now_s = SendPacing(rate), 1000.0
    sent: list[tuple[float, int]] = []
    for nbytes, idle_s in blocks:
        now_s += idle_s
        now_s += pacing.pause_s(nbytes, now_s)
        sent.append((now_s, nbytes))
    for first in range(len(sent)):
        total = 0
        for at_s, nbytes in sent[first:]:
            assert total <= rate * (at_s - sent[first][0]) + rate * 1e-6
            total += nbytes


def test_least_bandwidth_does_not_time_out() -> None:
    """The other keeper waits for a whole block, and this one pauses before it."""
    assert BLOCK_BYTES / LEAST_BANDWIDTH < STEP_LIMIT_S / 2


def test_sender_waits_before_each_block_but_the_first(tmp_path: Path) -> None:
    """All the bytes arrive all the same; the next share waits for what the one before took."""
    pauses: list[float] = []
    pacing = SendPacing(PLAN.layout.size / PARTS / BLOCK_S)
    near, far = Near(tmp_path, PLAN, pacing=pacing, sleep=pauses.append), Far(tmp_path)
    near.sender.use(WORKER, far.address)
    near.snapshot(a_snapshot(10))
    wait_steps(far, 10)
    # Nobody sleeps here, so each block waits for all that were before it.
    assert [round(pause_s / BLOCK_S) for pause_s in pauses] == [1, 2, 3]
    near.snapshot(a_snapshot(12))
    wait_steps(far, 10, 12)
    assert [round(pause_s / BLOCK_S) for pause_s in pauses[3:]] == [4, 5, 6, 7]
    near.sender.close()


def test_bandwidth_is_named_where_two_snapshots_are_faster(tmp_path: Path) -> None:
    """Whoever reads that there is no second copy knows what to change."""
    near, far = Near(tmp_path, PLAN), Far(tmp_path)

    def overwrite(pause_s: float) -> None:
        for each in near.share_memory.records():
            each.is_wanted = False

    near.sender._pacing, near.sender._sleep = SendPacing(2e8), overwrite
    near.sender._pacing.pause_s(1 << 62, 0.0)  # Something was sent before.
    near.sender.use(WORKER, far.address)
    near.snapshot(a_snapshot(10))
    (note,) = until(lambda: near.notes, lambda: near.counts.failures)
    assert "--mirror-bandwidth 200 MB/s: allow more" in note
    near.sender.close()
