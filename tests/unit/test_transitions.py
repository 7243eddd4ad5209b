"""The tables of states: what they forbid, that they fit the code, and that the page is of today."""

import ast
import subprocess
import sys
from enum import StrEnum
from pathlib import Path
from typing import Any

import pytest

from elasticd.errors import InvariantBroken
from elasticd.keeper.save.snapshot_save import SAVE_STAGES, SaveStage
from elasticd.rendezvous.stages import MEMBER_STAGES, WORKER_STAGES
from elasticd.transitions import Transitions

ROOT = Path(__file__).parents[2]
TABLES: list[Transitions[Any]] = [MEMBER_STAGES, WORKER_STAGES, SAVE_STAGES]


def states_of(table: Transitions[Any]) -> list[StrEnum]:
    kind: type[StrEnum] = type(next(iter(table.meanings)))
    return list(kind)


@pytest.mark.parametrize("table", TABLES, ids=lambda table: table.of)
def test_way_that_is_not_in_the_table_is_our_own_bug(table: Transitions[Any]) -> None:
    for old in states_of(table):
        for new in states_of(table):
            if new is old or (old, new) in table.ways:
                assert table.step(old, new) is new
                continue
            with pytest.raises(InvariantBroken, match=f"cannot go from {old} to {new}"):
                table.step(old, new)


@pytest.mark.parametrize("table", TABLES, ids=lambda table: table.of)
def test_each_state_is_told_can_be_reached_and_comes_to_an_end(table: Transitions[Any]) -> None:
    states = set(states_of(table))
    assert states == set(table.meanings)
    assert set(table.begins) | {new for _, new in table.ways} == states
    assert set(table.ends) | {old for old, _ in table.ways} == states


def test_what_has_become_of_a_snapshot_stays() -> None:
    final = [state for state in SaveStage if state in SAVE_STAGES.ends]
    assert not [way for way in SAVE_STAGES.ways if way[0] in final]


def test_nobody_changes_a_stage_without_its_table() -> None:
    """In the rendezvous by `replace(..., stage=...)`, in the keeper by `job.stage = ...`."""
    found = []
    for path in [*(ROOT / "elasticd").rglob("*.py"), *(ROOT / "agent").rglob("*.py")]:
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call) and ast.unparse(node.func).endswith("replace"):
                is_one = any(word.arg == "stage" for word in node.keywords)
            else:
                written = node.targets if isinstance(node, ast.Assign) else []
                is_one = any(isinstance(t, ast.Attribute) and t.attr == "stage" for t in written)
            if is_one:
                found.append(f"{path.relative_to(ROOT)}: {ast.unparse(node).splitlines()[0]}")
    stages = "elasticd/rendezvous/stages.py"
    assert sorted(found) == [
        "elasticd/keeper/save/snapshot_save.py: self.stage = SAVE_STAGES.step(self.stage, stage)",
        f"{stages}: dataclasses.replace(worker, stage=WORKER_STAGES.step(worker.stage, stage))",
        f"{stages}: replace(state, stage=MEMBER_STAGES.step(state.stage, stage))",
    ]


def test_page_of_the_states_is_what_the_code_says() -> None:
    told = subprocess.run(
        [sys.executable, ".ci/states.py", "--check"], cwd=ROOT, capture_output=True, text=True
    )
    assert told.returncode == 0, told.stderr
