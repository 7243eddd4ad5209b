"""`save` and `load` of scripts that are started again."""

import os
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from types import MappingProxyType
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch.distributed import HashStore  # type: ignore[attr-defined]

from elasticd.checkpoint.format.json_read import Damaged
from elasticd.checkpoint.format.layout import Snapshot
from elasticd.errors import CallError
from elasticd.keeper.wire import message as ms
from elasticd.train import save_and_load
from elasticd.train.restore.model_match import CannotRestore
from elasticd.train.save import keeper_connection as way
from elasticd.train.save import same_tensors
from elasticd.train.save_and_load import load, save, wait
from tests.unit.train.restore.restore_case import Stock, snapshot_of, state_of
from tests.unit.train.save.save_case import Keeper, same


class Node:
    """A keeper with storage and memory, as a client sees it."""

    def __init__(self) -> None:
        self.keeper, self.stock = Keeper(), Stock()
        self.joined = ms.Joined(run=5, number=0)
        self.asked: list[Any] = []

    def ask(self, question: Any, kind: type, *, timeout_s: float | None = None) -> Any:
        self.asked.append(question)
        if type(question) is ms.Join:
            return self.joined
        if type(question) is ms.Find:
            return self.stock.ask(question, kind)
        return self.keeper.answer(question)[0]

    def send(self, question: Any, *, timeout_s: float | None = None) -> None:
        self.ask(question, ms.Done)

    def ask_memory(self, question: Any, kind: type, *, timeout_s: float | None = None) -> Any:
        self.asked.append(question)
        if type(question) is ms.Claim:
            return self.keeper.answer(question)
        return self.stock.ask_memory(question, kind)

    def of(self, kind: type) -> list[Any]:
        return [each for each in self.asked if type(each) is kind]


@pytest.fixture
def node(monkeypatch: pytest.MonkeyPatch) -> Node:
    """This process is the only rank of a job with checkpoints."""
    node = Node()
    monkeypatch.setattr(save_and_load, "_JOB", None)
    monkeypatch.setattr(way, "Client", lambda name, limit_s: node)
    for name, value in {
        "ELASTICD_KEEPER": "k", "RANK": "0", "WORLD_SIZE": "1", "LOCAL_WORLD_SIZE": "1",
        "GROUP_RANK": "0", "ELASTICD_GENERATION": "2",
    }.items():  # fmt: skip
        monkeypatch.setenv(name, value)
    return node


def test_save_without_load_opens_the_generation_at_its_start(node: Node) -> None:
    """Once, whatever is saved later."""
    assert save(state_of(3), 3) and save(state_of(4), 4)
    assert node.of(ms.Open) == [ms.Open(generation=2, step=0, origin=0)]
    assert node.of(ms.Find) == []
    assert [each.snapshot for each in node.keeper.taken] == [
        snapshot_of(3, generation=2), snapshot_of(4, generation=2)
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("part", "name"),
    [(torch.nn.LazyLinear(2), "weight"), (torch.nn.LazyBatchNorm1d(), "weight")],
    ids=["linear", "norm"],
)
def test_module_without_shapes_is_one_sentence_and_saved_after_its_first_batch(
    node: Node, capfd: pytest.CaptureFixture[str], part: torch.nn.Module, name: str
) -> None:
    """Whoever saves before the first batch goes on without it; a load into it is refused."""
    said = (
        f"state.model.{name} has no shape yet, since its module gets it from the first batch: call "
        "the model once with a batch before, or say how many features it takes."
    )
    assert save({"model": part.state_dict()}, 1) is False
    assert capfd.readouterr().err == f"elasticd: A snapshot was not taken: {said}\n"
    node.stock.store(9)
    with pytest.raises(CallError) as caught:
        load({"model": part.state_dict()})
    assert str(caught.value) == said
    part(torch.ones(2, 3))
    assert save({"model": part.state_dict()}, 12) is True


def test_what_was_saved_is_the_state_at_that_time(node: Node) -> None:
    """It may be changed as soon as `save` returns, and is not held."""
    state = state_of(3)
    assert save(state, 3)
    state["w"].zero_()
    assert same(node.keeper.state(node.keeper.taken[0]), state_of(3))
    assert save_and_load._job()._state.value is None


def test_first_step_may_be_zero(node: Node) -> None:
    """Some count so."""
    assert save(state_of(0), 0)
    assert save(state_of(1), 1)


@pytest.mark.parametrize("step", [5, 4, 0])
def test_steps_must_grow(node: Node, step: int) -> None:
    """A checkpoint of a smaller step would be older than what it was made from."""
    assert save(state_of(5), 5)
    with pytest.raises(CallError, match=f"step {step} after step 5: steps must grow"):
        save(state_of(step), step)


def test_step_that_was_not_saved_may_be_given_again(node: Node) -> None:
    """The keeper was busy."""
    node.keeper.is_busy = True
    assert not save(state_of(5), 5)
    node.keeper.is_busy = False
    assert save(state_of(5), 5)


def test_keeper_is_told_for_which_step_memory_is_claimed_once(node: Node) -> None:
    """A step that is given again may be with the keeper before: if this one never gets it, it is
    not lost."""
    assert save(state_of(5), 5)
    node.keeper.is_gone = True
    assert not save(state_of(6), 6)
    node.keeper.is_gone = False
    job = save_and_load._JOB
    assert job is not None
    job._saving._retry_s = 0.0
    assert save(state_of(5), 5) and save(state_of(6), 6)
    named = [each.snapshot for each in node.of(ms.Claim)]
    assert named == [
        Snapshot(run=1, generation=2, step=5),
        None,
        Snapshot(run=1, generation=2, step=6),
    ]


def test_training_goes_on_without_memory(node: Node, capsys: pytest.CaptureFixture[str]) -> None:
    """False, and one sentence."""
    node.keeper.is_full = True
    assert not save(state_of(5), 5) and not save(state_of(6), 6)
    assert capsys.readouterr().err == (
        "elasticd: Nothing is saved at the moment: there is no memory\n"
    )


@pytest.mark.parametrize("step", [-1, 1.0, "1", None, True, torch.tensor(1)], ids=repr)
def test_step_that_is_no_whole_number_is_refused(node: Node, step: Any) -> None:
    """By its value."""
    with pytest.raises(CallError, match="wants a step"):
        save(state_of(1), step)
    assert node.asked == []


@pytest.mark.parametrize(
    "step", [10**15, 1_700_000_000_000_000, 10**5000], ids=["1e15", "us", "big"]
)
def test_step_that_no_checkpoint_can_have_is_refused(node: Node, step: int) -> None:
    """A script that gives the time in microseconds would train on, and nothing would be saved."""
    with pytest.raises(CallError, match=r"below 10\*\*15"):
        save(state_of(1), step)
    assert node.asked == []
    assert save(state_of(1), 10**15 - 1)


@pytest.mark.parametrize("timeout_s", ["3", None, float("nan"), torch.tensor(3)], ids=repr)
def test_wait_for_what_is_no_time_is_refused(node: Node, timeout_s: Any) -> None:
    with pytest.raises(CallError, match="wants a number of seconds"):
        wait(timeout_s)


def test_what_was_only_loaded_is_durable(node: Node, capsys: pytest.CaptureFixture[str]) -> None:
    """A script that has nothing left to do waits at its end, as the guide says, for nothing; after
    a save it waits for that."""
    assert not wait(0.1), "nothing was saved or loaded"
    node.stock.store(9)
    assert load() is not None and wait(0.1)
    node.keeper.is_busy = True
    assert not save(state_of(10), 10) and wait(0.1)
    node.keeper.is_busy = False
    assert node.of(ms.WaitDurable) == [] and capsys.readouterr().err == ""
    node.keeper.answers[ms.WaitDurable] = lambda _: ms.Durability(is_durable=False, why="Full.")
    assert save(state_of(10), 10) and not wait(1.0)
    assert len(node.of(ms.WaitDurable)) == 1


@pytest.mark.parametrize("state", [None, 5, [1], "model", torch.nn.Linear(1, 1)], ids=str)
def test_state_that_is_no_dict_is_refused(node: Node, state: Any) -> None:
    """With what to write; a module in the place of its state_dict is a common mistake."""
    with pytest.raises(CallError, match=r"model\.state_dict\(\)"):
        save(state, 1)
    if state is not None:
        with pytest.raises(CallError, match=r"model\.state_dict\(\)"):
            load(state)


def test_what_cannot_be_saved_is_named(node: Node, capsys: pytest.CaptureFixture[str]) -> None:
    """By its path, and the training goes on."""
    assert not save({"model": torch.nn.Linear(1, 1)}, 1)
    assert "state.model is a torch.nn.modules.linear.Linear" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("missing", "said"),
    [("ELASTICD_KEEPER", "--checkpoint URL"), ("RANK", r"in elasticd\.run the state is saved")],
)
def test_process_that_has_no_keeper_or_rank_is_told(
    node: Node, monkeypatch: pytest.MonkeyPatch, missing: str, said: str
) -> None:
    """Started without the flag, or within `elasticd.run`."""
    monkeypatch.delenv(missing)
    with pytest.raises(CallError, match=said):
        load()
    with pytest.raises(CallError, match=said):
        save({}, 1)


# --- load ---------------------------------------------------------------------------------------


def test_load_of_nothing_is_none(node: Node) -> None:
    """And the generation is open."""
    assert load() is None
    assert node.of(ms.Open) == [ms.Open(generation=2, step=0, origin=0)]
    assert save(state_of(1), 1)


def test_load_gives_the_newest(node: Node) -> None:
    """Whole tensors of its own, and the step; the generation begins there."""
    node.stock.store(5, 7)
    loaded = load()
    assert loaded is not None and loaded[1] == 7
    assert same(loaded[0], state_of(7))
    assert node.of(ms.Open) == [ms.Open(generation=2, step=7, origin=17)]
    with pytest.raises(CallError, match="steps must grow"):
        save(state_of(7), 7)
    assert save(state_of(8), 8)


def test_load_into_fills_what_is_given_and_reads_no_more(node: Node) -> None:
    """In place; what a checkpoint has more of is left there."""
    node.stock.store(5)
    into = {"w": torch.zeros(10, 6), "count": torch.tensor(0)}
    held = into["w"]
    loaded = load(into)
    assert loaded is not None and loaded[0] is into and loaded[1] == 5
    assert held is into["w"] and torch.equal(held, state_of(5)["w"])
    assert into["count"] == 5
    (question,) = [each for each in node.asked if type(each) is ms.Fetch]
    assert len(question.pieces) == 2, "one small tensor, one of no dimension"


def test_load_into_fills_what_is_no_tensor_too(node: Node) -> None:
    """Else a script would go on with the learning rate that it began with."""
    node.stock.store(5)
    into = {**state_of(0), "lr": 0.1}
    loaded = load(into)
    assert loaded is not None and loaded[0] is into
    assert same(into, state_of(5)) and into["lr"] == 5000.0


def test_load_into_other_containers_is_refused_before_anything_is_read(node: Node) -> None:
    """One that cannot be changed, and one that lacks what the checkpoint has."""
    node.stock.store(5)
    with pytest.raises(CallError, match="a mappingproxy cannot be changed: give a dict"):
        load(MappingProxyType(state_of(0)))  # type: ignore[arg-type]
    into = {"w": torch.zeros(10, 6), "lr": torch.zeros(1)}
    with pytest.raises(CannotRestore, match=r"state\.lr is not in the checkpoint"):
        load(into)
    with pytest.raises(CannotRestore, match=r"state\.w is a tensor in the checkpoint and a float"):
        load({"w": 0.0})
    assert not into["w"].any() and node.of(ms.Fetch) == []


def test_load_into_an_expanded_tensor_is_refused_before_anything_is_read(node: Node) -> None:
    """It is saved well; torch would fail in the middle of the copies."""
    node.stock.store(5)
    into = {"b": torch.zeros(7, dtype=torch.int64), "w": torch.zeros(1, 6).expand(10, 6)}
    with pytest.raises(CannotRestore, match=r"state\.w is expanded here"):
        load(into)
    assert not into["b"].any() and node.of(ms.Fetch) == []


def test_load_into_another_model_is_refused_by_name(node: Node) -> None:
    """Before anything is written."""
    node.stock.store(5)
    into = {"w": torch.zeros(10, 6), "b": torch.zeros(9), "v": torch.zeros(2)}
    with pytest.raises(CannotRestore) as caught:
        load(into)
    assert "state.b is int64 [7] in the checkpoint and float32 [9] here" in str(caught.value)
    assert "state.v is not in the checkpoint" in str(caught.value)
    assert not into["w"].any()


def test_damaged_checkpoint_falls_back(node: Node, capsys: pytest.CaptureFixture[str]) -> None:
    """It is said, and steps go on from the one that was loaded."""
    node.stock.store(5, 9)
    node.stock.damaged = {19}
    loaded = load()
    assert loaded is not None and loaded[1] == 5
    assert same(loaded[0], state_of(5))
    assert node.of(ms.Open) == [ms.Open(generation=2, step=5, origin=15)]
    assert capsys.readouterr().err == (
        "elasticd: The checkpoint of step 9 (run 1, generation 1) is damaged: checkpoint 19 is "
        "damaged\n"
    )
    assert save(state_of(6), 6)


def test_what_the_keeper_passed_over_is_said(
    node: Node, capsys: pytest.CaptureFixture[str]
) -> None:
    """A manifest that is damaged: the keeper sees it, and the script shall not be silent."""
    node.stock.store(5)
    node.stock.notes = ("The checkpoint of step 9 (run 1, generation 1) is damaged: it is gone.",)
    loaded = load()
    assert loaded is not None and loaded[1] == 5
    assert capsys.readouterr().err.startswith("elasticd: The checkpoint of step 9 ")


def test_job_whose_checkpoints_are_all_damaged_does_not_begin_anew(node: Node) -> None:
    """It would write to the same place, and delete in time what a newer elasticd may read."""
    node.stock.store(5, 9)
    node.stock.damaged = {15, 19}
    with pytest.raises(CannotRestore, match="None of the checkpoints can be read: ") as caught:
        load()
    assert "checkpoint 19 is damaged The checkpoint of step 5" in str(caught.value)
    assert "give another URL" in str(caught.value)
    assert node.of(ms.Open) == []


def test_job_of_which_the_keeper_can_read_no_checkpoint_does_not_begin_anew(node: Node) -> None:
    """Their manifests, or the entries of the log, are damaged or of a newer format."""
    node.stock.notes = ("The entry 3 of the log is damaged: it is of a newer format.",)
    with pytest.raises(CannotRestore, match="The entry 3 of the log is damaged"):
        load()
    assert node.of(ms.Open) == []


def test_other_ranks_load_what_rank_0_has_written_down(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Though there is a newer one by now."""
    monkeypatch.setenv("RANK", "1")
    monkeypatch.setenv("WORLD_SIZE", "2")
    node.stock.store(5, 9)
    node.joined = ms.Joined(run=5, number=15)
    loaded = load()
    assert loaded is not None and loaded[1] == 5
    assert node.of(ms.Find) == node.of(ms.Open) == []
    with pytest.raises(CallError, match="steps must grow"):
        save(state_of(5), 5)
    assert save(state_of(6), 6)
    assert node.keeper.taken[0].snapshot == snapshot_of(6, run=5, generation=2)


@pytest.mark.parametrize(("size", "is_on_one_node"), [("1", True), ("2", False)])
def test_keeper_is_told_what_can_be_lost_with_the_processes_of_its_node(
    node: Node, monkeypatch: pytest.MonkeyPatch, size: str, is_on_one_node: bool
) -> None:
    """Whether it gets all shares, and that those who made earlier ones have ended by now."""
    monkeypatch.setenv("WORLD_SIZE", size)
    assert load() is None
    assert [each.generation for each in node.of(ms.Find)] == [2]
    assert save(state_of(3), 3)
    assert {each.is_on_one_node for each in node.keeper.taken} == {is_on_one_node}


def test_rank_that_alone_reads_what_is_damaged_says_how_to_give_it_up(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rank 0 has begun from it; its next start goes back, unless the damage cannot be marked."""
    monkeypatch.setenv("RANK", "1")
    monkeypatch.setenv("WORLD_SIZE", "2")
    node.stock.store(5, 9)
    node.stock.damaged = {19}
    node.joined = ms.Joined(run=5, number=19)
    with pytest.raises(Damaged) as caught:
        load()
    said = str(caught.value)
    assert "Rank 1 cannot load checkpoint 19" in said and "checkpoint 19 is damaged" in said
    assert "At the next start rank 0 reads this part too" in said
    assert "`elasticd checkpoint rm URL 19 --force`" in said


def test_other_ranks_that_only_save_learn_of_the_run(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rank 0 opens the generation for all."""
    monkeypatch.setenv("RANK", "1")
    monkeypatch.setenv("WORLD_SIZE", "2")
    assert save(state_of(1), 1)
    assert node.of(ms.Open) == [] and node.of(ms.Join)[0].generation == 2


SIZE = 4


def asked_of_all(store: Any, key: str, decide: Callable[[], bool], size: int = SIZE) -> list[bool]:
    """What each rank is told, all of them at the same time."""

    def ask(rank: int) -> bool:
        asked = decide if rank == 0 else unasked
        is_it, digest = save_and_load._told_by_first(store, key, rank, size, asked, str(rank))
        assert digest == "0"
        return is_it

    with ThreadPoolExecutor(size) as pool:
        return list(pool.map(ask, reversed(range(size))))


def unasked() -> bool:
    raise AssertionError("only rank 0 decides")


@pytest.mark.parametrize("is_it", [True, False])
def test_all_ranks_do_as_rank_0_and_leave_no_key(is_it: bool) -> None:
    """Thousands of saves, one store: it is as large as before."""
    store = HashStore()
    store.set("theirs", "1")
    for call in range(50):
        assert asked_of_all(store, f"elasticd/save/1/{call}/7", lambda: is_it) == [is_it] * SIZE
    assert store.num_keys() == 1


def test_answer_stays_until_the_last_rank_has_read_it() -> None:
    """One that is late finds it; who reads it twice would be another call."""
    store = HashStore()
    for rank in range(SIZE):
        assert store.num_keys() == (2 if rank else 0)
        assert save_and_load._told_by_first(store, "key", rank, SIZE, lambda: True, "a") == (
            True,
            "a",
        )
    assert store.num_keys() == 0


def test_ranks_agree_about_a_step_that_is_given_again(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    """First there is no room, then there is: rank 0 is ahead, and rank 1 reads both answers."""
    store, ranks = two_ranks(monkeypatch)
    free = iter([False, True])
    monkeypatch.setattr(ranks[0]._saving, "is_free", lambda: next(free))
    assert [ranks[0]._is_time(5), ranks[0]._is_time(5)] == [False, True]
    assert [ranks[1]._is_time(5), ranks[1]._is_time(5)] == [False, True]
    assert store.num_keys() == 2, "what rank 0 saves, and its step, for those that differ"


@pytest.mark.parametrize(
    ("steps", "sentence"),
    [((6,), "step 6 on rank 0, both in their call number 1"), ((6, 7), "another step on rank 0")],
    ids=["one call", "two calls"],
)
def test_ranks_that_save_other_steps_are_told(
    node: Node, monkeypatch: pytest.MonkeyPatch, steps: tuple[int, ...], sentence: str
) -> None:
    """They would wait for rank 0 for as long as the process group's limit is: half an hour."""
    monkeypatch.setattr(same_tensors, "LOOK_S", 0.01)
    store, ranks = two_ranks(monkeypatch)
    store.set_timeout(timedelta(seconds=30))
    for step in steps:
        ranks[0].save(state_of(step), step)
    with pytest.raises(CallError, match=f"was called with step 5 on rank 1 and with {sentence}"):
        ranks[1].save(state_of(5), 5)


def test_rank_that_is_ahead_waits_for_rank_0(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    """As long as the store's own limit: rank 0 has still to make this call."""
    monkeypatch.setattr(same_tensors, "LOOK_S", 0.01)
    store, ranks = two_ranks(monkeypatch)
    ranks[0].save(state_of(5), 5)
    ranks[1].save(state_of(5), 5)
    store.set_timeout(timedelta(seconds=0.2))
    with pytest.raises(dist.DistStoreError):
        ranks[1].save(state_of(6), 6)
    ranks[1]._calls, ranks[1]._state.value = 1, state_of(6)
    store.set_timeout(timedelta(seconds=30))
    with ThreadPoolExecutor(1) as pool:
        ahead = pool.submit(ranks[1]._is_time, 6)
        time.sleep(0.05)
        ranks[0].save(state_of(6), 6)
        assert ahead.result()


ONE, OTHER = torch.zeros(3), torch.ones(3)


@pytest.mark.parametrize(
    ("theirs", "sentence"),
    [
        ({"b": OTHER, "a": ONE}, r"rank 1 has `state\.b .*` where rank 0 has `state\.a "),
        ({"a": ONE, "b": torch.zeros(2)}, r"rank 1 has `state\.b torch\.float32 \[2\]`"),
        ({"a": ONE}, r"rank 0 has `state\.b .*`, which rank 1 lacks"),
        ({"a": ONE, "b": OTHER, "loss": 0.1}, ""),
    ],
    ids=["another order", "another shape", "fewer", "another number"],
)
def test_ranks_that_save_other_tensors_are_told(
    node: Node, monkeypatch: pytest.MonkeyPatch, theirs: dict[str, Any], sentence: str
) -> None:
    """A checkpoint would be put together from parts of different tensors. Of what is no tensor
    rank 0's counts, so there they may differ."""
    _, ranks = two_ranks(monkeypatch)
    ranks[0].save({"a": ONE, "b": OTHER}, 1)
    if not sentence:
        ranks[1].save(theirs, 1)
        return
    with pytest.raises(CallError, match=sentence):
        ranks[1].save(theirs, 1)


def two_ranks(monkeypatch: pytest.MonkeyPatch) -> tuple[Any, list[save_and_load._Job]]:
    """Of one process group, and its store."""
    store = HashStore()
    monkeypatch.setattr(dist, "is_initialized", lambda: True)
    monkeypatch.setattr(dist.distributed_c10d, "_get_default_store", lambda: store)
    environs = [{**os.environ, "RANK": str(rank), "WORLD_SIZE": "2"} for rank in range(2)]
    return store, [save_and_load._Job(environ) for environ in environs]


@pytest.mark.parametrize(
    ("local", "group", "rank", "size", "nodes"),
    [
        ("2", "1", 2, 4, [0, 0, 1, 1]),
        ("1", "0", 0, 3, [0, 1, 2]),
        ("3", "0", 1, 4, [0, 0, 0, 0]),
        ("2", "0", 2, 4, [0, 0, 0, 0]),
    ],
)
def test_nodes_of_ranks_are_known_where_all_have_as_many(
    local: str, group: str, rank: int, size: int, nodes: list[int]
) -> None:
    """Else there are no second copies: which node has which rank is not to be guessed."""
    assert save_and_load._nodes(
        {"LOCAL_WORLD_SIZE": local, "GROUP_RANK": group}, rank, size
    ) == tuple(nodes)
