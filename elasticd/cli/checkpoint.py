"""`elasticd checkpoint`: what a person does with checkpoints, with nothing but their URL.

Needs no cluster and no etcd; torch only to export.
"""

import click

from elasticd.cli.lazy import LazyGroup

__all__ = ["checkpoint"]

COMMANDS = {
    "ls": ("elasticd.cli.checkpoint_show:ls", "List the checkpoints."),
    "show": ("elasticd.cli.checkpoint_show:show", "Show what is in a checkpoint."),
    "verify": ("elasticd.cli.checkpoint_show:verify", "Read every byte and compare checksums."),
    "rm": ("elasticd.cli.checkpoint_change:rm", "Remove checkpoints."),
    "sweep": ("elasticd.cli.checkpoint_change:sweep", "Delete what crashes left behind."),
    "export": ("elasticd.cli.checkpoint_export:export", "Write one for use without elasticd."),
}


@click.command(cls=LazyGroup, table=COMMANDS)
def checkpoint() -> None:
    """List, check, export and remove checkpoints; URL is a folder, s3://, gs:// or abfs://."""
