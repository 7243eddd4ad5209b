"""The group of `elasticd autoscale`: its commands are imported when they are called."""

import click

from elasticd.cli.lazy_group import LazyGroup

__all__ = ["autoscale"]

COMMANDS = {
    "run": ("elasticd.cli.autoscale.run:run", "Size the jobs that have a policy: the daemon."),
    "set": ("elasticd.cli.autoscale.set:set_", "Give a job a policy, or another one."),
    "unset": ("elasticd.cli.autoscale.unset:unset", "Remove a job's policy."),
    "explain": (
        "elasticd.cli.autoscale.explain:explain",
        "Explain the decisions about a job's size.",
    ),
    "simulate": (
        "elasticd.cli.autoscale.simulate:simulate",
        "Simulate another policy for a job.",
    ),
}


@click.command(
    cls=LazyGroup,
    table=COMMANDS,
    short_help="Size jobs by their policies.",
)
def autoscale() -> None:
    """Size jobs by their policies, and explain the sizes."""
