"""A page is told what it does not know yet, and no more."""

from dataclasses import replace

from elasticd.dashboard.board import Board, JobPage, delta
from elasticd.dashboard.job_view import Plain

FIRST: Plain = {"generation": 1}
SECOND: Plain = {"generation": 2, "arrivals": "under way"}
PAGE = JobPage(view={"step": 1}, changes=(FIRST, SECOND), samples=({"at": 1.0}, {"at": 2.0}))
BOARD = Board(version=1, jobs=({"job": "j"},), nodes=(), pages={"j": PAGE})


def test_a_new_page_is_told_everything() -> None:
    """Of the lists, and of the job that it asked for."""
    told = delta(None, BOARD, "j")
    assert told == {
        "jobs": BOARD.jobs,
        "nodes": (),
        "trouble": "",
        "job": {"step": 1},
        "changes": [FIRST, SECOND],
        "generations": [1, 2],
        "samples": [{"at": 1.0}, {"at": 2.0}],
    }
    assert delta(None, BOARD, "unknown")["job"] is None
    assert delta(BOARD, BOARD, "j") == {}


def test_what_changed_is_told_once() -> None:
    """A change that is told anew replaces the one of its generation; a folded one is forgotten."""
    other: Plain = {"generation": 2, "arrivals": ""}
    page = replace(PAGE, changes=(other,), samples=(*PAGE.samples, {"at": 3.0}))
    told = delta(BOARD, replace(BOARD, pages={"j": page}), "j")
    assert told == {"changes": [other], "generations": [2], "samples": [{"at": 3.0}]}
    assert delta(BOARD, replace(BOARD, trouble="etcd is away"), "j") == {"trouble": "etcd is away"}


def test_samples_that_got_other_times_are_all_told_anew() -> None:
    """Their clock was set back: the newest is older than what the page has."""
    page = replace(PAGE, samples=({"at": 0.5}, {"at": 1.5}), samples_moved=1)
    after = replace(BOARD, pages={"j": page})
    told = delta(BOARD, after, "j")
    assert told == {"samples_moved": True, "samples": [{"at": 0.5}, {"at": 1.5}]}
    assert delta(after, after, "j") == {}


def test_what_the_autoscaler_says_is_told_when_it_changes() -> None:
    """A job that never had a policy is told nothing about it."""
    assert "autoscale" not in delta(None, BOARD, "j")
    said: Plain = {"summary": "autoscaler: held"}
    after = replace(BOARD, pages={"j": replace(PAGE, autoscale=said)})
    assert delta(BOARD, after, "j") == {"autoscale": said}
    assert delta(None, after, "j")["autoscale"] == said
    assert delta(after, after, "j") == {}


def test_a_job_that_is_gone_is_said_once() -> None:
    """Somebody removed its records."""
    empty = replace(BOARD, pages={})
    assert delta(BOARD, empty, "j") == {"job": None}
    assert delta(empty, empty, "j") == {}
