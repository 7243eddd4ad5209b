"""The list of a job's files, and their ends: what is given, and all that is not."""

import os
from pathlib import Path

import pytest

from elasticd.bundle.job_files import LOG_BYTES, JobFiles, generation_of
from elasticd.bundle.mask import Mask, MaskedValue
from elasticd.errors import NotFound


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = tmp_path / "runs" / "j"
    for generation in (1, 2, 9, 10):
        (folder / f"gen-{generation}").mkdir(parents=True)
        for rank in (0, 10, 2):
            (folder / f"gen-{generation}" / f"rank-{rank}.out").write_text("hello\n")
    for place in ("incidents", "agents", "prepared", "etcd"):
        (folder / place).mkdir()
    (folder / "incidents" / "gen-9.a.stacks.txt").write_text("stacks")
    (folder / "agents" / "a.keeper.log").write_text("kept")
    (folder / "prepared" / "slot-0-1.err").write_text("no module")
    (folder / "incidents.jsonl").write_text("{}\n")
    (folder / "etcd" / "db").write_text("private")
    (folder / "gen-10" / "model.pt").write_text("private")
    (folder.parent / "private").write_text("private")
    return folder


def test_the_newest_generations_are_listed_in_the_order_of_ranks(folder: Path) -> None:
    """Three of them, by number; and nothing that is no log of ours."""
    names = [file.name for file in JobFiles(folder).list()]
    assert names == [
        *(f"gen-{generation}/rank-{rank}.out" for generation in (10, 9, 2) for rank in (0, 2, 10)),
        "prepared/slot-0-1.err",
        "incidents/gen-9.a.stacks.txt",
        "agents/a.keeper.log",
        "incidents.jsonl",
    ]
    assert JobFiles(folder / "none").list() == []
    assert generation_of(names[0]) == (10, 0)
    assert generation_of("prepared/slot-0-1.err") is None


@pytest.mark.parametrize(
    "name",
    [
        "gen-10/model.pt",
        "etcd/db",
        "records.json",
        "../private",
        "gen-10/../../private",
        "gen-10/rank-0.out/../../../private",
        "/etc/passwd",
        "agents/../../private.log",
        "agents/.hidden.log",
        "",
        "gen-1/rank-99999999999999999.out",
    ],
)
def test_nothing_else_is_given(folder: Path, name: str) -> None:
    """The list of forms is closed."""
    with pytest.raises(NotFound):
        JobFiles(folder).end(name, Mask())


def test_a_link_a_pipe_and_a_folder_are_not_there(folder: Path) -> None:
    """A worker may put anything into its folder; nobody waits for it, and nothing leads out."""
    (folder / "gen-10" / "rank-5.out").symlink_to(folder.parent / "private")
    os.mkfifo(folder / "gen-10" / "rank-6.out")
    (folder / "gen-10" / "rank-7.out").mkdir()
    (folder.parent / "gen-8").mkdir()
    (folder.parent / "gen-8" / "rank-0.out").write_text("private")
    (folder / "gen-8").symlink_to(folder.parent / "gen-8")
    files = JobFiles(folder)
    for name in ("gen-10/rank-5.out", "gen-10/rank-6.out", "gen-10/rank-7.out"):
        assert name not in [file.name for file in files.list()]
        with pytest.raises((NotFound, OSError)):
            files.end(name, Mask())
    with pytest.raises(NotFound):
        files.end("gen-8/rank-0.out", Mask())


def test_a_long_file_is_given_from_the_begin_of_a_line(folder: Path) -> None:
    """And never more than may be, also where less is asked for."""
    path = folder / "gen-10" / "rank-0.out"
    path.write_bytes(b"".join(b"line %07d\n" % number for number in range(100_000)))
    data = JobFiles(folder).end("gen-10/rank-0.out", Mask())
    assert LOG_BYTES - 13 <= len(data) <= LOG_BYTES
    assert data.startswith(b"line ") and data.endswith(b"line 0099999\n")
    few = JobFiles(folder).end("gen-10/rank-0.out", Mask(), 30)
    assert few == b"line 0099998\nline 0099999\n"
    path.write_bytes(b"x" * (LOG_BYTES + 1))
    assert len(JobFiles(folder).end("gen-10/rank-0.out", Mask(), 10**9)) == LOG_BYTES


@pytest.mark.parametrize("before", range(LOG_BYTES - 14, LOG_BYTES + 2, 3))
def test_no_part_of_a_secret_is_left_at_the_cut(folder: Path, before: int) -> None:
    """It is masked before it is cut, wherever the cut falls."""
    secret = "canary-0123456789"
    path = folder / "gen-10" / "rank-0.out"
    path.write_bytes(b"y" * 100 + secret.encode() + b"x" * (before - 1) + b"\n")
    mask = Mask([MaskedValue(name="K", value=secret)])
    data = JobFiles(folder).end("gen-10/rank-0.out", mask)
    assert b"789x" not in data


def test_what_was_dropped_for_log_max_is_one_line(folder: Path) -> None:
    """The hole would be a page of nothing."""
    (folder / "gen-10" / "rank-0.out").write_bytes(b"a\n" + b"\0" * 5000 + b"b\n")
    data = JobFiles(folder).end("gen-10/rank-0.out", Mask())
    assert data.startswith(b"a\n\n[elasticd]") and data.endswith(b"--log-max\nb\n")
