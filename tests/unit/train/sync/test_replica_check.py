"""Replicas that are compared, what is said of a difference, and which rank is named."""

import json
from collections.abc import Callable, Mapping

import pytest
import torch
from torch.distributed import HashStore  # type: ignore[attr-defined]

from elasticd.tensors.fingerprint import owned_tensors
from elasticd.train.sync.replica_check import (
    SELDOM,
    ReplicaCheck,
    ReplicaDiffers,
    ScriptDiverges,
    outlier_ranks,
)

WIDTH = 8
Optimizer = Callable[..., torch.optim.Optimizer]


class Rank:
    """A model with an optimizer, and the comparison of one generation."""

    def __init__(
        self,
        store: object,
        rank: int,
        size: int,
        *,
        every: int = 0,
        optimizer: Optimizer = torch.optim.Adam,
        lr: float = 1e-3,
    ) -> None:
        torch.manual_seed(1)
        self.rank, self.step, self.is_over = rank, 0, False
        self.first, self.last = torch.nn.Linear(WIDTH, WIDTH), torch.nn.Linear(WIDTH, 2)
        self.model = torch.nn.Sequential(self.first, self.last)
        self.optimizer = optimizer(self.model.parameters(), lr=lr)
        names = {id(each): f"model.{name}" for name, each in self.model.named_parameters()}
        self.looks: list[int] = []

        def tensors() -> Mapping[str, torch.Tensor]:
            self.looks.append(self.step)
            return owned_tensors([self.optimizer], names)

        self.replicas = ReplicaCheck(
            store,  # type: ignore[arg-type]
            rank=rank,
            size=size,
            step=0,
            every=every,
            tensors=tensors,
            is_over=lambda: self.is_over,
        )

    def train(self, data: int) -> None:
        """Make a step with the gradients of these data, and commit it."""
        torch.manual_seed(data)
        self.optimizer.zero_grad()
        self.model(torch.randn(8, WIDTH)).square().mean().backward()
        self.optimizer.step()
        self.commit()

    def commit(self) -> None:
        self.step += 1
        self.replicas.compare(self.step)


def ranks(size: int, **how: object) -> list[Rank]:
    store = HashStore()
    return [Rank(store, rank, size, **how) for rank in range(size)]  # type: ignore[arg-type]


def reduced(all_ranks: list[Rank], steps: int) -> None:
    """Let all train on the same gradients, as after an all-reduce."""
    for _ in range(steps):
        for each in all_ranks:
            each.train(each.step)


def unreduced(all_ranks: list[Rank], steps: int, *, kinds: int = 100) -> None:
    """Let each train on gradients of its own; ranks of one kind have the same."""
    for _ in range(steps):
        for each in all_ranks:
            each.train(each.step * 100 + each.rank % kinds)


def test_equal_replicas_go_on_and_are_compared_ever_more_seldom() -> None:
    two = ranks(2)
    reduced(two, 40)
    assert [each.looks for each in two] == [[1, 2, 4, 8, 16, 32]] * 2
    for each in two:
        each.step = 3 * SELDOM - 1
        each.commit()
    assert two[1].looks[-1] == 3 * SELDOM


@pytest.mark.parametrize("optimizer", [torch.optim.Adam, torch.optim.SGD])
@pytest.mark.parametrize("size", [2, 3, 4])
def test_ranks_that_train_for_themselves_end_the_job_with_what_to_do(
    size: int, optimizer: Optimizer
) -> None:
    lr = 1e-3 if optimizer is torch.optim.Adam else 0.05
    with pytest.raises(ScriptDiverges) as caught:
        unreduced(ranks(size, optimizer=optimizer, lr=lr), 70)
    assert caught.value.ends_job
    said = str(caught.value)
    assert "model." in said and "DistributedDataParallel" in said and "--compare-every 0" in said


def test_moments_tell_where_a_schedule_begins_at_nothing() -> None:
    """The parameters are alike as long as the learning rate is 0."""
    with pytest.raises(ScriptDiverges, match=r"\(exp_avg"):
        unreduced(ranks(2, lr=0.0), 6)


def test_experts_in_pairs_leave_nobody_right() -> None:
    """Two ranks have one expert and two have another, so that no majority can be followed."""
    four = ranks(4)
    with pytest.raises(ScriptDiverges):
        unreduced(four, 6, kinds=2)


def test_one_rank_of_many_is_replaced() -> None:
    """It alone raises; the others have the majority, and go on."""
    three = ranks(3)
    reduced(three, 2)
    with torch.no_grad():
        three[1].last.bias.add_(1.0)
    with pytest.raises(ReplicaDiffers, match=r"rank 1 .*other 2 of 3 ranks \(model\."):
        reduced(three, 8)
    for each in (three[0], three[2]):
        each.commit()


def test_last_bits_are_said_once_and_nothing_more(capsys: pytest.CaptureFixture[str]) -> None:
    """Two kinds of processors round differently; the training is as good as on one."""
    two = ranks(2)
    with torch.no_grad():
        weight = two[1].first.weight
        weight.copy_(torch.nextafter(weight, torch.ones(())))
    reduced(two, 40)
    said = capsys.readouterr().err
    assert said.count("differ in their last bits") == 1 and "model.0.weight" in said


def test_every_bit_counts_where_that_was_asked_for() -> None:
    three = ranks(3, every=5)
    with torch.no_grad():
        bias = three[2].first.bias
        bias.copy_(torch.nextafter(bias, torch.ones(())))
    with pytest.raises(ReplicaDiffers, match=r"rank 2 .*other 2 of 3"):
        reduced(three, 2)


def test_of_two_that_differ_by_a_bit_the_first_is_right_where_that_was_asked_for() -> None:
    two = ranks(2, every=1)
    with torch.no_grad():
        bias = two[1].first.bias
        bias.copy_(torch.nextafter(bias, torch.ones(())))
    with pytest.raises(ReplicaDiffers, match="rank 1 "):
        reduced(two, 6)


def with_moments_in_rows(two: list[Rank]) -> None:
    """Begin with a weight whose memory goes by columns; rank 1 was given its moments by rows."""
    for each in two:
        each.first.weight.data = each.first.weight.data.t().contiguous().t()
        each.train(0)
    state = two[1].optimizer.state[two[1].first.weight]
    state.update({name: value.contiguous() for name, value in state.items()})


@pytest.mark.parametrize("every", [0, 1])
def test_rank_with_another_order_in_memory_is_no_other_rank(
    every: int, capsys: pytest.CaptureFixture[str]
) -> None:
    """A model in channels_last, say, of which a rank was lost and came back."""
    two = ranks(2, every=every)
    with_moments_in_rows(two)
    reduced(two, 9)
    assert capsys.readouterr().err == ""
    with torch.no_grad():
        two[1].first.weight[0, 1] += 1.0
    with pytest.raises((ReplicaDiffers, ScriptDiverges)):
        reduced(two, 40)


def test_rank_of_an_older_version_is_compared_as_it_compares() -> None:
    """It posts no digest by rows."""

    class Older(HashStore):
        def set(self, key: str, value: str) -> None:
            plain = json.loads(value)
            if key.endswith("/1"):
                plain.pop("rows", None)
            super().set(key, json.dumps(plain))

    store = Older()
    two = [Rank(store, rank, 2, every=1) for rank in range(2)]
    reduced(two, 9)
    with torch.no_grad():
        two[1].last.bias.add_(1.0)
    with pytest.raises((ReplicaDiffers, ScriptDiverges)):
        reduced(two, 4)


def test_ranks_that_run_apart_are_compared_all_the_same() -> None:
    """Nothing holds ranks together that share no collective: one is far ahead of the other."""
    behind, ahead = ranks(2)
    unreduced([ahead], 20)
    with pytest.raises(ScriptDiverges):
        unreduced([behind, ahead], 100)


def test_verdict_of_a_newer_version_is_read_as_far_as_it_is_known() -> None:
    """Rank 0 may be on the node that was upgraded first."""

    class Newer(HashStore):
        def set(self, key: str, value: str) -> None:
            is_verdict = key.endswith("verdict")
            super().set(key, json.dumps({**json.loads(value), "hue": 1}) if is_verdict else value)

    store = Newer()
    both = [Rank(store, rank, 2) for rank in range(2)]
    reduced(both, 10)
    assert both[1].looks


def test_nobody_waits_for_a_rank_that_does_not_come() -> None:
    three = ranks(3)
    for each in three[:2]:
        for _ in range(600):
            each.commit()
    assert len(three[0].replicas._open) == 8


def test_store_that_is_gone_is_left_to_the_collectives() -> None:
    """The end of its node is told by them; a commit must not end with an error of the network."""

    class Gone:
        def __getattr__(self, name: str) -> Callable[..., object]:
            def fail(*_: object) -> object:
                raise torch.distributed.DistNetworkError("Connection reset by peer")

            return fail

    rank = Rank(Gone(), 0, 2)
    for _ in range(10):
        rank.train(0)
    assert rank.looks


def test_end_of_an_epoch_is_not_compared_again() -> None:
    """It commits the same step once more."""
    two = ranks(2)
    for _ in range(5):
        for each in two:
            each.commit()
            each.replicas.compare(each.step)
    assert two[0].looks == two[1].looks == [1, 2, 4]


def test_what_was_compared_is_taken_away() -> None:
    """A store must not grow with the steps of a run."""
    store = HashStore()
    two = [Rank(store, rank, 2, every=1) for rank in range(2)]
    reduced(two, 50)
    # What the last two commits left: two digests each, a verdict, and who has read it.
    assert store.num_keys() <= 2 * 4


def test_rank_0_wins_a_tie() -> None:
    assert outlier_ranks(["a", "b"]) == [1]
    assert outlier_ranks(["a", "b", "c"]) == [1, 2]
    assert outlier_ranks(["a", "b", "b"]) == [0]


def test_store_of_a_generation_that_is_over_is_left_alone() -> None:
    """torch writes a page to the worker's log for each word that a store does not take."""
    store = HashStore()
    left = Rank(store, 0, 2)
    left.is_over = True
    left.train(1)
    assert store.num_keys() == 0
    left.is_over = False
    left.train(2)
    assert store.num_keys() == 1
    left.is_over = True
    store.delete_key("elasticd/replica/2/0")
    left.train(3)
    assert store.num_keys() == 0
