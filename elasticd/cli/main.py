"""The command group, and how an error looks to a person.

An `ElasticdError` and a wrong call end as one plain sentence on stderr; a traceback is for our own
bugs. Commands are named in a table and imported when they are called.
"""

import os
import signal
import sys
from collections.abc import Sequence

import click

from elasticd import __version__
from elasticd.cli.lazy import LazyGroup
from elasticd.errors import ElasticdError

__all__ = ["main"]

COMMANDS = {
    "run": ("elasticd.cli.run:run", "Run a training script; the flags of torchrun."),
    "agent": ("elasticd.cli.agent:agent", "Serve this machine's slots: the daemon of a node."),
    "status": ("elasticd.cli.show:status", "Show jobs, or one job."),
    "nodes": ("elasticd.cli.show:nodes", "Show the nodes of the cluster."),
    "logs": ("elasticd.cli.show:logs", "Print what a job's workers wrote."),
    "why": ("elasticd.cli.show:why", "Tell what changed in a job, why, and what it cost."),
    "scale": ("elasticd.cli.change:scale", "Give a job more or fewer nodes."),
    "drain": ("elasticd.cli.change:drain", "Take a node out of service; or back in."),
    "stop": ("elasticd.cli.change:stop", "End a job."),
    "checkpoint": (
        "elasticd.cli.checkpoint:checkpoint",
        "List, check, export and remove checkpoints.",
    ),
}
CONTEXT = {"help_option_names": ["-h", "--help"], "max_content_width": 100}


def _print_version(ctx: click.Context, param: click.Parameter, is_wanted: bool) -> None:
    if is_wanted:
        click.echo(f"elasticd {__version__}")
        ctx.exit()


@click.command(
    cls=LazyGroup,
    table=COMMANDS,
    context_settings=CONTEXT,
    help="Elastic, fault-tolerant training for PyTorch: a run survives its machines.",
)
@click.option(
    "--version",
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=_print_version,
    help="Print the version and exit.",
)
def elasticd() -> None:
    """Hold the commands."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line; return the exit code."""
    try:
        code = elasticd.main(
            args=list(argv) if argv is not None else None,
            prog_name="elasticd",
            standalone_mode=False,
        )
        return code if isinstance(code, int) else 0
    except click.exceptions.NoArgsIsHelpError as exc:
        print(exc.format_message(), file=sys.stderr)  # noqa: T201
        return 2
    except click.UsageError as exc:
        command = exc.ctx.command_path if exc.ctx is not None else "elasticd"
        complain(f"{exc.format_message().rstrip('.')}: see `{command} --help`.")
        return 2
    except click.ClickException as exc:
        complain(exc.format_message())
        return 2
    except ElasticdError as exc:
        complain(str(exc))
        return exc.exit_code
    except (KeyboardInterrupt, click.Abort):
        return 128 + signal.SIGINT
    except BrokenPipeError:
        # `elasticd logs JOB | head`: the reader has gone. Nothing more may be flushed to it.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 128 + signal.SIGPIPE


def complain(sentence: str) -> None:
    """Print one plain sentence about what went wrong."""
    print("elasticd: " + " ".join(sentence.split()), file=sys.stderr, flush=True)  # noqa: T201


if __name__ == "__main__":
    sys.exit(main())
