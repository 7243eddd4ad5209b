"""Tables for people; rich is imported only here, and only when a table is drawn.

If a terminal is too narrow for a table, the last column, mostly a sentence, is printed on a line
below each row. If it is too narrow even for that, each cell gets a line. Nobody can read a table
whose cells are broken into pieces of three letters.
"""

import os
import sys
from collections.abc import Sequence
from contextlib import suppress

__all__ = ["narrow_lines", "show_table"]

GAP = "   "
INDENT = "    "
RULES = 4
"""The width in columns that a table needs beside its cells and the gaps between them."""


def show_table(columns: Sequence[str], rows: Sequence[Sequence[str]], title: str = "") -> None:
    """Print a table as wide as the terminal; without a terminal, as wide as its content."""
    from rich import box
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    width = _terminal_width()
    narrow = narrow_lines(columns, rows, width) if width is not None else []
    if narrow:
        for line in ([title] if title else []) + narrow:
            print(line)  # noqa: T201
        return
    table = Table(box=box.SIMPLE_HEAD, title=title or None, title_justify="left", pad_edge=False)
    for column in columns:
        table.add_column(column, overflow="fold")
    for row in rows:
        table.add_row(*map(Text, row))
    Console(width=None if width is not None else 1000, highlight=False).print(table)


def narrow_lines(columns: Sequence[str], rows: Sequence[Sequence[str]], width: int) -> list[str]:
    """Return the lines for a terminal that is too narrow for the table; an empty list if it is wide
    enough.
    """
    cells = [max(map(len, column)) for column in zip(columns, *rows, strict=True)]
    if sum(cells) + len(GAP) * (len(cells) - 1) + RULES <= width:
        return []
    if sum(cells[:-1]) + len(GAP) * (len(cells) - 2) <= width and len(cells) > 1:
        lines = [_line(columns[:-1], cells)]
        for row in rows:
            lines.append(_line(row[:-1], cells))
            lines += [INDENT + row[-1]] if row[-1] else []
        return lines
    return [
        line
        for row in rows
        for line in (
            row[0],
            *(
                f"{INDENT}{name.lower()}: {value}"
                for name, value in zip(columns[1:], row[1:], strict=True)
                if value
            ),
        )
    ]


def _line(cells: Sequence[str], widths: Sequence[int]) -> str:
    return GAP.join(cell.ljust(width) for cell, width in zip(cells, widths, strict=False)).rstrip()


def _terminal_width() -> int | None:
    """Return the width of the terminal in columns; None if there is no terminal."""
    with suppress(OSError, ValueError):
        if sys.stdout.isatty():
            return int(os.environ.get("COLUMNS", 0)) or os.get_terminal_size(1).columns or 80
    return None
