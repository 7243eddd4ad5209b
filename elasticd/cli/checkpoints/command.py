"""`elasticd checkpoint`: a person lists, checks, exports and removes checkpoints by their URL.

The commands need no cluster and no etcd; only the export needs torch.
"""

import click

from elasticd.cli.lazy_group import LazyGroup

__all__ = ["checkpoint"]

COMMANDS = {
    "ls": ("elasticd.cli.checkpoints.show:ls", "List the checkpoints."),
    "show": ("elasticd.cli.checkpoints.show:show", "Show what is in a checkpoint."),
    "verify": ("elasticd.cli.checkpoints.show:verify", "Read every byte and compare checksums."),
    "rm": ("elasticd.cli.checkpoints.remove:rm", "Remove checkpoints."),
    "sweep": ("elasticd.cli.checkpoints.remove:sweep", "Delete what crashes left behind."),
    "export": (
        "elasticd.cli.checkpoints.export:export",
        "Write a checkpoint for use without elasticd.",
    ),
}


@click.command(cls=LazyGroup, table=COMMANDS)
def checkpoint() -> None:
    """List, check, export and remove checkpoints; URL is a folder, s3://, gs:// or abfs://."""
