"""The log of commits: numbers without gaps, and who may write as it stands."""

import json
import secrets
from collections.abc import Callable, Sequence
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from elasticd.checkpoint.commit import log as log_module
from elasticd.checkpoint.commit.log import CommitLog, LogState, is_committed, may_commit
from elasticd.checkpoint.format.entry import FORMER_LIMIT, LogEntry, LogEntryKind
from elasticd.checkpoint.format.layout import HINT, Snapshot, entry_name
from elasticd.checkpoint.format.number_ranges import NumberRanges
from elasticd.checkpoint.storage.bucket import Bucket
from elasticd.checkpoint.storage.fsspec_bucket import FsspecBucket
from elasticd.errors import Fenced, Refused

LOG_STATE = LogState(
    run=2, generation=5, start_step=50, uid="u", job="j",
    last=Snapshot(run=2, generation=4, step=40), floor_step=40,
)  # fmt: skip


def snapshot(step: int, generation: int = 5, run: int = 2) -> Snapshot:
    return Snapshot(run=run, generation=generation, step=step)


def a_bucket() -> FsspecBucket:
    return FsspecBucket(f"memory://{secrets.token_hex(8)}", {})


def entry(
    number: int,
    kind: LogEntryKind = LogEntryKind.COMMITTED,
    made: Snapshot | None = None,
    *,
    kept: int = 0,
) -> LogEntry:
    """One whose `kept` are the numbers from `kept` on, or itself."""
    made = made or snapshot(number)
    return LogEntry(
        number=number, kind=kind, snapshot=made, uid=f"run-{made.run}", job="j",
        kept=tuple(range(kept or number, number + 1)),
    )  # fmt: skip


def written(bucket: Bucket, entries: list[LogEntry]) -> None:
    for each in entries:
        assert bucket.create(entry_name(each.number), each.to_json())


# --- may_commit ---------------------------------------------------------------------------------


def test_present_generation_may_commit_what_is_newer() -> None:
    """The plain case."""
    assert may_commit(LOG_STATE, snapshot(41))
    assert may_commit(LOG_STATE, snapshot(1000))


def test_nothing_is_committed_that_is_not_newer_than_the_newest() -> None:
    """It has come too late, or it is the same."""
    assert not may_commit(LOG_STATE, snapshot(40))
    assert not may_commit(LOG_STATE, snapshot(39))


def test_older_generation_may_commit_only_what_the_present_one_went_on_from() -> None:
    """Steps up to the start belong to both histories, later ones to the older's alone."""
    assert may_commit(LOG_STATE, snapshot(50, generation=4))
    assert may_commit(replace(LOG_STATE, last=snapshot(40, generation=1)), snapshot(41, 1))
    assert not may_commit(LOG_STATE, snapshot(41, generation=1)), "generation 4 has one at 40"
    assert not may_commit(LOG_STATE, snapshot(51, generation=4))


def test_older_run_may_commit_nothing() -> None:
    """Whatever its generation and step; generations count anew in each run."""
    for step in (41, 50, 51):
        assert not may_commit(LOG_STATE, snapshot(step, generation=9, run=1))


def test_newer_generation_that_did_not_open_may_commit() -> None:
    """Its first checkpoint opens it."""
    assert may_commit(LOG_STATE, snapshot(41, generation=6))
    assert may_commit(LOG_STATE, snapshot(41, generation=1, run=3))
    assert not may_commit(LOG_STATE, snapshot(40, generation=6))


def test_generation_that_went_back_may_commit_earlier_steps() -> None:
    """What was the newest checkpoint lies on a branch that was given up."""
    back = LOG_STATE.after(entry(9, LogEntryKind.OPENED, snapshot(30, generation=6)))
    assert back.last is None
    assert may_commit(back, snapshot(31, generation=6))
    assert not may_commit(back, snapshot(41, generation=5))
    on = LOG_STATE.after(entry(9, LogEntryKind.OPENED, snapshot(40, generation=6)))
    assert on.last == LOG_STATE.last
    assert not may_commit(on, snapshot(40, generation=6))


def test_step_after_one_to_which_a_generation_went_back_is_committed_by_none_before_it() -> None:
    """Whatever step of its own branch the present generation goes on from."""
    back = LOG_STATE.after(entry(9, LogEntryKind.OPENED, snapshot(45, generation=6)))
    on = back.after(entry(10, LogEntryKind.OPENED, snapshot(71, generation=7)))
    assert not may_commit(on, snapshot(46, generation=5))
    assert may_commit(on, snapshot(45, generation=5)), "it is in the history of both"
    assert may_commit(on, snapshot(70, generation=6))
    assert not may_commit(on, snapshot(72, generation=6))
    late = on.after(entry(11, made=snapshot(44, generation=5)))
    assert not may_commit(late, snapshot(46, generation=5)), "an older checkpoint changes nothing"
    assert may_commit(late, snapshot(45, generation=5))
    made = on.after(entry(11, made=snapshot(44, generation=6)))
    assert not may_commit(made, snapshot(45, generation=5)), "the newer generation has its own"
    assert may_commit(made, snapshot(71, generation=6))
    assert may_commit(made, snapshot(45, generation=7))
    anew = on.after(entry(11, LogEntryKind.OPENED, snapshot(0, generation=1, run=3)))
    assert anew.openings == ((1, 0),)


# --- is_committed -------------------------------------------------------------------------------


def test_snapshot_of_a_step_that_was_taken_again_is_committed_with_the_other() -> None:
    """A generation went on from step 40, which the one before had saved, or saves in the end."""
    assert is_committed(LOG_STATE, snapshot(40))
    on = LOG_STATE.after(entry(9, LogEntryKind.OPENED, snapshot(40, generation=6)))
    assert is_committed(on, snapshot(40, generation=6))
    first = on.after(entry(10, LogEntryKind.COMMITTED, snapshot(60, generation=6)))
    again = first.after(entry(11, LogEntryKind.OPENED, snapshot(60, generation=7)))
    assert is_committed(again, snapshot(60, generation=7))
    assert not is_committed(again, snapshot(60, generation=8)), "it may have gone back"
    assert not is_committed(again, snapshot(60, generation=7, run=1))
    assert not is_committed(again, snapshot(59, generation=7))


def test_step_that_was_trained_anew_is_another_state() -> None:
    """The generation went on from behind it."""
    back = LOG_STATE.after(entry(9, LogEntryKind.OPENED, snapshot(30, generation=6)))
    assert not is_committed(back, snapshot(40, generation=5))
    done = back.after(entry(10, LogEntryKind.COMMITTED, snapshot(40, generation=6)))
    assert is_committed(done, snapshot(40, generation=6))
    assert not is_committed(done, snapshot(40, generation=5))


# --- Ruling -------------------------------------------------------------------------------------


def test_opening_of_an_older_generation_changes_nothing() -> None:
    """Should one ever stand in the log."""
    assert LOG_STATE.after(entry(9, LogEntryKind.OPENED, snapshot(10, generation=4))) == LOG_STATE
    assert (
        LOG_STATE.after(entry(9, LogEntryKind.OPENED, snapshot(10, generation=9, run=1)))
        == LOG_STATE
    )


def test_removal_changes_nothing() -> None:
    """It is no checkpoint and opens nothing."""
    assert LOG_STATE.after(entry(9, LogEntryKind.REMOVED, snapshot(90, generation=9))) == LOG_STATE


def test_run_is_remembered_by_those_after_it() -> None:
    """So that its uid can be told from one that never wrote here."""
    opened = replace(entry(9, LogEntryKind.OPENED, snapshot(0, 1, 3)), former=("a", "b"))
    assert LOG_STATE.after(opened).former == ("a", "b")
    assert LOG_STATE.after(opened).after(entry(10, made=snapshot(5, 2, 3))).former == ("a", "b")
    assert FORMER_LIMIT >= 2


@st.composite
def histories(draw: st.DrawFn) -> list[LogEntry]:
    """A log as the rules let it become; its entries name others, or none as if damaged."""
    found: list[LogEntry] = []
    log_state = LogState()
    names_others = draw(st.booleans())
    opened = committed = 0
    for _ in range(draw(st.integers(1, 14))):
        kind = draw(st.sampled_from(LogEntryKind))
        made = snapshot(draw(st.integers(0, 9)), draw(st.integers(1, 4)), draw(st.integers(1, 3)))
        is_newer = (made.run, made.generation) > (log_state.run, log_state.generation)
        is_right = {
            LogEntryKind.OPENED: is_newer,
            # Where it began is not said by the entries that others name, if no entry opened it.
            LogEntryKind.COMMITTED: may_commit(log_state, made) and not (is_newer and names_others),
            LogEntryKind.REMOVED: True,
        }
        if is_right[kind]:
            new = entry(len(found) + 1, kind, made)
            if names_others:
                opened = new.number if kind is LogEntryKind.OPENED else opened
                committed = new.number if kind is LogEntryKind.COMMITTED else committed
            former = (f"to {len(found)}",) if kind is LogEntryKind.OPENED else ()
            found.append(replace(new, former=former, opened=opened, committed=committed))
            log_state = log_state.after(found[-1])
    return found


@given(histories())
def test_reading_back_a_little_gives_the_ruling_of_the_whole_log(entries: list[LogEntry]) -> None:
    """After each entry."""
    bucket = a_bucket()
    written(bucket, entries)
    log_state = LogState()
    for each in entries:
        log_state = log_state.after(each)
        assert CommitLog(bucket).state(each.number) == log_state
    assert CommitLog(bucket).state() == log_state


# --- finding the newest -------------------------------------------------------------------------


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 70), st.one_of(st.none(), st.integers(-5, 200)), st.integers(0, 70))
def test_newest_number_is_found_whatever_the_hint_says(
    length: int, hint: int | None, seen: int
) -> None:
    """And by a log that had looked before, when fewer were there."""
    bucket = a_bucket()
    entries = [entry(number) for number in range(1, length + 1)]
    written(bucket, entries[:seen])
    early = CommitLog(bucket)
    assert early.newest_number() == min(seen, length)
    written(bucket, entries[seen:])
    if hint is not None:
        bucket.replace(HINT, str(hint).encode())
    assert CommitLog(bucket).newest_number() == length
    assert early.newest_number() == length


def test_checkpoints_are_the_kept_ones_newest_first() -> None:
    """Without those given up, and without entries that are no checkpoints."""
    bucket = a_bucket()
    written(bucket, [entry(1), entry(2), entry(3, LogEntryKind.OPENED), entry(4)])
    written(bucket, [replace(entry(5, LogEntryKind.REMOVED), kept=(2, 4))])
    assert [each.number for each in CommitLog(bucket).checkpoints()] == [4, 2]
    assert list(CommitLog(a_bucket()).checkpoints()) == []


class Flipping(FsspecBucket):
    """Its read of this number comes with a flipped bit."""

    def __init__(self, url: str, call: int) -> None:
        super().__init__(url, {})
        self.calls, self.call = 0, call

    def read(self, name: str, limit_bytes: int) -> bytes:
        data = super().read(name, limit_bytes)
        self.calls += 1
        at = len(data) // 2
        flipped = data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :]
        return flipped if self.calls == self.call else data


def test_bit_that_flips_on_the_way_hides_no_entry() -> None:
    """Without the entry that opened a generation, the one before would rule."""
    bucket = a_bucket()
    written(bucket, [entry(1, LogEntryKind.OPENED, snapshot(0, 1)), entry(2, made=snapshot(5, 1))])
    written(bucket, [entry(3, LogEntryKind.OPENED, snapshot(3, 2)), entry(4, LogEntryKind.REMOVED)])
    bucket.replace(HINT, b"4")
    true = CommitLog(bucket).state()
    assert true.generation == 2 and true.last is None
    for call in range(1, 12):
        assert CommitLog(Flipping(bucket.url, call)).state() == true
    last = Flipping(bucket.url, 0)
    CommitLog(last).state()
    assert 3 <= last.calls < 12


# --- appending ----------------------------------------------------------------------------------

Make = Callable[[int, LogState, Sequence[int]], LogEntry | None]


def test_append_gives_the_number_the_ruling_and_what_is_kept() -> None:
    """All three as of the entry before."""
    bucket, seen = a_bucket(), []

    def make(number: int, log_state: LogState, kept: Sequence[int]) -> LogEntry:
        seen.append((number, log_state.last, kept))
        return entry(number, kept=1)

    log = CommitLog(bucket)
    for _ in range(3):
        log.append(make)
    assert seen == [(1, None, ()), (2, snapshot(1), (1,)), (3, snapshot(2), (1, 2))]
    assert log.append(lambda *_: None) is None
    assert CommitLog(bucket).newest_number() == 3


def test_append_asks_again_when_somebody_was_faster() -> None:
    """With what that one wrote before its eyes, and the number after it."""
    bucket = a_bucket()
    numbers: list[int] = []

    def make(number: int, log_state: LogState, kept: Sequence[int]) -> LogEntry:
        numbers.append(number)
        if number < 3:
            written(bucket, [entry(number)])
        return entry(number)

    done = CommitLog(bucket).append(make)
    assert done is not None and done.number == 3
    assert numbers == [1, 2, 3]


def test_append_gives_up_when_others_are_always_faster(monkeypatch: pytest.MonkeyPatch) -> None:
    """After a limit, with an error that says stop."""
    monkeypatch.setattr(log_module, "APPEND_LIMIT", 5)
    bucket = a_bucket()

    def make(number: int, log_state: LogState, kept: Sequence[int]) -> LogEntry:
        written(bucket, [entry(number)])
        return entry(number)

    with pytest.raises(Fenced):
        CommitLog(bucket).append(make)
    assert CommitLog(bucket).newest_number() == 5


def test_entry_that_no_reader_takes_is_not_written(monkeypatch: pytest.MonkeyPatch) -> None:
    """Beyond a reader's limit every later checkpoint would be there and never be found. The newest
    stays what can be read."""
    monkeypatch.setattr(log_module, "ROWS_LIMIT", 5)
    bucket = a_bucket()
    written(bucket, [entry(number) for number in range(1, 5)])
    written(bucket, [replace(entry(5), kept=(1, 2, 4, 5))])
    log = CommitLog(bucket)
    with pytest.raises(Refused, match=r"more than 5 gaps.*--checkpoint-keep"):
        log.append(lambda number, log_state, kept: replace(entry(number), kept=(1, 2, 4, 5, 8, 9)))
    for long in (replace(entry(6), uid="x" * 20_000), replace(entry(6), manifest_sum="x" * 20_000)):
        with pytest.raises(Refused, match="Nobody could read"):
            log.append(lambda number, log_state, kept: long)  # noqa: B023
    assert CommitLog(bucket).newest_number() == 5
    removed = log.append(lambda number, log_state, kept: replace(entry(number), kept=kept[2:]))
    assert removed is not None and CommitLog(bucket).kept() == (4, 5), "and giving up makes room"


def test_log_does_not_grow_with_the_square_of_what_is_kept() -> None:
    """A million kept checkpoints: the next entry is as small as the hundredth, and is read."""
    bucket = a_bucket()
    written(bucket, [entry(1, LogEntryKind.OPENED)])
    bucket.create(entry_name(2), replace(entry(2), kept=(2,)).to_json())
    log = CommitLog(bucket)
    kept = NumberRanges(range(2, 1_000_002))

    newest = replace(entry(1_000_001), kept=kept, opened=1, committed=2)
    log._newest, log._entries[1_000_001] = 1_000_001, newest
    for _ in range(3):
        made = log.append(
            lambda number, log_state, before: replace(
                entry(number), kept=NumberRanges(before).plus(number)
            )
        )
        assert made is not None
        data = bucket.read(entry_name(made.number), 1000)
        assert len(data) < 600 and json.loads(data)["format"] == 2
        read = LogEntry.from_json(data, made.number)
        assert read == made and len(read.kept) == made.number - 1
        assert read.kept[-1] == made.number and list(read.kept)[:2] == [2, 3]
