"""A command group that imports a command only when it is called: `elasticd agent` must not wait
for rich.
"""

import importlib
from collections.abc import Mapping
from difflib import get_close_matches
from typing import Any

import click

__all__ = ["LazyGroup", "Table"]

Table = Mapping[str, tuple[str, str]]
"""Commands by name: `module:attribute`, and one line of help."""


class LazyGroup(click.Group):
    """A group that holds each command's name and one line of help, but not the command."""

    def __init__(self, *args: Any, table: Table, **more: Any) -> None:
        super().__init__(*args, **more)
        self._table = table

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(self._table)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in self._table:
            return None
        module, _, name = self._table[cmd_name][0].partition(":")
        command = getattr(importlib.import_module(module), name)
        assert isinstance(command, click.Command)
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Return the called command; a command of the table is imported now.

        Raises: UsageError: there is no such command; the message lists similar names.
        """
        name = args[0]
        if not (name in self._table or name.startswith("-") or ctx.resilient_parsing):
            near = " or ".join(repr(match) for match in get_close_matches(name, self._table))
            hint = f". Did you mean {near}?" if near else ""
            raise click.UsageError(f"No such command {name!r}{hint}", ctx)
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, text) for name, (_, text) in self._table.items()])
