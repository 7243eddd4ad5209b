"""Joins several queries in one, and takes its answer apart again. Pure.

PromQL has no lists of queries, but it has a union of vectors: each part gets a label of ours, so
that no series of one part equals one of another, and `or` keeps all of them. For expressions that
give a vector the result is the same as that of separate queries. A scalar would be refused, and one
part that Prometheus refuses, or that is slow, spoils the whole query. So each query is asked
separately first, and again where the whole failed.
"""

from collections.abc import Sequence
from dataclasses import replace

from elasticd.autoscale.prometheus.answer import QueryAnswer, Sample

__all__ = ["PARTS_LIMIT", "apart", "union"]

PARTS_LIMIT = 40
"""How many queries are joined: a hundred jobs need three requests, and one that fails affects
40."""
_PART = "elasticd_part"


def union(expressions: Sequence[str]) -> str:
    """Return one query for all of them; each must give a vector and be valid PromQL by itself."""
    return " or ".join(
        # The line ends before the parenthesis: the expression may end with a comment.
        f'label_replace((\n{expression}\n), "{_PART}", "{number}", "", "")'
        for number, expression in enumerate(expressions)
    )


def apart(answer: QueryAnswer, expressions: Sequence[str]) -> dict[str, QueryAnswer] | None:
    """Return each query's own answer; None if it cannot be said whose is what.

    A warning may belong to all of them or to one: nobody can tell. The same goes for a part without
    its label.
    """
    if answer.warnings or answer.kind != "vector":
        return None
    found: dict[str, list[Sample]] = {str(part): [] for part in range(len(expressions))}
    for sample in answer.samples:
        labels = dict(sample.labels)
        part = found.get(labels.pop(_PART, ""))
        if part is None:
            return None
        part.append(replace(sample, labels=labels))
    return {
        expression: replace(answer, samples=tuple(samples))
        for expression, samples in zip(expressions, found.values(), strict=True)
    }
