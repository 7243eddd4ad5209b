"""Tables for people; rich is imported only here, and only when one is drawn."""

import sys
from collections.abc import Sequence

__all__ = ["show_table"]


def show_table(columns: Sequence[str], rows: Sequence[Sequence[str]], title: str = "") -> None:
    """Print a table as wide as the terminal; without one, as wide as its content."""
    from rich import box
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(box=box.SIMPLE_HEAD, title=title or None, title_justify="left", pad_edge=False)
    for column in columns:
        table.add_column(column, overflow="fold")
    for row in rows:
        table.add_row(*map(Text, row))
    width = None if sys.stdout.isatty() else 1000
    Console(width=width, highlight=False).print(table)
