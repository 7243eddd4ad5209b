"""Entries of the log: to JSON and back, and what is none."""

import json
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from elasticd.checkpoint.format.entry import FORMER_LIMIT, LogEntry, LogEntryKind
from elasticd.checkpoint.format.json_read import Damaged
from tests.unit.checkpoint.records import changed, entry, sealed_text


@pytest.mark.parametrize("kind", list(LogEntryKind))
def test_entry_survives_the_way_to_bytes_and_back(kind: LogEntryKind) -> None:
    """Of every kind."""
    assert LogEntry.from_json(entry(7, kind).to_json(), 7) == entry(7, kind)


@given(st.data())
def test_no_flipped_bit_goes_unnoticed(data: st.DataObject) -> None:
    """A digit that became another would fence a job, or keep what was given up."""
    text = bytearray(entry().to_json())
    place = data.draw(st.integers(0, len(text) - 1))
    text[place] ^= 1 << data.draw(st.integers(0, 7))
    with pytest.raises(Damaged):
        LogEntry.from_json(bytes(text), 3)


def test_entry_of_an_older_elasticd_is_read() -> None:
    """Its list of what is kept is plain, however long; and a short one is written so still."""
    plain = list(range(1, 5_000))
    text = changed(entry(5_000).to_json(), kept=plain)
    assert LogEntry.from_json(text, 5_000).kept == plain
    assert json.loads(entry(7).to_json())["kept"] == [1, 7]
    with pytest.raises(Damaged, match="ranges, which its format has not"):
        LogEntry.from_json(changed(entry(9).to_json(), kept=[[1, 9, 2]]), 9)


def test_entry_that_keeps_many_is_small() -> None:
    """All, or every second, with gaps where a generation began or some were given up."""
    kept = [*range(2, 100_000), *range(100_001, 300_000, 2), *range(300_000, 400_000)]
    made = replace(entry(400_000), kept=kept)
    text = made.to_json()
    assert len(text) < 600 and json.loads(text)["format"] == 2
    assert LogEntry.from_json(text, 400_000) == made and made.kept == kept


def test_entry_of_a_newer_elasticd_says_what_to_do() -> None:
    """It is not damaged, and no older checkpoint should be taken for the newest."""
    with pytest.raises(Damaged, match="format 3, and this elasticd reads 2: read it with the ela"):
        LogEntry.from_json(changed(entry(3).to_json(), format=3), 3)


def test_entry_of_another_number_is_none() -> None:
    """A copy of one in the place of another would turn the log back."""
    with pytest.raises(Damaged, match="calls itself"):
        LogEntry.from_json(entry(3).to_json(), 4)


@pytest.mark.parametrize("origin", [None, 0, 2])
def test_checkpoint_that_a_generation_went_on_from_is_read_back(origin: int | None) -> None:
    """None: an older elasticd wrote the entry. 0: the generation began anew."""
    made = replace(entry(3, LogEntryKind.OPENED), origin=origin)
    assert LogEntry.from_json(made.to_json(), 3) == made


@pytest.mark.parametrize("number", [b"NaN", b"Infinity", b"-Infinity", b"1e999", b"9" * 400])
def test_number_that_is_none_is_damaged(number: bytes) -> None:
    """Python's JSON takes them."""
    text = entry().to_json().replace(b'"at_unix_s":2.5', b'"at_unix_s":' + number)
    with pytest.raises(Damaged, match="no number"):
        LogEntry.from_json(sealed_text(text.rpartition(b',"sum"')[0]), 3)


@pytest.mark.parametrize(
    "fields",
    [
        {"format": 3}, {"format": True}, {"format": ...}, {"number": 3.0}, {"number": True},
        {"kind": "erased"}, {"kind": ["committed"]}, {"kept": None}, {"kept": [0]},
        {"kept": [1, 4]}, {"kept": [2, 1]}, {"kept": [1, 1]}, {"kept": ["1"]}, {"kept": [True]},
        {"kept": list(range(1, 200_000))}, {"step": -1}, {"step": 10**15}, {"step": 1.5},
        {"generation": 10**12}, {"run": 10**9}, {"run": None}, {"uid": 5}, {"uid": "x" * 20_000},
        {"job": None}, {"manifest_sum": []}, {"nbytes": -5}, {"nbytes": 10**30},
        {"at_unix_s": "now"}, {"at_unix_s": 10**400}, {"at_unix_s": True}, {"former": None},
        {"former": [1]}, {"former": ["x"] * (FORMER_LIMIT + 1)}, {"former": ...},
        {"origin": -1}, {"origin": 4}, {"origin": True}, {"origin": "2"},
    ],
    ids=lambda fields: str(fields)[:40],
)  # fmt: skip
def test_value_beyond_its_limits_is_damaged(fields: dict[str, object]) -> None:
    """Sealed as if we had written it."""
    with pytest.raises(Damaged):
        LogEntry.from_json(changed(entry().to_json(), **fields), 3)
