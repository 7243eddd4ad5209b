"""The report of a command that changes something: sentences for people, or JSON for programs."""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import click

from elasticd.cli.etcd_flags import where_options
from elasticd.cli.main import complain
from elasticd.errors import ElasticdError

__all__ = ["CommandReport", "change_options", "each_of"]

F = TypeVar("F", bound=Callable[..., Any])


def change_options(command: F) -> F:
    command = click.option(
        "--dry-run", "is_dry_run", is_flag=True, help="Check, and only say what would be done."
    )(command)
    command = click.option(
        "--json", "is_json", is_flag=True, help="Print one JSON object a line, for programs."
    )(command)
    return where_options(command)


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandReport:
    """Prints the result of a command, as a sentence or as JSON."""

    is_dry_run: bool = False
    is_json: bool = False
    echo: Callable[[str], None] = click.echo

    def __call__(self, sentence: str, **facts: object) -> None:
        if self.is_json:
            plain = {**facts, "is_dry_run": self.is_dry_run, "message": sentence}
            self.echo(json.dumps(plain))
        else:
            dry = "dry run, nothing was changed: " if self.is_dry_run else ""
            self.echo(dry + sentence)


def each_of(names: Sequence[str], do: Callable[[str], None]) -> int:
    """Call `do` for each name; an error for one name does not stop the others."""
    code = 0
    for name in names:
        try:
            do(name)
        except ElasticdError as exc:
            if len(names) == 1:
                raise
            complain(str(exc))
            code = exc.exit_code
    return code
