"""The names of event files: TensorBoard reads them in their order."""

import random

import pytest

from elasticd.tensorboard.event_file import (
    EventFile,
    Place,
    newest_before,
    place_of,
    run_number,
    usable_folder,
)


def file(
    run: int, attempt: int, generation: int, number: int, step: int = 0, uid: str = "aa"
) -> EventFile:
    return EventFile(
        run=run,
        attempt=attempt,
        generation=generation,
        number=number,
        uid=uid,
        step=step,
        node="n.1-x",
    )


def test_names_sort_as_files_do() -> None:
    """Also beyond ten generations, and a hundred files."""
    draw = random.Random(3)
    files = [
        file(1, draw.choice((1, 2, 11)), draw.randrange(200), draw.randrange(2000))
        for _ in range(500)
    ]
    assert [each.name for each in sorted(files)] == sorted(each.name for each in files)


def test_name_is_read_back() -> None:
    """And what is no event file of ours is none."""
    one = file(3, 1, 2, 7, step=123)
    assert EventFile.of(one.name) == one
    assert "tfevents" in one.name
    for name in ("1/elasticd.json", "events.out.tfevents.1.host", "1/notes.txt", one.name[2:]):
        assert EventFile.of(name) is None
    assert run_number("12/elasticd.json") == 12
    assert run_number("x/elasticd.json") == 0


def test_job_goes_on_where_its_files_are() -> None:
    """Whatever another has begun since."""
    names = [file(1, 1, 1, 0, uid="aa").name, file(2, 1, 1, 0, uid="bb").name]
    for is_new in (True, False):
        assert place_of(names, "aa", is_new=is_new) == Place(run=1, attempt=1)


def test_resumed_job_goes_on_with_the_newest_run() -> None:
    """As its next attempt; one that begins anew has a run of its own."""
    names = [file(1, 1, 1, 0).name, file(2, 3, 9, 0).name, file(2, 1, 1, 0).name]
    assert place_of(names, "cc", is_new=False) == Place(run=2, attempt=4)
    assert place_of([*names, "3/elasticd.json"], "cc", is_new=False) == Place(run=3, attempt=1)
    assert place_of(names, "cc", is_new=True) is None
    assert place_of([], "cc", is_new=False) is None


def test_newest_file_is_that_which_is_read_last() -> None:
    """Of those of this generation and before: a node that was away may be behind."""
    place = Place(run=1, attempt=2)
    names = [
        file(1, 1, 9, 0, step=90).name,
        file(1, 2, 1, 1, step=40).name,
        file(1, 2, 1, 0, step=30).name,
        file(1, 2, 3, 0, step=60).name,
        file(2, 2, 1, 5, step=99).name,
        "1/elasticd.json",
    ]
    for generation, step in ((1, 40), (2, 40), (3, 60), (4, 60)):
        newest = newest_before(names, place, generation)
        assert newest is not None and newest.step == step
    assert newest_before(names, Place(run=3, attempt=1), 1) is None


@pytest.mark.parametrize(
    ("name", "folder"),
    [
        ("gpt-2", "gpt-2"),
        ("my train.py", "my_train.py"),
        ("../x", "_x"),
        ("..", "job"),
        ("", "job"),
    ],
)
def test_any_name_makes_a_folder(name: str, folder: str) -> None:
    """And none that is above the URL."""
    assert usable_folder(name) == folder
