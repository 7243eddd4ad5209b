"""The four parts of a `JobState`: which module of the rendezvous may change which of them."""

import ast
import dataclasses
from collections.abc import Iterator
from pathlib import Path

import pytest

from elasticd.rendezvous.state import ChangeRecord, EtcdView, JobState, OwnPart, PlanState

ROOT = Path(__file__).parents[3]
STATE = "elasticd.rendezvous.state"

MAY_CHANGE: dict[type, set[str]] = {
    EtcdView: {"decide", "facts.etcd_facts", "facts.result_facts", "next_world.propose"},
    PlanState: {"decide", "facts.etcd_facts", "next_world.propose"},
    OwnPart: {
        "conduct.conduct",
        "conduct.in_process",
        "decide",
        "facts.etcd_facts",
        "facts.worker_facts",
        "next_world.propose",
        "stages",
    },
    ChangeRecord: {
        "conduct.change_incident",
        "conduct.conduct",
        "facts.etcd_facts",
        "facts.worker_facts",
        "next_world.propose",
    },
}
"""A module that is added here needs a better reason than that its code is there."""

FIELDS: dict[str, type] = {
    field.name: part for part in MAY_CHANGE for field in dataclasses.fields(part)
}


def sources() -> Iterator[tuple[str, ast.Module]]:
    for top in ("elasticd", "agent/elasticd_agent"):
        for path in sorted((ROOT / top).rglob("*.py")):
            yield (
                ".".join(path.relative_to(ROOT).with_suffix("").parts),
                ast.parse(path.read_text()),
            )


def replaces_state(tree: ast.Module) -> bool:
    """Return whether `replace` is that of the JobState in this module."""
    return any(
        isinstance(node, ast.ImportFrom)
        and node.module == STATE
        and any(alias.name == "replace" for alias in node.names)
        for node in ast.walk(tree)
    )


def changes_in(tree: ast.Module) -> Iterator[str]:
    """Yield the field of each change of a JobState; `**` for one that cannot be read."""
    has_replace = replaces_state(tree)
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            function = ast.unparse(node.func)
            if function == "replace" and has_replace:
                yield from (word.arg or "**" for word in node.keywords)


def parts_in(tree: ast.Module) -> set[type]:
    return {FIELDS.get(name, JobState) for name in changes_in(tree)}


def test_each_field_is_in_one_part_or_never_changes() -> None:
    every = [field.name for part in MAY_CHANGE for field in dataclasses.fields(part)]
    assert len(every) == len(set(every))
    own = {field.name for field in dataclasses.fields(JobState)} - set(every)
    assert own == {"me", "spec", "past"}


def test_each_part_is_changed_by_its_modules_alone() -> None:
    found: dict[type, set[str]] = {part: set() for part in MAY_CHANGE}
    for name, tree in sources():
        for part in parts_in(tree):
            assert part in found, f"{name} changes what never changes, or cannot be read"
            found[part].add(name.removeprefix("elasticd.rendezvous."))
    assert found == MAY_CHANGE


def states_of(function: ast.FunctionDef) -> set[str]:
    """Return the names of its arguments that are a JobState."""
    args = (*function.args.args, *function.args.kwonlyargs)
    return {a.arg for a in args if a.annotation and ast.unparse(a.annotation) == "JobState"}


def test_state_is_changed_by_its_own_replace_alone() -> None:
    """`dataclasses.replace` of a state, or `replace` by another name, would not be seen above."""
    found = []
    for name, tree in sources():
        for node in ast.walk(tree):
            if isinstance(node, ast.ImportFrom) and node.module == STATE:
                found += [f"{name}: {a.name} as {a.asname}" for a in node.names if a.asname]
            if isinstance(node, ast.FunctionDef):
                for call in (each for each in ast.walk(node) if isinstance(each, ast.Call)):
                    ways = ("dataclasses.replace", "object.__setattr__", "setattr")
                    of = ast.unparse(call.args[0]) if call.args else ""
                    if ast.unparse(call.func) in ways and of in states_of(node):
                        found.append(f"{name}: {ast.unparse(call)}")
    assert found == []


@pytest.mark.parametrize(
    ("source", "parts"),
    [
        ("state = replace(state, proposal='')", {PlanState}),
        ("return_ = replace(replace(state, world=None), leaving=None)", {EtcdView, OwnPart}),
        ("state = replace(state, past=Past())", {JobState}),
        ("state = replace(state, **changes)", {JobState}),
    ],
)
def test_change_is_found_in_a_source(source: str, parts: set[type]) -> None:
    head = f"from {STATE} import replace\n"
    assert parts_in(ast.parse(head + source)) == parts
    assert parts_in(ast.parse("from dataclasses import replace\n" + source)) == set()
