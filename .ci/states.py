"""Writes docs/states.md: what has states, which they are, and how one follows another.

python .ci/states.py          # writes the page (`make picture`)
python .ci/states.py --check  # fails where the page is not what the code says

The tables are those that the code asks before each change (`elasticd.transitions`), so a way that
is not on the page ends in InvariantBroken.
"""

import inspect
import sys
from enum import StrEnum
from pathlib import Path
from typing import Any

from elasticd.keeper.save import snapshot_save
from elasticd.rendezvous import stages
from elasticd.transitions import Transitions
from generated_page import ROOT, write_or_check

PAGE = ROOT / "docs" / "states.md"

TABLES = (
    ("A node's part in a job", stages, stages.MEMBER_STAGES),
    ("A worker", stages, stages.WORKER_STAGES),
    ("A snapshot in a keeper", snapshot_save, snapshot_save.SAVE_STAGES),
)

HEAD = """# States

Written by `make picture` from the tables that the code obeys: do not edit. A transition that is not
here raises `InvariantBroken`. To stay in a state is always legal.
"""


def drawing(table: Transitions[Any]) -> str:
    """Return the states and the ways between them in Mermaid."""
    lines = ["```mermaid", "stateDiagram-v2"]
    lines += [f"  [*] --> {state}" for state in table.begins]
    lines += [f"  {old} --> {new}" for old, new in table.ways]
    lines += [f"  {state} --> [*]" for state in table.ends]
    return "\n".join([*lines, "```"])


def ways(table: Transitions[Any]) -> list[tuple[str, str, str]]:
    """Return from, to and what makes it, for beginnings, changes and ends."""
    nothing = "-"
    found = [(nothing, str(state), why) for state, why in table.begins.items()]
    found += [(str(old), str(new), why) for (old, new), why in table.ways.items()]
    return found + [(str(state), nothing, why) for state, why in table.ends.items()]


def section(title: str, module: Any, table: Transitions[Any]) -> str:
    """Return one thing's drawing and tables.

    Raises: SystemExit: a state lacks its sentence.
    """
    states: list[StrEnum] = list(type(next(iter(table.meanings))))
    if set(states) != set(table.meanings):
        raise SystemExit(f"{title}: each of {', '.join(states)} needs a sentence.")
    file = Path(inspect.getfile(module)).relative_to(ROOT)
    lines = [f"\n## {title}\n", f"The table is in `{file}`.\n", drawing(table)]
    lines += ["\n| state | what it is |\n|---|---|"]
    lines += [f"| {state} | {meaning} |" for state, meaning in table.meanings.items()]
    lines += ["\n| from | to | what makes it |\n|---|---|---|"]
    lines += [f"| {old} | {new} | {why} |" for old, new, why in ways(table)]
    return "\n".join(lines) + "\n"


def page() -> str:
    """Return the whole page."""
    return HEAD + "".join(section(*each) for each in TABLES)


if __name__ == "__main__":
    sys.exit(write_or_check(PAGE, page()))
