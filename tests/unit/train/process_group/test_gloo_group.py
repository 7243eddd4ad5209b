"""What a group of Gloo remembers of its collectives, and what it does not make."""

import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch.distributed as dist

from elasticd.errors import CallError
from elasticd.train.process_group import gloo_group
from elasticd.train.process_group.gloo_group import WakeableGroup

COMPILED = """
import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel
import elasticd

model = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.Linear(8, 1))
data = torch.utils.data.TensorDataset(torch.randn(16, 4))

def train(state, world):
    compiled = torch.compile(DistributedDataParallel(state.model), backend="eager")
    for _ in state.epochs(2):
        for (x,) in state.data:
            state.optimizer.zero_grad()
            compiled(x).square().mean().backward()
            state.optimizer.step()
            state.commit()

optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
elasticd.run(train, elasticd.State(model=model, optimizer=optimizer,
                                   data=elasticd.Loader(data, batch_size=8)))
"""


class Inner:
    """A collective of Gloo that counts how often it is asked."""

    def __init__(self, *, is_done: bool, error: str = "") -> None:
        self.is_done = is_done
        self.error = error
        self.asked = 0
        self.has_future = False

    def wait(self) -> None:
        assert self.is_done
        if self.error:
            raise RuntimeError(self.error)

    def get_future(self) -> Any:
        return SimpleNamespace(done=lambda: self.is_done or self.has_future)

    def is_completed(self) -> bool:
        self.asked += 1
        return self.is_done


class ReduceScatter:
    """What Gloo gives for a reduce_scatter: only a wait tells when it is over."""

    def __init__(self, error: str = "") -> None:
        self.error = error
        self.waits = 0

    def wait(self, limit: Any = None) -> bool:
        self.waits += 1
        assert self.waits < 10, "it is waited for again and again"
        if self.error:
            raise RuntimeError(self.error)
        return True

    def get_future(self) -> Any:
        raise RuntimeError("Work::getFuture not implemented.")

    def is_completed(self) -> bool:
        return False


@pytest.fixture
def group(monkeypatch: pytest.MonkeyPatch) -> WakeableGroup:
    monkeypatch.setattr(gloo_group, "_busy", {})
    return WakeableGroup(dist.HashStore(), 0, 1)  # type: ignore[attr-defined]


def test_many_collectives_under_way_are_not_all_asked_for_each(group: WakeableGroup) -> None:
    """DDP has one under way for each bucket; asking all was quadratic."""
    under_way = [Inner(is_done=False) for _ in range(200)]
    for each in under_way:
        group._watch(each, ())
    assert sum(each.asked for each in under_way) == 199, "the oldest, by each that came after"
    assert len(group.under_way()) == 200


def test_what_is_done_is_let_go_as_others_begin(group: WakeableGroup) -> None:
    """It refers to its tensors."""
    for _ in range(20):
        group._watch(Inner(is_done=True), ())
        assert len(group._open) == 1
    late = [Inner(is_done=False) for _ in range(20)]
    for each in late:
        group._watch(each, ())
    for each in late:
        each.is_done = True
    group._watch(Inner(is_done=True), ())
    assert len(group._open) == 1


def test_results_are_whole_when_each_collective_gave_its_own(group: WakeableGroup) -> None:
    """Whether Python waits for it or torch's own code."""
    for _ in range(3):
        group._watch(Inner(is_done=True), ())
        group.pass_on(Inner(is_done=True))
    assert group.has_all_results()


@pytest.mark.parametrize("is_torchs_own", [True, False])
@pytest.mark.parametrize(
    "broken", [Inner(is_done=True, error="closed by peer"), Inner(is_done=False)]
)
def test_results_are_not_whole_while_one_is_missing(
    group: WakeableGroup, broken: Inner, is_torchs_own: bool
) -> None:
    if is_torchs_own:
        group.pass_on(broken)
    else:
        group._watch(broken, ())
    assert not group.has_all_results()


def test_results_are_not_whole_where_one_was_given_up(group: WakeableGroup) -> None:
    """Its future has a result by then, which is none, and Gloo never ends it."""
    lost = Inner(is_done=False)
    lost.has_future = True
    group.pass_on(lost)
    for each in group.under_way():
        each.give_up(may_end_future=False)
    assert not group.has_all_results()


@pytest.mark.parametrize("is_torchs_own", [True, False])
def test_one_that_failed_is_remembered_when_it_is_let_go(
    group: WakeableGroup, is_torchs_own: bool
) -> None:
    """Nobody has to have waited for it."""
    broken = Inner(is_done=True, error="closed by peer")
    if is_torchs_own:
        group.pass_on(broken)
    else:
        group._watch(broken, ())
    for _ in range(20):
        group._watch(Inner(is_done=True), ()) if not is_torchs_own else group.pass_on(
            Inner(is_done=True)
        )
    assert broken not in group._open and not group.has_all_results()


def test_reduce_scatter_that_fails_is_over_and_let_go(group: WakeableGroup) -> None:
    """Its work never says that it is completed, so it was waited for until it was given up."""
    work = group._watch(ReduceScatter("closed by peer"), ())
    with pytest.raises(RuntimeError, match="closed by peer"):
        work.wait()
    assert work.is_completed() and work.has_result() and work.has_failed()
    assert not group.has_all_results()
    assert group.under_way() == [] and not group.has_all_results()


def test_reduce_scatter_under_way_can_be_asked_for_its_result(group: WakeableGroup) -> None:
    """The thread that guards an aborted group asks, and ended with torch's error."""
    work = group._watch(ReduceScatter(), ())
    assert not work.has_result() and work.hides_result
    assert not group.has_all_results(), "nobody knows"
    assert not gloo_group.is_result_missing(group), "nor is it known to be missing"
    assert work.wait() and group.under_way() == [] and group.has_all_results()


def test_results_are_in_doubt_where_a_group_is_none_of_ours(
    group: WakeableGroup, monkeypatch: pytest.MonkeyPatch
) -> None:
    """NCCL's, of which nobody here knows what its collectives gave."""
    groups: dict[Any, Any] = {group: ()}
    monkeypatch.setattr(
        gloo_group, "distributed_c10d", SimpleNamespace(_world=SimpleNamespace(pg_map=groups))
    )
    assert gloo_group.has_all_results()
    groups[dist.ProcessGroup(0, 1)] = ()  # type: ignore[call-arg]
    assert not gloo_group.has_all_results()


@pytest.mark.parametrize("name", ["split_group", "merge_remote_group"])
def test_groups_that_could_not_be_ended_are_refused(group: WakeableGroup, name: str) -> None:
    """With the call that makes one that can."""
    call: Any = getattr(group, name, None)
    if not hasattr(dist.ProcessGroup, name):
        assert call is None
        return
    with pytest.raises(CallError, match=rf"{name} .*torch\.distributed\.new_group"):
        call([0])


def test_compiler_leaves_the_group_alone(tmp_path: Path) -> None:
    """DDP calls it in the middle of a compiled pass, and its buffers are sent in one, too."""
    script = tmp_path / "train.py"
    script.write_text(COMPILED)
    done = subprocess.run([sys.executable, script], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "4 steps, 2 epochs, 32 samples (0 repeated, 0 skipped)" in done.stdout + done.stderr
