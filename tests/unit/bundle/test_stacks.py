"""The text of a file of stacks: what is given of it, and what is left out."""

from pathlib import Path

import pytest

from elasticd.bundle.agent_client import AgentClient
from elasticd.bundle.job_files import RECORD_BYTES, JobFile
from elasticd.bundle.mask import Mask, MaskedValue
from elasticd.bundle.stacks import stacks_from_agent, stacks_from_disk, stacks_name
from elasticd.errors import NotFound
from elasticd.records.ids import Generation, NodeId

NAME = stacks_name(Generation(3), NodeId("b"))
LIMIT = 1000


@pytest.fixture
def path(tmp_path: Path) -> Path:
    made = tmp_path / "runs" / "j" / NAME
    made.parent.mkdir(parents=True)
    made.write_text("=== rank 1, pid 7 ===\nin f\n")
    return made


def given(path: Path, mask: Mask | None = None, name: str = NAME) -> str:
    return stacks_from_disk(path.parents[1], name, mask or Mask(), LIMIT)


class Answers(AgentClient):
    """An agent that gives one file, and knows no secret."""

    def __init__(self, data: bytes | None) -> None:
        self.data = data
        self.is_silent = data is None

    def end(self, name: str, limit_bytes: int) -> bytes | None:
        assert name == NAME
        return self.data[-limit_bytes:] if self.data is not None else None

    def list(self) -> list[JobFile] | None:
        return [JobFile(name=NAME, size=len(self.data or b""))]


def test_a_short_file_is_given_as_it_is(path: Path) -> None:
    assert given(path) == "=== rank 1, pid 7 ===\nin f\n"
    path.write_bytes(b"caf\xc3\xa9 \xff\n")
    assert given(path) == "caf\u00e9 \ufffd\n"


def test_a_long_one_is_cut_in_the_middle_and_says_so(path: Path) -> None:
    """Whole lines of the first and of the last ranks stay."""
    text = "".join(f"line {number:04}\n" for number in range(1000))
    path.write_text(text)
    found = given(path)
    assert found.startswith("line 0000\n") and found.endswith("line 0999\n")
    head, _, rest = found.partition("\n\n[elasticd] ")
    count, _, tail = rest.partition(" bytes are left out here.\n\n")
    assert len(head) + 1 + len(tail) + int(count.replace(",", "")) == len(text)
    assert len(head) + len(tail) <= LIMIT and tail.startswith("line ")
    assert stacks_from_agent(Answers(text.encode()), NAME, Mask(), LIMIT) == found


@pytest.mark.parametrize("end", ["", "\n"])
def test_a_long_line_is_cut_too(path: Path, end: str) -> None:
    path.write_text("x" * 5000 + end)
    found = given(path)
    assert len(found) < LIMIT + 100 and "bytes are left out here" in found


def test_of_a_file_that_is_longer_than_an_answer_the_end_is_given(path: Path) -> None:
    """Its begin is not known, and nothing else is shown in its place."""
    data = b"first\n" + b"".join(b"line %07d\n" % number for number in range(120_000))
    assert len(data) > RECORD_BYTES
    path.write_bytes(data)
    found = given(path)
    assert found.startswith("[elasticd] 1,559,0") and found.endswith("line 0119999\n")
    assert stacks_from_agent(Answers(data), NAME, Mask(), LIMIT) == found


@pytest.mark.parametrize("before", range(485, 515, 3))
def test_no_secret_is_in_it_wherever_it_is_cut(path: Path, before: int) -> None:
    """Also if the agent that gave it did not know the secret."""
    mask = Mask([MaskedValue(name="KEY", value="canary-0123456789")])
    data = b"y" * before + b"canary-0123456789" + b"x" * 5000 + b"canary-0123456789\n"
    path.write_bytes(data)
    for found in (given(path, mask), stacks_from_agent(Answers(data), NAME, mask, LIMIT)):
        assert found is not None and "canary" not in found and "6789" not in found


@pytest.mark.parametrize("name", ["incidents/../../private", "../private", "incidents/x.txt", ""])
def test_nothing_else_is_given(path: Path, name: str) -> None:
    (path.parents[2] / "private").write_text("private")
    with pytest.raises(NotFound):
        given(path, name=name)


def test_a_link_leads_nowhere(path: Path) -> None:
    """Neither of the file, nor of its folder."""
    private = path.parents[2] / "incidents"
    private.mkdir()
    (private / path.name).write_text("private")
    path.unlink()
    path.symlink_to(private / path.name)
    with pytest.raises(NotFound):
        given(path)
    path.unlink()
    path.parent.rmdir()
    path.parent.symlink_to(private)
    with pytest.raises(NotFound):
        given(path)


def test_an_agent_that_has_none_gives_none() -> None:
    assert stacks_from_agent(Answers(None), NAME, Mask(), LIMIT) is None
