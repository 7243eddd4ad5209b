"""The journal tells where a replay differs, and refuses what is none."""

import json

import pytest

from elasticd.errors import NotSupported
from elasticd.kube.decide.cluster import ObservedCluster
from elasticd.kube.decide.journal import line, opening, replay
from tests.unit.kube.decide.twin import IDENTITY, Twin


def written() -> list[str]:
    twin, lines, before = Twin(), [opening(IDENTITY)], ObservedCluster(identity=IDENTITY)
    twin.create()
    for _ in range(3):
        seen, now_s = twin.see(), twin.now_s
        actions = twin.turn()
        lines.append(line(before, seen, actions, now_s=now_s, now_unix_s=twin.now_unix_s - 1.0))
        before = seen
    return lines


def test_it_replays_to_the_same_actions() -> None:
    lines = written()
    assert replay(lines) is None
    assert sum(bool(json.loads(text)["actions"]) for text in lines[1:]) == 3


def test_a_line_without_a_change_is_short() -> None:
    twin = Twin()
    twin.create()
    twin.converge()
    seen = twin.see()
    text = line(seen, seen, (), now_s=1.0, now_unix_s=2.0)
    assert json.loads(text)["changes"] == {} and len(text) < 120


def test_a_difference_is_told_with_its_line() -> None:
    lines = written()
    row = json.loads(lines[2])
    row["actions"] = row["actions"][1:]
    lines[2] = json.dumps(row)
    found = replay(lines)
    assert found is not None and found.startswith("line 3: recorded [")


@pytest.mark.parametrize(
    "lines",
    [
        ["{}"],
        ["x"],
        ["[]"],
        [opening("c"), "{}"],
        [opening("c"), '{"changes": {"jobs": {"u": 3}}, "reserved": []}'],
    ],
)
def test_what_is_no_journal_is_refused(lines: list[str]) -> None:
    with pytest.raises(NotSupported, match="Line"):
        replay(lines)
