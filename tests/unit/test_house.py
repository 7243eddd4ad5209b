"""The rules of the house: how long files are, how full rooms are, and what names may not be.

What imports what is import-linter's (`make check`), with the floors in pyproject.toml.
"""

import ast
import re
import tomllib
from collections import Counter
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PRODUCT = sorted(
    path
    for top in ("elasticd", "agent/elasticd_agent", "chaos")
    for path in (ROOT / top).rglob("*.py")
)
NAMES = [str(path.relative_to(ROOT)) for path in PRODUCT]

MOST_LINES = 400
LONGER = {
    "agent/elasticd_agent/workers/workers.py": 423,
    "elasticd/rendezvous/facts/etcd_facts.py": 402,
    "elasticd/rendezvous/next_world/plan.py": 406,
    "elasticd/store/memory.py": 406,
    "elasticd/telemetry/metrics/catalog.py": 401,
    "elasticd/train/process_group/group.py": 403,
}
"""Files that have outgrown the rule, with the lines at which they may stand: none may grow."""

MOST_FILES = 13
FULLER = {"agent/elasticd_agent/pool": 20, "chaos": 25, "elasticd/cli/autoscale": 14}
"""Rooms with more than twelve modules and a charter, with what they may hold: none may grow."""

NO_NAMES = re.compile(r"(^|_)(utils?|helpers?|common|manager|misc|told|said|gone)$")
"""Leftover words, and participles that nobody searches for."""


@pytest.mark.parametrize("name", NAMES)
def test_file_is_no_longer_than_the_rule(name: str) -> None:
    lines = len((ROOT / name).read_text().splitlines())
    assert lines <= LONGER.get(name, MOST_LINES), f"{name} has {lines} lines"


def test_list_of_longer_files_has_no_others() -> None:
    assert {n for n in LONGER if len((ROOT / n).read_text().splitlines()) <= MOST_LINES} == set()


def test_no_room_is_crowded() -> None:
    full = Counter(str(Path(name).parent) for name in NAMES)
    assert {room: n for room, n in full.items() if n > FULLER.get(room, MOST_FILES)} == {}


def test_list_of_fuller_rooms_has_no_others() -> None:
    full = Counter(str(Path(name).parent) for name in NAMES)
    assert [room for room in FULLER if full[room] <= MOST_FILES] == []


def test_each_room_says_what_it_is_for() -> None:
    for room in {path.parent for path in PRODUCT} - {ROOT / "chaos" / "jobs"}:
        charter = ast.get_docstring(ast.parse((room / "__init__.py").read_text()))
        assert charter, f"{room.relative_to(ROOT)} has no charter in its __init__.py"


def test_each_module_says_what_it_is_for() -> None:
    assert [n for n in NAMES if not ast.get_docstring(ast.parse((ROOT / n).read_text()))] == []


def test_no_file_has_a_leftover_word_for_a_name() -> None:
    assert [name for name in NAMES if NO_NAMES.search(Path(name).stem)] == []


MAY_IMPORT_TORCH = {
    "elasticd.cli",  # `elasticd checkpoint export`, in the function that needs it
    "elasticd.dcp",
    "elasticd.net",  # reverse_dns, which the pool and the workers call
    "elasticd.tensors",
    "elasticd.train",
    "elasticd_agent.pool",
}


def test_contract_about_torch_names_every_package_but_those_that_need_it() -> None:
    """A room that is new must be named, too, or be one of those."""
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())
    contracts = settings["tool"]["importlinter"]["contracts"]
    named = next(set(c["source_modules"]) for c in contracts if "never import torch" in c["name"])
    modules = {
        f"{top.name}.{path.stem}"
        for top in (ROOT / "elasticd", ROOT / "agent" / "elasticd_agent")
        for path in (*top.glob("*.py"), *(init.parent for init in top.glob("*/__init__.py")))
        if not path.stem.startswith("__")
    }
    assert modules - MAY_IMPORT_TORCH == named
