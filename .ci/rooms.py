"""Writes docs/rooms.md: which package imports which, and what each room is for.

python .ci/rooms.py          # writes the page (`make picture`)
python .ci/rooms.py --check  # fails where the page is not what the code says

The floors are those of import-linter's first contract in pyproject.toml, the arrows are the imports
that stand in the code, and the sentences are the first lines of the packages' docstrings: nothing
on the page can be true of the day before yesterday alone.
"""

import ast
import sys
import tomllib
from pathlib import Path

import grimp
import networkx

from generated_page import ROOT, write_or_check

PAGE = ROOT / "docs" / "rooms.md"
FOLDERS = {"elasticd": ROOT / "elasticd", "elasticd_agent": ROOT / "agent" / "elasticd_agent"}

TITLES = ["faces", "processes, and what scripts call", "rules and protocols", "edges", "words"]
"""What the five floors are, the top one first."""

HEAD = """# Rooms

Written by `make picture` from the code: do not edit. What each package is for stands in the first
line of its docstring; imports point down only, which `make check` sees to.

An arrow means "imports". Where A imports B and B imports C, an arrow from A to C is left out.

"""


def floors() -> list[list[str]]:
    """Return the packages of each floor, the top one first, from pyproject.toml."""
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]
    layers: list[str] = contracts["contracts"][0]["layers"]
    return [[name.strip() for name in layer.split(":")] for layer in layers]


def charter(package: Path) -> str:
    """Return the first line of a package's docstring, or of a module's: a whole sentence."""
    file = package / "__init__.py" if package.is_dir() else package.with_suffix(".py")
    line = (ast.get_docstring(ast.parse(file.read_text())) or "").split("\n")[0]
    if not line.endswith("."):
        raise SystemExit(f"{file}: the first line of its docstring is no whole sentence: {line!r}")
    return line


def folder_of(package: str) -> Path:
    """Return where a package stands, by its dotted name."""
    top, *rest = package.split(".")
    return FOLDERS[top].joinpath(*rest)


def arrows(packages: list[str]) -> list[tuple[str, str]]:
    """Return which of these packages import which, without what follows from others."""
    graph = grimp.build_graph(*FOLDERS, exclude_type_checking_imports=True, cache_dir=None)

    def package_of(module: str) -> str | None:
        owners = [name for name in packages if module == name or module.startswith(f"{name}.")]
        return max(owners, key=len, default=None)

    found = networkx.DiGraph()
    found.add_nodes_from(packages)
    for module in graph.modules:
        importer = package_of(module)
        for other in graph.find_modules_directly_imported_by(module):
            imported = package_of(other)
            if importer and imported and importer != imported:
                found.add_edge(importer, imported)
    return sorted(networkx.transitive_reduction(found).edges)


def picture(levels: list[list[str]]) -> str:
    """Return the packages as a drawing in Mermaid, one box a floor."""
    lines = ["```mermaid", "flowchart TD"]
    for title, level in zip(TITLES, levels, strict=True):
        lines.append(f'  subgraph floor{len(TITLES) - TITLES.index(title)}["{title}"]')
        lines += [f"    {name.replace('.', '_')}[{short(name)}]" for name in level]
        lines.append("  end")
    packages = [name for level in levels for name in level]
    lines += [f"  {a.replace('.', '_')} --> {b.replace('.', '_')}" for a, b in arrows(packages)]
    return "\n".join([*lines, "```"])


def short(package: str) -> str:
    """Return a package's name without what all of them begin with."""
    return "agent" if package == "elasticd_agent" else package.removeprefix("elasticd.")


def rooms(package: str) -> list[str]:
    """Return a line for a package and one for each room in it."""
    home = folder_of(package)
    lines = [f"| **{short(package)}** | {charter(home)} |"]
    if home.is_dir():
        for room in sorted(path.parent for path in home.rglob("*/__init__.py")):
            inner = ".".join(room.relative_to(home).parts)
            lines.append(f"| {short(package)}.{inner} | {charter(room)} |")
    return lines


def page() -> str:
    """Return the whole page."""
    levels = floors()
    parts = [HEAD, picture(levels), "\n"]
    for title, level in zip(TITLES, levels, strict=True):
        number = len(TITLES) - TITLES.index(title)
        parts.append(f"\n## Floor {number}: {title}\n\n| room | what it is for |\n|---|---|\n")
        parts.append("\n".join(line for name in sorted(level) for line in rooms(name)) + "\n")
    return "".join(parts)


if __name__ == "__main__":
    sys.exit(write_or_check(PAGE, page()))
