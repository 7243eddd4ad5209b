"""What single ranks have reaches all of them, in one order."""

from collections.abc import Iterator
from typing import Any, NamedTuple

import pytest

from elasticd.checkpoint.manifest import Piece
from elasticd.checkpoint.read import Damaged
from elasticd.errors import ElasticdError
from elasticd.train import passing
from elasticd.train.passing import Load, pass_on
from tests.fixtures.ranks import Cast
from tests.integration.checkpoint_dcp.troupe import Troupe

SIZE = 3


class Meeting(NamedTuple):
    rank: int
    size: int


def load_of(rank: int, index: int, size: int) -> Load:
    """Bytes that say whose they are."""
    memory = memoryview(bytearray([(7 * rank + index + at) % 251 for at in range(size)]))
    pieces = tuple(
        Piece(10 * rank + index, (first, 0), (size // 2, 1), 0, 0) for first in (0, size // 2)
    )
    return memory, pieces, (0, size // 2)


def plain(load: Load) -> Any:
    """What can be compared: which part of an object a piece was cut from is not told."""
    memory, pieces, starts = load
    return bytes(memory), [(each.tensor, each.offsets, each.shape) for each in pieces], starts


def exchange(rank: int, sizes: list[list[int]]) -> list[Any]:
    """Each rank has loads of these sizes; returns what this one gets."""
    passing.CHUNK_BYTES = 1000
    mine = [load_of(rank, index, size) for index, size in enumerate(sizes[rank])]
    return [plain(load) for load in pass_on(Meeting(rank, len(sizes)), mine)]


@pytest.fixture(scope="module")
def troupe() -> Iterator[Troupe]:
    with Cast() as cast:
        yield Troupe(cast, SIZE)


@pytest.mark.parametrize(
    "sizes",
    [
        [[4], [6], [8]],
        [[], [6, 2], []],
        [[], [], []],
        [[0], [0, 4], [0]],
        [[999], [1000, 1001], [5500]],
    ],
    ids=str,
)
def test_every_rank_gets_the_loads_of_all(troupe: Troupe, sizes: list[list[int]]) -> None:
    """One of each in turn; also of who has none, an empty one, or more than a chunk."""
    wanted = [
        plain(load_of(rank, index, own[index]))
        for index in range(max(map(len, sizes)))
        for rank, own in enumerate(sizes)
        if index < len(own)
    ]
    for got in troupe.play(exchange, sizes, size=SIZE):
        assert got == wanted


def fail(rank: int, bad: int) -> tuple[list[Any], str]:
    """What a rank gets, and the error it meets, where one cannot bring its second load."""

    def bring() -> Iterator[Load]:
        yield load_of(rank, 0, 4)
        if rank == bad:
            raise Damaged("the second is damaged")
        yield load_of(rank, 1, 4)

    got = []
    try:
        got += [plain(load) for load in pass_on(Meeting(rank, SIZE), bring())]
    except ElasticdError as exc:
        return got, f"{type(exc).__name__}: {exc}"
    return got, ""


@pytest.mark.parametrize("bad", range(SIZE))
def test_rank_that_fails_stops_all_at_the_same_place(troupe: Troupe, bad: int) -> None:
    """It says why; the others say that it was not them."""
    for rank, (_, said) in enumerate(troupe.play(fail, bad, size=SIZE)):
        if rank == bad:
            assert said == "Damaged: the second is damaged"
        else:
            assert said == f"NotPassed: Rank {bad} could not bring its part."
    # Nobody waits in a broadcast that the others do not make.
    sizes = [[4], [4], [4]]
    assert len(troupe.play(exchange, sizes, size=SIZE)) == SIZE


def test_rank_that_is_alone_keeps_what_it_has() -> None:
    """No group is needed for it."""
    loads = [load_of(0, 0, 4), load_of(0, 1, 6)]
    assert list(pass_on(Meeting(0, 1), loads)) == loads
