"""Ranks restore together: each brings a part, all end with the same state, or none has begun."""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import pytest
import torch
import torch.distributed as dist

from elasticd.checkpoint.commit.fetch import size_of
from elasticd.checkpoint.format.piece_rows import selected
from elasticd.keeper.wire import message as ms
from elasticd.train import save_and_load
from elasticd.train.interrupt import Interrupted
from elasticd.train.restore.model_match import CannotRestore
from elasticd.train.restore.restore import restore
from elasticd.train.save import keeper_connection
from tests.fixtures.ranks import Cast
from tests.integration.checkpoint_dcp.troupe import Troupe
from tests.unit.train.restore.restore_case import Group, Plain, Stock, state_of
from tests.unit.train.save.save_case import same

SIZE = 4
SHARDED = ("w", "large", "b", "none")


@pytest.fixture(scope="module")
def troupe() -> Iterator[Troupe]:
    """Four ranks for all tests of this module."""
    with Cast() as cast:
        yield Troupe(cast, SIZE)


def here(rank: int) -> Group:
    store = dist.distributed_c10d._get_default_store()
    return Group(rank, dist.get_world_size(), store)


def restored(
    rank: int,
    stored: Sequence[int],
    held: Sequence[Sequence[tuple[int, int]]],
    damaged: Sequence[Sequence[int]],
    holders: int = 3,
) -> tuple[Any, str, list[tuple[int, ...]], int]:
    """Restore; returns the step of the state, the sentence, what was fetched, and how many times
    the generation was opened. `held` has (step, share) of each rank, `damaged` what fails there."""
    stock = Stock(holders=holders)
    stock.store(*stored)
    for step, share in held[rank] if held else ():
        stock.hold(step, share)
    stock.damaged = set(damaged[rank]) if damaged else set()
    state = Plain(state_of(0))
    found = restore(here(rank), stock, state, lambda: False)
    step = int(state.entries["count"])
    assert same(state.entries, state_of(step)), "a state of one step, whole"
    assert state.position[0] == step and found.run == 9
    return step, found.sentence, [e.pieces for e in stock.of(ms.Fetch)], len(stock.of(ms.Open))


@pytest.mark.parametrize("size", [2, 3, 4])
def test_every_stored_piece_is_read_once(troupe: Troupe, size: int) -> None:
    """By one rank, and all have it; rank 0 alone opens the generation."""
    heard = troupe.play(restored, (5,), (), (), 3, size=size)
    assert [step for step, *_ in heard] == [5] * size
    taken = [piece for _, _, fetched, _ in heard for pieces in fetched for piece in pieces]
    assert taken == list(range(len(taken)))
    assert [opened for *_, opened in heard] == [1] + [0] * (size - 1)
    assert len({sentence.split(" in ")[0] for _, sentence, *_ in heard}) == 1


def test_shares_in_memory_come_from_whoever_has_them(troupe: Troupe) -> None:
    """Rank 0 has none; nothing is read from storage."""
    held = [(), ((9, 1),), ((9, 2), (9, 1)), ((9, 0), (7, 1))]
    heard = troupe.play(restored, (5,), held, (), size=SIZE)
    assert [(step, fetched) for step, _, fetched, _ in heard] == [(9, [])] * SIZE
    assert all("from memory" in sentence for _, sentence, *_ in heard)


def tried_of_one_memory(rank: int) -> tuple[int, list[int], str]:
    """Restore where ranks 0 and 1 share a memory in which share 0 is damaged; rank 2 has a second
    copy of that. Returns the step, the shares that this rank tried, and the sentence."""
    stock = Stock(holders=2)
    stock.hold(9, *((0, 1) if rank < 2 else (0,)))
    if rank < 2:
        stock.flipped = {stock.held[0]}
    else:
        stock.held = [replace(each, holder=1) for each in stock.held]
    state = Plain(state_of(0))
    found = restore(here(rank), stock, state, lambda: False)
    assert same(state.entries, state_of(int(state.entries["count"])))
    tried = [each.held.share for each in stock.of(ms.Map)]
    return int(state.entries["count"]), tried, found.sentence


def test_copy_that_one_rank_found_damaged_is_tried_by_none_of_its_node(troupe: Troupe) -> None:
    """The other rank of the node would map the same bytes; the copy on the next node is taken."""
    heard = troupe.play(tried_of_one_memory, size=3)
    assert [step for step, *_ in heard] == [9] * 3
    assert Counter(share for _, tried, _ in heard for share in tried) == {0: 2, 1: 2}
    assert heard[2][1] == [0] and all("checksum" in sentence for *_, sentence in heard)


@pytest.mark.parametrize("bad", range(3))
def test_piece_that_is_bad_on_one_rank_sends_all_back(troupe: Troupe, bad: int) -> None:
    """To the checkpoint before; all know why."""
    damaged = [[19] if rank == bad else [] for rank in range(3)]
    heard = troupe.play(restored, (5, 9), (), damaged, size=3)
    assert [step for step, *_ in heard] == [5] * 3
    assert all("checkpoint 19 is damaged" in sentence for _, sentence, *_ in heard)


def test_memory_that_vanished_on_one_rank_sends_all_to_the_storage(troupe: Troupe) -> None:
    """It was overwritten between two questions."""
    held = [((9, 0),), ((9, 1),), ((9, 2),)]
    heard = troupe.play(restored, (5,), held, [[], [9], []], size=3)
    assert [step for step, *_ in heard] == [5] * 3


def left_alone(rank: int) -> str:
    """Rank 1 is gone before it has said a word; the generation ends a while later."""
    if rank == 1:
        return "gone"
    stock = Stock()
    stock.store(5)
    turns = iter(range(20))
    try:
        restore(
            here(rank),
            stock,
            Plain(state_of(0)),
            lambda: next(turns, None) is None,
        )
    except Interrupted:
        return "interrupted"
    return "restored"


def test_rank_that_dies_interrupts_the_others(troupe: Troupe) -> None:
    """They do not wait for ever, and the next generation restores again."""
    assert troupe.play(left_alone, size=3) == ["interrupted", "gone", "interrupted"]


def refuse(rank: int) -> str:
    """Rank 0's storage refuses, or does not have the model's tensors."""
    stock = Stock()
    stock.refuses = "the bucket is another job's" if rank == 0 else ""
    try:
        restore(here(rank), stock, Plain(state_of(0)), lambda: False)
    except CannotRestore as exc:
        return str(exc)
    return ""


def test_refusal_of_rank_0_is_everybodys(troupe: Troupe) -> None:
    """All end alike, with its sentence."""
    assert troupe.play(refuse, size=3) == ["the bucket is another job's"] * 3


# --- sharded targets ----------------------------------------------------------------------------


def spread(mesh_shape: tuple[int, ...], words: str) -> dict[str, Any]:
    """A state of zeros, some of it spread over ranks."""
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import Replicate, Shard, distribute_tensor

    mesh = init_device_mesh("cpu", mesh_shape)
    state = state_of(0)
    for name in SHARDED:
        placements = [
            Replicate() if word == "r" or int(word) >= state[name].dim() else Shard(int(word))
            for word in words
        ]
        state[name] = distribute_tensor(torch.zeros_like(state[name]), mesh, placements)
    return state


def whole(entries: dict[str, Any]) -> dict[str, Any]:
    return {
        name: value.full_tensor() if hasattr(value, "full_tensor") else value
        for name, value in entries.items()
    }


def moved_by_the_ranks_of_one_node(rank: int) -> tuple[int, bool]:
    """Restore a sharded state of which every rank's node has all shares in memory; returns the
    bytes that this rank sent in all-to-alls."""
    stock = Stock(holders=2 * SIZE)
    stock.hold(5, *range(2 * SIZE))
    state = Plain(spread((SIZE,), "0"))
    sent = 0
    exchange = dist.all_to_all_single

    def exchanged(found: Any, given: torch.Tensor, *sizes: Any) -> None:
        nonlocal sent
        sent += given.nbytes if sizes else 0
        exchange(found, given, *sizes)

    dist.all_to_all_single = exchanged  # type: ignore[assignment]
    try:
        restore(here(rank), stock, state, lambda: False)
    finally:
        dist.all_to_all_single = exchange
    return sent, same(whole(state.entries), state_of(5))


def restored_spread(
    rank: int, mesh_shape: tuple[int, ...], words: str, is_in_memory: bool
) -> tuple[bool, bool]:
    stock = Stock(holders=3)
    stock.store(5)
    if is_in_memory and rank < 3:
        stock.hold(5, rank)
    state = Plain(spread(mesh_shape, words))
    held = {name: state.entries[name].to_local().data_ptr() for name in SHARDED}
    restore(here(rank), stock, state, lambda: False)
    is_in_place = all(state.entries[n].to_local().data_ptr() == held[n] for n in SHARDED)
    return is_in_place, same(whole(state.entries), state_of(5))


WAYS = [((4,), "0"), ((4,), "1"), ((2, 2), "01"), ((2, 2), "r0"), ((2, 2), "00")]


@pytest.mark.parametrize("is_in_memory", [True, False])
@pytest.mark.parametrize(("mesh_shape", "words"), WAYS, ids=str)
def test_each_rank_fills_its_own_part(
    troupe: Troupe, mesh_shape: tuple[int, ...], words: str, is_in_memory: bool
) -> None:
    """Whatever the shares were cut like: uneven ones, empty ones, boxes, copies; in place."""
    heard = troupe.play(restored_spread, mesh_shape, words, is_in_memory, size=SIZE)
    assert heard == [(True, True)] * SIZE


def moved_spread(rank: int, is_in_memory: bool, holders: int) -> int:
    """Restore a sharded state; returns the bytes that this rank read from storage and sent."""
    stock = Stock(holders=holders)
    stock.store(5)
    if is_in_memory and rank < holders:
        stock.hold(5, rank)
    state = Plain(spread((SIZE,), "0"))
    moved = 0
    broadcast, exchange = dist.broadcast, dist.all_to_all_single

    def counted(tensor: torch.Tensor, source: int) -> None:
        nonlocal moved
        moved += tensor.nbytes * (SIZE - 1) if source == rank else 0
        broadcast(tensor, source)

    def exchanged(found: Any, given: torch.Tensor, *sizes: Any) -> None:
        """Of bytes with the sizes of what comes and goes, of their checksums one for each rank."""
        nonlocal moved
        assert not sizes or (sizes[1][rank] == 0 and sum(sizes[1]) == given.nbytes)
        moved += given.nbytes
        exchange(found, given, *sizes)

    dist.broadcast, dist.all_to_all_single = counted, exchanged  # type: ignore[assignment]
    try:
        restore(here(rank), stock, state, lambda: False)
    finally:
        dist.broadcast, dist.all_to_all_single = broadcast, exchange
    assert same(whole(state.entries), state_of(5))
    manifest, _ = stock._manifest(15)
    read = [rows for each in stock.of(ms.Stream) for rows in each.pieces]
    return moved + sum(size_of(manifest, piece) for piece in selected(manifest, read))


@pytest.mark.parametrize("holders", [2, 3, SIZE])
@pytest.mark.parametrize("is_in_memory", [True, False])
def test_sharded_restore_moves_each_byte_to_the_rank_that_needs_it(
    troupe: Troupe, is_in_memory: bool, holders: int
) -> None:
    """Storage and network together move hardly more than the state, by however many it was saved; a
    broadcast would move it to every rank."""
    moved = troupe.play(moved_spread, is_in_memory, holders, size=SIZE)
    nbytes = sum(each.nbytes for each in state_of(5).values() if isinstance(each, torch.Tensor))
    assert 0 < sum(moved) <= 1.1 * nbytes


def test_sharded_state_that_a_node_has_in_memory_is_not_sent_between_its_ranks(
    troupe: Troupe,
) -> None:
    """Each brings the shares that it needs itself; were one to bring all, three quarters of the
    state would go to others."""
    heard = troupe.play(moved_by_the_ranks_of_one_node, size=SIZE)
    assert all(is_good for _, is_good in heard)
    nbytes = sum(state_of(5)[name].nbytes for name in SHARDED)
    assert sum(sent for sent, _ in heard) < 0.01 * nbytes


def loaded_spread(rank: int, mesh_shape: tuple[int, ...], words: str) -> tuple[int, bool]:
    """`elasticd.checkpoint.load` into DTensors; returns the pieces that were read."""
    stock = Stock(holders=3)
    stock.store(5)
    env = {"ELASTICD_KEEPER": "k", "RANK": str(rank), "WORLD_SIZE": str(SIZE)}
    setattr(keeper_connection, "Client", lambda name, limit_s: stock)  # noqa: B010
    into = spread(mesh_shape, words)
    loaded = save_and_load._Job(env).load(into)
    assert loaded is not None and loaded[1] == 5 and loaded[0] is into
    (fetched,) = stock.of(ms.Fetch)
    return len(fetched.pieces), same(whole(into), state_of(5))


@pytest.mark.parametrize(("mesh_shape", "words"), WAYS, ids=str)
def test_load_fills_dtensors_of_any_placement(
    troupe: Troupe, mesh_shape: tuple[int, ...], words: str
) -> None:
    """Each rank reads no piece that it has no element of."""
    heard = troupe.play(loaded_spread, mesh_shape, words, size=SIZE)
    assert [is_same for _, is_same in heard] == [True] * SIZE
    if words == "0":
        assert min(pieces for pieces, _ in heard) < max(pieces for pieces, _ in heard)
