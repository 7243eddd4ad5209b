"""Several queries in one, and its answer taken apart again. Pure.

PromQL has no lists of queries, but a union of vectors: each part gets a label of ours, by which no
series of one part is the same as one of another, so that `or` leaves all of them. For expressions
that give a vector that is the same as asking apart. A scalar would be refused, and one part that
Prometheus refuses, or that is slow, spoils all: so whoever asks asks apart first, and again where
the whole failed.
"""

from collections.abc import Sequence
from dataclasses import replace

from elasticd.autoscale.prometheus.answer import Answer, Sample

__all__ = ["PARTS_LIMIT", "apart", "union"]

PARTS_LIMIT = 40
"""Queries in one: of a hundred jobs three requests remain, and one that fails costs 40."""
_PART = "elasticd_part"


def union(expressions: Sequence[str]) -> str:
    """Return one query for all of them; each gives a vector, and is whole PromQL by itself."""
    return " or ".join(
        # The line ends before the parenthesis: the expression may end with a comment.
        f'label_replace((\n{expression}\n), "{_PART}", "{number}", "", "")'
        for number, expression in enumerate(expressions)
    )


def apart(answer: Answer, expressions: Sequence[str]) -> dict[str, Answer] | None:
    """Return each one's own answer; None: it cannot be said whose is what.

    A warning is of all of them or of one: nobody can tell. So is a part without its label.
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
