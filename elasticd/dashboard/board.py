"""The data of one moment, and the difference for a page with earlier data. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from elasticd.dashboard.job_view import Plain

__all__ = ["Board", "JobPage", "delta"]


@dataclass(frozen=True, slots=True, kw_only=True)
class JobPage:
    """The data that the page shows of one job."""

    view: Plain
    changes: tuple[Plain, ...] = ()
    """The changes in the order of their generations."""
    samples: tuple[Plain, ...] = ()
    """The samples in the order of their times; older ones may be thinned out later."""
    samples_moved: int = 0
    """How often the samples got other times; a page needs all of them anew after that."""
    autoscale: Plain | None = None
    """The autoscaling; None if the job never had a policy."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Board:
    """All data of one moment; a board never changes.

    If a part is equal to that of the board before, it is the same object.
    """

    version: int = 0
    jobs: tuple[Plain, ...] = ()
    nodes: tuple[Plain, ...] = ()
    trouble: str = ""
    """Why the data may be out of date, or what they lack; empty if neither is so."""
    pages: Mapping[str, JobPage] = field(default_factory=dict)


def delta(before: Board | None, after: Board, job: str) -> Plain:
    """Return the data of the lists and of one job that a page needs.

    Parts that did not change are left out. A page must forget a change of world that is not in
    `generations` any more, since it was folded into sums, and its samples if they moved.
    """
    told: Plain = {}
    if before is None or (before.jobs, before.nodes) != (after.jobs, after.nodes):
        told |= {"jobs": after.jobs, "nodes": after.nodes}
    if before is None or before.trouble != after.trouble:
        told["trouble"] = after.trouble
    page = after.pages.get(job)
    old = before.pages.get(job) if before is not None else None
    if page is None:
        return told | ({"job": None} if before is None or old is not None else {})
    if old is None or old.view != page.view:
        told["job"] = page.view
    if old is None or old.changes != page.changes:
        known = {id(change) for change in old.changes} if old is not None else set()
        told["changes"] = [change for change in page.changes if id(change) not in known]
        told["generations"] = [change["generation"] for change in page.changes]
    if page.autoscale != (old.autoscale if old is not None else None):
        told["autoscale"] = page.autoscale
    is_moved = old is not None and old.samples_moved != page.samples_moved
    if is_moved:
        told["samples_moved"] = True
    last = old.samples[-1]["at"] if old is not None and old.samples and not is_moved else None
    new = [s for s in page.samples if last is None or s["at"] > last]  # type: ignore[operator]
    if new:
        told["samples"] = new
    return told
