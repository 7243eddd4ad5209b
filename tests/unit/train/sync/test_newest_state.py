"""Who gives state and who takes it."""

import json
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from elasticd.errors import CallError
from elasticd.train.process_group.group import GroupBroken
from elasticd.train.sync.newest_state import (
    RankReport,
    StateLost,
    StructureDiffers,
    agree_on_source,
    choose_source,
)


def report(rank: int, step: int = 0, epoch: int = 0, **fields: Any) -> RankReport:
    plain: dict[str, Any] = {
        "is_clean": True,
        "is_new": False,
        "has_stepped": False,
        "structure_hash": "a",
    }
    return RankReport(rank=rank, position=(step, epoch), **{**plain, **fields})


reports_of_ranks = st.lists(
    st.tuples(st.integers(0, 3), st.integers(0, 1), st.booleans(), st.booleans(), st.booleans()),
    min_size=1,
    max_size=6,
).map(
    lambda rows: [
        report(rank, step, epoch, is_clean=clean, is_new=new, has_stepped=stepped)
        for rank, (step, epoch, clean, new, stepped) in enumerate(rows)
    ]
)


@given(reports_of_ranks, st.randoms())
def test_every_rank_has_one_part_and_sources_had_the_state(
    reports: list[RankReport], rng: Any
) -> None:
    try:
        decision = choose_source(reports)
    except StateLost:
        assert any(not each.is_new for each in reports)
        assert not any(each.is_clean or each.has_stepped for each in reports if not each.is_new)
        return
    parts = sorted(decision.sources + decision.targets)
    assert parts == [each.rank for each in reports]
    assert decision.sources
    old = [each for each in reports if not each.is_new]
    clean = [each for each in old if each.is_clean]
    beyond = [each for each in old if each.has_stepped and not each.is_clean]
    if beyond and clean and max(r.position for r in beyond) > max(r.position for r in clean):
        clean = []  # Those were away when the others went on.
    for rank in decision.sources:
        assert reports[rank].position == decision.position
        assert reports[rank] in clean or not clean
    if clean:
        assert decision.position == max(each.position for each in clean)
        assert decision.sources == tuple(r.rank for r in clean if r.position == decision.position)
    shuffled = list(reports)
    rng.shuffle(shuffled)
    assert choose_source(shuffled) == decision


def test_ordinary_recovery_copies_nothing() -> None:
    decision = choose_source([report(rank, 41, 2) for rank in range(3)])
    assert decision.sources == (0, 1, 2) and decision.targets == () and decision.note == ""


def test_newest_clean_position_wins_and_the_end_of_an_epoch_is_newer() -> None:
    decision = choose_source([report(0, 41), report(1, 42, 0), report(2, 42, 1), report(3, 42, 1)])
    assert decision.position == (42, 1)
    assert decision.sources == (2, 3) and decision.targets == (0, 1)


def test_a_dirty_rank_takes_from_a_clean_one_at_the_same_commit() -> None:
    decision = choose_source([report(0, 41, is_clean=False, has_stepped=True), report(1, 41)])
    assert decision.sources == (1,) and decision.targets == (0,) and decision.note == ""


def test_a_clean_rank_that_was_away_takes_nobody_back() -> None:
    """It is clean at a commit that the others have long passed; they stepped since their last."""
    decision = choose_source([report(0, 50, is_clean=False, has_stepped=True), report(1, 41)])
    assert decision.sources == (0,) and decision.targets == (1,)
    assert decision.position == (50, 0) and decision.note


def test_at_one_position_those_who_were_not_away_give() -> None:
    """Who was away has perhaps applied another step in the place of theirs."""
    decision = choose_source(
        [report(0, 41, lineage=2), report(1, 41, lineage=3), report(2, 41, lineage=3)]
    )
    assert decision.sources == (1, 2) and decision.targets == (0,)


def test_a_new_rank_takes_though_it_calls_itself_clean() -> None:
    decision = choose_source([report(0, 99, is_new=True), report(1, 41)])
    assert decision.sources == (1,) and decision.targets == (0,)


def test_first_formation_follows_rank_0() -> None:
    decision = choose_source([report(rank, is_new=True) for rank in (2, 0, 1)])
    assert decision.sources == (0,) and decision.targets == (1, 2)


def test_without_a_clean_rank_one_that_has_stepped_stands_in_and_a_note_says_so() -> None:
    stepped: dict[str, Any] = {"is_clean": False, "has_stepped": True}
    decision = choose_source(
        [report(0, 40, **stepped), report(1, 41, **stepped), report(2, 41, **stepped)]
    )
    assert decision.sources == (1,) and decision.targets == (0, 2)
    assert "rank 1" in decision.note


def test_nobody_left_with_state_is_an_end_with_a_sentence() -> None:
    with pytest.raises(StateLost, match=r"rank 0 lost.*newest snapshot"):
        choose_source([report(0, 41, is_clean=False), report(1, is_new=True)])


def test_the_rank_built_otherwise_is_named() -> None:
    other: dict[str, Any] = {"structure_hash": "b"}
    with pytest.raises(StructureDiffers) as caught:
        choose_source(
            [report(0, is_new=True, **other), report(1, is_new=True), report(2, is_new=True)]
        )
    assert caught.value.odd == (0,) and caught.value.reference == 1
    with pytest.raises(StructureDiffers) as caught:  # Two newcomers do not outvote the state.
        choose_source(
            [report(0, 5), report(1, is_new=True, **other), report(2, is_new=True, **other)]
        )
    assert caught.value.odd == (1, 2) and caught.value.reference == 0


class FakeStore(dict[str, Any]):
    """A store for one thread: what is read was written before."""

    def __init__(self) -> None:
        super().__init__()
        self.calls = 0

    def set(self, key: str, value: str) -> None:
        self.calls += 1
        self[key] = value.encode()

    def get(self, key: str) -> bytes:  # type: ignore[override]
        self.calls += 1
        found: bytes = self[key]
        return found

    def multi_get(self, keys: list[str]) -> list[bytes]:
        self.calls += 1
        return [self[key] for key in keys]


class Member:
    def __init__(self, rank: int, size: int, store: FakeStore) -> None:
        self.rank, self.size, self.store = rank, size, store


def exchange(
    reports: list[RankReport], structures: Sequence[tuple[str, ...]]
) -> tuple[list[Any], FakeStore]:
    """Let each rank take part, rank 0 when all others have written."""
    store = FakeStore()
    size = len(reports)
    said: dict[int, Any] = {}
    for each in [*reports[1:], reports[0], *reports[1:]]:
        try:
            member = Member(each.rank, size, store)
            said[each.rank] = agree_on_source(member, each, structures[each.rank])
        except KeyError:
            continue  # Rank 0 has not decided yet.
        except Exception as exc:
            said[each.rank] = exc
    return [said[rank] for rank in range(size)], store


def test_all_ranks_read_what_rank_0_decided() -> None:
    reports = [report(0, is_new=True), report(1, 7, 1), report(2, 6)]
    said, _ = exchange(reports, [("w",)] * 3)
    assert said == [choose_source(reports)] * 3


def test_interval_that_one_rank_knows_is_known_to_all() -> None:
    """Rank 0 is a new process here, and knows nothing of the generation before."""
    reports = [report(0, is_new=True), report(1, 7, snapshot_interval=10), report(2, 7)]
    said, _ = exchange(reports, [("w",)] * 3)
    assert [each.snapshot_interval for each in said] == [10] * 3


def test_reports_of_a_newer_version_are_read_as_far_as_they_are_known() -> None:
    """Nodes are upgraded one after the other, and rank 0 may be on the one that comes last."""
    store = FakeStore()
    newer = {"rank": 1, "position": [7, 0], "is_clean": True, "is_new": False, "colour": "blue"}
    newer |= {"has_stepped": False, "structure_hash": "a"}
    store.set("elasticd/agree/report/1", json.dumps(newer))
    found = agree_on_source(Member(0, 2, store), report(0, is_new=True), ("w",))
    assert (found.sources, found.position) == ((1,), (7, 0))


def test_report_says_nothing_that_an_older_version_need_not_know() -> None:
    """An older one, with rank 0, ended at a field that it did not know, and the state was lost."""
    _, store = exchange([report(0, 7), report(1, 7, run=3)], [("w",)] * 2)
    said = [json.loads(store.get(f"elasticd/agree/report/{rank}")) for rank in (0, 1)]
    always = {"rank", "position", "is_clean", "is_new", "has_stepped", "structure_hash"}
    assert [set(each) for each in said] == [always, {*always, "run"}]


def test_decision_of_an_older_version_is_read() -> None:
    """It has no interval between snapshots."""
    said, store = exchange([report(0, 7), report(1, 7)], [("w",)] * 2)
    older = json.loads(store.get("elasticd/agree/decision"))
    del older["snapshot_interval"]
    store.set("elasticd/agree/decision", json.dumps(older))
    assert agree_on_source(Member(1, 2, store), report(1, 7), ("w",)) == said[1]


def test_rank_built_otherwise_is_told_the_first_difference() -> None:
    reports = [report(rank, is_new=True) for rank in range(3)]
    reports[2] = report(2, is_new=True, structure_hash="b")
    lines = [("m.w float32 [2]",), ("m.w float32 [2]",), ("m.w float32 [3]",)]
    said, _ = exchange(reports, lines)
    assert isinstance(said[0], GroupBroken) and "rank 2" in str(said[0])
    assert isinstance(said[1], GroupBroken)
    assert isinstance(said[2], CallError)
    assert "rank 2 has `m.w float32 [3]` where rank 0 has `m.w float32 [2]`" in str(said[2])


def test_lost_state_is_told_to_all() -> None:
    said, _ = exchange([report(0, is_clean=False), report(1, is_new=True)], [("w",)] * 2)
    assert all(isinstance(each, StateLost) for each in said)


def test_the_exchange_costs_each_rank_two_calls() -> None:
    size = 50
    _, store = exchange([report(rank) for rank in range(size)], [("w",)] * size)
    # The first round of the fake's others counts their writes and failed reads once more.
    assert store.calls <= 4 * size + 3
