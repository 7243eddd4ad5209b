"""The rules between the fields of an ElasticJob: each is written once, and gives CEL and Python.

A rule is a small value that can express itself in both. Kubernetes has CEL
(`x-kubernetes-validations`) since 1.25. An older server drops it, and then the operator's check
refuses the same objects with the same sentences. `self` is the spec.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from elasticd.kube.resource.schema.field import SPEC, Field, Form

__all__ = [
    "RULES",
    "Fixed",
    "NotWith",
    "OneOf",
    "OnlyWith",
    "Ordered",
    "SchemaRule",
    "WithinNodes",
    "ZeroOrAtLeast",
]

Given = Mapping[str, Any]


class SchemaRule(Protocol):
    @property
    def cel(self) -> str:
        """Return the rule in CEL."""

    @property
    def sentence(self) -> str:
        """Return what to write instead, as one sentence for every object that breaks the rule."""

    def wrong(self, spec: Given) -> str:
        """Return the error in a spec of the right form; empty if the spec keeps the rule."""


def at(spec: Given, path: str) -> Any:
    """Return the value at a path below the spec; None if there is none."""
    found: Any = spec
    for name in path.split("."):
        found = found.get(name) if isinstance(found, Mapping) else None
    return found


def has(path: str) -> str:
    """Return the CEL expression that tests whether there is a value at a path."""
    names = path.split(".")
    parts = [f"has(self.{'.'.join(names[: n + 1])})" for n in range(len(names))]
    return " && ".join(parts)


@dataclass(frozen=True, slots=True, kw_only=True)
class OneOf:
    """The rule that exactly one of these fields is given."""

    paths: tuple[str, ...]

    @property
    def cel(self) -> str:
        return f"[{', '.join(has(path) for path in self.paths)}].filter(x, x).size() == 1"

    @property
    def sentence(self) -> str:
        *first, last = self.paths
        return f"spec needs exactly one of {', '.join(first)} and {last}."

    def wrong(self, spec: Given) -> str:
        found = sum(at(spec, path) is not None for path in self.paths)
        return "" if found == 1 else self.sentence


@dataclass(frozen=True, slots=True, kw_only=True)
class Ordered:
    """The rule that the one field is not above the other, if both are given."""

    low: str
    high: str

    @property
    def cel(self) -> str:
        return f"!({has(self.low)} && {has(self.high)}) || self.{self.low} <= self.{self.high}"

    @property
    def sentence(self) -> str:
        return f"spec.{self.low} must not be above spec.{self.high}."

    def wrong(self, spec: Given) -> str:
        low, high = at(spec, self.low), at(spec, self.high)
        if low is None or high is None or low <= high:
            return ""
        return f"spec.{self.low} {low} must not be above spec.{self.high} {high}."


@dataclass(frozen=True, slots=True, kw_only=True)
class WithinNodes:
    """The rule that a number of nodes lies in the job's range, whose ends have defaults."""

    path: str

    @property
    def cel(self) -> str:
        least = f"({has('nodes.min')} ? self.nodes.min : 1)"
        most = f"({has('nodes.max')} ? self.nodes.max : {least})"
        value = f"self.{self.path}"
        return f"!({has(self.path)}) || ({least} <= {value} && {value} <= {most})"

    @property
    def sentence(self) -> str:
        return f"spec.{self.path} is outside of spec.nodes: choose a number of nodes in that range."

    def wrong(self, spec: Given) -> str:
        value = at(spec, self.path)
        least = at(spec, "nodes.min") or 1
        most = at(spec, "nodes.max") or least
        if value is None or least <= value <= most:
            return ""
        return (
            f"spec.{self.path} {value} is outside of spec.nodes {least}:{most}: choose a number of "
            "nodes between them."
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class NotWith:
    """The rule that the other field is absent if the one field is given."""

    path: str
    other: str
    why: str

    @property
    def cel(self) -> str:
        return f"!({has(self.path)} && {has(self.other)})"

    @property
    def sentence(self) -> str:
        return f"spec.{self.path} and spec.{self.other} contradict each other: {self.why}."

    def wrong(self, spec: Given) -> str:
        is_both = at(spec, self.path) is not None and at(spec, self.other) is not None
        return self.sentence if is_both else ""


@dataclass(frozen=True, slots=True, kw_only=True)
class OnlyWith:
    """The rule that the other field is a text of this pattern if the one field is given."""

    path: str
    other: str
    pattern: str
    """The pattern of the whole text, in a syntax that both RE2 and Python know."""
    why: str

    @property
    def cel(self) -> str:
        is_it = f"self.{self.other}.matches('^({self.pattern})$')"
        return f"!({has(self.path)}) || ({has(self.other)} && {is_it})"

    @property
    def sentence(self) -> str:
        return f"spec.{self.path} {self.why}."

    def wrong(self, spec: Given) -> str:
        if at(spec, self.path) is None:
            return ""
        other = at(spec, self.other)
        return "" if other and re.fullmatch(self.pattern, other) else self.sentence


@dataclass(frozen=True, slots=True, kw_only=True)
class ZeroOrAtLeast:
    """The rule that a duration is 0, which switches it off, or at least a least value."""

    path: str
    least: int
    why: str

    @property
    def cel(self) -> str:
        value = f"double(self.{self.path})"
        return f"!({has(self.path)}) || {value} == 0.0 || {value} >= {self.least}.0"

    @property
    def sentence(self) -> str:
        return f"spec.{self.path} is below {self.least} seconds: {self.why}. 0 is never."

    def wrong(self, spec: Given) -> str:
        value = at(spec, self.path)
        if value is None or value == 0 or value >= self.least:
            return ""
        return f"spec.{self.path} {value:g} is below {self.least} seconds: {self.why}. 0 is never."


@dataclass(frozen=True, slots=True, kw_only=True)
class Fixed:
    """The rule that a field does not change.

    The operator compares the field with the job that it submitted (`job_spec`).
    """

    path: str

    @property
    def cel(self) -> str:
        new, old = has(self.path), has(self.path).replace("self.", "oldSelf.")
        return f"({new}) == ({old}) && (!({new}) || self.{self.path} == oldSelf.{self.path})"

    @property
    def sentence(self) -> str:
        return (
            f"spec.{self.path} cannot be changed while the job stands: delete the object, and "
            "create it anew."
        )

    def wrong(self, spec: Given) -> str:
        return ""


def _bounded(field: Field) -> tuple[str, ...]:
    """Return the parts of a field that a server can compare: a free object has no bounds."""
    if all(inner.form is not Form.FREE for inner in field.fields):
        return (field.name,)
    parts = (inner for inner in field.fields if inner.form is not Form.FREE)
    return tuple(f"{field.name}.{inner.name}" for inner in parts)


RULES: tuple[SchemaRule, ...] = (
    OneOf(paths=("script", "module", "command")),
    NotWith(path="python", other="command", why="a command is a program of its own"),
    NotWith(path="files", other="workingDir", why="workers start where the files lie"),
    Ordered(low="nodes.min", high="nodes.max"),
    WithinNodes(path="replicas"),
    OnlyWith(
        path="checkpoint.uploadEvery",
        other="checkpoint.every",
        pattern="1 ?steps?",
        why="says which of the snapshots of each step are uploaded: leave it out, or take one of "
        "each step (spec.checkpoint.every: 1steps)",
    ),
    ZeroOrAtLeast(path="timeouts.outputSeconds", least=5, why="files are looked at once a second"),
    *(Fixed(path=path) for field in SPEC.fields if field.is_fixed for path in _bounded(field)),
)
"""The rules, in the order in which they are checked."""
