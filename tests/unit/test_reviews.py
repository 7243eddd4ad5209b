"""What docs/reviews.md names is there: commits, files, tests and mutants."""

import re
from functools import cache

import pytest

from tests.fixtures.history import ROOT, git

PAGE = ROOT / "docs" / "reviews.md"
HASH = r"[0-9a-f]{7,9}"
COMMITS = re.compile(rf"{HASH}(, {HASH})*|this one|none: \S.*")
"""A row names its commits, or says why there is none. The commit that brings a row cannot name
itself, so it says "this one", and a later commit writes the hash."""
NAMED_HASH = re.compile(rf"\b(?=\w*\d)(?=\w*[a-f]){HASH}\b")
"""A number alone may be a seed, elsewhere than in the column of the commits."""
YOUNG = 60
"""How many commits a row may say "this one"."""
NAMED = re.compile(r"([\w./-]*\w\.(?:py|md|toml|patch))\b|::(\w+)")
MUTANTS = re.compile(r"\bmutants? (\d+(?:(?:, | to | and )\d+)*)")
FOLDERS = ("elasticd", "agent", "chaos", "tests", "docs", "deploy", ".ci")
NOT_OURS = {"distributed_c10d.py"}


def rows() -> list[tuple[int, list[str]]]:
    """Return the rows of all tables by their lines, each as its cells, without the headings."""
    found = []
    for number, line in enumerate(PAGE.read_text().splitlines(), 1):
        if line.startswith("| ") and not line.startswith("| finding "):
            cells = re.split(r"(?<!\\)\|", line.strip().removeprefix("|").removesuffix("|"))
            found.append((number, [cell.strip() for cell in cells]))
    return found


@cache
def files() -> list[str]:
    """Return the paths of all files, each after a slash, so that a name can be any end of one."""
    below = [path for top in FOLDERS for path in (ROOT / top).rglob("*.*")]
    return [f"/{path.relative_to(ROOT)}" for path in [*below, *ROOT.glob("*.*")]]


@cache
def defined_in(path: str) -> set[str]:
    text = (ROOT / path.removeprefix("/")).read_text()
    return set(re.findall(r"^\s*(?:async def|def|class) (\w+)", text, re.MULTILINE))


def missing_in(cell: str) -> list[str]:
    """Name the files, and the tests of the file that stands before them, that do not exist."""
    wrong: list[str] = []
    homes: list[str] = []
    for path, test in NAMED.findall(cell):
        if path:
            homes = [each for each in files() if each.endswith(f"/{path}")]
            wrong += [path] if not homes and path not in NOT_OURS else []
        elif not any(test in defined_in(home) for home in homes):
            wrong.append(f"::{test}")
    return wrong


def numbers_in(text: str) -> set[int]:
    """Return the numbers of "mutants 80 to 82, 84"."""
    found: set[int] = set()
    for said in MUTANTS.findall(text):
        for first, last in re.findall(r"(\d+)(?: to (\d+))?", said):
            found |= set(range(int(first), int(last or first) + 1))
    return found


def test_each_row_names_its_commits_or_says_why_there_is_none() -> None:
    found = rows()
    assert len(found) > 200
    assert [number for number, cells in found if len(cells) != 4] == []
    assert [(n, cells[2]) for n, cells in found if not COMMITS.fullmatch(cells[2])] == []


@pytest.mark.history
def test_each_commit_that_is_named_came_before_this_one() -> None:
    commits = git("rev-list", "HEAD").splitlines()
    known = {commit[:length] for commit in commits for length in (7, 8, 9)}
    column = " ".join(cells[2] for _, cells in rows())
    named = {*NAMED_HASH.findall(PAGE.read_text()), *re.findall(rf"\b{HASH}\b", column)}
    assert len(named) > 100
    assert named - known == set()


@pytest.mark.history
def test_row_that_says_this_one_gets_its_hash_soon() -> None:
    young = {"0" * 40, *git("rev-list", "-n", str(YOUNG), "HEAD").splitlines()}
    late = []
    for number in [number for number, cells in rows() if cells[2] == "this one"]:
        brought = git("blame", "--porcelain", "-L", f"{number},{number}", "--", str(PAGE)).split()[
            0
        ]
        late += [] if brought in young else [f"line {number}: write {brought[:8]}"]
    assert late == []


def test_each_file_and_test_that_is_named_exists() -> None:
    wrong = [(number, missing) for number, cells in rows() if (missing := missing_in(cells[-1]))]
    assert wrong == []


def test_each_file_and_test_that_the_text_names_exists() -> None:
    text = "\n".join(x for x in PAGE.read_text().splitlines() if not x.startswith("|"))
    named = re.findall(r"`([^`]+)`|\]\(([^)#]+)", text)
    wrong = [
        (said, missing) for pair in named if (missing := missing_in(said := pair[0] or pair[1]))
    ]
    assert wrong == []


def test_each_mutant_that_is_named_exists() -> None:
    there = {
        int(path.name.partition("-")[0]) for path in (ROOT / "tests" / "mutants").glob("*-*.patch")
    }
    named = numbers_in(PAGE.read_text())
    assert len(named) > 100
    assert named - there == set()
