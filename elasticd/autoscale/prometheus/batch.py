"""Joins several queries to one, and splits its answer again. Pure.

PromQL has no lists of queries, but it has a union of vectors: each part gets a label of elasticd,
so that no series of one part equals a series of another, and `or` keeps all of them. For
expressions that give a vector the result is the same as that of separate queries. Prometheus
refuses a scalar in a union, and one part that is refused, or slow, spoils the whole query. So each
query is first asked separately, and again if the union failed.
"""

from collections.abc import Sequence
from dataclasses import replace

from elasticd.autoscale.prometheus.answer import QueryAnswer, Sample

__all__ = ["PARTS_LIMIT", "apart", "union"]

PARTS_LIMIT = 40
"""The number of queries that are joined: a hundred jobs need three requests, and a failure affects
at most 40 queries."""
_PART = "elasticd_part"


def union(expressions: Sequence[str]) -> str:
    """Return one query for all expressions; each must be valid PromQL and give a vector."""
    return " or ".join(
        # A line break stands before the parenthesis, since the expression may end with a comment.
        f'label_replace((\n{expression}\n), "{_PART}", "{number}", "", "")'
        for number, expression in enumerate(expressions)
    )


def apart(answer: QueryAnswer, expressions: Sequence[str]) -> dict[str, QueryAnswer] | None:
    """Return each query's own answer; None if the answer cannot be split.

    A warning may belong to any of the queries, so an answer with a warning cannot be split. The
    same is true of a sample without its label.
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
