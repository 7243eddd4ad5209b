"""What was learned is kept, and forgotten when anything that it depends on is another."""

import sys
from pathlib import Path

import pytest

from elasticd.records.job import EntryKind
from elasticd_agent.pool.zygote.learned_set import (
    LearnedSet,
    Script,
    load,
    record_path,
    save,
    shadowed,
)

LEARNED = LearnedSet(
    modules=("zoo", "zoo.ape", "bar"),
    variables=("HOUSE",),
    differing=("RANK",),
    left_out={"bar": "it starts a thread"},
)


def script(folder: Path, text: str = "pass") -> Script:
    (folder / "train.py").write_text(text)
    return Script(entry="train.py", kind=EntryKind.SCRIPT, folder=str(folder))


def test_what_is_saved_is_read_back(tmp_path: Path) -> None:
    """Its folder is made."""
    path = tmp_path / "a" / "b" / "x.json"
    save(path, LEARNED)
    assert load(path) == LEARNED


@pytest.mark.parametrize(
    "content", [b"", b"{", b"[]", b'{"version": 2}', b'{"version": 1}', b"\xff", b"null"]
)
def test_record_that_does_not_fit_is_as_none(tmp_path: Path, content: bytes) -> None:
    """Whatever stands there, the script is learned anew."""
    path = tmp_path / "x.json"
    path.write_bytes(content)
    assert load(path) == LearnedSet()
    assert load(tmp_path / "none.json") == LearnedSet()


def test_folder_that_cannot_be_written_costs_the_record_only(tmp_path: Path) -> None:
    """A file stands where the folder should."""
    (tmp_path / "a").write_text("")
    save(tmp_path / "a" / "x.json", LEARNED)


def test_record_is_of_one_script_with_one_content_and_one_set_of_packages(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An edit, an upgrade, or another entry: each has a record of its own."""
    installed = tmp_path / "site-packages"
    (installed / "zoo-1.0.dist-info").mkdir(parents=True)
    monkeypatch.setattr(sys, "path", [*sys.path, str(installed)])
    paths = [record_path("/r", script(tmp_path)), record_path("/r", script(tmp_path, "pass  #"))]
    (installed / "zoo-1.0.dist-info").rename(installed / "zoo-1.1.dist-info")
    paths.append(record_path("/r", script(tmp_path)))
    module = Script(entry="train.py", kind=EntryKind.MODULE, folder=str(tmp_path))
    paths.append(record_path("/r", module))
    assert len(set(paths)) == len(paths)
    assert paths[2] == record_path("/r", script(tmp_path))


def test_package_that_the_script_has_in_its_own_folder_is_found(tmp_path: Path) -> None:
    """As a file, a folder or an extension."""
    (tmp_path / "zoo").mkdir()
    (tmp_path / "bar.cpython-311.so").write_text("")
    assert shadowed({"zoo", "bar", "other"}, str(tmp_path)) == {"zoo", "bar"}
    assert shadowed({"zoo"}, str(tmp_path / "gone")) == set()


def test_packages_come_first_loaded_first_without_those_left_out() -> None:
    """Each with its modules."""
    assert LEARNED.packages() == {"zoo": ["zoo", "zoo.ape"]}
    more = LEARNED.with_more(["zoo.bee", "new"], ["HOUSE", "A"], ["RANK"])
    assert more.packages() == {"zoo": ["zoo", "zoo.ape", "zoo.bee"], "new": ["new"]}
    assert more.without("new", "w").packages().keys() == {"zoo"}
    assert (more.variables, more.differing) == (("A", "HOUSE"), ("RANK",))
