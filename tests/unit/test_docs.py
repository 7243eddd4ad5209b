"""What the documentation names is there: functions, files, commands with their options, targets."""

import ast
import re
import tomllib
from collections import Counter
from functools import cache
from pathlib import Path

import click
import pytest

from elasticd.cli.main import elasticd

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", ROOT / "chaos" / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
WALK = re.compile(r"^\d+\. `([a-z0-9_/]+\.py)`: (.*)$", re.MULTILINE)
CALL = re.compile(r"(?:^|[\s`$])(?<!-n )elasticd ((?:[a-z]+ )*[a-z]+)([^\n`#|]*)", re.MULTILINE)
OPTION = re.compile(r"(?<![\w-])(--[a-z][a-z0-9-]*)")
SCRIPT = re.compile(r"[\w/.]+\.py\b.*")
"""What follows a script belongs to the script."""


def file_of(path: str) -> Path:
    if path.startswith("chaos/"):
        return ROOT / path
    top = ROOT / "agent" / "elasticd_agent" if path.startswith("agent/") else ROOT / "elasticd"
    return top / path.removeprefix("agent/")


def names_in(path: Path) -> set[str]:
    """Return the functions and classes of a file, methods with their class."""
    found = set()
    for node in ast.parse(path.read_text()).body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            found.add(node.name)
        if isinstance(node, ast.ClassDef):
            inner = (each for each in node.body if isinstance(each, ast.FunctionDef))
            found |= {f"{node.name}.{each.name}" for each in inner}
    return found


def walks() -> list[tuple[str, str]]:
    text = (ROOT / "docs" / "architecture.md").read_text()
    return [
        (path, name)
        for path, rest in WALK.findall(text)
        for name in re.findall(r"`([A-Za-z_.]+)`", rest)
        if name != "train"
    ]


@pytest.mark.parametrize(("path", "name"), walks())
def test_function_of_a_walk_exists(path: str, name: str) -> None:
    assert name in names_in(file_of(path))


FIVE_WALKS = [
    "A commit on an ordinary step.",
    "From a heartbeat to a hung worker's end.",
    "From a killed worker to the next step.",
    "From a tensor to a checkpoint in a bucket.",
    "From a flag to the environment of a worker.",
]
TWO_SCREENS = 150
"""Lines of two screens, of 75 each, with the picture."""


def test_architecture_has_five_walks_each_with_a_list() -> None:
    text = (ROOT / "docs" / "architecture.md").read_text().partition("\n## Five walks\n")[2]
    assert re.findall(r"^\*\*([^*]+)\*\*", text, re.MULTILINE) == FIVE_WALKS
    lists = re.split(r"^\*\*[^*]+\*\*", text, flags=re.MULTILINE)[1:]
    assert [len(WALK.findall(each)) >= 5 for each in lists] == [True] * 5


def test_architecture_fits_on_two_screens_with_its_picture() -> None:
    text = (ROOT / "docs" / "architecture.md").read_text()
    assert len(text.splitlines()) <= TWO_SCREENS
    assert "```text\n" in text.partition("\n## ")[0]


def test_floors_of_the_architecture_are_those_of_the_linter() -> None:
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())
    contracts = settings["tool"]["importlinter"]["contracts"]
    layers = next(each["layers"] for each in contracts if each["name"].startswith("Five floors"))
    page = (ROOT / "docs" / "architecture.md").read_text()
    rows = re.findall(r"^\| \d, [^|]*\|([^|]*)\|", page, re.MULTILINE)
    said = [set(re.findall(r"`([a-z_.]+)`", row)) for row in rows]
    assert said == [set(re.split(r" [:|] ", layer)) for layer in layers]


def glossary_files() -> list[str]:
    table = (ROOT / "docs" / "glossary.md").read_text().partition("\n## Machines")[0]
    return re.findall(r"`([a-z0-9_/]+\.py)`", table)


@pytest.mark.parametrize("path", glossary_files())
def test_file_of_the_glossary_exists(path: str) -> None:
    assert file_of(path).exists()


def test_no_word_of_the_glossary_has_two_entries() -> None:
    """The table of the field's words counts as well; `state source, state target` are two words."""
    text = (ROOT / "docs" / "glossary.md").read_text()
    entries = re.findall(r"^\| \*\*([^*]+)\*\*", text, re.MULTILINE)
    words = Counter(word for entry in entries for word in entry.split(", "))
    assert len(words) > 150
    assert {word for word, count in words.items() if count > 1} == set()


def test_figures_of_the_readme_are_those_of_the_benchmarks() -> None:
    """Each second of its table, and the cost of a step, stands in the summary of the benchmarks."""
    readme = (ROOT / "README.md").read_text()
    table = readme.partition("| time from the fault")[2].partition("\n\n")[0]
    columns = "\n".join("|".join(row.split("|")[2:5]) for row in table.splitlines()[2:])
    figures = re.findall(r"[\d.]+ s\b", columns) + re.findall(r"[\d.]+ %", readme[:4000])
    assert len(figures) >= 12
    page = (ROOT / "docs" / "benchmarks.md").read_text()
    summary = page.partition("## In short")[2].partition("\n## ")[0]
    assert [each for each in figures if each not in summary] == []


@cache
def commands() -> dict[str, set[str]]:
    """Return all commands by their names, each with its options."""
    found: dict[str, set[str]] = {}

    def add(command: click.Command, name: str) -> None:
        context = click.Context(command, info_name=name)
        found[name] = {opt for each in command.get_params(context) for opt in each.opts}
        if isinstance(command, click.Group):
            for inner in command.list_commands(context):
                below = command.get_command(context, inner)
                assert below is not None
                add(below, f"{name} {inner}".strip())

    add(elasticd, "")
    return found


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_options_of_each_command_on_a_page_exist(page: Path) -> None:
    wrong = []
    for words, rest in CALL.findall(page.read_text()):
        name = ""
        for word in words.split():
            if f"{name} {word}".strip() not in commands():
                break
            name = f"{name} {word}".strip()
        line = SCRIPT.sub("", words + rest) if name == "run" else words + rest
        given = set(OPTION.findall(line))
        wrong += [f"elasticd {name} {option}" for option in given - commands()[name] if name]
    assert wrong == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_commands_in_code_blocks_exist(page: Path) -> None:
    """A line of a shell block that begins with `elasticd` calls a command that there is."""
    blocks = re.findall(r"```sh\n(.*?)```", page.read_text(), re.DOTALL)
    called = re.findall(r"^elasticd ([a-z]+)", "\n".join(blocks), re.MULTILINE)
    assert set(called) - set(commands()) == set()


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_targets_of_make_on_a_page_exist(page: Path) -> None:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    blocks = re.findall(r"```sh\n.*?```|`make [a-z-]+[^`]*`", page.read_text(), re.DOTALL)
    named = set(re.findall(r"(?:`|^)make ([a-z-]+)", "\n".join(blocks), re.MULTILINE))
    assert named - targets == set()


LINKING = [*PAGES, ROOT / "CHANGELOG.md"]


@pytest.mark.parametrize("page", LINKING, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_to_files_and_sections_that_exist(page: Path) -> None:
    """Those to other sites are not followed."""
    for link in re.findall(r"\]\(([^)\s]+)\)", without_code(page)):
        if "://" in link:
            continue
        path, _, section = link.partition("#")
        led = page.parent / path if path else page
        assert led.exists(), f"{link}: there is no such file"
        if section and led.suffix == ".md":
            assert section in sections_of(led.resolve()), f"{link}: there is no such section"


@cache
def sections_of(page: Path) -> set[str]:
    """The names by which links lead to its headings."""
    count: Counter[str] = Counter()
    found = set()
    for heading in re.findall(r"^#+ (.+)$", without_code(page), re.MULTILINE):
        text = re.sub(r"\[([^]]*)]\([^)]*\)", r"\1", heading).lower().strip()
        name = re.sub(r"[^\w\- ]", "", text).replace(" ", "-")
        found.add(f"{name}-{count[name]}" if count[name] else name)
        count[name] += 1
    return found


def without_code(page: Path) -> str:
    """The page without its blocks of code."""
    return re.sub(r"^```.*?^```", "", page.read_text(), flags=re.MULTILINE | re.DOTALL)
